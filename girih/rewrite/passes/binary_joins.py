"""Joins and splits of many → of two and two, for rules, which know joins and splits of two; and back.

    cat(a, b, c, d)                    ⇄  cat(cat(a, b), cat(c, d))
    x[0:2], x[2:4], x[4:6], x[6:8]     ⇄  (x[0:4])[0:2], (x[0:4])[2:4], (x[4:8])[0:2], (x[4:8])[2:4]

So that two branches of 32 can be one, and two such pairs one of four (TASO Fig. 2.9). Cost: linear in the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    """Write joins of joins as one, and slices of slices: merging in pairs makes chains.

        slice(slice(x, 2, 8), 1, 3)           → slice(x, 3, 5), along the same dimension
        cat(cat(a, b), c)                     → cat(a, b, c), where nothing else reads the inner one
        cat(slice(x, 0, 2), slice(x, 2, 5))   → x, if that is all of it, with `whole`

    whole: also write what joins all slices of a value as that value. Libraries that copy slices would make each slice.
    """

    whole: bool = False

    def apply(self, graph: Graph) -> Graph:
        leaving = {output.name for output in graph.outputs}
        makers: dict[str, Node] = {}
        stands: dict[str, str] = {}
        nodes, changed = list[Node](), False
        for node in graph.nodes:
            new = node
            if not stands.keys().isdisjoint(node.inputs):
                new = node.renamed(lambda name: stands.get(name, name))
            if new.operator == CAT:
                new = _flat_join(graph, new, makers)
                again = _joined_again(graph, new, makers) if self.whole else None
                if again is not None and new.outputs[0] not in leaving:
                    stands[new.outputs[0]] = again
                    continue
            elif new.operator == SLICE:
                new = _flat_slice(graph, new, makers)
            changed |= new is not node
            makers.update(dict.fromkeys(new.outputs, new))
            nodes.append(new)
        if not changed and not stands:
            return graph
        values = {name: value for name, value in graph.values.items() if name not in stands}
        return without_unread(replace(graph, nodes=tuple(nodes), values=values))


def _flat_join(graph: Graph, node: Node, makers: Mapping[str, Node]) -> Node:
    """A join with the parts of joins that it alone reads in their place."""
    dim = node.attributes.get("dim", 0)
    parts: list[str] = []
    for name in node.inputs:
        inner = makers.get(name)
        same = inner is not None and inner.operator == CAT and inner.attributes.get("dim", 0) == dim
        parts.extend(inner.inputs if inner is not None and same and len(graph.consumers[name]) == 1 else (name,))
    if len(parts) == len(node.inputs):
        return node
    return replace(node, arguments=(("tensors", tuple(map(Ref, parts))), ("dim", dim)))


def _flat_slice(graph: Graph, node: Node, makers: Mapping[str, Node]) -> Node:
    """A slice of what the inner slice is a slice of."""
    inner, place = makers.get(node.inputs[0]), place_of(graph, node)
    before = None if inner is None else place_of(graph, inner)
    if inner is None or place is None or before is None or before[0] != place[0]:
        return node
    dim, start, stop = place[0], before[1] + place[1], before[1] + place[2]
    at = (("self", Ref(inner.inputs[0])), ("dim", dim), ("start", start), ("end", stop), ("step", 1))
    return replace(node, arguments=at)


def _joined_again(graph: Graph, node: Node, makers: Mapping[str, Node]) -> str | None:
    """The value that a join puts together again from all its slices, in their order."""
    parts = [makers.get(name) for name in node.inputs]
    places = [None if part is None else place_of(graph, part) for part in parts]
    wholes = {part.inputs[0] for part in parts if part is not None}
    shape, dim = graph.values[node.outputs[0]].shape, node.attributes.get("dim", 0)
    if None in places or len(wholes) != 1 or not isinstance(dim, int):
        return None
    (whole,) = wholes
    known = [place for place in places if place is not None]
    edges = [0, *(stop for _, _, stop in known)]
    in_order = [start for _, start, _ in known] == edges[:-1] and {axis for axis, _, _ in known} == {dim % len(shape)}
    return whole if in_order and graph.values[whole].shape == shape else None
