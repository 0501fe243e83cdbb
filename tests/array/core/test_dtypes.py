"""Universal functions on every dtype are NumPy's: values and dtypes, or NumPy's kind of error."""

from __future__ import annotations

import numpy as np
import pytest
from array_cases import same
from borders import of_large

import girih.array as gnp

KINDS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
         "float16", "float32", "float64", "complex64", "complex128")  # fmt: skip
UNARY = sorted(
    name
    for name in dir(gnp)
    if isinstance(getattr(np, name, None), np.ufunc) and getattr(np, name).nin == 1 and name != "reciprocal"
)


def numbers(kind: str) -> np.ndarray:
    random = np.random.default_rng(0)
    dtype = np.dtype(kind)
    if dtype.kind == "b":
        return random.random(7) > 0.5
    if dtype.kind in "iu":
        return random.integers(-4 if dtype.kind == "i" else 0, 5, 7).astype(dtype)
    made = 2 * random.normal(size=7)
    return (made + 1j * random.normal(size=7) if dtype.kind == "c" else made).astype(dtype)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", UNARY)
def test_a_function_of_one_operand(two, name):
    for kind in KINDS:
        x = numbers(kind)
        try:
            expected = getattr(np, name)(x)
        except TypeError:
            with pytest.raises(TypeError):
                getattr(gnp, name)(gnp.array(x)).compute()
            continue
        got = getattr(gnp, name)(gnp.array(x))
        pairs = zip(expected, got, strict=True) if isinstance(expected, tuple) else [(expected, got)]
        for first, second in pairs:
            assert second.dtype == first.dtype, kind
            tolerance = {"float16": 1e-2, "float32": 1e-5, "complex64": 1e-5}.get(first.dtype.name, 1e-11)
            np.testing.assert_allclose(second.compute(), first, rtol=tolerance, atol=tolerance, err_msg=kind)


@pytest.mark.parametrize(
    "text",
    [
        "np.reciprocal(j - 4 + 9 * (j == 4))",  # below, at and over one: towards zero
        "np.reciprocal(n[:4])",
        *(f"np.reciprocal(np.array([0, 1, 2, 255]).astype({kind!r}))" for kind in ("i1", "i2", "i4", "i8", "u1", "u8")),
        "np.copysign(1, np.remainder(np.array([0.0, -0.0, 4.0, -4.0, 0.0]), np.array([-3.0, 3.0, -2.0, 2.0, np.inf])))",
        "np.remainder(n, -2.0)",
        "np.remainder(n, n)",
        "np.zeros((2, 3))[np.zeros((2, 0), dtype=bool)]",
        "np.eye(3, 4, 2**63)",
        "np.eye(3, 4, -(2**63))",
        "np.tri(3, 4, 2**40)",
        "np.angle(n)",
        "np.angle(-abs(i).astype('int8'))",
        "np.angle(z, deg=True)",
        "n.imag",
        "np.abs(t) ^ t",
        "np.round(t)",
        "np.vecdot(t, t)",
        "np.tril(v)",
        "np.triu(w, 1)",
        "i ** abs(i)",
        "i ** (u[0] + 0)",
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_numpy_makes_of_them(two, text):
    same(text)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda n, x: x ** -x, ValueError),
        (lambda n, x: n.arange(3.0)[x + 5], IndexError),
        (lambda n, x: n.zeros((0, 2))[x * 0], IndexError),
        (lambda n, x: n.take_along_axis(n.arange(3.0), x + 5, 0), IndexError),
        (lambda n, x: n.zeros((0, 2))[n.zeros((0, 3), dtype=bool)], IndexError),
        (lambda n, x: n.zeros((0, 0))[n.zeros((0, 1), dtype=bool)], IndexError),
        (lambda n, x: n.percentile(x + 1j, 30), TypeError),
        (lambda n, x: n.isposinf(x + 1j), TypeError),
        (lambda n, x: n.signbit(x + 1j), TypeError),
        (lambda n, x: n.i0(x + 1j), TypeError),
    ],
)  # fmt: skip
def test_what_numpy_refuses(two, call, kind):
    with pytest.raises(kind):
        call(np, np.array([1, 2]))
    with pytest.raises(kind):
        call(gnp, gnp.array([1, 2])).compute()


@of_large
def test_complex_numbers_have_no_quantiles_of_those_that_are_known(two):
    with pytest.raises(TypeError, match="real numbers"):
        gnp.nanmedian(gnp.array([1j, 2j]))
