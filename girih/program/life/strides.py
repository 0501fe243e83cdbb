"""How PyTorch lays tensors out: strides of contiguous tensors and of views."""

from __future__ import annotations

from functools import cache
from math import prod

from girih.ops import Description
from girih.ops.derive.divisions import is_opaque

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


def strides_of_view(description: Description, shape: Shape, strides: Shape, target: Shape) -> Shape | None:
    """Strides of what a view operator makes of a tensor, or None where it must copy.

    A step along a dimension of the result moves the element that is read as far as its index says: by 2 strides where
    `x[2 * i]` is read, by the sum of two on a diagonal, by none where it is repeated. A reshape merges and splits
    dimensions: PyTorch's own rule says how. A view of complex numbers as real ones counts in halves of them. shape,
    target: of a piece, often less than the description's.
    """
    source, result = (kind.dtype.startswith("complex") for kind in (description.inputs[0], description.output))
    if source and not result:
        return *(2 * stride for stride in strides), *(1,) * (len(target) - len(shape))
    if result and not source:
        return tuple(stride // 2 for stride in strides[:-1])
    reads = description.reads[0]
    plain = len(reads) == 1 and all(index is not None for index in reads[0])
    if not plain or is_opaque(description):
        return view_strides(shape, strides, target)
    steps = [0] * len(target)
    order = {index.variable: number for number, index in enumerate(description.place)}
    for stride, index in zip(strides, reads[0], strict=True):
        for variable, factor in index.terms if index is not None else ():
            if variable not in order:
                return view_strides(shape, strides, target)
            steps[order[variable]] += stride * factor
    moved = all(steps) or prod(shape) != prod(target)
    return tuple(steps) if moved else view_strides(shape, strides, target)


def is_contiguous(shape: Shape, strides: Shape) -> bool:
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1:
            if stride != expected:
                return False
            expected *= extent
    return True
