"""Pools, and moves of what lies in windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional as F

from girih.inference.onnx.operators import each, operator
from girih.inference.onnx.pages.products import Sizes, flat, padded

Tensor = Any

AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
MAXIMUM = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


GLOBAL = each(
    {
        "GlobalAveragePool": lambda x: torch.mean(x, list(range(2, x.dim())), True),
        "GlobalMaxPool": lambda x: torch.amax(x, list(range(2, x.dim())), True),
    }
)


def around(
    x: Tensor, kernel: Sequence[int], auto_pad: str, pads: Sizes, strides: Sequence[int], dilations: Sequence[int],
    ceil: int,
) -> tuple[list[tuple[int, int]], list[int]]:  # fmt: skip
    """What is padded, and how much more behind where the last window reaches over the end (`ceil_mode`)."""
    pad = padded(x, kernel, auto_pad, pads, strides, dilations)
    more = [0] * len(kernel)
    if ceil:
        for dim, (size, window, stride, dilation) in enumerate(
            zip(x.shape[2:], kernel, strides, dilations, strict=True)
        ):
            reach = dilation * (window - 1) + 1
            before, after = pad[dim]
            count = -(-(size + before + after - reach) // stride) + 1
            if (count - 1) * stride >= size + before:  # that window would begin in the padding
                count -= 1
            more[dim] = max(0, (count - 1) * stride + reach - (size + before + after))
    return pad, more


@operator("MaxPool")
def max_pool(
    x: Tensor, *, kernel_shape: Sequence[int], auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Sizes = None,
    outputs: int = 1, pads: Sizes = None, storage_order: int = 0, strides: Sizes = None,
) -> Any:  # fmt: skip
    """With two outputs also positions, counted in the image without padding, over all images and channels."""
    rank = len(kernel_shape)
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    pad, more = around(x, kernel_shape, auto_pad, pads, strides, dilations, ceil_mode)
    every = [(before, after + extra) for (before, after), extra in zip(pad, more, strict=True)]
    low = -torch.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    big = F.pad(x, flat(every), value=low) if any(map(any, every)) else x
    if outputs == 1:
        symmetric = all(before == after <= size // 2 for (before, after), size in zip(every, kernel_shape, strict=True))
        if symmetric and x.is_floating_point():
            return MAXIMUM[rank](x, kernel_shape, strides, [before for before, _ in every], dilations)
        return MAXIMUM[rank](big, kernel_shape, strides, 0, dilations)
    step, steps = 1, [0] * rank
    for dim in range(rank) if storage_order else reversed(range(rank)):
        steps[dim], step = step, step * x.shape[2 + dim]
    place = torch.arange(x.shape[0] * x.shape[1]).reshape([x.shape[0], x.shape[1]] + [1] * rank) * step
    for dim in range(rank):
        own = torch.arange(big.shape[2 + dim]) - every[dim][0]
        place = place + own.reshape([-1] + [1] * (rank - 1 - dim)) * steps[dim]
    windows = [_windows(item, kernel_shape, strides, dilations) for item in (big, place)]
    best = torch.argmax(windows[0], -1, keepdim=True)
    return tuple(torch.gather(item, -1, best).squeeze(-1) for item in windows)


def _windows(x: Tensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Tensor:
    """All windows, each as a row of numbers at the end."""
    for dim, (window, stride, dilation) in enumerate(zip(kernel, strides, dilations, strict=True)):
        count = (x.shape[2 + dim] - dilation * (window - 1) - 1) // stride + 1
        parts = [
            x[(slice(None),) * (2 + dim) + (slice(first, first + (count - 1) * stride + 1, stride),)]
            for first in range(0, dilation * window, dilation)
        ]
        x = torch.stack(parts, -1)
    return x.flatten(2 + len(kernel))


@operator("AveragePool")
def average_pool(
    x: Tensor, *, kernel_shape: Sequence[int], auto_pad: str = "NOTSET", ceil_mode: int = 0, count_include_pad: int = 0,
    dilations: Sizes = None, pads: Sizes = None, strides: Sizes = None,
) -> Tensor:  # fmt: skip
    rank = len(kernel_shape)
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    pad, more = around(x, kernel_shape, auto_pad, pads, strides, dilations, ceil_mode)
    even = all(before == after <= size // 2 for (before, after), size in zip(pad, kernel_shape, strict=True))
    if even and not any(more) and max(dilations) == 1:
        padding = [before for before, _ in pad]
        return AVERAGE[rank](x, kernel_shape, strides, padding, False, bool(count_include_pad))
    if not any(more) and not any(map(any, pad)) and max(dilations) == 1:
        return AVERAGE[rank](x, kernel_shape, strides)
    counted = torch.ones([1, 1, *x.shape[2:]], dtype=x.dtype)
    if count_include_pad:
        counted = F.pad(counted, flat(pad), value=1.0)
    rest = [(0, extra) if count_include_pad else (a, b + extra) for (a, b), extra in zip(pad, more, strict=True)]
    every = [(before, after + extra) for (before, after), extra in zip(pad, more, strict=True)]
    sums = _sums(F.pad(x, flat(every)), kernel_shape, strides, dilations)
    return sums / _sums(F.pad(counted, flat(rest)), kernel_shape, strides, dilations)


def _sums(x: Tensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Tensor:
    """The sum of each window: a convolution of each channel with ones."""
    channels, rank = x.shape[1], len(kernel)
    ones = torch.ones([channels, 1, *kernel], dtype=x.dtype)
    return torch.convolution(x, ones, None, strides, [0] * rank, dilations, False, [0] * rank, channels)


@operator("LpPool")
def lp_pool(
    x: Tensor, *, kernel_shape: Sequence[int], auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Sizes = None,
    p: int = 2, pads: Sizes = None, strides: Sizes = None,
) -> Tensor:  # fmt: skip
    rank = len(kernel_shape)
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    pad, more = around(x, kernel_shape, auto_pad, pads, strides, dilations, ceil_mode)
    every = [(before, after + extra) for (before, after), extra in zip(pad, more, strict=True)]
    return _sums(F.pad(torch.abs(x) ** p, flat(every)), kernel_shape, strides, dilations) ** (1.0 / p)


@operator("MaxUnpool", known=("output_shape",))
def max_unpool(
    x: Tensor, where: Tensor, output_shape: Sizes = None, *, kernel_shape: Sequence[int], pads: Sizes = None,
    strides: Sizes = None,
) -> Tensor:  # fmt: skip
    """Numbers go back to where they were the greatest; positions are those of the image without more room."""
    rank = len(kernel_shape)
    strides, pads = strides or [1] * rank, pads or [0] * (2 * rank)
    natural = [
        stride * (size - 1) + window - pads[dim] - pads[dim + rank]
        for dim, (size, window, stride) in enumerate(zip(x.shape[2:], kernel_shape, strides, strict=True))
    ]
    shape = [*x.shape[:2], *natural]
    result = torch.zeros([math.prod(shape)], dtype=x.dtype).scatter(0, where.reshape(-1), x.reshape(-1)).reshape(shape)
    if output_shape is None:
        return result
    return F.pad(result, flat([(0, out - size) for out, size in zip(output_shape[2:], natural, strict=True)]))


@operator("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    b = blocksize
    if mode == "DCR":
        parts = x.reshape(n, b, b, c // (b * b), h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, c // (b * b), b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, c // (b * b), h * b, w * b)


@operator("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    b = blocksize
    parts = x.reshape(n, c, h // b, b, w // b, b)
    parts = parts.permute(0, 3, 5, 1, 2, 4) if mode == "DCR" else parts.permute(0, 1, 3, 5, 2, 4)
    return parts.reshape(n, c * b * b, h // b, w // b)


@operator("Col2Im", known=("image_shape", "block_shape"))
def columns_to_image(
    x: Tensor, image_shape: Sequence[int], block_shape: Sequence[int], *, dilations: Sizes = None, pads: Sizes = None,
    strides: Sizes = None,
) -> Tensor:  # fmt: skip
    rank = len(image_shape)
    pads, strides, dilations = pads or [0] * (2 * rank), strides or [1] * rank, dilations or [1] * rank
    if rank != 2 or pads[:rank] != pads[rank:]:
        raise ValueError(f"of images with {rank} dimensions and padding {pads}: two, padded alike, are supported")
    return F.fold(x, image_shape, block_shape, dilations, pads[:rank], strides)
