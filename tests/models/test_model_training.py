"""The models of FlexFlow's and TensorFlowMem's evaluations, planned over two devices, trained there and on one."""

from __future__ import annotations

import pytest
import torch
from counts import but_long
from torch.utils._pytree import tree_map

import girih
from girih.models import example, random_batch


def exact(batch: object) -> object:
    return tree_map(lambda x: x.double() if x.is_floating_point() else x, batch)


NAMES = ["rnntc-tiny", "nmt-tiny", "dlrm-criteo-tiny", "sparse-moe-tiny", "deepspeech-tiny", "wgan-critic-tiny",
         "resnext-tiny", "squeezenet-tiny"]  # fmt: skip
LIKE_OTHERS = ["rnnlm-tiny", "nasrnn-tiny", "candle-uno-tiny", "transformer-tiny", "wgan-generator-tiny",
               "densenet-tiny", "vgg-tiny", "vit-tiny"]  # fmt: skip
"""Made of the same parts."""


@pytest.mark.parametrize("name", but_long([*NAMES, *LIKE_OTHERS], LIKE_OTHERS))
def test_two_workers_train_as_one(name: str) -> None:
    shown = example(name, device="cpu")
    module = shown.module.double()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    step = girih.TrainingStep(module, step=shown.step, optimizer=optimizer)
    plan = girih.plan(step, exact(shown.inputs), machine="local:2", compare=(), objective="bytes")
    assert plan.gap == 0.0
    with plan.start(backend="threads") as running:
        for seed in range(2):
            found = running.verified_step(exact(random_batch(name, seed=seed)))
            assert found.ok, found
        received = [int(item.bytes_received) for item in running.statistics()]
    assert received == [2 * int(amount) for amount in plan.bytes_received]
    assert max(received) > 0  # both take part
