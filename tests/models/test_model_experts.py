"""Layers of experts: both ways of sending words equal a loop over the words, and train; one needs far less memory."""

from __future__ import annotations

import pytest
import torch

import girih
from girih.models import example, random_batch
from girih.models.networks.sequences.experts import Experts


def one_word_after_another(layer: Experts, words: torch.Tensor) -> torch.Tensor:
    """All first choices in the words' order, then all second ones; an expert takes words until its slots are full."""
    gates, chosen = layer.router(words).softmax(-1).topk(layer.choices)
    if layer.choices > 1:
        gates = gates / gates.sum(-1, keepdim=True)
    slots = layer.route(words)[-1]
    expand, contract = torch.cat(tuple(layer.expand)), torch.cat(tuple(layer.contract))
    taken = [0] * layer.experts
    result = torch.zeros_like(words)
    for choice in range(layer.choices):
        for number, word in enumerate(words):
            expert = int(chosen[number, choice])
            if taken[expert] < slots:
                taken[expert] += 1
                answer = torch.relu(word @ expand[expert]) @ contract[expert]
                result[number] = result[number] + gates[number, choice] * answer
    return result


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize(
    ("experts", "choices", "capacity", "groups"),
    [(4, 2, 1.25, 1), (4, 2, 0.5, 2), (6, 3, 0.25, 3), (3, 1, 1.0, 1), (2, 2, 9.0, 1)],
)
def test_equals_one_word_after_another(sparse: bool, experts: int, choices: int, capacity: float, groups: int) -> None:
    torch.manual_seed(0)
    layer = Experts(8, 12, experts, choices, capacity, groups, sparse).double()
    x = torch.randn(3, 7, 8, dtype=torch.float64, requires_grad=True)
    inputs = [x, *layer.parameters()]
    expected = one_word_after_another(layer, x.flatten(0, 1)).view(x.shape)
    assert torch.equal(expected.flatten(0, 1).abs().sum(1) == 0, layer(x).flatten(0, 1).abs().sum(1) == 0)
    torch.testing.assert_close(layer(x), expected)
    gradients = [torch.autograd.grad(y.square().sum(), inputs) for y in (layer(x), expected)]
    torch.testing.assert_close(*gradients)


def test_low_capacity_drops_words() -> None:
    torch.manual_seed(0)
    layer = Experts(8, 12, experts=4, choices=1, capacity=0.5)
    _, _, places, slots = layer.route(torch.randn(32, 8))
    assert slots == 4
    assert (places < slots).sum() <= 4 * slots < 32
    with pytest.raises(ValueError, match="got experts=4, groups=3, choices=2"):
        Experts(8, 12, experts=4, groups=3)


@pytest.mark.parametrize("name", ["moe-tiny", "sparse-moe-tiny"])
def test_planned_steps_lower_the_loss_as_eager_ones(name: str) -> None:
    shown, own = (example(name, device="cpu") for _ in range(2))
    step = girih.TrainingStep(
        shown.module, step=shown.step, optimizer=torch.optim.SGD(shown.module.parameters(), lr=0.1, momentum=0.9)
    )
    optimizer = torch.optim.SGD(own.module.parameters(), lr=0.1, momentum=0.9)
    plan = girih.plan(step, shown.inputs, machine="local:1", objective="bytes")
    with plan.start(backend="threads") as running:
        for _ in range(8):
            loss = own.step(own.module, own.inputs)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert running.step(shown.inputs) == pytest.approx(loss.item(), rel=1e-4)
        assert loss.item() < 3.5  # from 4.3, one batch learnt by heart
        assert running.verified_step(random_batch(name, seed=1)).ok  # other words take other ways


def test_sparse_needs_far_less_memory_and_nothing_of_words_by_slots() -> None:
    """1,024 words in 2,560 slots: 10 MB for each tensor of ones and zeros, and a word is 32 numbers wide."""
    plans = {}
    for name in ("moe-tiny", "sparse-moe-tiny"):
        shown = example(name, sequence=128)
        step = girih.TrainingStep(
            shown.module, step=shown.step, optimizer=torch.optim.SGD(shown.module.parameters(), lr=0.1)
        )
        plans[name] = girih.plan(step, shown.inputs, machine="local:1", compare=(), objective="bytes")
    dense, sparse = (plan.memory_by_device[0].peak for plan in plans.values())
    assert dense > 4 * 1024 * 2560 * 4
    assert sparse < dense / 4
    largest = [max(value.bytes for value in plan.graph.values.values()) for plan in plans.values()]
    assert largest[0] >= 1024 * 2560 * 4 > 4 * largest[1]
