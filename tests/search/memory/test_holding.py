"""What does not fit into memory runs by moving tensors out and back: from the facade to the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from counts import LONG, but_long
from graphs import perceptron

import girih
from girih.api import plan_graph
from girih.cli.main import main
from girih.cost.setting import threads_of
from girih.layout.budget import Budget
from girih.machine import machine
from girih.machine.units import format_bytes
from girih.partition.search import nobody
from girih.plans.check import check
from girih.program import FreeStep, MoveStep, TransferStep
from girih.program.life.accounts import host_bytes
from girih.search.memory.holding import TooLittleError, held


@pytest.fixture(scope="module")
def step() -> tuple[girih.TrainingStep, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(64, 64), torch.nn.Tanh())]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    batch = (torch.randn(128, 64), torch.randint(8, (128,)))
    return girih.TrainingStep(model, loss=torch.nn.functional.cross_entropy, optimizer=optimizer), batch


@pytest.fixture(scope="module")
def free(step) -> girih.Plan:
    """On one device with as much memory as it needs."""
    training, batch = step
    return girih.plan(training, batch, machine="local:1", compare=(), objective="bytes")


@pytest.fixture(scope="module")
def half(step, free: girih.Plan) -> girih.Plan:
    """In half of that memory."""
    training, batch = step
    return girih.plan(training, batch, machine="local:1", memory=free.peak // 2, compare=(), objective="bytes")


@cache
def on_a_gpu(share: float | None = None) -> girih.Plan:
    """A step whose movements take long, in so much of the memory that it needs."""
    limit = None if share is None else int(on_a_gpu().peak * share)
    return plan_graph(perceptron(4, 512, 256), machine="p3.2xlarge", memory=limit, objective="bytes")


@pytest.fixture
def threads_of_workers() -> Iterator[None]:
    """This process computes with as many threads as a worker's would: on some processors sums depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads_of(1))
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads_of_workers")
def test_a_step_runs_within_half_of_its_memory_with_the_same_numbers(step, free, half, tmp_path: Path) -> None:
    (training, batch), plan = step, half
    check(plan)
    assert plan.peak <= free.peak // 2 < free.peak
    assert plan.predicted.unlimited == free.predicted.simulated
    assert plan.predicted.simulated is not None
    assert plan.predicted.simulated >= free.predicted.simulated
    assert "by moving tensors: each step" in str(plan)
    plan.save(tmp_path / "plan.json")
    again = girih.load(tmp_path / "plan.json")
    assert again.program == plan.program
    assert (again.machine, again.choice.residency, again.peak) == (plan.machine, plan.choice.residency, plan.peak)
    losses = []
    for own, backend, model in (
        (free, "threads", None),
        (plan, "threads", None),
        (again, "processes", training.model),
    ):
        with own.start(backend=backend, model=model) as run:
            losses.append([run.step(*batch) for _ in range(5)])
            if own is plan:
                assert run.run.peak_bytes(*run.inputs(batch, None)) == [run.plan.peak]
    assert losses[0] == losses[1] == losses[2]


def test_the_smallest_limit_is_named_and_works(step) -> None:
    training, batch = step
    with pytest.raises(girih.PlanError, match=r"cannot be met, whatever is moved out: .* alone needs") as refused:
        girih.plan(training, batch, machine="local:1", memory="1KB", objective="bytes")
    (smallest,) = map(int, re.findall(r"\((\d+) bytes\)", str(refused.value)))
    plan = girih.plan(training, batch, machine="local:1", memory=smallest, compare=(), objective="bytes")
    assert plan.peak <= smallest
    with pytest.raises(girih.PlanError, match=f"\\({smallest} bytes\\)"):
        girih.plan(training, batch, machine="local:1", memory=smallest - 1, objective="bytes")


def test_moving_can_be_forbidden_and_needs_a_large_memory() -> None:
    graph = perceptron(2, 32, 32)
    with pytest.raises(girih.PlanError, match="does not fit"):
        plan_graph(graph, machine="local:1", memory="20KB", hold="none", objective="bytes")
    with pytest.raises(girih.PlanError, match="does not fit"):
        plan_graph(graph, machine=replace(machine("local:1"), host=None), memory="20KB", objective="bytes")
    with pytest.raises(girih.PlanError, match="has no large memory to move tensors to: give its file a `host`"):
        plan_graph(graph, machine=replace(machine("local:1"), host=None), memory="20KB", hold="swap", objective="bytes")
    with pytest.raises(girih.PlanError, match="no way 'magic' to hold tensors: expected one of auto, swap, reco"):
        plan_graph(graph, machine="local:1", memory="20KB", hold="magic", objective="bytes")


def test_a_slower_link_to_the_large_memory_makes_the_step_slower() -> None:
    graph = perceptron(4, 512, 256)
    fast = machine("p3.2xlarge")
    assert fast.host is not None
    limit = on_a_gpu().peak * 6 // 10
    times = []
    for rate in (1e6, 1e9, 12e9, 1e15):
        host = replace(fast.host, out_bytes_per_second=rate, in_bytes_per_second=rate, both_bytes_per_second=0.0)
        plan = plan_graph(graph, machine=replace(fast, host=host), memory=limit, objective="bytes")
        times.append(plan.predicted.simulated)
        moved = sum(isinstance(step, MoveStep) for step in plan.program)
        assert moved > 0
    assert times == sorted(times, reverse=True)
    assert times[0] > 10 * times[-1]
    assert times[-1] <= 1.01 * on_a_gpu().predicted.simulated


def test_copies_are_on_the_timeline_of_their_own_streams() -> None:
    plan = on_a_gpu(0.6)
    timeline = plan.predict().timeline
    assert timeline.streams[-2:] == ("copy out", "copy in")
    assert plan.choice.residency
    for stream, amount in zip((len(timeline.streams) - 2, len(timeline.streams) - 1),
                              plan.choice.residency[0].copied_bytes(plan.lifetimes.touches), strict=True):  # fmt: skip
        mine = timeline.stream == stream
        assert int(timeline.amount[mine].sum()) == amount
        order = np.argsort(timeline.begin[mine])
        assert (timeline.begin[mine][order][1:] >= timeline.end[mine][order][:-1] - 1e-12).all()
    assert int(timeline.memory[0].bytes.max()) == plan.peak <= plan.memory


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    plan = ["plan", "lenet-tiny", "--batch", "16", "--machine", "local:1"]
    assert main([*plan, "--memory", "1KB"]) == 2
    (smallest,) = re.findall(r"alone needs .*? \((\d+) bytes\), the smallest limit", capsys.readouterr().err)
    plan += ["--memory", f"{smallest}B"]  # another on each processor: convolutions need scratch memory
    assert main([*plan, "-o", "plan.json", "--json"]) == 0
    assert max(json.loads(capsys.readouterr().out)["peak"]) <= int(smallest)
    assert main(["show", "plan.json"]) == 0
    assert f"within {format_bytes(int(smallest))} by moving tensors" in " ".join(capsys.readouterr().out.split())
    assert main(["show", "plan.json", "--device", "0"]) == 0
    shown = capsys.readouterr().out
    assert "copy out" in shown
    assert "copy in" in shown
    assert main(["run", "plan.json", "--steps", "2", "--verify"]) == 0
    assert main([*plan, "--hold", "none"]) == 2
    assert "does not fit" in capsys.readouterr().err


def test_what_is_dropped_is_computed_again(tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (torch.nn.Linear(32, 32), torch.nn.Tanh())]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = girih.TrainingStep(model, loss=torch.nn.functional.mse_loss, optimizer=optimizer)
    batch = (torch.randn(512, 32), torch.randn(512, 32))
    free = girih.plan(training, batch, machine="local:1", compare=(), objective="bytes")
    limit = free.peak * 7 // 10
    plan = girih.plan(training, batch, machine="local:1", memory=limit, hold="recompute", compare=(), objective="bytes")
    check(plan)
    assert not plan.choice.residency
    assert not plan.program.host
    assert plan.peak <= limit
    assert re.search(r"by computing \d+ of \d+ steps again; a step takes 1\.\d\d × that", " ".join(str(plan).split()))
    plan.save(tmp_path / "plan.json")
    again = girih.load(tmp_path / "plan.json")
    assert (again.choice.sequence, again.program, again.peak) == (plan.choice.sequence, plan.program, plan.peak)
    losses = []
    for own in (free, again):
        with own.start(backend="threads", model=training.model) as run:
            losses.append([run.step(*batch) for _ in range(3)])
            assert run.run.peak_bytes(*run.inputs(batch, None)) == [run.plan.peak]
    assert losses[0] == losses[1]
    with pytest.raises(girih.PlanError, match=r"where results are computed again, the leanest .* or allow movements"):
        girih.plan(
            training, batch, machine="local:1", memory=free.peak // 5, hold="recompute", compare=(), objective="bytes"
        )


def test_the_large_memory_must_have_room() -> None:
    graph = perceptron(4, 512, 256)
    fast = machine("p3.2xlarge")
    assert fast.host is not None
    limit = on_a_gpu().peak * 6 // 10
    plan = plan_graph(graph, machine=fast, memory=limit, hold="swap", objective="bytes")
    needed = host_bytes(plan.program)
    assert plan.choice.residency
    assert plan.choice.residency[0].copied_bytes(plan.lifetimes.touches)[0] // 2 <= needed
    small = replace(fast, host=replace(fast.host, memory_bytes=needed))
    full = plan_graph(graph, machine=small, memory=limit, hold="swap", objective="bytes")
    assert full.peak <= limit
    assert "are what limits, too" in " ".join(str(full).split())
    assert "what limits" not in str(plan)
    less = limit * 10 // 6 - limit  # what the device cannot hold at the peak: no way does with half of it
    with pytest.raises(girih.PlanError, match=r"would have to lie in host memory over PCIe at once, which has"):
        plan_graph(
            graph,
            machine=replace(fast, host=replace(fast.host, memory_bytes=less // 2)),
            memory=limit,
            hold="swap",
            objective="bytes",
        )


def test_a_spill_directory_that_is_not_there_is_named(
    step, half: girih.Plan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, batch = step
    monkeypatch.setenv("GIRIH_SPILL", str(tmp_path / "gone"))
    with pytest.raises(Exception, match="GIRIH_SPILL") as failed, half.start(backend="threads") as run:
        run.step(*batch)
    assert str(tmp_path / "gone") in str(failed.value)


def test_nothing_is_left_in_the_spill_directory(
    step, half: girih.Plan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, batch = step
    monkeypatch.setenv("GIRIH_SPILL", str(tmp_path))
    with half.start(backend="threads") as run:
        run.step(*batch)
        assert list(tmp_path.iterdir()) == []  # files have no names


def test_the_page_of_a_plan_that_moves_tensors(tmp_path: Path) -> None:
    on_a_gpu(0.6).report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "copy out" in page


def test_two_devices_run_what_neither_dividing_nor_one_device_can(step) -> None:
    training, batch = step
    free = girih.plan(training, batch, machine="local:2", compare=(), objective="bytes")
    limit = free.peak // 4
    with pytest.raises(girih.PlanError, match="does not fit"):
        girih.plan(training, batch, machine="local:2", memory=limit, compare=(), hold="none", objective="bytes")
    with pytest.raises(girih.PlanError, match="cannot be met, whatever is moved out"):
        girih.plan(training, batch, machine="local:1", memory=limit, compare=(), objective="bytes")
    plan = girih.plan(training, batch, machine="local:2", memory=limit, compare=(), objective="bytes")
    check(plan)
    assert plan.choice.residency
    assert plan.program.transfers
    assert max(use.peak for use in plan.memory_by_device) <= limit
    apart = girih.plan(training, batch, machine="local:2", compare=(), objective="bytes", search="exact:space=apart")
    assert plan.predicted.unlimited == apart.predicted.simulated
    with plan.start() as run:
        assert all(run.verified_step(*batch).ok for _ in range(3))
        measured = run.run.peak_bytes(*run.inputs(batch, None))
        assert [use.peak for use in plan.memory_by_device] == measured


@pytest.mark.parametrize(("batch", "width"), but_long([(7, 22), (13, 37)], [(13, 37)]))
def test_devices_with_parts_of_unlike_sizes_all_keep_the_limit(batch: int, width: int) -> None:
    graph = perceptron(4 if LONG else 2, batch, width)
    free = plan_graph(graph, machine="local:4", compare=(), objective="bytes")
    plan = plan_graph(graph, machine="local:4", memory=free.peak * 6 // 10, hold="swap", compare=(), objective="bytes")
    check(plan)
    assert plan.choice.residency
    assert len({use.peak for use in free.memory_by_device}) > 1
    assert all(use.peak <= free.peak * 6 // 10 for use in plan.memory_by_device)


def test_the_lifetimes_of_unlike_devices_are_those_of_the_one_with_the_largest_parts() -> None:
    """Its memory in any sequence is that of all, as nobody has more of anything: nothing has to be walked again."""
    plan = plan_graph(perceptron(2, 7, 22), machine="local:4", compare=(), objective="bytes")
    peaks = [use.peak for use in plan.memory_by_device]
    assert len(set(peaks)) > 1
    assert plan.lifetimes.use in plan.memory_by_device
    assert int(plan.lifetimes.used.max()) == max(peaks)


@pytest.mark.parametrize("hold", ["swap", "recompute"])
def test_without_work_the_first_way_that_keeps_the_limit_is_taken(hold: str) -> None:
    """More work never makes it slower, and what is done is spent where it was given."""
    free = plan_graph(perceptron(8, 512, 16), machine="local:2", compare=(), objective="bytes")
    plan, spent = free.but(memory=free.peak * 8 // 10), []
    seconds = []
    for given in (0.0, 20.0):
        work = Budget(given)
        own = held(plan, hold, store=None, note=nobody, work=work)
        assert own.peak <= free.peak * 8 // 10
        seconds.append(own.predicted.simulated or 0.0)
        spent.append(work.spent)
    assert seconds[1] <= seconds[0]
    assert 0 < spent[0] < spent[1]


@pytest.mark.parametrize(("less", "told"), [(0, "each in the orders of steps that were tried"), (1, "lives from step")])
def test_where_nothing_can_fit_nothing_else_is_tried_without_work(less: int, told: str) -> None:
    free = plan_graph(perceptron(8, 512, 16), machine="local:2", compare=(), objective="bytes")
    plan = free.but(memory=max(use.state for use in free.memory_by_device) - less)
    spent = []
    for given in (0.0, 20.0):
        work = Budget(given)
        with pytest.raises(TooLittleError, match=None if given else told) as refused:
            held(plan, "recompute", store=None, note=nobody, work=work)
        assert refused.value.proved
        spent.append(work.spent)
    assert spent[0] < spent[1] <= 20e9


def test_what_is_fetched_is_fetched_again_where_memory_is_short(tmp_path: Path) -> None:
    """Weights that lie divided are gathered for the forward pass, and once more for the backward pass."""
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(64, 64, bias=False), torch.nn.Tanh())]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = girih.TrainingStep(model, loss=torch.nn.functional.mse_loss, optimizer=optimizer)
    batch = (torch.randn(128, 64), torch.randn(128, 64))
    free = girih.plan(training, batch, machine="local:2", compare=(), objective="bytes")
    limit = free.peak * 3 // 4
    plan = girih.plan(training, batch, machine="local:2", memory=limit, hold="recompute", compare=(), objective="bytes")
    check(plan)
    sequence, steps = plan.choice.sequence, plan.lowered.steps
    assert sequence is not None
    assert not plan.choice.residency
    kinds = [type(step) for step in steps if not isinstance(step, FreeStep)]
    assert [kinds[step] for step in sequence].count(TransferStep) > kinds.count(TransferStep)
    once = plan.lowered.bytes_received().sum()
    assert once == plan.certificate.cost
    assert plan.bytes_received.sum() > once
    assert re.search(r"by receiving \S+ .?B of all devices again", " ".join(str(plan).split()))
    plan.save(tmp_path / "plan.json")
    again = girih.load(tmp_path / "plan.json")
    assert again.program == plan.program
    with again.start() as run:
        assert all(run.verified_step(*batch).ok for _ in range(2))
        received = [item.bytes_received for item in run.run.statistics()]
        assert received == [int(amount) * 2 for amount in plan.bytes_received]
        assert run.run.peak_bytes(*run.inputs(batch, None)) == [use.peak for use in plan.memory_by_device]
