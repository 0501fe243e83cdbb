"""How PyTorch lays tensors out: strides of contiguous tensors and of views."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import prod
from typing import Any

Shape = tuple[int, ...]


@cache
def contiguous_strides(shape: Shape) -> Shape:
    strides, size = [], 1
    for extent in reversed(shape):
        strides.append(size)
        size *= max(extent, 1)
    return tuple(reversed(strides))


def view_strides(shape: Shape, strides: Shape, target: Shape) -> Shape | None:
    """Strides of `tensor.view(target)`, or None where PyTorch must copy."""
    if prod(shape) == 0:
        return contiguous_strides(target)
    result: list[int] = [0] * len(target)
    position = len(target) - 1
    chunk_stride = strides[-1] if strides else 1
    chunk, seen = 1, 1
    for dimension in range(len(shape) - 1, -1, -1):
        chunk *= shape[dimension]
        ends = dimension == 0 or (shape[dimension - 1] != 1 and strides[dimension - 1] != chunk * chunk_stride)
        if not ends:
            continue
        while position >= 0 and (seen < chunk or target[position] == 1):
            result[position] = seen * chunk_stride
            seen *= target[position]
            position -= 1
        if seen != chunk:
            return None
        if dimension > 0:
            chunk_stride, chunk, seen = strides[dimension - 1], 1, 1
    if position >= 0 and not shape:
        return contiguous_strides(target)
    return tuple(result) if position < 0 else None


def strides_of_view(
    operator: str, attributes: Mapping[str, Any], shape: Shape, strides: Shape, target: Shape
) -> Shape | None:
    """Strides of what a view operator makes of a tensor, or None where it must copy."""
    if operator == "aten.permute":
        return tuple(strides[dim] for dim in attributes["dims"])
    if operator in ("aten.transpose.int", "aten.t"):
        order = list(strides)
        first, second = attributes.get("dim0", 0), attributes.get("dim1", -1)
        if order:
            order[first], order[second] = order[second], order[first]
        return tuple(order)
    if operator == "aten.expand":
        lead = len(target) - len(shape)
        return tuple(
            0 if number < lead or (shape[number - lead] == 1 and extent != 1) else strides[number - lead]
            for number, extent in enumerate(target)
        )
    if operator == "aten.slice.Tensor":
        dim = attributes.get("dim", 0) % len(strides)
        return (*strides[:dim], strides[dim] * attributes.get("step", 1), *strides[dim + 1 :])
    if operator == "aten.select.int":
        dim = attributes["dim"] % len(strides)
        return (*strides[:dim], *strides[dim + 1 :])
    if operator == "aten.diagonal":
        across = [attributes.get("dim1", 0) % len(strides), attributes.get("dim2", 1) % len(strides)]
        kept = [stride for dim, stride in enumerate(strides) if dim not in across]
        return (*kept, sum(strides[dim] for dim in across))
    if operator in ("aten.alias", "aten.detach"):
        return strides
    return view_strides(shape, strides, target)  # reshape, view, squeeze, unsqueeze


def is_contiguous(shape: Shape, strides: Shape) -> bool:
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1:
            if stride != expected:
                return False
            expected *= extent
    return True
