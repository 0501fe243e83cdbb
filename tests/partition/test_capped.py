"""A hard cap on memory: met where it can be, refused where not; its bound holds for every strategy that meets it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from graphs import machine_of, perceptron, random_graph, random_labels
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from girih.graph import Graph
from girih.lower import lower, memory_use
from girih.partition.capped import CannotFitError, Measured, capped, held_at, priced_problem
from girih.partition.elimination import cost_of
from girih.partition.exact import exact
from girih.partition.options import SECONDS, TOFU
from girih.partition.problem import Objective, build
from girih.partition.strategy import SearchResult, Strategy


def measurer(graph: Graph, objective: Objective) -> Callable[[Strategy], Measured]:
    def measure(strategy: Strategy) -> Measured:
        program = lower(graph, strategy, objective.transfers)
        worst = max((memory_use(program, d) for d in range(program.mesh.devices)), key=lambda use: use.peak)
        return Measured(worst.peak, worst.at)

    return measure


def attempt(*arguments: Any, **options: Any) -> SearchResult | CannotFitError:
    try:
        return capped(*arguments, **options)
    except CannotFitError as error:
        return error


def every_strategy(graph: Graph, objective: Objective) -> list[tuple[float, int]]:
    """(cost, peak) of all labelings."""
    problem = build(graph, objective, SECONDS if objective.name == "seconds" else TOFU)
    assume(prod(problem.problem.domains) <= 1000)
    measure = measurer(graph, objective)
    found = []
    for labels in product(*map(range, problem.problem.domains)):
        cost = cost_of(problem.problem, np.asarray(labels))
        if np.isfinite(cost):
            found.append((cost, measure(problem.strategy(np.asarray(labels))).peak))
    return found


@given(st.integers(0, 2**32), st.integers(1, 3), st.floats(0, 1), st.sampled_from(["bytes", "seconds"]))
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_the_bound_holds_for_every_strategy_that_fits(seed: int, nodes: int, share: float, name: str) -> None:
    graph = random_graph(np.random.default_rng(seed), nodes)
    objective = Objective(name, machine_of((2,)))
    all_of_them = every_strategy(graph, objective)
    peaks = sorted({peak for _, peak in all_of_them})
    cap = peaks[int(share * (len(peaks) - 1))]
    least = min(cost for cost, peak in all_of_them if peak <= cap)
    measure = measurer(graph, objective)
    found = attempt(graph, objective, cap, measure, rounds=12)
    if isinstance(found, CannotFitError):  # prices did not find it, and what they found does not fit
        assert found.bound <= cap < found.smallest
        return
    assert measure(found.strategy).peak <= cap
    slack = 1e-9 * least
    assert found.certificate.bound <= least + slack
    assert found.certificate.cost >= least - slack
    assert found.certificate.bound <= found.certificate.cost


@given(
    st.integers(0, 2**32),
    st.integers(1, 8),
    st.sampled_from([(2,), (3,), (2, 2)]),
    st.sampled_from(["bytes", "seconds"]),
)
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_what_is_priced_at_a_moment_is_never_more_than_the_peak(seed: int, nodes: int, sizes: tuple, name: str) -> None:
    """Else the Lagrangian bound would not hold."""
    random = np.random.default_rng(seed)
    graph = random_graph(random, nodes)
    objective = Objective(name, machine_of(sizes))
    plain = priced_problem(graph, objective, {})
    labels = random_labels(plain, random)
    cost = cost_of(plain.problem, labels)
    assume(np.isfinite(cost))
    peak = measurer(graph, objective)(plain.strategy(labels)).peak
    for moment in range(-1, len(graph.nodes)):
        held = cost_of(priced_problem(graph, objective, {moment: 1.0}).problem, labels) - cost
        assert held <= peak * (1 + 1e-6)


def test_what_is_priced_is_what_peaks_where_nothing_moves() -> None:
    graph, objective = perceptron(2, 16, 16), Objective("seconds", machine_of((2,)))
    whole = (-1,)
    strategy = Strategy(objective.machine.mesh, (whole,) * len(graph.nodes), dict.fromkeys(graph.values, whole))
    measured = measurer(graph, objective)(strategy)
    held = [held_at(graph, moment) for moment in range(-1, len(graph.nodes))]
    sizes = [
        sum(graph.values[name].bytes for name in item.values)
        + sum(
            graph.values[
                (graph.nodes[node].inputs if place >= 0 else graph.nodes[node].outputs)[max(place, ~place)]
            ].bytes
            for (node, place), moved in item.pieces.items()
            if not moved
        )
        for item in held
    ]
    assert max(sizes) == measured.peak
    assert sizes.index(max(sizes)) - 1 == measured.at


@given(st.integers(0, 2**32), st.integers(1, 3), st.sampled_from(["bytes", "seconds"]))
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
def test_what_nothing_meets_is_refused(seed: int, nodes: int, name: str) -> None:
    graph = random_graph(np.random.default_rng(seed), nodes)
    objective = Objective(name, machine_of((2,)))
    least = min(peak for _, peak in every_strategy(graph, objective))
    with pytest.raises(CannotFitError, match="the least peak found is") as caught:
        capped(graph, objective, least - 1, measurer(graph, objective), rounds=6)
    assert caught.value.smallest >= least
    assert caught.value.bound <= least
    assert measurer(graph, objective)(caught.value.best.strategy).peak == caught.value.smallest


@pytest.mark.parametrize("name", ["bytes", "seconds"])
@pytest.mark.parametrize("sizes", [(2,), (2, 2)])
def test_caps_on_a_perceptron_from_loose_to_impossible(name: str, sizes: tuple[int, ...]) -> None:
    graph, objective = perceptron(3, 128, 128), Objective(name, machine_of(sizes))
    measure = measurer(graph, objective)
    free = exact(graph, objective)
    loose = measure(free.strategy).peak
    assert capped(graph, objective, loose, measure, first=free) is not None
    costs, met = [], 0
    for share in (1.0, 0.9, 0.8, 0.7, 0.6):
        cap = int(loose * share)
        found = attempt(graph, objective, cap, measure, first=free)
        if isinstance(found, CannotFitError):
            assert found.smallest > cap
            continue
        met += 1
        assert measure(found.strategy).peak <= cap
        assert found.certificate.bound <= found.certificate.cost
        assert found.certificate.cost >= free.certificate.bound
        assert found.certificate.bound >= free.certificate.bound * (1 - 1e-9)
        costs.append(found.certificate.cost)
    assert met >= 1
    assert costs[0] == free.certificate.cost
    with pytest.raises(CannotFitError):
        capped(graph, objective, 1000, measure, first=free)
