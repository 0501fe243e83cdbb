"""Lowering (Tofu §6): from how a graph is divided to what devices do.

- The order of the undivided program is kept on every device, and with it its reuse of memory: Tofu's control
  dependencies are this order.
- An input is fetched immediately before the node that reads it, and freed after: remote data never waits in memory.
- A fetch is assembled in one buffer, from the parts at home and the messages of all peers.
- Reductions are spread: each device reduces the part that it keeps.
- A buffer is freed after the step that reads it last.

`girih.program.overlap` then lets exchanges begin earlier and end later than here.
"""

from __future__ import annotations

from girih.graph import Graph
from girih.layout import Placement, Transfers, reducer_of, route
from girih.ops.known import several_descriptions
from girih.partition.space.options import NodeOptions, options_under, whole_options
from girih.partition.strategy import Strategy
from girih.program.liveness import lasting
from girih.program.orders import arranged
from girih.program.program import Program
from girih.program.steps import ComputeStep, ReadPart, Step, TransferStep


def node_placements(graph: Graph, number: int, strategy: Strategy) -> NodeOptions:
    """Where the pieces of one node read and write under its division in the strategy."""
    node = graph.nodes[number]
    several = several_descriptions(graph)[number]
    inputs = tuple(graph.values[name] for name in node.inputs)
    outputs = tuple(graph.values[name] for name in node.outputs)
    if not several:
        return whole_options(inputs, outputs, strategy.mesh)
    items = tuple(value.item_bytes for value in (*inputs, *outputs))
    return options_under(several, strategy.divisions[number], items, strategy.mesh)


class Lowering:
    """Collects steps and the places of buffers."""

    def __init__(self, graph: Graph, strategy: Strategy, transfers: Transfers) -> None:
        self.graph = graph
        self.strategy = strategy
        self.transfers = transfers
        self.steps: list[Step] = []
        self.places: dict[str, Placement] = {}
        self.value_of: dict[str, str] = {}
        for item in graph.inputs:
            self.buffer(item.name, item.name, self.lies(item.name))

    def lies(self, name: str) -> Placement:
        """The placement of a value's layout."""
        return Placement.of(self.strategy.layouts[name], self.graph.values[name].shape, self.strategy.mesh)

    def buffer(self, buffer: str, value: str, place: Placement) -> str:
        self.places[buffer] = place
        self.value_of[buffer] = value
        return buffer

    def move(self, value: str, node: int, source: str, goal: str, target: Placement, purpose: str, made: str) -> str:
        """Bring a buffer to a placement; the buffer that then holds it (the same one if nothing has to be done). made:
        the reducer of the node that has made it, if it comes from there."""
        described = self.graph.values[value]
        hops = route(self.transfers, self.places[source], target, described.shape, described.item_bytes)
        for count, place in enumerate(hops, start=1):
            name = goal if count == len(hops) else f"{goal}+{count}"
            before = self.places[source]
            by = combining(before, place, made)
            self.steps.append(TransferStep(value, node, source, name, before, place, purpose, by))
            source = self.buffer(name, value, place)
        return source

    def node(self, number: int) -> None:
        node = self.graph.nodes[number]
        options = node_placements(self.graph, number, self.strategy)
        reads = []
        for operand, name in enumerate(node.inputs):
            needed = options.needs[operand][0]
            goal = f"{name}@{node.name}.{operand}"
            reads.append(ReadPart(self.move(name, number, name, goal, needed, "fetch", "sum"), needed))
        places = [options.makes[result][0] for result in range(len(node.outputs))]
        direct = [place.is_as(self.lies(name)) for place, name in zip(places, node.outputs, strict=True)]
        writes = tuple(name if same else f"{name}~" for name, same in zip(node.outputs, direct, strict=True))
        for write, name, place in zip(writes, node.outputs, places, strict=True):
            self.buffer(write, name, place)
        self.steps.append(ComputeStep(number, tuple(reads), writes))
        for write, name, same in zip(writes, node.outputs, direct, strict=True):
            if not same:
                self.store(name, number, write, options.reducer or "sum")

    def store(self, name: str, number: int, write: str, made: str) -> None:
        target = self.lies(name)
        if self.move(name, number, write, name, target, "store", made) == write:
            # Every device has at least its part at home: it keeps only that.
            self.steps.append(TransferStep(name, number, write, name, self.places[write], target, "store", made))
            self.buffer(name, name, target)


def combining(before: Placement, after: Placement, made: str = "sum") -> str:
    """How the terms of a transfer are combined: those that are there, or else those that become; made: what the node
    that has made the value combines, which decides where it is no sum."""
    return reducer_of(before.partial) or (made if made != "sum" else None) or reducer_of(after.partial) or made


def lower(graph: Graph, strategy: Strategy, transfers: Transfers) -> Program:
    """The program of all devices for one application of the graph.

    transfers: the cost function under which the strategy was searched; it chooses the routes.
    """
    work = Lowering(graph, strategy, transfers)
    for number in range(len(graph.nodes)):
        work.node(number)
    return arranged(Program(graph, strategy, (), work.places, work.value_of), work.steps, lasting(graph))
