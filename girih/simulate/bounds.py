"""Lower bounds on the makespan: of a given program, and of any plan of a graph on a machine.

Of a program, under its prices (`schedule_bound`), the largest of: the work of the busiest device, the busiest port, and
the longest path if ports served everybody at once. Contention alone lies between the last and the simulation.

Of a graph (`bound_of`), under the roofline, whatever its division, placement and order, the larger of:

- *Work*: what all pieces of all nodes take together, spread evenly over the devices. Of each node the division is taken
  that takes least.
- *Critical path*: on the longest chain of nodes, of each node the smallest piece that any division makes, alone on its
  device; transfers take nothing. Pieces of one division differ by at most one index, so that every piece takes at least
  as long as the smallest one that is counted with. An edge belongs to a chain only if every piece of the reader reads
  something of the value; so each piece of the last node has such a chain of pieces behind it.

Neither is tight: transfers are free in both. An LP over nodes and devices adds nothing to their maximum as long as
transfers are left out. Measured prices of single calls may lie below a roofline that was fitted to many.
Cost: O(nodes + edges), and for each different operator the ways to divide it, O((index variables + 1)^axes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from girih.cost.roofline import Roofline
from girih.cost.shares import data_sheet_roofline
from girih.graph import Graph, Node
from girih.layout import Mesh
from girih.machine import Machine
from girih.ops import Description
from girih.ops.derive.arithmetic import operations_per_point
from girih.ops.derive.divisions import divisible
from girih.ops.derive.kinds import LOOK_UP, VIEW, dtype_of_products, kind_of
from girih.ops.expressions import Affine
from girih.ops.known import descriptions
from girih.simulate.spans import Schedule, busy_devices, busy_ports
from girih.simulate.tasks import POSTS, WAITS
from girih.simulate.ticks import TICKS_PER_SECOND

Floats = NDArray[np.float64]
WORK = "work of all nodes over all devices"


@dataclass(frozen=True)
class Bound:
    """No makespan is below `seconds`. how: the argument that gives it. parts: what each argument gives."""

    seconds: float
    how: str
    parts: tuple[tuple[str, float], ...]

    @staticmethod
    def largest(*parts: tuple[str, float]) -> Bound:
        how, seconds = max(parts, key=lambda part: part[1])
        return Bound(seconds, how, parts)


# ------------------------------------------------------------------------------------------- of a program


def schedule_bound(schedule: Schedule) -> Bound:
    """A lower bound on the seconds of a program's steps in their order, under the prices by which it was simulated."""
    return Bound.largest(
        ("work of the busiest device", float(busy_devices(schedule).max(initial=0.0))),
        ("traffic of the busiest port", float(busy_ports(schedule).max(initial=0.0))),
        ("longest path without contention", _without_contention(schedule)),
    )


def _without_contention(schedule: Schedule) -> float:
    """The makespan if every message began when it is ready."""
    time = np.zeros(schedule.graph.devices, np.int64)
    arriving: dict[int, NDArray[np.int64]] = {}  # by the posting row, when each device has all of its messages
    number = 0
    for position, kind in enumerate(schedule.kind.tolist()):
        time = time + schedule.before[position]
        if kind & POSTS:
            pattern = schedule.patterns[number]
            number += 1
            gate = np.zeros(len(pattern.members), np.int64)
            np.maximum.at(gate, pattern.gates, np.repeat(time, np.diff(pattern.offsets)))
            ends = np.repeat(gate, np.diff(pattern.first)) + pattern.duration
            last = np.zeros(len(time), np.int64)
            for device, moments in ((pattern.sender, ends), (pattern.receiver, ends + pattern.delay)):
                known = device >= 0
                np.maximum.at(last, device[known], moments[known])
            arriving[position] = last
        if kind & WAITS:
            time = np.maximum(time, arriving.pop(int(schedule.partner[position]))) + schedule.after[position]
    return float(time.max(initial=0)) / TICKS_PER_SECOND


# ------------------------------------------------------------------------------------------- of a graph


def bound_of(graph: Graph, machine: Machine, roofline: Roofline | None = None) -> Bound:
    """A lower bound on the seconds of a step under any plan of the graph on the machine.

    roofline: default that of the machine's data sheet; of unequal devices of the fastest.
    """
    kinds = Kinds(machine, roofline)
    known: dict[int, tuple[Description, _Least]] = {}  # descriptions by identity, kept alive
    ready: dict[str, float] = {}
    longest = work = 0.0
    for node, description in zip(graph.nodes, descriptions(graph), strict=True):
        if description is None:
            least = kinds.undivided(graph, node)
        else:
            if id(description) not in known:
                items = [graph.values[name].item_bytes for name in (*node.inputs, node.outputs[0])]
                known[id(description)] = (description, kinds.least(description, items))
            least = known[id(description)][1]
        before = [ready.get(name, 0.0) for name, chained in zip(node.inputs, least.chained, strict=True) if chained]
        end = max(before, default=0.0) + least.piece
        ready.update((name, end) for name in node.outputs)
        longest = max(longest, end)
        work += least.together
    return Bound.largest(
        ("critical path of the smallest pieces", longest),
        (WORK, work / machine.devices),
    )


@dataclass(frozen=True)
class _Least:
    """The least that one node takes. piece: seconds of the smallest piece; together: of all pieces of the division that
    takes least.

    chained: for each input, does every piece read something of it?
    """

    piece: float
    together: float
    chained: tuple[bool, ...]


class Kinds:
    """The best that the roofline promises for each kind of work. roofline: default that of the machine's data sheet; of
    unequal devices of the fastest."""

    def __init__(self, machine: Machine, roofline: Roofline | None = None) -> None:
        roofline = roofline or data_sheet_roofline(machine.fastest)
        self.mesh = machine.mesh
        self.measured = may_be_measured(machine)
        self.rooflines = [data_sheet_roofline(kind) for kind in machine.kinds]
        self.device = roofline.device
        self.rates = dict(roofline.rates)
        self.factors = dict(roofline.factors)

    def best(self, kind: str, operator: str, operations: Floats, sizes: Floats, dtype: str = "float32") -> Floats:
        """Seconds of pieces, at the largest share of the peaks that any size reaches."""
        if kind == VIEW:
            return np.zeros(operations.shape)
        launch, flops, memory = self.device.launch_seconds, 1.0, 1.0
        if kind in self.rates:
            rates = self.rates[kind]
            launch = rates.launch_seconds
            flops, memory = (max(share for _, share in table) for table in (rates.flops, rates.memory))
        arithmetic = operations / (self.device.flops(dtype) * flops)
        traffic = sizes / (self.device.memory_bytes_per_second * memory)
        seconds: Floats = (launch + np.maximum(arithmetic, traffic)) * self.factors.get(operator, 1.0)
        return seconds

    def undivided(self, graph: Graph, node: Node) -> _Least:
        """An operator that nobody has described runs whole."""
        total = sum(graph.values[name].bytes for name in (*node.inputs, *node.outputs))
        seconds = float(self.best("", node.operator, np.zeros(1), np.asarray([float(total)]))[0])
        return _Least(seconds, seconds, tuple(graph.values[name].elements > 0 for name in node.inputs))

    def least(self, description: Description, item_bytes: list[int]) -> _Least:
        """item_bytes: of each input and, last, the output."""
        parts = _divisions(description, self.mesh)
        seconds, together, chained = self.pieces(description, item_bytes, parts)
        return _Least(float(seconds.min()), float(together.min()), chained)

    def pieces(
        self, description: Description, item_bytes: list[int], parts: NDArray[np.int64]
    ) -> tuple[Floats, Floats, tuple[bool, ...]]:
        """Seconds of the smallest piece, and of all pieces, of each division, and for each input, does every piece of
        every division read something of it? parts: into how many each cuts each index variable: [ways, variables]."""
        whole = np.asarray(description.sizes, np.int64)
        extents = whole // parts
        kind = kind_of(description)
        written = least_read(description.place, extents, whole, [2**62] * len(description.place)) * item_bytes[-1]
        sizes = written.astype(np.float64)
        chained = []
        for reads, value, item in zip(description.reads, description.inputs, item_bytes, strict=False):
            amount = least_read(reads[0], extents, whole, value.shape) if reads else np.zeros(len(extents), np.int64)
            chained.append(bool((amount > 0).all()))
            if kind != LOOK_UP:
                sizes += amount * item
        each = 0.0 if kind == LOOK_UP else operations_per_point(description)
        pieces = parts.prod(axis=1)
        name = description.operator.name
        dtype = dtype_of_products(description)
        seconds = self.best(kind, name, extents.prod(axis=1, dtype=np.float64) * each, sizes, dtype)
        # However uneven the pieces are, their arithmetic adds up to the whole.
        together = self.best(kind, name, whole.prod(dtype=np.float64) * each / pieces, sizes, dtype) * pieces
        if 0 in description.sizes:
            seconds, together = np.zeros(len(seconds)), np.zeros(len(together))
        return seconds, together, tuple(chained)

    def own(self, description: Description, points: Floats, sizes: Floats) -> Floats:
        """Seconds of pieces of so many points of the index space that read and write so many bytes, whatever their
        shape; none of what is empty. At the rates of their own sizes; where calls may have been measured, of which
        single ones may be faster, at the best."""
        kind, name, dtype = kind_of(description), description.operator.name, dtype_of_products(description)
        operations = points * (0.0 if kind == LOOK_UP else operations_per_point(description))
        if self.measured:
            seconds = self.best(kind, name, operations, sizes, dtype)
        else:
            each = [item.of_operator(kind, name, operations, sizes, dtype) for item in self.rooflines]
            seconds = np.minimum.reduce(each)
        return np.where(points > 0, seconds, 0.0)

    def again(self, description: Description, written: float) -> float:
        """Seconds of what a node does, and of writing its result of so many bytes; without launches."""
        kind, dtype = kind_of(description), dtype_of_products(description)
        operations = 0.0 if kind == LOOK_UP else operations_per_point(description) * prod(description.sizes)
        nothing, all_of_it = (
            self.best(kind, description.operator.name, np.asarray([work]), np.asarray([size]), dtype)[0]
            for work, size in ((0.0, 0.0), (operations, written))
        )
        return float(all_of_it - nothing)


def may_be_measured(machine: Machine) -> bool:
    """May calls and transfers have prices that were measured, so that single ones are cheaper than data sheets say?"""
    return machine.here or machine.on_gpus or any(level.points for level in machine.levels)


def _divisions(description: Description, mesh: Mesh) -> NDArray[np.int64]:
    """Into how many parts each index variable can be cut, all ways: [ways, index variables]."""
    sizes = description.sizes
    able = [number for number, yes in enumerate(divisible(description)) if yes and sizes[number] > 1]
    divisions = {(1,) * len(sizes)}
    for size in mesh.sizes:  # parts only grow: what does not fit need not be followed
        cut = {
            (*parts[:number], parts[number] * size, *parts[number + 1 :])
            for parts in divisions
            for number in able
            if parts[number] * size <= sizes[number]
        }
        divisions |= cut
    return np.asarray(sorted(divisions), np.int64).reshape(len(divisions), len(sizes))


def least_read(
    indices: Sequence[Affine | None], extents: NDArray[np.int64], whole: NDArray[np.int64], shape: Sequence[int]
) -> NDArray[np.int64]:
    """At least so many elements lie in the box that a piece of these extents reads, wherever it lies: [ways]."""
    count = np.ones(len(extents), np.int64)
    for index, size in zip(indices, shape, strict=True):
        if index is None:
            count *= size
            continue
        if not index.terms and 0 <= index.constant < size:
            continue
        if index.variable is not None and whole[index.variable] <= size:  # it lies inside
            count *= extents[:, index.variable]
            continue
        length = np.ones(len(extents), np.int64)
        least = np.full(len(extents), index.constant)
        most = least.copy()
        for variable, factor in index.terms:
            extent = extents[:, variable]
            length += abs(factor) * (extent - 1)
            least += min(factor, 0) * (whole[variable] - 1)
            most += factor * (whole[variable] - extent) if factor > 0 else factor * (extent - 1)
        # What lies inside of the tensor is least where the box lies outermost.
        inside = [np.minimum(low + length, size) - np.maximum(low, 0) for low in (least, most)]
        count *= np.maximum(np.minimum(*inside), 0)
    return count
