"""Users' functions on tiles: the same results however arrays are cut, in threads and in processes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import girih.array as gnp

SETTINGS = settings(max_examples=8, deadline=None, derandomize=True, database=None)
SHAPES = st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple)


def data(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def norm(tile, axis):
    return np.sqrt((tile**2).sum(axis))


def test_map(cluster):
    @SETTINGS
    @given(SHAPES, st.data())
    def check(shape, more):
        other = tuple(more.draw(st.sampled_from([1, size])) for size in shape)[more.draw(st.integers(0, 1)) :]
        a, b = data(shape), data(other, 1)
        made = gnp.map(lambda x, y, k: np.where(x > y, x, k * y), gnp.array(a), gnp.array(b), 3)
        np.testing.assert_array_equal(made.compute(), np.where(a > b, a, 3 * b))
        assert made.dtype == np.float64

    check()


def test_fold_and_scan(cluster):
    @SETTINGS
    @given(SHAPES, st.data())
    def check(shape, more):
        axis = more.draw(st.integers(-len(shape), len(shape) - 1))
        a = data(shape)
        x = gnp.array(a)
        np.testing.assert_allclose(gnp.fold(np.add, x, axis).compute(), a.sum(axis))
        np.testing.assert_allclose(gnp.fold(np.minimum, x, axis).compute(), a.min(axis))
        np.testing.assert_allclose(gnp.fold(norm, x, axis).compute(), norm(a, axis))
        largest = gnp.fold(lambda tile, axis: np.abs(tile).max(axis), x, axis, "max")
        np.testing.assert_allclose(largest.compute(), np.abs(a).max(axis))
        np.testing.assert_allclose(gnp.scan(np.add, x, axis).compute(), a.cumsum(axis))
        np.testing.assert_array_equal(gnp.scan(np.maximum, x, axis).compute(), np.maximum.accumulate(a, axis))
        last = gnp.scan(lambda tile, axis: tile, x, axis, lambda before, tile: tile + 0 * before)
        np.testing.assert_array_equal(last.compute(), a)
        powers = gnp.scan(np.cumprod, gnp.array(a > 0), axis, "prod", dtype=np.int64)
        np.testing.assert_array_equal(powers.compute(), (a > 0).cumprod(axis))

    check()


def test_join_update(cluster):
    @SETTINGS
    @given(*[st.integers(1, 9)] * 3)
    def check(n, k, m):
        a, b = data((n, k)), data((k, m), 1)
        x, y = gnp.array(a), gnp.array(b)
        ways = [
            gnp.join_update(np.dot, x, y, axis=(1, 0), shape=(n, m)),
            gnp.join_update(np.dot, x, y, axis=(0, -1), shape=(n, m), along=0),
            gnp.join_update(np.dot, x, y, axis=(-1, 1), shape=(n, m), along=1),
            gnp.join_update(
                lambda rows, t, whole: ((rows.start, 0), t @ whole), x, y, axis=(0, -1), shape=(n, m), location=True
            ),
        ]
        for made in ways:
            np.testing.assert_allclose(made.compute(), a @ b, atol=1e-12)
        kinds = np.arange(n) % 3
        largest = gnp.join_update(
            lambda t, kind: np.stack([np.where((kind == c)[:, None], t, -np.inf).max(0) for c in range(3)]),
            x, gnp.array(kinds), axis=0, shape=(3, k), accumulate="max",
        )  # fmt: skip
        expected = np.stack([np.max(a[kinds == c], axis=0, initial=-np.inf) for c in range(3)])
        np.testing.assert_array_equal(largest.compute(), expected)

    check()


def test_filter_newarray_and_views(cluster):
    a = data((11, 4))
    x = gnp.array(a)
    np.testing.assert_array_equal(gnp.filter(lambda t: t > 0, x).compute(), a[a > 0])
    np.testing.assert_array_equal(gnp.filter(x[:, 0] > 0, x).compute(), a[a[:, 0] > 0])
    np.testing.assert_allclose(float(gnp.filter(lambda t: t > 0, x).sum()), a[a > 0].sum())
    np.testing.assert_array_equal(gnp.slice(x, [(2, 7), (0, 3)]).compute(), a[2:7, :3])
    np.testing.assert_array_equal(gnp.swapaxis(x, 0, 1).compute(), a.T)
    table = gnp.newarray((6, 7), lambda i, j: np.hypot(i, j))
    np.testing.assert_array_equal(table.compute(), np.fromfunction(np.hypot, (6, 7)))
    np.testing.assert_array_equal(gnp.newarray(3, 2, np.int32).compute(), np.full(3, 2, np.int32))


def test_lambdas_and_what_they_refer_to_work_in_processes():
    offset = data(4)
    with gnp.cluster(workers=2, backend="processes", timeout=60.0) as two:
        x = gnp.array(data((50, 4)))
        for factor in (2.0, 3.0, 4.0):
            made = gnp.map(lambda t, k: t * k + offset, x, factor)
            np.testing.assert_allclose(made.compute(), x.compute() * factor + offset)
        assert two.planned == 2  # with x in memory, then with x in tiles: a number among the arrays changes no plan
        np.testing.assert_allclose(gnp.fold(norm, x).compute(), norm(x.compute(), 0))


def test_equal_calls_are_one_expression(two):
    x = gnp.array(data(5))
    first, second = (gnp.map(np.exp, x) for _ in range(2))
    assert first.expression is second.expression
    assert gnp.map(np.sin, x).expression is not first.expression


def bytes_of(made):
    return gnp.explain(made).bytes


def test_what_moves_is_what_the_operator_says():
    rows, columns, features = 400, 32, 96
    with gnp.cluster(workers=2, backend="threads"):
        x = gnp.array(data((rows, columns)))
        y = gnp.array(data((rows, features)))
        assert bytes_of(gnp.map(np.add, x, x[::-1] * 1)) <= x.nbytes
        assert bytes_of(gnp.fold(norm, x)) <= 2 * columns * 8
        assert bytes_of(gnp.scan(np.add, x)) <= 8 * columns * 8
        product = gnp.join_update(lambda s, t: s.T @ t, x, y, axis=(0, 0), shape=(columns, features))
        assert 0 < bytes_of(product) <= 2 * columns * features * 8
        along = gnp.join_update(lambda s, t: s[:, :1] + t, x, y, axis=0, shape=(rows, features), along=0)
        assert bytes_of(along) == 0


ERRORS = [
    (
        lambda x: gnp.map(lambda t: t.sum(), x, dtype=float).compute(),
        gnp.EvaluationError,
        r"test_tile_functions.py:\d+",
    ),
    (lambda x: gnp.map(lambda t: t.sum(), x, dtype=float).compute(), gnp.EvaluationError, r"expected \(\d, 5\)"),
    (lambda x: gnp.map(lambda t: np.add(t, 1, out=t), x, dtype=float).compute(), gnp.EvaluationError, "read-only"),
    (lambda x: gnp.map(lambda t: 1 / 0, x), TypeError, "give dtype="),
    (lambda x: gnp.map(3, x), TypeError, "is no function"),
    (lambda x: gnp.map(np.sin), TypeError, "at least one array"),
    (lambda x: gnp.fold(norm, x, combine="mean"), TypeError, "expected one of"),
    (lambda x: gnp.fold(norm, x, 2), np.exceptions.AxisError, "out of bounds"),
    (lambda x: gnp.scan(np.cumsum, x), TypeError, "combine=None"),
    (lambda x: gnp.join_update(np.dot, x, x, shape=(6, 6)), ValueError, "every axis is -1"),
    (lambda x: gnp.join_update(np.dot, x, x, axis=(0, 1), shape=(6, 6)), ValueError, r"\[5, 6\] elements"),
    (lambda x: gnp.join_update(np.sum, x, axis=0, shape=(5,), along=0), ValueError, "the tiles 6"),
    (lambda x: gnp.join_update(np.sum, x, axis=0, shape=(), accumulate="mean"), ValueError, "expected one of"),
    (
        lambda x: gnp.join_update(lambda t: ((5, 0), t), x, axis=0, shape=(6, 5)).compute(),
        gnp.EvaluationError,
        "outside of",
    ),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number):
    call, kind, words = ERRORS[number]
    with gnp.cluster(workers=2, backend="threads"), pytest.raises(kind, match=words):
        call(gnp.array(data((6, 5))))
