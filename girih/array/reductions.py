"""NumPy's reductions and scans over axes, in the dtypes that NumPy sums in."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from girih.array import elementwise as e
from girih.array import logic
from girih.array.array import Array
from girih.array.chosen import Chosen
from girih.array.dtypes import name_of
from girih.array.make import apply, as_array, axes_of, axis_of, cast


def _reduced(x: Array, axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    if keepdims:
        return tuple(1 if dim in axes else size for dim, size in enumerate(x.shape))
    return tuple(size for dim, size in enumerate(x.shape) if dim not in axes)


def _accumulator(x: Array, dtype: Any) -> np.dtype:
    """What sums and products are made in: whole numbers in 64 bits, without a sign where they have none."""
    if dtype is not None:
        return np.dtype(dtype)
    if x.dtype.kind == "u":
        return np.dtype(np.uint64)
    return np.dtype(np.int64) if x.dtype.kind in "bi" else x.dtype


def _chosen(a: Any, axis: Any, keepdims: bool) -> Chosen | None:
    """x[mask], of which a sum over what the mask chose is wanted while nobody has asked how much that is."""
    if not isinstance(a, Chosen) or a.made is not None or keepdims:
        return None
    return a if axis in (0, -a.ndim) or (axis is None and a.ndim == 1) else None


def _masked_sum(a: Chosen, dtype: np.dtype) -> Array:
    shape = a.base.shape[a.mask.ndim :]
    return apply("girih.masked_sum", shape, dtype, input=cast(a.base, dtype), mask=a.mask)


def sum(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Array:
    if (chosen := _chosen(a, axis, keepdims)) is not None:
        return _masked_sum(chosen, _accumulator(chosen, dtype))
    x = as_array(a)
    x, axes = cast(x, _accumulator(x, dtype)), axes_of(axis, x.ndim)
    if not axes:
        return x
    shape = _reduced(x, axes, keepdims)
    return apply("aten.sum.dim_IntList", shape, x.dtype, self=x, dim=axes, keepdim=keepdims)


def prod(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Array:
    x = as_array(a)
    x, axes = cast(x, _accumulator(x, dtype)), axes_of(axis, x.ndim)
    for dim in reversed(axes):
        shape = _reduced(x, (dim,), keepdims)
        x = apply("aten.prod.dim_int", shape, x.dtype, self=x, dim=dim, keepdim=keepdims)
    return x


def _floating(x: Array, dtype: Any = None) -> Array:
    return cast(x, _mean_dtype(x, dtype))


def _mean_dtype(x: Array, dtype: Any) -> np.dtype:
    """Means of whole numbers are made in float64."""
    return np.dtype(dtype if dtype is not None else np.float64 if x.dtype.kind in "biu" else x.dtype)


def _count(x: Array, axes: tuple[int, ...]) -> int:
    return math.prod(x.shape[dim] for dim in axes)


def mean(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Array:
    if (chosen := _chosen(a, axis, keepdims)) is not None:
        kind = _mean_dtype(chosen, dtype)
        return cast(_masked_sum(chosen, kind) / sum(chosen.mask), kind)
    x = _floating(as_array(a), dtype)
    axes = axes_of(axis, x.ndim)
    if not axes:
        return x
    given = {"dims": axes, "keepdim": keepdims, "count": _count(x, axes)}
    return apply("girih.mean", _reduced(x, axes, keepdims), x.dtype, input=x, **given)


def var(
    a: Any, axis: Any = None, dtype: Any = None, *, ddof: float = 0, correction: Any = None, keepdims: bool = False
) -> Array:
    x = _floating(as_array(a), dtype)
    axes = axes_of(axis, x.ndim)
    freedom = max_(_count(x, axes) - (ddof if correction is None else correction), 0)
    if not axes:
        return e.multiply(x, 0.0)
    centre = mean(x, axes, keepdims=True)
    given = {"input": x, "mean": centre, "dims": axes, "count": freedom}
    made = apply("girih.centered_square_mean", _reduced(x, axes, True), x.dtype, **given)
    return made if keepdims else made.reshape(_reduced(x, axes, False))


def std(
    a: Any, axis: Any = None, dtype: Any = None, *, ddof: float = 0, correction: Any = None, keepdims: bool = False
) -> Array:
    return e.sqrt(var(a, axis, dtype, ddof=ddof, correction=correction, keepdims=keepdims))


def average(a: Any, axis: Any = None, weights: Any = None, *, keepdims: bool = False) -> Array:
    if weights is None:
        return mean(a, axis, keepdims=keepdims)
    a, weights = as_array(a), as_array(weights)
    if weights.shape != a.shape:
        shape = [1] * a.ndim
        shape[axis_of(axis, a.ndim)] = -1
        weights = weights.reshape(shape)
        total = sum(weights, keepdims=keepdims)
    else:
        total = sum(weights, axis, keepdims=keepdims)
    return sum(a * weights, axis, keepdims=keepdims) / total


# ------------------------------------------------------------------------------------------- order


def _extreme(operator: str, name: str, a: Any, axis: Any, keepdims: bool) -> Array:
    x = as_array(a)
    axes = axes_of(axis, x.ndim)
    if _count(x, axes) == 0:
        raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
    if not axes:
        return x
    return apply(operator, _reduced(x, axes, keepdims), x.dtype, self=x, dim=axes, keepdim=keepdims)


def max(a: Any, axis: Any = None, *, keepdims: bool = False) -> Array:
    return _extreme("aten.amax", "maximum", a, axis, keepdims)


def min(a: Any, axis: Any = None, *, keepdims: bool = False) -> Array:
    return _extreme("aten.amin", "minimum", a, axis, keepdims)


amax, amin = max, min


def max_(first: float, second: float) -> float:
    return first if first > second else second


def ptp(a: Any, axis: Any = None, *, keepdims: bool = False) -> Array:
    return max(a, axis, keepdims=keepdims) - min(a, axis, keepdims=keepdims)


def _position(operator: str, a: Any, axis: Any, keepdims: bool) -> Array:
    x = as_array(a)
    if x.dtype.kind == "b":
        x = cast(x, np.uint8)
    whole = x if axis is not None else x.reshape(-1)
    dim = axis_of(axis, x.ndim) if axis is not None else 0
    if whole.shape[dim] == 0:
        raise ValueError(f"attempt to get {operator.removeprefix('aten.')} of an empty sequence")
    made = apply(operator, _reduced(whole, (dim,), False), np.dtype(np.int64), self=whole, dim=dim, keepdim=False)
    if not keepdims:
        return made
    return made.reshape((1,) * x.ndim if axis is None else _reduced(whole, (dim,), True))


def argmax(a: Any, axis: int | None = None, *, keepdims: bool = False) -> Array:
    return _position("aten.argmax", a, axis, keepdims)


def argmin(a: Any, axis: int | None = None, *, keepdims: bool = False) -> Array:
    return _position("aten.argmin", a, axis, keepdims)


# ------------------------------------------------------------------------------------------- truth


def _truth(operator: str, a: Any, axis: Any, keepdims: bool) -> Array:
    x = as_array(a)
    axes = axes_of(axis, x.ndim)
    if not axes:
        return cast(x, np.bool_)
    return apply(
        operator, _reduced(x, axes, keepdims), np.dtype(bool), self=cast(x, np.bool_), dim=axes, keepdim=keepdims
    )


def any(a: Any, axis: Any = None, *, keepdims: bool = False) -> Array:
    return _truth("aten.any.dims", a, axis, keepdims)


def all(a: Any, axis: Any = None, *, keepdims: bool = False) -> Array:
    return _truth("aten.all.dims", a, axis, keepdims)


def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Array:
    return sum(logic.not_equal(as_array(a), 0), axis, keepdims=keepdims)


def allclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    return bool(all(e.isclose(a, b, rtol, atol, equal_nan)))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    a1, a2 = as_array(a1), as_array(a2)
    if a1.shape != a2.shape:
        return False
    same = logic.equal(a1, a2)
    return bool(all(logic.logical_or(same, logic.isnan(a1) & logic.isnan(a2)) if equal_nan else same))


# ------------------------------------------------------------------------------------------- without NaN


def nansum(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Array:
    return sum(_without_nan(a, 0), axis, dtype, keepdims=keepdims)


def nanprod(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Array:
    return prod(_without_nan(a, 1), axis, dtype, keepdims=keepdims)


def nanmean(a: Any, axis: Any = None, *, keepdims: bool = False) -> Array:
    a = as_array(a)
    count = sum(logic.logical_not(logic.isnan(a)), axis, keepdims=keepdims)
    return (nansum(a, axis, keepdims=keepdims) / count).astype(_floating(a).dtype)


def nanvar(a: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Array:
    a = as_array(a)
    known = logic.logical_not(logic.isnan(a))
    away = e.where(known, a - nanmean(a, axis, keepdims=True), 0)
    count = sum(known, axis, keepdims=keepdims)
    return (sum(away * away, axis, keepdims=keepdims) / (count - ddof)).astype(_floating(a).dtype)


def nanstd(a: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Array:
    return e.sqrt(nanvar(a, axis, ddof=ddof, keepdims=keepdims))


def _without_nan(a: Any, value: float) -> Array:
    a = as_array(a)
    return e.where(logic.isnan(a), value, a) if a.dtype.kind in "fc" else a


# ------------------------------------------------------------------------------------------- scans


def _scan(operator: str, a: Any, axis: int | None, dtype: Any) -> Array:
    x = as_array(a)
    x = cast(x, _accumulator(x, dtype))
    x = x.reshape(-1) if axis is None else x
    return apply(operator, x.shape, x.dtype, self=x, dim=0 if axis is None else axis_of(axis, x.ndim))


def cumsum(a: Any, axis: int | None = None, dtype: Any = None) -> Array:
    return _scan("aten.cumsum", a, axis, dtype)


def cumprod(a: Any, axis: int | None = None, dtype: Any = None) -> Array:
    return _scan("aten.cumprod", a, axis, dtype)


def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    return _cumulative(cumsum, np.zeros, x, axis, dtype, include_initial)


def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    return _cumulative(cumprod, np.ones, x, axis, dtype, include_initial)


def _cumulative(scan: Any, first: Any, x: Any, axis: int | None, dtype: Any, include_initial: bool) -> Array:
    from girih.array.manipulation import concatenate

    x = as_array(x)
    if axis is None:
        if x.ndim != 1:
            raise ValueError("For arrays which have more than one dimension ``axis`` argument is required.")
        axis = 0
    made: Array = scan(x, axis, dtype)
    if not include_initial:
        return made
    dim = axis_of(axis, x.ndim)
    shape = (*x.shape[:dim], 1, *x.shape[dim + 1 :])
    return concatenate([as_array(first(shape, name_of(made.dtype))), made], dim)


def diff(a: Any, n: int = 1, axis: int = -1) -> Array:
    x = as_array(a)
    dim = axis_of(axis, x.ndim)
    before = (slice(None),) * dim
    for _ in range(n):
        last, first = x[(*before, slice(1, None))], x[(*before, slice(None, -1))]
        x = logic.not_equal(last, first) if x.dtype.kind == "b" else last - first
    return x
