"""What arrays promise of NumPy in detail: axes of arrays without dimensions, exact square roots, special values of
complex numbers, shared memory, DLPack, and what is said of a lost worker."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import torch
from borders import of_large

import girih
import girih.array as gnp
from girih.run.loops import torchscript

LINES = ["sort", "argsort", "cumsum", "cumprod"]
REDUCTIONS = [
    "sum", "prod", "max", "min", "mean", "std", "var", "any", "all", "argmax", "argmin", "count_nonzero", "ptp",
    "median", "nansum", "nanmean", "nanmax", "nanmin", "nanstd", "nanvar", "nanprod", "squeeze", "average",
]  # fmt: skip


def outcome(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return error


@pytest.mark.parametrize("axis", [0, -1, None, 1, -2])
@pytest.mark.parametrize("name", LINES + REDUCTIONS)
def test_axes_of_what_has_no_dimensions(two, name, axis):
    expected = outcome(getattr(np, name), np.array(5.0), axis)
    got = outcome(getattr(gnp, name), gnp.array(5.0), axis)
    if isinstance(expected, Exception):
        assert isinstance(got, np.exceptions.AxisError)
        assert isinstance(expected, np.exceptions.AxisError)
    else:
        assert (got.shape, got.dtype) == (np.shape(expected), np.asarray(expected).dtype)
        assert got.compute() == expected


def test_square_roots_are_correctly_rounded(two):
    numbers = np.random.default_rng(0).random(100_001) * 1000
    x = gnp.array(numbers)
    np.testing.assert_array_equal(gnp.sqrt(x).compute(), np.sqrt(numbers))
    np.testing.assert_array_equal((gnp.sqrt(x * x + 1) * 2).compute(), np.sqrt(numbers * numbers + 1) * 2)
    np.testing.assert_array_equal(gnp.sqrt(x.astype("float32")).compute(), np.sqrt(numbers.astype("float32")))


@of_large
def test_a_square_root_in_a_loop_is_compiled(monkeypatch):
    compiled = []
    unit = torch.jit.CompilationUnit
    monkeypatch.setattr(torch.jit, "CompilationUnit", lambda text: (compiled.append(text), unit(text, _frames_up=1))[1])
    torchscript.compiled.cache_clear()
    numbers = np.random.default_rng(0).random((100_000, 50))
    with girih.cluster(1, backend="threads"):
        made = (gnp.sqrt(gnp.array(numbers) + 1) * 2).sum(1).compute()
    np.testing.assert_allclose(made, (np.sqrt(numbers + 1) * 2).sum(1))
    assert any("torch.ops.girih.sqrt" in text for text in compiled)


PARTS = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-300, -1e-300, 1e300, 0.5, 2.0, 5e-324]
COMPLEX = np.array([complex(real, imag) for real in PARTS for imag in PARTS])
UNARY = [
    name for name in dir(gnp)
    if isinstance(function := getattr(np, name, None), np.ufunc) and (function.nin, function.nout) == (1, 1)
    and any(types.startswith("D->") for types in function.types)
]  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_special_values_of_complex_numbers(two, name):
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(COMPLEX)
        got = getattr(gnp, name)(gnp.array(COMPLEX)).compute()
    assert got.dtype == expected.dtype
    for of in (np.real, np.imag):
        first, second = of(got), of(expected)
        np.testing.assert_allclose(first, second, rtol=1e-12)
        if first.dtype.kind == "f":
            known = ~np.isnan(second)
            np.testing.assert_array_equal(np.signbit(first[known]), np.signbit(second[known]))


def test_a_number_that_is_not_computed_yet_makes_views():
    def rows(np):
        x = np.arange(24.0).reshape(2, 3, 4)
        at = np.argmax(x[:, 0, 0])
        row, column, element = x[at], x[:, at - 1, 1:], x[at, at, at]
        row[0] = -1
        column *= 2
        x[...] += 1
        return x, row, column, element

    for got, expected in zip(rows(gnp), rows(np), strict=True):
        np.testing.assert_array_equal(got.compute(), expected)


def test_flat_is_written_to_as_numpys(two):
    def written(np):
        x = np.arange(6.0)
        x.flat[:] = []
        x.flat = []
        x.flat[[0, 0]] = [7, 8]
        x.flat[x == 3] = [9, 10]
        np.put(np.sum(x), [0], 1)
        return x

    np.testing.assert_array_equal(written(gnp).compute(), written(np))
    x = gnp.arange(6.0)
    x[::-1].flat[[1, 4]] = x  # of before; NumPy reads the second where it has written the first
    assert x.compute().tolist() == [0, 1, 2, 3, 0, 5]


def test_which_arrays_share_memory():
    x = gnp.arange(10.0)
    for space, y in ((np, np.arange(10.0)), (gnp, x)):
        assert space.shares_memory(y, y[2:])
        assert space.may_share_memory(y[::2], y)
        assert not space.shares_memory(y[::2], y[1::2])
        assert not space.shares_memory(y, y.copy())
        assert not space.may_share_memory(y, y + 1)


def test_dlpack(two):
    x = gnp.arange(3.0) * 2
    assert torch.from_dlpack(x).tolist() == [0, 2, 4]
    assert np.from_dlpack(x).tolist() == [0, 2, 4]
    assert x.__dlpack__(copy=True) is not None
    assert x.__dlpack__(dl_device=(1, 0)) is not None
    with pytest.raises(BufferError, match="copy=False"):
        x.__dlpack__(copy=False)
    with pytest.raises(BufferError, match="dl_device"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ValueError, match="stream"):
        x.__dlpack__(stream=1)


def test_scikit_learns_kmeans(two):
    cluster = pytest.importorskip("sklearn.cluster")
    points = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0, 0], [9, 9], [0, 9]], 20, 0)
    made = [cluster.KMeans(3, n_init=1, random_state=0).fit(x) for x in (points, gnp.array(points))]
    np.testing.assert_array_equal(made[0].labels_, made[1].labels_)


@of_large
def test_what_is_lost_with_a_worker_names_it_and_the_remedy():
    with girih.cluster(2) as cluster:
        x = (gnp.array(np.ones(1000)) * 2).persist()
        os.kill(cluster.run.crew.pids[1], signal.SIGKILL)
        with pytest.raises(gnp.EvaluationError, match=r"worker.*checkpoint="):
            (x + 1).compute()
