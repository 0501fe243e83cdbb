"""Order: sorting along an axis, ranks, and what is found in sorted arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from girih.array.array import Array
from girih.array.make import apply, as_array, axis_of
from girih.array.manipulation import flip


def sort(a: Any, axis: int | None = -1, *, stable: bool = True, descending: bool = False) -> Array:
    x = as_array(a)
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    dim = axis_of(axis, x.ndim)
    if x.shape[dim] < 2:
        return x
    made = apply("aten.sort.stable", x.shape, x.dtype, self=x, stable=True, dim=dim, descending=False)
    return flip(made, dim) if descending else made


def argsort(a: Any, axis: int | None = -1, *, stable: bool = True, descending: bool = False) -> Array:
    x = as_array(a)
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    dim = axis_of(axis, x.ndim)
    given = {"input": x, "dim": dim, "descending": descending}
    return apply("girih.sort_indices", x.shape, np.dtype(np.int64), **given)


def topk(a: Any, k: int, axis: int = -1, *, largest: bool = True) -> tuple[Array, Array]:
    """The k largest (or smallest) along an axis, in their order: values and positions."""
    from girih.array.indexing import take_along_axis

    x = as_array(a)
    dim = axis_of(axis, x.ndim)
    if not 0 <= k <= x.shape[dim]:
        raise ValueError(f"topk: k={k} of {x.shape[dim]} elements along axis {dim}")
    shape = (*x.shape[:dim], k, *x.shape[dim + 1 :])
    places = apply("girih.topk_indices", shape, np.dtype(np.int64), input=x, k=k, dim=dim, largest=largest)
    return take_along_axis(x, places, dim), places


def median(a: Any, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """Of an axis or of all; NaN where there is one."""
    from girih.array import elementwise, logic, reductions

    x = as_array(a)
    rank = x.ndim
    x = x if x.dtype.kind in "fc" else x.astype(np.float64)
    x, dim = (x.reshape(-1), 0) if axis is None else (x, axis_of(axis, rank))
    ordered, size = sort(x, dim), x.shape[dim]
    before = (slice(None),) * dim
    middle = reductions.mean(ordered[(*before, slice((size - 1) // 2, size // 2 + 1))], dim, keepdims=True)
    broken = reductions.any(logic.isnan(x), dim, keepdims=True)
    made = elementwise.where(broken, np.nan, middle).astype(x.dtype)
    if keepdims:
        return made.reshape((1,) * rank) if axis is None else made
    return made.reshape(tuple(size for number, size in enumerate(x.shape) if number != dim))


def searchsorted(a: Any, v: Any, side: str = "left") -> Array:
    """Where v belongs in sorted a: how many of a are before it."""
    from girih.array import logic, reductions

    if side not in ("left", "right"):
        raise ValueError(f"side must be 'left' or 'right' (got {side!r})")
    a, v = as_array(a), as_array(v)
    before = (logic.less if side == "left" else logic.less_equal)(a, v[..., None])
    return reductions.sum(before, -1)


def digitize(x: Any, bins: Any, right: bool = False) -> Array:
    """Of increasing bins."""
    return searchsorted(bins, x, "left" if right else "right")


def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Array:
    """How often each number occurs; the largest is computed now, because the shape depends on it."""
    from girih.array import creation, elementwise, reductions

    x = as_array(x)
    largest = int(reductions.max(x)) + 1 if x.size else 0
    size = max(largest, minlength)
    hits = x[:, None] == creation.arange(size)
    if weights is None:
        return reductions.sum(hits, 0)
    return reductions.sum(elementwise.where(hits, as_array(weights)[:, None], 0.0), 0)
