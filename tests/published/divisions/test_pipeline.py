"""Pipelines: stages are balanced, micro-batches cross each border once each way, and stages work side by side."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations, pairwise

import pytest
import torch
from counts import LONG
from hypothesis import given
from hypothesis import strategies as st

import girih
from girih.api import Plan
from girih.capture import capture
from girih.layout import coordinates_of
from girih.machine import Machine, machine
from girih.models import example
from girih.partition.searches.stages import balanced, micro_batches
from girih.plans.check import check
from girih.plans.inputs import program_of
from girih.plans.plan import PlanError
from girih.program import ComputeStep
from girih.search.choose import APART

LAYERS, WIDTH, ROWS = 8, 1024, 2048


@given(st.lists(st.integers(1, 20), min_size=1, max_size=9), st.integers(1, 5))
def test_no_other_cut_has_a_smaller_largest_stage(work: list[int], stages: int) -> None:
    found = balanced(work, stages)
    assert found[0] == 0
    assert all(later - before in (0, 1) for before, later in pairwise(found))
    assert max(found) + 1 == min(stages, len(work))
    loads = [sum(amount for amount, at in zip(work, found, strict=True) if at == stage) for stage in range(stages)]
    best = min(
        max(sum(work[first:last]) for first, last in zip((0, *cuts), (*cuts, len(work)), strict=True))
        for count in range(min(stages, len(work)))
        for cuts in combinations(range(1, len(work)), count)
    )
    assert max(loads) == best


def tower(count: int) -> tuple[girih.TrainingStep, tuple[torch.Tensor, torch.Tensor]]:
    with torch.device("meta"):
        model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
        batch = torch.empty(ROWS, WIDTH), torch.empty(ROWS, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss = torch.nn.functional.mse_loss
    return girih.TrainingStep(model, loss=loss, optimizer=optimizer, micro_batches=count), batch


@cache
def planned(count: int, machine: str, search: str = "pipeline") -> Plan:
    plan = girih.plan(*tower(count), machine=machine, search=search, objective="seconds", compare=())
    check(plan)
    return plan


def device_of(plan: Plan, name: str) -> tuple[int, ...]:
    mesh, codes = plan.strategy.mesh, plan.strategy.layouts[name].codes
    able = [coordinates_of(code, size) for code, size in zip(codes, mesh.sizes, strict=True)]
    return tuple(device for device, at in enumerate(mesh.coordinates.tolist())
                 if all(one in some for one, some in zip(at, able, strict=True)))  # fmt: skip


@pytest.mark.parametrize("count", [1, 2, 4])
def test_micro_batches_are_counted(count: int) -> None:
    assert micro_batches(program_of(*tower(count)).graph) == count


def test_steps_through_time_are_no_micro_batches() -> None:
    made = example("rnnlm-tiny", device="meta")
    optimizer = torch.optim.SGD(made.module.parameters(), lr=0.1)
    assert (
        micro_batches(capture(girih.TrainingStep(made.module, step=made.step, optimizer=optimizer), made.inputs).graph)
        == 1
    )


def test_without_micro_batches_it_says_what_to_do() -> None:
    with pytest.raises(
        PlanError, match=r"search pipeline: a pipeline needs micro-batches.*`--micro-batches 4`.*`model`"
    ):
        planned(1, "local:2")


@pytest.mark.parametrize(("machine", "stages"), [("local:2", 2), ("local:4", 4)])
def test_stages_are_runs_of_layers(machine: str, stages: int) -> None:
    plan = planned(4, machine)
    parameters = [item for item in plan.graph.inputs if item.role == "parameter"]
    where = {item.path.split(".")[0]: device_of(plan, item.name) for item in parameters}
    assert [where[str(layer)] for layer in range(LAYERS)] == [(layer * stages // LAYERS,) for layer in range(LAYERS)]
    loss = next(output.name for output in plan.graph.outputs if output.role == "loss")
    assert device_of(plan, loss) == (stages - 1,)
    scalars = {name for name, value in plan.graph.values.items() if not value.shape} - {
        item.name for item in plan.graph.inputs
    }
    assert {device_of(plan, name) for name in scalars} == {(stages - 1,)}


@pytest.mark.parametrize("count", [2, 4])
def test_what_passes_is_the_activations_once_each_way(count: int) -> None:
    plan = planned(count, "local:4")
    moved = []
    for step in plan.program.transfers:
        messages = [item for item in plan.program.exchange_of(step).messages if item.source != item.target]
        assert len(messages) <= 1, step.value
        moved += [(item.source, item.target, item.elements) for item in messages]
    part = ROWS // count * WIDTH
    borders = [(0, 1), (1, 2), (2, 3), (1, 0), (2, 1), (3, 2)]
    assert sorted(moved) == sorted((*border, part) for border in borders for _ in range(count))


@pytest.mark.parametrize(("machine", "stages"), [("local:2", 2), ("local:4", 4)])
def test_stages_work_side_by_side(machine: str, stages: int) -> None:
    """GPipe's arithmetic: of m micro-batches the first passes all stages, the others follow at the largest one's pace.

    It may be less: a stage passes on the gradient of its input before it has those of its weights.
    """
    for count in (1, 2, 4, 8):
        timeline = planned(count, machine, "model").predict().timeline
        busy = timeline.busy()
        assert busy.max() < 1.3 * busy.min()  # the first stage needs no gradient of the batch
        ideal = (busy.sum() + (count - 1) * busy.max()) / count
        assert len(busy) == stages
        assert 0.85 * ideal < timeline.seconds < 1.02 * ideal, count


def test_the_second_stage_has_the_first_part_while_the_first_has_the_second() -> None:
    plan = planned(2, "local:2")
    timeline, nodes = plan.predict().timeline, plan.graph.nodes

    def spans(device: int) -> list[tuple[float, float]]:
        """The forward products of a device in order."""
        return [
            (begin, end)
            for at, number, begin, end in sorted(
                zip(timeline.device, timeline.step, timeline.begin, timeline.end, strict=True), key=lambda row: row[2]
            )
            if at == device
            and isinstance(step := plan.program.steps[number], ComputeStep)
            and nodes[step.node].phase == "forward"
            and nodes[step.node].operator == "aten.mm"
        ]

    first, second = spans(0), spans(1)
    half = LAYERS // 2
    assert len(first) == len(second) == 2 * half
    assert second[0][0] < first[-1][1]  # it begins before the first stage has done its second part
    assert first[half][0] < second[half - 1][1]


@pytest.mark.parametrize("shared", [False, True])
def test_a_transformers_stages_work_side_by_side(shared: bool) -> None:
    """Also where the first and the last layer share a weight, whose gradients are added up on the first device."""
    sizes = {"layers": 8 if LONG else 4, "width": 512, "heads": 8, "sequence": 128, "vocabulary": 512}
    made = example("gpt-tiny", device="meta", batch=32, tied=shared, **sizes)
    optimizer = torch.optim.SGD(made.module.parameters(), lr=0.1)
    step = girih.TrainingStep(made.module, step=made.step, optimizer=optimizer, micro_batches=4)
    plan = girih.plan(step, made.inputs, machine="local:4", search="pipeline", objective="seconds", compare=())
    timeline = plan.predict().timeline
    busy = timeline.busy()
    ideal = (busy.sum() + 3 * busy.max()) / 4
    assert busy.max() < 1.2 * busy.min()
    assert timeline.seconds < 1.05 * ideal


def test_a_pipeline_is_judged_beside_what_a_search_by_time_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search itself has no work to spend and ends with data parallelism, which suits large weights and slow links
    badly; Megatron-LM's division sends the activations of each layer. Stages of which each has one run of layers come
    next to interleaved ones."""
    monkeypatch.setattr("girih.search.choose.BESIDE", 1e9)
    where = machine("local:4")
    slow = tuple(replace(level, bytes_per_second=3e7, latency_seconds=1e-6) for level in where.levels)
    where = replace(where, levels=slow, device=replace(where.device, flops_per_second=1e10))
    step, batch = tower(8)
    few = tuple(part[:64] for part in batch)
    plan = girih.plan(step, few, machine=where, objective="time", search="exact:seconds=1e-6", compare=())
    check(plan)
    assert plan.search == plan.certificate.statistics["found by"] == "stages"
    assert plan.choice.schedule == "interleaved"
    assert plan.certificate.cost == pytest.approx(plan.predict().seconds)
    assert sorted(plan.certificate.tried, key=plan.certificate.tried.__getitem__)[:2] == ["stages", "pipeline-1f1b"]


def slow_links() -> tuple[Machine, girih.TrainingStep, tuple[torch.Tensor, ...]]:
    """A machine, a step of large weights and a small batch, which data parallelism suits badly."""
    where = machine("local:4")
    slow = tuple(replace(level, bytes_per_second=1e8, latency_seconds=1e-6) for level in where.levels)
    step, batch = tower(4)
    few = tuple(part[:64] for part in batch)
    return replace(where, levels=slow, device=replace(where.device, flops_per_second=1e10)), step, few


@pytest.mark.parametrize(("memory", "hold"), [(None, "auto"), (60_000_000, "auto"), (29_000_000, "none")])
def test_what_stands_apart_is_judged_beside_what_a_search_by_time_finds(
    memory: int | None, hold: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search itself has no work to spend: it ends with data parallelism, under a limit with what tables say at
    once, and under the smallest one with nothing."""
    monkeypatch.setattr("girih.search.choose.BESIDE", 1e9)
    where, step, few = slow_links()
    search = "exact:seconds=1e-6"
    plan = girih.plan(step, few, machine=where, search=search, memory=memory, hold=hold, compare=())
    check(plan)
    assert plan.search == plan.certificate.statistics["found by"]
    assert plan.search in (*APART, "stages")
    assert plan.memory == memory
    assert not plan.choice.residency
    assert memory is None or plan.peak <= memory
    assert 0 < plan.certificate.bound < plan.certificate.cost == pytest.approx(plan.predict().seconds)
    tried = [took for name, took in plan.certificate.tried.items() if name not in (*APART, "stages")]
    assert plan.certificate.cost < min(tried, default=1.0)


def test_what_stands_apart_keeps_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without work to spend it is found, or proved, as the processor's rounding has it, that nothing fits."""
    monkeypatch.setattr("girih.search.choose.BESIDE", 1e9)
    where, step, few = slow_links()
    with pytest.raises(PlanError, match=r"(was found that fits|does not fit) 20\.00 MB"):
        girih.plan(step, few, machine=where, search="exact:seconds=1e-6", memory=20_000_000, hold="none", compare=())


@pytest.mark.parametrize("within", ["data", "megatron"])
def test_stages_are_divided_over_parts_of_the_machine(within: str) -> None:
    """Two hosts of two devices: a stage is a host. Activations and their gradients cross between hosts once each way,
    however many devices a stage has: partial sums of its devices are added before. Weights never cross."""
    plan = planned(4, "2x2", f"pipeline-1f1b:stages=2,within={within}")
    parameters = [item for item in plan.graph.inputs if item.role == "parameter"]
    where = {int(item.path.split(".")[0]): device_of(plan, item.name) for item in parameters}
    assert [where[layer] for layer in range(LAYERS)] == [(0, 1)] * (LAYERS // 2) + [(2, 3)] * (LAYERS // 2)
    assert len(plan.strategy.submeshes) == 2
    between: dict[tuple[bool, str], int] = {}
    for step in plan.program.transfers:
        for item in plan.program.exchange_of(step).messages:
            if item.source != item.target:
                weight = plan.graph.values[step.value].shape[:1] == (WIDTH,)
                key = item.source // 2 != item.target // 2, "weight" if weight else "activation"
                between[key] = between.get(key, 0) + item.elements
    assert (True, "weight") not in between
    assert between[True, "activation"] == 2 * ROWS * WIDTH


def test_stages_that_are_no_parts_of_the_machine_are_refused() -> None:
    with pytest.raises(PlanError, match=r"3 stages are no equal parts of a mesh 2×2: expected one of \[2, 4\]"):
        planned(4, "2x2", "pipeline-1f1b:stages=3")
    with pytest.raises(PlanError, match="stages must be at least 0, got -1"):
        planned(4, "2x2", "pipeline-1f1b:stages=-1")
    with pytest.raises(PlanError, match="no search 'best'"):
        planned(4, "2x2", "pipeline-1f1b:stages=2,within=best")


def test_chunks_that_cannot_be_are_refused() -> None:
    with pytest.raises(PlanError, match="chunks must be at least 1, got 0"):
        planned(4, "local:2", "pipeline-1f1b:chunks=0")
    with pytest.raises(PlanError, match="at least two: this step has 2 micro-batches for 4 stages"):
        planned(2, "local:4", "pipeline-1f1b:chunks=2")
    with pytest.raises(PlanError, match="2 stages of 5 chunks need 10 layers, and this step has 8: expected at most 4"):
        planned(2, "local:2", "pipeline-1f1b:chunks=5")


def test_chunks_go_round_the_stages() -> None:
    plan = planned(2, "2x2", "pipeline-1f1b:stages=2,chunks=2,within=data")
    parameters = [item for item in plan.graph.inputs if item.role == "parameter"]
    where = {int(item.path.split(".")[0]): device_of(plan, item.name) for item in parameters}
    assert [where[layer] for layer in range(LAYERS)] == [(0, 1), (0, 1), (2, 3), (2, 3)] * 2
    with pytest.raises(PlanError, match="on some devices only"):
        plan.export("dtensor")
