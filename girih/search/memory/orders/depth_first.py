"""TensorFlowMem as published: partitions of the graph, at most two of which run at a time, what leaves between them.

Alg. 4 visits the graph depth first, with a stack of what is possible, and cuts the visits into partitions of so many
operators. The executor takes what is possible in the order in which it became so, as TensorFlow does, but nothing of
partition i + 2 before all of partition i is done (§6.3.2). The variants visit by depth, the longest path to the end:
all by depth, or depth first with the deepest of what a step makes possible first (§6.3.4).

Tensors that the next `AHEAD` partitions do not touch are copied out behind their use, and copied in when the partition
before their next use begins. With `placement`, parameters and optimizer state lie in the large memory, and each use
loads them anew (§6.3.3).

Where we differ: the paper updates parameters on the CPU, where they lie; here the device updates them and copies them
out. Two uses within the same partitions share one copy, since a tensor has one copy on the device. The algorithm does
not say which of several steps that become possible at once is visited first: here the first of the captured order.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

import numpy as np

from girih.program.life.lifetimes import Lifetimes
from girih.program.life.links import Links
from girih.program.moves.residency import Residency, in_visits
from girih.program.table import Integers

VISITS = ("depth-first", "depth-guided", "depth-first-guided")
AHEAD = 2
"""Partitions between two uses of a tensor from which on it leaves: the paper's K."""


def partitions(links: Links, size: int, visit: str = "depth-first") -> Integers:
    """The number of each step's partition: [steps]. size: steps of a partition. visit: one of `VISITS`."""
    count = len(links.after_starts) - 1
    depth = depths(links)
    missing = np.diff(links.before_starts)
    result = np.empty(count, np.int64)
    ready = _Ready(visit, depth)
    ready.add(np.flatnonzero(missing == 0))
    for visited in range(count):
        step = ready.take()
        result[step] = visited // size
        after = links.after[links.after_starts[step] : links.after_starts[step + 1]]
        missing[after] -= 1
        ready.add(after[missing[after] == 0])
    return result


class _Ready:
    """Steps that are possible: a stack, or a heap by depth."""

    def __init__(self, visit: str, depth: Integers) -> None:
        self.visit = visit
        self.depth = depth
        self.stack: list[int] = []
        self.heap: list[tuple[int, int]] = []

    def add(self, steps: Integers) -> None:
        """What becomes possible at once: taken in the captured order, or by depth."""
        if self.visit == "depth-guided":
            for step in steps.tolist():
                heappush(self.heap, (-int(self.depth[step]), step))
        elif self.visit == "depth-first-guided":
            self.stack += sorted(steps.tolist(), key=lambda step: (self.depth[step], -step))
        else:
            self.stack += sorted(steps.tolist(), reverse=True)

    def take(self) -> int:
        return heappop(self.heap)[1] if self.visit == "depth-guided" else self.stack.pop()


def depths(links: Links) -> Integers:
    """Steps on the longest path from each step to the end: [steps]. Steps are numbered topologically."""
    count = len(links.after_starts) - 1
    depth = np.ones(count, np.int64)
    for step in range(count - 1, -1, -1):
        after = links.after[links.after_starts[step] : links.after_starts[step + 1]]
        if len(after):
            depth[step] += depth[after].max()
    return depth


def executed(links: Links, partition: Integers, running: int = 2) -> Integers:
    """The order in which an executor takes the steps that runs so many partitions at a time: [steps]."""
    count = len(partition)
    missing = np.diff(links.before_starts)
    left = np.bincount(partition, minlength=1)
    oldest = 0
    ready: deque[int] = deque()
    later: dict[int, list[int]] = {}  # possible steps of partitions that may not run yet
    order: list[int] = []

    def possible(step: int) -> None:
        if partition[step] < oldest + running:
            ready.append(step)
        else:
            later.setdefault(int(partition[step]), []).append(step)

    for step in np.flatnonzero(missing == 0).tolist():
        possible(step)
    while len(order) < count:
        step = ready.popleft()
        order.append(step)
        left[partition[step]] -= 1
        for other in links.after[links.after_starts[step] : links.after_starts[step + 1]].tolist():
            missing[other] -= 1
            if missing[other] == 0:
                possible(other)
        while oldest < len(left) and left[oldest] == 0:
            oldest += 1
            ready.extend(later.pop(oldest + running - 1, ()))
    return np.asarray(order, np.int64)


def swapped(lives: Lifetimes, partition: Integers, placement: bool = False, ahead: int = AHEAD) -> Residency:
    """When each storage is on the device, as published. partition: of each step of the lifetimes, in their order; what
    the order has interleaved counts as the later partition. placement: state lies in the large memory."""
    running = np.maximum.accumulate(partition)
    begins = np.searchsorted(running, np.arange(int(running[-1]) + 2 if len(running) else 1))
    state = frozenset(number for pair in lives.state for number in pair)
    home = state if placement else frozenset()
    visits: dict[int, list[list[int]]] = {}
    for number, storage in enumerate(lives.storages):
        if not storage.movable or (number in state and not placement):
            continue
        old = number in home and storage.born == -1
        for at in (at for at in storage.touched if at >= 0 or not old):
            groups = visits.setdefault(number, [[at]])
            before = groups[-1][-1]
            apart = before >= 0 and running[at] - running[before] > (0 if number in home else ahead)
            if apart:
                groups.append([at])
            elif before != at:
                groups[-1].append(at)
    return in_visits(lives, visits, lambda first: int(begins[max(running[first] - 1, 0)]), home)
