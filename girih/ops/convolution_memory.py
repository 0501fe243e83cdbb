"""What convolutions hold while they run, beside their operands and their result, in bytes.

ATen gives a convolution to oneDNN or to a kernel of its own, by shapes and by the number of threads (`native`).

oneDNN computes in its own orders of memory, and PyTorch copies operands and result from and to them: channels in
blocks of 16 (AVX-512; blocks of 8 elsewhere are less: a bound), few input channels as they are, strided gradients of
inputs with channels last. While the kernel runs, copies of both operands and of the result live, and what oneDNN keeps
for its threads; then the copy of the result beside the result. The threads' part is nothing for one thread, except in
strided gradients of inputs, where each thread gathers an image. In gradients of weights, threads that share the images
each have a sum of their own: whether they share images or channels is oneDNN's choice of least traffic (`sharing`).

Sources: ATen/native/Convolution.cpp (`use_mkldnn`), ATen/native/mkldnn/Conv.cpp; of oneDNN 3.12 cpu/x64's
jit_avx512_core conv kernels, cpu_reducer.cpp, jit_brgemm_conv_utils.cpp. Constants were seen in the profiler with
PyTorch 2.13 on AVX-512, on one, two and four threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from girih.ops.temporaries import Shape

BLOCK = 16
PAGE = 4096
NOTES = 8448  # of threads that share images: two pages, counters, less than 256 bytes besides (a bound)
STRIDED_NOTES = 12416  # of a strided gradient, once; of each thread two pages and a few bytes
THREAD_NOTES = 2 * PAGE + 24
LEAST_IMAGES, LEAST_ELEMENTS = 16, 20480  # from where on ATen prefers oneDNN


@dataclass(frozen=True)
class Call:
    """A convolution or one of its gradients on one device.

    small, large, weight: shapes of the convolution's result, input and weight; item and out: bytes of an element and of
    what is made; given: the shape of the tensor that ATen's choice looks at.
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
    def window(self) -> bool:
        return prod(self.kernel) > 1

    @property
    def strided(self) -> bool:
        return max(self.stride) > 1

    @property
    def exact(self) -> bool:
        """Is every element of the input's width, height, ... seen by whole strides?"""
        return all(y * s == x for x, y, s in zip(self.large[2:], self.small[2:], self.stride, strict=True))

    @property
    def pointwise(self) -> bool:
        """Is it for oneDNN's kernels of size 1?"""
        return not self.window and (self.exact or not self.strided)

    @property
    def ragged(self) -> bool:
        return any(size % step for size, step in zip(self.large[2:], self.stride, strict=True))

    @property
    def few(self) -> bool:
        """Less input channels than a block, read by a kernel that can do with them."""
        reads = self.window or (self.strided and not self.exact)
        return self.groups == 1 and reads and self.weight[1] < BLOCK

    @property
    def beyond(self) -> bool:
        """Are windows higher than the input, or have they gaps? oneDNN may then leave it to products of matrices."""
        rank = len(self.kernel)
        return max(self.dilation) > 1 or rank > 2 or (rank == 2 and self.kernel[0] > self.large[2])

    @property
    def native(self) -> bool:
        """Does ATen take a kernel of its own? What is not float32 or shorter has none in oneDNN."""
        if self.item != 4:
            return self.item > 4
        plain = not (self.strided or max(self.dilation) > 1) and max(self.kernel[-2:]) == 1
        if plain and self.given[0] < LEAST_IMAGES and self.threads == 1:
            return True
        if self.groups > 1 or self.given[0] > 1 or prod(self.given[:4]) > LEAST_ELEMENTS:
            return False
        return not (len(self.kernel) > 1 and min(self.kernel[-2:]) > 3)

    @property
    def columns(self) -> int:
        """All windows of all images, laid out for a product of matrices."""
        return self.small[0] * self.weight[1] * self.groups * prod(self.kernel) * prod(self.small[2:]) * self.item


def blocked(channels: int, groups: int, block: int = BLOCK) -> int:
    """Channels with each group's rounded up to whole blocks; of depthwise convolutions all together."""
    own = channels // groups
    return channels if own == 0 else (-(-channels // block) * block if own == 1 else groups * -(-own // block) * block)


def sides(call: Call) -> tuple[int, int, int]:
    """Bytes of oneDNN's copies of the convolution's result, input, weight."""
    outputs, inputs = blocked(call.small[1], call.groups), blocked(call.large[1], call.groups)
    pairs = outputs * inputs // call.groups * prod(call.kernel)
    narrow, wide = call.small[0] * outputs * prod(call.small[2:]), call.large[0] * inputs * prod(call.large[2:])
    return narrow * call.item, wide * call.item, pairs * call.item


def gathered(call: Call) -> int:
    """A strided kernel of size 1 that leaves no element over gathers what it needs of an image, in each thread."""
    if not call.strided or not call.pointwise:
        return 0
    return call.threads * blocked(call.large[1], call.groups) * prod(call.small[2:]) * call.item + 128


def matrices(call: Call, of_weight: bool) -> int:
    """What products of matrices need for each thread: the windows of an image, four times the weight's gradient."""
    slices = call.small[2] if len(call.kernel) > 2 else 1
    windows = call.columns // call.small[0] // call.groups // slices + 128
    return call.threads * (windows + of_weight * 4 * prod(call.weight) * call.item) + 128


def unfolded(call: Call) -> int:
    """A kernel of ATen's own takes a convolution of size 1 without stride as it is; groups come one after the other."""
    return call.columns if call.window or call.strided else 0


def forward(call: Call) -> int:
    if call.native:
        group = prod(call.large) * call.item // call.groups
        return unfolded(call) + (max(call.out, group) if call.groups > 1 else 0)
    narrow, wide, pairs = sides(call)
    if call.few:  # read as they are
        wide, pairs = 0, blocked(call.small[1], 1) * call.weight[1] * prod(call.kernel) * call.item
    most = max(gathered(call) + narrow + wide + pairs - call.out, narrow)
    return max(most, matrices(call, False)) if call.beyond and call.strided else most


def input_gradient(call: Call) -> int:
    if call.native:
        return call.columns
    narrow, wide, pairs = sides(call)
    if not call.strided:
        return max(narrow + wide + pairs - call.out, wide)
    # Channels last: nothing is rounded but the weight's; the result is then copied twice.
    narrow, wide = prod(call.small) * call.item, prod(call.large) * call.item
    held = STRIDED_NOTES + call.threads * (THREAD_NOTES + image(call))
    if call.ragged or call.small[1] % BLOCK or call.large[1] % BLOCK:  # blocks that are not full have a buffer
        held += PAGE + call.threads * 4 * PAGE
    return max(held + narrow + wide + pairs - call.out, wide + call.out)


def image(call: Call) -> int:
    """Bytes of one image of the gradient with a border, in whole pages of elements: each thread's (a bound)."""
    ragged = 3 if call.ragged else 0
    border = [-(-(k - 1) * d // s) + ragged for k, d, s in zip(call.kernel, call.dilation, call.stride, strict=True)]
    sizes = (size + more for size, more in zip(call.small[2:], border, strict=True))
    return -(-blocked(call.small[1], call.groups) * prod(sizes) // PAGE) * PAGE * call.item


def weight_gradient(call: Call) -> int:
    if call.native:
        group = (prod(call.large) + prod(call.small)) * call.item // call.groups
        return unfolded(call) + (max(call.out, group) if call.groups > 1 else 0)
    narrow, wide, pairs = sides(call)
    if narrow == 0 or wide == 0:
        return pairs
    own = call.weight[1]
    if (call.few and own > 3 and call.beyond) or (call.groups > 1 and own > 1 and own % 8):
        return matrices(call, True)
    if not call.few:
        return max(narrow + wide + pairs + gathered(call) + sums(call, pairs) - call.out, pairs)
    if own <= 3:  # read as they are
        pairs = blocked(call.small[1], 1) * own * prod(call.kernel) * call.item
        return max(narrow + pairs + sums(call, pairs) - call.out, pairs)
    outputs, inputs = blocked(call.small[1], 1, 8), blocked(own, 1, 8)
    narrow, wide = (call.small[0] * outputs * prod(call.small[2:]), call.large[0] * inputs * prod(call.large[2:]))
    pairs = outputs * inputs * prod(call.kernel) * call.item
    return max((narrow + wide) * call.item + pairs + sums_of_jobs(call, outputs, inputs) - call.out, pairs)


def sums(call: Call, pairs: int) -> int:
    """Of all threads but one that share the images; one number for each output channel goes with the larger kernels."""
    parts = sharing(call)
    each = pairs + (0 if call.pointwise else blocked(call.small[1], call.groups) * call.item)
    return (parts - 1) * each + NOTES if parts > 1 else 0


def sharing(call: Call) -> int:
    """How many threads share the images: 1 if they divide channels only; for more than two threads a bound."""
    threads = call.threads // call.groups
    if threads <= 1:
        return 2 if call.weight[1] == 1 and call.groups > 1 and call.threads > 2 else 1
    batch, own = call.small[0], call.weight[1]
    block = own if call.few and own <= 3 else BLOCK
    inputs, outputs = -(-own // block), -(-call.small[1] // call.groups // BLOCK)
    taps = prod(call.kernel) * (12 if call.pointwise else 8)

    def way(parts: int, by_output: int, by_input: int) -> tuple[float, float, int]:
        """(elements read and written, products, parts of the images)"""
        o, i = ceil(outputs / by_output), ceil(inputs / by_input)
        n = batch / parts if call.pointwise or batch < threads else ceil(batch / parts)  # rows are shared too
        read = n * i * block * prod(call.large[2:]) / prod(call.stride) + n * o * BLOCK * prod(call.small[2:])
        return read + taps * o * i * BLOCK * block, n * o * i, parts

    ways = [
        way(parts, by_output, min(threads // parts // by_output, inputs))
        for parts in range(1, threads + 1)
        for by_output in range(1, min(threads // parts, outputs) + 1)
    ]
    least, products, best = min(ways, key=lambda item: (item[0], -item[2]))
    if not call.pointwise:  # a little more traffic is taken for no more products, any for much less
        for traffic, work, parts in ways:
            if (work <= products and traffic < 1.1 * least) or 4 * work <= 3 * products:
                products, best = work, parts
    return best


def sums_of_jobs(call: Call, outputs: int, inputs: int) -> int:
    """The same where channels go in blocks of 8: each pair of blocks is a job, for groups of threads."""
    job, jobs, batch = 64 * prod(call.kernel), outputs * inputs // 64, call.small[0]

    def way(each: int) -> tuple[int, int]:
        groups = min(jobs // each, call.threads)
        team, most = min(call.threads // groups, batch), -(-jobs // groups)
        cost = job * most * (-(-batch // team) + (team != 1))
        if team > 1 and most > max(1, 19200 // job):
            cost *= 1 << 30
        return cost, groups * (team - 1) * most * job * call.item + ((2 + groups) * PAGE if team > 1 else 0)

    return min((way(each) for each in range(max(1, jobs // call.threads), jobs + 1)), key=lambda item: item[0])[1]
