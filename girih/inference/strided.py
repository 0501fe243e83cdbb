"""Layouts of tensors in memory: rows, channels last, columns; and what brings a tensor into one."""

from __future__ import annotations

from typing import Any

import torch

Tensor = Any

CHANNELS_LAST, COLUMNS = "channels last", "columns"
OTHER = {4: CHANNELS_LAST, 2: COLUMNS}
"""The layout besides rows, by rank: of images, and of matrices."""


def laid(x: Tensor, layout: str) -> Tensor:
    """The same tensor in a layout: itself, if it is in it."""
    if layout == COLUMNS:
        return x.t().contiguous().t()
    return x.contiguous(memory_format=torch.channels_last if layout == CHANNELS_LAST else torch.contiguous_format)


def turned_product(a: Tensor, b: Tensor) -> Tensor:
    """AB computed as (BᵀAᵀ)ᵀ, so that the result lies in columns."""
    return torch.mm(b.t(), a.t()).t()


def strides_of(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """The strides, in elements, of a tensor without gaps in a layout."""
    order = {CHANNELS_LAST: (0, 2, 3, 1), COLUMNS: (1, 0)}.get(layout, tuple(range(len(shape))))
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim], step = step, step * shape[dim]
    return tuple(strides)
