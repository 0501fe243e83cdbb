"""A graph in pieces that little enters and leaves, each of which is searched by itself (TASO §2.7).

The number of sequences of replacements grows with the places where rules apply, so a graph of hundreds of nodes is cut
where the fewest values cross. What a rule would do across a cut is not found; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise

from girih.graph import Graph, Input, Node, Output


def segments(graph: Graph, constant: Collection[str], size: int = 40) -> tuple[Graph, ...]:
    """Consecutive parts of the graph of about `size` nodes, at most twice as many.

    constant: values that every part may read without their being counted: weights. A part's inputs and outputs have the
    names that they have in the graph.
    """
    nodes = graph.nodes
    crossing = _crossing(graph, constant)
    cuts = [0]
    while len(nodes) - cuts[-1] > 2 * size:
        first = cuts[-1]
        window = range(first + size // 2, first + 2 * size + 1)
        cuts.append(min(window, key=lambda cut: (crossing[cut], abs(cut - first - size))))
    cuts.append(len(nodes))
    return tuple(_part(graph, nodes[first:last]) for first, last in pairwise(cuts) if first < last)


def _crossing(graph: Graph, constant: Collection[str]) -> list[int]:
    """For each position between nodes: how many values that are made before are read behind."""
    change = [0] * (len(graph.nodes) + 2)
    leaving = {output.name for output in graph.outputs}
    for position, node in enumerate(graph.nodes):
        for name in node.outputs:
            users = graph.consumers[name]
            last = len(graph.nodes) if name in leaving else max(users, default=position)
            if name not in constant:
                change[position + 1] += 1
                change[last + 1] -= 1
    total, counts = 0, []
    for step in change:
        total += step
        counts.append(total)
    return counts


def _part(graph: Graph, nodes: Sequence[Node]) -> Graph:
    own = {item.name: item for item in graph.inputs}
    made = {name for node in nodes for name in node.outputs}
    inside = {node.name for node in nodes}
    entering = dict.fromkeys(name for node in nodes for name in node.inputs if name not in made)
    leaving = {output.name: output for output in graph.outputs}
    outputs = tuple(
        leaving.get(name, Output(name, "result"))
        for node in nodes
        for name in node.outputs
        if name in leaving or any(graph.nodes[user].name not in inside for user in graph.consumers[name])
    )
    inputs = tuple(own.get(name, Input(name, "batch", name)) for name in entering)
    values = {name: graph.values[name] for name in (*entering, *made)}
    return replace(graph, inputs=inputs, outputs=outputs, nodes=tuple(nodes), values=values)


def joined(graph: Graph, parts: Sequence[Graph], before: Sequence[Graph]) -> Graph:
    """The graph whose parts these are, after each was rewritten by itself. Values that a part made get names of their
    own; those that it had before, at cuts too, keep theirs."""
    nodes: list[Node] = []
    values = {item.name: graph.values[item.name] for item in graph.inputs}
    for number, (part, was) in enumerate(zip(parts, before, strict=True)):

        def name_of(name: str, number: int = number, was: Graph = was) -> str:
            return name if name in was.values else f"{name}.{number}"

        for node in part.nodes:
            outputs = tuple(map(name_of, node.outputs))
            nodes.append(replace(node.renamed(name_of), outputs=outputs, name=name_of(node.name)))
            for old, new in zip(node.outputs, outputs, strict=True):
                values[new] = replace(part.values[old], name=new)
    return replace(graph, nodes=tuple(nodes), values=values)
