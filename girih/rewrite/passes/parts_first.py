"""Sums of parts are added to one another before they are added to what is whole.

Autograd adds up the gradients of a value that is read several times in the order in which it meets them. Where some of
them are sums of parts that lie on several devices and others are whole, each sum of parts would be reduced by itself:
r + a + b is two reductions, r + (a + b) is one. Before → after, of parts %a and %b:

    %x = aten.add.Tensor(%r, %a)             %x.sums = aten.add.Tensor(%a, %b)
    %y = aten.add.Tensor(%x, %b)      →      %y = aten.add.Tensor(%r, %x.sums)

Equal but for the order of floating-point additions. Cost: linear in the nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import count

from girih.graph import Graph, Node, Ref, kept_with_graph

ADD = "aten.add.Tensor"


@dataclass(frozen=True)
class AddPartsFirst:
    """Add up the sums of parts before what is whole. sums: the names of the values that are sums of parts."""

    sums: frozenset[str]

    def apply(self, graph: Graph) -> Graph:
        return _parts_first(graph, self.sums)


@kept_with_graph
def _parts_first(graph: Graph, sums: frozenset[str]) -> Graph:
    makers = {name: node for node in graph.nodes for name in node.outputs}
    readers = Counter(name for node in graph.nodes for name in node.inputs)
    readers.update(item.name for item in graph.outputs)

    def terms(node: Node) -> tuple[list[str], set[str]]:
        """What a node adds up in the end, and the sums between, that nobody else reads."""
        leaves: list[str] = []
        between: set[str] = set()
        names = list(reversed(node.inputs))
        while names:
            maker = makers.get(name := names.pop())
            if maker is not None and readers[name] == 1 and _adds(graph, maker):
                between.add(name)
                names += reversed(maker.inputs)
            else:
                leaves.append(name)
        return leaves, between

    values = dict(graph.values)
    inside: set[str] = set()  # of sums that were looked at with what they are added to
    gone: set[str] = set()
    instead: dict[str, list[Node]] = {}
    for node in reversed(graph.nodes):
        name = node.outputs[0]
        if name in inside or not _adds(graph, node):
            continue
        every, between = terms(node)
        inside |= between
        parts, wholes = [term for term in every if term in sums], [term for term in every if term not in sums]
        if len(parts) < 2 or not wholes:
            continue
        gone |= between
        instead[name] = _added(node, [*parts, *wholes], values)
        values |= {own.name: replace(graph.values[name], name=own.name) for own in instead[name]}
    if not instead:
        return graph
    nodes = [new for node in graph.nodes if node.name not in gone for new in instead.get(node.name, [node])]
    left = {name: value for name, value in values.items() if name not in gone}
    return Graph(left, tuple(nodes), graph.inputs, graph.outputs)


def _adds(graph: Graph, node: Node) -> bool:
    """Two values of the result's own shape and type, once each."""
    if node.operator != ADD or len(node.inputs) != 2 or node.attributes:
        return False
    own = graph.values[node.outputs[0]]
    return all((graph.values[name].shape, graph.values[name].dtype) == (own.shape, own.dtype) for name in node.inputs)


def _added(node: Node, terms: list[str], known: Collection[str]) -> list[Node]:
    """The nodes that add up the terms from left to right, the last one in place of the given one. known: names that are
    taken, among them those of a graph in which this pass has added sums already."""
    sums, total = [], terms[0]
    free = (name for number in count(1) if (name := f"{node.name}.sum{number}") not in known)
    for number, term in enumerate(terms[1:], 1):
        name = node.name if number == len(terms) - 1 else next(free)
        sums.append(replace(node, name=name, arguments=(("self", Ref(total)), ("other", Ref(term))), outputs=(name,)))
        total = name
    return sums
