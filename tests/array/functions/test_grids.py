"""r_, c_, mgrid and ogrid, `flat`, `in` and copies against NumPy's; what an array refuses to be."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from array_cases import same

import girih.array as gnp

CASES = [
    "np.r_[w, 1, 2:4]", "np.r_[1, 2.5]", "np.r_[0:1:5j]", "np.r_[u, u[:2]]", "np.r_['0,2', w, w]", "np.r_['-1', a, a]",
    "np.r_['1,2,0', w, w]", "np.r_['0,3,1', a, a]", "np.r_[i[0], 1.5]", "np.r_[f[0, 0], 1.5]", "np.c_[w, w]",
    "np.c_[a, a[:, 0]]", "np.c_[1:4]", "np.c_[i[:1], 0, 0, i[1:2]]", "np.mgrid[0:3, 1:2:4j]", "np.mgrid[:5]",
    "np.mgrid[0:2, 0:3]", "np.ogrid[0:2, 0:3]", "np.ogrid[:4]", "a.flat[3]", "a.flat[::4]", "a.T.flat[1:]",
]  # fmt: skip


@pytest.mark.parametrize("text", CASES)
def test_as_numpy(text: str) -> None:
    same(text)


def test_they_stay_lazy(two: gnp.Cluster) -> None:
    """Nothing of an array is computed to join it."""
    before = two.evaluations
    x = gnp.zeros((4, 5)) + 1
    made = gnp.c_[x, gnp.r_[x[0], 1:4][:4]]
    assert two.evaluations == before
    assert made.compute().sum() == 4 * 5 + 4


@pytest.mark.parametrize("key", [slice(None, None, 4), slice(3, 5), [1, 1, 7], 5, slice(None)])
@pytest.mark.parametrize("value", [7.0, [1.0, 2.0]], ids=str)
def test_writing_to_flat(key: object, value: object) -> None:
    if isinstance(key, int) and isinstance(value, list):
        value = value[0]
    expected = np.arange(12.0).reshape(3, 4)
    got = gnp.array(expected)
    row, before = got[1], got + 0
    expected.flat[key], got.flat[key] = value, value  # type: ignore[index]
    np.testing.assert_array_equal(got.compute(), expected)
    np.testing.assert_array_equal(row.compute(), expected[1])  # a view sees it
    np.testing.assert_array_equal(before.compute(), np.arange(12.0).reshape(3, 4))
    got.flat = 3
    assert (len(got.flat), float(got.sum())) == (12, 36.0)


def test_in_and_copies() -> None:
    x = gnp.array([[1.0, 2.0], [3.0, 4.0]])
    assert 3.0 in x
    assert 5.0 not in x
    for made in (copy.copy(x), copy.deepcopy(x)):
        made[0] = 0
        assert float(made.sum()) == 7.0
    assert float(x.sum()) == 10.0


def test_what_is_refused() -> None:
    x = gnp.array([1.0, 2.0])
    with pytest.raises(AttributeError, match=r"no attribute 'ctypes': x.compute\(\).ctypes is NumPy's"):
        x.ctypes  # noqa: B018
    with pytest.raises(ValueError, match="special directive 'r': expected numbers"):
        gnp.r_["r", x]
    with pytest.raises(TypeError, match=r"expected an array of girih\.array, got int"):
        gnp.explain(3)
