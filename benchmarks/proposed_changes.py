"""A strategy that changes operator by operator, as FlexFlow proposes (§3.5.2): what `simulate_speed` simulates."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from benchmarks.common import objective, searched


class Changing:
    """A strategy that changes node by node, and the steps and prices of each node under it."""

    def __init__(self, graph: Any, machine: Any, random: np.random.Generator) -> None:
        from girih.layout import Transfers
        from girih.ops import description_of

        self.graph = graph
        self.machine = machine
        self.mesh = machine.mesh
        self.random = random
        self.transfers = Transfers(self.mesh, machine.links, "bytes")
        self.descriptions = [description_of(graph, node) for node in graph.nodes]
        self.replaced = {new: old for old, new in graph.updates.items()}
        self.layouts: dict[str, Any] = {}
        self.divisions: list[Any] = []

    def start(self, name: str) -> None:
        """Data parallelism, or everything at random."""
        if name == "data":
            found = searched("data", self.graph, objective("seconds", self.machine), 20.0).strategy
            self.layouts = {name: layout.codes for name, layout in found.layouts.items()}
            self.divisions = [division.codes for division in found.divisions]
            return
        from girih.partition.space.options import value_layouts

        for item in self.graph.inputs:
            choices = value_layouts(self.graph.values[item.name].shape, False, self.mesh, rules())
            self.layouts[item.name] = choices[int(self.random.integers(len(choices)))]
        self.divisions = [self.any_division(number) for number in range(len(self.graph.nodes))]
        for number, node in enumerate(self.graph.nodes):
            for name in node.outputs:
                self.layouts[name] = self.following(number, name, self.divisions[number])
        for old, new in self.graph.updates.items():
            self.layouts[old] = self.layouts[new]

    def any_division(self, number: int) -> Any:
        from girih.partition.strategy import REPEAT

        description = self.descriptions[number]
        if description is None:
            return (REPEAT,) * self.mesh.axes
        codes = divisions_of(description, self.mesh)
        return codes[int(self.random.integers(len(codes)))]

    def following(self, number: int, value: str, division: Any) -> Any:
        description = self.descriptions[number]
        if description is None:
            return (-1,) * self.mesh.axes
        return layout_of(description, division, self.graph.values[value].shape, self.mesh)

    def change(self) -> tuple[list[int], Any]:
        """Divide a random node anew; the nodes whose steps change, and how to take it back."""
        number = int(self.random.integers(len(self.graph.nodes)))
        outputs = self.graph.nodes[number].outputs
        before = (number, self.divisions[number], {})
        self.divisions[number] = self.any_division(number)
        changed = {number}
        for name in outputs:
            for value in (name, self.replaced.get(name)):
                if value is not None:
                    before[2][value] = self.layouts[value]
                    self.layouts[value] = self.following(number, name, self.divisions[number])
                    changed.update(self.graph.consumers[value])
        return sorted(changed), before

    def take_back(self, before: Any) -> None:
        number, division, layouts = before
        self.divisions[number] = division
        self.layouts.update(layouts)

    def lowered(self, numbers: Sequence[int]) -> dict[int, list[Any]]:
        """The steps of some nodes, by node, without frees: those of lowering a graph of these nodes alone."""
        from girih.graph import Graph, Input
        from girih.partition.strategy import Strategy
        from girih.program import FreeStep, lower

        nodes = tuple(self.graph.nodes[number] for number in numbers)
        values = {name: self.graph.values[name] for node in nodes for name in (*node.inputs, *node.outputs)}
        made = {name for node in nodes for name in node.outputs}
        inputs = tuple(Input(name, "batch") for name in values if name not in made)
        strategy = Strategy.of_codes(
            self.mesh,
            tuple(self.divisions[number] for number in numbers),
            {name: self.layouts[name] for name in values},
        )
        steps: dict[int, list[Any]] = {number: [] for number in numbers}
        for step in lower(Graph(values, nodes, inputs, ()), strategy, self.transfers).steps:
            if not isinstance(step, FreeStep):
                steps[numbers[step.node]].append(step)
        return steps

    def block(self, number: int, steps: Sequence[Any]) -> Any:
        """The steps of a node with their prices: the roofline, and copies of what transfers read and make."""
        from girih.cost.prices import Prices
        from girih.program import ComputeStep
        from girih.simulate.incremental import Segment

        rate = self.machine.device.memory_bytes_per_second
        before, after = np.zeros((2, len(steps), self.mesh.devices))
        for position, step in enumerate(steps):
            if isinstance(step, ComputeStep):
                before[position] = self.seconds(number)
            else:
                item = self.graph.values[step.value].item_bytes
                before[position] = elements(step.before.regions) * item / rate
                after[position] = elements(step.after.regions) * item / rate
        return Segment(tuple(steps), Prices(before, after))

    def seconds(self, number: int) -> Any:
        node, description = self.graph.nodes[number], self.descriptions[number]
        sizes = [self.graph.values[name].item_bytes for name in (*node.inputs, *node.outputs)]
        if description is None:
            total = sum(self.graph.values[name].bytes for name in (*node.inputs, *node.outputs))
            return self.machine.device.launch_seconds + total / self.machine.device.memory_bytes_per_second
        return node_seconds(description, self.divisions[number], tuple(sizes), self.machine)


def rules() -> Any:
    from girih.partition.space.options import Rules

    return Rules(repeat=True)


@cache
def divisions_of(description: Any, mesh: Any) -> list[tuple[int, ...]]:
    from girih.partition.space.options import division_codes

    return [tuple(row) for row in division_codes(description, mesh, rules()).tolist()]


@cache
def layout_of(description: Any, division: tuple[int, ...], shape: tuple[int, ...], mesh: Any) -> tuple[int, ...]:
    """Each mesh axis splits the dimension in which the index variable that it divides leads, if there is one."""
    layout, parts = [], [1] * len(shape)
    for axis, code in enumerate(division):
        chosen = -1
        for dimension, index in enumerate(description.place):
            leads = index.terms and max(index.terms, key=lambda term: term[1])[0] == code
            if code >= 0 and leads and shape[dimension] >= parts[dimension] * mesh.sizes[axis]:
                chosen = dimension
        if chosen >= 0:
            parts[chosen] *= mesh.sizes[axis]
        layout.append(chosen)
    return tuple(layout)


@cache
def node_seconds(description: Any, division: tuple[int, ...], sizes: tuple[int, ...], machine: Any) -> Any:
    from girih.layout import bounds
    from girih.ops.derive.arithmetic import operations_per_point
    from girih.partition.space.options import placed_at

    mesh, device = machine.mesh, machine.device
    if description.operator.view:
        return np.zeros(mesh.devices)
    placed = placed_at(description, (division,), sizes, mesh)
    starts, stops = bounds(np.asarray([division], np.int64).reshape(1, mesh.axes), description.sizes, mesh)
    points = (stops[0] - starts[0]).prod(axis=-1)
    traffic = placed.bytes[0] * points / max(float(points.max()), 1.0) / device.memory_bytes_per_second
    arithmetic = points * float(operations_per_point(description)) / device.flops_per_second
    return np.maximum(arithmetic, traffic) + device.launch_seconds


def elements(regions: Any) -> Any:
    return (regions[..., 1] - regions[..., 0]).prod(axis=-1)
