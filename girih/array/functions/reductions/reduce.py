"""NumPy's reductions over axes, in the dtypes that NumPy sums in."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import apply, as_array, axes_of, axis_of, cast, line_axis, no_axis
from girih.array.core.indexing import Masked
from girih.array.core.universal import written
from girih.array.functions.elementwise import logic
from girih.array.functions.elementwise import ufuncs as e
from girih.array.functions.shapes.creation import full
from girih.array.functions.shapes.manipulation import broadcast_to, diagonal


def _reduced(x: Array, axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    if keepdims:
        return tuple(1 if dim in axes else size for dim, size in enumerate(x.shape))
    return tuple(size for dim, size in enumerate(x.shape) if dim not in axes)


def accumulator(x: Array, dtype: Any) -> np.dtype:
    """What sums and products are made in: whole numbers in 64 bits, without a sign where they have none."""
    if dtype is not None:
        return np.dtype(dtype)
    if x.dtype.kind == "u":
        return np.dtype(np.uint64)
    return np.dtype(np.int64) if x.dtype.kind in "bi" else x.dtype


def _chosen(a: Any, axis: Any, keepdims: bool) -> Masked | None:
    """x[mask], of which a sum over what the mask chose is wanted while nobody has asked how much that is."""
    if not isinstance(a, Masked) or a.picked is not None or keepdims:
        return None
    return a if axis in (0, -a.ndim) or (axis is None and a.ndim == 1) else None


def _masked_sum(a: Masked, dtype: np.dtype) -> Array:
    shape = a.base.shape[a.mask.ndim :]
    return apply("girih.masked_sum", shape, dtype, input=cast(a.base, dtype), mask=a.mask)


def _shown(x: Array, where: Any, identity: Any) -> Array:
    """x, with the identity of the reduction where `where` does not hold."""
    return x if where is True else cast(e.where(where, x, x.dtype.type(identity)), x.dtype)


def sum(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None,
    where: Any = True,
) -> Any:  # fmt: skip
    if where is True and initial is None and (chosen := _chosen(a, axis, keepdims)) is not None:
        return written(_masked_sum(chosen, accumulator(chosen, dtype)), out)
    x = as_array(a)
    kind, axes = accumulator(x, dtype), axes_of(no_axis(axis, x.ndim), x.ndim)
    x = _shown(cast(x, wide(kind)), where, 0)
    if axes:
        shape = _reduced(x, axes, keepdims)
        x = apply("aten.sum.dim_IntList", shape, x.dtype, self=x, dim=axes, keepdim=keepdims)
    else:
        x = x.copy()
    return written(cast(x if initial is None else e.add(x, initial), kind), out)


def wide(kind: np.dtype) -> np.dtype:
    """What ATen sums a dtype in: whole numbers in 64 bits."""
    return np.dtype(np.int64) if kind.kind in "bi" else np.dtype(np.uint64) if kind.kind == "u" else kind


def prod(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None,
    where: Any = True,
) -> Any:  # fmt: skip
    x = as_array(a)
    kind, axes = accumulator(x, dtype), axes_of(no_axis(axis, x.ndim), x.ndim)
    x = _shown(cast(x, wide(kind)), where, 1).copy()
    for dim in reversed(axes):
        shape = _reduced(x, (dim,), keepdims)
        x = apply("aten.prod.dim_int", shape, x.dtype, self=x, dim=dim, keepdim=keepdims)
    return written(cast(x if initial is None else e.multiply(x, initial), kind), out)


def _floating(x: Array, dtype: Any = None) -> Array:
    return cast(x, _mean_dtype(x, dtype))


def _mean_dtype(x: Array, dtype: Any) -> np.dtype:
    """Means of whole numbers are made in float64."""
    return np.dtype(dtype if dtype is not None else np.float64 if x.dtype.kind in "biu" else x.dtype)


def _count(x: Array, axes: tuple[int, ...]) -> int:
    return math.prod(x.shape[dim] for dim in axes)


def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True
) -> Any:
    if where is True and (chosen := _chosen(a, axis, keepdims)) is not None:
        kind = _mean_dtype(chosen, dtype)
        return written(cast(_masked_sum(chosen, kind) / sum(chosen.mask), kind), out)
    x = _floating(as_array(a), dtype)
    axes = axes_of(axis, x.ndim)
    if where is not True:
        return written(cast(sum(x, axes, keepdims=keepdims, where=where) / _shown_count(x, axes, keepdims, where),
                            x.dtype), out)  # fmt: skip
    if not axes:
        return written(x.copy(), out)
    count = _count(x, axes)
    if count == 0:
        return written(sum(x, axes, keepdims=keepdims) / x.dtype.type(0), out)
    exact = np.dtype(np.float32) if x.dtype == np.float16 else x.dtype
    arguments = {"dims": axes, "keepdim": keepdims, "count": count}
    result = apply("girih.mean", _reduced(x, axes, keepdims), exact, input=cast(x, exact), **arguments)
    return written(cast(result, x.dtype), out)


def _shown_count(x: Array, axes: tuple[int, ...], keepdims: bool, where: Any) -> Array:
    return sum(broadcast_to(as_array(where), x.shape), axes, keepdims=keepdims)


def var(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: bool = False, *,
    correction: Any = None, mean: Any = None, where: Any = True,
) -> Any:  # fmt: skip
    x = _floating(as_array(a), dtype)
    axes = axes_of(axis, x.ndim)
    less = ddof if correction is None else correction
    centre = _mean(x, axes, keepdims=True, where=where) if mean is None else as_array(mean)
    real = np.zeros(0, x.dtype).real.dtype
    if where is not True or x.dtype.kind == "c" or not axes:
        away = e.square(e.absolute(x - centre))
        count = _count(x, axes) if where is True else _shown_count(x, axes, keepdims, where)
        return written(cast(sum(away, axes, keepdims=keepdims, where=where) / e.maximum(count - less, 0), real), out)
    freedom = builtins.max(_count(x, axes) - less, 0)
    if freedom == 0:
        total = sum(e.square(x - centre), axes, keepdims=keepdims)
        return written(cast(total / total.dtype.type(0), real), out)
    arguments = {"input": x, "mean": cast(centre, x.dtype), "dims": axes, "count": freedom}
    result = apply("girih.centered_square_mean", _reduced(x, axes, True), x.dtype, **arguments)
    return written(result if keepdims else result.reshape(_reduced(x, axes, False)), out)


_mean = mean


def std(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: bool = False, *,
    correction: Any = None, mean: Any = None, where: Any = True,
) -> Any:  # fmt: skip
    result = var(a, axis, dtype, None, ddof, keepdims, correction=correction, mean=mean, where=where)
    return written(e.sqrt(result), out)


def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False) -> Any:
    a = as_array(a)
    if weights is None:
        result = mean(a, axis, keepdims=keepdims)
        total = as_array(result.dtype.type(a.size // builtins.max(result.size, 1)))
    else:
        weights = as_array(weights)
        if weights.shape != a.shape:
            if axis is None:
                raise TypeError("Axis must be specified when shapes of a and weights differ.")
            if weights.ndim != 1 or weights.shape[0] != a.shape[axis_of(axis, a.ndim)]:
                raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
            shape = [1] * a.ndim
            shape[axis_of(axis, a.ndim)] = -1
            weights = weights.reshape(shape) * np.ones(1, np.int8)
        kind = np.result_type(a.dtype, weights.dtype, *([np.float64] if a.dtype.kind in "iub" else []))
        total = sum(cast(broadcast_to(weights, a.shape), kind), axis, keepdims=keepdims)
        result = sum(cast(a, kind) * weights, axis, keepdims=keepdims) / total
    return (result, broadcast_to(total, result.shape).copy()) if returned else result


# ------------------------------------------------------------------------------------------- order


def _extreme(operator: str, name: str, a: Any, axis: Any, out: Any, keepdims: bool, initial: Any, where: Any) -> Any:
    x = as_array(a)
    axes = axes_of(no_axis(axis, x.ndim), x.ndim)
    joined = e.maximum if name == "maximum" else e.minimum
    if where is not True:
        if initial is None:
            raise ValueError(
                f"reduction operation '{name}' does not have an identity, so to use a where mask one has to specify "
                "'initial'"
            )
        x = cast(e.where(where, x, initial), x.dtype)
    if _count(x, axes) == 0:
        if initial is None:
            raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
        return written(full(_reduced(x, axes, keepdims), initial, x.dtype), out)
    if axes:
        x = apply(operator, _reduced(x, axes, keepdims), x.dtype, self=x, dim=axes, keepdim=keepdims)
    else:
        x = x.copy()
    return written(x if initial is None else joined(x, initial), out)


def max(
    a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
) -> Any:
    return _extreme("aten.amax", "maximum", a, axis, out, keepdims, initial, where)


def min(
    a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
) -> Any:
    return _extreme("aten.amin", "minimum", a, axis, out, keepdims, initial, where)


amax, amin = max, min


def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return written(e.subtract(max(a, axis, keepdims=keepdims), min(a, axis, keepdims=keepdims)), out)


def _position(operator: str, a: Any, axis: Any, keepdims: bool) -> Array:
    x = as_array(a)
    if x.dtype.kind == "b":
        x = cast(x, np.uint8)
    axis = line_axis(axis, x.ndim)
    whole = x if axis is not None else x.reshape(-1)
    dim = axis_of(axis, x.ndim) if axis is not None else 0
    if whole.shape[dim] == 0:
        raise ValueError(f"attempt to get {operator.removeprefix('aten.')} of an empty sequence")
    position = apply(operator, _reduced(whole, (dim,), False), np.dtype(np.int64), self=whole, dim=dim, keepdim=False)
    if not keepdims:
        return position
    return position.reshape((1,) * x.ndim if axis is None else _reduced(whole, (dim,), True))


def argmax(a: Any, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Any:
    return written(_position("aten.argmax", a, axis, keepdims), out)


def argmin(a: Any, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Any:
    return written(_position("aten.argmin", a, axis, keepdims), out)


# ------------------------------------------------------------------------------------------- truth


def _truth(operator: str, a: Any, axis: Any, out: Any, keepdims: bool, where: Any) -> Any:
    x = as_array(a)
    axes, x = axes_of(no_axis(axis, x.ndim), x.ndim), _shown(cast(x, np.bool_), where, operator == "aten.all.dims")
    shape = _reduced(x, axes, keepdims)
    if axes and _count(x, axes):  # the extreme of bytes, which takes a tenth of PyTorch's `any`
        extreme = "aten.amin" if operator == "aten.all.dims" else "aten.amax"
        x = cast(
            apply(extreme, shape, np.dtype(np.uint8), self=cast(x, np.uint8), dim=axes, keepdim=keepdims), np.bool_
        )
    elif axes:
        x = apply(operator, shape, x.dtype, self=x, dim=axes, keepdim=keepdims)
    else:
        x = x.copy()
    return written(x, out)


def any(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True) -> Any:
    return _truth("aten.any.dims", a, axis, out, keepdims, where)


def all(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True) -> Any:
    return _truth("aten.all.dims", a, axis, out, keepdims, where)


def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Array:
    return sum(cast(as_array(a), np.bool_), axis, keepdims=keepdims)


def allclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    return bool(all(e.isclose(a, b, rtol, atol, equal_nan)))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    a1, a2 = as_array(a1), as_array(a2)
    if a1.shape != a2.shape:
        return False
    same = logic.equal(a1, a2)
    return bool(all(logic.logical_or(same, logic.isnan(a1) & logic.isnan(a2)) if equal_nan else same))


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    return sum(diagonal(a, offset, axis1, axis2), -1, dtype, out)
