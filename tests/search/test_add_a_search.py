"""A newcomer's proposers, written by docs/add-a-search.md alone: of a strategy, and of what a device holds."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

import pytest
from graphs import perceptron

from girih.api import plan_graph
from girih.graph import Graph
from girih.partition.search import ScoredSearch, Search
from girih.partition.searches.exact import exact
from girih.partition.space.problem import Candidates, Objective
from girih.partition.strategy import SearchError, SearchResult
from girih.plans.check import check
from girih.plans.choice import Choice
from girih.plans.plan import PlanError
from girih.published.divisions.classic import Single
from girih.rewrite.certificate import Certificate
from girih.search.memory.holds import Baseline, Holding, Setting
from girih.search.memory.orders.locality import updates_early
from girih.search.table import BASELINES, SEARCHES, baseline_class, search_class


@dataclass(frozen=True)
class SplitAlong(Search):
    """Every input is split along one dimension on all axes. dimension: which."""

    name = "split-along"
    objectives = ("bytes", "seconds")
    dimension: int = 0

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        mesh = objective.machine.mesh
        layouts = {}
        for item in graph.inputs:
            shape = graph.values[item.name].shape
            if len(shape) > self.dimension and shape[self.dimension] >= mesh.devices:
                layouts[item.name] = ((self.dimension,) * mesh.axes,)
        if not layouts:
            raise SearchError(f"no input has dimension {self.dimension} of at least {mesh.devices}")
        space = f"inputs split along dimension {self.dimension}"
        return exact(graph, objective, candidates=Candidates(layouts, {}), seconds=self.seconds, space=space)


@pytest.mark.parametrize("dimension", [0, 1])
def test_it_plans_beside_the_exact_search(dimension: int) -> None:
    graph = perceptron(2)
    plan = plan_graph(graph, machine="2x2", search=SplitAlong(20.0, dimension), compare=("exact",), objective="bytes")
    check(plan)
    assert plan.search == "split-along"
    assert plan.certificate.space == f"inputs split along dimension {dimension}"
    assert plan.certificate.cost >= plan.baselines[0].bytes
    assert plan.certificate.cost == plan.bytes_received.sum()


def test_it_refuses_and_falls_back_as_the_page_says() -> None:
    with pytest.raises(ValueError, match="search split-along: no input has dimension 5"):
        plan_graph(perceptron(1), machine="2x2", search=SplitAlong(dimension=5), objective="bytes")
    plan = plan_graph(perceptron(1), machine="2x2", search=SplitAlong(5.0), objective="time")
    assert plan.notes[0].startswith("search split-along is of --objective bytes or seconds")


def test_it_stands_beside_another() -> None:
    plan = plan_graph(perceptron(2), machine="2x2", compare=(SplitAlong(20.0),), objective="bytes")
    assert [item.name for item in plan.baselines] == ["split-along"]


@dataclass(frozen=True)
class Undivided(ScoredSearch):
    """The faster of one device and the answer that is known."""

    name = "undivided"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        score = self.score(objective)
        alone = Single(self.seconds).search(graph, objective)
        best = min((alone, *self.known), key=lambda result: score(result.strategy))
        seconds = score(best.strategy)
        certificate = Certificate(seconds, 0.0, "seconds", "none", "both scored", "two strategies", {})
        return SearchResult(best.strategy, certificate)


def test_a_scored_search_is_judged_by_the_simulated_step() -> None:
    plan = plan_graph(
        perceptron(2), machine="2x2", search=Undivided(20.0), objective="time", compare=("single", "data")
    )
    check(plan)
    assert plan.search == "undivided"
    assert plan.certificate.cost == plan.predict().seconds == min(item.seconds for item in plan.baselines)
    assert 0 < plan.certificate.bound <= plan.certificate.cost  # by the graph, whatever the search proves
    assert (
        plan_graph(perceptron(1), machine="2x2", search=Undivided(), objective="bytes")
        .notes[0]
        .startswith("search undivided is of --obj")
    )


@dataclass(frozen=True)
class EarlyUpdates(Baseline):
    """Weights are updated as soon as their gradients are there."""

    name: ClassVar[str] = "early-updates"
    moves: ClassVar[bool] = False
    orders: ClassVar[bool] = True

    def hold(self, setting: Setting) -> Holding:
        return Holding(updates_early(setting.lives))


def test_a_way_to_hold_orders_the_steps_within_a_limit_or_is_refused() -> None:
    graph = perceptron(4)
    whole = plan_graph(graph, machine="p3.2xlarge", compare=())
    plan = plan_graph(graph, machine="p3.2xlarge", memory=whole.peak - 1, hold=EarlyUpdates(), compare=())
    check(plan)
    assert plan.peak < whole.peak
    assert plan.choice.sequence is not None
    assert not plan.choice.residency
    with pytest.raises(PlanError, match="cannot be met by hold early-updates, which needs"):
        plan_graph(graph, machine="p3.2xlarge", memory=plan.peak - 1, hold=EarlyUpdates(), compare=())


def test_every_proposer_changes_parts_of_a_choice() -> None:
    parts = {part.name for part in fields(Choice)}
    for proposer in (*map(search_class, SEARCHES), *map(baseline_class, BASELINES), SplitAlong, EarlyUpdates):
        assert parts.issuperset(proposer.changes)
        assert proposer.changes
