"""All solutions in the order of their cost, and only those that may hold little enough."""

from __future__ import annotations

from itertools import islice, product
from math import prod

import numpy as np
import pytest
from counts import but_long
from graphs import machine_of, perceptron, random_graph

from girih.partition.solver.elimination import cost_of
from girih.partition.solver.held import HeldTables, moments
from girih.partition.solver.in_order import InOrder
from girih.partition.space.options import SECONDS
from girih.partition.space.problem import Objective, build

OBJECTIVE = Objective("seconds", machine_of((2,)))


def tables_of(graph) -> HeldTables:
    return HeldTables(build(graph, OBJECTIVE, SECONDS), lambda value, source, target, dense, kept: 0)


@pytest.mark.parametrize("seed", [0, 1, 2, 3, *range(5, 13)])  # of seed 4 there are 82,944 labels
def test_every_solution_comes_once_and_in_order(seed: int) -> None:
    held = tables_of(random_graph(np.random.default_rng(seed), 2))
    problem = held.plain.problem
    assert prod(problem.domains) < 20_000
    every = [np.asarray(labels) for labels in product(*map(range, problem.domains))]
    costs = {labels.tobytes(): cost_of(problem, labels) for labels in every}
    finite = {key: cost for key, cost in costs.items() if np.isfinite(cost)}
    search = InOrder(held, steps=10**6)
    found = list(search)
    assert search.done
    assert {labels.tobytes() for _, labels in found} == finite.keys()
    assert len(found) == len(finite)
    assert [cost for cost, _ in found] == pytest.approx(sorted(finite.values()))
    assert all(cost == pytest.approx(finite[labels.tobytes()]) for cost, labels in found)


@pytest.mark.parametrize("seed", but_long(range(6), {4}))
def test_what_holds_too_much_is_left_out(seed: int) -> None:
    graph = random_graph(np.random.default_rng(seed), 2)
    held = tables_of(graph)
    most = {
        labels.tobytes(): max(held.bytes(moment, labels) for moment in moments(graph))
        for _, labels in InOrder(held, steps=10**6)
    }
    cap = float(np.median(list(most.values())))
    search = InOrder(held, steps=10**6)
    search.most_bytes = cap
    assert {labels.tobytes() for _, labels in search} == {key for key, bytes_ in most.items() if bytes_ <= cap}


def test_it_ends_after_its_steps_and_says_how_far_it_came() -> None:
    held = tables_of(perceptron(2, 16, 16))
    search = InOrder(held, steps=200)
    costs = [cost for cost, _ in search]
    assert not search.done
    assert search.reached >= costs[-1]
    more = [cost for cost, _ in islice(InOrder(held, steps=10**6), len(costs) + 5)]
    assert more[: len(costs)] == pytest.approx(costs)
    assert more[len(costs)] >= search.reached * (1 - 1e-9)
