"""Ordinary programs of PyTorch's users: captured, planned over two devices, run there, and compared with one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import user_layers
import user_sequences
from against_eager import compare
from counts import but_long
from user_programs import PROGRAMS

import girih
from girih.capture import TrainingStep
from girih.ops import first_description

PAGES = (user_layers, user_sequences)
LIKE_OTHERS = {
    "InstanceNorm", "spectral norm", "channel attention by AdaptiveMaxPool", "channels last, pooled to 1",
    "channels last", "U-Net", "a loop over columns", "grouped causal attention", "MultiheadAttention",
    "TransformerEncoderLayer", "TransformerEncoder, norm first", "spectral convolution", "diagonal state space",
    "LSTM num_layers bidirectional", "LSTM num_layers dropout", "GRU num_layers dropout bidirectional",
    "EmbeddingBag, mean", "EmbeddingBag, sum", "EmbeddingBag with padding", "EmbeddingBag with offsets, mean",
    "EmbeddingBag with offsets, sum of weighted rows", "EmbeddingBag of one row in each, mean",
    "EmbeddingBag with trained weights",
}  # fmt: skip
"""Every operator that they call is called by others, too."""


def step_of(name: str) -> TrainingStep:
    torch.manual_seed(0)
    program = PROGRAMS[name]
    model = program.make()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return TrainingStep(model, program.loss, torch.optim.SGD(trained, lr=0.05, momentum=0.9))


def draws(plan: Any) -> bool:
    return any(item.role == "seed" for item in plan.graph.inputs)


@pytest.mark.parametrize("name", but_long(PROGRAMS, LIKE_OTHERS))
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
