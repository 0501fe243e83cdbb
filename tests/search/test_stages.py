"""Stages that are proposed: the best of all by the estimate, and whole plans that keep what they say."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise, product
from math import inf

import numpy as np
import pytest
import torch
from graphs import machine_of, perceptron

import girih
from girih.api import plan_graph
from girih.machine import Machine, machine
from girih.partition.space.problem import Objective
from girih.plans.check import check
from girih.plans.inputs import program_of
from girih.plans.plan import PlanError
from girih.program.schedule import micro_batches_of
from girih.search import stages as room
from girih.search.stages import Inner, _crossing, _most_held, _programme, pipelines

WIDTH, ROWS, LAYERS = 256, 64, 4


def cheapest(where: Machine, inner: list[Inner], borders: np.ndarray, count: int, rows: int, most: int) -> float:
    """The least estimate, by looking at all stages on all submeshes."""
    units, devices, best = len(borders), where.devices, inf
    crossing = _crossing(where, borders / count)
    for cut in (cut for many in range(1, units) for cut in combinations(range(1, units), many)):
        ranges = list(pairwise((0, *cut, units)))
        for ways in product(inner, repeat=len(ranges)):
            at, total, slowest = 0, 0.0, 0.0
            for number, ((first, last), way) in enumerate(zip(ranges, ways, strict=True)):
                held = min(count, len(ranges) - number) / count
                room_for = way.state[first:last].sum() + held * way.saved[first:last].sum() <= most
                along = way.within not in ("data", "sharded") or rows % (count * way.size) == 0
                if at % way.size or not room_for or not along or at + way.size > devices:
                    break
                some = slice(first, last)
                takes = way.busy[some].sum() / count + way.each[some].sum() + way.once[some].sum() / count
                total += takes + crossing[at, first] / way.size
                slowest, at = max(slowest, takes), at + way.size
            else:
                if at == devices:
                    best = min(best, total + (count - 1) * slowest)
    return best


@pytest.mark.parametrize("seed", range(6))
def test_no_other_stages_have_a_smaller_estimate(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(seed)
    monkeypatch.setattr(room, "TRIED", 10_000)
    monkeypatch.setattr(room, "WIDER", inf)
    where, count = machine_of((2, 2)), int(random.integers(2, 5))
    inner = [
        Inner(size, within, *random.random((3, 4)), *random.integers(1, 9, (2, 4)).astype(float))
        for size, within in ((1, ""), (2, "data"), (2, "megatron"))
    ]
    borders, most, rows = random.random(4) * 1e4, int(random.integers(12, 40)), int(random.choice([1, 24]))
    found = _programme(where, inner, borders, count, rows, most)
    assert (inf if found is None else found.seconds) == pytest.approx(
        cheapest(where, inner, borders, count, rows, most)
    )
    if found is not None:
        assert [(one.last, one.devices.stop) for one in found.stages[:-1]] == [
            (one.first, one.devices.start) for one in found.stages[1:]
        ]


def tower(rows: int = ROWS) -> tuple[girih.TrainingStep, tuple[torch.Tensor, torch.Tensor]]:
    model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(),
                                  torch.nn.Linear(WIDTH, WIDTH)) for _ in range(LAYERS)))  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batch = torch.randn(rows, WIDTH), torch.randn(rows, WIDTH)
    return girih.TrainingStep(model, loss=torch.nn.functional.mse_loss, optimizer=optimizer), batch


def slow_between_hosts() -> Machine:
    """2×2 devices whose hosts have a slow link between them, so that weights should not go over it."""
    where = machine("2x2")
    outer, inner = where.levels
    slow = replace(outer, bytes_per_second=1e8, latency_seconds=1e-6), replace(inner, latency_seconds=1e-7)
    return replace(where, levels=slow, device=replace(where.device, flops_per_second=1e11, launch_seconds=1e-7))


def test_the_fastest_plan_has_divided_stages_where_hosts_are_far_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search itself has no work to spend and ends with data parallelism."""
    monkeypatch.setattr("girih.search.choose.BESIDE", 1e9)
    step, batch = tower()
    where = slow_between_hosts()
    plan = girih.plan(step, batch, machine=where, objective="time", search="exact:seconds=1e-6", compare=())
    check(plan)
    assert plan.search == plan.certificate.statistics["found by"] == "stages"
    assert plan.choice.schedule == "1f1b"
    assert {len(some) * 2 for submesh in plan.strategy.submeshes for some in submesh if some is not None} == {2}
    assert plan.certificate.cost == pytest.approx(plan.predict().seconds)
    assert plan.certificate.cost < min(took for name, took in plan.certificate.tried.items() if name != plan.search)
    count = micro_batches_of(plan.graph)[1]
    assert count > 1
    assert plan.origin.undivided is not None
    assert micro_batches_of(plan.origin.undivided)[1] == 1


def test_what_a_device_has_no_room_for_is_not_proposed() -> None:
    graph = program_of(*tower()).graph
    where = slow_between_hosts()
    free = plan_graph(graph, machine=where, search="stages", objective="seconds", compare=())
    assert free.peak < where.device.memory_bytes
    small = replace(where, device=replace(where.device, memory_bytes=10_000))
    with pytest.raises(PlanError, match="search stages: no pipeline can be made of this step"):
        plan_graph(graph, machine=small, search="stages", objective="seconds", compare=(), memory="unlimited")
    with pytest.raises(PlanError, match="search stages: no pipeline can be made of this step"):
        plan_graph(perceptron(1), machine="local:1", search="stages", objective="seconds", compare=())


def test_stages_come_round_again_where_they_would_wait_long() -> None:
    """Fast links, and as few micro-batches as stages: the estimates are near the simulated steps."""
    where = machine("local:2")
    quick = tuple(replace(level, bytes_per_second=1e12, latency_seconds=1e-9) for level in where.levels)
    where = replace(where, levels=quick, device=replace(where.device, launch_seconds=1e-9))
    step, batch = tower(8 * ROWS)
    graph = program_of(replace(step, micro_batches=2), batch).graph
    found = pipelines(graph, Objective("seconds", where), where.device.memory_bytes, 5.0)
    assert [(item.laps, len(item.stages)) for item in found] == [(2, 4), (1, 2)]
    plans = [plan_graph(graph, machine=where, search=search, objective="seconds", compare=())
             for search in ("stages", "pipeline-1f1b")]  # fmt: skip
    check(plans[0])
    assert [plan.choice.schedule for plan in plans] == ["interleaved", "1f1b"]
    took = [plan.predict().seconds for plan in plans]
    assert took[0] < 0.95 * took[1]
    assert [item.seconds for item in found] == pytest.approx(took, rel=0.1)


def test_what_interleaved_stages_hold_is_counted_along_their_order() -> None:
    """Runs of which each keeps 1 byte of a micro-batch: 2 (p - s - 1) + (v - 1) p + 1 at once, or all there are."""
    stages, laps = 4, 3
    for count in (4, 8, 32):
        held = [_most_held(stage, stages, count, np.full(laps, float(count))) for stage in range(stages)]
        most = [2 * (stages - stage - 1) + (laps - 1) * stages + 1 for stage in range(stages)]
        assert held == [min(laps * count, number) for number in most]
    # Only the first run of the first stage keeps anything. Its warm-up ends with the third of the second group; what
    # goes back first is of the second run, and so the fourth comes, too.
    assert _most_held(0, 4, 16, np.asarray([16.0, 0.0])) == 8
