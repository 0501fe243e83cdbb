"""Orders of a program's steps in which state is used together: sequences for `girih.program.again.sequenced`."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from girih.program.life.lifetimes import Lifetimes
from girih.search.memory.orders.locality_kernels import closest

LOOKED_AT = 1024  # steps that could come next


def staying(lives: Lifetimes, cap: int, latest: NDArray[np.int64] | None = None) -> tuple[int, ...]:
    """The sequence in which steps come together that touch the same storages, as those of one layer's parameters.

    Of the steps that can come next, the one does for which the least must be copied in and made, less what it frees, if
    `cap` bytes of what was touched last stay on the device; of several the first in the old order. latest: of each step
    the last one that may come while it waits, if any (those of an update aside); default: the end. Steps of updates
    come where they were: see `updates_early`. Exchanges keep their order, on all devices. (An unrolled network goes
    layer by layer so, as SwapAdvisor's search finds, thesis §5.2.) Cost: O(steps · LOOKED_AT · operands).
    """
    steps = lives.steps
    count = len(steps)
    touches = lives.touches
    update = np.asarray([lives.program.graph.nodes[step.node].phase == "update" for step in steps], np.bool_)
    makers, readers = lives.edges.T
    starts = np.append(0, np.cumsum(np.bincount(makers, minlength=count)))
    missing = np.bincount(readers, minlength=count)
    latest = np.full(count, count, np.int64) if latest is None else latest
    links = starts, readers.copy(), touches.step_starts, touches.of_step
    storages = touches.bytes, touches.lasts
    return tuple(closest(*links, *storages, missing, update, cap, latest, LOOKED_AT).tolist())


def updates_early(lives: Lifetimes, order: Sequence[int] | None = None) -> tuple[int, ...]:
    """The sequence in which parameters are updated as soon as their gradients are there, so that these need not wait.

    order: of the other steps; None: as they are. What an update reads beside gradients, and is computed from old state
    alone, comes right before it. Cost: linear.
    """
    steps = lives.steps
    update = [lives.program.graph.nodes[step.node].phase == "update" for step in steps]
    needs = lives.needs
    early = [False] * len(steps)  # an update that waits for a gradient
    order = range(len(steps)) if order is None else order
    rank = [0] * len(steps)
    for place, number in enumerate(order):
        rank[number] = place
    for number in order:
        before = needs[number]
        early[number] = update[number] and any(not update[other] or early[other] for other in before)
    readers: list[list[int]] = [[] for _ in steps]
    missing = [0] * len(steps)
    for number, before in enumerate(needs):
        if early[number]:
            waits = [other for other in before if not update[other] or early[other]]
            missing[number] = len(waits)
            for other in waits:
                readers[other].append(number)
    sequence: dict[int, None] = {}

    def take(number: int) -> None:
        pending = [number]
        while pending:
            before = [other for other in needs[pending[-1]] if other not in sequence]
            before.sort(key=rank.__getitem__)
            if before:
                pending += before[::-1]
            else:
                sequence.setdefault(pending.pop())

    for number in order:
        ready = [] if update[number] else [(rank[number], number)]
        while ready:
            _, first = heappop(ready)
            take(first)
            for reader in readers[first]:
                missing[reader] -= 1
                if not missing[reader]:
                    heappush(ready, (rank[reader], reader))
    for number in order:
        take(number)
    return tuple(sequence)
