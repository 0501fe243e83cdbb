"""What a graph costs: each node by the cheapest way to compute it, where ways read and make tensors in layouts.

A way is a kernel with the layouts of what it reads and makes, and its seconds. Where a value lies in another layout
than a kernel wants, it is converted once for each layout, and that costs too: so the layouts of all values are chosen
together (TASO §2.7). A node that is computed within the kernel before it, which nobody else reads, costs nothing.

`cheapest` chooses ways for a graph as it is: it goes through the nodes in their order and keeps, for the values that
are still to be read, the cheapest choice for each set of layouts they lie in. Cost: nodes × states × ways; at most
`STATES` states are kept, the cheapest, so that what it finds is the optimum only where fewer were there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from girih.graph import Graph, Node, Value

ROWS = "rows"
"""The layout in which tensors enter and leave: as PyTorch's contiguous ones."""
STATES = 64

Cost = Callable[[Graph, Node], float]
"""Seconds of a node in its graph."""


@dataclass(frozen=True)
class Way:
    """A kernel. reads: the layout of each value that its node reads, as often as it is in `Node.inputs`. makes: of all
    its results. seconds: of one execution."""

    kernel: str
    reads: tuple[str, ...]
    makes: str
    seconds: float


class Costing(Protocol):
    """What a search asks for. The graph is looked at for the shapes of its values alone: nodes of an e-graph are in
    none. constant: values that are known before."""

    def ways(self, graph: Graph, node: Node, constant: Collection[str]) -> tuple[Way, ...]:
        """All, at least one."""
        ...

    def joins(self, graph: Graph, node: Node, before: Node, constant: Collection[str]) -> bool:
        """Can `node`, that alone reads what `before` makes, be computed within its kernel?"""
        ...

    def conversion(self, value: Value, before: str, after: str) -> float:
        """Seconds, to bring a value from one layout to another."""
        ...

    def constants(self, graph: Graph) -> frozenset[str]:
        """The values of a graph that are known before."""
        ...


@dataclass(frozen=True)
class InRows:
    """One way for each node, in rows, by a function of the node."""

    cost: Cost

    def ways(self, graph: Graph, node: Node, constant: Collection[str]) -> tuple[Way, ...]:
        return (Way("", (ROWS,) * len(node.inputs), ROWS, self.cost(graph, node)),)

    def joins(self, graph: Graph, node: Node, before: Node, constant: Collection[str]) -> bool:
        return False

    def conversion(self, value: Value, before: str, after: str) -> float:
        return 0.0

    def constants(self, graph: Graph) -> frozenset[str]:
        return frozenset()


def measuring(costing: Cost | Costing) -> float:
    """Seconds of work that a costing has taken to measure kernels so far, counted; 0 of one that measures none."""
    return float(getattr(costing, "measuring", 0.0))


def costing_of(cost: Cost | Costing) -> Costing:
    return InRows(cost) if not hasattr(cost, "ways") else cost  # type: ignore[arg-type, return-value]


@dataclass(frozen=True)
class ChosenWays:
    """How a graph is computed. cost: seconds. ways: by the name of each node that is not of constants alone.
    conversions: (value, from, to), each made once. exact: is none cheaper?"""

    cost: float
    ways: Mapping[str, Way] = field(default_factory=dict)
    conversions: tuple[tuple[str, str, str], ...] = ()
    exact: bool = True

    @property
    def layouts(self) -> Mapping[str, str]:
        """By value, where it is not rows."""
        return {name: way.makes for name, way in self.ways.items() if way.makes != ROWS}


_Held = tuple[tuple[str, tuple[str, ...]], ...]
"""For each value that is still to be read, the layouts in which it lies; first that in which it was made."""


@dataclass(frozen=True)
class _State:
    cost: float
    last: _State | None = None
    node: str = ""
    way: Way | None = None
    converted: tuple[tuple[str, str, str], ...] = ()


def cheapest(graph: Graph, costing: Costing, *, ends: Collection[str] = (), free: bool = False) -> ChosenWays:
    """Ways for all nodes of a graph. ends: layouts besides rows that inputs may come in, and `free`: outputs may leave
    in any: what is searched in parts does not know yet how the others choose."""
    constant = costing.constants(graph)
    live = [node for node in graph.nodes if not constant.issuperset(node.outputs)]
    every = [costing.ways(graph, node, constant) for node in live]
    joined = _joined(graph, live, costing, constant)
    if all(len(ways) == 1 for ways in every):  # nothing to choose, so one layout
        chosen = {node.name: way for node, (way,) in zip(live, every, strict=True)}
        return ChosenWays(sum(way.seconds for name, way in chosen.items() if name not in joined), chosen)
    entering = {item.name for item in graph.inputs}
    leaving = {output.name for output in graph.outputs}
    last = {name: number for number, node in enumerate(live) for name in node.inputs}
    states: dict[_Held, _State] = {(): _State(0.0)}
    exact = True
    for number, (node, ways) in enumerate(zip(live, every, strict=True)):
        new = tuple(name for name in dict.fromkeys(node.inputs) if name in entering and name not in constant)
        after: dict[_Held, _State] = {}
        gone = {name for name in node.inputs if last[name] == number and (free or name not in leaving)}
        for held, state in states.items():
            known = dict(held)
            for name in new:
                known.setdefault(name, (ROWS, *ends))
            for way in ways:
                lies, converted, price = dict(known), list[tuple[str, str, str]](), 0.0
                for name, layout in zip(node.inputs, way.reads, strict=True):
                    if name in constant or layout in lies[name]:
                        continue
                    paid, source = min((costing.conversion(graph.values[name], one, layout), one) for one in lies[name])
                    price += paid
                    converted.append((name, source, layout))
                    lies[name] = (*lies[name], layout)
                before = joined.get(node.name)
                within = (
                    before is not None and not converted and way.reads[node.inputs.index(before)] == lies[before][0]
                )
                price += state.cost + (0.0 if within else way.seconds)
                for name in node.outputs:
                    lies[name] = (way.makes,)
                if number == len(live) - 1 and not free:
                    for name in leaving & lies.keys():
                        if ROWS not in lies[name]:
                            price += costing.conversion(graph.values[name], lies[name][0], ROWS)
                            converted.append((name, lies[name][0], ROWS))
                left = tuple(sorted((name, places) for name, places in lies.items() if name not in gone))
                kept = after.get(left)
                if kept is None or price < kept.cost:
                    after[left] = _State(price, state, node.name, way, tuple(converted))
        if len(after) > STATES:
            exact = False
            after = dict(sorted(after.items(), key=lambda item: item[1].cost)[:STATES])
        states = after
    state = min(states.values(), key=lambda item: item.cost)
    cost, conversions = state.cost, list[tuple[str, str, str]]()
    chosen = {}
    while state.last is not None:
        assert state.way is not None
        chosen[state.node] = state.way
        conversions.extend(state.converted)
        state = state.last
    return ChosenWays(cost, chosen, tuple(reversed(conversions)), exact)


def _joined(graph: Graph, nodes: list[Node], costing: Costing, constant: Collection[str]) -> dict[str, str]:
    """By the name of a node: the value that it alone reads, and within whose kernel it can be computed."""
    maker = {name: node for node in graph.nodes for name in node.outputs}
    leaving = {output.name for output in graph.outputs}
    found = {}
    for node in nodes:
        for name in node.inputs:
            before = maker.get(name)
            alone = len(graph.consumers[name]) == 1 and name not in constant and name not in leaving
            if before is not None and alone and costing.joins(graph, node, before, constant):
                found[node.name] = name
                break
    return found


class Remembered:
    """A costing that asks another once for each node: for a search, whose graphs share most of their nodes.

    Nodes are told apart by identity; a node that reads other values is another.
    """

    def __init__(self, costing: Costing) -> None:
        self._costing = costing
        self._ways: dict[int, tuple[Node, tuple[Way, ...]]] = {}
        self._joins: dict[tuple[int, int], tuple[Node, Node, bool]] = {}

    @property
    def measuring(self) -> float:
        return measuring(self._costing)

    def ways(self, graph: Graph, node: Node, constant: Collection[str]) -> tuple[Way, ...]:
        known = self._ways.get(id(node))
        if known is None:
            known = self._ways[id(node)] = node, self._costing.ways(graph, node, constant)
        return known[1]

    def joins(self, graph: Graph, node: Node, before: Node, constant: Collection[str]) -> bool:
        key = id(node), id(before)
        known = self._joins.get(key)
        if known is None:
            known = self._joins[key] = node, before, self._costing.joins(graph, node, before, constant)
        return known[2]

    def conversion(self, value: Value, before: str, after: str) -> float:
        return self._costing.conversion(value, before, after)

    def constants(self, graph: Graph) -> frozenset[str]:
        return self._costing.constants(graph)
