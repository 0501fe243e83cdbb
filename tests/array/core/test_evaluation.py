"""Laziness, sharing, live arrays, freeing, errors, the clusters, and what a plan promises."""

from __future__ import annotations

import gc
import pickle

import numpy as np
import pytest
import torch
from borders import of_large

import girih
import girih.array as gnp
from girih.array.core.evaluation import Border
from girih.array.session.clusters import current
from girih.capture.lazy.expressions import needed


@of_large
def test_nothing_is_computed_until_a_value_is_needed(two):
    x = gnp.array(np.ones((4, 3)))
    before = two.evaluations
    y = (x * 2).sum(0)
    assert two.evaluations == before
    assert float(y[0]) == 8.0
    assert two.evaluations == before + 1


@of_large
def test_a_with_block_chooses_its_cluster(two):
    with gnp.Cluster(1) as other:
        assert current() is other
        assert float((gnp.ones(3) * 2).sum()) == 6.0
        assert other.evaluations == 1
    assert current() is two


@of_large
def test_equal_expressions_are_one(two):
    x = gnp.array(np.arange(6.0))
    assert (x + 1).expression is (x + 1).expression
    assert (x + 1).expression is not (x + 2).expression
    assert (x * 1).expression is not (x * 1.0 * 1).expression
    assert gnp.full(3, 1).expression is not gnp.full(3, 1.0).expression
    assert gnp.full(3, 0.0).expression is not gnp.full(3, -0.0).expression
    kept = (x + 1).persist()
    assert (x + 1).expression is kept.expression
    assert len(needed([((x + 1) * (x + 1)).expression]).nodes) == 1


def test_a_repeated_structure_is_planned_once(two):
    x = gnp.array(np.ones((6, 4)))
    c = gnp.array(np.ones(4))
    planned = []
    for number in range(5):
        c = (x * c).mean(0) * (0.5 + number)
        c.persist()
        planned.append(two.planned)
    assert planned[1:] == [planned[1]] * 4
    np.testing.assert_allclose(c.compute(), 0.5 * 1.5 * 2.5 * 3.5 * 4.5)


@of_large
def test_live_arrays_stay_and_dead_ones_go(two):
    x = gnp.array(np.ones((64, 4)))
    y = (x + 1).persist()
    kept = {key for tiles in two.run.tiles() for key in tiles}
    assert {x.expression.kept.key, y.expression.kept.key} <= kept
    held = x * 3  # alive while another array is evaluated from it: it is kept, too
    float((held + y).sum())
    assert held.expression.kept is not None
    gone = [held.expression.kept.key, y.expression.kept.key]
    del held, y
    gc.collect()
    float(x.sum())
    kept = {key for tiles in two.run.tiles() for key in tiles}
    assert x.expression.kept.key in kept
    assert not kept & set(gone)


def test_what_was_evaluated_lets_go_of_what_made_it(two):
    x = gnp.array(np.ones(4))
    for _ in range(50):
        x = (x + 1).persist()
    assert x.expression.inputs == ()
    assert x.compute()[0] == 51


def test_a_loop_goes_on_from_what_it_let_go_of(two):
    """The new weights do not make the old ones again from all earlier errors."""
    x, w = gnp.array(np.random.default_rng(0).normal(size=(40, 3))), gnp.zeros(3)
    planned = []
    for _ in range(6):
        error = x @ w - 1
        w = w - 0.01 * (x.T @ error)
        float((error**2).sum())
        planned.append(two.planned)
    assert planned[2:] == [planned[2]] * 4


@of_large
def test_long_chains(two):
    x = gnp.array(np.zeros(3))
    for _ in range(400):
        x = x + 1
    assert x.compute().tolist() == [400.0] * 3
    for _ in range(5000):
        x = x + 1
    users = x.expression.inputs[0]
    del x  # ends without nesting 5000 calls
    assert users.users == 0


def test_later_writes_to_the_original_are_not_seen(two):
    a = np.zeros(4)
    x = gnp.asarray(a)
    a[:] = 1
    assert x.compute().tolist() == [0.0] * 4
    value = x.compute()
    value[:] = 2
    assert x.compute().tolist() == [0.0] * 4


def test_numpys_own_functions(two):
    x = gnp.array(np.arange(6.0).reshape(2, 3))
    for made, expected in (
        (np.add(x, 1), np.arange(1.0, 7).reshape(2, 3)),
        (np.ones(3) + x, np.arange(1.0, 7).reshape(2, 3)),
        (np.concatenate([x, x]), np.tile(np.arange(6.0).reshape(2, 3), (2, 1))),
        (np.add.reduce(x), [3.0, 5.0, 7.0]),
        (np.linalg.norm(x, axis=1), np.linalg.norm(np.arange(6.0).reshape(2, 3), axis=1)),
        (np.fft.fft(x), np.fft.fft(np.arange(6.0).reshape(2, 3))),
    ):
        assert isinstance(made, gnp.Array)
        np.testing.assert_allclose(made.compute(), expected)
    with pytest.raises(TypeError, match=r"girih\.array has no bmat"):
        x.__array_function__(np.bmat, (gnp.Array,), (x,), {})
    assert x.__array_namespace__() is gnp


def test_numpys_errors(two):
    x = gnp.array(np.ones((2, 3)))
    cases = [
        (lambda a, n: a + n.array([1.0, 2.0]), ValueError),
        (lambda a, n: a @ a, ValueError),
        (lambda a, n: a[5], IndexError),
        (lambda a, n: a[0, 0, 0], IndexError),
        (lambda a, n: a[1.5], IndexError),
        (lambda a, n: a.reshape(5), ValueError),
        (lambda a, n: a.sum(4), np.exceptions.AxisError),
        (lambda a, n: bool(a), ValueError),
        (lambda a, n: float(a), TypeError),
        (lambda a, n: n.concatenate([a, a[0]]), ValueError),
        (lambda a, n: ~a, TypeError),
        (lambda a, n: n.array([True]) - n.array([True]), TypeError),
        (lambda a, n: n.linalg.cholesky(a), np.linalg.LinAlgError),
        (lambda a, n: a[:, :0].max(), ValueError),
        (lambda a, n: len(a[0, 0]), TypeError),
        (lambda a, n: n.einsum("ij,jk->ik", a, a), ValueError),
    ]
    for call, kind in cases:
        with pytest.raises(kind):
            call(np.ones((2, 3)), np)
        with pytest.raises(kind):
            call(x, gnp)


@of_large
def test_an_error_names_the_line_that_made_the_array():
    with gnp.cluster(workers=2, backend="threads", timeout=30.0):
        bad = gnp.array(-np.eye(3))
        factor = gnp.linalg.cholesky(bad)  # this line
        total = factor.sum()
        with pytest.raises(np.linalg.LinAlgError, match=r"test_evaluation\.py:\d+: aten\.linalg_cholesky") as got:
            total.compute()
        line = int(str(got.value).split(".py:")[1].split(":")[0])
        with open(__file__) as file:
            assert "this line" in file.readlines()[line - 1]
        assert gnp.array(np.ones(3)).sum().compute() == 3.0


class OddError(ZeroDivisionError):
    """A class that only this module has."""


def test_errors_have_the_class_of_what_was_raised():
    """By its name, not by words of its message; an odd one has that of its base."""

    def failing(error):
        def function(tile):
            raise error

        return gnp.map(function, gnp.array(np.ones(4)), dtype=float)

    with gnp.cluster(workers=2, timeout=60.0):  # processes
        for error, kinds in (
            (ValueError("no IndexError"), (ValueError, gnp.EvaluationError)),
            (OddError("odd"), (ZeroDivisionError, gnp.EvaluationError)),
            (torch.linalg.LinAlgError("singular"), (np.linalg.LinAlgError, gnp.EvaluationError)),
            (np.exceptions.AxisError("no axis"), (np.exceptions.AxisError,)),
            (KeyError("says only its key"), (gnp.EvaluationError,)),
        ):
            array = failing(error)
            with pytest.raises(Exception, match=rf"test_evaluation\.py:\d+: girih\.map.*{error.args[0]}") as got:
                array.compute()
            copied = pickle.loads(pickle.dumps(got.value))
            assert str(copied) == str(got.value)
            for made in (got.value, copied):
                assert all(isinstance(made, kind) for kind in kinds)
                assert not isinstance(made, (IndexError, KeyError)) or isinstance(error, IndexError)
        assert gnp.array(np.ones(3)).sum().compute() == 3.0


@of_large
@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_an_error_leaves_alone_what_was_computed_before(backend):
    with gnp.cluster(workers=3, backend=backend, timeout=60.0) as cluster:
        noise = gnp.random.default_rng(0).random((9000, 4))
        kept = (noise * 2).persist()
        crew = cluster.run.crew
        known = kept.compute()
        places = gnp.array(np.r_[np.zeros(8999, np.int64), 9000]) + 0
        sent = noise[places].T @ noise  # one worker fails, and the others wait for its part of the sum
        with pytest.raises(IndexError, match=r"test_evaluation\.py:\d+: aten\.index"):
            sent.compute()
        whole = (gnp.array(np.arange(9000)) - 8000) ** (gnp.array(np.r_[np.zeros(8999, np.int64), -1]) + 0)
        with pytest.raises(ValueError, match="negative integer powers"):  # in a loop over blocks
            (whole + 1).sum().compute()
        np.testing.assert_array_equal(kept.compute(), known)
        np.testing.assert_allclose((kept - 2 * noise).compute(), 0)
        assert cluster.run.crew is crew
        held = set(cluster.run.held())
        assert [set(tiles) for tiles in cluster.run.tiles()] == [held] * 3  # what the failures left is freed


@of_large
def test_bytes_are_as_planned(two):
    x = gnp.array(np.random.default_rng(0).normal(size=(300, 200)))
    before = sum(item.bytes_received for item in two.run.statistics())
    y = (x @ x.T).sum(0)
    planned = gnp.explain(y).bytes
    y.persist()
    assert sum(item.bytes_received for item in two.run.statistics()) - before == planned
    assert planned > 0


@of_large
def test_explain(two):
    x = gnp.array(np.ones((400, 50)))
    c = gnp.array(np.ones((8, 50)))
    d = ((x[:, None, :] - c[None]) ** 2).sum(-1).argmin(1)
    for _ in range(2):  # before it is evaluated, and afterwards
        text = str(gnp.explain(d))
        assert "gap 0 % (proved)" in text
        assert "aten.argmin" in text
        others = gnp.explain(d).against()
        assert {"greedy (Spartan)", "rows", "columns"} == set(others)
        assert min(others.values()) >= gnp.explain(d).bytes
        d.persist()
    with pytest.raises(ValueError, match="in memory"):
        gnp.explain(gnp.array(np.ones(3)))


@of_large
def test_explain_tells_what_copies_and_the_search_bring(tmp_path):
    points = np.random.default_rng(0).normal(size=(160, 128))
    with gnp.cluster(workers=2, backend="threads", timeout=60.0, copies=points.nbytes):
        x = gnp.exp(gnp.array(points))
        scans = [gnp.cumsum(x, axis=0), gnp.cumsum(x, axis=1), gnp.cumprod(x, axis=0), gnp.cumprod(x, axis=1)]
        total = sum(scan.sum() for scan in scans)
        for _ in range(2):  # before it is evaluated, and afterwards
            explanation = gnp.explain(total)
            others = explanation.against()
            assert set(others) == {"exact, no second copies", "greedy (Spartan)", "rows", "columns"}
            assert explanation.bytes < others["exact, no second copies"] <= others["greedy (Spartan)"]
            assert others["exact, no second copies"] <= min(others["rows"], others["columns"])
            total.persist()
        pytest.importorskip("bokeh")
        explanation.report(tmp_path / "plan.html")
        page = (tmp_path / "plan.html").read_text()
        assert "aten.cumprod" in page
        assert "greedy (Spartan)" in page
    with gnp.cluster(workers=2, backend="threads", timeout=60.0, search="spartan"):
        x = gnp.array(points)
        explanation = gnp.explain(gnp.cumsum(x, axis=0).sum() + gnp.cumsum(x, axis=1).sum())
        assert explanation.against()["exact"] <= explanation.bytes
        assert "search spartan" in str(explanation)


def test_processes():
    with girih.cluster(workers=2) as made:
        assert current() is made
        a = np.random.default_rng(1).normal(size=(50, 20))
        x = gnp.array(a)
        y = (x - x.mean(0)).persist()
        np.testing.assert_allclose((y.T @ y).compute(), (a - a.mean(0)).T @ (a - a.mean(0)))
        z = y + 1
        with gnp.cluster(workers=2, backend="threads"):  # tiles come over from the other workers
            np.testing.assert_allclose(z.compute(), a - a.mean(0) + 1)
    assert current() is not made


def test_random_numbers_do_not_depend_on_the_tiling():
    def draw(workers):
        with gnp.cluster(workers=workers, backend="threads", timeout=60.0):
            random = gnp.random.default_rng(3)
            return [
                random.random((100, 101)).compute(),
                random.standard_normal(1000).compute(),
                random.integers(0, 10, 1000).compute(),
                random.uniform(2, 3, 5).compute(),
            ]

    first = draw(1)
    assert not np.array_equal(first[0].ravel()[:1000], first[1])
    assert abs(first[0].mean() - 0.5) < 0.01
    assert abs(first[1].std() - 1) < 0.1
    for workers in (2, 3):
        for one, other in zip(first, draw(workers), strict=True):
            np.testing.assert_array_equal(one, other)


@of_large
@pytest.mark.parametrize("search", ["exact", "spartan"])
def test_second_copies_are_filled_once_and_go_with_their_array(search):
    points = np.random.default_rng(0).normal(size=(160, 128))
    expected = float(np.cumsum(points, 0).sum() + np.cumsum(points, 1).sum())
    moved, planned = {}, []
    for copies in (0, "1 MB"):
        with gnp.cluster(workers=2, backend="threads", timeout=60.0, search=search, copies=copies) as made:
            x = gnp.array(points)
            for step in range(3):
                y = gnp.cumsum(x, axis=0).sum() + gnp.cumsum(x, axis=1).sum() + float(step)
                assert float(y) == pytest.approx(expected + step)
                moved[copies, step] = int(y.expression.kept.plan.bytes_received.sum())
                planned.append(made.planned)
            lies = x.expression.kept.layouts
            assert len(lies) == (2 if copies else 1)
            if copies:
                assert set(map(str, lies)) == {"S0", "S1"}
                assert sum(made._seconds.values()) == points.nbytes
                keys = {x.expression.kept.key, x.expression.kept.second.key}
                assert all(keys <= set(tiles) for tiles in made.run.tiles())
                del x
                gc.collect()
                float(gnp.array([1.0]).sum())
                assert not any(keys & set(tiles) for tiles in made.run.tiles())
                assert not made._seconds
    assert planned[1:3] == [planned[1]] * 2
    assert all(moved["1 MB", step] + points.nbytes / 2 <= moved[0, step] for step in range(3))


@of_large
def test_a_copy_that_does_not_fit_is_not_made():
    points = np.random.default_rng(0).normal(size=(160, 128))
    with gnp.cluster(workers=2, backend="threads", timeout=60.0, copies=points.nbytes - 1):
        x = gnp.array(points)
        float(gnp.cumsum(x, axis=0).sum() + gnp.cumsum(x, axis=1).sum())
        assert len(x.expression.kept.layouts) == 1


@of_large
def test_a_computed_array_is_kept_in_two_layouts():
    points = np.random.default_rng(0).normal(size=(160, 128))
    with gnp.cluster(workers=2, backend="threads", timeout=60.0, copies=points.nbytes):
        x = gnp.exp(gnp.array(points))
        expected = np.exp(points)
        scans = [gnp.cumsum(x, axis=0), gnp.cumsum(x, axis=1), gnp.cumprod(x, axis=0), gnp.cumprod(x, axis=1)]
        total = sum(scan.sum() for scan in scans)
        wanted = [np.cumsum(expected, 0), np.cumsum(expected, 1), np.cumprod(expected, 0), np.cumprod(expected, 1)]
        assert float(total) == pytest.approx(sum(scan.sum() for scan in wanted))
        assert set(map(str, x.expression.kept.layouts)) == {"S0", "S1"}
        assert x.expression.kept.second.name.endswith(".copy")
        again = (gnp.cumsum(x, axis=0)[1:]).sum() + (gnp.cumsum(x, axis=1)[:, 1:]).sum()
        assert float(again) == pytest.approx(np.cumsum(expected, 0)[1:].sum() + np.cumsum(expected, 1)[:, 1:].sum())
        assert int(again.expression.kept.plan.bytes_received.sum()) < points.nbytes / 2
        np.testing.assert_array_max_ulp(x.compute(), expected, 2)  # PyTorch's exp is another than NumPy's


def test_a_search_that_is_not_there():
    with pytest.raises(ValueError, match="search='best': expected one of exact, spartan"):
        gnp.cluster(workers=1, backend="threads", search="best")


@of_large
def test_one_worker_shares_no_work_and_gets_larger_arrays():
    alone, shared = Border(), Border()
    alone.put(None, alone=True)
    shared.put(None)
    assert (alone.bytes, shared.bytes) == (4 * Border.DEFAULT, Border.DEFAULT)
    alone.put(1000, alone=True)
    assert alone.bytes == 1000
