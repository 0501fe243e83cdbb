"""Functions of elements at zeros of both signs, infinities, NaN, very small and very large numbers are NumPy's.

Where the two still differ, it is listed by name, with the reason.
"""

from __future__ import annotations

import numpy as np
import pytest

import girih.array as gnp

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

NUMBERS = [0.0, np.inf, np.nan, 1.0, 0.5, 2.0, 1e-30, 1e30, 1e-160, 1e160, 1e300, 1.7e308]
VALUES = [sign * number for number in NUMBERS for sign in (1, -1)]
UNARY = [
    "absolute", "angle", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "conjugate", "cos", "cosh",
    "exp", "exp2", "expm1", "imag", "isfinite", "isinf", "isnan", "log", "log10", "log1p", "log2", "negative",
    "positive", "real", "reciprocal", "rint", "sign", "sin", "sinc", "sinh", "spacing", "sqrt", "square", "tan",
    "tanh", "cbrt", "ceil", "deg2rad", "fabs", "floor", "rad2deg", "signbit", "trunc",
]  # fmt: skip
BINARY = [
    "add", "arctan2", "copysign", "divide", "equal", "float_power", "floor_divide", "fmax", "fmin", "fmod",
    "heaviside", "hypot", "less", "logaddexp", "maximum", "minimum", "nextafter", "not_equal", "power", "remainder",
    "subtract",
]  # fmt: skip
ONLY_REAL = ["arctan2", "copysign", "floor_divide", "fmod", "heaviside", "hypot", "logaddexp", "nextafter", "remainder"]
EXPONENTS = [2, 3, -1, 0.5, 0, 1j, -2, 1, 2.5]
OPEN = ("divide", "fmax", "fmin", "sinc")
"""The sign of a zero is open, and what remains of a sum that cancels: a part of a complex quotient (of sinc, too) is
such a sum, which depends on whether a processor multiplies and adds in one step; fmax and fmin of 0 and -0 give
either, NumPy's by the processor."""


def numbers(kind: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        real = np.array(VALUES).astype("float32" if kind in ("float32", "complex64") else "float64")
    if not kind.startswith("complex"):
        return real
    made = np.empty((len(real), len(real)), kind)
    made.real, made.imag = real[:, None], real[None, :]
    return made.ravel()


def differing(expected: np.ndarray, got: np.ndarray, zeros: bool = True) -> np.ndarray:
    """Where a part is another special value, or further away than rounding explains. zeros: their signs count."""
    assert got.dtype == expected.dtype
    if expected.dtype.kind not in "fc":
        return got != expected
    limit = 1e-12 if expected.dtype in (np.float64, np.complex128) else 1e-5
    differs = np.zeros(expected.shape, bool)
    for part in ("real", "imag"):
        one, other = np.atleast_1d(getattr(expected, part)), np.atleast_1d(getattr(got, part))
        with np.errstate(all="ignore"):
            size = abs(one if zeros else expected)
            near = np.isfinite(one) & np.isfinite(other) & (abs(one - other) <= limit * size)
            equal = (one == other) & ((np.signbit(one) == np.signbit(other)) | (one != 0) | (not zeros))
        near &= (one != 0) | (not zeros)
        differs |= ~(near | equal | (np.isnan(one) & np.isnan(other)))
    return differs


@pytest.fixture(scope="module")
def one():
    with gnp.cluster(workers=1, backend="threads", timeout=60.0) as made:
        yield made


@pytest.mark.parametrize("kind", ["complex128", "complex64", "float64", "float32"])
def test_functions_of_one_number(one, kind):
    x, wrong = numbers(kind), {}
    for name in UNARY:
        try:
            expected = getattr(np, name)(x)
        except TypeError:
            continue  # of real numbers alone
        bad = differing(expected, np.asarray(getattr(gnp, name)(gnp.array(x))), name not in OPEN)
        if bad.any():
            wrong[name] = x[bad][:5]
    assert not wrong


@pytest.mark.parametrize("kind", ["complex128", "complex64", "float64", "float32"])
def test_functions_of_two_numbers(one, kind):
    values, wrong = numbers(kind), {}
    x, y = (item.ravel() for item in np.meshgrid(values, values[:: 7 if kind.startswith("complex") else 1]))
    for name in BINARY:
        if kind.startswith("complex") and name in ONLY_REAL:
            continue
        expected = getattr(np, name)(x, y)
        got = np.asarray(getattr(gnp, name)(gnp.array(x), gnp.array(y)))
        bad = differing(expected, got, name not in OPEN)
        if bad.any():
            wrong[name] = list(zip(x[bad][:5], y[bad][:5], expected[bad][:5], got[bad][:5], strict=True))
    assert not wrong


@pytest.mark.parametrize("kind", ["complex128", "complex64", "float64", "float32"])
def test_powers_with_numbers(one, kind):
    x, wrong = numbers(kind), {}
    for exponent in EXPONENTS:
        for write in (lambda x, exponent: x**exponent, np.power):
            bad = differing(write(x, exponent), np.asarray(write(gnp.array(x), exponent)))
            if bad.any():
                wrong[exponent] = x[bad][:5]
    assert not wrong


# ------------------------------------------------------------------------------------------- square roots

ROOTS = {
    "sqrt": lambda space, x: space.sqrt(x),
    "in a block of several functions": lambda space, x: space.sqrt(x * 2) + 1,
    "NumPy's function": lambda space, x: np.sqrt(x),
    "a power": lambda space, x: x**0.5,
    "NumPy's power": lambda space, x: space.power(x, 0.5),
    "into an array": lambda space, x: space.sqrt(x, out=x * 1),
    "of squares": lambda space, x: space.sqrt(space.square(x[:100])),
}


@pytest.mark.parametrize("what", ROOTS)
@pytest.mark.parametrize("kind", ["float64", "float32"])
def test_square_roots_are_correctly_rounded(one, kind, what):
    """PyTorch's are one unit off for one number in a hundred, on processors where MKL takes them."""
    draw = np.random.default_rng(0)
    x = (draw.random(100_003) * 10 ** draw.uniform(-15, 15, 100_003)).astype(kind)
    np.testing.assert_array_equal(np.asarray(ROOTS[what](gnp, gnp.array(x))), ROOTS[what](np, x))
