"""Slices of slices are slices, and concatenations of concatenations are one: merging in pairs makes chains.

    slice(slice(x, 2, 8), 1, 3)                  → slice(x, 3, 5), along the same dimension
    cat(cat(a, b), c)                            → cat(a, b, c), where nothing else reads the inner one
    cat(slice(x, 0, 2), slice(x, 2, 5))          → slice(x, 0, 5), or x itself

A library that copies slices makes each of them otherwise. Cost: linear in the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from girih.graph import Argument, Graph, Node, Ref, without_unread

SLICE, CAT = "aten.slice.Tensor", "aten.cat"


@dataclass(frozen=True)
class Flat:
    """The pass; it has no options."""

    def apply(self, graph: Graph) -> Graph:
        """The graph with each slice made of what is no slice, and each concatenation of what is none."""
        if not any(node.operator in (SLICE, CAT) for node in graph.nodes):
            return graph
        leaving = {output.name for output in graph.outputs}
        maker: dict[str, Node] = {}
        stands: dict[str, str] = {}
        nodes = []
        for node in graph.nodes:
            if not stands.keys().isdisjoint(node.inputs):
                node = node.renamed(lambda name: stands.get(name, name))
            if node.operator == SLICE:
                node = _slice(node, maker)
            elif node.operator == CAT:
                node = _cat(graph, node, maker)
                whole = _whole(graph, node, maker)
                if whole is not None and node.outputs[0] not in leaving:
                    stands[node.outputs[0]] = whole
                    continue
            maker.update(dict.fromkeys(node.outputs, node))
            nodes.append(node)
        values = {name: value for name, value in graph.values.items() if name not in stands}
        return without_unread(replace(graph, nodes=tuple(nodes), values=values))


def _slice(node: Node, maker: dict[str, Node]) -> Node:
    at = dict(node.arguments)
    source, start, end = at["self"], at["start"], at["end"]
    assert isinstance(source, Ref)
    before = maker.get(source.name)
    if before is None or before.operator != SLICE or at.get("step", 1) != 1:
        return node
    inner = dict(before.arguments)
    if inner["dim"] != at["dim"] or inner.get("step", 1) != 1:
        return node
    first = inner["start"]
    assert isinstance(first, int)
    assert isinstance(start, int)
    assert isinstance(end, int)
    return _with(node, at | {"self": inner["self"], "start": first + start, "end": first + end})


def _with(node: Node, arguments: dict[str, Argument]) -> Node:
    return replace(node, arguments=tuple(arguments.items()))


def _cat(graph: Graph, node: Node, maker: dict[str, Node]) -> Node:
    at = dict(node.arguments)
    parts: list[Argument] = []
    tensors = at["tensors"]
    assert isinstance(tensors, tuple)
    for item in tensors:
        assert isinstance(item, Ref)
        inner = maker.get(item.name)
        own = dict(inner.arguments) if inner is not None and inner.operator == CAT else None
        if own is not None and own.get("dim", 0) == at.get("dim", 0) and len(graph.consumers[item.name]) == 1:
            others = own["tensors"]
            assert isinstance(others, tuple)
            parts += others
        else:
            parts.append(item)
    return node if len(parts) == len(tensors) else _with(node, at | {"tensors": tuple(parts)})


def _whole(graph: Graph, node: Node, maker: dict[str, Node]) -> str | None:
    """The value that a concatenation puts together again from all its slices."""
    at = dict(node.arguments)
    tensors, dim, next_start, whole = at["tensors"], at.get("dim", 0), 0, None
    assert isinstance(tensors, tuple)
    for item in tensors:
        assert isinstance(item, Ref)
        part = maker.get(item.name)
        if part is None or part.operator != SLICE:
            return None
        own = dict(part.arguments)
        source = own["self"]
        assert isinstance(source, Ref)
        if (
            own["dim"] != dim
            or own["start"] != next_start
            or own.get("step", 1) != 1
            or whole not in (None, source.name)
        ):
            return None
        whole, end = source.name, own["end"]
        assert isinstance(end, int)
        next_start = end
    if whole is None or graph.values[whole].shape != graph.values[node.outputs[0]].shape:
        return None
    return whole
