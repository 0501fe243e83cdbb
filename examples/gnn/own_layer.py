"""A layer of one's own: any PyTorch module that calls `gnn.aggregate` is planned as the others are.

    python examples/gnn/own_layer.py

Each vertex takes what differs between it and the mean of its neighbours (a step of diffusion), several times.
"""

from __future__ import annotations

from typing import Any

import torch

import girih
from girih import gnn


class Diffusion(torch.nn.Module):
    """x ← x + rate · (mean of the neighbours - x), with a rate for each feature and step."""

    def __init__(self, features: int, classes: int, steps: int = 4) -> None:
        super().__init__()
        self.rates = torch.nn.Parameter(torch.full((steps, features), 0.5))
        self.last = torch.nn.Linear(features, classes)

    def forward(self, x: torch.Tensor, graph: Any) -> torch.Tensor:
        for rate in self.rates:
            x = x + rate * (gnn.aggregate(x, graph, "mean") - x)
        return self.last(x)


def main(epochs: int = 40) -> float:
    data = gnn.community(1000, classes=5, features=8, noise=3.0)
    torch.manual_seed(0)
    network = Diffusion(data.features, data.classes)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    with girih.fit(network, gnn.loss, optimizer, data) as train:
        losses = [train() for _ in range(epochs)]
    right = gnn.accuracy(gnn.predict(network, data), data)["test"]
    print(f"loss {losses[0]:.3f} at first, {losses[-1]:.3f} behind {epochs} epochs; {right:.0%} of the test are right")
    return right


if __name__ == "__main__":
    main()
