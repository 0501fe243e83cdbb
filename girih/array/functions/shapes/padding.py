"""Borders around an array: constants, its own elements again, or statistics of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import as_array, axis_of, cast
from girih.array.functions.elementwise import ufuncs as e
from girih.array.functions.reductions import reduce as reductions
from girih.array.functions.reductions import statistics
from girih.array.functions.shapes import manipulation
from girih.array.functions.shapes.picking import take

AGAIN = ("edge", "reflect", "symmetric", "wrap")
STATISTICS: dict[str, Callable[..., Any]] = {
    "maximum": reductions.max,
    "minimum": reductions.min,
    "mean": reductions.mean,
    "median": statistics.median,
}
OPTIONS = {"constant": "constant_values", "linear_ramp": "end_values", "reflect": "reflect_type",
           "symmetric": "reflect_type", **dict.fromkeys(STATISTICS, "stat_length")}  # fmt: skip


def pad(array: Any, pad_width: Any, mode: str = "constant", **options: Any) -> Array:
    """Raises ValueError, as NumPy, for a mode or an option of it that is not there."""
    x = as_array(array)
    if callable(mode):
        raise TypeError("girih.array.pad has no functions as modes: put borders around by np.concatenate")
    if mode not in ("constant", "empty", "linear_ramp", *AGAIN, *STATISTICS):
        raise ValueError(f"mode '{mode}' is not supported")
    if unknown := set(options) - {OPTIONS.get(mode)}:
        raise ValueError(f"unsupported keyword arguments for mode '{mode}': {unknown}")
    widths = _pairs(pad_width, x.ndim, np.int64)
    if any(width < 0 for pair in widths for width in pair):
        raise ValueError("index can't contain negative values")
    values = options.get("constant_values", 0)
    if mode == "empty" or (mode == "constant" and not isinstance(values, Array) and np.ndim(values) == 0):
        return manipulation.pad(x, widths, constant_values=x.dtype.type(values).item())
    each = _pairs(options.get(OPTIONS.get(mode, ""), _default(mode)), x.ndim, None)
    for dim, (width, option) in enumerate(zip(widths, each, strict=True)):
        if width != (0, 0):
            x = _bordered(x, dim, width, mode, option)
    return x


def _default(mode: str) -> Any:
    return None if mode in STATISTICS else "even" if mode in AGAIN else 0


def _pairs(given: Any, rank: int, dtype: Any) -> list[tuple[Any, Any]]:
    """What is before and what is behind, for every dimension."""
    if isinstance(given, dict):
        made: list[tuple[Any, Any]] = [(0, 0)] * rank
        for axis, pair in given.items():
            made[axis_of(axis, rank)] = tuple(np.broadcast_to(pair, 2).tolist())
        return made
    if given is None or isinstance(given, str):
        return [(given, given)] * rank
    wide = np.broadcast_to(np.asarray(given, dtype), (rank, 2))
    return [tuple(pair) for pair in wide.tolist()]


def _bordered(x: Array, dim: int, width: tuple[int, int], mode: str, option: tuple[Any, Any]) -> Array:
    size = x.shape[dim]
    if size == 0:
        raise ValueError(f"can't extend empty axis {dim} using modes other than 'constant' or 'empty'")
    if mode in AGAIN:
        again = take(x, np.pad(np.arange(size), width, mode=mode), dim)  # type: ignore[call-overload]
        return _odd(x, again, dim, width) if option[0] == "odd" else again
    parts = []
    for count, value, first in ((width[0], option[0], True), (width[1], option[1], False)):
        if mode in STATISTICS:
            border = _repeated(_statistic(x, dim, mode, value, first), dim, count)
        elif mode == "constant":
            border = manipulation.broadcast_to(x.dtype.type(value), _sized(x, dim, count))
        else:
            border = _ramp(x, dim, count, value, first)
        parts.append(cast(border, x.dtype))
    return manipulation.concatenate([parts[0], x, parts[1]], dim)


def _sized(x: Array, dim: int, count: int) -> tuple[int, ...]:
    return (*x.shape[:dim], count, *x.shape[dim + 1 :])


def _repeated(one: Array, dim: int, count: int) -> Array:
    return manipulation.broadcast_to(one, _sized(one, dim, count))


def _part(x: Array, dim: int, start: int | None, stop: int | None) -> Array:
    return x[(*(slice(None),) * dim, slice(start, stop))]


def _statistic(x: Array, dim: int, mode: str, length: int | None, first: bool) -> Array:
    if length is not None and length < 1:
        raise ValueError(f"stat_length of {length} yields no value for padding")
    length = x.shape[dim] if length is None else min(length, x.shape[dim])
    part = _part(x, dim, 0, length) if first else _part(x, dim, x.shape[dim] - length, None)
    made = STATISTICS[mode](part, dim, keepdims=True)
    return e.rint(made) if mode in ("mean", "median") and x.dtype.kind in "iu" else made


def _ramp(x: Array, dim: int, count: int, end: Any, first: bool) -> Array:
    """From the end value to the element at the border, which it does not reach."""
    border = _part(x, dim, 0, 1) if first else _part(x, dim, x.shape[dim] - 1, None)
    place = (np.arange(count) if first else np.arange(count)[::-1]) / max(count, 1)
    place = place.reshape((-1,) + (1,) * (x.ndim - 1 - dim))
    made = end + (border - end) * place
    return e.floor(made) if x.dtype.kind in "iu" else made


def _odd(x: Array, again: Array, dim: int, width: tuple[int, int]) -> Array:
    """The borders mirrored at the element beside them, too."""
    size = x.shape[dim]
    if max(width) > size:
        raise ValueError(f"girih.array.pad reflects once only: at most {size} elements of axis {dim}, not {width}")
    parts = [_part(again, dim, 0, width[0]), x, _part(again, dim, width[0] + size, None)]
    parts[0] = 2 * _part(x, dim, 0, 1) - parts[0]
    parts[2] = 2 * _part(x, dim, size - 1, None) - parts[2]
    return manipulation.concatenate([cast(part, x.dtype) for part in parts], dim)
