"""Cholesky's factorisation divided among the workers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from borders import of_large

import girih.array as gnp
from girih.rewrite.passes import factorisations as panels

pytestmark = of_large


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panels, "LEAST", 20)
    monkeypatch.setattr(panels, "WIDTH", 16)


@pytest.fixture(params=[2, 3])
def workers(request: pytest.FixtureRequest) -> Iterator[int]:
    with gnp.cluster(workers=request.param, backend="threads", timeout=60.0):
        yield request.param


def matrix(size: int, kind: str = "float64") -> np.ndarray:
    random = np.random.default_rng(size)
    root = random.normal(size=(size, size)) + (1j * random.normal(size=(size, size)) if kind == "complex128" else 0)
    return (root @ root.conj().T + size * np.eye(size)).astype(kind)


@pytest.mark.parametrize("size", [20, 48, 61, 97])
def test_a_large_matrix_has_numpys_factor(workers: int, size: int) -> None:
    """Whether its rows divide into equal parts or not; NumPy reads the lower triangle alone."""
    a = matrix(size)
    known = np.linalg.cholesky(a)
    a[np.triu_indices(size, 1)] = 7.0
    made = gnp.linalg.cholesky(gnp.array(a)).compute()
    np.testing.assert_allclose(made, known, rtol=1e-10, atol=1e-12)
    assert not np.triu(made, 1).any()


@pytest.mark.parametrize(("kind", "tolerance"), [("float32", 1e-4), ("complex128", 1e-10), ("int64", 1e-10)])
def test_of_all_dtypes(workers: int, kind: str, tolerance: float) -> None:
    a = matrix(50, kind)
    a = np.tril(a) + np.tril(a, -1).conj().T  # also what is rounded to whole numbers
    for upper in (False, True):
        made, known = gnp.linalg.cholesky(gnp.array(a), upper=upper).compute(), np.linalg.cholesky(a, upper=upper)
        assert made.dtype == known.dtype
        np.testing.assert_allclose(made, known, rtol=tolerance, atol=tolerance)


def test_all_workers_have_the_same_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every panel and every product is divided by its first dimension, in which all workers have one."""
    monkeypatch.setattr(panels, "WIDTH", 100)
    with gnp.cluster(workers=2, backend="threads", timeout=60.0):
        factor = gnp.linalg.cholesky(gnp.array(matrix(400)))
        plan = gnp.explain(factor).plan
        divisions = zip(plan.graph.nodes, plan.strategy.divisions, strict=True)
        work = [
            division for node, division in divisions if node.operator in ("girih.less_panels", "girih.cholesky_panel")
        ]
        assert set(map(str, work)) == {"S0"}
        assert len(work) == 4 + 3  # panels, and a product for each but the first


def test_what_is_solved_with_it_is_solved_as_a_triangle(workers: int) -> None:
    """Before and after it was computed, and where it was cut to size."""
    for size in (48, 61):
        a, b = matrix(size), np.random.default_rng(1).normal(size=(size, 3))
        expected = np.linalg.solve(np.linalg.cholesky(a), b)
        factor = gnp.linalg.cholesky(gnp.array(a))
        for _ in range(2):
            x = gnp.linalg.solve(factor, gnp.array(b))
            np.testing.assert_allclose(x.compute(), expected, rtol=1e-10, atol=1e-12)
            used = {node.operator for node in x.expression.kept.plan.graph.nodes}
            assert "aten.linalg_solve_triangular" in used
            assert "aten.linalg_solve" not in used


def test_a_matrix_that_is_not_positive_definite(workers: int) -> None:
    a = matrix(61)
    a[50, 50] = -1
    with pytest.raises(np.linalg.LinAlgError, match=r"test_panels\.py:\d+: girih\.cholesky_panel.*positive-definite"):
        gnp.linalg.cholesky(gnp.array(a)).compute()


def test_small_and_stacked_matrices_are_factored_whole(workers: int) -> None:
    for a in (matrix(12), np.stack([matrix(30)] * 3)):
        factor = gnp.linalg.cholesky(gnp.array(a))
        assert [node.operator for node in gnp.explain(factor).plan.graph.nodes] == ["aten.linalg_cholesky"]
        np.testing.assert_allclose(factor.compute(), np.linalg.cholesky(a), rtol=1e-12, atol=1e-14)


def test_one_worker_factors_the_whole() -> None:
    with gnp.cluster(workers=1, backend="threads", timeout=60.0):
        factor = gnp.linalg.cholesky(gnp.array(matrix(48)))
        assert [node.operator for node in gnp.explain(factor).plan.graph.nodes] == ["aten.linalg_cholesky"]


def test_an_expression_does_not_depend_on_the_cluster_in_use() -> None:
    """It is one node, wherever it is built, and divided among those who compute it."""
    a = matrix(61)
    with gnp.cluster(workers=1, backend="threads", timeout=60.0):
        factor, tall = gnp.linalg.cholesky(gnp.array(a)), gnp.linalg.qr(gnp.array(np.ones((4000, 5))), "r")
        assert (factor.expression.operator, tall.expression.operator) == (
            "aten.linalg_cholesky",
            "girih.triangular_factor",
        )
    with gnp.cluster(workers=3, backend="threads", timeout=60.0):
        np.testing.assert_allclose(factor.compute(), np.linalg.cholesky(a), rtol=1e-10, atol=1e-12)
        assert "girih.join_panels" in {node.operator for node in gnp.explain(factor).plan.graph.nodes}
        assert "aten.linalg_qr" in {node.operator for node in gnp.explain(tall).plan.graph.nodes}


@pytest.mark.parametrize(("size", "workers"), [(3000, 2), (3001, 2), (4096, 4), (100_000, 8), (20, 7)])
def test_panels_are_about_as_wide_as_they_should_be(size: int, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panels, "WIDTH", 300)
    count, width = panels.panels_of(size, workers)
    assert width % workers == 0
    assert (count - 1) * width < size <= count * width
    assert count <= panels.MOST_PANELS
