"""What NumPy refuses is refused at the call, with its words; and what it signals by flags is not promised."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from borders import of_large

import girih.array as gnp

POWERS = {
    "a number": lambda m: m.asarray([1, 2]) ** -1,
    "NumPy's number": lambda m: m.asarray([1, 2]) ** np.int64(-1),
    "of truths": lambda m: m.asarray([True, False]) ** -1,
    "a list": lambda m: m.power(m.asarray([1, 2]), [1, -1]),
    "NumPy's array": lambda m: m.power(m.asarray([1, 2], dtype=np.uint8), np.array([1, -1])),
    "an array": lambda m: m.asarray([1, 2]) ** m.asarray([1, -1]),
    "an array without dimensions": lambda m: m.power(m.asarray([1, 2]), m.asarray(-1)),
    "of a number": lambda m: 2 ** m.asarray([1, -1]),
    "in place": lambda m: m.asarray([1, 2]).__ipow__(-1),
    "unsigned": lambda m: m.asarray([1, 2], dtype=np.uint8) ** -1,
}
REFUSED = POWERS | {
    "digitize complex numbers": lambda m: m.digitize(m.asarray([1 + 2j]), m.asarray([0.0, 1])),
    "digitize no complex numbers": lambda m: m.digitize(m.asarray([], dtype=complex), m.asarray([])),
    "digitize by complex bins": lambda m: m.digitize(m.asarray([1.0]), m.asarray([0, 1 + 1j])),
    "interp of complex numbers": lambda m: m.interp(m.asarray([1j]), m.asarray([0.0, 1]), m.asarray([0.0, 1])),
    "interp of complex points": lambda m: m.interp(m.asarray([1.0]), m.asarray([0, 1j]), m.asarray([0.0, 1])),
    "tril of a text": lambda m: m.tril(m.ones((2, 2)), "a"),
    "fill by infinity": lambda m: m.asarray([1, 2]).fill(np.float64(np.inf)),
    "set to infinity": lambda m: m.asarray([1, 2]).__setitem__(..., np.float64(-np.inf)),
    "fill by a number that is too large": lambda m: m.asarray([1, 2], dtype=np.uint8).fill(300),
    "fill by a list": lambda m: m.asarray([1, 2]).fill([1]),
    "tile by a fraction": lambda m: m.tile(m.ones(2), 1.5),
}


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with gnp.cluster(workers=1, backend="threads", timeout=60.0):
        yield


@pytest.mark.parametrize("what", REFUSED)
def test_refused_at_the_call_as_by_numpy(what: str) -> None:
    with pytest.raises(Exception) as expected:  # noqa: PT011
        REFUSED[what](np)
    with pytest.raises(type(expected.value)) as got:
        REFUSED[what](gnp)
    assert str(got.value) == str(expected.value)


@of_large
def test_an_exponent_that_is_computed_is_refused_with_its_value() -> None:
    power = gnp.asarray([1, 2, 3]) ** (gnp.arange(3) - 1)
    with pytest.raises(ValueError, match=r"Integers to negative integer powers are not allowed\."):
        power.compute()


def test_whole_powers_that_numpy_computes() -> None:
    nothing, x = gnp.asarray([], dtype=int), gnp.asarray([1, 2, 3])
    assert (nothing**-1).compute().tolist() == []
    assert (x ** gnp.asarray([0, 1, 5])).compute().tolist() == [1, 2, 243]
    assert gnp.power(x, [2, 0, 1]).compute().tolist() == [1, 1, 3]
    assert (x ** np.int64(4)).compute().dtype == np.int64
    assert (gnp.asarray([True, False]) ** 2).compute().dtype == np.int8
    assert (x**-1.0).compute().tolist() == [1.0, 0.5, 1 / 3]


@pytest.mark.parametrize("k", [0.5, 1.5, -0.5, -1.5, 2.0, np.float32(0.5), np.int64(1), True])
def test_fractions_of_diagonals(k: Any) -> None:
    for function in ("tril", "triu"):
        matrix = np.arange(9.0).reshape(3, 3)
        expected, got = getattr(np, function)(matrix, k), getattr(gnp, function)(gnp.asarray(matrix), k)
        np.testing.assert_array_equal(got.compute(), expected)
        ours = gnp.mask_indices(3, getattr(gnp, function), k=k)
        np.testing.assert_array_equal(ours, np.mask_indices(3, getattr(np, function), k=k))
    np.testing.assert_array_equal(gnp.tri(3, 4, k).compute(), np.tri(3, 4, k))


COMPUTES = {
    "divide": lambda x, i: x / 0,
    "overflow": lambda x, i: x * 1e308,
    "sum": lambda x, i: x.sum(),
    "matrix product": lambda x, i: x @ x,
    "whole numbers": lambda x, i: i // 0,
    "narrower": lambda x, i: x.astype(np.float32),
    "by NumPy's name": lambda x, i: np.add(x, 1),
}


@of_large
@pytest.mark.parametrize("what", COMPUTES)
@pytest.mark.parametrize("how", ["raise", "print"])
def test_a_state_of_errors_that_nobody_would_keep_is_refused(what: str, how: Any) -> None:
    x, i = gnp.asarray(np.ones((2, 2))), gnp.asarray([1, 2])
    with np.errstate(over=how), pytest.raises(NotImplementedError, match=rf"np\.errstate\(over='{how}'\).*compute"):
        COMPUTES[what](x, i)


@of_large
def test_what_computes_no_numbers_is_not_refused() -> None:
    x, y = gnp.asarray(np.ones((2, 2))), gnp.asarray(np.eye(2)) / 0
    with np.errstate(all="raise"):
        moved = gnp.concatenate([x.T[0], x.reshape(4)[1:3], gnp.where(x > 0, x, 0)[0], gnp.zeros(2)])
        assert moved.compute().tolist() == [1.0] * 6 + [0.0] * 2
        assert np.isinf(y.compute()[0, 0])  # it was written before


@of_large
def test_no_warnings_where_numpy_warns() -> None:
    with warnings.catch_warnings(), np.errstate(all="warn"):
        warnings.simplefilter("error")
        assert np.isinf((gnp.asarray([1.0]) / 0).compute()[0])
