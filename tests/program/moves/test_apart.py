"""Devices that do different things keep a memory limit by movements of their own: pipelines, run for real."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import girih
from girih.program import MoveStep, check
from girih.program.life.accounts import memory_use
from girih.program.life.lifetimes import lifetimes
from girih.program.moves.apart import lifetimes_by_class, moved_apart
from girih.program.moves.moves import moved
from girih.program.moves.residency import floor
from girih.search.memory.belady import belady


@pytest.fixture(scope="module")
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(64, 32), torch.randint(8, (64,))


def stepping(micro_batches: int) -> girih.TrainingStep:
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(32, 32), torch.nn.Tanh())]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(32, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loss = torch.nn.functional.cross_entropy
    return girih.TrainingStep(model, loss=loss, optimizer=optimizer, micro_batches=micro_batches)


@pytest.fixture(scope="module")
def free(batch) -> girih.Plan:
    return girih.plan(stepping(4), batch, machine="local:3", compare=(), search="pipeline-1f1b", objective="bytes")


def test_every_cap_is_kept_with_the_law(free) -> None:
    program = free.program
    assert len(program.orders) == 3
    lives = lifetimes_by_class(program, range(3), 1)
    for own, order in zip(lives, program.orders, strict=True):
        plain = lifetimes(program, order.devices.first, 1)
        assert [item.name for item in own.storages] == [item.name for item in plain.storages]
        assert sum(item.movable for item in own.storages) < sum(item.movable for item in plain.storages)
    least = max(floor(own)[0] for own in lives)
    most = max(int(own.used.max()) for own in lives)
    assert most == max(memory_use(program, device, 1).peak for device in range(3))
    for cap in (least, (least + most) // 2, most):
        held = moved_apart(lives, [belady(own, cap, np.ones(len(own.steps))) for own in lives], cap)
        check(held)
        assert type(held).parse(str(held), held.graph, held.strategy) == held
        assert max(memory_use(held, device, 1).peak for device in range(3)) <= cap
        assert any(isinstance(step, MoveStep) for step in held) == (cap < most)


def test_one_class_is_moved_by_itself(free) -> None:
    with pytest.raises(ValueError, match="all devices do the same: see"):
        moved(lifetimes(free.program, 0, 1), belady(lifetimes(free.program, 0, 1), 10**9, [0.0] * 10_000), 10**9)


@pytest.mark.parametrize("search", ["pipeline-1f1b", "pipeline-1f1b:chunks=2"])
def test_a_pipeline_runs_within_its_limit_with_the_same_numbers(batch, tmp_path: Path, search: str) -> None:
    step = stepping(2)
    plain = girih.plan(step, batch, machine="local:2", compare=(), search=search, objective="bytes")
    limit = plain.peak * 6 // 10
    plan = girih.plan(step, batch, machine="local:2", memory=limit, compare=(), search=search, objective="bytes")
    assert plan.peak <= limit
    assert plan.choice.residency
    assert plan.predicted.memory_bound is not None
    assert plan.predicted.simulated is not None
    assert plan.predicted.memory_bound <= plan.predicted.simulated
    assert re.search(r"by moving tensors: each step .* of all devices go\s+out to files", str(plan))
    plan.save(tmp_path / "plan.json")
    again = girih.load(tmp_path / "plan.json")
    assert again.program == plan.program
    losses = []
    for own in (plain, plan):
        with own.start(backend="processes") as run:
            losses.append([run.step(*batch) for _ in range(2)])
            assert run.run.peak_bytes(*run.inputs(batch, None)) == [use.peak for use in own.memory_by_device]
    assert losses[0] == losses[1]


def test_published_ways_that_move_alone_are_for_each_class_too(batch) -> None:
    step = stepping(1)
    limit = girih.plan(step, batch, machine="local:2", compare=(), search="model", objective="bytes").peak * 8 // 10
    options = {"machine": "local:2", "memory": limit, "compare": (), "search": "model", "objective": "bytes"}
    assert girih.plan(step, batch, hold="odswap", **options).peak <= limit
    for hold in ("recompute", "sqrt", "tensorflowmem"):
        with pytest.raises(girih.PlanError, match=f"hold {hold} is not for devices that do different things"):
            girih.plan(step, batch, hold=hold, **options)
    with pytest.raises(girih.PlanError, match=r"whatever is moved out: in the order of steps .* needs .* of a device"):
        girih.plan(step, batch, **(options | {"memory": 10_000}))
