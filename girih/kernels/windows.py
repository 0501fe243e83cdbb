"""girih's own operators over windows, as PyTorch functions: gradients of convolutions, and max pooling.

Max pooling goes slice by slice, because PyTorch also makes the positions of the greatest values, as int64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from girih.ops.derive.temporaries import is_channels_last, pooled_slices, slice_size

Tensor = Any  # torch is untyped for the type checker
Sizes = Sequence[int]


def convolution_input_gradient(
    grad: Tensor,
    weight: Tensor,
    input_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
    transposed: bool = False,
    output_padding: Sizes | None = None,
) -> Tensor:
    """The gradient of aten.convolution by its input, whose shape is `input_size`.

    It is the convolution in the other direction: the same kernel as ATen's backward, bit by bit, without the
    contiguous tensor of the input's shape that the backward wants but does not read.
    """
    rank, window = grad.dim() - 2, (list(stride), list(padding), list(dilation))
    convolution = torch.ops.aten.convolution.default
    if transposed:
        return convolution(grad, weight, None, *window, False, [0] * rank, groups)
    extra = [
        size - ((out - 1) * step - 2 * pad + spread * (kernel - 1) + 1)
        for size, out, step, pad, spread, kernel in zip(
            input_size[2:], grad.shape[2:], stride, padding, dilation, weight.shape[2:], strict=True
        )
    ]
    if all(0 <= more < max(step, spread) for more, step, spread in zip(extra, stride, dilation, strict=True)):
        return convolution(grad, weight, None, *window, True, extra, groups)
    like = grad.new_empty(tuple(input_size))
    form = (*window, False, list(output_padding or [0] * rank), groups)
    return torch.ops.aten.convolution_backward(grad, like, weight, None, *form, [True, False, False])[0]


def convolution_weight_gradient(
    grad: Tensor,
    input: Tensor,
    weight_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
    transposed: bool = False,
    output_padding: Sizes | None = None,
) -> Tensor:
    """The gradient of aten.convolution by its weight, whose shape is `weight_size`."""
    like, added = _unread(tuple(weight_size), grad, input), list(output_padding or [0] * (grad.dim() - 2))
    form = (list(stride), list(padding), list(dilation), transposed, added, groups)
    return torch.ops.aten.convolution_backward(grad, input, like, None, *form, [False, True, False])[1]


def _unread(size: tuple[int, ...], *others: Tensor) -> Tensor:
    """A contiguous tensor whose values do not matter: over another's memory where that is large enough."""
    count = math.prod(size)
    for other in others:
        if other.is_contiguous() and other.numel() >= count:
            return other.detach().reshape(-1)[:count].reshape(size)
    return others[0].new_empty(size)


_POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def max_pool(
    input: Tensor, kernel_size: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool = False
) -> Tensor:
    """The greatest value of each window; over as many trailing dimensions as `kernel_size` has."""
    window = (tuple(kernel_size), tuple(stride), tuple(padding), tuple(dilation), ceil_mode)
    pool = _POOLS[len(kernel_size)]
    cut, extent = pooled_slices(input.shape, len(kernel_size), slice_size(input.is_cuda))
    if extent >= input.shape[cut]:
        return pool(input, *window)
    out = None
    for start in range(0, input.shape[cut], extent):
        result = pool(input.narrow(cut, start, min(extent, input.shape[cut] - start)), *window)
        if out is None:
            out = _in_order_of(input, [input.shape[cut] if d == cut else size for d, size in enumerate(result.shape)])
        out.narrow(cut, start, result.shape[cut]).copy_(result)
    return out


def _in_order_of(input: Tensor, shape: Sizes) -> Tensor:
    """Memory for a result, as PyTorch's pools have it: channels last where the input lies so."""
    last = is_channels_last(tuple(input.shape), input.stride())
    order = torch.channels_last if last else torch.contiguous_format
    return torch.empty(tuple(shape), dtype=input.dtype, device=input.device, memory_format=order)


def max_pool_gradient(
    grad: Tensor,
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool = False,
) -> Tensor:
    """max_pool's gradient: each window's goes to its first greatest value, which is found again."""
    rank = len(kernel_size)
    aten = torch.ops.aten
    if rank == 1:  # ATen has no backward of its own: a plane of height one
        plane = ((1, *kernel_size), (1, *stride), (0, *padding), (1, *dilation), ceil_mode)
        return max_pool_gradient(grad.unsqueeze(-2), input.unsqueeze(-2), *plane).squeeze(-2)
    forward = getattr(aten, f"max_pool{rank}d_with_indices").default
    backward = getattr(aten, f"max_pool{rank}d_with_indices_backward").default
    window = (list(kernel_size), list(stride), list(padding), list(dilation), ceil_mode)
    cut, extent = pooled_slices(input.shape, rank, slice_size(input.is_cuda))
    if extent >= input.shape[cut]:
        return backward(grad, input, *window, forward(input, *window)[1])
    out = _in_order_of(input, input.shape)
    for goal, slope, part in zip(*(item.split(extent, cut) for item in (out, grad, input)), strict=True):
        goal.copy_(backward(slope, part, *window, forward(part, *window)[1]))
    return out
