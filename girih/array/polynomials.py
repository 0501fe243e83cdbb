"""Polynomials by their coefficients, the highest power first, as NumPy's older functions have them."""

from __future__ import annotations

from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import as_array, cast
from girih.array.functions.elementwise import ufuncs as e
from girih.array.functions.elementwise.numerics import convolve
from girih.array.functions.reductions.reduce import sum
from girih.array.functions.shapes import creation, manipulation
from girih.array.linalg import inv, lstsq


def polyval(p: Any, x: Any) -> Array:
    p, x = as_array(p), as_array(x)
    made: Any = creation.zeros_like(x)
    for number in range(p.shape[0]):
        made = made * x + p[number]
    return as_array(made)


def _aligned(a1: Any, a2: Any) -> tuple[Array, Array]:
    first, second = (manipulation.atleast_1d(as_array(item)) for item in (a1, a2))
    size = max(first.shape[0], second.shape[0])
    return tuple(manipulation.pad(item, (size - item.shape[0], 0)) for item in (first, second))  # type: ignore[return-value]


def polyadd(a1: Any, a2: Any) -> Array:
    first, second = _aligned(a1, a2)
    return first + second


def polysub(a1: Any, a2: Any) -> Array:
    first, second = _aligned(a1, a2)
    return first - second


def polymul(a1: Any, a2: Any) -> Array:
    return convolve(manipulation.atleast_1d(as_array(a1)), manipulation.atleast_1d(as_array(a2)))


def polyder(p: Any, m: int = 1) -> Array:
    if m < 0:
        raise ValueError("Order of derivative must be positive (see polyint)")
    x = as_array(p)
    for _ in range(m):
        x = x[:-1] * np.arange(x.shape[0] - 1, 0, -1)
    return x


def polyint(p: Any, m: int = 1, k: Any = None) -> Array:
    if m < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    constants = np.zeros(m) if k is None else np.broadcast_to(np.asarray(k, float), (m,))
    x = as_array(p)
    for constant in constants.tolist():
        x = manipulation.concatenate([x / np.arange(x.shape[0], 0, -1), as_array([constant])])
    return x


def poly(seq_of_zeros: Any) -> Array:
    """The polynomial with these roots, whose highest coefficient is 1."""
    roots_ = manipulation.atleast_1d(as_array(seq_of_zeros))
    if roots_.ndim != 1:
        raise ValueError("girih.array.poly takes roots, not a matrix: give it its eigenvalues")
    made = creation.ones(1, np.result_type(roots_.dtype, np.float64))
    for number in range(roots_.shape[0]):
        made = convolve(made, manipulation.stack([as_array(made.dtype.type(1)), -cast(roots_[number], made.dtype)]))
    return made


def polydiv(u: Any, v: Any) -> tuple[Array, Array]:
    """Quotient and remainder. Coefficients are few: the driver computes them."""
    quotient, remainder = np.polydiv(as_array(u).compute(), as_array(v).compute())
    return as_array(quotient), as_array(remainder)


class poly1d(np.poly1d):  # noqa: N801 - NumPy's name
    """NumPy's, which holds its few coefficients in memory; called with an array of ours it gives one of ours."""

    def __init__(self, c_or_r: Any, r: bool = False, variable: str | None = None) -> None:
        super().__init__(c_or_r.compute() if isinstance(c_or_r, Array) else c_or_r, r, variable)

    def __call__(self, val: Any) -> Any:
        return polyval(self.coeffs, val) if isinstance(val, Array) else super().__call__(val)


def roots(p: Any) -> Array:
    """Coefficients are few: the driver computes them, and the roots."""
    return as_array(np.roots(as_array(p).compute()))


def polyfit(
    x: Any, y: Any, deg: int, rcond: float | None = None, full: bool = False, w: Any = None, cov: Any = False
) -> Any:
    """The coefficients of least squares, by the scaled Vandermonde matrix.

    full: also residuals, rank, singular values and rcond. cov: also the covariances; "unscaled" as if the weights were
    right.

    Raises:
        TypeError: shapes that do not fit. ValueError: too few points for covariances.
    """
    x, y = cast(as_array(x), np.float64), as_array(y)
    if x.ndim != 1 or y.ndim not in (1, 2) or x.shape[0] != y.shape[0]:
        raise TypeError(f"expected x and y to have same length, x as a vector; got shapes {x.shape} and {y.shape}")
    powers = creation.vander(x, deg + 1)
    values = cast(y, np.result_type(y.dtype, np.float64))
    if w is not None:
        weights = cast(as_array(w), np.float64)
        powers = powers * weights[:, None]
        values = values * (weights if values.ndim == 1 else weights[:, None])
    scale = e.sqrt(sum(powers * powers, 0))
    powers = powers / scale
    rcond = x.shape[0] * np.finfo(np.float64).eps if rcond is None else rcond
    found, residuals, rank, singular = lstsq(powers, values, rcond)
    found = found / (scale if found.ndim == 1 else scale[:, None])
    if full:
        return found, residuals, rank, singular, rcond
    if not cov:
        return found
    spread = inv(powers.T @ powers) / scale / scale[:, None]
    if cov != "unscaled":
        if x.shape[0] <= deg + 1:
            raise ValueError("the number of data points must exceed order to scale the covariance matrix")
        spread = (spread if y.ndim == 1 else spread[:, :, None]) * (residuals / (x.shape[0] - deg - 1))
    return found, spread if y.ndim == spread.ndim - 1 else spread[:, :, None]
