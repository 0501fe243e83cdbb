"""What a convolution or one of its gradients holds at most beside its operands and its result, from shapes alone.

A bound for processors that are not here to be measured, and for calls that are too large to be. Why it is one: PyTorch
computes a convolution in one of three ways, and takes the way by shapes, processor and threads. It holds

- in blocks (oneDNN's kernels that are made for an instruction set): copies of both operands and of the result, with the
  channels of each group rounded up to whole blocks. A strided gradient of the input may copy its result twice and
  gather an image, with a border, in each thread; a gradient of the weight has a sum in each thread;
- by products of matrices (oneDNN where it has no such kernel): the windows of one image in each thread, and of a
  gradient of the weight four tensors of the weight's shape in each thread;
- by ATen's own kernels (types that oneDNN does not know here, and calls that are too small for it): the windows of all
  images at once, and of groups the operands of one and the result.

The bound is the most of the three, with some pages for each thread. Operands that are not contiguous are copied first.
Of numbers of two bytes all copies count twice, and the windows of one image eight times in each thread: matrix units
want operands in orders of their own, and sums are float32; that allowance was found by measuring, the rest by reading.
The tests hold the bound against measurements under four instruction sets. It is no proof for a library of tomorrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from girih.ops.derive.temporaries import Shape

PAGES = 1 << 15
"""For each thread, and once for all: pages that buffers are rounded up to, counters, notes."""
SHORT_BLOCK, BLOCK = 64, 16
"""Channels in a block, of two bytes each (for matrix units) and of four."""
LEAST_IMAGES, LEAST_ELEMENTS = 16, 20480
"""From where on ATen does not take a kernel of its own (ATen/native/Convolution.cpp, `use_mkldnn`)."""


@dataclass(frozen=True)
class Convolution:
    """A convolution or one of its gradients on one device.

    small, large, weight: shapes of the convolution's result, input and weight. given: the shape of the tensor that
    ATen's choice looks at. item: bytes of an element. out: bytes of what is made.
    """

    small: Shape
    large: Shape
    weight: Shape
    given: Shape
    stride: Shape
    dilation: Shape
    groups: int
    item: int
    out: int
    threads: int

    @property
    def kernel(self) -> Shape:
        return self.weight[2:]

    @property
    def strided(self) -> bool:
        return max(self.stride) > 1

    @property
    def operations(self) -> int:
        return 2 * prod(self.small) * prod(self.weight[1:])

    @property
    def windows(self) -> int:
        """Bytes of the windows of one image, laid out for a product of matrices."""
        return self.weight[1] * self.groups * prod(self.kernel) * prod(self.small[2:]) * self.item

    @property
    def inputs(self) -> int:
        return self.blocked(self.large[1])

    @property
    def outputs(self) -> int:
        return self.blocked(self.small[1])

    def blocked(self, channels: int) -> int:
        """Channels with each group's rounded up to whole blocks; of depthwise convolutions all together."""
        block = BLOCK if self.item >= 4 else SHORT_BLOCK
        own = -(-channels // self.groups)
        return -(-channels // block) * block if own <= 1 else self.groups * -(-own // block) * block

    @property
    def pairs(self) -> int:
        """Bytes of the weight in blocks; sums of short numbers are float32."""
        return self.outputs * -(-self.inputs // self.groups) * prod(self.kernel) * max(self.item, 4)

    @property
    def narrow(self) -> int:
        return self.small[0] * self.outputs * prod(self.small[2:]) * self.item

    @property
    def wide(self) -> int:
        return self.large[0] * self.inputs * prod(self.large[2:]) * self.item

    @property
    def copies(self) -> int:
        gathered = self.threads * self.inputs * prod(self.small[2:]) * self.item if self.strided else 0
        once = self.narrow + self.wide + self.pairs + gathered
        return once if self.item >= 4 else 2 * once + self.threads * 8 * self.windows

    @property
    def may_be_native(self) -> bool:
        """May ATen take a kernel of its own? Of float32 by its shape."""
        if self.item != 4:
            return True
        if not (self.strided or max(self.dilation) > 1) and max(self.kernel[-2:]) == 1:
            return self.given[0] < LEAST_IMAGES
        return self.groups == 1 and self.given[0] <= 1 and prod(self.given[:4]) <= LEAST_ELEMENTS

    @property
    def native(self) -> int:
        if not self.may_be_native:
            return 0
        group = (prod(self.large) + prod(self.small)) * self.item // self.groups if self.groups > 1 else 0
        return self.small[0] * self.windows + max(self.out, group)

    @property
    def image(self) -> int:
        """Bytes of one image of the result's gradient, with a border."""
        border = (
            -(-(k - 1) * d // s) + 3 + size
            for k, d, s, size in zip(self.kernel, self.dilation, self.stride, self.small[2:], strict=True)
        )
        return self.outputs * prod(border) * self.item


def forward(call: Convolution) -> int:
    return _pages(call) + max(call.copies, call.threads * call.windows, call.native)


def input_gradient(call: Convolution) -> int:
    again = call.wide + call.threads * call.image if call.strided else 0
    return _pages(call) + max(call.copies + again, call.threads * call.windows, call.native)


def weight_gradient(call: Convolution) -> int:
    sums = call.threads * (call.pairs + call.outputs * max(call.item, 4))
    products = call.threads * (call.windows + 4 * call.pairs)
    return _pages(call) + max(call.copies + sums, products, call.native + call.pairs)


def _pages(call: Convolution) -> int:
    return (1 + call.threads) * PAGES
