"""Full and delta simulation of a program (FlexFlow §3.4.2, §3.4.3).

A `Simulator` keeps a program's task graph and its schedule. `propose` replaces the tasks of some steps and simulates
what differs; `accept` keeps that, and a further `propose` forgets it. The result is that of a full simulation of the
changed program, to the last bit (`girih.simulate.kernels.schedule` says why, a test holds it).

Where we differ from FlexFlow: its delta simulation follows each changed task to its successors; ours re-simulates from
the earliest time at which anything can differ until the state of all devices and ports is the earlier one, moved in
time by one constant, and moves the rest as a whole. So a change that makes the step longer need not touch every task
behind it. Cost of a proposal: building the new rows, O(rows) bookkeeping, and the tasks that are re-simulated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from girih.cost.prices import Prices
from girih.machine import Machine
from girih.program import Program, Step
from girih.simulate.kernels.workspace import Workspace
from girih.simulate.patterns import Resolution
from girih.simulate.spans import Schedule
from girih.simulate.tasks import NO_ROW, POSTS, WAITS, build, items_of
from girih.simulate.ticks import TICKS_PER_SECOND, Ticks, ticks


@dataclass(frozen=True)
class Segment:
    """Steps that follow each other, with their prices [steps, devices]."""

    steps: tuple[Step, ...]
    prices: Prices


class Simulator:
    """A program with its schedule, and at most one proposal to change it.

    The program's steps are divided into blocks, which proposals replace as a whole; a block may become longer, shorter
    or empty, and keeps its number. blocks: the position of the first step of each block, from 0 on; by default each
    step is one. Frees take no time and need not be given anew. The patterns of all exchanges that were ever proposed
    are kept: they are few, where layers repeat.
    """

    def __init__(
        self,
        program: Program,
        machine: Machine,
        prices: Prices,
        *,
        resolution: Resolution | None = None,
        blocks: Sequence[int] | None = None,
    ) -> None:
        self.graph = build(program, prices, machine, resolution)
        self.item_bytes = items_of(program.graph)
        starts = np.arange(len(program.steps)) if blocks is None else np.asarray(blocks, np.int64)
        if len(starts) and (starts[0] != 0 or (np.diff(starts) < 0).any() or starts[-1] > len(program.steps)):
            raise ValueError("blocks are positions of steps: ascending, from 0")
        first = np.searchsorted(self.graph.step.array[self.graph.order], starts)
        self.offsets: NDArray[np.int64] = np.append(first, len(self.graph.order))
        workspace = Workspace(self.graph)
        self.makespan = workspace.simulate_all()
        self.effort = workspace.effort
        self.past = workspace.as_past()
        self.workspace: Workspace | None = None
        self.proposal: _Proposal | None = None

    @property
    def seconds(self) -> float:
        """The makespan of the schedule that is kept."""
        return self.makespan / TICKS_PER_SECOND

    def propose(self, changes: Mapping[int, Segment]) -> float:
        """The makespan in seconds with other steps in some blocks, by their numbers.

        Raises:
            ValueError: there is no such block; prices are not of its steps; or of a transfer that is started in one
                block and finished in another, one block is changed and the other is not.
        """
        self.forget()
        order = self.graph.order
        numbers = sorted(changes)
        if numbers and not 0 <= numbers[0] <= numbers[-1] < len(self.offsets) - 1:
            raise ValueError(f"blocks {numbers}: there are {len(self.offsets) - 1}, counted from 0")
        gone = [order[self.offsets[number] : self.offsets[number + 1]] for number in numbers]
        links = self.links(numbers, gone)
        priced = [(changes[number].steps, *self.ticks_of(changes[number])) for number in numbers]
        started: dict[str, int] = {}
        new = [
            self.graph.add(steps, self.item_bytes, before, after, [NO_ROW] * len(steps), started)
            for steps, before, after in priced
        ]
        proposal = self.proposal = _Proposal.of(order, self.offsets, numbers, gone, new)
        if any(row >= 0 for row in started.values()):
            self.forget()
            raise ValueError(f"the transfers of {', '.join(sorted(started))} are started and never finished")
        regions = proposal.regions(numbers, [*links, *self.links(numbers, new)])
        if self.workspace is None or not self.workspace.fits(self.graph):
            self.workspace = Workspace(self.graph)
            self.past = self.workspace.grown(self.past)
        self.workspace.fresh[proposal.made] = 1
        proposal.makespan = self.workspace.simulate(proposal.order, regions, self.past)
        self.effort = self.workspace.effort
        return proposal.makespan / TICKS_PER_SECOND

    def accept(self) -> None:
        """Keep what was proposed last.

        Raises:
            ValueError: there is no proposal.
        """
        if self.proposal is None or self.workspace is None:
            raise ValueError("there is no proposal to accept")
        proposal, self.proposal = self.proposal, None
        self.workspace.commit(proposal.order, self.past)
        self.graph.remove(proposal.gone)
        self.graph.order, self.offsets, self.makespan = proposal.order, proposal.offsets, proposal.makespan

    def forget(self) -> None:
        """Leave the schedule as it is."""
        if self.proposal is not None:
            self.graph.remove(self.proposal.made)
            if self.workspace is not None:
                self.workspace.fresh[self.proposal.made] = 0
            self.proposal = None

    def ticks_of(self, block: Segment) -> tuple[Ticks, Ticks]:
        before, after = ticks(block.prices.before), ticks(block.prices.after)
        expected = (len(block.steps), self.graph.devices)
        if before.shape != expected or after.shape != expected:
            raise ValueError(f"a block of {len(block.steps)} steps has prices of shape {before.shape}, not {expected}")
        return before, after

    def links(self, numbers: Sequence[int], blocks: Sequence[NDArray[np.int32]]) -> list[tuple[int, int]]:
        """Pairs of blocks of which one starts what the other finishes."""
        kind, partner = self.graph.columns["kind"].array, self.graph.columns["partner"].array
        block_of: dict[int, int] = {}
        for number, rows in zip(numbers, blocks, strict=True):
            parts = rows[(kind[rows] == POSTS) | (kind[rows] == WAITS)]
            block_of.update((row, number) for row in parts.tolist())
        pairs = []
        for row, number in block_of.items():
            other = block_of.get(int(partner[row]))
            if other is None:
                raise ValueError(
                    f"block {number} has one end of a transfer whose other end lies in a block that is not changed: "
                    "give both anew"
                )
            if number < other:
                pairs.append((number, other))
        return pairs

    def schedule(self) -> Schedule:
        """The schedule that is kept."""
        order, columns = self.graph.order, self.graph.columns
        base = self.past.base[order]
        posting = (columns["kind"].array[order] & POSTS) > 0
        begins = columns["task_at"].array[order[posting]].tolist()
        numbers = columns["pattern"].array[order[posting]].tolist()
        starts = [
            self.past.start[begin : begin + len(self.graph.store.patterns[number])] + moved
            for begin, number, moved in zip(begins, numbers, base[posting].tolist(), strict=True)
        ]
        done = self.past.done[order] + base[:, None]
        return Schedule(self.graph, done, np.concatenate([np.zeros(0, np.int64), *starts]))


@dataclass
class _Proposal:
    """The order of rows with some blocks replaced. gone, made: the rows that leave and come."""

    order: NDArray[np.int32]
    offsets: NDArray[np.int64]
    gone: NDArray[np.int32]
    made: NDArray[np.int32]
    makespan: int = 0

    @staticmethod
    def of(
        order: NDArray[np.int32],
        offsets: NDArray[np.int64],
        numbers: Sequence[int],
        gone: Sequence[NDArray[np.int32]],
        new: Sequence[NDArray[np.int32]],
    ) -> _Proposal:
        pieces, last = [], 0
        lengths = np.diff(offsets)
        for number, rows in zip(numbers, new, strict=True):
            pieces += [order[last : offsets[number]], rows]
            last = int(offsets[number + 1])
            lengths[number] = len(rows)
        pieces.append(order[last:])
        nothing = np.zeros(0, np.int32)
        return _Proposal(
            np.concatenate(pieces),
            np.concatenate([[0], np.cumsum(lengths)]),
            np.concatenate([nothing, *gone]),
            np.concatenate([nothing, *new]),
        )

    def regions(self, numbers: Sequence[int], links: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
        """[begin, end) of the changed positions. What is linked lies in one region, with what lies between."""
        spans: list[list[int]] = []
        for first, last in sorted([*((number, number) for number in numbers), *links]):
            begin, end = int(self.offsets[first]), int(self.offsets[last + 1])
            if spans and begin <= spans[-1][1]:
                spans[-1][1] = max(spans[-1][1], end)
            else:
                spans.append([begin, end])
        return np.asarray(spans, np.int64).reshape(-1, 2)
