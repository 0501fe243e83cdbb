"""Computing in pieces as a choice, where everything would fit without."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

import girih
from girih.layout.budget import Budget
from girih.plans.check import check
from girih.plans.cutting import in_smaller_pieces
from girih.plans.predict import predict
from girih.program.moves.residency import floor
from girih.search.memory.holding import held


def nobody(what: str, share: float) -> None:
    pass


@pytest.fixture(scope="module")
def step() -> tuple[girih.TrainingStep, tuple[torch.Tensor, torch.Tensor]]:
    """A body whose activations are kept, and the loss over a large vocabulary: no step alone sets the peak."""
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for _ in range(6):
        layers += [torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 64)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 2048))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = (torch.randn(512, 64), torch.randint(2048, (512,)))
    return girih.TrainingStep(model, loss=cross_entropy, optimizer=optimizer), batch


def test_pieces_are_taken_where_they_are_faster_than_movements(step) -> None:
    training, batch = step
    free = girih.plan(training, batch, machine="p3.2xlarge", objective="bytes")
    limit = free.peak * 7 // 10
    plan = girih.plan(training, batch, machine="p3.2xlarge", memory=limit, objective="bytes")
    check(plan)
    assert plan.choice.pieces
    assert plan.peak <= limit
    assert plan.predicted.unlimited == free.predicted.simulated
    whole = girih.plan(training, batch, machine="p3.2xlarge", memory=limit, hold="swap", objective="bytes")
    assert not whole.choice.pieces  # every step alone fits
    assert floor(whole.lifetimes)[0] <= limit
    assert in_smaller_pieces(whole, Budget(20.0)) is whole
    assert whole.predicted.simulated is not None
    assert plan.predicted.simulated is not None
    assert plan.predicted.simulated < whole.predicted.simulated
    assert plan.predicted.memory_bound is not None
    assert plan.predicted.memory_bound <= plan.predicted.simulated * (1 + 1e-9)


def test_what_is_chosen_in_pieces_runs_within_the_limit(step) -> None:
    training, batch = step
    free = girih.plan(training, batch, machine="local:1", objective="bytes")
    plan = girih.plan(training, batch, machine="local:1", memory=free.peak * 6 // 10, objective="bytes")
    assert plan.predicted.simulated is not None
    anew = held(plan.but(sequence=None, residency=()), "auto", store=None, note=nobody)
    assert plan.predicted.simulated <= predict(anew).seconds * (1 + 1e-9)
    with plan.start(backend="threads") as run:
        assert all(run.verified_step(*batch).ok for _ in range(2))
        assert run.run.peak_bytes(*run.inputs(batch, None)) == [run.plan.peak]
