"""A program's own names meet neither those of the optimizer's state nor others that a graph spells alike."""

from __future__ import annotations

import pytest
import torch
from against_eager import compare
from torch import nn

from girih.capture import TrainingStep, state_of


class Named(nn.Module):
    """Counts its steps, scales by `lr`, and has parts whose names differ in what a graph's names cannot have."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.parts = nn.ModuleDict(
            {"to-hidden": nn.Linear(4, 3), "to_hidden": nn.Linear(3, 3), "step": nn.Linear(3, 2)}
        )
        self.lr = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("step", torch.tensor(5.0))
        self.register_buffer("eta", torch.tensor(1.5))
        self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.step += 1
        hidden = self.parts["to_hidden"](self.parts["to-hidden"](x).tanh())
        return self.parts["step"](hidden) * self.lr * self.eta / self.step


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.ASGD])
def test_names_alike(kind: type[torch.optim.Optimizer]) -> None:
    net = Named()
    batches = [(torch.randn(5, 4).double(), torch.randn(5, 2).double()) for _ in range(3)]
    step = TrainingStep(net, nn.functional.mse_loss, kind(net.parameters(), lr=0.1))
    captured = compare(step, batches, tolerance=1e-12)
    paths = [item.path for item in captured.graph.state_inputs]
    assert len(set(paths)) == len(paths)
    state = state_of(step)
    assert float(state["step"]) == 8.0
    assert float(state["optimizer/step"]) == (0.0 if kind is torch.optim.SGD else 3.0)
