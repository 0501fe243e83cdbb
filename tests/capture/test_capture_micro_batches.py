"""Micro-batches: whatever the loss, training is that of the whole batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy, mse_loss

import girih
from girih.capture import CaptureError
from girih.graph import Graph
from girih.kernels.evaluate import interpret
from girih.plans.inputs import Program, program_of


def weighted(output, target):
    weight = torch.arange(1.0, 8.0, dtype=output.dtype)
    return cross_entropy(output, target, weight=weight, ignore_index=-100, label_smoothing=0.1)


def masked(output, target):
    kept = (target > -100).to(output.dtype)
    return (output.square().mean(-1) * kept).sum() / kept.sum()


def by_the_square_of_a_count(output, target):
    kept = (target > -100).to(output.dtype).sum()
    return output.square().sum() / kept**2 + output.abs().mean()


def contrastive(output, target):
    unit = torch.nn.functional.normalize(output)
    return cross_entropy(unit @ unit.T / 0.5, torch.arange(len(output)))


LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "mean": lambda output, target: output.square().mean(),
    "sum": lambda output, target: output.square().sum() / 100,
    "tokens that count": lambda output, target: cross_entropy(output, target, ignore_index=-100),
    "weighted": weighted,
    "masked": masked,
    "by a count squared": by_the_square_of_a_count,
    "product of means": lambda output, target: output.square().mean() * output.abs().mean(),
    "logarithm of a mean": lambda output, target: torch.log(output.square().mean()),
    "largest": lambda output, target: output.square().sum(-1).max(),
    "contrastive": contrastive,
    "deviation over the batch": lambda output, target: output.std(0).sum(),
    "length in the shape": lambda output, target: (output.square() / output.shape[0]).sum(),
}


def two_kinds(norm: bool, dropout: float) -> torch.nn.Module:
    middle = [torch.nn.BatchNorm1d(6)] if norm else [torch.nn.LayerNorm(6)]
    return torch.nn.Sequential(
        torch.nn.Linear(5, 6), *middle, torch.nn.Tanh(), torch.nn.Dropout(dropout), torch.nn.Linear(6, 7)
    ).double()


def labels(rows: int, ignored: int) -> torch.Tensor:
    """Those that are ignored come first: the parts have unequal numbers of the others."""
    target = torch.randint(7, (rows,))
    target[:ignored] = -100
    return target


def both_ways(own: Program, inputs: dict[str, torch.Tensor], steps: int) -> None:
    """The cut graph makes what the graph of the whole batch makes, for some steps."""
    undivided = own.origin.undivided
    assert undivided is not None
    states = dict(inputs), dict(inputs)
    for _ in range(steps):
        results = [interpret(graph, state) for graph, state in zip((own.graph, undivided), states, strict=True)]
        for one, two in zip(own.graph.outputs, undivided.outputs, strict=True):
            torch.testing.assert_close(results[0][one.name], results[1][two.name], rtol=1e-9, atol=1e-11)
        for graph, state, made in zip((own.graph, undivided), states, results, strict=True):
            state.update({name: made[new] for name, new in graph.updates.items()})


def inputs_of(own: Program, batch: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
    assert own.origin.state is not None
    state = own.origin.state()
    given = {"lr": torch.tensor(0.1, dtype=torch.float64)} | {str(n): item for n, item in enumerate(batch)}
    return {
        item.name: torch.tensor(7) if item.role == "seed" else {**state, **given}[item.path]
        for item in own.graph.inputs
    }


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_is_that_of_the_whole_batch(loss: str, count: int) -> None:
    torch.manual_seed(0)
    norm, dropout, ignored = count == 3, 0.3 * (count == 2), 4 * (count - 1)  # of the first part none counts
    model = two_kinds(norm, dropout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = girih.TrainingStep(model, loss=LOSSES[loss], optimizer=optimizer, micro_batches=count, clip_grad_norm=0.5)
    batch = torch.randn(12, 5, dtype=torch.float64), labels(12, ignored)
    own = program_of(step, batch)
    both_ways(own, inputs_of(own, batch), 2)
    assert bool(own.notes) == (norm or loss in ("contrastive", "deviation over the batch"))


class Shapes(torch.nn.Module):
    """The batch behind the steps, in rows of both, in windows, and below an operator that nobody has described."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.nn.Linear(6, 6)
        self.layer = torch.nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)
        self.image = torch.nn.Conv2d(1, 2, 3, padding=1)

    def forward(self, x):
        x = self.rows(x.transpose(0, 1).reshape(-1, 6)).reshape(x.shape[1], x.shape[0], 6).transpose(0, 1)
        x = self.layer(x)
        x = self.image(x[:, None]).flatten(1)
        return torch.cumsum(x, 0) if self.training else x


def test_whatever_happens_to_the_batch_dimension() -> None:
    torch.manual_seed(0)
    model = Shapes().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = lambda output, target: mse_loss(output.mean(1), target)  # noqa: E731
    step = girih.TrainingStep(model, loss=loss, optimizer=optimizer, micro_batches=2)
    batch = torch.randn(6, 4, 6, dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    own = program_of(step, batch)
    both_ways(own, inputs_of(own, batch), 2)
    assert "aten.cumsum" in own.notes[0] or "aten.cat" in own.notes[0]
    model.eval()
    assert not any(node.operator == "aten.cat" for node in program_of(step, batch).graph.nodes)


@pytest.mark.parametrize("search", ["pipeline", "pipeline-1f1b"])
@pytest.mark.parametrize("loss", ["tokens that count", "weighted", "contrastive", "product of means"])
def test_pipelines_train_as_the_whole_batch(loss: str, search: str) -> None:
    torch.manual_seed(0)
    model = two_kinds(False, 0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    step = girih.TrainingStep(model, loss=LOSSES[loss], optimizer=optimizer, micro_batches=3)
    batch = torch.randn(12, 5, dtype=torch.float64), labels(12, 4)
    plan = girih.plan(step, batch, machine="local:2", search=search, objective="seconds", compare=())
    with plan.start(backend="threads") as run:
        compared = [run.verified_step(*batch) for _ in range(3)]
        state = run.state_dict()
    assert all(item.ok for item in compared)
    for item in compared:
        optimizer.zero_grad()
        value = LOSSES[loss](model(batch[0]), batch[1])
        value.backward()
        optimizer.step()
        assert (item.loss, item.undivided) == pytest.approx((value.item(), value.item()), rel=1e-10)
    for key, tensor in model.state_dict().items():
        torch.testing.assert_close(state[key], tensor, rtol=1e-9, atol=1e-11)


def test_a_file_has_the_undivided_step(tmp_path) -> None:
    _, _, step, batch = training(4)
    plan = girih.plan(step, batch, machine="local:1", search="single", compare=())
    plan.save(tmp_path / "plan.json")
    kept = girih.load(tmp_path / "plan.json")
    assert kept.origin.undivided == plan.origin.undivided != plan.graph
    other = json.loads((tmp_path / "plan.json").read_text())
    other["undivided"][1] = other["undivided"][1].replace("24, 24", "24, 25")
    (tmp_path / "other.json").write_text(json.dumps(other))
    with pytest.raises(girih.PlanError, match="undivided"):
        girih.load(tmp_path / "other.json")


class Tower(torch.nn.Module):
    def __init__(self, layers: int = 4, width: int = 24) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))

    def forward(self, x):
        return self.layers(x)


def training(count: int, width: int = 24, rows: int = 16, dtype: torch.dtype = torch.float64):
    torch.manual_seed(0)
    model = Tower(width=width).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss = torch.nn.functional.mse_loss
    step = girih.TrainingStep(model, loss=loss, optimizer=optimizer, micro_batches=count)
    return model, optimizer, step, (torch.randn(rows, width, dtype=dtype), torch.randn(rows, width, dtype=dtype))


@pytest.mark.parametrize(("machine", "search"), [("local:2", "exact"), ("2x2", "model")])
def test_training_is_that_of_the_whole_batch(machine: str, search: str) -> None:
    model, optimizer, step, batch = training(4)
    plan = girih.plan(step, batch, machine=machine, search=search, objective="seconds", compare=())
    with plan.start(backend="threads") as run:
        got = [run.step(*batch) for _ in range(3)]
    expected = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert got == pytest.approx(expected, rel=1e-10)


def test_a_batch_that_cannot_be_cut() -> None:
    _, _, step, batch = training(3)
    with pytest.raises(CaptureError, match=r"3 micro-batches: expected tensors of one length .* that 3 divides"):
        girih.plan(step, batch, objective="bytes")
    with pytest.raises(CaptureError, match="at least 1"):
        training(0)


class Tied(torch.nn.Module):
    """The last matrix is the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(11, 6)
        self.middle = torch.nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(torch.tanh(self.middle(self.table(x))), self.table.weight)


def tied(count: int) -> tuple[torch.nn.Module, girih.TrainingStep, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    model = Tied().double()
    step = girih.TrainingStep(
        model,
        loss=torch.nn.functional.cross_entropy,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        micro_batches=count,
    )
    return model, step, (torch.randint(11, (12,)), torch.randint(11, (12,)))


def leaves(graph: Graph, name: str) -> list[str]:
    """The operators whose results add up to a value, from left to right."""
    node = graph.nodes[graph.producer[name]]
    if node.operator != "aten.add.Tensor":
        return [node.operator]
    return [leaf for operand in node.inputs for leaf in leaves(graph, operand)]


def gradient(graph: Graph, path: str) -> str:
    """What the update of a parameter reads."""
    name = next(item.name for item in graph.inputs if item.path == path)
    node = graph.nodes[graph.producer[graph.updates[name]]]
    backward = {output for item in graph.nodes if item.phase == "backward" for output in item.outputs}
    while not backward.intersection(node.inputs):
        made = next(item for item in node.inputs if item in graph.producer)
        node = graph.nodes[graph.producer[made]]
    return next(item for item in node.inputs if item in backward)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_uses_are_added_up_one_by_one(count: int) -> None:
    graph = program_of(*tied(count)[1:]).graph
    found = leaves(graph, gradient(graph, "table.weight"))
    assert len(found) == 2 * count
    assert len(set(found[:count])) == len(set(found[count:])) == 1
    assert found[0] != found[-1]


def test_without_micro_batches_nothing_changes() -> None:
    graph = program_of(*tied(1)[1:]).graph
    assert len(leaves(graph, gradient(graph, "table.weight"))) == 2


@pytest.mark.parametrize("search", ["single", "pipeline"])
def test_a_tied_matrix_is_trained_as_by_the_whole_batch(search: str) -> None:
    model, step, batch = tied(3)
    plan = girih.plan(step, batch, machine="local:2", search=search, objective="seconds", compare=())
    with plan.start(backend="threads") as run:
        got = [run.step(*batch) for _ in range(3)]
        state = run.state_dict()
    expected = []
    for _ in range(3):
        step.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        step.optimizer.step()
        expected.append(loss.item())
    assert got == pytest.approx(expected, rel=1e-10)
    torch.testing.assert_close(state["table.weight"], model.table.weight.detach(), rtol=1e-9, atol=1e-12)
