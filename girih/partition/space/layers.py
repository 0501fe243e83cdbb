"""The layers of a program: nodes that are divided together, as FlexFlow's operators are.

FlexFlow's operator is a layer of the model with its backward pass and its update. Here a layer is what the graph says
of itself: all nodes made in one module (`Node.scope`), whatever their phase; a module that is applied several times
(an unrolled cell) is one layer for each application, told apart by the runs of its nodes in each phase. Nodes made in
no module belong to the layer that made their first input.
"""

from __future__ import annotations

from girih.graph import Graph


def layers_of(graph: Graph) -> tuple[int, ...]:
    """The number of the layer of each node, counted from 0 in the order of their first nodes."""
    makers = graph_makers(graph)
    number: dict[object, int] = {}
    layers: list[int] = []
    for node in graph.nodes:
        key: object
        if node.scope:
            key = node.scope
        else:
            before = [makers[name] for name in node.inputs if name in makers]
            key = ("of", layers[before[0]]) if before else ("alone", node.name)
            if before:
                layers.append(layers[before[0]])
                continue
        layers.append(number.setdefault(key, len(number)))
    return tuple(layers)


def graph_makers(graph: Graph) -> dict[str, int]:
    """The node that makes each value, by position."""
    return {name: number for number, node in enumerate(graph.nodes) for name in node.outputs}
