"""Save under four workers, go on under two: a checkpoint belongs to the program, not to a plan of it.

python examples/resume.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import nn

import girih


def training_step() -> girih.TrainingStep:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return girih.TrainingStep(model, loss=nn.functional.cross_entropy, optimizer=optimizer)


def batch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    return torch.randn(32, 16, generator=generator), torch.randint(8, (32,), generator=generator)


def main() -> tuple[list[float], list[float]]:
    """The losses of six steps on four workers; and of three on four, then three on two."""
    on_four = girih.plan(training_step(), batch(0), machine="local:4", objective="bytes")
    on_two = girih.plan(training_step(), batch(0), machine="local:2", objective="bytes")

    with tempfile.TemporaryDirectory() as directory:
        checkpoint = Path(directory) / "checkpoint"
        with on_four.start() as running:
            first = [running.step(*batch(number)) for number in range(3)]
            running.save(checkpoint)
            straight = [*first, *(running.step(*batch(number)) for number in range(3, 6))]
        with on_two.start(resume=checkpoint) as running:
            print(f"resumed after {running.steps} steps on {on_two.machine.devices} workers")
            resumed = [*first, *(running.step(*batch(number)) for number in range(running.steps, 6))]

    for number, (left, right) in enumerate(zip(straight, resumed, strict=True)):
        print(f"step {number + 1}: without a stop {left:.6f}, with {right:.6f}")
    return straight, resumed


if __name__ == "__main__":
    main()
