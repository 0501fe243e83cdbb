"""Arrays from nothing, from memory and from functions of the index."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from girih.array import elementwise as e
from girih.array.array import Array
from girih.array.dtypes import dtype_or, name_of
from girih.array.make import apply, as_array, cast, from_memory
from girih.array.manipulation import broadcast_to, reshape


def array(object: Any, dtype: Any = None, *, copy: bool | None = True, ndmin: int = 0) -> Array:
    """What NumPy's array has, in an array of ours. Later writes to the original are not seen."""
    x = as_array(_joined(object), dtype)
    return reshape(x, (1,) * (ndmin - x.ndim) + x.shape) if x.ndim < ndmin else x


def _joined(item: Any) -> Any:
    """A list with arrays of ours in it is a stack of them."""
    if isinstance(item, (list, tuple)) and any(isinstance(part, (Array, list, tuple)) for part in item):
        from girih.array.manipulation import stack

        parts = [_joined(part) for part in item]
        return stack(parts) if any(isinstance(part, Array) for part in parts) else item
    return item


def asarray(a: Any, dtype: Any = None, *, copy: bool | None = None) -> Array:
    return array(a, dtype)


asanyarray = ascontiguousarray = asarray


def from_numpy(content: np.ndarray, *, copy: bool = True) -> Array:
    """A NumPy array. copy=False: it is promised that nobody writes to it from now on."""
    return from_memory(np.asarray(content), copy=copy)


# ------------------------------------------------------------------------------------------- constants


def full(shape: Any, fill_value: Any, dtype: Any = None) -> Array:
    size = tuple(int(item) for item in shape) if isinstance(shape, Sequence) else (int(shape),)
    if isinstance(fill_value, Array):
        return broadcast_to(fill_value if dtype is None else cast(fill_value, dtype), size)
    kind = np.asarray(fill_value).dtype if dtype is None else np.dtype(dtype)
    value = kind.type(fill_value).item()
    if kind.kind == "c":
        return broadcast_to(as_array(kind.type(fill_value)), size)
    return apply("aten.full", size, kind, size=size, fill_value=value, dtype=name_of(kind))


def zeros(shape: Any, dtype: Any = float) -> Array:
    return full(shape, 0, dtype_or(dtype, float))


def ones(shape: Any, dtype: Any = float) -> Array:
    return full(shape, 1, dtype_or(dtype, float))


empty = zeros


def full_like(a: Any, fill_value: Any, dtype: Any = None, *, shape: Any = None) -> Array:
    a = as_array(a)
    return full(a.shape if shape is None else shape, fill_value, dtype_or(dtype, a.dtype))


def zeros_like(a: Any, dtype: Any = None, *, shape: Any = None) -> Array:
    return full_like(a, 0, dtype, shape=shape)


def ones_like(a: Any, dtype: Any = None, *, shape: Any = None) -> Array:
    return full_like(a, 1, dtype, shape=shape)


empty_like = zeros_like


# ------------------------------------------------------------------------------------------- of the index


def _count(size: int) -> Array:
    return apply("aten.arange.start_step", (size,), np.dtype(np.int64), start=0, end=size, step=1, dtype="int64")


def arange(start: float, stop: float | None = None, step: float = 1, dtype: Any = None) -> Array:
    """start + step · index, as NumPy."""
    start, stop = (0, start) if stop is None else (start, stop)
    if step == 0:
        raise ZeroDivisionError("division by zero")
    numbers = [item.item() if isinstance(item, (np.generic, Array)) else item for item in (start, stop, step)]
    kind = np.dtype(dtype) if dtype is not None else np.result_type(*(np.asarray(item).dtype for item in numbers))
    first, last, width = numbers
    size = max(0, math.ceil((last - first) / width))
    place = _count(size)
    if kind.kind in "iub" and all(isinstance(item, int) for item in numbers):
        return cast(place * width + first, kind)
    return cast(cast(place, np.float64) * float(width) + float(first), kind)


def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None
) -> Any:
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    kind = np.dtype(dtype) if dtype is not None else np.result_type(start, stop, np.float64)
    step = (stop - start) / max(num - 1 if endpoint else num, 1)
    made = cast(_count(num), np.result_type(kind, np.float64)) * step + start
    if endpoint and num > 1:
        made = e.where(_count(num) == num - 1, np.float64(stop) if kind.kind != "c" else stop, made)
    made = cast(e.floor(made) if kind.kind in "iu" else made, kind)
    return (made, step) if retstep else made


def logspace(start: float, stop: float, num: int = 50, endpoint: bool = True, base: float = 10.0) -> Array:
    return e.power(base, linspace(start, stop, num, endpoint))


def geomspace(start: float, stop: float, num: int = 50, endpoint: bool = True) -> Array:
    return e.exp(linspace(math.log(start), math.log(stop), num, endpoint))


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = float) -> Array:
    rows, columns = _count(N), _count(N if M is None else M)
    return cast(rows[:, None] + k == columns[None, :], dtype_or(dtype, float))


def identity(n: int, dtype: Any = float) -> Array:
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = float) -> Array:
    rows, columns = _count(N), _count(N if M is None else M)
    return cast(columns[None, :] <= rows[:, None] + k, dtype_or(dtype, float))


def indices(dimensions: Sequence[int], dtype: Any = int) -> Array:
    from girih.array.manipulation import stack

    shape = tuple(dimensions)
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
    made = function(*(broadcast_to(place, tuple(shape)) for place in _places(tuple(shape), dtype)), **options)
    return as_array(made)


def meshgrid(*xi: Any, indexing: str = "xy") -> tuple[Array, ...]:
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    given = [reshape(as_array(x), (-1,)) for x in xi]
    order = [1, 0, *range(2, len(given))] if indexing == "xy" and len(given) > 1 else list(range(len(given)))
    shape = tuple(given[dim].shape[0] for dim in order)
    made = []
    for number, x in enumerate(given):
        dim = order.index(number)
        made.append(broadcast_to(reshape(x, (1,) * dim + (-1,) + (1,) * (len(given) - 1 - dim)), shape))
    return tuple(made)


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Array:
    x = as_array(x)
    powers = _count(x.shape[0] if N is None else N)
    return e.power(x[:, None], powers if increasing else powers[::-1])
