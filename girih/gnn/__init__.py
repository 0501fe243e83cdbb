"""Graph networks: full-graph training and inference over many devices (ROC, Jia et al. 2020, chapter 4).

`aggregate`, `attend` and `to_edges` are what graph networks are made of; `Adjacency` is the graph that they read, and
`GraphBuffers` the same as a module's buffers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from girih.gnn.adjacency import Adjacency

if TYPE_CHECKING:
    from girih.gnn.neighbours import GraphBuffers, aggregate, attend, to_edges

__all__ = ["Adjacency", "GraphBuffers", "aggregate", "attend", "to_edges"]


def __getattr__(name: str) -> Any:
    """What needs torch is loaded when it is first used."""
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("girih.gnn.neighbours"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
