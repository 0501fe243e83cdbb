"""One forward, one backward: each stage's order, what it holds, and that nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import accumulate, groupby

import pytest
import torch
from graphs import machine_of, perceptron
from hypothesis import given
from hypothesis import strategies as st

import girih
from girih.api import plan_graph
from girih.graph import check as check_graph
from girih.layout import Mesh
from girih.partition.space.problem import Objective
from girih.partition.strategy import Strategy
from girih.plans.check import check as check_plan
from girih.plans.plan import Plan
from girih.program import ComputeStep, Overlap, Program, StartStep, check, lower, overlapped, scheduled
from girih.program.schedule import accumulating, micro_batches_of, sequence

LAYERS, WIDTH, ROWS = 8, 256, 8192


@given(st.integers(1, 9), st.integers(1, 20))
def test_a_stage_goes_back_as_early_as_it_can(stages: int, count: int) -> None:
    for stage in range(stages):
        order = sequence(stage, stages, count)
        held = list(accumulate(-1 if backward else 1 for backward, _, _ in order))
        assert held[-1] == 0
        assert max(held) == min(count, stages - stage)
        assert [part for backward, part, _ in order if backward] == list(range(count))
        assert [part for backward, part, _ in order if not backward] == list(range(count))
        assert all(order.index((False, part, 0)) < order.index((True, part, 0)) for part in range(count))


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 4))
def test_with_more_laps_the_bubble_is_as_many_times_shorter(stages: int, groups: int, laps: int) -> None:
    """Chunks of which one takes 1 forward and 2 backward: nobody waits in a circle, and all wait for stages - 1."""
    count = stages * groups
    left = [sequence(stage, stages, count, laps)[::-1] for stage in range(stages)]
    assert all(len(set(order)) == len(order) == 2 * count * laps for order in left)
    held = [max(accumulate(1 if backward else -1 for backward, *_ in order)) for order in left]
    if laps > 1:
        most = [2 * (stages - stage - 1) + (laps - 1) * stages + 1 for stage in range(stages)]
        assert held == [min(count * laps, number) for number in most]
    done: dict[tuple[bool, int, int], int] = {}  # by backward, micro-batch, and run of layers
    free = [0] * stages
    while any(left):
        before = len(done)
        for stage, order in enumerate(left):
            while order:
                backward, part, lap = order[-1]
                run = lap * stages + stage
                needed = [(True, part, run + 1)] if backward and run + 1 < stages * laps else []
                needed += [(False, part, run if backward else run - 1)] if backward or run else []
                if not done.keys() >= set(needed):
                    break
                free[stage] = max([free[stage], *(done[chunk] for chunk in needed)]) + 1 + backward
                done[backward, part, run] = free[stage]
                order.pop()
        assert len(done) > before
    assert max(free) == 3 * (count * laps + stages - 1)


def tower(count: int, tied: bool = False) -> tuple[girih.TrainingStep, tuple[torch.Tensor, torch.Tensor]]:
    with torch.device("meta"):
        layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
        if tied:
            layers[-1].weight = layers[0].weight
        model = torch.nn.Sequential(*(part for layer in layers for part in (layer, torch.nn.ReLU())))
        batch = torch.empty(ROWS, WIDTH), torch.empty(ROWS, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return girih.TrainingStep(model, loss=torch.nn.functional.mse_loss, optimizer=optimizer, micro_batches=count), batch


@cache
def planned(count: int, search: str, machine: str = "local:4", tied: bool = False) -> Plan:
    plan = girih.plan(*tower(count, tied), machine=machine, search=search, objective="seconds", compare=())
    check_plan(plan)
    return plan


def masked(output, target):
    """A sum divided by a count, which the labels of all micro-batches give."""
    kept = (target > 0).to(output.dtype)
    return ((output - target).square() * kept).sum() / kept.sum()


def chunks_of(plan: Plan, device: int) -> list[tuple[bool, int, int]]:
    """What a device does, node by node, without repetitions: backward?, micro-batch, and how many of its layers come
    before."""
    graph, (parts, _) = plan.graph, micro_batches_of(plan.graph)
    nodes = [step.node for step in plan.program.steps_of(device) if isinstance(step, ComputeStep)]
    heavy = [node for node in nodes if graph.nodes[node].operator == "aten.mm" and parts[node] is not None]
    layers = sorted({int(graph.nodes[node].scope) for node in heavy}) if plan.choice.schedule == "interleaved" else []
    runs = {str(layer): number for number, layer in enumerate(layers)}
    found = [(graph.nodes[at].phase == "backward", parts[at], runs.get(graph.nodes[at].scope, 0)) for at in heavy]
    return [key for key, _ in groupby(found)]


@pytest.mark.parametrize("tied", [False, True])
def test_accumulated_gradients_hold_the_activations_of_one_micro_batch(tied: bool) -> None:
    graph = planned(4, "single", "local:2", tied).graph
    ordered = accumulating(graph)
    check_graph(ordered)
    assert sorted(ordered.nodes, key=str) == sorted(graph.nodes, key=str)
    parts, count = micro_batches_of(ordered)
    heavy = [(part, node.phase) for part, node in zip(parts, ordered.nodes, strict=True)
             if node.operator == "aten.mm" and part is not None]  # fmt: skip
    assert [key for key, _ in groupby(heavy)] == [(part, phase) for part in range(count)
                                                  for phase in ("forward", "backward")]  # fmt: skip
    assert {node.phase for node in ordered.nodes[-LAYERS:]} == {"update"}
    peaks = [plan_graph(item, machine="local:1", search="single", objective="seconds", compare=()).peak
             for item in (graph, ordered)]  # fmt: skip
    assert peaks[1] < 0.5 * peaks[0]
    assert accumulating(perceptron(2)) == perceptron(2)


@pytest.mark.parametrize(("machine", "stages"), [("local:2", 2), ("local:4", 4), ("2x2", 4)])
@pytest.mark.parametrize("count", [2, 4, 8])
def test_each_stage_has_its_order(machine: str, stages: int, count: int) -> None:
    plan = planned(count, "pipeline-1f1b", machine)
    for stage in range(stages):
        assert chunks_of(plan, stage) == sequence(stage, stages, count)


@pytest.mark.parametrize(("machine", "stages", "count", "laps"), [("local:2", 2, 4, 4), ("local:4", 4, 8, 2)])
def test_each_stage_comes_round_again_when_interleaved(machine: str, stages: int, count: int, laps: int) -> None:
    plan = planned(count, f"pipeline-1f1b:chunks={laps}", machine)
    assert plan.choice.schedule == "interleaved"
    for stage in range(stages):
        assert chunks_of(plan, stage) == sequence(stage, stages, count, laps)


def test_interleaved_stages_wait_less() -> None:
    plain, other = planned(8, "pipeline-1f1b"), planned(8, "pipeline-1f1b:chunks=2")
    assert other.bytes_received.sum() > 2 * plain.bytes_received.sum()
    plain_time, other_time = (plan.predict().timeline for plan in (plain, other))
    assert other_time.busy().max() == pytest.approx(plain_time.busy().max(), rel=0.02)
    assert other_time.seconds - other_time.busy().max() < 0.6 * (plain_time.seconds - plain_time.busy().max())


def test_a_loss_that_divides_by_a_count_waits_for_nothing() -> None:
    step, batch = tower(4)
    plans = [
        girih.plan(replace(step, loss=loss), batch, machine="local:4", search=search, objective="seconds", compare=())
        for loss in (step.loss, masked)
        for search in ("pipeline", "pipeline-1f1b")
    ]
    for stage in range(4):
        assert chunks_of(plans[3], stage) == chunks_of(plans[1], stage)
        assert chunks_of(plans[2], stage) == chunks_of(plans[0], stage)
    assert max(use.peak for use in plans[3].memory_by_device) <= 1.2 * plans[1].peak


@pytest.mark.parametrize("tied", [False, True])
def test_only_the_order_changes(tied: bool) -> None:
    gpipe, other = (planned(8, search, tied=tied) for search in ("pipeline", "pipeline-1f1b"))
    assert other.strategy == gpipe.strategy
    assert (other.bytes_received == gpipe.bytes_received).all()
    for device in range(4):
        mine, theirs = (
            {(step.node, step.writes) for step in plan.program.steps_of(device) if isinstance(step, ComputeStep)}
            for plan in (gpipe, other)
        )
        assert mine == theirs
    assert {step.target for step in gpipe.program.transfers} == {step.target for step in other.program.transfers}


def test_a_stage_holds_few_micro_batches_and_takes_as_long() -> None:
    few, many, gpipe = planned(4, "pipeline-1f1b"), planned(8, "pipeline-1f1b"), planned(8, "pipeline")
    assert many.peak < gpipe.peak
    assert all(one.peak < two.peak for one, two in zip(many.memory_by_device, gpipe.memory_by_device, strict=True))
    inner = slice(1, 3)  # the first and the last stage hold the batch as a whole
    held, before = ([use.peak - use.state for use in plan.memory_by_device[inner]] for plan in (many, few))
    assert all(now < 0.6 * then for now, then in zip(held, before, strict=True))  # as many parts, of half the size
    assert held[0] > held[1]
    assert many.predict().seconds < 1.05 * gpipe.predict().seconds


def test_exchanges_between_stages_start_early() -> None:
    program = planned(8, "pipeline-1f1b").program
    started = {step.transfer.target for step in program if isinstance(step, StartStep)}
    crossing = {step.target for step in program.transfers
                if any(item.source != item.target for item in program.exchange_of(step).messages)}  # fmt: skip
    assert len(started & crossing) > 0.8 * len(crossing)
    assert started <= crossing
    with pytest.raises(ValueError, match="overlap already"):
        overlapped(program, Overlap(1, 1))


def test_a_program_without_stages_stays() -> None:
    graph = perceptron(2, 8, 12)
    strategy = Strategy.of_codes(Mesh((2,)), ((0,),) * len(graph.nodes), dict.fromkeys(graph.values, (0,)))
    program = lower(graph, strategy, Objective("bytes", machine_of((2,))).transfers)
    assert scheduled(program, "1f1b", machine_of((2,))) is program
    assert scheduled(program, "graph", machine_of((2,))) is program
    with pytest.raises(ValueError, match="no schedule 'gpipe': expected one of graph, 1f1b, interleaved"):
        scheduled(program, "gpipe", machine_of((2,)))
    started = overlapped(program, Overlap(3, 3))
    assert any(isinstance(step, StartStep) for step in started)
    with pytest.raises(ValueError, match="overlap already"):
        scheduled(started, "1f1b", machine_of((2,)))


def test_layers_that_go_back_and_forth_have_an_order_too() -> None:
    """The first and the last layer on one device: its chunks cannot be done one behind the other."""
    plan = planned(4, "pipeline", "local:2")
    graph, mesh = plan.graph, plan.strategy.mesh
    layouts, divisions = dict(plan.strategy.layouts), list(plan.strategy.divisions)
    there = next(layouts[item.name] for item in graph.inputs if item.path == "7.weight" or item.path.startswith("14."))
    for number, node in enumerate(graph.nodes):
        if node.scope == "0":
            divisions[number] = there
            layouts.update(dict.fromkeys(node.outputs, there))
    for item in graph.inputs:
        if item.path.startswith("0.") and item.name in graph.updates:
            layouts[item.name] = layouts[graph.updates[item.name]] = there
    program = lower(graph, Strategy(mesh, tuple(divisions), layouts), Objective("seconds", plan.machine).transfers)
    check(program)
    other = scheduled(program, "1f1b", plan.machine)
    check(other)
    assert Program.parse(str(other), graph, other.strategy) == other


def test_the_schedule_is_kept_in_the_file(tmp_path) -> None:
    for search, kept in (("pipeline", False), ("pipeline-1f1b:chunks=2", True), ("pipeline-1f1b", True)):
        plan = planned(4, search)
        plan.save(tmp_path / "plan.json")
        assert ('"schedule"' in (tmp_path / "plan.json").read_text()) == kept
        again = girih.load(tmp_path / "plan.json")
        assert again.program == plan.program
        assert again.peak == plan.peak
    text = (tmp_path / "plan.json").read_text()
    (tmp_path / "other.json").write_text(text.replace('"schedule": "1f1b"', '"schedule": "2f2b"'))
    with pytest.raises(girih.PlanError, match="schedule"):
        girih.load(tmp_path / "other.json")


def test_a_memory_limit_is_held_against_the_schedule() -> None:
    gpipe, other = planned(8, "pipeline"), planned(8, "pipeline-1f1b")
    limit = (gpipe.peak + other.peak) // 2
    made = {"machine": "local:4", "objective": "seconds", "compare": ()}
    fits = girih.plan(*tower(8), search="pipeline-1f1b", memory=limit, hold="none", **made)
    assert fits.peak <= limit
    check_plan(fits)
    with pytest.raises(girih.PlanError, match="does not fit"):
        girih.plan(*tower(8), search="pipeline", memory=limit, hold="none", **made)
