"""What a growing graph holds, and for how long."""

from __future__ import annotations

import gc

import numpy as np
from borders import of_large

import girih.array as gnp
from girih.array.core.growth import FORCED, LIMIT, unevaluated
from girih.capture.lazy.expressions import _known

pytestmark = of_large


def test_what_is_made_on_the_way_is_let_go_at_once(two):
    """Not when the garbage collector comes: until then its tiles would lie with the workers."""
    gc.collect()
    gc.disable()
    try:
        x = gnp.array(np.arange(12.0).reshape(4, 3))
        before = len(_known)
        y = ((x + 1) * x).sum(0)
        np.testing.assert_allclose(y.compute(), [144, 188, 240])
        assert len(_known) == before + 1  # y itself
    finally:
        gc.enable()


def test_a_loop_that_never_asks_is_evaluated_now_and_then(two):
    x = gnp.array(np.full(10_000, 2.0))
    weights, steps = gnp.zeros(4), 2000
    evaluations, planned = two.evaluations, two.planned
    for _ in range(steps):
        weights = weights + (x * 0.25).mean() * 0.5
    assert two.evaluations - evaluations == steps // LIMIT
    assert two.planned - planned <= 3
    assert unevaluated(weights.expression, 10 * LIMIT) <= LIMIT
    np.testing.assert_allclose(weights.compute(), np.full(4, 0.25 * steps))


def test_large_arrays_are_cut_later(two):
    x = gnp.array(np.ones(20_000))
    before = two.evaluations
    for step in range(FORCED * LIMIT + 10):
        x = x * 0.5 + 0.5
        if step == LIMIT:
            assert two.evaluations == before
    assert two.evaluations == before + 2
    np.testing.assert_array_equal(x.compute(), np.ones(20_000))


def test_many_small_graphs_are_left_alone(two):
    x = gnp.array(np.arange(4.0))
    before = two.evaluations
    made = [x + number for number in range(3 * LIMIT)]
    assert two.evaluations == before
    assert float(made[-1].sum()) == 6.0 + 4 * (3 * LIMIT - 1)


def test_what_is_made_side_by_side_is_cut_where_it_comes_together(two):
    """A loop of k-means, whose groups are more expressions than the limit: one program, evaluated once each time."""
    groups, before = LIMIT // 6, two.evaluations
    planned = two.planned

    def run(np, x, labels):
        for step in range(1, 6):
            centres = np.stack([x[labels == group].mean(0) for group in range(groups)])
            assert np is not gnp or two.evaluations - before == step
            labels = (labels + (centres[0, 0] > 3).astype(int)) % groups
        return centres

    x, labels = np.arange(240.0).reshape(120, 2) % 7, np.arange(120) % groups
    made = run(gnp, gnp.array(x), gnp.array(labels))
    np.testing.assert_allclose(made.compute(), run(np, x, labels))
    assert two.planned - planned <= 3
