"""Graph networks: full-graph training and inference over many devices (ROC, Jia et al. 2020, chapter 4).

    data = gnn.load("cora.npz")
    model = gnn.GCN(data.features, 256, data.classes)
    step = girih.TrainingStep(model, loss=gnn.loss, optimizer=torch.optim.Adam(model.parameters(), lr=0.01))
    plan = girih.plan(step, data, machine="local:4")

`aggregate`, `attend` and `to_edges` are what networks are made of; `Adjacency` is the graph that they read, and
`GraphBuffers` the same as a module's buffers. `partition` cuts a graph into pieces of equal work, by a `CostModel` that
is learned from measured times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from girih.lazily import lazily

__getattr__ = lazily(
    __name__,
    {
        "girih.gnn.adjacency": "Adjacency",
        "girih.gnn.data.data": "Data",
        "girih.gnn.data.errors": "DataError",
        "girih.gnn.data.generators": "barabasi_albert community grid karate rmat",
        "girih.gnn.data.reading": "load",
        "girih.gnn.data.stored": "save",
        "girih.gnn.geometric": "OnGraph",
        "girih.gnn.models": "CommNet GAT GCN GIN GraphSAGE ResidualGCN",
        "girih.gnn.neighbours": "GraphBuffers aggregate attend to_edges",
        "girih.gnn.partitioner.cost": "CostModel Layer",
        "girih.gnn.partitioner.features": "Access",
        "girih.gnn.partitioner.layers": "layers_of",
        "girih.gnn.partitioner.learning": "Repartitioner repartitioner",
        "girih.gnn.partitioner.partition": "Partition partition",
        "girih.gnn.training": "accuracy loss predict",
    },
)

if TYPE_CHECKING:
    from girih.gnn.adjacency import Adjacency
    from girih.gnn.data.data import Data
    from girih.gnn.data.errors import DataError
    from girih.gnn.data.generators import barabasi_albert, community, grid, karate, rmat
    from girih.gnn.data.reading import load
    from girih.gnn.data.stored import save
    from girih.gnn.geometric import OnGraph
    from girih.gnn.models import GAT, GCN, GIN, CommNet, GraphSAGE, ResidualGCN
    from girih.gnn.neighbours import GraphBuffers, aggregate, attend, to_edges
    from girih.gnn.partitioner.cost import CostModel, Layer
    from girih.gnn.partitioner.features import Access
    from girih.gnn.partitioner.layers import layers_of
    from girih.gnn.partitioner.learning import Repartitioner, repartitioner
    from girih.gnn.partitioner.partition import Partition, partition
    from girih.gnn.training import accuracy, loss, predict

__all__ = [
    "GAT",
    "GCN",
    "GIN",
    "Access",
    "Adjacency",
    "CommNet",
    "CostModel",
    "Data",
    "DataError",
    "GraphBuffers",
    "GraphSAGE",
    "Layer",
    "OnGraph",
    "Partition",
    "Repartitioner",
    "ResidualGCN",
    "accuracy",
    "aggregate",
    "attend",
    "barabasi_albert",
    "community",
    "grid",
    "karate",
    "layers_of",
    "load",
    "loss",
    "partition",
    "predict",
    "repartitioner",
    "rmat",
    "save",
    "to_edges",
]


def __dir__() -> list[str]:
    return sorted(__all__)
