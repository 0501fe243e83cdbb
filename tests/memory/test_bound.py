"""The lower bound is below every way to hold a program that is simulated, and says more than computing alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from graphs import random_graph
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lowered_programs import alone
from run_programs import training

from girih.api import plan_graph
from girih.lower.steps import ComputeStep
from girih.machine import Machine, machine
from girih.memory.bound import bound
from girih.memory.lifetimes import lifetimes
from girih.memory.residency import floor
from girih.ops import description_of
from girih.search.holding import _Ways


def slow(rate: float) -> Machine:
    """A GPU whose copies are slow enough to matter for small tensors."""
    fast = machine("p3.2xlarge")
    assert fast.host is not None
    host = replace(fast.host, out_bytes_per_second=rate, in_bytes_per_second=1.5 * rate, both_bytes_per_second=0.0)
    return replace(fast, host=host)


@given(st.integers(0, 2**32), st.integers(3, 14), st.sampled_from([1e6, 1e8, 1e10]), st.floats(0, 1))
@settings(max_examples=40)
def test_no_way_is_faster(seed: int, nodes: int, rate: float, share: float) -> None:
    graph = random_graph(np.random.default_rng(seed), nodes)
    assume(all(description_of(graph, node) is not None for node in graph.nodes))
    lives = lifetimes(alone(graph))
    least, most = floor(lives)[0], int(lives.used.max())
    assume(least < most)
    free = plan_graph(graph, machine=slow(rate), compare=())
    ways = _Ways(replace(free, memory=least + int(share * (most - 1 - least))), None, True)
    ways.explore(again=True, note=lambda share: None)
    assert ways.bound is not None
    captured = tuple(range(len(lives.steps)))

    def order_of(sequence: tuple[int, ...] | None) -> tuple[int, ...]:
        return tuple(dict.fromkeys(captured if sequence is None else sequence))

    assert ways.best is not None
    chosen = order_of(ways.best[1].sequence)
    for (sequence, _), seconds in ways.judged.items():
        assert order_of(sequence) != chosen or seconds >= ways.bound * (1 - 1e-6)


def test_it_counts_what_has_to_go_and_come() -> None:
    lives = lifetimes(alone(training((64, 64, 64, 64))[0].graph))
    seconds = np.asarray([1e-6 * isinstance(step, ComputeStep) for step in lives.steps])
    ample = bound(lives, int(lives.used.max()), seconds, (1e9, 1e9))
    assert (ample.seconds, ample.out_bytes, ample.in_bytes) == (pytest.approx(seconds.sum()), 0.0, 0.0)
    caps = np.linspace(floor(lives)[0], lives.used.max(), 6)
    bounds = [bound(lives, int(cap), seconds, (1e8, 1e8), recompute=False) for cap in caps]
    assert [item.seconds for item in bounds] == sorted((item.seconds for item in bounds), reverse=True)
    first = bounds[0]
    assert first.seconds > 2 * first.compute
    assert first.out_bytes >= int(lives.used.max()) - floor(lives)[0] - sum(
        lives.storages[old].bytes for old, new in lives.state if old == new
    )
    assert bound(lives, int(caps[0]), seconds, (1e8, 1e8)).seconds <= first.seconds
    assert bound(lives, int(caps[0]), seconds, (0.0, 0.0), recompute=False).seconds == np.inf
