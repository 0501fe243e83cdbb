"""Universal functions of few users: parts of numbers, bits, and tests of kinds."""

from __future__ import annotations

from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import as_array, cast
from girih.array.core.dtypes import loop_dtypes
from girih.array.core.universal import universal, written
from girih.array.core.views import copied
from girih.array.functions.elementwise import logic
from girih.array.functions.elementwise import ufuncs as e
from girih.array.functions.reductions import reduce as reductions
from girih.array.functions.shapes.manipulation import moveaxis, pad


@universal(np.modf)
def modf(x: Any, /) -> tuple[Array, Array]:
    x = as_array(x)
    x = cast(x, loop_dtypes(np.modf, (x.dtype,), 2)[0])
    whole = e.trunc(x)
    return e.copysign(e.where(logic.isinf(x), x.dtype.type(0), x - whole), x), whole


@universal(np.frexp)
def frexp(x: Any, /) -> tuple[Array, Array]:
    """x = mantissa · 2 ** exponent, the mantissa in [1/2, 1)."""
    x = as_array(x)
    x = cast(x, loop_dtypes(np.frexp, (x.dtype,), 2)[0])
    odd = logic.logical_or(x == 0, ~logic.isfinite(x))
    size = cast(e.absolute(x), np.float64)
    small = size < 2.0**-1000
    size = e.where(odd, 1.0, e.where(small, size * 2.0**60, size))
    power = e.floor(e.log2(size)) + 1
    power = power + cast(size >= e.exp2(power), np.float64) - cast(size < e.exp2(power - 1), np.float64)
    mantissa = cast(e.copysign(size / e.exp2(power), x), x.dtype)
    power = e.where(odd, 0, power - e.where(small, 60, 0))
    return e.where(odd, x, mantissa), cast(power, np.int32)


@universal(np.ldexp)
def ldexp(x1: Any, x2: Any, /) -> Array:
    """x1 · 2 ** x2, in two steps, so that neither factor overflows."""
    first, power = as_array(x1), as_array(x2)
    kind = loop_dtypes(np.ldexp, (first.dtype, power.dtype), 1)[-1]
    limits = np.finfo(kind)
    power = e.clip(cast(power, np.float64), 2 * limits.minexp, 2 * limits.maxexp)
    half = e.trunc(power / 2)
    return cast(cast(first, np.float64) * e.exp2(half) * e.exp2(power - half), kind)


@universal(np.spacing)
def spacing(x: Any, /) -> Array:
    x = as_array(x)
    x = cast(x, loop_dtypes(np.spacing, (x.dtype,), 1)[0])
    return e.nextafter(x, e.where(x < 0, -np.inf, np.inf).astype(x.dtype)) - x


@universal(np.bitwise_count)
def bitwise_count(x: Any, /) -> Array:
    """How many bits of the absolute value are set."""
    x = as_array(x)
    if x.dtype.kind not in "iub":
        loop_dtypes(np.bitwise_count, (x.dtype,), 1)
    bits = cast(e.absolute(x) if x.dtype.kind == "i" else x, np.uint64)
    for shift, mask in ((1, 0x5555555555555555), (2, 0x3333333333333333), (4, 0x0F0F0F0F0F0F0F0F)):
        bits = (bits & mask) + ((bits >> shift) & mask)
    for shift in (8, 16, 32):
        bits = bits + (bits >> shift)
    return cast(bits & 0x7F, np.uint8)


def packbits(a: Any, /, axis: int | None = None, bitorder: str = "big") -> Array:
    """Eight truth values in a byte; what is missing at the end is 0."""
    x = as_array(a)
    if x.dtype.kind not in "iub":
        raise TypeError("Expected an input array of integer or boolean data type")
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    x = moveaxis(x != 0, axis, -1)
    x = pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % 8)])
    bytes_ = cast(x.reshape((*x.shape[:-1], x.shape[-1] // 8, 8)), np.uint8) << _bits(bitorder)
    return moveaxis(reductions.sum(bytes_, -1, dtype=np.uint8), -1, axis)


def unpackbits(a: Any, /, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Array:
    """count: how many bits along the axis; a negative one leaves out so many at the end."""
    x = as_array(a)
    if x.dtype != np.uint8:
        raise TypeError("Expected an input array of unsigned byte data type")
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    x = moveaxis(x, axis, -1)
    bits = ((x[..., None] >> _bits(bitorder)) & 1).reshape((*x.shape[:-1], 8 * x.shape[-1]))
    if count is not None and count > bits.shape[-1]:
        bits = pad(bits, [(0, 0)] * (x.ndim - 1) + [(0, count - bits.shape[-1])])
    return moveaxis(bits[..., :count], -1, axis)


def _bits(order: str) -> Array:
    if order not in ("big", "little"):
        raise ValueError("'order' must be either 'little' or 'big'")
    return as_array(np.arange(8, dtype=np.uint8)[:: -1 if order == "big" else 1].copy())


def angle(z: Any, deg: bool = False) -> Array:
    x = as_array(z)
    made = e.arctan2(x.imag, x.real) if x.dtype.kind == "c" else e.arctan2(0, x)
    return made * (180 / np.pi) if deg else made


def isposinf(x: Any, /, out: Any = None) -> Any:
    return written(logic.logical_and(logic.isinf(_ordered(x)), ~e.signbit(x)), out)


def isneginf(x: Any, /, out: Any = None) -> Any:
    return written(logic.logical_and(logic.isinf(_ordered(x)), e.signbit(x)), out)


def _ordered(x: Any) -> Array:
    x = as_array(x)
    if x.dtype.kind == "c":
        raise TypeError(f"This operation is not supported for {x.dtype} values because it would be ambiguous.")
    return x


def iscomplex(x: Any) -> Array:
    return logic.not_equal(e.imag(x), 0)


def isreal(x: Any) -> Array:
    return logic.equal(e.imag(x), 0)


def real_if_close(a: Any, tol: float = 100) -> Array:
    """Whether all imaginary parts are small is computed now."""
    x = as_array(a)
    if x.dtype.kind != "c":
        return x
    limit = tol * float(np.finfo(x.dtype).eps) if tol > 1 else tol
    return e.real(x) if bool(logic.less(e.absolute(e.imag(x)), limit).all()) else x


def copy(a: Any, order: str = "K", subok: bool = False) -> Array:
    x = as_array(a).as_written()
    return x.copy() if order == "C" else copied(x)
