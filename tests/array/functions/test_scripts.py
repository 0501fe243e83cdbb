"""What scripts of scientists do with arrays beside calling functions: numbers as keys, sequences, options, in-place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from array_cases import DATA, both, same
from borders import of_large

import girih.array as gnp
from girih.array.core.evaluation import BORDER

SMALL = "np.arange(9, dtype=np.uint8)"
CASES = [
    # whole numbers that a dtype cannot hold
    f"{SMALL} > -1", f"{SMALL} == 300", f"{SMALL} != -1", f"-1 < {SMALL}", f"256 > {SMALL}", f"{SMALL} >= 1000",
    f"{SMALL} <= -7", "i < 2**70", "np.less(np.arange(3, dtype=np.int8), 128)", f"np.where({SMALL} == -1, 0, 1)",
    f"np.clip({SMALL}, -1, 300)", f"np.clip({SMALL}, 2, 300)", f"np.where({SMALL} > 5, {SMALL}, -1)",
    "a == None", "a != None", "i == 'a'", "t ** 2", "t ** 3", "i ** 2",
    # whole numbers stay whole
    "np.linalg.matrix_power(np.arange(9).reshape(3, 3), 3)", "np.linalg.matrix_power(np.eye(2, dtype=int), 0)",
    "np.linalg.matrix_power(spd, -2)",
    # options
    "np.take(a, [40, -41], mode='wrap')", "a.take([1, 9], axis=1, mode='clip')", "a.ravel(order='F')",
    "a.T.ravel('F')", "a.flatten('F')", "a.reshape((5, 7), order='F')", "np.reshape(f, (3, -1), order='F')",
    "a.ravel('K')", "np.hstack([i, t], dtype=float)", "np.vstack([v, v], dtype=np.float32)",
    "np.stack([i, i], dtype=np.int16)", "np.matmul(i.T, i, dtype=float)", "np.clip(a)",
    "np.einsum(a, [0, 1], c, [1, 2], [2, 0])", "np.einsum(a, [0, 1], c, [1, 2])",
    "np.einsum(f, [..., 1], v, [1])",
    # long sequences
    *(f"np.convolve(np.arange(90.0) % 7, np.arange(40) % 5 - 1.5, '{mode}')" for mode in ("full", "same", "valid")),
    *(f"np.correlate(np.arange(40) % 5 * 1j, np.arange(91) % 7 + 2j, '{mode}')" for mode in ("full", "same", "valid")),
    "np.convolve(np.arange(50, dtype=np.float32), np.ones(20, np.float32))",
    "np.convolve(np.arange(50), np.arange(17))", "np.convolve(np.sin(np.arange(9000)), np.cos(np.arange(8999)))",
    *(f"np.{name}.reduceat(np.sin(np.arange(400.0)), np.arange(3, 400, 3))" for name in ("add", "maximum", "minimum")),
    "np.add.reduceat(np.arange(400, dtype=np.int32).reshape(4, 100), np.arange(80), axis=1)",
    "np.maximum.reduceat(np.arange(300).reshape(100, 3) % 17, np.arange(90) + 1)",
    "np.multiply.reduceat(np.arange(200) % 5 + 1.0, np.arange(100) * 2, dtype=np.float32)",
    # windows, quantiles, polynomials
    "np.lib.stride_tricks.sliding_window_view(w, 3).std(axis=1)", "np.lib.stride_tricks.sliding_window_view(a, (3, 2))",
    "np.lib.stride_tricks.sliding_window_view(a, 4, axis=0)[::2].max(-1)",
    "np.lib.stride_tricks.sliding_window_view(f, (2, 2), (0, -1)).sum((-1, -2))",
    *(f"np.quantile(a, [0, 0.1, 0.37, 0.5, 5 / 7, 1], axis=0, method='{method}')" for method in
      ("inverted_cdf", "averaged_inverted_cdf", "closest_observation")),
    "np.quantile(np.arange(8.0), np.arange(17) / 16, method='closest_observation')",
    "np.quantile(np.arange(8.0), np.arange(17) / 16, method='averaged_inverted_cdf')",
    "np.polydiv([1.0, -3, 2], [1, -1])", "np.poly1d(v)(a)", "np.poly1d([1, 2]).deriv()(i)", "np.poly1d([1, 2])(3.0)",
    "np.polynomial.polynomial.polyval(a, [1.0, 2, 3])", "np.polynomial.Polynomial.fit(w, w**2, 2).coef",
    "np.vectorize(lambda x, y: x - y if x > y else x + y)(i, 2)", "np.vectorize(abs, otypes=[np.float32])(i)",
    "np.vectorize(lambda x: x + 1)(np.arange(5, dtype=np.uint8))",
    "np.vectorize(lambda x: x * 2)(np.arange(5, dtype=np.float16))", "np.vectorize(lambda x: x > 0)(a)",
    "np.vectorize(otypes='d')(round)(a)",
    # linear algebra
    "np.linalg.eigvals(a[:5])", "np.linalg.eigvals(spd)", "np.linalg.eig(np.triu(a[:5]))[0]",
    "np.linalg.eigvals(z.astype(np.complex64))", "np.linalg.eig(a[:5])[1].dtype", "np.linalg.eig(spd)[1].dtype",
    "np.linalg.eigvals(np.diag(np.float32([1, 2])))", "np.linalg.multi_dot([v, a.T, a, c, spd, w[:6]])",
    "np.linalg.multi_dot([a, c, spd])", "np.linalg.multi_dot([a, c])", "np.linalg.multi_dot([v, c])",
    "np.linalg.tensorsolve(np.arange(36).reshape(2, 3, 6) % 7 + 0.5 * np.eye(6).reshape(2, 3, 6), np.ones((2, 3)))",
    "np.linalg.tensorsolve(spd.reshape(6, 2, 3), w[:6], axes=[1])",
    "np.linalg.tensorinv(spd.reshape(2, 3, 3, 2))", "np.linalg.tensorinv(spd.reshape(6, 3, 2), ind=1)",
    "np.einsum_path('ij,jk,kl->il', a, c, spd)[0][1:]",
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with gnp.cluster(workers=2, backend="threads", timeout=60.0):
        yield


@pytest.mark.parametrize("text", CASES)
def test_as_numpy(text: str) -> None:
    same(text)


NUMBERS = [
    "{x: 1 for x in u}[u[0]]", "len(set(u))", "dict(zip(*map(list, np.unique(u, return_counts=True))))[u[3]]",
    "[0] * u.max()", "u.max() * [0]", "'ab' * i[0, 0]", "(1,) * u[2]", "round(a[0, 0], 2)", "round(a.sum())",
]  # fmt: skip


@pytest.mark.parametrize("text", NUMBERS)
def test_elements_and_sums_are_numbers(text: str) -> None:
    expected, got = both(text)
    assert isinstance(got, (type(expected), gnp.Array))
    assert expected == got


SIZES = [
    "np.eye(u[0] + 2)", "np.tri(4, k=u[0])", "np.ones((u.max(), 2))", "np.full(u.max(), 7)", "np.tile(v, (u.max(), 1))",
    "np.broadcast_to(v, (u.max(), 5))", "np.diag(a, u[0])", "np.indices((u.max(), 2))", "np.arange(u.max())",
    "a.reshape(u.max() + 3, -1)", "np.linspace(0, 1, u.max())", "np.trace(a, u[0])",
]  # fmt: skip


@pytest.mark.parametrize("text", SIZES)
def test_elements_are_sizes(text: str) -> None:
    same(text)


PROGRAMS = {
    "dot": "y = np.zeros(7); np.dot(a, v, out=y)",
    "matmul": "y = np.zeros((7, 6)); view = y[:2]; np.matmul(a, c, out=y)",
    "concatenate": "y = np.zeros((14, 5)); np.concatenate((a, b), out=y)",
    "stack": "y = np.zeros((2, 7, 5)); np.stack([a, b], out=y)",
    "take": "y = np.zeros((7, 2)); np.take(a, [0, 3], 1, out=y)",
    "einsum": "y = np.zeros((7, 6)); np.einsum('ij,jk', a, c, out=y)",
    "outer": "y = np.zeros((5, 9)); np.outer(v, w, out=y)",
    "maximum": "y = np.zeros(5); np.maximum.at(y, u % 5, w[u])",
    "minimum": "y = np.zeros((5, 3)); np.minimum.at(y, (u, [0, -1, 1] * 3 + [0, 0]), w[u])",
    "multiply": "y = np.ones((5, 2)); np.multiply.at(y, u, [2, 3])",
    "whole numbers": "y = np.zeros(5, int); np.maximum.at(y, [1, 1, -1], [4, 3, 2]); np.multiply.at(y, [1, 1], 3)",
    "mask": "y = a.copy(); np.add.at(y, y > 0, 10); np.subtract.at(y, np.arange(7) > 4, 1)",
    "nothing": "y = np.ones(5); np.maximum.at(y, [], 9.0)",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_writes(name: str) -> None:
    made: list[Any] = []
    for space, data in ((np, DATA), (gnp, {name: gnp.array(value) for name, value in DATA.items()})):
        names = {"np": space, **data}
        exec(PROGRAMS[name], names)
        made.append(names["y"])
    assert (made[1].shape, made[1].dtype) == (made[0].shape, made[0].dtype)
    np.testing.assert_allclose(made[1].compute(), made[0], rtol=1e-12)


ERRORS = [
    ("np.add(v, v, v, v)", TypeError, "takes from 2 to 3 positional arguments but 4"),
    ("np.linalg.eig(a)", np.linalg.LinAlgError, "square"),
    ("np.linalg.eigvals(np.full((2, 2), np.nan))", np.linalg.LinAlgError, "infs or NaNs"),
    ("np.linalg.multi_dot([a])", ValueError, "at least two"),
    ("np.linalg.multi_dot([a, v, c])", np.linalg.LinAlgError, "vectors"),
    ("np.linalg.tensorsolve(a, v)", np.linalg.LinAlgError, "no square matrix"),
    ("np.linalg.tensorinv(spd, 0)", ValueError, "ind"),
    ("np.vectorize(abs)(a[:0])", ValueError, "size 0"),
    ("np.lib.stride_tricks.sliding_window_view(a, 3)", ValueError, "one size for each"),
    ("np.lib.stride_tricks.sliding_window_view(w, 10)", ValueError, "larger"),
    ("np.quantile(a, 0.5, method='?')", ValueError, "expected one of"),
    ("np.testing.assert_allclose(a, b)", AssertionError, "Not equal to tolerance"),
    ("np.testing.assert_equal(a[0, 0], 0)", AssertionError, "not equal"),
    ("{a: 1}", TypeError, "unhashable"),
    ("round(a)", TypeError, "round"),
    ("np.take(a, 1, mode='?')", ValueError, "clipmode"),
    ("a.reshape(5, 8, order='F')", ValueError, "cannot reshape"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number: int) -> None:
    text, kind, words = ERRORS[number]
    ours = BORDER.bytes == 0  # else the words are NumPy's
    for space, change in ((np, np.copy), (gnp, gnp.array)):
        with pytest.raises(kind, match=words if space is gnp and ours else None):
            eval(text, {"np": space, **{name: change(value) for name, value in DATA.items()}})


@of_large
def test_fractions_are_not_added_to_whole_numbers_at_indices() -> None:
    """NumPy rounds after each of them."""
    with pytest.raises(TypeError, match=r"add\.at of float64 into int64"):
        gnp.add.at(gnp.zeros(3, int), [0, 0], -0.5)


def test_an_eigenvector_belongs_to_its_value() -> None:
    a = gnp.array(DATA["a"][:5])
    values, vectors = gnp.linalg.eig(a)
    np.testing.assert_allclose((a @ vectors - vectors * values).compute(), 0, atol=1e-12)


def test_windows_see_later_writes() -> None:
    x = gnp.arange(5.0)
    windows = gnp.lib.stride_tricks.sliding_window_view(x, 2)
    x[1] = 9
    np.testing.assert_array_equal(windows[0].compute(), [0, 9])
    with pytest.raises(ValueError, match="read-only"):
        windows[0, 0] = 1


def test_comparisons_of_arrays_that_are_equal() -> None:
    x = gnp.array(DATA["a"])
    gnp.testing.assert_allclose(x + 1e-12, DATA["a"], atol=1e-9)
    gnp.testing.assert_array_equal(x, x.copy())
    gnp.testing.assert_equal([x[0, 0], (x, 1)], [DATA["a"][0, 0], (DATA["a"], 1)])
    gnp.testing.assert_array_less(x, x + 1)
    with gnp.testing.assert_raises(gnp.exceptions.AxisError):
        x.sum(4)


REFUSED = [
    ("np.vectorize(divmod)(i, 3)", "one result"), ("np.vectorize(abs, signature='(n)->()')", "signature"),
    ("np.vectorize(abs, excluded={0})", "excluded"), ("np.vectorize(abs, 'dd')", "one result"),
    ("np.vectorize(round)(a, ndigits=1)", "ndigits"),
    ("np.lib.stride_tricks.as_strided(a)", "no memory to walk"), ("np.lib.format", r"lib has no format"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_not_there_says_so(number: int) -> None:
    text, words = REFUSED[number]
    with pytest.raises((TypeError, AttributeError), match=words):
        eval(text, {"np": gnp, **{name: gnp.array(value) for name, value in DATA.items()}})
