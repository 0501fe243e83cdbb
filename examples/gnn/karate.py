"""A graph network learns the communities of Zachary's karate club, from one member of each, on two workers.

    python examples/gnn/karate.py [FILE]

FILE is any graph that `gnn.load` reads, with features, labels and a split: Cora's or Citeseer's published files
(`ind.cora.graph`), an .npz, …
"""

from __future__ import annotations

import sys

import torch

import girih
from girih import gnn


def main(source: str = "karate", epochs: int = 60, workers: int = 2) -> dict[str, float]:
    data = gnn.load(source)
    torch.manual_seed(0)
    network = gnn.GCN(data.features, 16, data.classes, layers=2)
    step = girih.TrainingStep(network, loss=gnn.loss, optimizer=torch.optim.Adam(network.parameters(), lr=0.02))
    plan = girih.plan(step, data, machine=f"local:{workers}")
    print(f"{data.vertices} vertices, {data.edges} edges; {plan.search} chose among {workers} workers")
    with plan.start() as run:
        for epoch in range(1, epochs + 1):
            loss = run.step()
            if epoch % 20 == 0:
                print(f"epoch {epoch}: loss {loss:.3f}")
        network.load_state_dict(run.state_dict())
    right = gnn.accuracy(gnn.predict(network, data), data)
    print(", ".join(f"{split} {share:.0%}" for split, share in right.items()))
    return right


if __name__ == "__main__":
    main(*sys.argv[1:])
