"""The simulated step of any strategy, composed of pieces that are lowered and priced once.

Simulating one strategy by itself lowers every node, compiles it to calls and prices these; of repeated layers, and of
strategies that share most choices, most of this is the same. Here a *piece* is the steps of a node under its division
and the layouts of what it reads and makes; nodes of equal description share it. A *variant* of a piece is priced: for
each order in which its inputs may lie in memory. What depends on the whole program is done anew for each strategy by
compiled loops: windows of overlap (those of `girih.program.overlap`), the rows of the task graph, and the simulation.
So the seconds are those of `girih.simulate.simulate` to the last bit (a test holds it).

Cost: for each strategy about two microseconds for each node in Python, and the simulation; for each different piece
what lowering and pricing take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from girih.cost.calls import Call
from girih.cost.device_calls import CallCollector, Numbers, WorkCollector
from girih.cost.prices import Seconds
from girih.cost.pricing import Pricing, TransferWork
from girih.cost.work import Work
from girih.graph import Graph
from girih.layout import Placements, Transfers, reducer_of
from girih.machine import Machine
from girih.ops.known import descriptions
from girih.partition import Strategy
from girih.program import ComputeStep, Overlap, Program, TransferStep
from girih.program.exchange import is_local
from girih.program.lower import Lowering
from girih.program.overlap import works
from girih.simulate.columns import Column, Staged
from girih.simulate.kernels.workspace import Workspace
from girih.simulate.ports import ports_of
from girih.simulate.tasks import PatternStore, TaskGraph, resolution_for
from girih.simulate.ticks import TICKS_PER_SECOND, ticks

if TYPE_CHECKING:
    from girih.simulate.kernels.composed import Nodes, Variants

Strides = tuple[int, ...]
Orders = tuple[Strides | bool | None, ...]


@dataclass(frozen=True, eq=False)
class _Piece:
    """The steps of one node under its division and the layouts around it, in the order of lowering.

    possible: is there such a program? program: of these steps alone. direct: of each input, is it read where its value
    lies? stored: of each output, is it brought to where its value lies? known: variants by the strides of the values
    that are read directly (None: in one run of memory), and by whether those that are fetched lie in one run (None) or
    not (True).
    """

    possible: bool
    program: Program
    compute: ComputeStep
    direct: tuple[bool, ...]
    stored: tuple[bool, ...]
    known: dict[Orders, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Own:
    """A node's own work, not yet priced: different calls, or their work where nothing was measured, and which of them
    each device does."""

    calls: tuple[Call | Work, ...]
    numbers: Numbers


class _NodeLowering(Lowering):
    """Lowers single nodes."""

    def __init__(self, graph: Graph, transfers: Transfers) -> None:
        self.graph, self.transfers = graph, transfers

    def program(self, number: int, strategy: Strategy) -> Program:
        self.strategy = strategy
        self.steps, self.places, self.value_of = [], {}, {}
        for name in self.graph.nodes[number].inputs:
            self.buffer(name, name, self.lies(name))
        self.node(number)
        return Program(self.graph, strategy, tuple(self.steps), self.places, self.value_of)


class Composer:
    """Simulates strategies of a graph on a machine.

    pricing: of this machine; `simulated`: the machine whose ports messages occupy, where it is another (of calibrated
    machines, `Profile.simulated`).
    """

    def __init__(
        self,
        graph: Graph,
        machine: Machine,
        transfers: Transfers,
        overlap: Overlap,
        pricing: Pricing | None = None,
        simulated: Machine | None = None,
    ) -> None:
        self.graph, self.mesh, self.overlap = graph, machine.mesh, overlap
        self.pricing = pricing or Pricing(machine)
        self.store = PatternStore(self.mesh, ports_of(simulated or machine), resolution_for(self.mesh.devices))
        self.lowering = _NodeLowering(graph, transfers)
        self.pieces: dict[object, _Piece] = {}
        self.strides: list[tuple[Strides | None, ...] | None] = []  # of what a variant writes; None: all in one run
        nothing = Program(graph, Strategy(self.mesh, (), {}), (), {}, {})
        self.moving = TransferWork(nothing, frozenset(), self.pricing.copies)
        self.kind = [  # descriptions are known by identity: they live as long as the graph
            number if description is None else len(graph.nodes) + id(description)
            for number, description in enumerate(descriptions(graph))
        ]
        self.work = Column(np.int64, width=(self.mesh.devices,))
        self.work.extend(np.zeros((1, self.mesh.devices), np.int64))
        self.waiting: list[Seconds | _Own] = []  # the next rows of `work`, priced together before they are used
        self.transfers: dict[int, tuple[int, int]] = {}  # rows of `work`, by the identity of what `moving` knows
        self.remote: dict[int, bool] = {}  # by pattern, does it exchange anything?
        self.columns = {
            **{name: Staged(np.int64) for name in ("compute", "read", "port", "pattern", "before", "after")},
            **{name: Staged(np.uint8) for name in ("works", "stored", "remote")},
            **{name: Staged(np.int64, 0) for name in ("read_from", "stored_from", "move_from", "hop_from")},
        }
        self.nodes = nodes_of(graph)

    def seconds(self, strategy: Strategy) -> float:
        """The makespan of the step under a strategy, an estimate. Infinite for one that no program does, because
        partial sums are wanted of what is whole, or of what is not a sum."""
        chosen = self.variants(strategy)
        return float("inf") if chosen is None else self.makespan(chosen, self.nodes)

    def makespan(self, chosen: Sequence[int], nodes: Nodes) -> float:
        """The same of the variants of nodes, in any order in which they can be computed (`nodes_of`)."""
        from girih.simulate.kernels import composed as loops

        if not chosen:
            return 0.0
        if self.waiting:
            self._settle()
        table, does, exchange, before, after = loops.written(nodes, self._table(), np.asarray(chosen, np.int64))
        work = self.work.array[: self.work.size]
        kind, pattern, partner, before, after = loops.rows(
            table, does, nodes.entering, self.overlap.fetch, self.overlap.store,
            self.store.columns["task_at"].array, exchange, before, after, work.any(axis=1),
        )  # fmt: skip
        graph = TaskGraph.of(self.store, kind, pattern, partner, work[before], work[after])
        return Workspace(graph).simulate_all() / TICKS_PER_SECOND

    def _table(self) -> Variants:
        from girih.simulate.kernels.composed import Variants

        return Variants(**{name: column.array for name, column in self.columns.items()})

    def variants(self, strategy: Strategy) -> list[int] | None:
        """The number of each node's variant; None if a node's steps are impossible."""
        strides: dict[str, Strides] = {}  # of values; without those that lie in one run
        layouts, divisions = strategy.layouts, strategy.divisions
        numbers = []
        for number, node in enumerate(self.graph.nodes):
            key = (
                self.kind[number],
                divisions[number],
                *[layouts[name] for name in node.inputs],
                *[layouts[name] for name in node.outputs],
            )
            piece = self.pieces.get(key)
            if piece is None:
                piece = self.pieces[key] = self.new_piece(number, strategy)
            if not piece.possible:
                return None
            orders: Orders = ()
            if strides and not strides.keys().isdisjoint(node.inputs):
                known = [strides.get(name) for name in node.inputs]
                orders = tuple(
                    order if direct or order is None else True
                    for order, direct in zip(known, piece.direct, strict=True)
                )
            variant = piece.known.get(orders)
            if variant is None:
                variant = piece.known[orders] = self.new_variant(piece, orders or (None,) * len(piece.direct))
            numbers.append(variant)
            if (lying := self.strides[variant]) is not None:
                for name, order, stored in zip(node.outputs, lying, piece.stored, strict=True):
                    if order is not None and not stored:
                        strides[name] = order
        return numbers

    def new_piece(self, number: int, strategy: Strategy) -> _Piece:
        program = self.lowering.program(number, strategy)
        (compute,) = (step for step in program.steps if isinstance(step, ComputeStep))
        node = self.graph.nodes[number]
        return _Piece(
            all(self.possible(step) for step in program.transfers),
            program,
            compute,
            tuple(part.buffer == name for part, name in zip(compute.reads, node.inputs, strict=True)),
            tuple(buffer != name for buffer, name in zip(compute.writes, node.outputs, strict=True)),
        )

    def possible(self, step: TransferStep) -> bool:
        """Are no partial results wanted that the source has not, nor of what is combined otherwise?"""
        if (reducer := reducer_of(step.after.partial)) is None:
            return True
        ends = Placements.single(step.before), Placements.single(step.after)
        item = self.graph.values[step.value].item_bytes
        return step.reducer == reducer and bool(np.isfinite(self.lowering.transfers.direct(*ends, item)[0, 0]))

    def new_variant(self, piece: _Piece, orders: Orders) -> int:
        """Price a piece whose inputs lie in memory in these orders; the number under which the columns have it."""
        own, written = self.computed(piece, orders)
        inputs = self.graph.nodes[piece.compute.node].inputs
        reads, writes = [part.buffer for part in piece.compute.reads], piece.compute.writes
        scattered = {
            name for name, order in (*zip(inputs, orders, strict=True), *zip(writes, written, strict=True)) if order
        }
        self._append("compute", self._row(own))
        self._append("works", works(piece.program, piece.compute))
        self._append("read", *np.flatnonzero(piece.direct).tolist())
        self._append("stored", *piece.stored)
        for move in _moves(piece.program.transfers):
            store = move[0].purpose == "store"
            self._append("port", ~writes.index(move[0].source) if store else reads.index(move[-1].target))
            for step in move:
                item = self.graph.values[step.value].item_bytes
                pattern = self.store.number(step.before, step.after, item)
                if pattern not in self.remote:
                    self.remote[pattern] = not is_local(self.mesh, step.before, step.after)
                self._append("remote", self.remote[pattern])
                self._append("pattern", pattern)
                priced = self.moving.priced(step, step.source in scattered)
                if id(priced) not in self.transfers:
                    self.transfers[id(priced)] = self._row(priced[0]), self._row(priced[1])
                before, after = self.transfers[id(priced)]
                self._append("before", before)
                self._append("after", after)
            self._append("hop_from", self.columns["remote"].size)
        for name, of in (("read_from", "read"), ("stored_from", "stored"), ("move_from", "port")):
            self._append(name, self.columns[of].size)
        self.strides.append(written if any(written) else None)
        return len(self.strides) - 1

    def _append(self, name: str, *entries: int) -> None:
        self.columns[name].fresh += entries

    def _row(self, work: Seconds | _Own) -> int:
        """The row of `work` that will be this."""
        self.waiting.append(work)
        return self.work.size + len(self.waiting) - 1

    def _settle(self) -> None:
        """Price what waits: many calls take hardly longer than one."""
        calls = [call for item in self.waiting if isinstance(item, _Own) for call in item.calls]
        each = self.pricing.of(calls)
        rows = np.zeros((len(self.waiting), self.mesh.devices))
        begin = 0
        for row, item in zip(rows, self.waiting, strict=True):
            if not isinstance(item, _Own):
                row[:] = item
            elif item.calls:
                row[:] = self.pricing.on_devices(each[begin : begin + len(item.calls)], item.numbers)
                begin += len(item.calls)
        self.work.extend(ticks(rows))
        self.waiting.clear()

    def computed(self, piece: _Piece, orders: Orders) -> tuple[_Own, tuple[Strides | None, ...]]:
        """A node's own work on each device, and the strides of what it writes, None for one run."""
        collector: CallCollector | WorkCollector
        collector = (CallCollector if self.pricing.known else WorkCollector)(piece.program)
        for part, order, direct in zip(piece.compute.reads, orders, piece.direct, strict=True):
            collector.contiguous(part.buffer)
            if direct and isinstance(order, tuple):
                collector.strides[part.buffer] = order
        row = collector.row(piece.compute)
        collector.made(piece.compute)
        writes = piece.compute.writes
        return _Own(tuple(collector.calls), row), tuple(
            None if collector.form(name) is None else collector.strides[name] for name in writes
        )


def nodes_of(graph: Graph) -> Nodes:
    """What the nodes read and make, in their order; equal numbers of values in graphs that differ in that alone."""
    from girih.simulate.kernels.composed import Nodes

    numbers = {name: number for number, name in enumerate(graph.values)}

    def listed(every: list[tuple[str, ...]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        starts = np.cumsum([0, *map(len, every)]).astype(np.int64)
        return starts, np.asarray([numbers[name] for names in every for name in names], np.int64)

    read_from, reads = listed([node.inputs for node in graph.nodes])
    write_from, writes = listed([node.outputs for node in graph.nodes])
    entering = np.asarray([numbers[item.name] for item in graph.inputs], np.int64)
    return Nodes(read_from, reads, write_from, writes, entering, len(numbers))


def _moves(transfers: Sequence[TransferStep]) -> list[list[TransferStep]]:
    """Routes: transfers of one purpose of which each goes on from the one before."""
    moves: list[list[TransferStep]] = []
    for step in transfers:
        if moves and moves[-1][-1].target == step.source and moves[-1][-1].purpose == step.purpose:
            moves[-1].append(step)
        else:
            moves.append([step])
    return moves
