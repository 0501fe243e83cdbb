"""The default search by the simulated step: no slower than what people do, the same on a busy host, and honest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from graphs import perceptron, random_graph

import girih.search.portfolio
from girih.api import plan_graph
from girih.machine import Machine, machine
from girih.partition.space.problem import Objective
from girih.plans.check import check
from girih.plans.plan import Plan
from girih.plans.predict import predict
from girih.report.tables import alternatives_table, render, summary
from girih.search import Portfolio
from girih.search.judge import Judge

GRAPH = perceptron(3, 64, 512)


def links(factor: float) -> Machine:
    """Four devices with links of so many times 300 GB/s."""
    where = machine("2x2")
    levels = tuple(replace(level, bytes_per_second=3e11 * factor, latency_seconds=1e-9) for level in where.levels)
    return replace(where, levels=levels, device=replace(where.device, flops_per_second=1e10, launch_seconds=0.0))


@pytest.fixture(scope="module")
def divided() -> Plan:
    return plan_graph(GRAPH, machine=links(1.0), compare=None)


def judged(plan: Plan) -> dict[str, float]:
    told = plan.certificate.statistics
    return {name.removeprefix("seconds, "): float(took) for name, took in told.items() if name.startswith("seconds, ")}


def test_the_default_is_the_fastest_step(divided: Plan) -> None:
    check(divided)
    known = judged(divided)
    assert divided.objective == "time"
    assert {"data", "single", "sharded", "exact"} <= known.keys()
    assert divided.certificate.cost == min(known.values()) < known["single"]
    assert divided.certificate.cost == pytest.approx(predict(divided).seconds)
    assert 0 < divided.certificate.bound <= divided.certificate.cost


def test_what_people_do_stands_beside(divided: Plan) -> None:
    beside = {item.name: item for item in divided.baselines}
    assert beside.keys() | {divided.search} >= {"single", "data", "sharded", "megatron"}
    for name, item in beside.items():
        assert item.seconds == plan_graph(GRAPH, machine=links(1.0), search=name).certificate.cost
        assert item.seconds >= divided.certificate.cost
    nothing = random_graph(np.random.default_rng(0), 6)
    assert not plan_graph(nothing, machine=links(1.0), compare=None, objective="bytes").notes
    named = plan_graph(nothing, machine=links(1.0), compare=("megatron",), objective="bytes")
    assert named.notes[0].startswith("not compared with megatron")


def test_one_device_that_is_as_fast_is_told() -> None:
    plan = plan_graph(GRAPH, machine=links(1e-9), compare=None)
    assert plan.search == "single"
    assert plan.bytes_received.sum() == 0
    assert any(note.startswith("one device is as fast") for note in plan.notes)
    assert "one device (this plan)" in render(alternatives_table(plan))
    assert "note: one device is as fast" in render(summary(plan))


def test_on_one_device_there_is_nothing_to_search() -> None:
    plan = plan_graph(GRAPH, machine="p3.2xlarge", compare=None)
    assert plan.certificate.cost == plan.certificate.bound == plan.predicted.simulated
    assert plan.certificate.stopped == "optimal"
    assert not plan.notes


def test_the_work_is_counted_and_not_the_seconds(divided: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    again = plan_graph(GRAPH, machine=links(1.0), search="portfolio:seconds=6000")
    assert again.strategy == divided.strategy
    monkeypatch.setattr(girih.search.portfolio, "EXCHANGES", 0)
    less = plan_graph(GRAPH, machine=links(1.0))
    assert less.certificate.cost <= min(took for name, took in judged(less).items() if name != "crossed")


def test_without_time_the_first_answers_are_judged(divided: Plan) -> None:
    plan = plan_graph(GRAPH, machine=links(1.0), search="portfolio:seconds=0")
    assert plan.certificate.stopped == "time"
    assert judged(plan).keys() == {"data", "single"}  # they take no time
    with pytest.raises(ValueError, match="needs a machine of several devices, or a known answer"):
        Portfolio().search(GRAPH, Objective("time", machine("p3.2xlarge"), score=Judge(divided, None)))


def test_other_objectives_have_their_own_search() -> None:
    by_bytes = plan_graph(GRAPH, machine=links(1.0), objective="bytes")
    assert by_bytes.search == "exact"
    assert by_bytes.certificate.unit == "bytes"
    assert not by_bytes.notes
    told = plan_graph(GRAPH, machine=links(1.0), search="portfolio", objective="bytes")
    assert told.notes == ("search portfolio is of --objective time; by bytes search exact ran",)


def test_what_is_too_large_to_simulate_is_planned_by_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("girih.search.choose.MOST_JUDGED", 4 * len(GRAPH.nodes) - 1)
    plan = plan_graph(GRAPH, machine=links(1.0))
    assert plan.objective == "seconds"
    assert "too many to simulate" in plan.notes[0]
