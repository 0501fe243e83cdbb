"""Overlap: exchanges begin before, and end after, the places where lowering has put them.

FlexFlow (§3.4) lets transfers run beside computation: a transfer is a task of its own, on the link. Tofu (§6) issues
remote fetches as late as it can, so that remote data does not wait in memory. Here a window of a few compute steps
reconciles the two: a fetch starts at most `fetch` compute steps before its use, and a store (the reduce-scatter of a
gradient) finishes at most `store` compute steps after its production. Only compute steps that do work are counted:
views take no time. What this costs in memory is told by `girih.lower.memory`, exactly.

- Compute steps keep their order, and are what everything else is placed between.
- A store finishes before its target is first read. If a fetch reads it, that fetch keeps its own window, or half of
  the steps between where there are too few.
- A route of several hops shares the window among its hops: each starts when the one before has finished.
- At one place, what is needed at once and stays whole goes first, so that its messages do not queue behind later ones;
  then exchanges start, the one that is needed first before the others; then others are waited for.
- What moves nothing between devices, and what has no work to run beside, stays whole.

All devices share the list of steps, so all start their exchanges in one order: messages between two devices keep
matching without tags, and nobody waits for a message whose sender waits for him. Cost: O(steps · log steps).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from girih.lower.exchange import is_local
from girih.lower.liveness import free_early, lasting
from girih.lower.program import ComputeStep, Program, StartStep, Step, TransferStep
from girih.ops import description_of


@dataclass(frozen=True)
class Overlap:
    """How far an exchange may reach over computation, in compute steps that do work; 0: not at all.

    fetch: how far before its use a fetch may start. store: how far behind its production a store may finish.

    Raises:
        ValueError: a window is negative.
    """

    fetch: int = 0
    store: int = 0

    def __post_init__(self) -> None:
        if self.fetch < 0 or self.store < 0:
            raise ValueError(f"a window of overlap is a number of compute steps from 0, got {self}")


def overlapped(program: Program, options: Overlap) -> Program:
    """The same program with exchanges that overlap with computation. The bytes that are moved stay the same.

    Raises:
        ValueError: the program's exchanges overlap already.
    """
    if any(isinstance(step, StartStep) for step in program.steps):
        raise ValueError("this program's exchanges overlap already: start from the program that `lower` makes")
    if options == Overlap():
        return program
    steps = Windows(program, options).steps()
    return replace(program, steps=tuple(free_early(steps, lasting(program.graph))))


def works(program: Program, step: ComputeStep) -> bool:
    """Does any device compute something: not a view, and not only empty pieces?"""
    description = description_of(program.graph, program.graph.nodes[step.node])
    if description is not None and description.operator.view and len(step.reads) == 1:
        return False
    regions = [program.places[buffer].regions for buffer in step.writes]
    return any(bool((part[..., 0] < part[..., 1]).all(axis=-1).any()) for part in regions)


@dataclass(frozen=True)
class _Move:
    """The hops of one route, as numbers of transfers. slot: where lowering has put them."""

    hops: tuple[int, ...]
    slot: int


class Windows:
    """Finds for each transfer the slots in which it starts and finishes. Slot k lies before the k-th compute step.

    work: how many compute steps before each slot do work. begin, end: the slots of each transfer.
    """

    def __init__(self, program: Program, options: Overlap) -> None:
        self.program = program
        self.options = options
        self.computes = [step for step in program.steps if isinstance(step, ComputeStep)]
        self.transfers = program.transfers
        self.remote = [self.is_remote(step) for step in self.transfers]
        self.work = [0]
        for step in self.computes:
            self.work.append(self.work[-1] + self.works(step))
        self.moves = _moves(program.steps)
        self.begin = [0] * len(self.transfers)
        self.end = [0] * len(self.transfers)

    def is_remote(self, step: TransferStep) -> bool:
        return not is_local(self.program.mesh, step.before, step.after)

    def works(self, step: ComputeStep) -> bool:
        return works(self.program, step)

    def steps(self) -> list[Step]:
        stores = [move for move in self.moves if self.transfers[move.hops[0]].purpose == "store"]
        fetches = [move for move in self.moves if self.transfers[move.hops[0]].purpose == "fetch"]
        ready = {item.name: 0 for item in self.program.graph.inputs}
        ready.update((buffer, slot) for slot, step in enumerate(self.computes, start=1) for buffer in step.writes)
        deadlines = self.deadlines(fetches)
        for move in stores:
            ready[self.transfers[move.hops[-1]].target] = self.store(move, deadlines)
        for move in fetches:
            self.fetch(move, ready[self.transfers[move.hops[0]].source])
        return self.ordered()

    def deadlines(self, fetches: Sequence[_Move]) -> dict[str, list[tuple[int, int]]]:
        """For each buffer the slots in which it is read, each with the window that the reader itself would have."""
        found: dict[str, list[tuple[int, int]]] = {}
        for slot, step in enumerate(self.computes):
            for part in step.reads:
                found.setdefault(part.buffer, []).append((slot, 0))
        for move in fetches:
            window = self.options.fetch if any(self.remote[hop] for hop in move.hops) else 0
            found.setdefault(self.transfers[move.hops[0]].source, []).append((move.slot, window))
        return found

    def store(self, move: _Move, deadlines: dict[str, list[tuple[int, int]]]) -> int:
        """Start as soon as the value is made, finish late; the slot of the finish."""
        slot, work = move.slot, self.work
        last = bisect_left(work, work[slot] + self.options.store, slot, len(work) - 1)
        for use, window in deadlines.get(self.transfers[move.hops[-1]].target, ()):
            wanted = work[use] - min(window, (work[use] - work[slot]) // 2)
            last = min(last, max(slot, bisect_right(work, wanted, slot, use + 1) - 1))
        for count, hop in enumerate(move.hops):
            share = -(-(work[last] - work[slot]) // (len(move.hops) - count))
            finish = bisect_left(work, work[slot] + share, slot, last) if self.remote[hop] else slot
            if work[finish] == work[slot]:
                finish = slot
            self.begin[hop], self.end[hop] = slot, finish
            slot = finish
        return slot

    def fetch(self, move: _Move, ready: int) -> None:
        """Finish right before the use, start early."""
        slot, work = move.slot, self.work
        first = max(ready, bisect_right(work, work[slot] - self.options.fetch, 0, slot + 1) - 1)
        for count, hop in zip(range(len(move.hops), 0, -1), reversed(move.hops), strict=True):
            share = -(-(work[slot] - work[first]) // count)
            start = bisect_right(work, work[slot] - share, first, slot + 1) - 1 if self.remote[hop] else slot
            if work[start] == work[slot]:
                start = slot
            self.begin[hop], self.end[hop] = start, slot
            slot = start

    def ordered(self) -> list[Step]:
        """All steps, in the order of slots."""
        starts: list[list[int]] = [[] for _ in self.work]
        waits: list[list[int]] = [[] for _ in self.work]
        for number, (begin, end) in enumerate(zip(self.begin, self.end, strict=True)):
            waits[end].append(number)
            if begin < end:
                starts[begin].append(number)
        made = {item.name for item in self.program.graph.inputs}
        result: list[Step] = []
        for slot, (starting, waiting) in enumerate(zip(starts, waits, strict=True)):
            starting.sort(key=lambda number: (self.end[number], number))
            whole = [place for place, number in enumerate(waiting, start=1) if self.whole(number)]
            for place, number in enumerate(waiting):
                if place >= max(whole, default=0):
                    starting = self.start(starting, made, result)
                result.append(self.transfers[number])
                made.add(self.transfers[number].target)
            assert not self.start(starting, made, result), "a source is made after its exchange starts"
            if slot < len(self.computes):
                result.append(self.computes[slot])
                made.update(self.computes[slot].writes)
        return result

    def whole(self, number: int) -> bool:
        """Is it an exchange with others that is not split?"""
        return self.remote[number] and self.begin[number] == self.end[number]

    def start(self, numbers: list[int], made: set[str], result: list[Step]) -> list[int]:
        """Start those transfers whose sources are made; the others."""
        result.extend(StartStep(self.transfers[number]) for number in numbers if self.transfers[number].source in made)
        return [number for number in numbers if self.transfers[number].source not in made]


def _moves(steps: Sequence[Step]) -> list[_Move]:
    """The routes of a program without overlap: transfers of one purpose of which each goes on from the one before."""
    found: list[_Move] = []
    slot, before = 0, None
    number = 0
    for step in steps:
        if isinstance(step, ComputeStep):
            slot, before = slot + 1, None
        elif isinstance(step, TransferStep):
            if before is not None and before.target == step.source and before.purpose == step.purpose:
                found[-1] = _Move((*found[-1].hops, number), slot)
            else:
                found.append(_Move((number,), slot))
            before = step
            number += 1
    return found
