"""Calls that write into tensors become calls that do not: by a new name for what was written, or by a replay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from against_eager import compare
from torch import nn

from girih.capture import TrainingStep, capture
from girih.capture.torch import record
from girih.graph import Graph


def step_of(model: nn.Module) -> TrainingStep:
    return TrainingStep(model, nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))


def normalised() -> nn.Module:
    """Its running means are written, and so is the result of the norm, in place."""
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(inplace=True), nn.Linear(6, 2)).double()


class Written(nn.Module):
    """Writes into what a view of it, made before, then shows; or into a part."""

    def __init__(self, write: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
        super().__init__()
        self.layer, self.write = nn.Linear(4, 2).double(), write

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        turned = y.T
        self.write(y, turned)
        return y + turned.T


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(8, 4).double(), torch.randn(8, 2).double()


def nodes_of(graph: Graph) -> list[str]:
    return sorted(node.operator for node in graph.nodes)


def replayed_too(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> tuple[Graph, Graph]:
    """By new names, which a replay would break off; and replayed."""
    with monkeypatch.context() as patch:
        patch.delattr(record, "_replayed")
        by_names = capture(step_of(model), batch()).graph
    with monkeypatch.context() as patch:
        patch.setattr(record, "_renamed", lambda *_: None)
        return by_names, capture(step_of(model), batch()).graph


def test_gradients_that_pytorch_copies_need_no_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step has them: PyTorch copies each gradient into the memory in which it is kept."""
    torch.manual_seed(0)
    by_names, replayed = replayed_too(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).double(), monkeypatch)
    assert by_names == replayed


def test_running_means_and_activations_in_place_need_no_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    by_names, replayed = replayed_too(normalised(), monkeypatch)
    assert nodes_of(by_names) == nodes_of(replayed)
    compare(step_of(normalised()), [batch(), batch()])


@pytest.mark.parametrize(
    "write",
    [
        lambda whole, view: whole.mul_(2.0),
        lambda whole, view: view.add_(whole.T),
        lambda whole, view: whole[1:3].copy_(whole[4:6]),
        lambda whole, view: whole.clamp_(min=0.0),
    ],
    ids=["a view shows it", "through a view", "a part", "another call"],
)
def test_writes_that_others_see_are_replayed(write: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
    torch.manual_seed(0)
    compare(step_of(Written(write)), [batch(), batch()])


class Narrow(Written):
    """Adds numbers of 64 bits to a tensor of 32, which stays one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x).float()
        y += x[:, :2]
        return y.double()


def test_a_write_of_another_dtype_keeps_the_dtype() -> None:
    torch.manual_seed(0)
    compare(step_of(Narrow(lambda *_: None)), [batch(), batch()])
