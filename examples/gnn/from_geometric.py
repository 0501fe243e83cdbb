"""A training loop of torch_geometric, of which two lines change; the network is torch_geometric's own.

    -   for epoch in range(60):
    -       optimizer.zero_grad()
    -       loss = cross_entropy(network(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask])
    -       loss.backward()
    -       optimizer.step()
    +   with girih.fit(network, gnn.loss, optimizer, gnn.load(data), machine="local:1") as train:
    +       losses = [train() for epoch in range(60)]

Both loops are run here, from the same weights: the losses are the same.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch_geometric.datasets import KarateClub
from torch_geometric.nn import GraphSAGE

import girih
from girih import gnn


def plain(network: Any, optimizer: torch.optim.Optimizer, data: Any, epochs: int) -> list[float]:
    """As one writes it for torch_geometric."""
    losses = []
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = cross_entropy(network(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def planned(network: Any, optimizer: torch.optim.Optimizer, data: Any, epochs: int) -> list[float]:
    """The same by girih; the network has its new weights at the end of the block."""
    with girih.fit(network, gnn.loss, optimizer, gnn.load(data), machine="local:1") as train:
        return [train() for _ in range(epochs)]


def main(epochs: int = 60) -> tuple[list[float], list[float]]:
    torch.manual_seed(0)
    data = KarateClub()[0]
    networks = [GraphSAGE(data.num_features, 16, num_layers=2, out_channels=4)]
    networks.append(deepcopy(networks[0]))
    both = []
    for loop, network in zip((plain, planned), networks, strict=True):
        losses = loop(network, torch.optim.Adam(network.parameters(), lr=0.02), data, epochs)
        print(f"{loop.__name__:8} loss {losses[0]:.4f} at first, {losses[-1]:.4f} behind {epochs} epochs")
        both.append(losses)
    return both[0], both[1]


if __name__ == "__main__":
    main()
