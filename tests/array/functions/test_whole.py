"""NumPy's functions that are evaluated whole: NumPy's results and errors on any workers, and they say what they are."""

from __future__ import annotations

import inspect
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from array_cases import DATA, same

import girih.array as gnp
from girih.array.core.evaluation import BORDER
from girih.array.functions import whole


@pytest.fixture(scope="module", params=[1, 3], ids=lambda workers: f"workers{workers}")
def cluster(request: pytest.FixtureRequest) -> Iterator[gnp.Cluster]:
    with gnp.cluster(workers=request.param, backend="threads", timeout=60.0) as made:
        yield made


CASES = [
    "np.polyfit(w, w**2 + 1, 2)", "np.polyadd(v, z[0])", "np.polydiv(v, [2.0, 1.0])",
    "np.polyval(np.poly([1.0, 2.0]), a)", "np.roots(v)", "np.poly(spd)",
    "np.polyder(np.poly1d([1, 2, 3]))(i)", "np.poly1d(v).roots", "np.poly1d(v)(z)",
    "np.bartlett(6)", "np.kaiser(5, 2.0)", "np.insert(a, i[0] % 3, v, axis=1)", "np.insert(w, slice(0, 4, 2), 7)",
    "np.trim_zeros(u)", "np.unwrap(a * 9, axis=0)", "np.packbits(t, axis=1)", "np.unpackbits(u.astype(np.uint8))",
    "np.choose(u[:5] % 2, [v, 2.0])", "np.piecewise(f, [f > 0], [np.sqrt, 0])", "np.setxor1d(i, j)",
    "np.apply_along_axis(np.sort, 0, z)", "np.apply_along_axis(lambda row: row @ row, 1, f)", "np.geomspace(1, 9, 3)",
    "np.histogram2d(a[0], a[1], bins=[2, 3])[0]", "np.histogramdd([v, v], bins=2, density=True)[0]",
    "np.unravel_index(u.max(), (2, 3))", "np.ravel_multi_index((u, u), (5, 5))", "np.ix_(u, t[:, 0])",
    "np.mask_indices(4, np.tril)", "np.tril_indices_from(a, 1)", "np.diag_indices_from(spd)", "np.real_if_close(a)",
    "np.unique(i % 2, axis=0, return_inverse=True)", "np.intersect1d(u, i, return_indices=True)",
    "np.cov(a, aweights=v * v, fweights=[1, 2, 1, 3, 1])",
       "np.histogram_bin_edges(w, 'doane')", "np.histogram(a, [-1, 0, 2])", "np.pad(a, 1, 'linear_ramp')",
    "np.pad(w, 2, lambda row, width, axis, options: row.__setitem__(slice(0, 2), 5))", "np.pad(a, {-1: 2}, 'edge')",
    "np.quantile(a, [0.2, 0.6], axis=1, method='hazen', keepdims=True)", "np.nanquantile(n[:2], 0.3, method='weibull')",
    "np.cross(v[:2], v[2:5])", "np.interp(a, [0.5, 1.0], [1.0, 2.0], period=2)", "np.fromiter([1, 2], np.int16)",
    "np.dtype(np.common_type(f, i))", "np.iscomplexobj(z)", "np.size(f, 1)",
    # NumPy computes on tiles
    "np.ldexp(f, 3)", "np.ldexp(a, i)", "np.frexp(f)", "np.modf(w)", "np.heaviside(i, 2.0)", "np.spacing(f[0])",
    "np.bitwise_count(j)",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", CASES)
def test_as_numpy(cluster: gnp.Cluster, text: str) -> None:
    same(text)


WRITES = [
    "np.place(x, x > 0, [1, 2, 3])", "np.putmask(x.T, x.T > 0, y)", "np.put(x[1:], [0, -1], [8, 9])",
    "np.put_along_axis(x, np.argmax(x, 1, keepdims=True), 5, 1)", "np.put(x, [99, -99], 1, mode='wrap')",
]  # fmt: skip


@pytest.mark.parametrize("text", WRITES)
def test_writes_are_seen_by_views(cluster: gnp.Cluster, text: str) -> None:
    ends = []
    for space in (np, gnp):
        x, y = space.array(DATA["i"]), space.arange(4)
        row = x[2]
        assert eval(text, {"np": space, "x": x, "y": y}) is None
        ends.append((np.asarray(x).tolist(), np.asarray(row).tolist()))
    assert ends[0] == ends[1]


ERRORS = [
    "np.polyfit(v, w, 2)", "np.poly(f)", "np.insert(w, 99, 0)", "np.unpackbits(i)", "np.choose(i, [a, b])",
    "np.pad(a, -1)", "np.pad(a, 1, 'none')", "np.pad(a, 1.5)", "np.pad(a, 1, 'edge', stat_length=2)",
    "np.pad(a[:0], 1, 'wrap')", "np.unravel_index(u, (2, 2))", "np.ravel_multi_index((u, u), (2, 2))", "np.ix_(a)",
    "np.geomspace(0, 1)", "np.ldexp(a, a)", "np.bitwise_count(a)", "np.place(a, a > 0, [])", "np.put(a, [99], 1)",
    "np.broadcast_to(v, (2, 5)).put([0], 1)", "np.histogram(a, bins='none')", "np.histogram(a, bins=0)",
    "np.histogram(n)", "np.histogram(w, [2, 1])", "np.cross(a, b)", "np.tril_indices_from(v)",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", ERRORS)
def test_errors_come_with_the_call_and_are_numpys(cluster: gnp.Cluster, text: str) -> None:
    with pytest.raises(Exception) as expected:  # noqa: PT011 - NumPy says which
        eval(text, {"np": np, **{name: value.copy() for name, value in DATA.items()}})
    with pytest.raises(type(expected.value)):
        eval(text, {"np": gnp, **{name: gnp.array(value) for name, value in DATA.items()}})


def test_they_say_so(cluster: gnp.Cluster) -> None:
    """By their docstrings, and `explain` by name and line; signatures are NumPy's."""
    for name, function in whole.FUNCTIONS.items():
        assert function in (getattr(gnp, name), getattr(gnp, name).__wrapped__)
        assert (function.__name__, function.__module__) == (name, "girih.array")
        assert function.__doc__.startswith(("Evaluated whole, with NumPy.", "Of shapes and dtypes alone"))
    assert inspect.signature(gnp.polyfit) == inspect.signature(np.polyfit)
    if BORDER.bytes:
        return
    made = gnp.poly([1.0, 2.0])
    with pytest.raises(ValueError, match=r"test_whole\.py:\d+ \(numpy\.poly, evaluated whole\), is in memory"):
        gnp.explain(made)
    assert isinstance(gnp.explain(made + 1), gnp.Explanation)


def test_what_is_given_back_is_ones_own(cluster: gnp.Cluster) -> None:
    content, buffer = np.array([1.0, 2.0]), bytearray(b"ab")
    edges, read = gnp.histogram(content, content)[1], gnp.frombuffer(buffer, np.uint8)
    content[:] = buffer[:] = 0, 0
    assert (edges.tolist(), read.tolist()) == ([1.0, 2.0], [97, 98])
    x = gnp.array([3, 4])
    assert gnp.histogram_bin_edges(x, x) is x
    if BORDER.bytes == 0:
        with pytest.raises(ValueError, match="read-only"):
            gnp.ix_(x)[0][0] = 1  # NumPy's shows x


def test_questions_about_types_compute_nothing(two: gnp.Cluster) -> None:
    before = two.evaluations
    x = gnp.zeros((3, 4)) + 1
    assert (gnp.shape(x), gnp.ndim([x, x]), gnp.size(x, 0), gnp.isrealobj(x)) == ((3, 4), 3, 3, True)
    assert gnp.triu_indices_from(x)[0].shape == (9,)
    assert gnp.iterable(x)
    assert not gnp.iterable(x.sum())
    assert not gnp.isscalar(x.sum())
    assert two.evaluations == before


def test_numpys_own_names_lead_here(cluster: gnp.Cluster) -> None:
    made: Any = np.unwrap(gnp.array(DATA["w"]) * 9)
    assert isinstance(made, gnp.Array)
    np.testing.assert_allclose(made.compute(), np.unwrap(DATA["w"] * 9))
    halves, exponents = np.frexp(gnp.array(DATA["w"]))
    np.testing.assert_array_equal(np.ldexp(halves, exponents).compute(), DATA["w"])


def test_texts_and_files(cluster: gnp.Cluster) -> None:
    for function in ("array_repr", "array_str", "array2string"):
        assert getattr(gnp, function)(gnp.array(DATA["t"])) == getattr(np, function)(DATA["t"])
    text = io.StringIO()
    gnp.savetxt(text, gnp.array(DATA["i"]), fmt="%d")
    text.seek(0)
    np.testing.assert_array_equal(gnp.loadtxt(text, dtype=int).compute(), DATA["i"])


def test_sparse_matrices_are_refused(cluster: gnp.Cluster) -> None:
    from scipy import sparse

    with pytest.raises(TypeError, match="sparse"):
        gnp.unwrap(sparse.eye_array(3))
