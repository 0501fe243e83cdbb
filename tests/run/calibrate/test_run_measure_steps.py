"""Calls measured in steps of their program: all of them, on numbers that do not break it, or else apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import girih
from girih.cost.device_calls import NOTHING, local_calls
from girih.cost.profile import Moving, load_profile
from girih.cost.store import Store
from girih.machine import machine
from girih.machine.machine import with_memory
from girih.machine.sizes import SizeTable
from girih.program import ComputeStep, MoveStep
from girih.run.calibrate.calibrate import Handed, as_in_steps, calibrate, handed_as_in_steps, idle_program, stepped
from girih.run.calibrate.measure_steps import (
    Copied,
    Stepped,
    StepTask,
    can_be_stepped,
    drawn_batch,
    drawn_inputs,
    exchanging,
    flushes_denormal,
)
from girih.run.engines.threads import ThreadCrew
from girih.run.transport.transport import NoTransport
from girih.run.worker.service import Options
from girih.simulate.tasks import move_amounts


class Rows(nn.Module):
    """Looks up rows that are told by real numbers, which are small here and not where they are drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(11, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.index_select(self.table, 0, (x + 10).long())


def planned(model: nn.Module, batch: Any, loss: Any = nn.functional.mse_loss, **options: Any) -> girih.Plan:
    step = girih.TrainingStep(model, loss=loss, optimizer=torch.optim.Adam(model.parameters(), lr=0.01))
    return girih.plan(step, batch, **{"machine": "local:2", "search": "data", "compare": (), **options})


@pytest.fixture(scope="module")
def words() -> girih.Plan:
    words = torch.zeros(12, dtype=torch.int64)
    model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50))
    return planned(model, (words, words), nn.functional.cross_entropy)


def replies_of(plan: girih.Plan, workers: int) -> list:
    crew = ThreadCrew(idle_program(workers), Options(timeout=60.0, device="cpu", threads=1))
    try:
        return stepped(crew, plan.program, 0.01, crowded=False)[0]
    finally:
        crew.close()


def test_every_compute_step_of_every_worker_is_measured(words) -> None:
    program = words.program
    for rank, reply in enumerate(replies_of(words, 2)):
        assert not isinstance(reply, str), reply
        assert set(reply.calls) == {at for at in program.order_of(rank) if isinstance(program.steps[at], ComputeStep)}
        assert all(sample.seconds > 0 and sample.repeats >= 3 for sample in reply.calls.values())
        assert all(local_calls(program, over=True).numbers[at, rank] != NOTHING for at in reply.calls)


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor has no such switch")
@pytest.mark.parametrize("flushed", [True, False])
def test_denormal_numbers_are_afterwards_what_they_were_in_this_thread(flushed: bool) -> None:
    plan = planned(nn.Linear(4, 4), (torch.zeros(2, 4), torch.zeros(2, 4)), machine="local:1", search="single")
    try:
        torch.set_flush_denormal(flushed)
        task = StepTask(plan.program, False)(NoTransport(), 0, torch.device("cpu"))
        assert isinstance(next(task), float)
        assert flushes_denormal()
        assert isinstance(task.send(drawn_batch(plan.program)), dict)
        assert isinstance(next(task), Stepped)
        assert flushes_denormal() == flushed
        assert bool(torch.tensor(2e-310, dtype=torch.float64) / 2 == 0) == flushed
    finally:
        torch.set_flush_denormal(False)


def test_what_is_told_of_a_step_adds_up(words) -> None:
    """Computing, waiting for who computes longer, and exchanging are all that workers do."""
    program, replies = words.program, replies_of(words, 2)
    assert all(seconds > 0 for reply in replies for seconds in reply.steps)
    numbers = local_calls(program, over=True).numbers
    same = dict.fromkeys(range(int(numbers.max()) + 1), 1e-5)
    counts = [sum(numbers[at, rank] != NOTHING for at in program.order_of(rank)) for rank in range(2)]
    assert counts[0] == counts[1]
    assert exchanging(program, replies, same) == pytest.approx(max(item.seconds for item in replies) - 1e-5 * counts[0])


def test_whole_numbers_are_drawn_within_what_they_look_up(words) -> None:
    for rank in range(2):
        drawn = drawn_inputs(words.program, rank)
        whole = [tensor for tensor in drawn.values() if tensor.dtype == torch.int64 and tensor.dim()]
        assert whole
        assert all(int(tensor.min()) >= 0 and 2 < int(tensor.max()) < 50 for tensor in whole)


def test_drawn_numbers_keep_their_size_from_layer_to_layer() -> None:
    """Denormal numbers, which a saturated softmax has, take processors ten times as long as those of a run."""
    model = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(4)], nn.Linear(512, 512))
    labels = torch.zeros(32, dtype=torch.int64)
    program = planned(model, (torch.zeros(32, 512), labels), nn.functional.cross_entropy).program
    drawn = drawn_inputs(program, 0)
    weights = {item.path: drawn[item.name] for item in program.graph.inputs if item.role == "parameter"}
    (batch,) = (tensor for tensor in drawn_batch(program).values() if tensor.shape == (32, 512))
    output = torch.func.functional_call(model, weights, batch)
    assert float(torch.softmax(output, dim=1).min()) > 1e-6
    assert all(float(item.min()) >= 0 for item in weights.values())


def test_a_driver_takes_in_predictions_what_it_took_in_steps() -> None:
    handing = SizeTable((1000, 2000), (1e-3, 2e-3), (0.0, 0.0))
    steps = [Handed(1000, 100, 2.2e-3), Handed(2000, 1000, 6e-3), Handed(1000, 3000, 8e-3), Handed(2000, 10, 4.02e-3)]
    slower, besides = handed_as_in_steps(handing, steps)
    for item in steps:
        assert slower.seconds(item.bytes) + besides * item.instructions == pytest.approx(item.seconds, rel=0.05)
    assert besides == pytest.approx(2e-6, rel=0.1)
    assert handed_as_in_steps(handing, []) == (handing, 0.0)
    (one,) = (handed_as_in_steps(handing, [Handed(1000, 100, 2e-3)]),)
    assert one[0].seconds(1000) + 100 * one[1] == pytest.approx(2e-3, rel=0.05)


class Breaking:
    """A crew in which the second worker's exchange fails in the second step."""

    rank, size, carries, program = 0, 2, False, None

    def __init__(self) -> None:
        self.asked: list[str] = []

    def command(self, _: str, fields: list[dict[str, Any]]) -> list[Any]:
        self.asked += [*fields[0]] or ["the end"]
        if "task" in fields[0]:
            return [1e-3, 1e-3]
        if not fields[0]:
            return [None, None]
        return [{}, "an exchange failed"] if self.asked.count("given") == 2 else [{"loss": torch.ones(())}, {}]


def test_a_step_that_fails_later_is_told_and_all_workers_end(words, monkeypatch: pytest.MonkeyPatch) -> None:
    crew: Any = Breaking()
    monkeypatch.setattr("girih.run.training.session.assemble", lambda *_: torch.ones(()))
    replies, took = stepped(crew, words.program, 1.0, crowded=False)
    assert replies == [{}, "an exchange failed"]
    assert len(took) == 1
    assert crew.asked == ["task", "given", "given", "the end"]


def test_what_fails_on_drawn_numbers_leaves_no_worker_waiting_and_is_measured_apart(tmp_path: Path) -> None:
    plan = planned(Rows(), (torch.zeros(600), torch.ones(600, 4)))
    assert "a call failed on drawn numbers" in replies_of(plan, 2)
    calibrate(
        "local:2", store_path=tmp_path / "costs", programs=[plan.program], backend="threads", budget_seconds=0.2,
        largest_bytes=1 << 12,
    )  # fmt: skip
    with Store(tmp_path / "costs") as store:
        calls = local_calls(plan.program, over=True).calls
        profile = load_profile(store, "local:2", "threads")
        assert profile is not None
        assert len(store.measured(profile.setting, list(calls))) >= len(calls) - 1  # the look-up alone is not


def test_in_steps_where_workers_copy_themselves_and_there_is_memory(words, monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine("local:1")
    batch = torch.ones(512, 64)
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)])
    free = planned(model, (batch, batch), machine="local:1", search="single")
    assert can_be_stepped(free.program, here, 2)
    assert not can_be_stepped(free.program, with_memory(here, free.peak), 2)
    limited = planned(
        model, (batch, batch), machine="local:1", search="single", memory=int(0.7 * free.peak), hold="vdnn"
    )
    assert limited.program.host
    monkeypatch.setattr("girih.machine.names.cores_here", lambda: 2)
    assert can_be_stepped(limited.program, here, 2)
    assert not can_be_stepped(limited.program, here, 1)  # a core is free for copies
    monkeypatch.setattr("girih.machine.names.cores_here", lambda: 1)
    (reply,) = replies_of(limited, 1)
    amounts = move_amounts(limited.program)
    moves = [step for step in limited.program.steps if isinstance(step, MoveStep)]
    told = [(move.out, int(amounts[move.target][0])) for move in moves]
    assert sorted((copy.out, copy.bytes) for copy in reply.copies) == sorted(told)
    assert {out for out, _ in told} == {True, False}
    assert all(copy.seconds > 0 for copy in reply.copies)


def test_copies_take_in_predictions_what_they_took_in_steps() -> None:
    moving = Moving(1e9, 2e9, 1e-5, 1.0)
    copies = [Copied(True, 1_000_000, 2e-3), Copied(False, 1_000_000, 1.03e-3)]
    slower = as_in_steps(moving, copies)
    told = [slower.latency_seconds + 1e6 / rate for rate in (slower.out_bytes_per_second, slower.in_bytes_per_second)]
    assert sum(told) == pytest.approx(3.03e-3)
    assert told[0] / told[1] == pytest.approx(1.01 / 0.51)
    assert as_in_steps(moving, []) == moving
