"""Statistics, sets and what is made of several functions: everything by the other pages' names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from girih.array import creation, logic, manipulation, reductions
from girih.array import elementwise as e
from girih.array.array import Array
from girih.array.indexing import nonzero, take
from girih.array.linear_algebra import matmul
from girih.array.make import as_array, axis_of, cast
from girih.array.sorting import argsort, searchsorted, sort

# ------------------------------------------------------------------------------------------- statistics


def quantile(a: Any, q: Any, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """By linear interpolation between the nearest ranks; q: a number or a sequence of them, which comes first."""
    x = as_array(a)
    x = x if x.dtype.kind == "f" else cast(x, np.float64)
    rank = x.ndim
    x, dim = (x.reshape(-1), 0) if axis is None else (x, axis_of(axis, rank))
    shares = np.asarray(q, np.float64)
    if ((shares < 0) | (shares > 1)).any():
        raise ValueError("Quantiles must be in the range [0, 1]")
    ordered, size = sort(x, dim), x.shape[dim]
    found = [_between(ordered, dim, share * (size - 1)) for share in shares.ravel().tolist()]
    kept = (1,) * rank if axis is None else found[0].shape
    shape = kept if keepdims else () if axis is None else tuple(n for d, n in enumerate(found[0].shape) if d != dim)
    parts = [part.reshape(shape) for part in found]
    return manipulation.stack(parts).reshape((*shares.shape, *shape)) if shares.ndim else parts[0]


def _between(ordered: Array, dim: int, place: float) -> Array:
    before = (slice(None),) * dim
    low, high = math.floor(place), math.ceil(place)
    first, last = ordered[(*before, slice(low, low + 1))], ordered[(*before, slice(high, high + 1))]
    return first + (last - first) * (place - low)


def percentile(a: Any, q: Any, axis: int | None = None, *, keepdims: bool = False) -> Array:
    return quantile(a, np.asarray(q) / 100, axis, keepdims=keepdims)


def cov(m: Any, rowvar: bool = True, ddof: int = 1) -> Array:
    """Of variables in rows, or in columns."""
    x = manipulation.atleast_2d(as_array(m))
    x = x if rowvar or x.shape[0] == 1 else x.T
    away = x - reductions.mean(x, 1, keepdims=True)
    return manipulation.squeeze(matmul(away, e.conjugate(away).T) / (x.shape[1] - ddof))


def corrcoef(x: Any, rowvar: bool = True) -> Array:
    made = cov(x, rowvar)
    if made.ndim == 0:
        return made / made
    scale = e.sqrt(manipulation.diagonal(made))
    return e.clip(made / scale[:, None] / scale[None, :], -1, 1)


def histogram(a: Any, bins: Any = 10, range: Any = None, *, weights: Any = None) -> tuple[Array, Array]:
    """Counts (or sums of weights) and edges; the extent of the data is computed now where no range is given."""
    x = as_array(a).reshape(-1)
    if isinstance(bins, int):
        low, high = range if range is not None else (float(reductions.min(x)), float(reductions.max(x)))
        low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
        edges = np.linspace(low, high, bins + 1)
    else:
        edges = np.asarray(bins)
    if (edges[:-1] > edges[1:]).any():
        raise ValueError("`bins` must increase monotonically, when an array")
    below = x[:, None] < as_array(edges[:-1])
    above = manipulation.concatenate([below[:, 1:], x[:, None] <= edges[-1]], 1)
    inside = logic.logical_and(above, logic.logical_not(below))
    if weights is None:
        return reductions.sum(inside, 0), as_array(edges)
    return reductions.sum(e.where(inside, as_array(weights).reshape((-1, 1)), 0), 0), as_array(edges)


def nanmax(a: Any, axis: Any = None, *, keepdims: bool = False) -> Array:
    return _without(reductions.max, -np.inf, a, axis, keepdims)


def nanmin(a: Any, axis: Any = None, *, keepdims: bool = False) -> Array:
    return _without(reductions.min, np.inf, a, axis, keepdims)


def _without(extreme: Any, worst: float, a: Any, axis: Any, keepdims: bool) -> Array:
    x = as_array(a)
    if x.dtype.kind != "f":
        return extreme(x, axis, keepdims=keepdims)
    unknown = logic.isnan(x)
    found = extreme(e.where(unknown, worst, x), axis, keepdims=keepdims)
    return e.where(reductions.all(unknown, axis, keepdims=keepdims), np.nan, found)


# ------------------------------------------------------------------------------------------- sets


def unique(ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False) -> Any:
    """The values that occur, in order; how many there are is computed now, unless only the values are asked for."""
    x = as_array(ar)
    flat = x.reshape(-1)
    order = argsort(flat) if return_index or return_inverse else None
    ordered = sort(flat) if order is None else take(flat, order)
    first = _changes(ordered)
    made: list[Any] = [ordered[first]]
    if return_index:
        assert order is not None
        made.append(order[first])
    if return_inverse:
        assert order is not None
        made.append(take(reductions.cumsum(first) - 1, argsort(order)).reshape(x.shape))
    if return_counts:
        begins = nonzero(first)[0]
        made.append(reductions.diff(manipulation.concatenate([begins, [flat.size]])))
    return made[0] if len(made) == 1 else tuple(made)


def _changes(ordered: Array) -> Array:
    """True where a value differs from the one before; NaN are equal."""
    if ordered.size == 0:
        return creation.zeros(0, bool)
    changed = ordered[1:] != ordered[:-1]
    if ordered.dtype.kind == "f":
        changed = logic.logical_and(changed, logic.logical_not(logic.isnan(ordered[1:]) & logic.isnan(ordered[:-1])))
    return manipulation.concatenate([creation.ones(1, bool), changed])


def unique_values(x: Any, /) -> Array:
    return unique(x)


def isin(element: Any, test_elements: Any, *, invert: bool = False) -> Array:
    x, others = as_array(element), as_array(test_elements).reshape(-1)
    found = reductions.any(x[..., None] == others, -1)
    return logic.logical_not(found) if invert else found


def intersect1d(ar1: Any, ar2: Any) -> Array:
    first = unique(ar1)
    return first[isin(first, ar2)]


def setdiff1d(ar1: Any, ar2: Any) -> Array:
    first = unique(ar1)
    return first[isin(first, ar2, invert=True)]


def union1d(ar1: Any, ar2: Any) -> Array:
    return unique(manipulation.concatenate([as_array(ar1).reshape(-1), as_array(ar2).reshape(-1)]))


# ------------------------------------------------------------------------------------------- of several functions


def interp(x: Any, xp: Any, fp: Any) -> Array:
    """Piecewise linear through points of increasing xp; constant outside."""
    x, xp, fp = as_array(x), as_array(xp), as_array(fp)
    at = e.clip(searchsorted(xp, x, "right") - 1, 0, xp.shape[0] - 2)
    left, right = take(xp, at), take(xp, at + 1)
    low, high = take(fp, at), take(fp, at + 1)
    share = e.clip((x - left) / (right - left), 0, 1)
    return cast(low + (high - low) * share, np.float64)


def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Array:
    y = as_array(y)
    before = (slice(None),) * axis_of(axis, y.ndim)
    width: Any = dx if x is None else reductions.diff(as_array(x))
    if x is not None and width.ndim == 1:
        width = width.reshape((-1,) + (1,) * (y.ndim - 1 - len(before)))
    return reductions.sum(width * (y[(*before, slice(1, None))] + y[(*before, slice(None, -1))]) / 2.0, axis)


def cross(a: Any, b: Any) -> Array:
    """Of vectors of three along the last dimension."""
    a, b = as_array(a), as_array(b)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise ValueError(f"cross: expected vectors of 3 along the last dimension, got shapes {a.shape} and {b.shape}")
    (x, y, z), (u, v, w) = ([item[..., number] for number in range(3)] for item in (a, b))
    return manipulation.stack([y * w - z * v, z * u - x * w, x * v - y * u], -1)


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Array:
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    made = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        made = e.where(condition, choice, made)
    return as_array(made)
