"""A newcomer's search, written by docs/add-a-search.md alone: values stay whole, or are split along one dimension."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from graphs import perceptron

from girih.api import plan_graph
from girih.graph import Graph
from girih.partition.search import Search
from girih.partition.searches.exact import exact
from girih.partition.space.problem import Candidates, Objective
from girih.partition.strategy import SearchError, SearchResult
from girih.plans.check import check


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
    plan = plan_graph(graph, machine="2x2", search=SplitAlong(20.0, dimension), compare=("exact",))
    check(plan)
    assert plan.search == "split-along"
    assert plan.certificate.space == f"inputs split along dimension {dimension}"
    assert plan.certificate.cost >= plan.baselines[0].bytes
    assert plan.certificate.cost == plan.bytes_received.sum()


def test_it_refuses_and_falls_back_as_the_page_says() -> None:
    with pytest.raises(ValueError, match="search split-along: no input has dimension 5"):
        plan_graph(perceptron(1), machine="2x2", search=SplitAlong(dimension=5))
    plan = plan_graph(perceptron(1), machine="2x2", search=SplitAlong(5.0), objective="time")
    assert plan.notes[0].startswith("search split-along is of --objective bytes or seconds")


def test_it_stands_beside_another() -> None:
    plan = plan_graph(perceptron(2), machine="2x2", compare=(SplitAlong(20.0),))
    assert [item.name for item in plan.baselines] == ["split-along"]
