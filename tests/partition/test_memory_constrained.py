"""A hard cap on memory: met by the cheapest strategy where one does, else refused; bounds hold for every strategy."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise, product
from math import prod
from typing import Any

import numpy as np
import pytest
import torch
from counts import random_cases
from graphs import machine_of, perceptron, random_graph, random_labels
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from girih.capture import TrainingStep, capture
from girih.graph import Graph
from girih.machine.names import machine
from girih.partition.searches.exact import exact
from girih.partition.solver.elimination import cost_of
from girih.partition.solver.held import COMPUTE, Exchanged, HeldTables, Liveness, moments
from girih.partition.solver.memory_constrained import (
    CannotFitError,
    Effort,
    Front,
    Measured,
    answer,
    front_of,
    least_peak,
    memory_constrained,
)
from girih.partition.space.options import SECONDS, TOFU, Rules
from girih.partition.space.problem import Objective, PartitionProblem, build
from girih.partition.strategy import SearchResult, Strategy
from girih.program import lower
from girih.program.life.accounts import memory_use
from girih.program.life.staging import exchange_bytes

NO_ORDER = Effort(small=0, least=4, coarse=2, fine=2, rounds=2)
"""Prices alone: without the search of all strategies in the order of their costs."""


def measurer(graph: Graph, objective: Objective) -> Callable[[Strategy], Measured]:
    def measure(strategy: Strategy) -> Measured:
        program = lower(graph, strategy, objective.transfers)
        worst = max((memory_use(program, d) for d in range(program.mesh.devices)), key=lambda use: use.peak)
        return Measured(worst.peak, worst.at)

    return measure


def exchanging(objective: Objective) -> Exchanged:
    last = objective.machine.devices - 1
    return lambda value, source, target, dense, kept: exchange_bytes(
        objective.transfers, value, source, target, last, dense, kept
    )


def plain_rules(objective: Objective) -> Rules:
    return SECONDS if objective.name == "seconds" else TOFU


def plain_problem(graph: Graph, objective: Objective) -> PartitionProblem:
    return build(graph, objective, plain_rules(objective))


def front(graph: Graph, objective: Objective, **options: Any) -> Front:
    rules = plain_rules(objective)
    return front_of(graph, objective, measurer(graph, objective), exchanging(objective), rules=rules, **options)


def attempt(found: Front, cap: int) -> SearchResult | CannotFitError:
    try:
        return answer(found, cap)
    except CannotFitError as error:
        return error


def every_strategy(graph: Graph, objective: Objective) -> list[tuple[float, int]]:
    """(cost, peak) of all labelings."""
    problem = plain_problem(graph, objective)
    assume(prod(problem.problem.domains) <= 1000)
    measure = measurer(graph, objective)
    found = []
    for labels in product(*map(range, problem.problem.domains)):
        cost = cost_of(problem.problem, np.asarray(labels))
        if np.isfinite(cost):
            found.append((cost, measure(problem.strategy(np.asarray(labels))).peak))
    return found


@given(st.integers(0, 2**32), st.integers(1, 3), st.sampled_from(["bytes", "seconds"]))
@settings(max_examples=random_cases(30), suppress_health_check=list(HealthCheck))
def test_small_graphs_have_the_optimum_for_every_cap(seed: int, nodes: int, name: str) -> None:
    graph = random_graph(np.random.default_rng(seed), nodes)
    objective = Objective(name, machine_of((2,)))
    every = every_strategy(graph, objective)
    found = front(graph, objective)
    assert found.whole
    for cap in sorted({peak for _, peak in every}):
        least = min(cost for cost, peak in every if peak <= cap)
        told = answer(found, cap).certificate
        assert told.cost == pytest.approx(least, rel=1e-9, abs=1e-15)
        assert told.bound == pytest.approx(least, rel=1e-9, abs=1e-15)
        assert told.stopped == "optimal"
    smallest = min(peak for _, peak in every)
    with pytest.raises(CannotFitError, match="the least peak found is") as caught:
        answer(found, smallest - 1)
    assert caught.value.smallest == caught.value.bound == smallest


@given(st.integers(0, 2**32), st.integers(1, 3), st.sampled_from(["bytes", "seconds"]))
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
def test_bounds_by_prices_hold_for_every_strategy_that_fits(seed: int, nodes: int, name: str) -> None:
    graph = random_graph(np.random.default_rng(seed), nodes)
    objective = Objective(name, machine_of((2,)))
    every = every_strategy(graph, objective)
    found = front(graph, objective, effort=NO_ORDER)
    assert not found.whole
    assert least_peak(found, 60.0) <= min(peak for _, peak in every)
    for cap in sorted({peak for _, peak in every}):
        least = min(cost for cost, peak in every if peak <= cap)
        assert found.bound(cap) <= least * (1 + 1e-9)
        result = attempt(found, cap)
        if isinstance(result, CannotFitError):  # prices did not find it
            assert result.bound <= cap < result.smallest
            continue
        assert measurer(graph, objective)(result.strategy).peak <= cap
        assert result.certificate.bound <= result.certificate.cost
        assert result.certificate.cost >= least * (1 - 1e-9)


@given(
    st.integers(0, 2**32),
    st.integers(1, 8),
    st.sampled_from([(2,), (3,), (2, 2)]),
    st.sampled_from(["bytes", "seconds"]),
)
@settings(max_examples=random_cases(60), suppress_health_check=list(HealthCheck))
def test_what_is_priced_at_a_moment_is_never_more_than_the_peak(seed: int, nodes: int, sizes: tuple, name: str) -> None:
    """Else the Lagrangian bound would not hold."""
    random = np.random.default_rng(seed)
    graph = random_graph(random, nodes)
    objective = Objective(name, machine_of(sizes))
    plain = plain_problem(graph, objective)
    labels = random_labels(plain, random)
    cost = cost_of(plain.problem, labels)
    assume(np.isfinite(cost))
    peak = measurer(graph, objective)(plain.strategy(labels)).peak
    tables = HeldTables(plain, exchanging(objective))
    for moment in moments(graph):
        held = tables.bytes(moment, labels)
        assert held <= peak
        assert cost_of(tables.priced({moment: 1.0}), labels) - cost == pytest.approx(held, abs=1e-6)


def test_what_is_priced_is_what_peaks_where_nothing_moves() -> None:
    graph, objective = perceptron(2, 16, 16), Objective("seconds", machine_of((2,)))
    whole = (-1,)
    divisions, layouts = (whole,) * len(graph.nodes), dict.fromkeys(graph.values, whole)
    strategy = Strategy.of_codes(objective.machine.mesh, divisions, layouts)
    measured = measurer(graph, objective)(strategy)
    problem = plain_problem(graph, objective)
    labels = problem.labels(strategy)
    assert labels is not None
    tables = HeldTables(problem, exchanging(objective))
    held = {moment: tables.bytes(moment, labels) for moment in moments(graph)}
    assert max(held.values()) == measured.peak
    assert max(held, key=lambda moment: held[moment]) == (measured.at, COMPUTE)


def test_the_moments_of_a_node() -> None:
    """A product whose operands are read for the last time: fetched one after the other, computed, stored."""
    graph = perceptron(1, 16, 16)
    alive = Liveness(graph)
    assert alive.held((-1, COMPUTE)).values == ("x", "w0")
    assert alive.held((0, 0)).exchange == (0, 0)
    assert alive.held((0, COMPUTE)).pieces[0, ~0] is False
    assert alive.held((0, ~0)).exchange == (0, ~0)
    assert moments(graph)[:5] == [(-1, COMPUTE), (0, 0), (0, 1), (0, COMPUTE), (0, ~0)]


@pytest.mark.parametrize("name", ["bytes", "seconds"])
@pytest.mark.parametrize("sizes", [(2,), (2, 2)])
def test_caps_on_a_perceptron_from_loose_to_impossible(name: str, sizes: tuple[int, ...]) -> None:
    graph, objective = perceptron(3, 128, 128), Objective(name, machine_of(sizes))
    measure, moving, rules = measurer(graph, objective), exchanging(objective), plain_rules(objective)
    free = exact(graph, objective)
    loose = measure(free.strategy).peak
    found = front(graph, objective, first=free, effort=NO_ORDER)
    least = found.least().measured.peak
    costs = []
    for cap in (loose, loose - 1, (loose + least) // 2, least):
        if cap < least:
            continue
        result = answer(found, cap)
        assert measure(result.strategy).peak <= cap
        assert result.certificate.bound <= result.certificate.cost
        assert result.certificate.cost >= free.certificate.bound
        assert result.certificate.bound >= free.certificate.bound * (1 - 1e-9)
        costs.append(result.certificate.cost)
    assert costs == sorted(costs)
    assert costs[0] == pytest.approx(free.certificate.cost, rel=1e-12)
    with pytest.raises(CannotFitError) as caught:
        memory_constrained(graph, objective, least - 1, measure, moving, first=free, rules=rules, effort=NO_ORDER)
    assert caught.value.smallest == least  # whatever was asked for
    assert measure(caught.value.best.strategy).peak == least
    assert 0 < caught.value.bound <= least


def test_a_larger_cap_is_never_dearer() -> None:
    graph, objective = perceptron(2, 64, 32), Objective("seconds", machine_of((2,)))
    measure, moving = measurer(graph, objective), exchanging(objective)
    free = exact(graph, objective)
    found = front(graph, objective, first=free, effort=NO_ORDER)
    peaks = sorted({point.measured.peak for point in found.points})
    asked = [peaks[0], *(peaks[len(peaks) * part // 3] for part in (1, 2)), peaks[-1]]
    results = [memory_constrained(graph, objective, cap, measure, moving, first=free, effort=NO_ORDER) for cap in asked]
    for tight, wide in pairwise(results):
        assert wide.certificate.cost <= tight.certificate.cost
        assert wide.certificate.bound <= tight.certificate.bound * (1 + 1e-9)


def test_what_comes_on_top_goes_on_from_what_was_found() -> None:
    graph, objective = perceptron(2, 64, 32), Objective("seconds", machine_of((2,)))
    measure, moving = measurer(graph, objective), exchanging(objective)
    least = front(graph, objective, effort=NO_ORDER).least().measured.peak
    measured: list[Strategy] = []

    def counted(strategy: Strategy) -> Measured:
        measured.append(strategy)
        return measure(strategy)

    nothing = replace(NO_ORDER, least=0, coarse=0, fine=0, rounds=0, lowered=0)
    with pytest.raises(CannotFitError):
        memory_constrained(graph, objective, least, measure, moving, effort=nothing)
    result = memory_constrained(graph, objective, least, counted, moving, effort=nothing, more=NO_ORDER)
    assert measure(result.strategy).peak == least
    assert all(one != other for one, other in combinations(measured, 2))  # each is measured once
    before, roomy = len(measured), measure(measured[0]).peak
    memory_constrained(graph, objective, roomy, counted, moving, effort=nothing, more=NO_ORDER)
    assert 2 * (len(measured) - before) < before  # what fits already needs nothing on top


def small_step() -> Graph:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    step = TrainingStep(model, torch.nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    return capture(step, (torch.randn(8, 4), torch.randn(8, 2))).graph


def test_what_lies_between_the_corners_of_a_front(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices alone found 1.35 ms for 448 bytes, 2.55 ms for 384; and a busy machine finds the same."""
    graph, objective = small_step(), Objective("seconds", machine("local:4"))
    effort = Effort(steps=2000, measured=1500)
    found = front(graph, objective, effort=effort)
    costs = {516: 0.76e-3, 448: 1.06e-3, 384: 1.66e-3, 312: 2.87e-3}
    for cap, most in costs.items():
        assert answer(found, cap).certificate.cost <= most
    real = time.monotonic
    monkeypatch.setattr("girih.layout.budget.time.monotonic", lambda: 8 * real())
    again = front(graph, objective, effort=effort)
    assert [(point.cost, point.measured) for point in again.lean()] == [
        (point.cost, point.measured) for point in found.lean()
    ]
