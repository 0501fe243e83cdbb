"""NumPy's own functions, and other libraries', on girih arrays beside NumPy's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy import special

import girih.array as gnp

VALUES = np.random.default_rng(0).normal(size=(4, 3))


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with gnp.cluster(workers=2, backend="threads", timeout=60.0):
        yield


def add(x: Any, y: Any) -> Any:
    x += y
    return x


def sums(x: Any, y: Any) -> Any:
    return np.sum(y, axis=0, out=x[0])


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "in place": add,
    "a function": lambda x, y: np.multiply(x, y, out=x),
    "where": lambda x, y: np.add(x, y, out=x, where=y > 0),
    "a row": sums,
    "a method": lambda x, y: np.add.reduce(y, axis=1, out=x[:, 0]),
    "a product": lambda x, y: np.matmul(y, y.T, out=np.ones((4, 4))),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_into_numpys_arrays(name: str) -> None:
    expected, got = np.ones((4, 3)), np.ones((4, 3))
    first, second = WRITES[name](expected, VALUES), WRITES[name](got, gnp.array(VALUES))
    assert isinstance(second, np.ndarray)
    np.testing.assert_allclose(second, first)
    np.testing.assert_allclose(got, expected)


def test_what_does_not_fit_is_refused() -> None:
    whole = np.zeros((4, 3), int)
    with pytest.raises(TypeError, match="same_kind"):
        add(whole, gnp.array(VALUES))
    assert not whole.any()


def test_functions_of_other_libraries_are_called_on_tiles() -> None:
    x = gnp.array(VALUES)
    for function in (special.erf, special.expit, special.digamma):
        made = function(x)
        assert isinstance(made, gnp.Array)
        np.testing.assert_allclose(made.compute(), function(VALUES))
    np.testing.assert_allclose(special.jv(1, x * x[0]).compute(), special.jv(1, VALUES * VALUES[0]))
    assert special.erf(x.astype(np.float32)).dtype == np.float32
    with pytest.raises(TypeError, match="no erf"):
        special.erf(x, out=x)


def test_numbers_are_cut_off() -> None:
    assert math.trunc(gnp.array(-2.7)) == -2
