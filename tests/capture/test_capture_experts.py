"""Mixtures of experts: products in groups of rows, in all forms that PyTorch has, and Mixtral as it comes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from against_eager import compare, eager_step
from counts import but_long
from torch import nn

import girih
from girih.capture import CaptureError, TrainingStep
from girih.ops.known import several_descriptions

LENGTH, VOCABULARY = 6, 48


class Grouped(nn.Module):
    """Products of groups with parameters on both sides, so that both have gradients."""

    def __init__(self, first: tuple[int, ...], second: tuple[int, ...], **options: Any) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(first))
        self.second = nn.Parameter(torch.randn(second))
        self.options = options

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.nn.functional.grouped_mm(self.first, self.second, **self.options, **batch)


@pytest.mark.parametrize(
    ("first", "second", "groups"),
    [((16, 8), (3, 8, 4), True), ((8, 16), (16, 4), True), ((3, 4, 8), (8, 16), True), ((3, 4, 8), (3, 8, 4), False)],
    ids=["rows", "sums", "columns", "all"],
)
def test_products_of_groups_equal_eager(first: tuple[int, ...], second: tuple[int, ...], groups: bool) -> None:
    """Sizes are such that PyTorch's kernels take them; the second group is empty. They take no float64."""
    torch.manual_seed(0)
    model = Grouped(first, second)
    batches = [{"offs": torch.tensor([at, at, 16], dtype=torch.int32)} if groups else {} for at in (4, 8, 12)]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    step = TrainingStep(model, step=lambda net, b: (net(b) ** 2).sum(), optimizer=optimizer)
    captured = compare(step, batches, 1e-5)
    used = {node.operator for node in captured.graph.nodes}
    assert "aten._grouped_mm" not in used
    assert bool(used & {"girih.grouped_product", "girih.grouped_gradient"}) == groups
    assert all(several_descriptions(captured.graph))


def test_products_of_groups_that_pytorch_has_not() -> None:
    model = Grouped((16, 8), (3, 8, 4))
    step = TrainingStep(model, step=lambda net, b: net({}).sum(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(CaptureError, match="offs"):
        girih.capture.capture(step, torch.zeros(1))


def mixtral() -> TrainingStep:
    """Two layers with random weights; nothing is told about how experts are computed."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.MixtralConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=24,
        max_position_embeddings=16,
        num_local_experts=4,
        num_experts_per_tok=2,
    )
    model = transformers.MixtralForCausalLM(config).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return TrainingStep(model, step=lambda net, ids: net(input_ids=ids, labels=ids).loss, optimizer=optimizer)


def batch(seed: int) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("workers", "objective"), but_long([(1, "bytes"), (2, "bytes"), (2, "seconds")], [(1, "bytes")])
)
def test_mixtral_trains_as_on_one_device(workers: int, objective: str) -> None:
    step, own = mixtral(), mixtral()
    plan = girih.plan(step, batch(0), machine=f"local:{workers}", objective=objective, compare=())
    with plan.start(backend="threads") as run:
        losses = [run.step(batch(seed)) for seed in range(3)]
        state = run.state_dict()
    assert losses == pytest.approx([eager_step(own, batch(seed)).item() for seed in range(3)], rel=1e-5)
    for name, tensor in own.model.state_dict().items():
        torch.testing.assert_close(state[name], tensor, rtol=1e-3, atol=1e-5)
    experts = [
        division
        for node, division in zip(plan.graph.nodes, plan.strategy.divisions, strict=True)
        if node.operator.startswith("girih.grouped")
    ]
    assert len(experts) == 2 * 6  # for each layer two products and their gradients
    if (workers, objective) == (2, "bytes"):
        assert all(division.codes[0] >= 0 for division in experts)
