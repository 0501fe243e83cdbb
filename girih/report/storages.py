"""Who holds what on a device, and when: storages over one step, what is copied out and in, and the bytes in use.

Time is counted in operators, in the device's order: what is true "in operator i" lies between the end of operator i - 1
and the end of operator i; the last entry is what comes behind all of them. All of it follows from the same walk as the
accounts of memory, so that the curve's highest point is the plan's peak.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from girih.ops.scratch import ScratchSource
from girih.plans.scratch import notes_of
from girih.program import BlockStep, ComputeStep, FreeStep, MoveStep, Program, StartStep
from girih.program.life.accounts import Tracker, begun, host_bytes, live_bytes
from girih.program.life.strides import Shape
from girih.program.steps import Step
from girih.report.page.holdings import what_is

if TYPE_CHECKING:
    from girih.plans.plan import Plan

Span = tuple[int, int]
"""The first and the last operator in which something is true; -1 is before the first operator."""


@dataclass(frozen=True)
class StorageMove:
    """A copy between the device and the large memory: its bytes, and from which operator to which it is under way."""

    out: bool
    bytes: int
    span: Span


@dataclass(frozen=True)
class StorageOverTime:
    """A run of memory, with all its stays on the device: what comes back, or is computed again, is the same.

    name: of the buffer that it was made for. what: that holds, in words. stays: when it lies on the device; moves: in
    the order in which they begin; away: when it lies in the large memory and not on the device.
    """

    name: str
    bytes: int
    what: str
    stays: tuple[Span, ...]
    moves: tuple[StorageMove, ...] = ()
    away: tuple[Span, ...] = ()


@dataclass(frozen=True, eq=False)
class DeviceMemory:
    """One device over one step. operators: names of the nodes that it computes, in order. used: bytes in use in each of
    them, and behind the last: [operators + 1]. storages: the largest first. host: the most bytes that the device has in
    the large memory at any time; home: of these, what lies there between two steps."""

    device: int
    operators: tuple[str, ...]
    used: NDArray[np.int64]
    storages: tuple[StorageOverTime, ...]
    host: int
    home: int

    @property
    def peak(self) -> int:
        return int(self.used.max())

    def moved(self, out: bool) -> tuple[int, int]:
        """(bytes, copies) of one step in one direction."""
        sizes = [move.bytes for storage in self.storages for move in storage.moves if move.out == out]
        return sum(sizes), len(sizes)

    def at(self, operator: int) -> str:
        """The name of an operator, by its number."""
        return self.operators[operator] if operator < len(self.operators) else "the end"


def device_memory(plan: Plan, device: int = 0) -> DeviceMemory:
    """What one device of a plan holds over one step. Cost: linear in its steps, and in storages times their stays."""
    program = plan.program
    notes = notes_of(program, plan.machine, plan.scratch)
    positions = program.order_of(device)
    computing = [at for at in positions if isinstance(program.steps[at], ComputeStep | BlockStep)]
    live = live_bytes(program, device, notes.threads, notes)
    edges = [0, *(at + 2 for at in computing), len(live)]  # the first entry is before the first step
    used = np.asarray([live[low:high].max() if low < high else 0 for low, high in pairwise(edges)])
    names = tuple(plan.graph.nodes[program.steps[at].node].name for at in computing)
    storages = _storages(program, device, computing, notes.threads, notes)
    home = sum(_bytes(program, item.name, device) for item in program.graph.state_inputs if item.name in program.host)
    return DeviceMemory(device, names, used, storages, host_bytes(program, device), home)


class _Recorder(Tracker):
    """The walk of the accounts, which notes when each storage is made and let go: [name, bytes, first, last step].

    written_over: storages whose memory the result of their last step takes over.
    """

    def __init__(self, program: Program, device: int, threads: int, scratch: ScratchSource) -> None:
        super().__init__(program, device, threads, scratch)
        self.position = -1
        self.lives: dict[int, tuple[str, int, int, int | None]] = {}
        self.written_over: set[int] = set()

    def storage(self, name: str, size: int) -> int:
        number = super().storage(name, size)
        self.lives[number] = (name, size, self.position, None)
        return number

    def take(self, step: ComputeStep, strides: Shape | None) -> int | None:
        taken = super().take(step, strides)
        if taken is not None:
            self.written_over.add(taken)
        return taken

    def release(self, storage: int) -> None:
        super().release(storage)
        if storage not in self.sizes:
            self.lives[storage] = (*self.lives[storage][:3], self.position)


def _storages(
    program: Program, device: int, computing: list[int], threads: int, scratch: ScratchSource
) -> tuple[StorageOverTime, ...]:
    recorder = begun(program, device, threads, scratch, _Recorder)
    for position in program.order_of(device):
        recorder.position = position
        recorder.step(program.steps[position])
    end = len(computing)

    def begins(position: int) -> int:
        return bisect_left(computing, position) if position >= 0 else -1

    def ends(position: int, first: int) -> int:  # a free stands behind the operator whose input it was
        return max(first, bisect_left(computing, position) - isinstance(program.steps[position], FreeStep | MoveStep))

    stays: dict[str, list[Span]] = defaultdict(list)
    sizes: dict[str, int] = {}
    for number, (name, size, made, let_go) in recorder.lives.items():
        if size == 0:
            continue
        own = _own_name(program, name)
        first = begins(made)
        last = end if let_go is None else ends(let_go, first)
        stays[own].append((first, max(first, last - (number in recorder.written_over))))
        sizes[own] = max(size, sizes.get(own, 0))
    moves = _moves(program, device, begins)
    state = {name for pair in program.graph.updates.items() for name in pair} & program.host
    storages = []
    for name, spans in stays.items():
        item = StorageOverTime(name, sizes[name], _what(program, name), tuple(sorted(spans)), moves.get(name, ()))
        storages.append(replace(item, away=_away(item, name in state, name in program.graph.updates, end)))
    return tuple(sorted(storages, key=lambda item: (-item.bytes, item.stays)))


def _bytes(program: Program, buffer: str, device: int) -> int:
    shape = program.part_shape(buffer, program.places[buffer], device)
    return prod(shape) * program.graph.values[program.value_of[buffer]].item_bytes


def _own_name(program: Program, buffer: str) -> str:
    """The buffer's name before it came back (`x^1`), or was computed again (`x~1`)."""
    value = program.value_of.get(buffer)
    return value if value is not None and buffer.startswith((f"{value}^", f"{value}~")) else buffer


def _what(program: Program, name: str) -> str:
    graph = program.graph
    replaced = {new: old for old, new in graph.updates.items()}
    return f"new {replaced[name]}" if name in replaced else what_is(program, name)


def _moves(program: Program, device: int, operator: Callable[[int], int]) -> dict[str, tuple[StorageMove, ...]]:
    moves: dict[str, list[StorageMove]] = defaultdict(list)
    started: dict[str, int] = {}
    for position in program.order_of(device):
        step: Step = program.steps[position]
        if isinstance(step, StartStep) and isinstance(step.transfer, MoveStep):
            started[step.transfer.target] = position
        elif isinstance(step, MoveStep):
            first = operator(started.get(step.target, position))
            span = (first, max(first, operator(position) - 1))
            size = _bytes(program, step.source, device)
            moves[_own_name(program, step.source)].append(StorageMove(step.out, size, span))
    return {name: tuple(sorted(items, key=lambda move: move.span)) for name, items in moves.items()}


def _away(storage: StorageOverTime, state: bool, old: bool, end: int) -> tuple[Span, ...]:
    """When a storage lies in the large memory alone. state: it lies there between steps, as the old one or the new."""
    copies_in = [move.span[0] for move in storage.moves if not move.out]
    copies_out = [move.span[1] + 1 for move in storage.moves if move.out]
    if state:
        there = (0, max(copies_in, default=end)) if old else (min(copies_out, default=0), end)
    elif copies_out:
        there = (min(copies_out), max(copies_in, default=end))
    else:
        return ()
    gaps, at = [], there[0]
    for first, last in storage.stays:
        if at < first:
            gaps.append((at, min(first - 1, there[1])))
        at = max(at, last + 1)
    if at <= there[1]:
        gaps.append((at, there[1]))
    return tuple(gap for gap in gaps if gap[0] <= gap[1])
