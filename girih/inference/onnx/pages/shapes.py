"""Shapes: what lies where, and of which size. Sizes and axes are known before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional as F

from girih.inference.onnx.operators import each, operator
from girih.inference.onnx.pages.products import flat
from girih.inference.onnx.tensors import dtype_of

Tensor = Any
Sizes = Sequence[int] | None


ONE_EXPRESSION = each(
    {
        "Concat": lambda *tensors, axis: torch.cat(tensors, axis),
        "Shape": lambda x, *, start=0, end=None: torch.tensor(list(x.shape)[start:end], dtype=torch.int64),
        "Size": lambda x: torch.tensor(x.numel(), dtype=torch.int64),
    }
)


@operator("Reshape", known=("shape",))
def reshape(x: Tensor, shape: Sequence[int], *, allowzero: int = 0) -> Tensor:
    sizes = [x.shape[dim] if size == 0 and not allowzero else size for dim, size in enumerate(shape)]
    return torch.reshape(x, sizes)


@operator("Flatten")
def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    first = math.prod(x.shape[:axis])
    return torch.reshape(x, [first, x.numel() // first if first else 0])


@operator("Transpose")
def transpose(x: Tensor, *, perm: Sizes = None) -> Tensor:
    return torch.permute(x, list(perm) if perm is not None else list(reversed(range(x.dim()))))


@operator("Squeeze", known=("axes",))
def squeeze(x: Tensor, axes: Any = None) -> Tensor:
    axes = [axes] if isinstance(axes, int) else axes
    gone = [dim for dim, size in enumerate(x.shape) if size == 1] if axes is None else [a % x.dim() for a in axes]
    if any(x.shape[dim] != 1 for dim in gone):
        raise ValueError(f"axes {gone} of {list(x.shape)} are not of size 1")
    return torch.reshape(x, [size for dim, size in enumerate(x.shape) if dim not in gone])


@operator("Unsqueeze", known=("axes",))
def unsqueeze(x: Tensor, axes: Any) -> Tensor:
    axes = axes if isinstance(axes, list) else [axes]
    rank = x.dim() + len(axes)
    new = {axis % rank for axis in axes}
    sizes = iter(x.shape)
    return torch.reshape(x, [1 if dim in new else next(sizes) for dim in range(rank)])


@operator("Expand", known=("shape",))
def expand(x: Tensor, shape: Sequence[int]) -> Tensor:
    return x.expand(torch.broadcast_shapes(x.shape, tuple(shape)))


@operator("Tile", known=("repeats",))
def tile(x: Tensor, repeats: Sequence[int]) -> Tensor:
    return torch.tile(x, tuple(repeats))


@operator("Split", known=("split",))
def split(
    x: Tensor, split: Sizes = None, *, axis: int = 0, num_outputs: int = 0, outputs: int = 0
) -> tuple[Tensor, ...]:
    """outputs: how many the node has; without sizes all are alike, up to the last."""
    count, size = num_outputs or outputs, x.shape[axis]
    if split is None:
        part = -(-size // count)
        split = [max(0, min(part, size - part * number)) for number in range(count)]
    return torch.split(x, list(split), axis)  # type: ignore[no-any-return]


@operator("Slice", known=("starts", "ends", "axes", "steps"))
def slices(x: Tensor, starts: Sequence[int], ends: Sequence[int], axes: Sizes = None, steps: Sizes = None) -> Tensor:
    axes = range(len(starts)) if axes is None else axes
    for start, end, axis, step in zip(starts, ends, axes, steps or [1] * len(starts), strict=True):
        size = x.shape[axis]
        if step > 0:
            first, last, _ = slice(start, end, step).indices(size)
            x = x[(slice(None),) * (axis % x.dim()) + (slice(first, max(first, last), step),)]
        else:
            first = min(start, size - 1) if start >= 0 else max(start + size, -1)
            last = end if end >= 0 else max(end + size, -1)
            chosen = list(range(first, min(last, size), step))
            x = torch.index_select(x, axis, torch.tensor(chosen, dtype=torch.int64))
    return x


@operator("Pad", known=("pads", "axes"), rather=("constant_value",))
def pad(
    x: Tensor, pads: Sequence[int], constant_value: Any = None, axes: Sizes = None, *, mode: str = "constant",
    value: float = 0.0,
) -> Tensor:  # fmt: skip
    dims = [axis % x.dim() for axis in axes] if axes is not None else list(range(x.dim()))
    around = [(0, 0)] * x.dim()
    for number, dim in enumerate(dims):
        around[dim] = (pads[number], pads[number + len(dims)])
    if mode == "constant":
        filled = value if constant_value is None else constant_value
        if isinstance(filled, (list, bool, int, float)):
            return F.pad(x, flat(around), value=filled[0] if isinstance(filled, list) else filled)
        inside = F.pad(torch.ones(x.shape, dtype=torch.bool), flat(around))
        return torch.where(inside, F.pad(x, flat(around)), filled.to(x.dtype))
    for dim, (before, after) in enumerate(around):
        size = x.shape[dim]
        chosen = [_inside(place, size, mode) for place in range(-before, size + after)]
        if chosen != list(range(size)):
            x = torch.index_select(x, dim, torch.tensor(chosen, dtype=torch.int64))
    return x


def _inside(place: int, size: int, mode: str) -> int:
    """Which element stands for a place outside."""
    if mode == "edge":
        return min(max(place, 0), size - 1)
    if mode == "wrap":
        return place % size
    period = max(2 * (size - 1), 1)
    place = abs(place) % period
    return place if place < size else period - place


@operator("ConstantOfShape", known=("shape",))
def constant_of_shape(shape: Sequence[int], *, value: Any = None) -> Tensor:
    filled, dtype = ([0.0], torch.float32) if value is None else value
    return torch.full(list(shape), filled[0] if isinstance(filled, list) else filled, dtype=dtype)


@operator("Range", known=("start", "limit", "delta"))
def numbers(start: Any, limit: Any, delta: Any) -> Tensor:
    ends = (item[0] if isinstance(item, list) else item for item in (start, limit, delta))
    return torch.arange(*ends)


@operator("EyeLike")
def eye_like(x: Tensor, *, dtype: int = 0, k: int = 0) -> Tensor:
    rows, columns = x.shape
    ones = torch.arange(rows).unsqueeze(1) + k == torch.arange(columns).unsqueeze(0)
    return ones.to(dtype_of(dtype) if dtype else x.dtype)


@operator("Trilu", known=("k",))
def triangle(x: Tensor, k: Any = 0, *, upper: int = 1) -> Tensor:
    offset = k[0] if isinstance(k, list) else k or 0
    distance = torch.arange(x.shape[-1]).unsqueeze(0) - torch.arange(x.shape[-2]).unsqueeze(1)
    return torch.where(distance >= offset if upper else distance <= offset, x, torch.zeros_like(x))


@operator("BitCast", exact=True)
def bit_cast(x: Tensor, *, to: int) -> Tensor:
    dtype = dtype_of(to)
    if dtype.itemsize != x.dtype.itemsize:
        raise ValueError(f"from {x.dtype} to {dtype}, of another size")
    return x.view(dtype)
