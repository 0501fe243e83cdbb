"""The descriptions of all nodes of a graph, found once for each graph."""

from __future__ import annotations

import weakref

from girih.graph import Graph
from girih.ops.describe import descriptions_of
from girih.ops.operator import Description

Descriptions = tuple[Description | None, ...]
Several = tuple[tuple[Description, ...], ...]

_known: dict[int, tuple[weakref.ref[Graph], Several, Descriptions]] = {}  # by identity: a Graph has no hash


def descriptions(graph: Graph) -> Descriptions:
    """`first_description` for each node, in their order."""
    return _found(graph)[2]


def several_descriptions(graph: Graph) -> Several:
    """`descriptions_of` for each node, in their order."""
    return _found(graph)[1]


def _found(graph: Graph) -> tuple[weakref.ref[Graph], Several, Descriptions]:
    entry = _known.get(id(graph))
    if entry is None or entry[0]() is not graph:
        number = id(graph)
        alive = weakref.ref(graph, lambda _: _known.pop(number, None))
        several = tuple([descriptions_of(graph, node) for node in graph.nodes])
        single = tuple([each[0] if each else None for each in several])
        entry = _known[number] = alive, several, single
    return entry
