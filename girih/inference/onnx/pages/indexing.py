"""Elements by their positions: gathered, scattered, marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from girih.inference.onnx.operators import operator

Tensor = Any


def _positions(where: Tensor, size: int) -> Tensor:
    """Indices of `size` positions, counted from the beginning: negative ones count from the end."""
    where = where.to(torch.int64)
    return torch.where(where < 0, where + size, where)


@operator("Gather")
def gather(x: Tensor, where: Tensor, *, axis: int = 0) -> Tensor:
    axis %= x.dim()
    flat = torch.index_select(x, axis, _positions(where, x.shape[axis]).reshape(-1))
    return flat.reshape([*x.shape[:axis], *where.shape, *x.shape[axis + 1 :]])


@operator("GatherElements")
def gather_elements(x: Tensor, where: Tensor, *, axis: int = 0) -> Tensor:
    return torch.gather(x, axis, _positions(where, x.shape[axis]))


def _rows(where: Tensor, shape: Sequence[int]) -> Tensor:
    """Positions of several dimensions as one number each, in the tensor with these dimensions flat."""
    total = torch.zeros(where.shape[:-1], dtype=torch.int64)
    for dim in range(where.shape[-1]):
        total = total * shape[dim] + _positions(where[..., dim], shape[dim])
    return total


@operator("GatherND")
def gather_nd(x: Tensor, where: Tensor, *, batch_dims: int = 0) -> Tensor:
    batch, depth = list(x.shape[:batch_dims]), where.shape[-1]
    rest = list(x.shape[batch_dims + depth :])
    rows = _rows(where, x.shape[batch_dims:])
    for dim in range(batch_dims):  # the batch's own positions, before those that are given
        own = torch.arange(batch[dim]).reshape([-1] + [1] * (rows.dim() - dim - 1))
        rows = rows + own * math.prod(x.shape[dim + 1 : batch_dims + depth])
    count = math.prod(x.shape[: batch_dims + depth])
    return torch.index_select(x.reshape([count, *rest]), 0, rows.reshape(-1)).reshape([*where.shape[:-1], *rest])


@operator("ScatterElements")
def scatter_elements(x: Tensor, where: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none") -> Tensor:
    places = _positions(where, x.shape[axis])
    if reduction == "none":
        return torch.scatter(x, axis, places, updates)
    return torch.scatter_reduce(x, axis, places, updates, REDUCTIONS[reduction])


REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@operator("Scatter")
def scatter(x: Tensor, where: Tensor, updates: Tensor, *, axis: int = 0) -> Tensor:
    return torch.scatter(x, axis, _positions(where, x.shape[axis]), updates)


@operator("ScatterND")
def scatter_nd(x: Tensor, where: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    depth = where.shape[-1]
    inner = math.prod(x.shape[depth:])
    rows = _rows(where, x.shape).reshape(-1, 1)
    places = (rows * inner + torch.arange(inner)).reshape(-1)
    table, new = x.reshape(-1), updates.reshape(-1)
    if reduction == "none":
        return torch.scatter(table, 0, places, new).reshape(x.shape)
    return torch.scatter_reduce(table, 0, places, new, REDUCTIONS[reduction]).reshape(x.shape)


@operator("TensorScatter")
def tensor_scatter(past: Tensor, update: Tensor, where: Any = None, *, axis: int = -2, mode: str = "linear") -> Tensor:
    """A cache of keys or values: each example's update lies from its own position on, or goes round."""
    axis %= past.dim()
    shape = [1] * past.dim()
    shape[axis] = update.shape[axis]
    places = torch.arange(update.shape[axis]).reshape(shape)
    if where is not None:
        places = places + where.to(torch.int64).reshape([-1] + [1] * (past.dim() - 1))
    if mode == "circular":
        places = places % past.shape[axis]
    return torch.scatter(past, axis, places.expand(update.shape), update)


@operator("OneHot", known=("depth",))
def one_hot(where: Tensor, depth: Any, values: Tensor, *, axis: int = -1) -> Tensor:
    size = int(depth[0] if isinstance(depth, list) else depth)
    axis %= where.dim() + 1
    places = torch.where(where < 0, where + size, where).to(torch.int64).unsqueeze(axis)
    shape = [-1 if dim == axis else 1 for dim in range(where.dim() + 1)]
    return torch.where(torch.arange(size).reshape(shape) == places, values[1], values[0])


@operator("Compress", known=("condition",))
def compress(x: Tensor, condition: Sequence[bool], *, axis: int | None = None) -> Tensor:
    chosen = torch.tensor([place for place, wanted in enumerate(condition) if wanted], dtype=torch.int64)
    return torch.index_select(x.reshape(-1) if axis is None else x, axis or 0, chosen)


@operator("NonZero")
def nonzero(x: Tensor) -> Tensor:
    """Where x is not zero; x must be known, since how many places there are is the result's shape."""
    return torch.nonzero(x).t()


@operator("ReverseSequence", known=("lengths",))
def reverse_sequence(x: Tensor, lengths: Sequence[int], *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    size = x.shape[time_axis]
    order = [[length - 1 - t if t < length else t for t in range(size)] for length in lengths]
    places = torch.tensor(order, dtype=torch.int64)
    shape = [1] * x.dim()
    shape[batch_axis], shape[time_axis] = places.shape
    places = (places if batch_axis < time_axis else places.t()).reshape(shape)
    return torch.gather(x, time_axis, places.expand(x.shape))
