"""A program for the command line: a function that returns a training step and a batch.

girih plan examples/own_model.py:training --machine local:4 -o plan.json
girih run plan.json --steps 3 --verify
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import girih


def training() -> tuple[girih.TrainingStep, tuple[torch.Tensor, torch.Tensor]]:
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = girih.TrainingStep(model, loss=cross_entropy, optimizer=optimizer)
    return step, (torch.randn(8, 16), torch.randint(8, (8,)))


def main() -> girih.Plan:
    """The same from Python."""
    plan = girih.plan(*training(), machine="local:4")
    print(plan)
    return plan


if __name__ == "__main__":
    main()
