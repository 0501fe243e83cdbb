"""Whole training steps equal eager PyTorch with torch.optim over three steps, in float64 to 1e-10."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from against_eager import advance, check_text, compare, eager_step, first_inputs, run
from torch import nn

from girih.capture import TrainingStep, capture


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def whole(*shape: int, high: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed))


def sgd(model: nn.Module) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


class SmallConvolutions(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, stride=2, groups=2, bias=False)
        self.norm2 = nn.BatchNorm2d(8, affine=False)
        self.head = nn.Linear(8, 5)
        self.dropout = dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.first(x)), inplace=True), 3, 2, 1)
        x = x + 0
        x += F.dropout(x, self.dropout, self.training)
        x = self.norm2(self.second(x)).relu_()
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class SmallLanguageModel(nn.Module):
    def __init__(self, width: int = 8, vocabulary: int = 11) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(7, width)
        self.norm = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        shape = (*tokens.shape, 2, -1)
        q, k, v = (part.reshape(shape).transpose(1, 2) for part in self.attention(self.norm(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return self.head(self.norm(x + self.wide(x)))


class Recurrent(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.net: Any = getattr(nn, kind)(4, 6, num_layers=2, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.net(x)[0][:, -1])


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = (x.new_zeros(x.shape[0], 6), x.new_zeros(x.shape[0], 6))
        for column in x.unbind(1):
            state = self.cell(column, state)
        return self.head(state[0])


def sequences(seed: int) -> Any:
    return draw(3, 5, 4, seed=seed), whole(3, high=3, seed=seed)


def token_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.flatten(0, 1), target.flatten(), label_smoothing=0.1, ignore_index=2)


CASES: dict[str, tuple[Callable[[], nn.Module], Any, Callable[[int], Any]]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)),
        F.cross_entropy,
        lambda seed: (draw(5, 4, seed=seed), whole(5, high=3, seed=seed)),
    ),
    "convolutions": (
        SmallConvolutions,
        F.cross_entropy,
        lambda seed: (draw(4, 3, 9, 8, seed=seed), whole(4, high=5, seed=seed)),
    ),
    "language": (
        SmallLanguageModel,
        token_loss,
        lambda seed: (whole(2, 6, high=11, seed=seed), whole(2, 6, high=11, seed=seed + 9)),
    ),
    "lstm": (lambda: Recurrent("LSTM"), F.cross_entropy, sequences),
    "gru": (lambda: Recurrent("GRU"), F.cross_entropy, sequences),
    "rnn": (lambda: Recurrent("RNN"), F.cross_entropy, sequences),
    "cells": (Cells, F.cross_entropy, sequences),
    "transformer": (
        lambda: nn.Sequential(
            nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), nn.Flatten(), nn.Linear(20, 3)
        ),
        F.cross_entropy,
        sequences,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str) -> None:
    make, loss, batch = CASES[name]
    torch.manual_seed(0)
    model = make().double()
    captured = compare(TrainingStep(model, loss, sgd(model)), [batch(seed) for seed in range(3)])
    graph = captured.graph
    assert {node.phase for node in graph.nodes} == {"forward", "backward", "update"}
    several = {node.operator for node in graph.nodes if len(node.outputs) > 1}
    assert several <= {"girih.attention", "girih.attention_backward"}
    running = {f"b.{path}" for path, _ in model.named_buffers()}
    assert running <= set(graph.updates)


def test_sources_and_scopes() -> None:
    model = SmallConvolutions().double()
    graph = capture(TrainingStep(model, F.cross_entropy, sgd(model)), CASES["convolutions"][2](0)).graph
    first, second = (node for node in graph.nodes if node.operator == "aten.convolution")
    assert (first.scope, second.scope) == ("first", "second")
    assert "test_capture_models.py:" in first.source
    back = [node for node in graph.nodes if node.operator == "girih.convolution_weight_gradient"]
    assert [(node.source, node.scope) for node in back] == [
        (second.source, "second"),
        (first.source, "first"),
    ]
    assert {node.phase for node in back} == {"backward"}


def test_dropout_follows_the_seed() -> None:
    torch.manual_seed(0)
    model = SmallConvolutions(dropout=0.4).double()
    step = TrainingStep(model, F.cross_entropy, sgd(model))
    batch = CASES["convolutions"][2](0)
    captured = capture(step, batch)
    check_text(captured.graph)
    masks = [node for node in captured.graph.nodes if node.operator == "girih.random_mask"]
    assert len(masks) == 1
    assert captured.graph.role_of("seed") == "seed"
    losses = [
        advance(captured.graph, first_inputs(captured, step, seed) | captured.flatten(batch))[0] for seed in (1, 1, 2)
    ]
    assert torch.equal(losses[0], losses[1])
    assert not torch.equal(losses[0], losses[2])


def test_streams_differ() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 4), nn.Dropout(0.5))
    graph = capture(TrainingStep(model, F.mse_loss), (torch.ones(2, 4), torch.ones(2, 4))).graph
    streams = [node.attributes["stream"] for node in graph.nodes if node.operator == "girih.random_mask"]
    assert sorted(streams) == [0, 1]


@pytest.mark.parametrize("name", ["mlp", "convolutions", "language"])
def test_autocast(name: str) -> None:
    make, loss, batch = CASES[name]
    torch.manual_seed(0)
    model = make()

    def single(seed: int) -> Any:
        return tuple(part.float() if part.is_floating_point() else part for part in batch(seed))

    step = TrainingStep(model, loss, sgd(model), autocast=torch.bfloat16)
    captured = capture(step, single(0))
    check_text(captured.graph)
    assert any(value.dtype == "bfloat16" for value in captured.graph.values.values())
    inputs = first_inputs(captured, step)
    for seed in range(2):
        actual, inputs = advance(captured.graph, inputs | captured.flatten(single(seed)))
        torch.testing.assert_close(actual, eager_step(step, single(seed)), rtol=3e-2, atol=3e-2)


def test_a_step_with_a_nested_batch() -> None:
    model = nn.Linear(4, 3).double()

    def step(net: nn.Module, batch: Any) -> torch.Tensor:
        return F.mse_loss(net(batch["inputs"][0]), batch["target"]) * batch["factor"]

    whole_step = TrainingStep(model, step=step, optimizer=sgd(model))
    batches = [{"inputs": [draw(2, 4, seed=s)], "target": draw(2, 3, seed=s), "factor": 3.0} for s in range(2)]
    captured = compare(whole_step, batches)
    assert captured.batch_names == {"inputs/0": "x.inputs.0", "target": "x.target"}
    with pytest.raises(ValueError, match=r"the batch has .*but was captured with"):
        captured.flatten([draw(2, 4)])


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_draws_what_the_forward_pass_drew(reentrant: bool) -> None:
    """The gradients are those without checkpointing, at every seed."""
    model = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 3)).double()
    x = draw(64, 4).requires_grad_(True)

    def plain(net: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return (net(batch) * F.dropout(batch[:, :3], 0.5)).square().mean()

    def again(net: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        made = torch.utils.checkpoint.checkpoint(net, batch, use_reentrant=reentrant)
        return (made * F.dropout(batch[:, :3], 0.5)).square().mean()

    made = []
    for step in (TrainingStep(model, step=plain), TrainingStep(model, step=again)):
        captured = capture(step, x)
        given = first_inputs(captured, step) | captured.flatten(x)
        made.append([list(run(captured.graph, given | {"seed": torch.tensor(seed)}).values()) for seed in (1, 2)])
        streams = [node.attributes["stream"] for node in captured.graph.nodes if node.operator == "girih.random_mask"]
        assert set(streams) == {0, 1, 2}
    assert len(streams) == 5  # three, and two once more in the backward pass
    torch.testing.assert_close(made[1], made[0])
    assert not torch.equal(made[0][0][0], made[0][1][0])


def test_dropout_between_recurrent_layers() -> None:
    """PyTorch's own decomposition leaves it out."""
    for kind, layers in (("LSTM", 3), ("GRU", 2), ("RNN", 2)):
        model = getattr(nn, kind)(4, 6, num_layers=layers, dropout=0.5)
        graph = capture(TrainingStep(model, step=lambda net, x: net(x)[0].sum()), draw(5, 3, 4).float()).graph
        masks = [graph.values[node.name].shape for node in graph.nodes if node.operator == "girih.random_mask"]
        assert masks == [(5, 3, 6)] * (layers - 1)
        model.eval()
        graph = capture(TrainingStep(model, step=lambda net, x: net(x)[0].sum()), draw(5, 3, 4).float()).graph
        assert not any(item.role == "seed" for item in graph.inputs)
