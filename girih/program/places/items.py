"""What needs a place in the arena of one device, and when: the storages of a program, its scratch, its copies of state.

Times are the positions of steps that are not frees; behind the last one each copy of new state has a time of its own.
An item has one address and at most two spans of time, both ends included; a second one that is none ends before it
begins.

- **State** has one address from step to step. Where new state is made behind the last use of the old one, both are one
  item with two spans; between them its memory is free. Where the new one takes over the old one's memory
  (`Lifetimes.taken`), they are one item with one span. Else the new one is copied to where the old one lay when all
  steps are done, which needs both for a moment.
- **What takes over** the memory of an operand is one item with it.
- **Scratch** of a step, all of it in one run, lives in that step.
- **A copy in that takes over** what copies out leave (`StartStep.after`) may overlap them: the copier waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from girih.program.life.lifetimes import Lifetimes, Storage
from girih.program.life.strides import contiguous_strides
from girih.program.steps import ComputeStep

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector register."""

Numbers = NDArray[np.int64]


class StateError(ValueError):
    """State has no fixed address: new state is old state of something else."""


@dataclass(frozen=True, eq=False)
class Items:
    """Items as arrays, by number: the storages of the Lifetimes, then the scratch of each step.

    first, last: of the first span; first2, last2: of the second. sizes: bytes, rounded up to ALIGNMENT; 0 of what lies
    in the place of another item, `part_of`; exact: not rounded up. over: pairs of items (arriving, leaving) that may
    overlap; taken: of each pair the bytes that are handed over. copied: of new state that is copied at the end (old
    storage, new storage), in the order of the copies. in_place: old storages over which new state is computed.
    """

    first: Numbers
    last: Numbers
    first2: Numbers
    last2: Numbers
    sizes: Numbers
    exact: Numbers
    part_of: Numbers
    over: Numbers
    taken: Numbers
    copied: tuple[tuple[int, int], ...] = ()
    in_place: frozenset[int] = frozenset()

    @property
    def overlapping(self) -> Numbers:
        """The pairs of `over` that may lie one over the other: only the first span of each is at the same time."""

        def at_one_time(first: Numbers, last: Numbers, other_first: Numbers, other_last: Numbers) -> NDArray[np.bool_]:
            some = (first <= last) & (other_first <= other_last)
            return some & (first <= other_last) & (other_first <= last)

        one, two = self.over[:, 0], self.over[:, 1]
        firsts, seconds = (self.first, self.last), (self.first2, self.last2)
        wrong = np.zeros(len(one), bool)
        for mine, others in ((firsts, seconds), (seconds, firsts), (seconds, seconds)):
            wrong |= at_one_time(mine[0][one], mine[1][one], others[0][two], others[1][two])
        return self.over[~wrong]

    @property
    def bound(self) -> int:
        """The most bytes that are alive at one time: no arena is smaller."""
        return self._most(self.sizes, self.taken)

    @property
    def peak(self) -> int:
        """The same with sizes as they are, not rounded up."""
        return self._most(self.exact, np.minimum(self.taken, self.exact[self.over[:, 0]]))

    def _most(self, all_sizes: Numbers, taken: Numbers) -> int:
        change = np.zeros(int(max(self.last.max(), self.last2.max())) + 2, np.int64)
        second = self.first2 <= self.last2
        for first, last, sizes in (
            (self.first, self.last, all_sizes),
            (self.first2[second], self.last2[second], all_sizes[second]),
        ):
            np.add.at(change, first, sizes)
            np.add.at(change, last + 1, -sizes)
        np.add.at(change, self.first[self.over[:, 0]], -taken)
        np.add.at(change, self.last[self.over[:, 1]] + 1, taken)
        return int(np.cumsum(change).max())


def items_of(lives: Lifetimes) -> Items:
    """The items of a device.

    Raises:
        StateError: state has no fixed address.
    """
    steps, storages = len(lives.steps), lives.storages
    root = _roots(lives)
    fates = _fates(lives, root)
    copied = tuple((old, new) for fate, old, new in fates if fate == "copied")
    end = steps + len(copied)
    first = np.array([*(max(item.born, 0) for item in storages), *range(steps + 1)], np.int64)
    last = np.array([*(end if item.lasts else item.last for item in storages), *range(steps + 1)], np.int64)
    scratch = lives.extra[:-1].copy()  # the last act: copies
    for step, operand in lives.taken.items():
        scratch[step] += storages[operand].bytes
    exact = np.array([*(item.bytes for item in storages), *scratch, 0], np.int64)
    first2, last2 = np.ones_like(first), np.zeros_like(first)
    part_of = np.arange(len(first))
    part_of[: len(storages)] = root
    returned = {output.name for output in lives.program.graph.outputs if output.replaces is None}
    for number, (_, new) in enumerate(copied):
        if returned.isdisjoint(storages[new].buffers):
            last[new] = steps + number
    for fate, old, new in fates:
        if fate == "in place":
            last[new] = end
        elif fate == "behind":
            part_of[new], first2[old], last2[old] = old, first[new], end
    behind = {new for fate, _, new in fates if fate == "behind"}
    for number, own in enumerate(root):
        if number != own and number not in behind:
            last[own] = max(last[own], last[number])
    for number, (old, _) in enumerate(copied):
        if not storages[old].lasts:
            first2[old], last2[old] = steps + number, end
    sizes: Numbers = -(-exact // ALIGNMENT) * ALIGNMENT
    sizes[part_of != np.arange(len(sizes))] = 0
    exact = np.where(sizes > 0, exact, 0)
    over, taken = _handovers(lives, sizes, part_of)
    in_place = frozenset(old for fate, old, _ in fates if fate == "in place")
    return Items(first, last, first2, last2, sizes, exact, part_of, over, taken, copied, in_place)


def _roots(lives: Lifetimes) -> list[int]:
    """For each storage the first of those that take over memory one from another, itself if it takes none.

    What stays to the end does not take over state: new state is to lie there then, unless this is the new state itself,
    laid out as state is.
    """
    number_of = {buffer: number for number, item in enumerate(lives.storages) for buffer in item.buffers}
    updates = lives.program.graph.updates
    new_of: dict[int, int | None] = {}
    for item in lives.program.graph.state_inputs:
        if item.name in number_of:
            name = updates.get(item.name, "")
            new = number_of.get(name)
            new_of[number_of[item.name]] = None if new is None or not _lies_as_state(lives.storages[new], name) else new
    root = list(range(len(lives.storages)))
    for position, operand in sorted(lives.taken.items()):
        step = lives.steps[position]
        assert isinstance(step, ComputeStep)
        result = number_of[step.writes[0]]
        if not lives.storages[result].lasts or new_of.get(root[operand], result) == result:
            root[result] = root[operand]
    return root


def _fates(lives: Lifetimes, root: Sequence[int]) -> list[tuple[str, int, int]]:
    """What becomes of state that is replaced: ("in place", "behind" or "copied", old storage, new storage), in the
    graph's order."""
    graph, storages = lives.program.graph, lives.storages
    number_of = {buffer: number for number, item in enumerate(storages) for buffer in item.buffers}
    ends = [item.last for item in storages]  # of what lies in a storage's memory, one after another
    for number, own in enumerate(root):
        ends[own] = max(ends[own], storages[number].last)
    fates = []
    used: set[int] = set()
    for item in graph.state_inputs:
        name = graph.updates.get(item.name)
        if name is None or item.name not in number_of or name not in number_of:
            continue
        old, new = number_of[item.name], number_of[name]
        if not storages[old].bytes or old == new:
            continue
        if storages[new].born == -1:
            raise StateError(f"the new {item.path or item.name} is old state of another name")
        if new in used or not _lies_as_state(storages[new], name) or storages[old].lasts:
            fate = "copied"
        elif root[new] == old:
            fate = "in place"
        else:
            fate = "behind" if root[new] == new and ends[old] < storages[new].born else "copied"
        used.add(new)
        fates.append((fate, old, new))
    return fates


def _lies_as_state(storage: Storage, buffer: str) -> bool:
    """Whether a buffer is its storage's own, in the order of its elements. The stride of one element says nothing."""
    ordered = zip(storage.shape, storage.strides, contiguous_strides(storage.shape), strict=True)
    return storage.name == buffer and all(length == 1 or stride == plain for length, stride, plain in ordered)


def _handovers(lives: Lifetimes, sizes: Numbers, part_of: Numbers) -> tuple[Numbers, Numbers]:
    handed = [
        (part_of[arriving], part_of[leaving], min(taken // ALIGNMENT * ALIGNMENT, sizes[part_of[arriving]]))
        for arriving, leaving, taken in lives.handed
    ]
    table = np.array(handed, np.int64).reshape(-1, 3)
    return table[:, :2], table[:, 2]
