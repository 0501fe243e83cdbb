"""Gradients of one use of a shared parameter are added up before those of another."""

from __future__ import annotations

import pytest
import torch

import girih
from girih.capture import capture
from girih.graph import Graph, check
from girih.rewrite.passes.gradient_sums import GatherGradients


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
    graph = GatherGradients().apply(capture(*tied(count)[1:]).graph)
    check(graph)
    found = leaves(graph, gradient(graph, "table.weight"))
    assert len(found) == 2 * count
    assert len(set(found[:count])) == len(set(found[count:])) == 1
    assert found[0] != found[-1]


def test_without_micro_batches_nothing_changes() -> None:
    graph = capture(*tied(1)[1:]).graph
    assert len(leaves(graph, gradient(graph, "table.weight"))) == 2


@pytest.mark.parametrize("search", ["single", "pipeline"])
def test_training_is_that_of_the_whole_batch(search: str) -> None:
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
