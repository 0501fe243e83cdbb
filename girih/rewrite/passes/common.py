"""What is computed twice is computed once: nodes with the same operator, operands and attributes.

Capture shares only small results, since in training a shared one lives longer. Inference has no such reason.
Cost: linear in the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from girih.graph import Argument, Graph, Node


@dataclass(frozen=True)
class Common:
    """The pass; it has no options."""

    def apply(self, graph: Graph) -> Graph:
        """The graph with the first of equal nodes alone. One whose results leave the graph stays."""
        leaving = {output.name for output in graph.outputs}
        first: dict[tuple[str, tuple[tuple[str, Argument], ...]], Node] = {}
        stands: dict[str, str] = {}
        nodes = []
        for node in graph.nodes:
            if not stands.keys().isdisjoint(node.inputs):
                node = node.renamed(lambda name: stands.get(name, name))
            key = (node.operator, tuple((name, _exact(item)) for name, item in node.arguments))
            same = first.setdefault(key, node)
            if same is node or not leaving.isdisjoint(node.outputs):
                nodes.append(node)
            else:
                stands.update(zip(node.outputs, same.outputs, strict=True))
        if not stands:
            return graph
        values = {name: value for name, value in graph.values.items() if name not in stands}
        return replace(graph, nodes=tuple(nodes), values=values)


def _exact(item: Argument) -> Argument:
    """An argument that equals no other kind of number: 1 is neither True nor 1.0."""
    if isinstance(item, tuple):
        return tuple(map(_exact, item))
    return item if not isinstance(item, (bool, int, float)) else f"{type(item).__name__} {item!r}"
