"""Nodes that compute the same of the same → one.

    a = relu(x); b = relu(x); y = a + b   →   a = relu(x); y = a + a

Random numbers that are asked for are named by their seeds, which are inputs, so they are alike only where they are the
same. What leaves the graph keeps its node, since one value cannot leave under two names. Capture shares only small
results, since in training a shared one lives longer; inference has no such reason. Cost: linear in the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from girih.graph import Graph, Node


@dataclass(frozen=True)
class ComputeOnce:
    """Compute once what is written twice."""

    def apply(self, graph: Graph) -> Graph:
        leaving = {output.name for output in graph.outputs}
        stands: dict[str, str] = {}
        known: dict[object, Node] = {}
        nodes: list[Node] = []
        for node in graph.nodes:
            if not stands.keys().isdisjoint(node.inputs):
                node = node.renamed(lambda name: stands.get(name, name))
            # Arguments as text, which tells kinds of numbers apart: 1 is neither True nor 1.0.
            key = (node.operator, tuple(sorted((name, repr(item)) for name, item in node.arguments)))
            first = known.setdefault(key, node)
            if first is not node and leaving.isdisjoint(node.outputs):
                stands.update(zip(node.outputs, first.outputs, strict=True))
            else:
                nodes.append(node)
        if not stands:
            return graph
        values = {name: value for name, value in graph.values.items() if name not in stands}
        return replace(graph, nodes=tuple(nodes), values=values)
