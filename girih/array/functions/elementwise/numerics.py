"""What is made of several functions: interpolation, integrals, convolutions, products of vectors, choices,
polynomials (NumPy's other functions of these are evaluated whole)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import apply, as_array, axis_of, cast
from girih.array.core.universal import written
from girih.array.functions.elementwise import logic
from girih.array.functions.elementwise import ufuncs as e
from girih.array.functions.products import matmul
from girih.array.functions.reductions import reduce as reductions
from girih.array.functions.reductions import scans
from girih.array.functions.reductions.sorting import searchsorted
from girih.array.functions.shapes import creation, manipulation
from girih.array.functions.shapes.picking import take
from girih.array.functions.whole import plain, whole

SHORT = 3
"""So many elements of a sequence are gone through one by one, in loops over blocks with what comes before and after."""

# ------------------------------------------------------------------------------------------- of a curve's points


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: float | None = None) -> Array:
    """Piecewise linear through points of increasing xp; constant outside, or periodic, which is evaluated whole.

    Raises:
        TypeError: x or xp is complex. ValueError: xp and fp are not of the same length, or empty.
    """
    x, xp, fp = as_array(x), as_array(xp), as_array(fp)
    for item in (x, xp):
        if item.dtype.kind == "c":
            raise TypeError(
                f"Cannot cast array data from {item.dtype!r} to dtype('float64') according to the rule 'safe'"
            )
    x, xp = cast(x, np.float64), cast(xp, np.float64)
    if xp.shape != fp.shape or xp.ndim != 1:
        raise ValueError("fp and xp are not of the same length.")
    if xp.size == 0:
        raise ValueError("array of sample points is empty")
    if period is not None:
        return whole(np.interp)(x, xp, fp, period=period)
    kind = np.dtype(np.complex128 if fp.dtype.kind == "c" else np.float64)
    if xp.size == 1:
        values = manipulation.broadcast_to(cast(fp, kind), x.shape)
    else:
        at = e.clip(searchsorted(xp, x, "right") - 1, 0, xp.shape[0] - 2)
        low, high = take(fp, at), take(fp, at + 1)
        begin, end = take(xp, at), take(xp, at + 1)
        values = cast(low + (high - low) * e.clip((x - begin) / (end - begin), 0, 1), kind)
    values = values if left is None else e.where(x < xp[0], left, values)
    values = values if right is None else e.where(x > xp[-1], right, values)
    return cast(e.where(logic.isnan(x), np.nan, values), kind)


def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Array:
    y = as_array(y)
    before = (slice(None),) * axis_of(axis, y.ndim)
    width: Any = dx
    if x is not None:
        x = as_array(x)
        width = scans.diff(x) if x.ndim == 1 else scans.diff(x, axis=axis)
        if x.ndim == 1:
            width = width.reshape((-1,) + (1,) * (y.ndim - 1 - len(before)))
    return reductions.sum(width * (y[(*before, slice(1, None))] + y[(*before, slice(None, -1))]) / 2.0, axis)


# ------------------------------------------------------------------------------------------- products of sequences


def convolve(a: Any, v: Any, mode: str = "full") -> Array:
    """The convolution of two sequences. NumPy computes long ones, parts of the longer one with all of the other."""
    x, y = as_array(a), as_array(v)
    for item, name in ((x, "a"), (y, "v")):
        if item.ndim != 1:
            raise ValueError("object too deep for desired array" if item.ndim else "object of too small depth")
        if item.size == 0:
            raise ValueError(f"{name} cannot be empty")
    if y.size > x.size:
        x, y = y, x
    n, m = x.size, y.size
    kind = np.result_type(x.dtype, y.dtype)
    x, y = cast(x, kind), cast(y, kind)
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"mode must be one of 'valid', 'same', or 'full' (got {mode!r})")
    if m > SHORT and kind.kind in "iufc" and kind.itemsize > 2:
        before = {"full": m - 1, "same": m - 1 - (m - 1) // 2, "valid": 0}[mode]
        wide = manipulation.pad(x, (before, (m - 1) // 2 if mode == "same" else before))
        return apply("girih.correlate", (wide.size - m + 1,), kind, input=wide, weight=y[::-1])
    wide = manipulation.pad(x, (m - 1, m - 1))
    result: Array | None = None
    for shift in range(m):
        part = wide[m - 1 - shift : 2 * m - 2 - shift + n] * y[shift]
        result = part if result is None else logic.logical_or(result, part) if kind.kind == "b" else result + part
    assert result is not None
    half = (m - 1) // 2
    return result[slice(*{"full": (None,), "valid": (m - 1, n), "same": (half, half + n)}[mode])]


def correlate(a: Any, v: Any, mode: str = "valid") -> Array:
    x, y = as_array(a), as_array(v)
    if mode == "same" and y.size > x.size:  # NumPy turns both round, and the centre with them
        return convolve(x, e.conjugate(y)[::-1], "full")[x.size // 2 : x.size // 2 + y.size]
    return convolve(x, e.conjugate(y)[::-1], mode)


def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Array:
    """The cross product of vectors of three along an axis; vectors of two are evaluated whole."""
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = (manipulation.moveaxis(item, at, -1) for item, at in ((as_array(a), axisa), (as_array(b), axisb)))
    if (x.shape[-1], y.shape[-1]) != (3, 3):
        return whole(np.cross)(a, b, axisa, axisb, axisc)
    (p, q, r), (u, v, w) = ([item[..., number] for number in range(3)] for item in (x, y))
    return manipulation.moveaxis(manipulation.stack([q * w - r * v, r * u - p * w, p * v - q * u], -1), -1, axisc)


# ------------------------------------------------------------------------------------------- choices


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Array:
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if not condlist:
        raise ValueError("select with an empty condition list is not possible")
    result = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        result = e.where(condition, choice, result)
    return as_array(result)


def choose(a: Any, choices: Sequence[Any], out: Any = None, mode: str = "raise") -> Array:
    """Evaluated whole, with NumPy."""
    return written(whole(np.choose)(a, choices, mode=mode), out)


# ------------------------------------------------------------------------------------------- of every element


def sinc(x: Any, /) -> Array:
    x = as_array(x)
    x = x if x.dtype.kind in "fc" else cast(x, np.float64)
    return apply("aten.sinc", x.shape, x.dtype, self=x)


def i0(x: Any, /) -> Array:
    x = as_array(x)
    if x.dtype.kind == "c":
        raise TypeError("i0 not supported for complex values")
    x = x if x.dtype.kind == "f" else cast(x, np.float64)
    return apply("aten.i0", x.shape, x.dtype, self=x)


# ------------------------------------------------------------------------------------------- matrices and vectors


def matvec(x1: Any, x2: Any, /) -> Array:
    return matmul(x1, as_array(x2)[..., None])[..., 0]


def vecmat(x1: Any, x2: Any, /) -> Array:
    return matmul(e.conjugate(x1)[..., None, :], x2)[..., 0, :]


# ------------------------------------------------------------------------------------------- polynomials


def polyval(p: Any, x: Any) -> Any:
    """The values of a polynomial, its coefficients from the highest power on, by Horner's scheme."""
    if isinstance(x, np.poly1d):
        return np.polyval(plain(p), x)
    p, x = as_array(p), as_array(x)
    values: Array = creation.zeros_like(x)
    for number in range(p.shape[0]):
        values = values * x + p[number]
    return values


class poly1d(np.poly1d):  # noqa: N801 - NumPy's name
    """NumPy's, which holds its few coefficients in memory; called with an array of ours it gives one of ours."""

    def __init__(self, c_or_r: Any, r: bool = False, variable: str | None = None) -> None:
        super().__init__(plain(c_or_r), r, variable)
