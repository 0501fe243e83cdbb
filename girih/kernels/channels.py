"""Batch norm's parts by PyTorch's own kernels, where numbers are one for each channel: [1, C, 1, …] beside [N, C, …].

PyTorch has no kernel that normalises by given moments, and none for a gradient by given sums, which is what a divided
batch norm needs. But its inference, (x - mean) · weight + bias, is the first, and half of the second; and its gradient
by the weight is the sum that pieces add up. Each goes through its operands once; girih's general kernels
(`girih.kernels.own`) go through them for each arithmetic operation. As PyTorch's own, they compute x · factor + term.
What they hold is told by the rules of `girih.ops.catalogue.normalisation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from girih.ops.derive.temporaries import NEIGHBOURS, by_channel

Tensor = Any  # torch is untyped for the type checker


def takes(tensors: Sequence[Tensor], numbers: Sequence[Tensor | None]) -> bool:
    """Whether these are tensors of one shape, and numbers for each of their channels, as the kernels below take them."""
    first, *others = tensors
    there = [item for item in numbers if item is not None]
    return (
        first.dtype in (torch.float32, torch.float64)
        and all(item.dtype == first.dtype and item.is_contiguous() for item in (*tensors, *there))
        and all(item.shape == first.shape for item in others)
        and by_channel(first.shape, *(item.shape for item in there))
    )


def takes_dot(dims: Sequence[int], tensors: Sequence[Tensor], numbers: Sequence[Tensor]) -> bool:
    """Whether `dot` is the sum over `dims`, and fast."""
    rank, shape = tensors[0].dim(), tensors[0].shape
    every_other = sorted(dim % rank for dim in dims) == [d for d in range(rank) if d != 1] if rank else False
    return every_other and prod(shape[2:]) >= NEIGHBOURS and takes(tensors, numbers)


def product(scale: Tensor, weight: Tensor | None) -> Tensor:
    return scale if weight is None else scale * weight


def affine(x: Tensor, mean: Tensor, factor: Tensor, term: Tensor | None, out: Tensor | None = None) -> Tensor:
    """(x - mean) · factor + term; out: x, to write over it."""
    flat = [None if item is None else item.reshape(-1) for item in (factor, term, mean)]
    ones = mean.new_ones(mean.numel())  # the variance: PyTorch multiplies by 1 / √(1 + 0)
    if out is None:
        return torch.native_batch_norm(x, *flat, ones, False, 0.0, 0.0)[0]
    unused = x.new_empty(0), x.new_empty(0)
    return torch.native_batch_norm(x, *flat, ones, False, 0.0, 0.0, out=(out, *unused))[0]


def dot(grad: Tensor, x: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """Σ grad · (x - mean) · scale over all but channels, dimensions kept."""
    moments = mean.reshape(-1), scale.reshape(-1)
    backward = torch.ops.aten.native_batch_norm_backward.default
    sums = backward(grad, x, None, None, None, *moments, True, 0.0, [False, True, False])[1]
    return sums.reshape(mean.shape)
