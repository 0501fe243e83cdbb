"""The descriptions of all nodes of a graph, found once for each graph."""

from __future__ import annotations

import weakref

from girih.graph import Graph
from girih.ops.describe import description_of
from girih.ops.operator import Description

Descriptions = tuple[Description | None, ...]

_known: dict[int, tuple[weakref.ref[Graph], Descriptions]] = {}  # by identity: a Graph has no hash


def descriptions(graph: Graph) -> Descriptions:
    """`description_of` for each node, in their order."""
    found = _known.get(id(graph))
    if found is None or found[0]() is not graph:
        number = id(graph)
        alive = weakref.ref(graph, lambda _: _known.pop(number, None))
        found = _known[number] = alive, tuple(description_of(graph, node) for node in graph.nodes)
    return found[1]
