"""Crossing: layers are exchanged while the judge finds the step faster."""

from __future__ import annotations

import pytest
from graphs import machine_of, perceptron

from girih.api import plan_graph
from girih.layout.budget import Budget
from girih.partition.space.layers import layers_of
from girih.partition.space.problem import Objective
from girih.partition.strategy import SearchResult, Strategy
from girih.rewrite.certificate import Certificate
from girih.search.candidates import Counted
from girih.search.crossover import Crossing
from girih.search.judge import Judge, judging_seconds
from girih.search.table import search_of

GRAPH = perceptron(3)
GOAL = Objective("seconds", machine_of((2, 2)))
ONE, TWO = (search_of(name, 5.0).search(GRAPH, GOAL).strategy for name in ("data", "model"))
LAYERS = layers_of(GRAPH)


def as_in(strategy: Strategy, other: Strategy) -> list[bool]:
    """Of each node: is it divided as in the other?"""
    return [mine == theirs for mine, theirs in zip(strategy.divisions, other.divisions, strict=True)]


def wrong(strategy: Strategy) -> float:
    """Nodes of even layers that are not as in ONE, and of odd ones that are not as in TWO."""
    alike = (as_in(strategy, ONE), as_in(strategy, TWO))
    return float(sum(not alike[layer % 2][node] for node, layer in enumerate(LAYERS)))


SCORED = Objective("time", GOAL.machine, score=wrong)


def known(*strategies: Strategy) -> tuple[SearchResult, ...]:
    nothing = Certificate(float("inf"), 0.0, "seconds", "none", "", "", {})
    return tuple(SearchResult(strategy, nothing) for strategy in strategies)


def test_each_layer_becomes_as_in_the_strategy_that_suits_it() -> None:
    found = Crossing(60.0, known(ONE, TWO)).search(GRAPH, SCORED)
    assert min(wrong(ONE), wrong(TWO)) > 0
    assert found.certificate.cost == wrong(found.strategy) == 0
    assert float(found.certificate.statistics["tried"]) > len(set(LAYERS)) / 2
    for old, new in GRAPH.updates.items():  # a weight lies as the one that replaces it
        assert found.strategy.layouts[old].codes == found.strategy.layouts[new].codes


def test_without_time_the_best_is_returned() -> None:
    found = Crossing(0.0, known(TWO, ONE)).search(GRAPH, SCORED)
    assert found.certificate.statistics["tried"] == 0
    assert found.certificate.stopped == "time"
    assert found.strategy in (ONE, TWO)
    assert found.certificate.cost == min(wrong(ONE), wrong(TWO))


def test_the_memory_of_what_is_slower_anyway_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_graph(GRAPH, machine=GOAL.machine, memory="1GB", search="data", compare=None)
    full, quick = (Judge(plan) for _ in range(2))
    took = {strategy: full(strategy) for strategy in (ONE, TWO)}
    followed: list[Strategy] = []
    planned = quick.planned
    monkeypatch.setattr(quick, "planned", lambda strategy: followed.append(strategy) or planned(strategy))
    fast, slow = sorted(took, key=took.__getitem__)
    score = Counted(quick, Budget(60.0), 1.0)
    assert score.within(fast, float("inf")) == took[fast]
    assert score.within(slow, took[fast]) >= took[fast]
    assert followed == [fast]
    assert quick.fitting == full.fitting == (took[fast], fast)
    assert score(slow) == took[slow]  # what was cut short is not taken for what it takes
    without = judging_seconds(plan.graph, plan.machine)
    assert quick.work > 2 * without
    assert score.budget.spent == pytest.approx(1e9 * (2 * quick.work + without))  # what was followed is counted
