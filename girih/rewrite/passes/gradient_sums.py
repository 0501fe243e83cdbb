"""Gradients of micro-batches: those of one use of a parameter are added up first.

A parameter that two modules share (tied embeddings) gets a gradient from each of them in every micro-batch, and PyTorch
adds them as they come:

    ((head 2 + embedding 2) + head 1) + embedding 1   →   (head 2 + head 1) + (embedding 2 + embedding 1)

Where the two modules are stages of a pipeline on different devices, the running sum of the first form goes to and fro,
and no stage begins a micro-batch before the others have ended the last; of the second form one sum crosses at the end.
It takes the memory of one more gradient. Cost: linear in the size of the graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from girih.graph import Graph, Node, Ref

Group = tuple[str, str]  # scope and operator that made a gradient: one use of a parameter


@dataclass(frozen=True)
class GatherGradients:
    """Add up the gradients of a parameter use by use, then micro-batch by micro-batch."""

    def apply(self, graph: Graph) -> Graph:
        return _gathered(graph)


def _gathered(graph: Graph) -> Graph:
    following: dict[int, list[Node]] = {}  # behind the node at a position
    gone: set[int] = set()
    readers = Counter(name for node in graph.nodes for name in node.inputs)
    readers.update(output.name for output in graph.outputs)
    for root in _final_sums(graph):
        members, leaves = _chain(graph, root, readers)
        groups: dict[Group, list[str]] = {}
        if not all(name in graph.producer for name in leaves):
            continue
        for name in sorted(leaves, key=graph.producer.__getitem__):
            maker = graph.nodes[graph.producer[name]]
            groups.setdefault((maker.scope, maker.operator), []).append(name)
        if 1 < len(groups) < len(leaves):
            gone.update(members)
            for position, node in _in_groups(graph, sorted(members), groups):
                following.setdefault(position, []).append(node)
    nodes: list[Node] = []
    for position, node in enumerate(graph.nodes):
        nodes += [] if position in gone else [node]
        nodes += following.get(position, [])
    return replace(graph, nodes=tuple(nodes))


def _is_sum(graph: Graph, position: int) -> bool:
    """Of two tensors of one shape and type, in the backward pass?"""
    node = graph.nodes[position]
    if node.operator != "aten.add.Tensor" or node.phase != "backward" or node.attributes or len(node.inputs) != 2:
        return False
    kinds = {(graph.values[name].shape, graph.values[name].dtype) for name in (*node.inputs, *node.outputs)}
    return len(kinds) == 1


def _final_sums(graph: Graph) -> list[int]:
    """The sums that nothing in the backward pass reads: gradients as the update gets them."""
    read = {name for node in graph.nodes if node.phase == "backward" for name in node.inputs}
    return [
        position
        for position, node in enumerate(graph.nodes)
        if _is_sum(graph, position) and not read.intersection(node.outputs)
    ]


def _chain(graph: Graph, root: int, readers: Mapping[str, int]) -> tuple[list[int], list[str]]:
    """The sums that make up one sum and are read by nothing else, and what they add."""
    members, leaves, open_ = [], [], [root]
    while open_:
        position = open_.pop()
        members.append(position)
        for name in graph.nodes[position].inputs:
            position_of_maker = graph.producer.get(name)
            if position_of_maker is not None and readers[name] == 1 and _is_sum(graph, position_of_maker):
                open_.append(position_of_maker)
            else:
                leaves.append(name)
    return members, leaves


def _in_groups(graph: Graph, members: list[int], groups: dict[Group, list[str]]) -> list[tuple[int, Node]]:
    """The same number of sums, each with the position behind which it can stand; the last makes what the last made."""
    producer = graph.producer
    sums: list[tuple[int, str, str, str]] = []  # position, scope, and for what has no name yet: the leaf it ends with
    order = sorted(groups, key=lambda group: producer[groups[group][-1]])
    for scope, operator in order:
        names = groups[scope, operator]
        sums += [(producer[name], scope, before, name) for before, name in pairwise(names)]
    sums.sort()
    spare = iter(members)
    running: dict[str, str] = {}  # the sum that ends with a leaf
    placed = []
    for position, scope, before, name in sums:
        node = graph.nodes[next(spare)]
        placed.append((position, _sum(node, running.get(before, before), name, scope)))
        running[name] = node.outputs[0]
    total, *rest = (running.get(groups[group][-1], groups[group][-1]) for group in order)
    last, scope = producer[groups[order[-1]][-1]], graph.nodes[members[-1]].scope
    for name in rest:
        node = graph.nodes[next(spare)]
        placed.append((last, _sum(node, total, name, scope)))
        total = node.outputs[0]
    return placed


def _sum(node: Node, first: str, second: str, scope: str) -> Node:
    """A sum of others, under the name of this one."""
    names = [name for name, _ in node.arguments]
    return replace(node, arguments=tuple(zip(names, (Ref(first), Ref(second)), strict=True)), scope=scope)
