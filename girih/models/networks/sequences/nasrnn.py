"""NasRNN: a recurrent cell that a search has found, unrolled.

Zoph, Le, "Neural architecture search with reinforcement learning", 2017 (arXiv:1611.01578), figure 8 and appendix A:
the cell's tree has eight leaves, each of the step's input and the state before, joined two by two. Every leaf has two
products of its own, as TASO (Jia 2020, section 2.8) begins with: it is for the planner to compute them together.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from girih.models.networks.sequences.rnn import check_steps

Unary = Callable[[torch.Tensor], torch.Tensor]
Binary = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

LEAVES: tuple[tuple[Binary, Unary], ...] = (
    (torch.add, torch.sigmoid),
    (torch.add, torch.relu),
    (torch.add, torch.sigmoid),
    (torch.mul, torch.relu),
    (torch.add, torch.tanh),
    (torch.add, torch.sigmoid),
    (torch.add, torch.tanh),
    (torch.add, torch.sigmoid),
)
PAIRS: tuple[tuple[Binary, Unary], ...] = (
    (torch.mul, torch.tanh),
    (torch.add, torch.tanh),
    (torch.mul, torch.tanh),
    (torch.add, torch.sigmoid),
)


class NasCell(nn.Module):
    """x `[batch, inputs]`, state and memory `[batch, hidden]` → the next state and memory."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.of_input = nn.ModuleList(nn.Linear(inputs, hidden, bias=False) for _ in LEAVES)
        self.of_state = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in LEAVES)

    def forward(self, x: torch.Tensor, state: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        layers = zip(LEAVES, self.of_input, self.of_state, strict=True)
        leaves = [function(join(one(x), other(state))) for (join, function), one, other in layers]
        pairs = zip(PAIRS, leaves[::2], leaves[1::2], strict=True)
        first, second, third, fourth = (function(join(one, other)) for (join, function), one, other in pairs)
        memory = torch.tanh(first + memory) * second
        return torch.tanh(memory * torch.tanh(third + fourth)), memory


class NasRNN(nn.Module):
    """x `[batch, steps, hidden]` → logits `[batch, classes]` of the state after the last step."""

    def __init__(self, hidden: int, steps: int, classes: int) -> None:
        super().__init__()
        self.hidden, self.steps = hidden, steps
        self.cell = NasCell(hidden, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_steps(x, self.steps, dimensions=3)
        state = memory = x.new_zeros((x.shape[0], self.hidden))
        for now in x.unbind(1):
            state, memory = self.cell(now, state, memory)
        return self.head(state)


def nasrnn(hidden: int = 512, steps: int = 5, classes: int = 1000) -> NasRNN:
    """NasRNN of one layer, its weights shared by the steps; see the class for shapes."""
    return NasRNN(hidden, steps, classes)
