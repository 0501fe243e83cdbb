"""Order: sorting along an axis, ranks, and what is found in sorted arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import apply, as_array, axis_of, cast, line_axis
from girih.array.functions.reductions import reduce as reductions
from girih.array.functions.shapes.creation import zeros
from girih.array.functions.shapes.manipulation import flip
from girih.array.functions.shapes.picking import take, take_along_axis
from girih.array.functions.whole import whole


def sort(
    a: Any, axis: int | None = -1, kind: str | None = None, order: Any = None, *, stable: bool | None = True,
    descending: bool = False,
) -> Array:  # fmt: skip
    """Every kind is stable."""
    x = as_array(a)
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    dim = axis_of(axis, x.ndim)
    if x.shape[dim] < 2:
        return x.copy()
    result = apply("girih.sort", x.shape, x.dtype, input=x, dim=dim)
    return flip(result, dim) if descending else result


def argsort(
    a: Any, axis: int | None = -1, kind: str | None = None, order: Any = None, *, stable: bool | None = True,
    descending: bool = False,
) -> Array:  # fmt: skip
    x = as_array(a)
    axis = line_axis(axis, x.ndim)
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    dim = axis_of(axis, x.ndim)
    arguments = {"input": x, "dim": dim, "descending": descending}
    return apply("girih.sort_indices", x.shape, np.dtype(np.int64), **arguments)


def partition(a: Any, kth: Any, axis: int | None = -1, kind: str = "introselect", order: Any = None) -> Array:
    """What is before the kth element is not larger, what is behind it is not smaller."""
    x, dim, places = _parted(a, kth, axis)
    return apply("girih.partition", x.shape, x.dtype, input=x, dim=dim, places=places)


def argpartition(a: Any, kth: Any, axis: int | None = -1, kind: str = "introselect", order: Any = None) -> Array:
    x, dim, places = _parted(a, kth, line_axis(axis, as_array(a).ndim))
    return apply("girih.partition_indices", x.shape, np.dtype(np.int64), input=x, dim=dim, places=places)


def _parted(a: Any, kth: Any, axis: int | None) -> tuple[Array, int, tuple[int, ...]]:
    x = as_array(a)
    x, dim = (x.reshape(-1), 0) if axis is None else (x, axis_of(axis, x.ndim))
    size = x.shape[dim]
    places = np.atleast_1d(np.asarray(kth)).tolist()
    for item in places:
        if not -size <= item < size:
            raise ValueError(f"kth(={item}) out of bounds ({size})")
    return x, dim, tuple(sorted({item % size for item in places}))


def lexsort(keys: Any, axis: int = -1) -> Array:
    """Positions in the order of the last key, equal ones in the order of the key before, and so on."""
    columns = [as_array(key) for key in keys]
    if not columns:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    dim = axis_of(axis, columns[0].ndim)
    order = argsort(columns[0], dim)
    for key in columns[1:]:
        order = take_along_axis(order, argsort(take_along_axis(key, order, dim), dim), dim)
    return order


def topk(a: Any, k: int, axis: int = -1, *, largest: bool = True) -> tuple[Array, Array]:
    """The k largest (or smallest) along an axis, in their order: values and positions."""
    x = as_array(a)
    dim = axis_of(axis, x.ndim)
    if not 0 <= k <= x.shape[dim]:
        raise ValueError(f"topk: k={k} of {x.shape[dim]} elements along axis {dim}")
    shape = (*x.shape[:dim], k, *x.shape[dim + 1 :])
    places = apply("girih.topk_indices", shape, np.dtype(np.int64), input=x, k=k, dim=dim, largest=largest)
    return take_along_axis(x, places, dim), places


def searchsorted(x1: Any, x2: Any = None, /, side: str = "left", sorter: Any = None, *, v: Any = None) -> Array:
    """Where values belong in a sorted array: how many of its elements are before them.

    Raises:
        ValueError: the sorted array has not one dimension, or another side than 'left' and 'right'.
    """
    if side not in ("left", "right"):
        raise ValueError(f"side must be 'left' or 'right' (got {side!r})")
    ordered, values = as_array(x1), as_array(x2 if v is None else v)
    if ordered.ndim != 1:
        raise ValueError("object of too small depth for desired array")
    if sorter is not None:
        ordered = take(ordered, sorter)
    kind = np.result_type(ordered.dtype, values.dtype)
    kind = np.dtype(np.uint8) if kind.kind == "b" else kind
    arguments = {"sequence": cast(ordered, kind), "values": cast(values, kind), "right": side == "right"}
    if ordered.size == 0:
        return zeros(values.shape, np.int64)
    return apply("girih.search_sorted", values.shape, np.dtype(np.int64), **arguments)


def digitize(x: Any, bins: Any, right: bool = False) -> Array:
    """The bin of each number. Bins are looked at now; those that do not increase are evaluated whole.

    Raises:
        TypeError: a value, or a bin, is complex.
    """
    edges, x = as_array(bins), as_array(x)
    if x.dtype.kind == "c":
        raise TypeError("x may not be complex")
    if edges.dtype.kind == "c":
        raise TypeError(f"Cannot cast array data from {edges.dtype!r} to dtype('float64') according to the rule 'safe'")
    if edges.size and not bool((edges[1:] >= edges[:-1]).all()):
        return whole(np.digitize)(x, bins, right)
    return searchsorted(edges, x, "left" if right else "right")


def bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> Array:
    """How often each number occurs; the largest is computed now, because the shape depends on it.

    Raises:
        ValueError: a number is negative, or there is not one dimension.
    """
    x = as_array(x)
    if x.ndim != 1:
        raise ValueError("object of too small depth for desired array" if x.ndim == 0 else "object too deep")
    if x.dtype.kind not in "iub":
        raise TypeError(f"Cannot cast array data from {x.dtype!r} to dtype('int64') according to the rule 'safe'")
    if x.size and int(reductions.min(x)) < 0:
        raise ValueError("'list' argument must have no negative elements")
    return counted(x, max(int(reductions.max(x)) + 1 if x.size else 0, minlength), weights)


def counted(x: Array, size: int, weights: Any = None, left_out: int = -1) -> Array:
    """How often each of 0 … size - 1 occurs, or the sum of its weights. left_out: another number that may occur."""
    places = cast(x, np.int64)
    if weights is None:
        return apply("girih.counts_by_position", (size,), np.dtype(np.int64), positions=places, groups=size)
    kind = np.dtype(np.float64)
    value = cast(as_array(weights), kind).reshape((-1, 1))
    arguments = {"grad": value, "indices": places.reshape(-1), "rows": size, "padding": left_out}
    return apply("girih.embedding_gradient", (size, 1), kind, **arguments).reshape(size)
