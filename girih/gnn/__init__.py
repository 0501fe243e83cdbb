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

from typing import TYPE_CHECKING, Any

_HOMES = {
    "Adjacency": "girih.gnn.adjacency",
    "GraphBuffers": "girih.gnn.neighbours",
    "aggregate": "girih.gnn.neighbours",
    "attend": "girih.gnn.neighbours",
    "to_edges": "girih.gnn.neighbours",
    "OnGraph": "girih.gnn.geometric",
    "CommNet": "girih.gnn.models",
    "GAT": "girih.gnn.models",
    "GCN": "girih.gnn.models",
    "GIN": "girih.gnn.models",
    "GraphSAGE": "girih.gnn.models",
    "ResidualGCN": "girih.gnn.models",
    "accuracy": "girih.gnn.training",
    "loss": "girih.gnn.training",
    "predict": "girih.gnn.training",
    "Data": "girih.gnn.data.data",
    "DataError": "girih.gnn.data.errors",
    "load": "girih.gnn.data.reading",
    "save": "girih.gnn.data.stored",
    "barabasi_albert": "girih.gnn.data.generators",
    "community": "girih.gnn.data.generators",
    "grid": "girih.gnn.data.generators",
    "karate": "girih.gnn.data.generators",
    "rmat": "girih.gnn.data.generators",
    "Access": "girih.gnn.partitioner.features",
    "CostModel": "girih.gnn.partitioner.cost",
    "Layer": "girih.gnn.partitioner.cost",
    "Partition": "girih.gnn.partitioner.partition",
    "Repartitioner": "girih.gnn.partitioner.learning",
    "partition": "girih.gnn.partitioner.partition",
    "repartitioner": "girih.gnn.partitioner.learning",
}

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
    "load",
    "loss",
    "partition",
    "predict",
    "repartitioner",
    "rmat",
    "save",
    "to_edges",
]


def __getattr__(name: str) -> Any:
    """What needs much is loaded when it is first used."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    result = getattr(import_module(home), name)
    globals()[name] = result
    return result


def __dir__() -> list[str]:
    return sorted(__all__)
