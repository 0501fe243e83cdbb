"""The memory that a plan tells holds for images that lie channels last, pooled and then flattened."""

import sys

import torch
from torch import nn

import girih


class Pooled(nn.Module):
    def __init__(self, change: nn.Module) -> None:
        super().__init__()
        self.change, self.gain = change, nn.Parameter(torch.randn(1, 1, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.change(x.permute(0, 3, 1, 2) * self.gain).flatten(1)


torch.set_num_threads(1)
wrong, x = [], torch.randn(4, 12, 8, 16)
for change in (nn.AdaptiveAvgPool2d(2), nn.AvgPool2d(2), nn.MaxPool2d(2)):
    model = Pooled(change)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = girih.TrainingStep(model, step=lambda model, x: model(x).square().sum(), optimizer=optimizer)
    plan = girih.plan(step, x, machine="local:1", compare=())
    inputs = {item.name: item.role for item in plan.graph.inputs}
    given = {name: x for name, role in inputs.items() if role == "batch"}
    with plan.start() as running:
        (measured,) = running.run.peak_bytes(given, {name: 0.01 for name, role in inputs.items() if role == "scalar"})
    (told,) = (use.peak for use in plan.memory_by_device)
    if measured > told + 64:
        wrong.append(f"{change}: {measured:,} B where {told:,} B were told")
if wrong:
    sys.exit("; ".join(wrong))
