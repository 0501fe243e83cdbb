"""Elements at places: NumPy's functions that are x[…] with arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import apply, as_array, axis_of, broadcast_shapes, cast, line_axis
from girih.array.core.indexing import get, places_of, wrapped
from girih.array.core.universal import written
from girih.array.core.views import expanded
from girih.array.functions.elementwise.ufuncs import clip, remainder


def nonzero(a: Any) -> tuple[Array, ...]:
    """Where a is not zero; computed now, because the shape depends on the data."""
    return places_of(as_array(a))


def flatnonzero(a: Any) -> Array:
    return nonzero(as_array(a).reshape(-1))[0]


def argwhere(a: Any) -> Array:
    x = as_array(a)
    return as_array(np.argwhere(x.compute()))


def take(a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Any:
    """mode: of indices outside: an error, the nearest inside ("clip"), or counted on from the other end ("wrap")."""
    x, picks = as_array(a), as_array(indices)
    axis = line_axis(axis, x.ndim)
    if axis is None:
        x, axis = x.reshape(-1), 0
    size = x.shape[axis_of(axis, x.ndim)]
    if mode not in ("raise", "clip", "wrap"):
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    if mode != "raise" and size:
        picks = clip(picks, 0, size - 1) if mode == "clip" else remainder(picks, size)
    return written(get(x, (slice(None),) * axis_of(axis, x.ndim) + (picks,)), out)


def compress(condition: Any, a: Any, axis: int | None = None, out: Any = None) -> Any:
    return take(a, flatnonzero(condition), axis, out)


def extract(condition: Any, arr: Any) -> Array:
    return as_array(compress(as_array(condition).reshape(-1), as_array(arr).reshape(-1)))


def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Array:
    x, picks = as_array(arr), cast(as_array(indices), np.int64)
    if axis is None:
        x, axis = x.reshape(-1), 0
    dim = axis_of(axis, x.ndim)
    if x.ndim != picks.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    shape = broadcast_shapes((*x.shape[:dim], 1, *x.shape[dim + 1 :]), (*picks.shape[:dim], 1, *picks.shape[dim + 1 :]))
    x = expanded(x, (*shape[:dim], x.shape[dim], *shape[dim + 1 :]))
    picks = expanded(picks, (*shape[:dim], picks.shape[dim], *shape[dim + 1 :]))
    picks = wrapped(picks, x.shape[dim])
    return apply("aten.gather", picks.shape, x.dtype, self=x, dim=dim, index=picks)
