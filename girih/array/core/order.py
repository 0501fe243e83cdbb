"""How the elements of an array lie in the memory that NumPy would give it, which says what NumPy makes a view of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from girih.array.core.array import Array


def strides_of(x: Array) -> tuple[int, ...] | None:
    """The strides of an array in elements of the whole; None where its order is not known."""
    if x.layout is None or (x.ndim < 2 and not isinstance(x.layout, tuple)):
        return tuple(math.prod(x.shape[dim + 1 :]) for dim in range(x.ndim))
    return x.layout if isinstance(x.layout, tuple) else None


def in_order(x: Array) -> bool:
    """Would NumPy make results of element-wise functions of x in C order?"""
    if x.layout is None or x.ndim < 2:
        return True
    if not isinstance(x.layout, tuple):
        return False
    sizes = [abs(stride) for stride, size in zip(x.layout, x.shape, strict=True) if size != 1]
    return all(first >= second for first, second in pairwise(sizes))


def without_gaps(x: Array) -> bool:
    """Is it known to lie in C order, one element after another?"""
    strides, size = strides_of(x), 1
    for stride, extent in zip(reversed(strides or ()), reversed(x.shape), strict=False):
        if extent != 1 and stride != size:
            return False
        size *= extent
    return strides is not None


def with_ones(shape: Sequence[int], strides: Sequence[int], goal: Sequence[int]) -> tuple[int, ...]:
    left = iter(stride for stride, size in zip(strides, shape, strict=True) if size != 1)
    return tuple(next(left) if size != 1 else 0 for size in goal)


def regrouped(shape: Sequence[int], strides: Sequence[int], goal: Sequence[int]) -> tuple[int, ...] | None:
    """The strides of a reshape that needs no copy, else None: dimensions that merge must follow one another."""
    if 0 in shape:
        return (0,) * len(goal)  # nothing that could be copied
    old = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    result: list[int] = []
    at = 0
    new = list(goal)
    while new:
        if new[0] == 1:
            result.append(0)
            new.pop(0)
            continue
        wanted, have, taken, last = new[0], old[at][0], 1, at + 1
        while wanted != have:
            if wanted < have:
                wanted *= new[taken]
                taken += 1
            else:
                have *= old[last][0]
                last += 1
        for (_, outer), (size, inner) in zip(old[at : last - 1], old[at + 1 : last], strict=True):
            if outer != size * inner:
                return None
        stride = old[last - 1][1]
        inner_sizes = new[:taken]
        result += [stride * math.prod(inner_sizes[position + 1 :]) for position in range(taken)]
        new = new[taken:]
        at = last
    return tuple(result)
