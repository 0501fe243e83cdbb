"""The one rule by which plans are accepted: faster than all before, and within the limits of memory."""

from graphs import perceptron

from girih.api import plan_graph
from girih.search.judge import DEVICE, FAILED, Best, Judge


def test_the_best_is_faster_than_all_before_it_and_keeps_its_limit() -> None:
    plan = plan_graph(perceptron(4, 8, 8), machine="local:1", objective="bytes", compare=())
    best = Best(Judge(plan))
    small = plan.but(memory=plan.peak - 1)
    assert best.offer(small) == best.offer(small, 0.0) == FAILED * plan.peak
    assert best.plan is None
    assert best.judge.smallest == (DEVICE, plan.peak)
    kept = plan.but(memory=plan.peak)
    seconds = best.offer(kept)
    assert best.plan is kept
    assert best.seconds == seconds == plan.predict().seconds
    best.offer(plan.but(memory=None))  # as fast as the first, which stays
    assert best.plan is kept
    best.offer(small, seconds / 2)
    assert best.plan is kept
    faster = plan.but(notes=("faster",))
    assert best.offer(faster, seconds / 2) == seconds / 2
    assert best.plan is faster
