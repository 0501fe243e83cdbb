"""Arrays from nothing, from memory and from functions of the index; grids and joins that are written with brackets."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import apply, as_array, cast, from_memory
from girih.array.core.dtypes import dtype_or, name_of
from girih.array.core.views import copied
from girih.array.functions.elementwise import ufuncs as e
from girih.array.functions.elementwise.information import check_device
from girih.array.functions.shapes.manipulation import broadcast_to, concatenate, moveaxis, reshape, stack


def array(
    object: Any, dtype: Any = None, *, copy: bool | None = True, order: str = "K", subok: bool = False, ndmin: int = 0,
    like: Any = None, device: Any = None,
) -> Array:  # fmt: skip
    """What NumPy's array has, in an array of ours. Later writes to the original are not seen."""
    check_device(device)
    if copy is False and not (isinstance(object, Array) and dtype in (None, object.dtype)):
        raise ValueError("Unable to avoid copy while creating an array as requested.")
    x = as_array(_joined(object), dtype)
    x = copied(x) if copy and x is object else x
    x = x.as_written()
    return reshape(x, (1,) * (ndmin - x.ndim) + x.shape) if x.ndim < ndmin else x


def _joined(item: Any) -> Any:
    """A list with arrays of ours in it is a stack of them."""
    if isinstance(item, (list, tuple)) and any(isinstance(part, (Array, list, tuple)) for part in item):
        parts = [_joined(part) for part in item]
        return stack(parts) if any(isinstance(part, Array) for part in parts) else item
    return item


def asarray(
    a: Any, dtype: Any = None, order: str | None = None, *, copy: bool | None = None, like: Any = None,
    device: Any = None,
) -> Array:  # fmt: skip
    return array(a, dtype, copy=copy, device=device)


asanyarray = ascontiguousarray = asarray


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """An array of another library, by DLPack; ours as they are."""
    check_device(device)
    if isinstance(x, Array):
        return x.copy() if copy else x
    if copy is False:
        raise ValueError("Unable to avoid copy: girih arrays hold tiles of their own")
    return from_memory(np.from_dlpack(x), copy=True)


def from_numpy(content: np.ndarray, *, copy: bool = True) -> Array:
    """A NumPy array. copy=False: it is promised that nobody writes to it from now on."""
    return from_memory(np.asarray(content), copy=copy)


# ------------------------------------------------------------------------------------------- constants


def _shape(shape: Any) -> tuple[int, ...]:
    """A shape as a tuple. Raises ValueError for a negative size."""
    sizes = (shape,) if isinstance(shape, (int, np.integer, Array)) else tuple(shape)
    result = tuple(operator.index(size) for size in sizes)
    if any(size < 0 for size in result):
        raise ValueError("negative dimensions are not allowed")
    return result


def full(
    shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None
) -> Array:
    check_device(device)
    size = _shape(shape)
    if isinstance(fill_value, Array) or np.ndim(fill_value):
        return broadcast_to(as_array(fill_value, dtype), size).copy()
    kind = np.asarray(fill_value).dtype if dtype is None else np.dtype(dtype)
    value = kind.type(fill_value).item()
    if kind.kind == "c" or (kind.kind == "u" and value >= 2**63):
        return broadcast_to(as_array(kind.type(fill_value)), size).copy()
    return apply("aten.full", size, kind, size=size, fill_value=value, dtype=name_of(kind))


def zeros(shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None) -> Array:
    return full(shape, 0, dtype_or(dtype, float), device=device)


def ones(shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None) -> Array:
    return full(shape, 1, dtype_or(dtype, float), device=device)


empty = zeros


def full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
    device: Any = None,
) -> Array:  # fmt: skip
    a = as_array(a)
    return full(a.shape if shape is None else shape, fill_value, dtype_or(dtype, a.dtype), device=device)


def zeros_like(
    a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *, device: Any = None
) -> Array:
    return full_like(a, 0, dtype, shape=shape, device=device)


def ones_like(
    a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *, device: Any = None
) -> Array:
    return full_like(a, 1, dtype, shape=shape, device=device)


empty_like = zeros_like


# ------------------------------------------------------------------------------------------- of the index


def _count(size: int) -> Array:
    size = operator.index(size)
    return apply("aten.arange.start_step", (size,), np.dtype(np.int64), start=0, end=size, step=1, dtype="int64")


def arange(
    start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, *, device: Any = None, like: Any = None
) -> Array:
    """start + step · index, as NumPy."""
    check_device(device)
    start, stop = (0, start) if stop is None else (start, stop)
    if step == 0:
        raise ZeroDivisionError("division by zero")
    numbers = [item.item() if isinstance(item, (np.generic, Array)) else item for item in (start, stop, step)]
    kind = np.dtype(dtype) if dtype is not None else np.result_type(*(np.asarray(item).dtype for item in numbers))
    first, last, width = numbers
    size = max(0, math.ceil((last - first) / width))
    place = _count(size)
    if all(isinstance(item, int) for item in numbers):
        return cast(place * width + first, kind)
    if kind.kind in "iub":  # NumPy rounds the first two towards zero and goes on from there
        begin, second = int(first), int(first + width)
        return cast(place * (second - begin) + begin, kind)
    return cast(cast(place, np.float64) * float(width) + float(first), kind)


def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None,
    axis: int = 0, *, device: Any = None,
) -> Any:  # fmt: skip
    check_device(device)
    num = operator.index(num)
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    inner = np.result_type(*(item if isinstance(item, (int, float, complex)) else as_array(item).dtype
                             for item in (start, stop)))  # fmt: skip
    inner = inner if inner.kind in "fc" else np.dtype(np.float64)
    kind = np.dtype(dtype) if dtype is not None else inner
    numbers = not any(isinstance(item, Array) or np.ndim(item) for item in (start, stop))
    first, last = [inner.type(item) if numbers else as_array(item, inner) for item in (start, stop)]
    parts = num - 1 if endpoint else num
    step = (last - first) / max(parts, 1)
    rank = 0 if numbers else (first + last).ndim
    place = cast(_count(num), inner).reshape((-1,) + (1,) * rank)
    points = place * step + first
    if endpoint and num > 1:
        points = e.where(place == num - 1, last, points)
    points = cast(e.floor(points) if kind.kind in "iu" else points, kind)
    points = moveaxis(points, 0, axis) if axis else points
    return (points, step if parts else np.nan) if retstep else points


def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None, axis: int = 0
) -> Array:
    result = e.power(base, linspace(start, stop, num, endpoint, axis=axis))
    return result if dtype is None else cast(result, dtype)


def eye(
    N: int, M: int | None = None, k: int = 0, dtype: Any = None, order: str = "C", *, device: Any = None,
    like: Any = None,
) -> Array:  # fmt: skip
    check_device(device)
    rows, columns = _count(N), _count(N if M is None else M)
    return cast(rows[:, None] + _within(rows, columns, k) == columns[None, :], dtype_or(dtype, float))


def identity(n: int, dtype: Any = None, *, like: Any = None) -> Array:
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = float, *, like: Any = None) -> Array:
    if not hasattr(k, "__index__"):
        return as_array(np.tri(N, M, k, dtype_or(dtype, float)))
    rows, columns = _count(N), _count(N if M is None else M)
    return cast(columns[None, :] <= rows[:, None] + _within(rows, columns, k), dtype_or(dtype, float))


def _within(rows: Array, columns: Array, k: int) -> int:
    """The number of a diagonal, and of one just outside of the matrix for all that are further away."""
    return max(-rows.shape[0], min(columns.shape[0], operator.index(k)))


def indices(dimensions: Sequence[int], dtype: Any = int, sparse: bool = False) -> Any:
    shape = tuple(dimensions)
    if sparse:
        return tuple(_places(shape, dtype))
    return stack([broadcast_to(place, shape) for place in _places(shape, dtype)])


def _places(shape: tuple[int, ...], dtype: Any) -> list[Array]:
    """The index in each dimension, in a shape that broadcasts."""
    rank = len(shape)
    return [
        reshape(cast(_count(size), dtype), (1,) * dim + (size,) + (1,) * (rank - 1 - dim))
        for dim, size in enumerate(shape)
    ]


def fromfunction(function: Callable[..., Any], shape: Sequence[int], *, dtype: Any = float, **options: Any) -> Array:
    """The function of the index in each dimension: nothing is held in memory but its result's tiles."""
    result = function(*(broadcast_to(place, tuple(shape)) for place in _places(tuple(shape), dtype)), **options)
    return as_array(result)


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Array, ...]:
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    vectors = [reshape(as_array(x), (-1,)) for x in xi]
    order = [1, 0, *range(2, len(vectors))] if indexing == "xy" and len(vectors) > 1 else list(range(len(vectors)))
    shape = tuple(vectors[dim].shape[0] for dim in order)
    grids = []
    for number, x in enumerate(vectors):
        dim = order.index(number)
        one = reshape(x, (1,) * dim + (-1,) + (1,) * (len(vectors) - 1 - dim))
        one = one if sparse else broadcast_to(one, shape)
        grids.append(one.copy() if copy else one)
    return tuple(grids)


# ------------------------------------------------------------------------------------------- written with brackets


class OpenGrid:
    """np.ogrid[0:3, 0:1:5j]: for each slice its numbers, in a shape that broadcasts; an imaginary step is how many."""

    def __getitem__(self, key: Any) -> Any:
        grids = np.ogrid[key]
        return tuple(as_array(part) for part in grids) if isinstance(grids, tuple | list) else as_array(grids)


class DenseGrid:
    """np.mgrid[0:3, 0:1:5j]: the parts of ogrid, each broadcast to the shape of all, stacked."""

    def __getitem__(self, key: Any) -> Array:
        grids = np.ogrid[key]
        if not isinstance(grids, tuple | list):
            return as_array(grids)
        shape = np.broadcast_shapes(*(part.shape for part in grids))
        return stack([broadcast_to(as_array(part), shape) for part in grids])


class Joined:
    """np.r_[x, 0, 1:4] and np.c_[x, y]: what stands between the commas, joined along an axis.

    axis: along which. rank: each item has at least so many dimensions. place: where the dimensions of an item with
    fewer go in the new shape, -1 last. A string in front gives all three, as `'1,2,0'`.
    """

    def __init__(self, axis: int, rank: int, place: int) -> None:
        self.axis, self.rank, self.place = axis, rank, place

    def __getitem__(self, key: Any) -> Array:
        """Raises ValueError for a string that is not one to three numbers: matrices are not there."""
        items = key if isinstance(key, tuple) else (key,)
        axis, rank, place = self.axis, self.rank, self.place
        if items and isinstance(items[0], str):
            try:
                directive = [int(part) for part in items[0].split(",")]
                axis, rank, place = (directive + [self.axis, 1, -1][len(directive) :])[:3]
            except ValueError as error:
                raise ValueError(f"unknown special directive {items[0]!r}: expected numbers such as '0,2'") from error
            items = items[1:]
        if any(isinstance(item, str) for item in items):
            raise ValueError("special directives must be the first entry.")
        parts = [np.r_[item] if isinstance(item, slice) else item for item in items]
        arrays = [as_array(part) for part in parts]
        numbers = (bool, int, float, complex)  # which take the dtype of what stands beside them
        kinds = [part if type(part) in numbers else x.dtype for part, x in zip(parts, arrays, strict=True)]
        dtype = np.result_type(*kinds) if kinds else np.dtype(float)
        return concatenate([_with_rank(cast(x, dtype), rank, place) for x in arrays], axis=axis)


def _with_rank(x: Array, rank: int, place: int) -> Array:
    """x with dimensions of length one before and behind its own, which begin at `place`."""
    new = rank - x.ndim
    if new <= 0:
        return x
    first = place if place >= 0 else new + 1 + place
    return x.reshape((1,) * first + x.shape + (1,) * (new - first))


mgrid, ogrid = DenseGrid(), OpenGrid()
r_, c_ = Joined(0, 1, -1), Joined(-1, 2, 0)
