"""A pipeline: layers in stages, one on each device, and micro-batches that go through them one after another (GPipe).

python examples/train_pipeline.py
"""

from __future__ import annotations

import torch
from torch import nn

import girih

WIDTH, BLOCKS, CLASSES, BATCH = 64, 6, 10, 64


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(torch.relu(self.wide(self.norm(x))))


def plan_of(model: nn.Module, micro_batches: int, batch: tuple[torch.Tensor, torch.Tensor], machine: str) -> girih.Plan:
    """Without micro-batches, a stage waits for the one before: layers on devices, but no pipeline."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loss = nn.functional.cross_entropy
    step = girih.TrainingStep(model, loss=loss, optimizer=optimizer, micro_batches=micro_batches)
    search = "model" if micro_batches == 1 else "pipeline"
    return girih.plan(step, batch, machine=machine, search=search, objective="seconds", compare=())


def data(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points, and in which of their first coordinates they are largest: something that a model can learn."""
    points = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(number))
    return points, points[:, :CLASSES].argmax(dim=1)


def main(steps: int = 10) -> list[float]:
    torch.manual_seed(0)
    with torch.device("meta"):  # a large model is only planned: 16 layers of 4096 on four GPUs
        large = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(16)))
        rows = torch.empty(8192, 4096), torch.empty(8192, dtype=torch.long)
    for count in (1, 2, 4, 8):
        predicted = plan_of(large, count, rows, "1x4").predict()
        share = predicted.timeline.busy().mean() / predicted.seconds
        print(
            f"{count} micro-batches: a step takes {predicted.seconds * 1e3:.1f} ms, devices compute {share:.0%} of it"
        )

    model = nn.Sequential(*(Block() for _ in range(BLOCKS)), nn.Linear(WIDTH, CLASSES))
    plan = plan_of(model, 4, data(0), "local:2")
    for use in plan.memory_by_device:
        print(f"device {use.device} keeps {use.state / 1e6:.2f} MB of parameters and their state")
    losses = []
    with plan.start() as running:
        for number in range(steps):
            losses.append(running.step(*data(number)))
            print(f"step {number + 1:>2}: loss {losses[-1]:.4f}")
    return losses


if __name__ == "__main__":
    main()
