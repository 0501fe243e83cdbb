"""Calls of the standard's element-wise functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from standard_values import (
    ALL,
    BOOL,
    COMPLEX,
    FLOATING,
    INTEGER,
    NUMERIC,
    REAL,
    Arguments,
    arrays,
    broadcast_from,
    call,
    content,
    pairs,
    promotes,
    shapes,
)

Case = Callable[[st.DrawFn], Arguments]
CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Case], Case]:
    def keep(function: Case) -> Case:
        CASES[name] = function
        return function

    return keep


UNARY = {
    NUMERIC: "abs negative positive round sign square isfinite isinf isnan",
    FLOATING + COMPLEX: "acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 reciprocal sin sinh "
    "sqrt tan tanh",
    REAL: "ceil floor trunc",
    COMPLEX: "imag real conj",
    BOOL: "logical_not",
    BOOL + INTEGER: "bitwise_invert",
    FLOATING: "signbit",
}
SMOOTH = frozenset(UNARY[FLOATING + COMPLEX].split())
"""Functions whose values at complex infinities and zeros C libraries disagree about: those are drawn without."""


def unary(name: str, dtypes: tuple[str, ...]) -> None:
    @case(name)
    def drawn(draw: st.DrawFn) -> Arguments:
        x = draw(arrays(dtypes))
        if x.dtype.kind == "c" and name in SMOOTH | {"sign", "abs", "square"}:
            x = content(x.dtype.name, x.shape, draw(st.integers(0, 2**20)), False)
        return call(x)


for kinds, names in UNARY.items():
    for one in names.split():
        unary(one, kinds)

BINARY = {
    NUMERIC: "add subtract multiply",
    FLOATING + COMPLEX: "divide",
    ALL: "equal not_equal",
    REAL: "less less_equal greater greater_equal maximum minimum",
    FLOATING: "atan2 copysign hypot logaddexp nextafter",
    BOOL: "logical_and logical_or logical_xor",
    BOOL + INTEGER: "bitwise_and bitwise_or bitwise_xor",
}


def binary(name: str, dtypes: tuple[str, ...]) -> None:
    @case(name)
    def drawn(draw: st.DrawFn) -> Arguments:
        x, y = draw(pairs(dtypes))
        if name in ("multiply", "divide") and "c" in {np.asarray(x).dtype.kind, np.asarray(y).dtype.kind}:
            x, y = draw(pairs(COMPLEX, special=False))
        if name == "nextafter":  # the standard wants one dtype; numbers have none
            shape = draw(shapes())
            dtype = (draw(st.sampled_from(FLOATING)),)
            x, y = draw(arrays(dtype, shape)), draw(arrays(dtype, broadcast_from(draw, shape)))
        return call(x, y)


for kinds, names in BINARY.items():
    for one in names.split():
        binary(one, kinds)


def divided(name: str) -> None:
    @case(name)
    def drawn(draw: st.DrawFn) -> Arguments:
        """Whole numbers are not divided by 0, and the least one not by -1."""
        x, y = draw(pairs(REAL))
        if np.asarray(y).dtype.kind in "iu":
            y = np.where((y == 0) | (np.asarray(y) == np.asarray(-1).astype(np.asarray(y).dtype)), 3, y).astype(
                np.asarray(y).dtype
            ) if isinstance(y, np.ndarray) else 3  # fmt: skip
        return call(x, y)


divided("floor_divide")
divided("remainder")


@case("pow")
def power(draw: st.DrawFn) -> Arguments:
    x, y = draw(pairs(NUMERIC))
    if "c" in {np.asarray(x).dtype.kind, np.asarray(y).dtype.kind}:
        x, y = draw(pairs(COMPLEX, special=False))
    if isinstance(y, np.ndarray) and y.dtype.kind in "iu":
        y = np.asarray(np.abs(y.astype(np.int64)) % 5, y.dtype)
    if isinstance(x, np.ndarray) and x.dtype.kind in "iu":
        y = abs(int(y)) % 5 if not isinstance(y, np.ndarray) else y
    if x.dtype.kind == "f" and np.any(np.abs(y) == 0.5):
        # Where one exponent is for many bases, NumPy and PyTorch take the root, by which (-0.0)**0.5 is -0.0 and
        # (-inf)**0.5 is NaN; elsewhere they take the power, by which it is +0.0 and inf, as the standard has it.
        x = np.where((x == 0) | (x == -np.inf), np.abs(x), x)
    return call(x, y)


def shift(name: str) -> None:
    @case(name)
    def drawn(draw: st.DrawFn) -> Arguments:
        x, y = draw(pairs(INTEGER))
        if isinstance(y, np.ndarray):
            return call(x, np.asarray(np.abs(y.astype(np.int64)) % 7, y.dtype))
        return call(x, abs(y))


shift("bitwise_left_shift")
shift("bitwise_right_shift")


@case("clip")
def clip(draw: st.DrawFn) -> Arguments:
    x = draw(arrays(REAL, special=False))
    bounds: dict[str, Any] = {}
    for name, add in (("min", 0), ("max", 4)):
        mode = draw(st.integers(0, 2))
        if mode == 1:
            bounds[name] = add
        elif mode == 2:
            bounds[name] = (np.full(broadcast_from(draw, x.shape), add)).astype(x.dtype)
    return call(x, **bounds)


@case("where")
def where(draw: st.DrawFn) -> Arguments:
    x, y = draw(pairs(ALL))
    shape = np.broadcast_shapes(np.shape(x), np.shape(y))
    return call(draw(arrays(BOOL, broadcast_from(draw, shape))), x, y)


@case("result_type")
def result_type(draw: st.DrawFn) -> Arguments:
    x, y = draw(pairs(ALL))
    return call(x, y) if isinstance(y, np.ndarray) or promotes(x.dtype.name, np.asarray(y).dtype.name) else call(x, x)
