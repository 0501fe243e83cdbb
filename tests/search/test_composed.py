"""Steps composed of pieces take what a simulation of the program takes, to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from graphs import perceptron

from girih.api import Plan, plan_graph
from girih.capture import capture
from girih.cost.device_calls import local_calls
from girih.cost.pricing import Pricing
from girih.cost.roofline import Floats, Roofline
from girih.cost.setting import setting_of, threads_of
from girih.cost.store import Measurement, Store
from girih.cost.work import Work
from girih.graph import Graph, parse_graph
from girih.layout import Partial, Sharding
from girih.machine import machine
from girih.models import example
from girih.partition import SearchResult
from girih.partition.space.problem import Objective
from girih.plans.choice import Choice
from girih.plans.plan import Goal
from girih.program import Overlap
from girih.search.composed import Composer
from girih.search.table import search_of

LARGEST = """graph
  input %x: float32[8, 12]  batch  "0"
  %m: float32[8] = aten.amax(self=%x, dim=[1], keepdim=False)  # forward
  %r: float32[8] = aten.neg(self=%m)  # forward
  return %r result"""
WHERE = machine("p100-cluster:1")
GOAL = Objective("time", WHERE)


@pytest.fixture(scope="module", params=["alexnet-tiny", "rnnlm-tiny", "gpt-tiny"])
def graph(request: pytest.FixtureRequest) -> Graph:
    import torch

    import girih

    made = example(request.param)
    optimizer = torch.optim.SGD(made.module.parameters(), lr=0.1, momentum=0.9)
    return capture(girih.TrainingStep(made.module, step=made.step, optimizer=optimizer), made.inputs).graph


@pytest.fixture(scope="module")
def found(graph: Graph) -> dict[str, SearchResult]:
    return {name: search_of(name, 5.0).search(graph, GOAL) for name in ("exact", "data", "model", "sharded")}


@pytest.mark.parametrize("overlap", [Overlap(), Overlap(1, 1), Overlap(4, 16)], ids=str)
def test_composed_is_simulated(graph: Graph, found: dict[str, SearchResult], overlap: Overlap) -> None:
    composer = Composer(graph, WHERE, GOAL.transfers, overlap)
    for name, one in found.items():
        plan = Plan(graph, WHERE, Choice(one.strategy, overlap=overlap), one.certificate, Goal(name, "time"))
        assert composer.seconds(one.strategy) == plan.predict().seconds
        assert composer.seconds(one.strategy) == plan.predict().seconds  # once its pieces are known
    assert len(composer.pieces) < 4 * len(graph.nodes)


def test_work_is_priced_together(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    original = Roofline.seconds

    def counted(self: Roofline, works: Sequence[Work]) -> Floats:
        asked.append(len(works))
        return original(self, works)

    graph = perceptron(2)
    found = search_of("data", 5.0).search(graph, GOAL)
    composer = Composer(graph, WHERE, GOAL.transfers, Overlap())
    monkeypatch.setattr(Roofline, "seconds", counted)
    composer.seconds(found.strategy)
    assert len(asked) == 1
    assert asked[0] > 1
    composer.seconds(found.strategy)
    assert len(asked) == 1


def test_measured_costs_count_alike(tmp_path: Path) -> None:
    plan = plan_graph(perceptron(2), machine="local:2", objective="seconds")
    with Store(tmp_path / "costs.sqlite") as store:
        calls = local_calls(plan.program).calls[::2]
        took = [(call, Measurement(1e-3 * (1 + number), 0.0, 5, "now")) for number, call in enumerate(calls)]
        store.put(setting_of(threads_of(2), 2), took)
        pricing = Pricing(plan.machine, store=store)
    transfers = Objective("time", plan.machine).transfers
    measured = Composer(plan.graph, plan.machine, transfers, plan.choice.overlap, pricing).seconds(plan.strategy)
    assert measured == plan.predict(store=tmp_path / "costs.sqlite").seconds
    assert measured > 2 * Composer(plan.graph, plan.machine, transfers, plan.choice.overlap).seconds(plan.strategy)


def test_what_is_whole_becomes_partial_sums() -> None:
    graph = perceptron(2)
    plan = plan_graph(graph, machine=WHERE, objective="seconds", search="single")
    composer = Composer(graph, WHERE, GOAL.transfers, Overlap())
    name = graph.nodes[0].outputs[0]
    layouts = plan.strategy.layouts | {name: Sharding((Partial(),) * WHERE.mesh.axes)}
    assert composer.seconds(plan.strategy) < float("inf")
    other = plan.but(strategy=replace(plan.strategy, layouts=layouts), overlap=Overlap())
    assert composer.seconds(other.strategy) == other.predict().seconds


def test_partial_maxima_take_for_ever() -> None:
    graph = parse_graph(LARGEST)
    plan = plan_graph(graph, machine=WHERE, objective="seconds", search="single")
    layouts = plan.strategy.layouts | {"m": Sharding((Partial(),) * WHERE.mesh.axes)}
    composer = Composer(graph, WHERE, GOAL.transfers, Overlap())
    assert composer.seconds(replace(plan.strategy, layouts=layouts)) == float("inf")
