"""NumPy's universal functions: one ATen operator at every position, in the dtypes of NumPy's own loops.

Those of few users are NumPy's functions, called on tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import (
    apply,
    as_array,
    broadcast_shapes,
    cast,
    choice,
    elementwise,
    exactly,
    kind_of,
    operands,
    typed,
)
from girih.array.core.dtypes import loop_dtypes, name_of
from girih.array.core.indexing import places_of
from girih.array.core.universal import UniversalFunction, mapped, universal, written
from girih.array.core.views import copied
from girih.array.functions.elementwise.logic import (
    equal,
    isfinite,
    isnan,
    less,
    less_equal,
    logical_and,
    logical_or,
    not_equal,
    outside,
)
from girih.ops import functions

# ------------------------------------------------------------------------------------------- arithmetic

add = mapped(np.add, "aten.add.Tensor")
subtract = mapped(np.subtract, "aten.sub.Tensor")
multiply = mapped(np.multiply, "aten.mul.Tensor")
divide = true_divide = mapped(np.divide, "aten.div.Tensor")


def _guarded(ufunc: np.ufunc, operator: str, real: str, signed: bool = False) -> UniversalFunction:
    """Division of whole numbers: by zero it gives 0, as NumPy's, where ATen's fails.

    real: the operator of real numbers. signed: a zero has the divisor's sign.
    """

    def divided(x1: Any, x2: Any, /) -> Array:
        first, second = operands(x1, x2)
        dtype = loop_dtypes(ufunc, (kind_of(first), kind_of(second)), 1)[0]
        if dtype.kind not in "iu":
            result = elementwise(ufunc, real, x1, x2)
            return (
                where(equal(result, 0), copysign(0, typed(second, dtype)), result).astype(result.dtype)
                if signed
                else result
            )
        divisor = typed(second, dtype)
        zero = equal(divisor, 0)
        return where(zero, 0, elementwise(ufunc, operator, typed(first, dtype), where(zero, 1, divisor)))

    return UniversalFunction(ufunc, divided)


floor_divide = _guarded(np.floor_divide, "aten.floor_divide", "aten.floor_divide")
remainder = mod = _guarded(np.remainder, "aten.remainder.Tensor", "girih.remainder", signed=True)
fmod = _guarded(np.fmod, "aten.fmod.Tensor", "girih.fmod")


@universal(np.divmod)
def divmod(x1: Any, x2: Any, /) -> tuple[Array, Array]:
    return floor_divide(x1, x2), remainder(x1, x2)


@universal(np.power)
def power(x1: Any, x2: Any, /) -> Array:
    """Small whole exponents of real numbers are attributes: x ** 2 is x * x. With 0.5 it is the square root."""
    if isinstance(x1, Array) and x1.dtype.kind == "f" and isinstance(x2, float) and x2 == 0.5:
        return sqrt(cast(x1, result_type(x1, x2)))
    if type(x2) is int and isinstance(x1, Array) and x1.dtype.kind != "c" and x2 in (1, 2, 3):
        dtype = loop_dtypes(np.power, (x1.dtype, int), 1)[-1]
        x = cast(x1, dtype)
        return x.copy() if x2 == 1 else apply("aten.pow.Tensor_Scalar", x.shape, dtype, self=x, exponent=x2)
    names = ("self", "exponent")
    x1, x2 = operands(x1, x2)
    kind = result_type(x1, x2).kind
    if kind == "i" and not (isinstance(x2, Array) and x2.dtype.kind in "bu"):
        result = elementwise(np.power, "girih.whole_power", x1, x2, names=names)
        known = x2.expression.content if isinstance(x2, Array) else x2
        if result.size and isinstance(known, (int, np.number, np.ndarray)) and np.any(known < 0):
            raise ValueError("Integers to negative integer powers are not allowed.")
        return result
    exact = kind == "c"
    return elementwise(np.power, "girih.power" if exact else "aten.pow.Tensor_Tensor", x1, x2, names=names)


pow = power


negative = UniversalFunction(np.negative, lambda x, /: exactly(np.negative, "aten.neg", x))
positive = mapped(np.positive, "aten.alias")
square = UniversalFunction(np.square, lambda x, /: exactly(np.square, "aten.square", x))


@universal(np.absolute)
def absolute(x: Any, /) -> Array:
    x = as_array(x)
    return x.copy() if x.dtype.kind == "b" else elementwise(np.absolute, "aten.abs", x)


abs = absolute
fabs = mapped(np.fabs, "aten.abs")


@universal(np.reciprocal)
def reciprocal(x: Any, /) -> Array:
    x = as_array(x)
    if x.dtype.kind in "fc":
        return exactly(np.reciprocal, "aten.reciprocal", x)
    x = cast(x, loop_dtypes(np.reciprocal, (x.dtype,), 1)[0])
    with np.errstate(divide="ignore"):
        nothing = np.reciprocal(np.zeros(1, x.dtype))[0]  # C leaves it undefined: what this host's NumPy says
    result = where(x == 0, nothing, floor_divide(1, x))
    return result if x.dtype.kind == "u" else where(x < -1, 0, result)  # towards zero, as in C


@universal(np.sign)
def sign(x: Any, /) -> Array:
    x = as_array(x)
    result = exactly(np.sign, "aten.sgn", x)
    return where(isnan(x), x, result) if x.dtype.kind == "f" else result


copysign = mapped(np.copysign, "aten.copysign.Tensor")
nextafter = mapped(np.nextafter, "aten.nextafter")
maximum = mapped(np.maximum, "aten.maximum")
minimum = mapped(np.minimum, "aten.minimum")
fmax = mapped(np.fmax, "aten.fmax")
fmin = mapped(np.fmin, "aten.fmin")
gcd = mapped(np.gcd, "aten.gcd")
lcm = mapped(np.lcm, "aten.lcm")


def clip(
    a: Any, min: Any = None, max: Any = None, out: Any = None, *, a_min: Any = None, a_max: Any = None, **options: Any
) -> Any:
    low, high = a_min if min is None else min, a_max if max is None else max
    low, high = None if outside(a, low) < 0 else low, None if outside(a, high) > 0 else high  # which bind nothing
    result = as_array(a).copy() if low is None else maximum(a, low, **options)
    return written(result if high is None else minimum(result, high, **options), out)


# ------------------------------------------------------------------------------------------- rounding


def _rounded(ufunc: np.ufunc, operator: str) -> UniversalFunction:
    """Whole numbers stay what they are."""

    def rounded(x: Any, /) -> Array:
        x = as_array(x)
        return x.copy() if x.dtype.kind in "iub" else elementwise(ufunc, operator, x)

    return UniversalFunction(ufunc, rounded)


floor = _rounded(np.floor, "aten.floor")
ceil = _rounded(np.ceil, "aten.ceil")
trunc = fix = _rounded(np.trunc, "girih.trunc")


@universal(np.rint)
def rint(x: Any, /) -> Array:
    x = as_array(x)
    return _parts(rint, x) if x.dtype.kind == "c" else elementwise(np.rint, "aten.round", x)


def _parts(function: Any, x: Array) -> Array:
    """Apply a function to the real and to the imaginary part, each by itself."""
    return apply("aten.complex", x.shape, x.dtype, real=function(real(x)), imag=function(imag(x)))


def round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    a = as_array(a)
    if a.dtype.kind in "iu" and decimals >= 0:
        return written(a.copy(), out)
    if decimals == 0:
        return rint(a, out=out)
    scale = 10.0 ** (decimals if decimals > 0 else -decimals)
    return written(rint(a * scale) / scale if decimals > 0 else (rint(a / scale) * scale).astype(a.dtype), out)


around = round

# ------------------------------------------------------------------------------------------- exponentials, logarithms

exp = mapped(np.exp, "girih.exp")
exp2 = mapped(np.exp2, "aten.exp2")
expm1 = mapped(np.expm1, "girih.expm1")
log = mapped(np.log, "girih.log")
log2 = mapped(np.log2, "girih.log2")
log10 = mapped(np.log10, "girih.log10")
log1p = mapped(np.log1p, "girih.log1p")
logaddexp = mapped(np.logaddexp, "aten.logaddexp")
logaddexp2 = mapped(np.logaddexp2, "aten.logaddexp2")
sqrt = mapped(np.sqrt, "girih.sqrt")
hypot = mapped(np.hypot, "aten.hypot")


# ------------------------------------------------------------------------------------------- trigonometry

sin = mapped(np.sin, "aten.sin")
cos = mapped(np.cos, "aten.cos")
tan = mapped(np.tan, "girih.tan")
arcsin = asin = mapped(np.arcsin, "girih.asin")
arccos = acos = mapped(np.arccos, "girih.acos")
arctan = atan = mapped(np.arctan, "girih.atan")
arctan2 = atan2 = mapped(np.arctan2, "aten.atan2")
sinh = mapped(np.sinh, "girih.sinh")
cosh = mapped(np.cosh, "girih.cosh")
tanh = mapped(np.tanh, "girih.tanh")
arcsinh = asinh = mapped(np.arcsinh, "girih.asinh")
arccosh = acosh = mapped(np.arccosh, "girih.acosh")
arctanh = atanh = mapped(np.arctanh, "girih.atanh")
degrees = UniversalFunction(np.degrees, lambda x, /: multiply(_floating(x), 180 / np.pi))
radians = UniversalFunction(np.radians, lambda x, /: multiply(_floating(x), np.pi / 180))
rad2deg = UniversalFunction(np.rad2deg, degrees.function)
deg2rad = UniversalFunction(np.deg2rad, radians.function)


def _floating(x: Any) -> Array:
    x = as_array(x)
    return cast(x, loop_dtypes(np.degrees, (x.dtype,), 1)[0])


# ------------------------------------------------------------------------------------------- tests


@universal(np.signbit)
def signbit(x: Any, /) -> Array:
    x = as_array(x)
    if x.dtype.kind == "c":
        loop_dtypes(np.signbit, (x.dtype,), 1)  # raises NumPy's error
    return elementwise(np.signbit, "girih.signbit", x) if x.dtype.kind == "f" else less(x, 0)


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
        return places_of(as_array(condition))
    if x is None or y is None:
        raise ValueError("either both or neither of x and y should be given")
    return choice(condition, x, y)


def result_type(*items: Any) -> np.dtype:
    """NumPy's promotion; Python numbers are weak."""
    return np.result_type(*(item.dtype if isinstance(item, Array) else item for item in items))


def nan_to_num(x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Array:
    """NumPy's; both parts of complex numbers are replaced. copy=False: in place, if x is an array of ours."""
    array = as_array(x)
    result = _numbers(array, nan, posinf, neginf)
    if copy or not isinstance(x, Array):
        return result.copy() if result is array else result
    if result is not array:
        x[...] = result
    return x


def _numbers(x: Array, nan: float, posinf: Any, neginf: Any) -> Array:
    if x.dtype.kind == "c":
        parts = {name: _numbers(part, nan, posinf, neginf) for name, part in (("real", x.real), ("imag", x.imag))}
        return apply("aten.complex", x.shape, x.dtype, **parts)
    if x.dtype.kind != "f":
        return x
    limits = np.finfo(x.dtype)
    high, low = limits.max if posinf is None else posinf, limits.min if neginf is None else neginf
    finite = where(equal(x, np.inf), high, where(equal(x, -np.inf), low, x))
    return where(isnan(x), nan, finite).astype(x.dtype)


def real(x: Any, /) -> Array:
    return as_array(x).real


def imag(x: Any, /) -> Array:
    return as_array(x).imag


@universal(np.conjugate)
def conjugate(x: Any, /) -> Array:
    x = as_array(x)
    if x.dtype.kind == "c":
        return apply("aten.conj_physical", x.shape, name_of(x.dtype), self=x)
    return cast(x, np.int8) if x.dtype.kind == "b" else x.copy()


conj = conjugate


# ------------------------------------------------------------------------------------------- by NumPy, on tiles


@dataclass(frozen=True)
class OfTiles:
    """One result of NumPy's function, as a function of tiles."""

    ufunc: np.ufunc
    position: int

    def __call__(self, *tiles: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            results = self.ufunc(*tiles)
        return results[self.position] if self.ufunc.nout > 1 else results  # type: ignore[no-any-return]


def by_numpy(ufunc: np.ufunc) -> UniversalFunction:
    """NumPy's function, called on tiles in the dtypes of its own loops: element by element, and divided, as others."""

    def called(*items: Any) -> Any:
        inputs = operands(*items)
        kinds = loop_dtypes(ufunc, tuple(map(kind_of, inputs)), ufunc.nout)
        tensors = tuple(typed(item, kind) for item, kind in zip(inputs, kinds, strict=False))
        shape = broadcast_shapes(*(x.shape for x in tensors))
        results = []
        for position, kind in enumerate(kinds[ufunc.nin :]):
            text = functions.text_of(OfTiles(ufunc, position))
            results.append(apply("girih.map", shape, kind, tensors=tensors, function=text, kind=name_of(kind)))
        return tuple(results) if ufunc.nout > 1 else results[0]

    return UniversalFunction(ufunc, called)


bitwise_count = by_numpy(np.bitwise_count)
cbrt = by_numpy(np.cbrt)
float_power = by_numpy(np.float_power)
frexp = by_numpy(np.frexp)
heaviside = by_numpy(np.heaviside)
ldexp = by_numpy(np.ldexp)
modf = by_numpy(np.modf)
spacing = by_numpy(np.spacing)


def angle(z: Any, deg: bool = False) -> Array:
    x = as_array(z)
    result = arctan2(x.imag, x.real) if x.dtype.kind == "c" else arctan2(0, x)
    return result * (180 / np.pi) if deg else result


def isposinf(x: Any, /, out: Any = None) -> Any:
    return _infinite(x, np.inf, out)


def isneginf(x: Any, /, out: Any = None) -> Any:
    return _infinite(x, -np.inf, out)


def _infinite(x: Any, which: float, out: Any) -> Any:
    x = as_array(x)
    if x.dtype.kind == "c":
        raise TypeError(f"This operation is not supported for {x.dtype} values because it would be ambiguous.")
    return written(equal(x, which), out)


def iscomplex(x: Any) -> Array:
    return not_equal(imag(x), 0)


def isreal(x: Any) -> Array:
    return equal(imag(x), 0)


def real_if_close(a: Any, tol: float = 100) -> Array:
    """Whether all imaginary parts are small is computed now."""
    x = as_array(a)
    if x.dtype.kind != "c":
        return x
    limit = tol * float(np.finfo(x.dtype).eps) if tol > 1 else tol
    return real(x) if bool(less(absolute(imag(x)), limit).all()) else x


def copy(a: Any, order: str = "K", subok: bool = False) -> Array:
    x = as_array(a).as_written()
    return x.copy() if order == "C" else copied(x)
