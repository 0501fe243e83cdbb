"""NumPy's universal functions: one ATen operator at every position, in the dtypes of NumPy's own loops."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from girih.array.array import Array
from girih.array.dtypes import loop_dtypes, name_of
from girih.array.logic import equal, isfinite, isnan, less, less_equal, logical_and, logical_or, not_equal
from girih.array.make import apply, as_array, broadcast_shapes, cast, elementwise, kind_of, operands, typed

# ------------------------------------------------------------------------------------------- arithmetic


def add(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.add, "aten.add.Tensor", x1, x2)


def subtract(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.subtract, "aten.sub.Tensor", x1, x2)


def multiply(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.multiply, "aten.mul.Tensor", x1, x2)


def divide(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.divide, "aten.div.Tensor", x1, x2)


true_divide = divide


def _guarded(ufunc: np.ufunc, operator: str, x1: Any, x2: Any) -> Array:
    """Division of whole numbers: by zero it gives 0, as NumPy's, where ATen's fails."""
    first, second = operands(x1, x2)
    dtype = loop_dtypes(ufunc, (kind_of(first), kind_of(second)), 1)[0]
    if dtype.kind not in "iu":
        return elementwise(ufunc, operator, x1, x2)
    divisor = typed(second, dtype)
    zero = equal(divisor, 0)
    return where(zero, 0, elementwise(ufunc, operator, typed(first, dtype), where(zero, 1, divisor)))


def floor_divide(x1: Any, x2: Any, /) -> Array:
    return _guarded(np.floor_divide, "aten.floor_divide", x1, x2)


def remainder(x1: Any, x2: Any, /) -> Array:
    return _guarded(np.remainder, "aten.remainder.Tensor", x1, x2)


mod = remainder


def fmod(x1: Any, x2: Any, /) -> Array:
    return _guarded(np.fmod, "aten.fmod.Tensor", x1, x2)


def divmod(x1: Any, x2: Any, /) -> tuple[Array, Array]:
    return floor_divide(x1, x2), remainder(x1, x2)


def power(x1: Any, x2: Any, /) -> Array:
    """Small whole exponents are attributes: x ** 2 is x * x."""
    if type(x2) is int and isinstance(x1, Array) and x2 in (1, 2, 3):
        dtype = loop_dtypes(np.power, (x1.dtype, int), 1)[-1]
        x = cast(x1, dtype)
        return x if x2 == 1 else apply("aten.pow.Tensor_Scalar", x.shape, dtype, self=x, exponent=x2)
    if type(x2) is int and x2 < 0 and isinstance(x1, Array) and x1.dtype.kind in "iu":
        raise ValueError("Integers to negative integer powers are not allowed.")
    return elementwise(np.power, "aten.pow.Tensor_Tensor", x1, x2, names=("self", "exponent"))


pow = power


def float_power(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.float_power, "aten.pow.Tensor_Tensor", x1, x2, names=("self", "exponent"))


def negative(x: Any, /) -> Array:
    return elementwise(np.negative, "aten.neg", x)


def positive(x: Any, /) -> Array:
    return elementwise(np.positive, "aten.alias", x)


def reciprocal(x: Any, /) -> Array:
    x = as_array(x)
    return elementwise(np.reciprocal, "aten.reciprocal", x) if x.dtype.kind in "fc" else floor_divide(1, x)


def square(x: Any, /) -> Array:
    return elementwise(np.square, "aten.square", x)


def absolute(x: Any, /) -> Array:
    return elementwise(np.absolute, "aten.abs", x)


abs = absolute


def fabs(x: Any, /) -> Array:
    return elementwise(np.fabs, "aten.abs", x)


def sign(x: Any, /) -> Array:
    x = as_array(x)
    made = elementwise(np.sign, "aten.sgn", x)
    return where(isnan(x), x, made) if x.dtype.kind == "f" else made


def heaviside(x1: Any, x2: Any, /) -> Array:
    x1, x2 = operands(x1, x2)
    first, second, dtype = loop_dtypes(np.heaviside, (kind_of(x1), kind_of(x2)), 1)
    x1, x2 = typed(x1, first), typed(x2, second)
    return where(isnan(x1), x1, where(x1 < 0, 0, where(x1 > 0, 1, x2))).astype(dtype)


def copysign(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.copysign, "aten.copysign.Tensor", x1, x2)


def maximum(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.maximum, "aten.maximum", x1, x2)


def minimum(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.minimum, "aten.minimum", x1, x2)


def fmax(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.fmax, "aten.fmax", x1, x2)


def fmin(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.fmin, "aten.fmin", x1, x2)


def clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Array:
    low, high = a_min if min is None else min, a_max if max is None else max
    made = as_array(a) if low is None else maximum(a, low)
    return made if high is None else minimum(made, high)


# ------------------------------------------------------------------------------------------- rounding


def floor(x: Any, /) -> Array:
    return _rounded(np.floor, "aten.floor", x)


def ceil(x: Any, /) -> Array:
    return _rounded(np.ceil, "aten.ceil", x)


def trunc(x: Any, /) -> Array:
    return _rounded(np.trunc, "aten.trunc", x)


fix = trunc


def rint(x: Any, /) -> Array:
    return elementwise(np.rint, "aten.round", x)


def round(a: Any, decimals: int = 0) -> Array:
    a = as_array(a)
    if a.dtype.kind in "iub" and decimals >= 0:
        return a
    if decimals == 0:
        return rint(a)
    scale = 10.0 ** builtins.abs(decimals)
    return rint(a * scale) / scale if decimals > 0 else (rint(a / scale) * scale).astype(a.dtype)


around = round


def _rounded(ufunc: np.ufunc, operator: str, x: Any) -> Array:
    x = as_array(x)
    return x if x.dtype.kind in "iub" else elementwise(ufunc, operator, x)


# ------------------------------------------------------------------------------------------- exponentials, logarithms


def exp(x: Any, /) -> Array:
    return elementwise(np.exp, "aten.exp", x)


def exp2(x: Any, /) -> Array:
    return elementwise(np.exp2, "aten.exp2", x)


def expm1(x: Any, /) -> Array:
    return elementwise(np.expm1, "aten.expm1", x)


def log(x: Any, /) -> Array:
    return elementwise(np.log, "aten.log", x)


def log2(x: Any, /) -> Array:
    return elementwise(np.log2, "aten.log2", x)


def log10(x: Any, /) -> Array:
    return elementwise(np.log10, "aten.log10", x)


def log1p(x: Any, /) -> Array:
    return elementwise(np.log1p, "aten.log1p", x)


def logaddexp(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.logaddexp, "aten.logaddexp", x1, x2)


def sqrt(x: Any, /) -> Array:
    return elementwise(np.sqrt, "aten.sqrt", x)


def cbrt(x: Any, /) -> Array:
    x = as_array(x)
    return copysign(power(absolute(x), 1 / 3), x)


def hypot(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.hypot, "aten.hypot", x1, x2)


# ------------------------------------------------------------------------------------------- trigonometry


def sin(x: Any, /) -> Array:
    return elementwise(np.sin, "aten.sin", x)


def cos(x: Any, /) -> Array:
    return elementwise(np.cos, "aten.cos", x)


def tan(x: Any, /) -> Array:
    return elementwise(np.tan, "aten.tan", x)


def arcsin(x: Any, /) -> Array:
    return elementwise(np.arcsin, "aten.asin", x)


def arccos(x: Any, /) -> Array:
    return elementwise(np.arccos, "aten.acos", x)


def arctan(x: Any, /) -> Array:
    return elementwise(np.arctan, "aten.atan", x)


def arctan2(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.arctan2, "aten.atan2", x1, x2)


def sinh(x: Any, /) -> Array:
    return elementwise(np.sinh, "aten.sinh", x)


def cosh(x: Any, /) -> Array:
    return elementwise(np.cosh, "aten.cosh", x)


def tanh(x: Any, /) -> Array:
    return elementwise(np.tanh, "aten.tanh", x)


def arcsinh(x: Any, /) -> Array:
    return elementwise(np.arcsinh, "aten.asinh", x)


def arccosh(x: Any, /) -> Array:
    return elementwise(np.arccosh, "aten.acosh", x)


def arctanh(x: Any, /) -> Array:
    return elementwise(np.arctanh, "aten.atanh", x)


asin, acos, atan, atan2 = arcsin, arccos, arctan, arctan2
asinh, acosh, atanh = arcsinh, arccosh, arctanh


def degrees(x: Any, /) -> Array:
    return multiply(x, 180 / np.pi)


def radians(x: Any, /) -> Array:
    return multiply(x, np.pi / 180)


rad2deg, deg2rad = degrees, radians


# ------------------------------------------------------------------------------------------- tests


def signbit(x: Any, /) -> Array:
    x = as_array(x)
    return less(copysign(1.0, x), 0) if x.dtype.kind in "f" else less(x, 0)


def isclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Array:
    a, b = as_array(a), as_array(b)
    near = less_equal(absolute(subtract(a, b)), add(atol, multiply(rtol, absolute(b))))
    same = logical_or(logical_and(near, isfinite(b)), equal(a, b))
    return logical_or(same, logical_and(isnan(a), isnan(b))) if equal_nan else same


# ------------------------------------------------------------------------------------------- choice and parts


def where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    """Elements of x where the condition holds, else of y.

    Raises:
        ValueError: only one of x and y is given.
    """
    if x is None and y is None:
        from girih.array.indexing import nonzero

        return nonzero(condition)
    if x is None or y is None:
        raise ValueError("either both or neither of x and y should be given")
    given = operands(x, y)
    dtype = result_type(*given)
    arrays = [typed(item, dtype) for item in given]
    chosen = as_array(condition)
    chosen = chosen if chosen.dtype.kind == "b" else not_equal(chosen, 0)
    shape = broadcast_shapes(chosen.shape, arrays[0].shape, arrays[1].shape)
    return apply("aten.where.self", shape, dtype, condition=chosen, self=arrays[0], other=arrays[1])


def result_type(*items: Any) -> np.dtype:
    """NumPy's promotion; Python numbers are weak."""
    return np.result_type(*(item.dtype if isinstance(item, Array) else item for item in items))


def nan_to_num(x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Array:
    x = as_array(x)
    if x.dtype.kind != "f":
        return x
    limits = np.finfo(x.dtype)
    high, low = limits.max if posinf is None else posinf, limits.min if neginf is None else neginf
    finite = where(equal(x, np.inf), high, where(equal(x, -np.inf), low, x))
    return where(isnan(x), nan, finite).astype(x.dtype)


def real(x: Any, /) -> Array:
    x = as_array(x)
    return cast(x, np.zeros(0, x.dtype).real.dtype) if x.dtype.kind == "c" else x


def imag(x: Any, /) -> Array:
    x = as_array(x)
    if x.dtype.kind != "c":
        return multiply(x, 0).astype(x.dtype)
    return apply("aten.imag", x.shape, np.zeros(0, x.dtype).imag.dtype, self=x)


def conjugate(x: Any, /) -> Array:
    x = as_array(x)
    return apply("aten.conj_physical", x.shape, name_of(x.dtype), self=x) if x.dtype.kind == "c" else x


conj = conjugate
