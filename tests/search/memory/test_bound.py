"""The lower bound of a step within a memory cap: by hand, below every residency and below the exact optimum."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from counts import random_cases
from graphs import Maker, machine_of, perceptron, random_graph
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lowered_programs import alone
from run_programs import training

from girih.api import plan_graph
from girih.cost.prices import Prices
from girih.graph import Graph, Output, Ref
from girih.machine import Machine, machine
from girih.machine.machine import Tier
from girih.ops import description_of
from girih.program import ComputeStep
from girih.program.life.accounts import host_bytes
from girih.program.life.lifetimes import Lifetimes, lifetimes
from girih.program.moves.moves import moved
from girih.program.moves.residency import Residency, floor
from girih.search.memory import bound as bound_module
from girih.search.memory.belady import belady
from girih.search.memory.bound import MemoryBound, memory_bound
from girih.search.memory.holding import _Ways
from girih.search.memory.roc import optimum
from girih.simulate.simulate import makespan

HOST = Tier("host", 1 << 40, 1e6, 1e6)
STEP = 2.0**-17  # seconds of each step: whole ticks of the simulator


def bound_of(lives: Lifetimes, cap: int, host: Tier | None = HOST, **options: Any) -> MemoryBound:
    return memory_bound(lives, cap, np.full(len(lives.steps), STEP), host, **options)


def simulated(lives: Lifetimes, cap: int, residency: Residency, host: Tier) -> float:
    program = moved(lives, residency, cap)
    # Each step of the program without movements takes its time once; views that are looked at anew take none.
    costs, seen = np.zeros((len(program.steps), 1)), set()
    for at, step in enumerate(program.steps):
        if isinstance(step, ComputeStep) and step.node not in seen:
            seen.add(step.node)
            costs[at] = STEP
    machine = replace(machine_of(()), host=host)
    return makespan(program, machine, Prices(costs, np.zeros_like(costs)))


def caps(lives: Lifetimes) -> list[int]:
    least, most = floor(lives)[0], int(lives.used.max())
    return sorted({least, (2 * least + most) // 3, (least + 2 * most) // 3})


def known(seed: int, nodes: int) -> Graph:
    graph = random_graph(np.random.default_rng(seed), nodes)
    assume(all(description_of(graph, node) is not None for node in graph.nodes))
    return graph


@given(
    st.integers(0, 2**32),
    st.integers(1, 14),
    st.sampled_from([0.0, 1.5 * STEP, 4 * STEP]),
    st.sampled_from([HOST, replace(HOST, in_bytes_per_second=3e5, latency_seconds=2e-5),
                     replace(HOST, both_bytes_per_second=1.2e6), replace(HOST, out_bytes_per_second=1e9)]),
)  # fmt: skip
@settings(max_examples=random_cases(100))
def test_no_residency_is_faster_than_the_bound(seed: int, nodes: int, recent: float, host: Tier) -> None:
    lives = lifetimes(alone(known(seed, nodes)))
    for cap in caps(lives):
        residency = belady(lives, cap, np.full(len(lives.steps), STEP), recent)
        bound = bound_of(lives, cap, host)
        assert bound.compute == pytest.approx(STEP * len(lives.steps))
        seconds = simulated(lives, cap, residency, host)
        assert bound.compute <= bound.seconds <= seconds * (1 + 1e-9)
        again = bound_of(lives, cap, host, recompute=True)
        assert bound.compute <= again.seconds <= bound.seconds * (1 + 1e-4)
        needed = host_bytes(moved(lives, residency, cap))  # a large memory that is no larger than that
        assert bound_of(lives, cap, replace(host, memory_bytes=needed)).seconds <= seconds * (1 + 1e-9)


@given(st.integers(0, 2**32), st.integers(1, 8), st.sampled_from([1.0, 0.1, 10.0]))
@settings(max_examples=random_cases(60))
def test_the_bound_is_below_the_exact_optimum_which_is_below_the_planner(seed: int, nodes: int, ratio: float) -> None:
    lives = lifetimes(alone(known(seed, nodes)))
    host = replace(HOST, out_bytes_per_second=ratio * 1e6)
    for cap in caps(lives):
        front = optimum(lives, cap)
        residency = belady(lives, cap, np.full(len(lives.steps), STEP))
        out, back = residency.copied_bytes(lives.touches)
        assert any(best[0] <= out and best[1] <= back for best in front)
        bound = bound_of(lives, cap, host, splits=0)
        rates = host.out_bytes_per_second, host.in_bytes_per_second
        fastest = min(max(bound.compute, best[0] / rates[0], best[1] / rates[1]) for best in front)
        assert bound.seconds <= fastest * (1 + 1e-9)


@given(st.integers(0, 2**32), st.integers(1, 14))
@settings(max_examples=random_cases(40))
def test_the_bound_falls_with_the_cap_and_is_computing_where_all_fits(seed: int, nodes: int) -> None:
    lives = lifetimes(alone(known(seed, nodes)))
    least, most = floor(lives)[0], int(lives.used.max())
    bounds = [bound_of(lives, cap) for cap in np.linspace(least, most, 5).astype(int)]
    for before, after in pairwise(bounds):
        assert after.seconds <= before.seconds * (1 + 1e-4)
    assert bounds[-1] == MemoryBound(bounds[-1].compute, bounds[-1].compute, 0, 0, "compute")


def waiting(extra: int = 0) -> Lifetimes:
    """`a` of 400 bytes is made first and read last; between, three pairs of 400 bytes are alive beside it."""
    make = Maker()
    x = make.input((100,))
    a = make.emit("aten.relu", (100,), self=Ref(x))
    last = a
    for _ in range(3 + extra):
        wave = make.emit("aten.sin", (100,), self=Ref(last))
        last = make.emit("aten.rsub.Tensor", (100,), self=Ref(last), other=Ref(wave))  # takes over nothing
    b = make.emit("aten.sum.dim_IntList", (), self=Ref(last), dim=(0,), keepdim=False)
    c = make.emit("aten.mul.Tensor", (100,), self=Ref(a), other=Ref(b))
    return lifetimes(alone(make.graph([Output(c, "result")])))


def test_a_value_that_waits_is_copied_as_far_as_it_has_to() -> None:
    lives = waiting()
    assert (floor(lives)[0], int(lives.used.max())) == (1200, 1600)
    slow = replace(HOST, out_bytes_per_second=1e3, in_bytes_per_second=2e3)
    assert bound_of(lives, 1199, slow).seconds == np.inf
    assert bound_of(lives, 1200, None).seconds == np.inf
    whole = bound_of(lives, 1200, slow)
    assert (whole.out_bytes, whole.in_bytes, whole.busiest) == (400, 400, "copy out")
    assert whole.seconds == pytest.approx(0.6, rel=1e-3)  # out, and then in
    assert bound_of(lives, 1200, slow, splits=0).seconds == pytest.approx(0.4, rel=1e-4)
    half = bound_of(lives, 1400, slow, splits=0)  # relaxed: the half of it
    assert (half.out_bytes, half.in_bytes) == (200, 200)
    assert half.seconds == pytest.approx(0.2, rel=1e-4)


def test_what_is_cheap_to_make_is_made_again() -> None:
    slow = replace(HOST, out_bytes_per_second=1e3, in_bytes_per_second=1e3)
    lives = waiting()
    again = bound_of(lives, 1200, slow, recompute=True)
    assert again.busiest == "compute"
    assert again.compute == pytest.approx(STEP * len(lives.steps))
    assert again.seconds == pytest.approx(STEP * (len(lives.steps) + 1), rel=1e-3)
    assert (again.out_bytes, again.in_bytes) == pytest.approx((0, 0), abs=1)


def test_what_the_large_memory_does_not_hold_is_made_again() -> None:
    fast, lives = replace(HOST, out_bytes_per_second=1e15, in_bytes_per_second=1e15), waiting()
    computing = STEP * len(lives.steps)
    assert bound_of(lives, 1200, fast, recompute=True).seconds == pytest.approx(computing, rel=1e-5)
    small = replace(fast, memory_bytes=100)  # of 400 bytes that have to be away
    assert bound_of(lives, 1200, small).seconds == np.inf
    assert bound_of(lives, 1200, small, recompute=True).seconds == pytest.approx(computing + 0.75 * STEP, rel=1e-3)


def test_a_weight_that_nothing_replaces_is_only_copied_in() -> None:
    make = Maker()
    x = make.input((100,))
    w = make.input((100,), "parameter")
    last = make.emit("aten.mul.Tensor", (100,), self=Ref(x), other=Ref(w))
    for _ in range(3):
        wave = make.emit("aten.sin", (100,), self=Ref(last))
        last = make.emit("aten.rsub.Tensor", (100,), self=Ref(last), other=Ref(wave))  # takes over nothing
    lives = lifetimes(alone(make.graph([Output(last, "result")])))
    assert (floor(lives)[0], int(lives.used.max())) == (1200, 1600)
    bound = bound_of(lives, 1200, replace(HOST, out_bytes_per_second=1.0, in_bytes_per_second=1e3))
    assert (bound.out_bytes, bound.in_bytes, bound.busiest) == (0, 400, "copy in")
    assert bound.seconds == pytest.approx(0.4, rel=1e-4)


def test_the_latency_of_copies_counts() -> None:
    lives = waiting()
    late = replace(HOST, latency_seconds=1.0)
    assert bound_of(lives, 1200, late, splits=0).seconds == pytest.approx(1 + 400 / 1e6, rel=1e-4)
    assert bound_of(lives, 1200, late).seconds == pytest.approx(2 + 800 / 1e6, rel=1e-3)


def test_constraints_of_few_steps_are_refined(monkeypatch: pytest.MonkeyPatch) -> None:
    lives = lifetimes(alone(perceptron(20, 8, 8)))
    cap = (floor(lives)[0] + int(lives.used.max())) // 2
    every = bound_of(lives, cap, splits=0)
    assert every.out_bytes > 0
    monkeypatch.setattr("girih.search.memory.bound.SAMPLE", 1)
    assert bound_of(lives, cap, splits=0).seconds == pytest.approx(every.seconds, rel=1e-3)
    monkeypatch.setattr("girih.search.memory.bound.ROUNDS", 0)
    assert bound_of(lives, cap, splits=0).seconds < 0.99 * every.seconds


def test_what_is_alike_is_one_variable_and_changes_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    lives = lifetimes(alone(perceptron(20, 8, 8)))
    cap = (floor(lives)[0] + int(lives.used.max())) // 2
    sizes: list[int] = []
    solved = bound_module._Program.solved
    monkeypatch.setattr(
        bound_module._Program, "solved", lambda self, goal: sizes.append(self.variables) or solved(self, goal)
    )
    together, count = bound_of(lives, cap, recompute=True), len(sizes)

    def every(*columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(len(columns[0])), np.arange(len(columns[0]))

    monkeypatch.setattr(bound_module, "_alike", every)
    apart = bound_of(lives, cap, recompute=True)
    assert sizes[count - 1] < sizes[-1]
    assert together.seconds == pytest.approx(apart.seconds, rel=1e-6)


def slow(rate: float) -> Machine:
    """A GPU whose copies are slow enough to matter for small tensors."""
    fast = machine("p3.2xlarge")
    assert fast.host is not None
    host = replace(fast.host, out_bytes_per_second=rate, in_bytes_per_second=1.5 * rate, both_bytes_per_second=0.0)
    return replace(fast, host=host)


@given(st.integers(0, 2**32), st.integers(3, 14), st.sampled_from([1e6, 1e8, 1e10]), st.floats(0, 1), st.booleans())
@settings(max_examples=random_cases(40))
def test_no_way_of_the_search_is_faster(seed: int, nodes: int, rate: float, share: float, moving: bool) -> None:
    """What moves, computes again and orders early, judged by the simulator."""
    graph = known(seed, nodes)
    lives = lifetimes(alone(graph))
    least, most = floor(lives)[0], int(lives.used.max())
    assume(least < most)
    free = plan_graph(graph, machine=slow(rate), compare=(), objective="bytes")
    ways = _Ways(free.but(memory=least + int(share * (most - 1 - least))), None, moving)
    ways.explore(again=True, note=lambda share: None)
    captured = tuple(range(len(lives.steps)))

    def order_of(sequence: tuple[int, ...] | None) -> tuple[int, ...]:
        return tuple(dict.fromkeys(captured if sequence is None else sequence))

    if ways.best.plan is None:
        return
    assert ways.bound is not None
    chosen = order_of(ways.best.plan.choice.sequence)
    for (sequence, _, _), seconds in ways.judged.items():
        assert order_of(sequence) != chosen or seconds >= ways.bound * (1 - 1e-6)


def test_a_training_step_has_to_copy_out_and_in() -> None:
    lives = lifetimes(alone(training((64, 64, 64, 64))[0].graph))
    caps = np.linspace(floor(lives)[0], lives.used.max(), 6)
    bounds = [bound_of(lives, int(cap), replace(HOST, out_bytes_per_second=1e8)) for cap in caps]
    assert [item.seconds for item in bounds] == sorted((item.seconds for item in bounds), reverse=True)
    first = bounds[0]
    assert first.seconds > 2 * first.compute
    unchanged = sum(lives.storages[old].bytes for old, new in lives.state if old == new)
    assert first.out_bytes >= int(lives.used.max()) - floor(lives)[0] - unchanged
