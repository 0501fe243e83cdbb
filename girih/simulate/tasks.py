"""The task graph of a Program (FlexFlow §3.4.1): what is simulated, as flat arrays.

Devices walk the steps of the program in one order, and pass at once those that are not in theirs. A step is a *row*: on
each device a task on the device itself (compute, or packing before messages are handed over, or placing after they have
arrived), and for a transfer the message tasks of its exchange. A row may post messages, wait for messages, or both:

- a compute step takes `before`;
- a start step takes `before` and posts its transfer's messages; the transfer step, later, waits and takes `after`;
- a transfer step without a start takes `before`, posts, waits, and takes `after`;
- so it is with moves, whose copies are message tasks of one device: they occupy a copier of it. A copy that waits for
  others (`StartStep.after`) is ready when they have ended, too. Where the device's own cores copy, a copy that was
  started takes a share of its seconds from the device (`Tier.own_seconds`), which does that work when it comes to the
  copy's end; where it has to wait there for longer, it has lost nothing. (At a rate 1 - s beside a copy of D seconds, a
  device with work for W does it by max(D, W + s·D).)

A message task is ready when its sender and its receiver have posted; it occupies the sender's port out and the
receiver's port in, on the level of the outermost mesh axis on which the two differ, from the first moment at which it
is ready and both are free, for bytes / bandwidth (assumption A2). It is then under way for the level's latency, while
others have the ports (the L of LogP, Culler et al. 1993): FlexFlow knows no latency. A device waits until what it sends
has left and what it receives has arrived. Of messages that wait for one
port, the exchange that comes first in the program goes first; in an exchange, rounds around the mesh, then receivers.
Two devices that exchange several boxes have one task for all of them.

Where we differ from FlexFlow:
- Devices keep the order of the program (the worker does), so that queues are of messages only.
- A message occupies two ports in place of one connection, so that a device's traffic with many peers contends. First
  in, first out by ready time (its assumption A3) would then keep a port free for a message whose other port is busy:
  irregular exchanges of 64 devices would take up to eight times as long as their busiest port. Ports here serve
  whoever can begin, in the order of the program: of each device, the order in which it posts.
- A task takes whole ticks (`girih.simulate.ticks`). Steps that take no time anywhere have no row.

The edges of the graph are implicit: from each task of a device to its next one, and those of the patterns
(`girih.simulate.patterns`), which all transfers that are alike share. Building takes O(steps · devices) on arrays and
the patterns of the different exchanges, each O(devices²) as `messages`, O(devices · axes) as `volumes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from girih.cost.prices import Prices
from girih.graph import Graph
from girih.layout import Mesh, Placement
from girih.machine import Machine
from girih.program import MoveStep, Program, StartStep, Step, Stream, TransferStep
from girih.simulate.columns import Column, Places
from girih.simulate.patterns import Pattern, Resolution, pattern_of, pattern_of_move
from girih.simulate.ports import Ports, ports_of
from girih.simulate.ticks import Ticks, ticks

MOST_KNOWN = 100_000  # pairs of placements that are known by identity
EXACT_DEVICES = 64  # up to so many, every message is a task of its own
NO_ROW = -1
POSTS, WAITS = 1, 2  # bits of a row's kind, as in `girih.simulate.kernels.arrays`


@dataclass(frozen=True)
class TaskCounts:
    """How large a task graph is: rows, tasks of devices, message tasks, different exchanges."""

    rows: int
    device_tasks: int
    message_tasks: int
    patterns: int

    @property
    def tasks(self) -> int:
        return self.device_tasks + self.message_tasks


class PatternStore:
    """The patterns of different exchanges, one behind the other in flat arrays; equal exchanges have one number."""

    def __init__(self, mesh: Mesh, ports: Ports, resolution: Resolution) -> None:
        self.mesh = mesh
        self.ports = ports
        self.resolution = resolution
        self.patterns: list[Pattern] = []
        self.numbers: dict[tuple[object, ...], int] = {}
        # Lowering hands out the same placements again and again: known by identity, they need not be compared.
        self.known: dict[tuple[int, int, int], tuple[int, Placement, Placement]] = {}
        self.columns = {
            **{name: Column(np.int32) for name in ("egress", "ingress", "sender", "receiver")},
            **{name: Column(np.int32) for name in ("first", "members", "gates")},
            **{name: Column(np.int64) for name in ("duration", "delay", "task_at", "gate_at", "first_at", "link_at")},
            "offsets": Column(np.int32, width=(mesh.devices + 1,)),
            "waits": Column(np.int32, width=(mesh.devices,)),
        }  # fmt: skip
        for name in ("task_at", "gate_at", "first_at", "link_at"):
            self.columns[name].extend(np.zeros(1, np.int64))

    def number(self, source: Placement, target: Placement, item_bytes: int) -> int:
        """The number of the pattern that turns one placement into another in one hop."""
        short = (id(source), id(target), item_bytes)
        known = self.known.get(short)
        if known is not None:
            return known[0]
        key = (source.regions.tobytes(), source.partial, target.regions.tobytes(), target.partial, item_bytes)
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = len(self.patterns)
            self.add(pattern_of(self.mesh, source, target, item_bytes, self.ports, self.resolution))
        if len(self.known) >= MOST_KNOWN:
            self.known.clear()
        self.known[short] = (number, source, target)
        return number

    def number_of_move(self, amounts: NDArray[np.int64], out: bool, waits_for: int) -> int:
        """The number of the pattern of a move of so many bytes on each device."""
        key = (amounts.tobytes(), out, waits_for)
        if key not in self.numbers:
            self.numbers[key] = len(self.patterns)
            self.add(pattern_of_move(amounts, out, waits_for, self.ports))
        return self.numbers[key]

    def add(self, pattern: Pattern) -> None:
        self.patterns.append(pattern)
        columns = self.columns
        for name in ("egress", "ingress", "sender", "receiver", "first", "members", "gates", "duration", "delay"):
            columns[name].extend(getattr(pattern, name))
        columns["offsets"].extend(pattern.offsets[None])
        columns["waits"].extend(pattern.waits[None])
        ends = {"task_at": "duration", "gate_at": "members", "first_at": "first", "link_at": "gates"}
        for name, column in ends.items():
            columns[name].extend(np.asarray([columns[column].size]))


class TaskGraph:
    """The rows of a program in their order, with the patterns of their exchanges. Rows can be added and taken away.

    order: numbers of rows. step: of each row the position in the program that the graph was built from, or NO_ROW. The
    other columns are those of `girih.simulate.kernels.arrays.Rows`.
    """

    def __init__(self, store: PatternStore, rows: int = 64) -> None:
        self.store = store
        devices = store.mesh.devices
        self.order: NDArray[np.int32] = np.zeros(0, np.int32)
        self.columns = {
            "kind": Column(np.int8, capacity=rows),
            "pattern": Column(np.int32, capacity=rows),
            "partner": Column(np.int32, capacity=rows),
            "task_at": Column(np.int64, capacity=rows),
            "gate_at": Column(np.int64, capacity=rows),
            "release": Column(np.int32, capacity=rows),
            "before": Column(np.int64, width=(devices,), capacity=rows),
            "after": Column(np.int64, width=(devices,), capacity=rows),
        }
        self.step = Column(np.int32, capacity=rows)
        self.releases = Column(np.int32, width=(2,))
        self.row_places = Places()
        self.task_places = Places()
        self.gate_places = Places()

    @staticmethod
    def of(
        store: PatternStore,
        kind: NDArray[np.int8],
        pattern: NDArray[np.int32],
        partner: NDArray[np.int32],
        before: Ticks,
        after: Ticks,
    ) -> TaskGraph:
        """The graph of rows in their order, as `add` makes them: of each its kind, pattern (NO_ROW where it posts
        nothing), partner, and ticks of each device [rows, devices]."""
        graph = TaskGraph(store, len(kind))
        rows = np.arange(len(kind), dtype=np.int32)
        graph.row_places.take(len(kind))
        graph.fill(rows, kind, pattern, before, after)
        graph.columns["partner"].array[rows] = partner
        graph.step.array[rows] = NO_ROW
        graph.order = rows
        return graph

    @property
    def devices(self) -> int:
        return self.store.mesh.devices

    def counts(self) -> TaskCounts:
        kind, pattern = self.columns["kind"].array[self.order], self.columns["pattern"].array[self.order]
        both = int(np.count_nonzero(kind == POSTS | WAITS))
        sizes = np.asarray([len(pattern) for pattern in self.store.patterns] or [0])
        messages = int(sizes[pattern[(kind & POSTS) > 0]].sum())
        device_tasks = (len(self.order) + both) * self.devices
        return TaskCounts(len(self.order), device_tasks, messages, len(np.unique(pattern[(kind & POSTS) > 0])))

    def add(
        self,
        steps: Sequence[Step],
        item_bytes: Mapping[str, int],
        before: Ticks,
        after: Ticks,
        positions: Sequence[int],
        started: dict[str, int],
        amounts: Mapping[str, NDArray[np.int64]] | None = None,
    ) -> NDArray[np.int32]:
        """Rows for steps that follow each other; steps that take no time have none.

        item_bytes: of each value. before, after: [steps, devices]. positions: of the steps in the program. started: by
        target, the rows of starts whose transfers are to come (NO_ROW where nothing is exchanged); kept up to date.
        amounts: of moves by their targets, the bytes on each device.
        """
        patterns = self.store.patterns
        works: list[bool] = np.any((before > 0) | (after > 0), axis=1).tolist()
        kinds, used, rows, which = [], [], [], []  # of each row: kind, pattern, number, position among the steps
        pairs: list[tuple[int, int]] = []
        released: list[tuple[int, int]] = []  # rows whose copies end, and rows whose copies wait for that
        for position, step in enumerate(steps):
            kind, pattern, posting = 0, NO_ROW, NO_ROW
            if step.stream is Stream.MEMORY:
                continue
            if not isinstance(step, TransferStep):
                after[position] = 0
            waits_for: tuple[int, ...] = ()
            if isinstance(step, StartStep):
                waits_for = tuple(started[target] for target in step.after if started.get(target, NO_ROW) >= 0)
                pattern = self.pattern(step.transfer, item_bytes, amounts, len(waits_for))
                kind = POSTS if len(patterns[pattern]) else 0
                started[step.transfer.target] = NO_ROW
            elif isinstance(step, TransferStep | MoveStep):
                pattern = self.pattern(step, item_bytes, amounts)
                begun = step.target in started
                if begun:
                    posting = started.pop(step.target)
                    before[position] = 0
                    if isinstance(step, MoveStep) and amounts is not None:
                        before[position] = self.store.ports.own(amounts[step.target], step.out)
                if len(patterns[pattern]):
                    kind = WAITS if begun else POSTS | WAITS
            if kind == 0 and not works[position]:
                continue
            row = self.row_places.take(1)
            kinds.append(kind)
            used.append(pattern if kind & POSTS else NO_ROW)
            rows.append(row)
            released += [(posted, row) for posted in waits_for]
            which.append(position)
            if kind == POSTS:
                assert isinstance(step, StartStep)
                started[step.transfer.target] = row
            elif kind:
                pairs.append((row if kind & POSTS else posting, row))
        added = np.asarray(rows, np.int32)
        self.fill(added, np.asarray(kinds, np.int8), np.asarray(used, np.int32), before[which], after[which])
        partner = self.columns["partner"].array
        for posting, waiting in pairs:
            partner[posting], partner[waiting] = waiting, posting
        self.step.array[added] = np.asarray(positions, np.int32)[which]
        release = self.columns["release"].array
        for ending, row in released:
            self.releases.extend(np.asarray([[row, release[ending]]], np.int32))
            release[ending] = self.releases.size - 1
        return added

    def pattern(
        self,
        move: TransferStep | MoveStep,
        item_bytes: Mapping[str, int],
        amounts: Mapping[str, NDArray[np.int64]] | None = None,
        waits_for: int = 0,
    ) -> int:
        if isinstance(move, MoveStep):
            if amounts is None:
                raise ValueError(f"the move of {move.target}: programs with moves are simulated as a whole")
            return self.store.number_of_move(amounts[move.target], move.out, waits_for)
        return self.store.number(move.before, move.after, item_bytes[move.value])

    def fill(
        self, rows: NDArray[np.int32], kind: NDArray[np.int8], pattern: NDArray[np.int32], before: Ticks, after: Ticks
    ) -> None:
        columns = self.columns
        for column in (*columns.values(), self.step):
            column.reserve(self.row_places.end)
            column.size = self.row_places.end
        columns["kind"].array[rows] = kind
        columns["release"].array[rows] = NO_ROW
        columns["pattern"].array[rows] = pattern
        # Without messages between them, both parts are one.
        columns["before"].array[rows] = np.where(kind[:, None] == 0, before + after, before)
        columns["after"].array[rows] = np.where(kind[:, None] == 0, 0, after)
        posting = pattern >= 0
        for name, places in (("task_at", self.task_places), ("gate_at", self.gate_places)):
            starts = self.store.columns[name].array  # of each pattern, where the one before ends
            lengths = starts[pattern[posting] + 1] - starts[pattern[posting]]
            columns[name].array[rows[posting]] = places.take_each(lengths)

    def remove(self, rows: NDArray[np.int32]) -> None:
        """Rows that are no longer in the order: their numbers and places will be used again."""
        columns = self.columns
        for row in rows.tolist():
            self.row_places.give_back(row, 1)
            number = int(columns["pattern"].array[row])
            if number >= 0:
                pattern = self.store.patterns[number]
                self.task_places.give_back(int(columns["task_at"].array[row]), len(pattern))
                self.gate_places.give_back(int(columns["gate_at"].array[row]), len(pattern.members))


def resolution_for(devices: int) -> Resolution:
    """Every message by itself, where there are not too many."""
    return "messages" if devices <= EXACT_DEVICES else "volumes"


def build(program: Program, prices: Prices, machine: Machine, resolution: Resolution | None = None) -> TaskGraph:
    """The task graph of a program.

    Raises:
        ValueError: the machine has another mesh, or prices are not of this program's steps and devices.
    """
    checked(program.mesh, machine, prices, len(program.steps))
    store = PatternStore(program.mesh, ports_of(machine), resolution or resolution_for(program.mesh.devices))
    graph = TaskGraph(store, len(program.steps))
    before, after = ticks(prices.before), ticks(prices.after)
    for order in program.orders:  # whoever does not take part in a step passes it at once
        others = np.setdiff1d(np.arange(len(program.steps)), order.steps)[:, None]
        devices = np.asarray(tuple(order.devices), np.int64)
        before[others, devices] = after[others, devices] = 0
    items, amounts = items_of(program.graph), move_amounts(program)
    graph.order = graph.add(program.steps, items, before, after, range(len(program.steps)), {}, amounts)
    return graph


def move_amounts(program: Program) -> dict[str, NDArray[np.int64]]:
    """Bytes on each device of each move, by its target: [devices]."""
    amounts: dict[str, NDArray[np.int64]] = {}
    for step in program.steps:
        if isinstance(step, MoveStep):
            regions = program.places[step.source].regions
            extents = np.maximum(regions[..., 1] - regions[..., 0], 0)
            amounts[step.target] = extents.prod(axis=-1) * program.graph.values[step.value].item_bytes
    return amounts


def items_of(graph: Graph) -> dict[str, int]:
    """Bytes of one element of each value."""
    return {name: value.item_bytes for name, value in graph.values.items()}


def checked(mesh: Mesh, machine: Machine, prices: Prices, steps: int) -> None:
    """Prove that machine and prices fit.

    Raises:
        ValueError: saying what does not.
    """
    if machine.mesh != mesh:
        raise ValueError(f"the program is for a mesh {mesh}, {machine.name} is one of {machine.mesh}")
    for name, seconds in (("before", prices.before), ("after", prices.after)):
        if seconds.shape != (steps, mesh.devices):
            raise ValueError(
                f"prices.{name} has shape {list(seconds.shape)}: expected [{steps}, {mesh.devices}], "
                "one row for each step of the program and one column for each device"
            )
