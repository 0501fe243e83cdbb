"""Ordinary programs of PyTorch's users: captured, planned over two devices, run there, and compared with one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import user_layers
import user_sequences
from against_eager import compare
from user_programs import PROGRAMS

import girih
from girih.capture import TrainingStep
from girih.ops import first_description

PAGES = (user_layers, user_sequences)


def step_of(name: str) -> TrainingStep:
    torch.manual_seed(0)
    program = PROGRAMS[name]
    model = program.make()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return TrainingStep(model, program.loss, torch.optim.SGD(trained, lr=0.05, momentum=0.9))


def draws(plan: Any) -> bool:
    return any(item.role == "seed" for item in plan.graph.inputs)


@pytest.mark.parametrize("name", PROGRAMS)
def test_two_devices_train_as_one(name: str) -> None:
    program, step = PROGRAMS[name], step_of(name)
    batches = [program.batch(seed) for seed in range(2)]
    plan = girih.plan(step, batches[0], machine="local:2", compare=(), search="exact:seconds=20", objective="bytes")
    with plan.start(backend="threads") as running:
        for batch in batches:
            found = running.verified_step(*batch)
            assert found.ok, found
    undivided = {node.operator for node in plan.graph.nodes if first_description(plan.graph, node) is None}
    assert undivided == program.undivided
    if not draws(plan):
        compare(step_of(name), batches)
