"""`proportional`: parts as large as their devices are fast.

The exact search takes all devices for as slow as the slowest. Here what it found is cut anew: along every mesh axis
whose coordinates differ in speed, each split states shares in proportion to the arithmetic of the devices there.
A split whose shares would leave a device nothing, or whose pieces the operator could not compute, stays equal; so does
all on devices that are alike. The shares are not searched: which axis divides what is as good as for equal devices.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import gcd
from typing import ClassVar

import numpy as np

from girih.graph import Graph
from girih.layout import Mesh, Placement, Placements, Replicated, Sharding, Split, bounds_of
from girih.machine import Machine
from girih.ops import Description
from girih.ops.derive.arithmetic import operations_per_point
from girih.ops.derive.divisions import exact_box, executable, merged
from girih.ops.known import several_descriptions
from girih.partition.search import Search
from girih.partition.searches.exact import exact
from girih.partition.space.options import NodeOptions, options_under, whole_options
from girih.partition.space.problem import Objective
from girih.partition.strategy import SearchResult, Strategy
from girih.rewrite.certificate import Certificate

PARTS = 100  # into which a whole is shared, at most


@dataclass(frozen=True)
class Proportional(Search):
    """What `exact` finds, cut in shares by the devices' speeds, for machines with unequal devices."""

    name: ClassVar[str] = "proportional"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        even = exact(graph, objective, seconds=self.seconds)
        strategy = with_shares(graph, even.strategy, shares_along(objective.machine))
        if strategy == even.strategy:
            return even
        certificate = Certificate(
            cost_of(graph, strategy, objective),
            0.0,
            objective.unit,
            "none: shares are by the devices' speeds, not searched",
            even.certificate.stopped,
            "the strategy of the search exact with shares by the devices' speeds",
            even.certificate.statistics,
        )
        return SearchResult(strategy, certificate)


def shares_along(machine: Machine) -> tuple[tuple[int, ...] | None, ...]:
    """For each mesh axis, the arithmetic of the devices at each coordinate, in whole parts; None: all are equal."""
    flops, mesh = machine.figures("flops_per_second"), machine.mesh
    shares: list[tuple[int, ...] | None] = []
    for axis, size in enumerate(mesh.sizes):
        together = np.bincount(mesh.coordinates[:, axis], flops, size)
        parts = np.maximum(np.rint(together / together.sum() * max(PARTS, 4 * size)), 1).astype(int).tolist()
        common = gcd(*parts)
        shares.append(None if len(set(parts)) == 1 else tuple(part // common for part in parts))
    return tuple(shares)


def with_shares(graph: Graph, strategy: Strategy, shares: tuple[tuple[int, ...] | None, ...]) -> Strategy:
    """The strategy with these shares along the mesh axes wherever they can be stated. shares: of each axis, for all its
    coordinates; None for equal parts."""
    mesh = strategy.mesh
    divisions = [
        _shared(division, shares, [description.sizes for description in several], mesh, several)
        for division, several in zip(strategy.divisions, several_descriptions(graph), strict=True)
    ]
    layouts = {
        name: _shared(layout, shares, [graph.values[name].shape or (1,)], mesh)
        for name, layout in strategy.layouts.items()
    }
    return Strategy(mesh, tuple(divisions), layouts)


def _shared(
    sharding: Sharding,
    shares: tuple[tuple[int, ...] | None, ...],
    extents: Iterable[tuple[int, ...]],
    mesh: Mesh,
    described: tuple[Description, ...] = (),
) -> Sharding:
    axes = list(sharding.axes)
    for number, (axis, stated) in enumerate(zip(axes, shares, strict=True)):
        if isinstance(axis, Split) and axis.shares is None and stated is not None:
            mine = stated if axis.on is None else tuple(stated[at] for at in axis.on)
            axes[number] = replace(axis, shares=mine)
    wanted = Sharding(tuple(axes))
    if any(wanted.empty_part(sizes, mesh) for sizes in extents) or not all(
        _able(one, wanted, mesh) for one in described
    ):
        return sharding
    return wanted


def _able(description: Description, division: Sharding, mesh: Mesh) -> bool:
    """Does the operator compute each piece, and is what the devices of a host, of a rack, … make together a box?"""
    if not merged(description):
        return True
    for depth in range(1, mesh.axes + 1):
        outer = Sharding((*division.axes[:depth], *(Replicated(axis.on) for axis in division.axes[depth:])))
        starts, stops = bounds_of(outer, description.sizes, mesh)
        good = executable(description, starts, stops) if depth == mesh.axes else True
        if not (good & exact_box(description.place, starts, stops) | (stops <= starts).any(axis=-1)).all():
            return False
    return True


def cost_of(graph: Graph, strategy: Strategy, objective: Objective) -> float:
    """What a strategy costs under an objective, each device at its own speed: the sum over nodes of their slowest piece
    and of their transfers, as lowering emits them."""
    mesh, transfers, total = strategy.mesh, objective.transfers, 0.0
    for node, several, division in zip(graph.nodes, several_descriptions(graph), strategy.divisions, strict=True):
        inputs = tuple(graph.values[name] for name in node.inputs)
        outputs = tuple(graph.values[name] for name in node.outputs)
        items = tuple(value.item_bytes for value in (*inputs, *outputs))
        options = options_under(several, division, items, mesh) if several else whole_options(inputs, outputs, mesh)
        total += _slowest(options, several, division, objective)
        for value, need in zip(inputs, options.needs, strict=True):
            lies = Placements.single(Placement.of(strategy.layouts[value.name], value.shape, mesh))
            total += float(transfers.table(lies, need, value.shape, value.item_bytes)[0, 0])
        for value, make in zip(outputs, options.makes, strict=True):
            lies = Placements.single(Placement.of(strategy.layouts[value.name], value.shape, mesh))
            total += float(transfers.table(make, lies, value.shape, value.item_bytes)[0, 0])
    return total


def _slowest(options: NodeOptions, several: tuple[Description, ...], division: Sharding, objective: Objective) -> float:
    """Seconds of the piece that takes longest."""
    machine = objective.machine
    if objective.name == "bytes" or options.operations == 0 or not several:
        return float(objective.node_costs(options)[0])
    starts, stops = bounds_of(division, several[0].sizes, machine.mesh)
    points = (stops - starts).prod(axis=-1, dtype=np.float64)
    share = points / max(float(points.max()), 1.0)
    arithmetic = points * operations_per_point(several[0]) / machine.figures("flops_per_second")
    traffic = share * float(options.bytes[0]) / machine.figures("memory_bytes_per_second")
    seconds = np.maximum(arithmetic, traffic) + machine.figures("launch_seconds")
    return float(seconds[points > 0].max(initial=0.0))
