"""Scans along an axis, and differences, which undo them."""

from __future__ import annotations

from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import apply, as_array, axes_of, axis_of, cast, line_axis
from girih.array.core.universal import written
from girih.array.functions.elementwise import logic
from girih.array.functions.reductions.reduce import accumulator, wide
from girih.array.functions.shapes.creation import full
from girih.array.functions.shapes.manipulation import broadcast_to, concatenate


def _scan(operator: str, a: Any, axis: int | None, dtype: Any, out: Any) -> Any:
    x = as_array(a)
    axis = line_axis(axis, x.ndim)
    kind = accumulator(x, out.dtype if dtype is None and isinstance(out, Array) else dtype)
    x = cast(x, wide(kind))
    x = x.reshape(-1) if axis is None else x
    result = apply(operator, x.shape, x.dtype, self=x, dim=0 if axis is None else axis_of(axis, x.ndim))
    return written(cast(result, kind), out)


def cumsum(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    return _scan("aten.cumsum", a, axis, dtype, out)


def cumprod(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    return _scan("aten.cumprod", a, axis, dtype, out)


def cumulative_sum(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, out: Any = None, include_initial: bool = False
) -> Any:
    return written(_cumulative(cumsum, 0, x, axis, dtype, include_initial), out)


def cumulative_prod(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, out: Any = None, include_initial: bool = False
) -> Any:
    return written(_cumulative(cumprod, 1, x, axis, dtype, include_initial), out)


def _cumulative(scan: Any, first: int, x: Any, axis: int | None, dtype: Any, include_initial: bool) -> Array:
    x = as_array(x)
    axis = line_axis(axis, x.ndim)
    if axis is None:
        x = x.reshape(-1) if not x.ndim else x
        if x.ndim != 1:
            raise ValueError("For arrays which have more than one dimension ``axis`` argument is required.")
        axis = 0
    cumulative: Array = scan(x, axis, dtype)
    if not include_initial:
        return cumulative
    dim = axis_of(axis, x.ndim)
    return concatenate([full((*x.shape[:dim], 1, *x.shape[dim + 1 :]), first, cumulative.dtype), cumulative], dim)


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Array:
    x = as_array(a)
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n!r}")
    if n == 0:
        return x
    dim = axis_of(axis, x.ndim)
    edge = (*x.shape[:dim], 1, *x.shape[dim + 1 :])
    parts = [None if item is None else as_array(item) for item in (prepend, x, append)]
    parts = [item if item is None or item.ndim else broadcast_to(item, edge) for item in parts]
    neighbours = [item for item in parts if item is not None]
    x = concatenate(neighbours, dim) if len(neighbours) > 1 else x
    before = (slice(None),) * dim
    for _ in range(n):
        last, first = x[(*before, slice(1, None))], x[(*before, slice(None, -1))]
        x = logic.not_equal(last, first) if x.dtype.kind == "b" else last - first
    return x


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Central differences inside, one-sided at the ends, of equal or of given distances."""
    x = as_array(f)
    x = x if x.dtype.kind in "fc" else cast(x, np.float64)
    axes = list(axes_of(axis, x.ndim)) if axis is None or isinstance(axis, tuple) else [axis_of(axis, x.ndim)]
    if len(varargs) not in (0, 1, len(axes)):
        raise TypeError("invalid number of arguments")
    if len(varargs) == 1 and np.ndim(varargs[0]) and len(axes) > 1:
        raise TypeError("invalid number of arguments")
    if edge_order not in (1, 2):
        raise ValueError("'edge_order' greater than 2 not supported")
    distances = list(varargs) * (len(axes) if len(varargs) == 1 else 1) or [1.0] * len(axes)
    slopes = [_slope(x, dim, distance, edge_order) for dim, distance in zip(axes, distances, strict=True)]
    return slopes[0] if len(slopes) == 1 else tuple(slopes)


def _slope(x: Array, dim: int, distance: Any, edge_order: int) -> Array:
    size = x.shape[dim]
    if size < edge_order + 1:
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient, at least (edge_order + 1) elements are "
            "required."
        )
    before = (slice(None),) * dim

    def part(start: int | None, stop: int | None) -> Array:
        return x[(*before, slice(start, stop))]

    distance = as_array(distance)
    if distance.ndim == 0:
        steps = np.broadcast_to(np.ones(1), (size - 1,)) * distance
    elif distance.shape == (size,):
        steps = diff(cast(distance, np.float64))
    else:
        raise ValueError("when 1d, distances must match the length of the corresponding dimension")
    steps = steps.reshape((-1,) + (1,) * (x.ndim - 1 - dim))
    inner = _weighed([part(None, -2), part(1, -1), part(2, None)], steps[:-1], steps[1:], 1)
    if edge_order == 1:
        first = (part(1, 2) - part(0, 1)) / steps[:1]
        last = (part(size - 1, None) - part(size - 2, size - 1)) / steps[-1:]
    else:
        first = _weighed([part(at, at + 1) for at in range(3)], steps[:1], steps[1:2], 0)
        last = _weighed([part(size - at, size - at + 1) for at in (3, 2, 1)], steps[-2:-1], steps[-1:], 2)
    return cast(concatenate([first, inner, last], dim), x.dtype)


def _weighed(points: list[Array], a: Any, b: Any, at: int) -> Array:
    """The slope of the parabola through three points with distances a and b, at one of them."""
    weights = (
        (-(2 * a + b) / (a * (a + b)), (a + b) / (a * b), -a / (b * (a + b))),
        (-b / (a * (a + b)), (b - a) / (a * b), a / (b * (a + b))),
        (b / (a * (a + b)), -(a + b) / (a * b), (2 * b + a) / (b * (a + b))),
    )[at]
    return points[0] * weights[0] + points[1] * weights[1] + points[2] * weights[2]
