"""Calls measured in steps of their program: all of them, on numbers that do not break it, or else apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import girih
from girih.cost.device_calls import NOTHING, local_calls
from girih.cost.profile import load_profile
from girih.cost.store import Store
from girih.machine import machine
from girih.machine.machine import with_memory
from girih.program import ComputeStep
from girih.run.calibrate.calibrate import calibrate, idle_program
from girih.run.calibrate.measure_steps import StepTask, can_be_stepped, drawn_inputs
from girih.run.engines.threads import ThreadCrew
from girih.run.worker.service import Options


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
        return crew.command("measure", [{"task": StepTask(plan.program, 0.01, False)} for _ in range(workers)])
    finally:
        crew.close()


def test_every_compute_step_of_every_worker_is_measured(words) -> None:
    program = words.program
    for rank, reply in enumerate(replies_of(words, 2)):
        assert not isinstance(reply, str), reply
        assert set(reply) == {at for at in program.order_of(rank) if isinstance(program.steps[at], ComputeStep)}
        assert all(sample.seconds > 0 and sample.repeats >= 3 for sample in reply.values())
        assert all(local_calls(program, over=True).numbers[at, rank] != NOTHING for at in reply)


def test_whole_numbers_are_drawn_within_what_they_look_up(words) -> None:
    for rank in range(2):
        drawn = drawn_inputs(words.program, rank)
        whole = [tensor for tensor in drawn.values() if tensor.dtype == torch.int64 and tensor.dim()]
        assert whole
        assert all(int(tensor.min()) >= 0 and 2 < int(tensor.max()) < 50 for tensor in whole)


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


def test_not_in_steps_where_copies_have_a_price_of_their_own_or_memory_is_short(words) -> None:
    here = machine("local:1")
    batch = torch.ones(512, 64)
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)])
    free = planned(model, (batch, batch), machine="local:1", search="single")
    assert can_be_stepped(free.program, here)
    assert not can_be_stepped(free.program, with_memory(here, free.peak))
    limited = planned(
        model, (batch, batch), machine="local:1", search="single", memory=int(0.7 * free.peak), hold="vdnn"
    )
    assert limited.program.host
    assert not can_be_stepped(limited.program, here)
