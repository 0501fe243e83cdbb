"""Joins and splits of many → of two and two, for rules, which know joins and splits of two; and back.

    cat(a, b, c, d)                    ⇄  cat(cat(a, b), cat(c, d))
    x[0:2], x[2:4], x[4:6], x[6:8]     ⇄  (x[0:4])[0:2], (x[0:4])[2:4], (x[4:8])[0:2], (x[4:8])[2:4]

So that two branches of 32 can be one, and two such pairs one of four (TASO Fig. 2.9). Cost: linear in the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from girih.graph import Argument, Graph, Node, Ref, Value, without_unread

CAT, SLICE = "aten.cat", "aten.slice.Tensor"


@dataclass(frozen=True)
class BinaryJoins:
    """Write joins of more than two as joins of two, each half by itself; so slices that are all of a tensor."""

    def apply(self, graph: Graph) -> Graph:
        values, nodes = dict(graph.values), list[Node]()
        slices = _whole_splits(graph)
        halves: dict[tuple[str, int, int, int], str] = {}

        def joined(node: Node, parts: tuple[str, ...], dim: int, name: str) -> str:
            if len(parts) == 1:
                return parts[0]
            middle = len(parts) // 2
            two = tuple(joined(node, half, dim, "") for half in (parts[:middle], parts[middle:]))
            shape = list(values[two[0]].shape)
            shape[dim] = sum(values[half].shape[dim] for half in two)
            return write(node, CAT, (("tensors", tuple(map(Ref, two))), ("dim", dim)), tuple(shape), name)

        def write(
            node: Node, operator: str, arguments: tuple[tuple[str, Argument], ...], shape: tuple[int, ...], name: str
        ) -> str:
            called = name or f"{node.outputs[0]}.{len(values)}"
            values[called] = Value(called, shape, values[node.outputs[0]].dtype)
            nodes.append(replace(node, name=called, operator=operator, arguments=arguments, outputs=(called,)))
            return called

        def part(node: Node, of: str, dim: int, places: list[tuple[int, int]], wanted: tuple[int, int]) -> str:
            """The value that holds `wanted`, of those that together hold `places`."""
            start, offset = of, places[0][0]
            while len(places) > 1:
                middle = len(places) // 2
                places = places[:middle] if wanted[0] < places[middle][0] else places[middle:]
                first, last = places[0][0], places[-1][1]
                key = (of, dim, first, last)
                if key not in halves:
                    shape = list(values[of].shape)
                    shape[dim] = last - first
                    at = (("self", Ref(start)), ("dim", dim), ("start", first - offset), ("end", last - offset))
                    name = node.outputs[0] if (first, last) == wanted else ""
                    halves[key] = write(node, SLICE, at, tuple(shape), name)
                start, offset = halves[key], first
            return start

        for node in graph.nodes:
            arguments = node.attributes
            dim = arguments.get("dim", 0)
            if node.operator == CAT and len(node.inputs) > 2 and isinstance(dim, int):
                joined(node, node.inputs, dim % len(graph.values[node.outputs[0]].shape), node.outputs[0])
            elif node.name in slices:
                of, axis, places, wanted = slices[node.name]
                part(node, of, axis, list(places), wanted)
            else:
                nodes.append(node)
        return graph if len(nodes) == len(graph.nodes) else replace(graph, values=values, nodes=tuple(nodes))


Split = tuple[str, int, tuple[tuple[int, int], ...], tuple[int, int]]


def _whole_splits(graph: Graph) -> dict[str, Split]:
    """By the name of each slice of a tensor that is split into more than two: the tensor, the dimension, all its parts
    and this one."""
    found: dict[tuple[str, int], dict[tuple[int, int], Node]] = {}
    for node in graph.nodes:
        place = place_of(graph, node)
        if place is not None:
            dim, start, stop = place
            found.setdefault((node.inputs[0], dim), {})[start, stop] = node
    every: dict[str, Split] = {}
    for (of, dim), parts in found.items():
        places = tuple(sorted(parts))
        edges = [0, *(stop for _, stop in places)]
        if (
            len(places) > 2
            and edges[-1] == graph.values[of].shape[dim]
            and [start for start, _ in places] == edges[:-1]
        ):
            every.update({node.name: (of, dim, places, place) for place, node in parts.items()})
    return every


def place_of(graph: Graph, node: Node) -> tuple[int, int, int] | None:
    """(dimension, start, stop) of a slice without steps; None for another node."""
    if node.operator != SLICE:
        return None
    at, shape = node.attributes, graph.values[node.outputs[0]].shape
    dim, start = at.get("dim", 0), at.get("start") or 0
    if not isinstance(dim, int) or not isinstance(start, int) or start < 0 or at.get("step", 1) != 1:
        return None
    dim %= len(shape)
    return dim, start, start + shape[dim]


@dataclass(frozen=True)
class FlatJoins:
    """Write joins of joins as one, and slices of slices."""

    def apply(self, graph: Graph) -> Graph:
        makers = {name: node for node in graph.nodes if node.operator in (CAT, SLICE) for name in node.outputs}
        if not any(name in makers for node in makers.values() for name in node.inputs):
            return graph
        nodes, changed = list[Node](), False
        for node in graph.nodes:
            new = node
            if node.operator == CAT:
                dim = node.attributes.get("dim", 0)
                parts: list[str] = []
                for name in node.inputs:
                    inner = makers.get(name)
                    alone = len(graph.consumers[name]) == 1
                    same = inner is not None and inner.operator == CAT and inner.attributes.get("dim", 0) == dim
                    parts.extend(inner.inputs if inner is not None and same and alone else (name,))
                if len(parts) > len(node.inputs):
                    new = replace(node, arguments=(("tensors", tuple(map(Ref, parts))), ("dim", dim)))
            elif (place := place_of(graph, node)) is not None:
                inner = makers.get(node.inputs[0])
                before = None if inner is None else place_of(graph, inner)
                if inner is not None and before is not None and before[0] == place[0]:
                    dim, start, stop = place[0], before[1] + place[1], before[1] + place[2]
                    at = (("self", Ref(inner.inputs[0])), ("dim", dim), ("start", start), ("end", stop), ("step", 1))
                    new = replace(node, arguments=at)
            if new is not node:
                changed = True
                makers[new.outputs[0]] = new
            nodes.append(new)
        return without_unread(replace(graph, nodes=tuple(nodes))) if changed else graph
