"""Values that occur, and sets of them."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import as_array, cast
from girih.array.functions.elementwise import logic
from girih.array.functions.reductions import reduce as reductions
from girih.array.functions.reductions import scans
from girih.array.functions.reductions.sorting import argsort, searchsorted, sort
from girih.array.functions.shapes import creation, manipulation
from girih.array.functions.shapes.picking import nonzero, take
from girih.array.functions.whole import whole

FEW = 16
"""Up to so many elements are compared with one by one; more are sorted."""


UniqueAllResult = namedtuple("UniqueAllResult", "values indices inverse_indices counts")
UniqueCountsResult = namedtuple("UniqueCountsResult", "values counts")
UniqueInverseResult = namedtuple("UniqueInverseResult", "values inverse_indices")


def unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
    axis: int | None = None, *, equal_nan: bool = True, sorted: bool = True,
) -> Any:  # fmt: skip
    """The values that occur, in order; how many there are is computed now, unless only the values are asked for."""
    x = as_array(ar)
    if axis is not None:
        return whole(np.unique)(x, return_index, return_inverse, return_counts, axis, equal_nan=equal_nan)
    flat = x.reshape(-1)
    order = argsort(flat) if return_index or return_inverse else None
    ordered = sort(flat) if order is None else take(flat, order)
    first = _changes(ordered, equal_nan)
    result = _told(ordered[first], first, order, (return_index, return_inverse, return_counts), x.shape)
    return result[0] if len(result) == 1 else tuple(result)


def _told(values: Array, first: Array, order: Array | None, wanted: tuple[bool, bool, bool], shape: Any) -> list[Any]:
    """What `unique` returns: values, and positions, the way back and counts as far as they are wanted. first: True
    where a new value begins."""
    told: list[Any] = [values]
    if wanted[0]:
        assert order is not None
        told.append(order[first])
    if wanted[1]:
        assert order is not None
        told.append(take(scans.cumsum(first) - 1, argsort(order)).reshape(shape))
    if wanted[2]:
        begins = nonzero(first)[0]
        told.append(scans.diff(manipulation.concatenate([begins, [first.size]])))
    return told


def _changes(ordered: Array, equal_nan: bool = True) -> Array:
    """True where a value differs from the one before."""
    if ordered.size == 0:
        return creation.zeros(0, bool)
    changed = ordered[1:] != ordered[:-1]
    if ordered.dtype.kind in "fc" and equal_nan:
        changed = logic.logical_and(changed, logic.logical_not(logic.isnan(ordered[1:]) & logic.isnan(ordered[:-1])))
    return manipulation.concatenate([creation.ones(1, bool), changed])


def unique_values(x: Any, /) -> Array:
    return unique(x, equal_nan=False)


def unique_all(x: Any, /) -> UniqueAllResult:
    return UniqueAllResult(*unique(x, True, True, True, equal_nan=False))


def unique_counts(x: Any, /) -> UniqueCountsResult:
    return UniqueCountsResult(*unique(x, return_counts=True, equal_nan=False))


def unique_inverse(x: Any, /) -> UniqueInverseResult:
    return UniqueInverseResult(*unique(x, return_inverse=True, equal_nan=False))


# ------------------------------------------------------------------------------------------- sets


def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: str | None = None
) -> Array:
    x, others = as_array(element), as_array(test_elements).reshape(-1)
    if others.size == 0:
        return creation.full(x.shape, invert, bool)
    if others.size <= FEW:
        member = reductions.any(x[..., None] == others, -1)
    else:
        shared = np.result_type(x.dtype, others.dtype)
        x, others = cast(x, shared), sort(cast(others, shared))
        place = searchsorted(others, x)
        member = (place < others.size) & (take(others, place % others.size) == x)
    return logic.logical_not(member) if invert else member


def intersect1d(ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False) -> Any:
    if return_indices:
        return whole(np.intersect1d)(ar1, ar2, assume_unique, True)
    first, second = as_array(ar1).reshape(-1), as_array(ar2).reshape(-1)
    values = first if assume_unique else unique(first)
    common = values[isin(values, second)]
    return cast(sort(common) if assume_unique else as_array(common), np.result_type(first.dtype, second.dtype))


def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Array:
    first = as_array(ar1).reshape(-1) if assume_unique else unique(ar1)
    return first[isin(first, ar2, invert=True)]


def union1d(ar1: Any, ar2: Any) -> Array:
    return unique(manipulation.concatenate([as_array(ar1).reshape(-1), as_array(ar2).reshape(-1)]))
