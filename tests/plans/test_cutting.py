"""Plans whose steps alone do not fit compute them in pieces by themselves, and say so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from graphs import Maker

import girih
from girih.api import plan_graph
from girih.graph import Output, Ref
from girih.layout.budget import Budget
from girih.plans.check import check
from girih.plans.cutting import in_smaller_pieces
from girih.program.moves.residency import floor


@pytest.fixture(scope="module")
def training() -> tuple[girih.TrainingStep, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 512))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    batch = (torch.randn(1024, 16), torch.randint(512, (1024,)))
    return girih.TrainingStep(model, loss=torch.nn.functional.cross_entropy, optimizer=optimizer), batch


def test_a_limit_below_the_floor_of_whole_steps_is_kept(training, tmp_path: Path) -> None:
    step, batch = training
    free = girih.plan(step, batch, machine="local:1", compare=(), objective="bytes")
    least = floor(free.lifetimes)[0]
    plan = girih.plan(step, batch, machine="local:1", memory=least // 2, compare=(), objective="bytes")
    check(plan)
    assert plan.choice.pieces
    assert plan.peak <= least // 2
    assert "steps in pieces" in " ".join(str(plan).split())
    plan.save(tmp_path / "plan.json")
    again = girih.load(tmp_path / "plan.json")
    assert (again.program, again.choice.pieces, again.peak) == (plan.program, plan.choice.pieces, plan.peak)
    losses = []
    for own in (free, again):
        with own.start(backend="threads", model=step.model if own is again else None) as run:
            losses.append([float(run.step(*batch)) for _ in range(3)])
            if own is again:
                assert run.run.peak_bytes(*run.inputs(batch, None)) == [run.plan.peak]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_the_search_for_pieces_ends_with_its_work(training) -> None:
    step, batch = training
    free = girih.plan(step, batch, machine="local:1", compare=(), objective="bytes")
    plan = free.but(memory=floor(free.lifetimes)[0] // 2)
    few, enough = Budget(0.0), Budget(20.0)
    assert in_smaller_pieces(plan, few) is plan
    assert in_smaller_pieces(plan, enough).choice.pieces
    assert few.spent < enough.spent


def test_the_smallest_limit_with_pieces_is_named_and_works(training) -> None:
    step, batch = training
    with pytest.raises(girih.PlanError, match=r"Already \d+ steps are to be computed in pieces; without") as refused:
        girih.plan(step, batch, machine="local:1", memory=1000, compare=(), objective="bytes")
    (smallest,) = map(int, re.findall(r"\((\d+) bytes\)", str(refused.value)))
    plan = girih.plan(step, batch, machine="local:1", memory=smallest, compare=(), objective="bytes")
    assert plan.peak <= smallest


def test_where_pieces_do_not_help_the_message_says_so() -> None:
    make = Maker()
    wave = make.emit("aten.sin", (4096,), self=Ref(make.input((4096,))))
    with pytest.raises(girih.PlanError, match=r"No way to compute it in pieces was found that helps\."):
        plan_graph(make.graph([Output(wave, "result")]), machine="local:1", memory="1KB", objective="bytes")
