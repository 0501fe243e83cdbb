"""Sparse matrices: SciPy's values, what moves between workers, equal shares of a skewed matrix, what raises by name."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import girih.array as gnp

RNG = np.random.default_rng(3)
SKEWED = sparse.random(60, 40, 0.1, format="lil", random_state=1)
SKEWED[7] = RNG.normal(size=40)
SKEWED = SKEWED.tocsr()
DENSE = SKEWED.toarray()
X, Y = RNG.normal(size=(40, 3)), RNG.normal(size=(60, 4))


@pytest.fixture(scope="module")
def matrix(cluster):
    return gnp.from_scipy(SKEWED)


def test_products(matrix):
    for made, expected in (
        (matrix @ X, DENSE @ X),
        (matrix @ gnp.array(X), DENSE @ X),
        (matrix @ X[:, 0], DENSE @ X[:, 0]),
        (matrix.T @ Y, DENSE.T @ Y),
        (Y.T @ matrix, Y.T @ DENSE),
        (gnp.array(Y).T @ matrix, Y.T @ DENSE),
        (Y[:, 0] @ matrix, Y[:, 0] @ DENSE),
        (matrix.T @ (matrix @ X * 2.0 + 1.0), DENSE.T @ (DENSE @ X * 2.0 + 1.0)),
        (matrix @ X.astype(np.float32), DENSE @ X.astype(np.float32)),
    ):
        assert made.dtype == expected.dtype
        np.testing.assert_allclose(made.compute(), expected, atol=1e-12)


def test_by_element(matrix):
    mask = RNG.random(DENSE.shape) > 0.5
    for made, expected in (
        (matrix * 2, DENSE * 2),
        (2 * matrix / 3, 2 * DENSE / 3),
        (-(matrix**2), -(DENSE**2)),
        (abs(matrix), abs(DENSE)),
        (matrix * mask, DENSE * mask),
        (matrix.multiply(X[:, 0]), DENSE * X[:, 0]),
        (gnp.array(Y[:, :1]) * matrix, DENSE * Y[:, :1]),
        (matrix / (Y[:, :1] ** 2 + 1), DENSE / (Y[:, :1] ** 2 + 1)),
        (matrix * gnp.array(DENSE), DENSE * DENSE),
        (matrix.map(gnp.tanh), np.tanh(DENSE)),
        (matrix.astype(np.float32), DENSE.astype(np.float32)),
        (matrix.map(lambda values: gnp.where(values > 0.5, values, 0.0)), np.where(DENSE > 0.5, DENSE, 0.0)),
    ):
        assert made.nnz == SKEWED.nnz
        np.testing.assert_allclose(made.compute().toarray(), expected, rtol=1e-6)
        np.testing.assert_allclose(made.toarray().compute(), expected, rtol=1e-6)


def test_sums(matrix):
    for axis in (None, 0, 1, -1):
        np.testing.assert_allclose(matrix.sum(axis).compute(), DENSE.sum(axis))
        np.testing.assert_allclose(matrix.mean(axis).compute(), DENSE.mean(axis))
    np.testing.assert_array_equal(matrix.getnnz(0).compute(), SKEWED.getnnz(0))
    np.testing.assert_array_equal(matrix.getnnz(1).compute(), SKEWED.getnnz(1))
    assert matrix.getnnz() == matrix.nnz == SKEWED.nnz
    truth = gnp.from_scipy(SKEWED != 0)
    assert truth.sum(0).dtype == np.int64
    np.testing.assert_array_equal(truth.sum(0).compute(), (DENSE != 0).sum(0))
    np.testing.assert_array_equal(truth.toarray().compute(), DENSE != 0)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "bsr"])
def test_formats(form):
    matrix = SKEWED.asformat(form)
    made = gnp.from_scipy(matrix)
    np.testing.assert_array_equal(made.toarray().compute(), DENSE)
    assert made.shape == (60, 40)
    assert made.nbytes == made.nnz * 16


def test_duplicates_empty_rows_and_nothing_stored(two):
    twice = sparse.coo_array(([1.0, 2.0, 4.0], ([1, 1, 3], [0, 0, 2])), shape=(5, 3))
    made = gnp.from_scipy(twice)
    assert made.nnz == 2
    np.testing.assert_array_equal((made @ np.ones(3)).compute(), [0, 3, 0, 4, 0])
    nothing = gnp.from_scipy(sparse.csr_array((5, 3)))
    np.testing.assert_array_equal((nothing @ np.ones((3, 2))).compute(), np.zeros((5, 2)))
    np.testing.assert_array_equal(nothing.sum(0).compute(), np.zeros(3))
    assert float((nothing * 2).sum()) == 0.0
    np.testing.assert_array_equal(nothing.toarray().compute(), np.zeros((5, 3)))


def test_later_writes_are_not_seen():
    matrix = SKEWED.copy()
    made = gnp.from_scipy(matrix)
    matrix.data[:] = 0
    np.testing.assert_array_equal(made.toarray().compute(), DENSE)


def test_workers_have_equal_shares_of_a_skewed_matrix(two):
    """Half of the stored elements lie in one of 20,000 rows; each worker has half of them; two vectors are moved."""
    count = 20_000
    rows = np.concatenate([np.zeros(count, int), np.arange(count)])
    columns = np.tile(np.arange(count), 2)
    matrix = gnp.from_scipy(sparse.coo_array((RNG.normal(size=2 * count), (rows, columns)), (count, count)))
    y = matrix @ gnp.ones(count)
    y.persist()
    shares = [tiles[matrix.values.expression.kept.key] for tiles in two.run.tiles()]
    assert max(shares) - min(shares) <= 8
    assert int(y.expression.kept.plan.bytes_received.sum()) <= 2 * 8 * count
    np.testing.assert_allclose(y.compute(), matrix.to_scipy() @ np.ones(count))


def test_power_iteration_plans_once(two):
    """Page ranks: the loop's structure is planned once, and only vectors are moved."""
    links = sparse.csr_array((DENSE[:40] != 0).astype(float))
    matrix = gnp.from_scipy(links)
    out = gnp.maximum(matrix.sum(1), 1.0)
    rank, expected = gnp.full(40, 1 / 40), np.full(40, 1 / 40)
    planned = []
    for _ in range(4):
        rank = 0.85 * (matrix.T @ (rank / out)) + 0.15 / 40
        rank.persist()
        planned.append(two.planned)
        expected = 0.85 * (links.T @ (expected / np.maximum(links.sum(1), 1.0))) + 0.15 / 40
    np.testing.assert_allclose(rank.compute(), expected)
    assert planned[-1] == planned[-2]


def test_what_is_not_there_is_said_by_name():
    matrix = gnp.from_scipy(SKEWED)
    for wrong, said in (
        (lambda: matrix + 1, "would make a dense array"),
        (lambda: gnp.array(X) - matrix, "use toarray"),
        (lambda: matrix > 0, "would make a dense array"),
        (lambda: matrix == 0, "would make a dense array"),
        (lambda: 1 / matrix, "would make a dense array"),
        (lambda: matrix**-1, "expected a positive number"),
        (lambda: matrix @ matrix.T, "sparse @ sparse"),
        (lambda: matrix * matrix, "sparse \\* sparse"),
        (lambda: matrix[3], "indexing a sparse matrix"),
        (lambda: gnp.sqrt(matrix), "use toarray"),
        (lambda: gnp.array(SKEWED), "from_scipy"),
        (lambda: gnp.from_scipy(DENSE), "expected a sparse matrix of SciPy, got ndarray"),
    ):
        with pytest.raises(TypeError, match=said):
            wrong()
    with pytest.raises(ValueError, match=r"size 60 is different from 40"):
        matrix @ Y
