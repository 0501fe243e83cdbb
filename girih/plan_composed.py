"""The simulated step of any strategy of a space, composed of pieces that are lowered and priced once.

Simulating one strategy by itself lowers every node, compiles it to calls and prices these; of strategies that share
most configurations most of this is the same. Here a node is lowered once for each combination of the configurations
that it depends on: its own operator's, and those of the operators that decide where its inputs and outputs lie. It is
priced once more for each order in which its inputs lie in memory. What depends on the whole program is done anew for
each strategy by the code that does it for any program: windows of overlap (`girih.lower.overlap`), the rows of the task
graph, and the simulation. So the seconds are those of `girih.simulate.simulate` to the last bit (a test holds it).

Prices are those of the machine's data sheet.
Cost: for each strategy O(steps · devices) for rows and windows, and the simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from girih.layout import Placement, Transfers
from girih.lower import ComputeStep, Overlap, Program, StartStep, TransferStep
from girih.lower.exchange import is_local
from girih.lower.lower import Lowering
from girih.lower.overlap import Windows, works
from girih.machine import Machine
from girih.machine.roofline import Roofline
from girih.partition.configurations import Space
from girih.plan_prices import Copies, TransferWork
from girih.run.local_calls import NOTHING, Collector
from girih.simulate.ports import ports_of
from girih.simulate.room import Room
from girih.simulate.tasks import PatternStore, TaskGraph, items_of, resolution_for
from girih.simulate.ticks import TICKS_PER_SECOND, Ticks, ticks

Strides = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Computed:
    """ticks: of each device [devices]. strides: of what is written, None where it lies in one run of memory."""

    ticks: Ticks
    strides: tuple[Strides | None, ...]


@dataclass(frozen=True, eq=False)
class _Piece:
    """The steps of one node under the configurations that it depends on, in the order of lowering.

    program: of these steps alone. direct: of each input, is it read where its value lies? stored: of each output, is it
    brought to where its value lies? remote: of each transfer, does it exchange anything? known: by the strides of the
    values that are read directly.
    """

    program: Program
    compute: ComputeStep
    direct: tuple[bool, ...]
    stored: tuple[bool, ...]
    works: bool
    remote: dict[int, bool]
    known: dict[tuple[Strides | None, ...], _Computed] = field(default_factory=dict)


class _NodeLowering(Lowering):
    """Lowers single nodes. Where values lie is worked out once for each configuration of who decides it."""

    def __init__(self, space: Space, transfers: Transfers) -> None:
        self.graph, self.space, self.transfers = space.graph, space, transfers
        self.choice: tuple[int, ...] = ()
        self.lie: dict[tuple[str, int], Placement] = {}

    def lies(self, name: str) -> Placement:
        decider = self.space.decides[name]
        key = (name, self.choice[decider])
        if key not in self.lie:
            layout = self.space.operators[decider].layouts[key[1]][name]
            self.lie[key] = Placement.of(layout, self.graph.values[name].shape, self.space.mesh)
        return self.lie[key]

    def program(self, number: int, choice: tuple[int, ...]) -> Program:
        self.choice = choice
        self.strategy = self.space.strategy(choice)
        self.steps, self.places, self.value_of = [], {}, {}
        for name in self.graph.nodes[number].inputs:
            self.buffer(name, name, self.lies(name))
        self.node(number)
        return Program(self.graph, self.strategy, tuple(self.steps), self.places, self.value_of)


class _Windows(Windows):
    """Windows of a program composed of pieces, which know what it would take long to find."""

    def __init__(self, program: Program, options: Overlap, pieces: Sequence[_Piece]) -> None:
        self.pieces = pieces
        super().__init__(program, options)

    def is_remote(self, step: TransferStep) -> bool:
        return self.pieces[step.node].remote[id(step)]

    def works(self, step: ComputeStep) -> bool:
        return self.pieces[step.node].works


class Composer:
    """Simulates strategies of a space by their choices of configurations."""

    def __init__(self, space: Space, machine: Machine, transfers: Transfers, overlap: Overlap) -> None:
        self.space, self.graph, self.mesh = space, space.graph, space.mesh
        self.overlap = overlap
        self.store = PatternStore(self.mesh, ports_of(machine), resolution_for(self.mesh.devices))
        self.items = items_of(self.graph)
        self.roofline = Roofline(machine.device)
        self.lowering = _NodeLowering(space, transfers)
        self.pieces: dict[tuple[int, ...], _Piece] = {}
        self.moved: dict[tuple[int, bool], tuple[Ticks, Ticks]] = {}
        empty = Program(self.graph, space.strategy([0] * len(space.operators)), (), {}, {})
        self.copies = TransferWork(empty, frozenset(), Copies.of(machine, None))
        self.nothing: Ticks = np.zeros(self.mesh.devices, np.int64)
        self.depends = []  # of each node the operators on whose configurations its steps depend
        for number, node in enumerate(self.graph.nodes):
            deciders = [space.decides[name] for name in (*node.inputs, *node.outputs)]
            self.depends.append(tuple(dict.fromkeys([space.operator_of[number], *deciders])))

    def seconds(self, choice: Sequence[int]) -> float:
        """Of the step under one configuration, by number, for each operator: the makespan, an estimate."""
        pieces = [self.piece(number, tuple(choice)) for number in range(len(self.graph.nodes))]
        if not pieces:
            return 0.0
        computed, scattered = self.computed(pieces)
        steps = tuple(step for piece in pieces for step in piece.program.steps)
        if self.overlap != Overlap():
            # Where buffers lie is not asked for: the pieces know what depends on it.
            program = Program(self.graph, pieces[0].program.strategy, steps, {}, {})
            steps = tuple(_Windows(program, self.overlap, pieces).steps())
        before, after = [], []
        for step in steps:
            if isinstance(step, ComputeStep):
                first, last = computed[step.node].ticks, self.nothing
            elif isinstance(step, StartStep):
                first, last = self.work(step.transfer, scattered)[0], self.nothing
            else:
                assert isinstance(step, TransferStep)
                first, last = self.work(step, scattered)
            before.append(first)
            after.append(last)
        graph = TaskGraph(self.store, len(steps))
        graph.order = graph.add(steps, self.items, np.array(before), np.array(after), range(len(steps)), {})
        return Room(graph).simulate_all() / TICKS_PER_SECOND

    def piece(self, number: int, choice: tuple[int, ...]) -> _Piece:
        key = (number, *(choice[operator] for operator in self.depends[number]))
        found = self.pieces.get(key)
        if found is None:
            found = self.pieces[key] = self.new_piece(number, choice)
        return found

    def new_piece(self, number: int, choice: tuple[int, ...]) -> _Piece:
        program = self.lowering.program(number, choice)
        (compute,) = (step for step in program.steps if isinstance(step, ComputeStep))
        node = self.graph.nodes[number]
        return _Piece(
            program,
            compute,
            tuple(part.buffer == name for part, name in zip(compute.reads, node.inputs, strict=True)),
            tuple(buffer != name for buffer, name in zip(compute.writes, node.outputs, strict=True)),
            works(program, compute),
            {id(step): not is_local(self.mesh, step.before, step.after) for step in program.transfers},
        )

    def computed(self, pieces: Sequence[_Piece]) -> tuple[list[_Computed], set[str]]:
        """Of each node what it takes; and the buffers that do not lie in one run of memory."""
        strides: dict[str, Strides] = {}  # of values; without those that lie in one run
        scattered: set[str] = set()
        found = []
        for node, piece in zip(self.graph.nodes, pieces, strict=True):
            orders = tuple(
                strides.get(name) if direct else None for name, direct in zip(node.inputs, piece.direct, strict=True)
            )
            done = piece.known.get(orders)
            if done is None:
                done = piece.known[orders] = self.compute(piece, orders)
            found.append(done)
            for name, order, write, stored in zip(
                node.outputs, done.strides, piece.compute.writes, piece.stored, strict=True
            ):
                if order is not None:
                    scattered.add(write)
                    if not stored:
                        strides[name] = order
        return found, scattered

    def compute(self, piece: _Piece, orders: tuple[Strides | None, ...]) -> _Computed:
        """What a node takes where the values that it reads lie in memory in these orders, None for one run."""
        collector = Collector(piece.program)
        for part, order in zip(piece.compute.reads, orders, strict=True):
            collector.contiguous(part.buffer)
            if order is not None:
                collector.strides[part.buffer] = order
        row = collector.row(piece.compute)
        collector.made(piece.compute)
        seconds = np.zeros(self.mesh.devices)
        if collector.calls:
            each = self.roofline.seconds([call.work for call in collector.calls])
            seconds = np.where(row == NOTHING, 0.0, each[row])
        writes = piece.compute.writes
        return _Computed(
            ticks(seconds),
            tuple(None if collector.form(buffer) is None else collector.strides[buffer] for buffer in writes),
        )

    def work(self, step: TransferStep, scattered: set[str]) -> tuple[Ticks, Ticks]:
        """Ticks of each device before and after a transfer's messages."""
        key = (id(step), step.source in scattered)
        found = self.moved.get(key)
        if found is None:
            before, after = self.copies.priced(step, key[1])
            found = self.moved[key] = ticks(before), ticks(after)
        return found
