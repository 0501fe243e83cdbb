"""Orders of a program's steps in which state is used together: sequences for `girih.program.again.sequenced`."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from girih.layout.compiled import compiled, inside
from girih.program.life.lifetimes import Lifetimes

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


@inside()
def _added(step, near, touch_starts, touching, sizes, lasts, left, hot, stamp):  # type: ignore[no-untyped-def]
    """Bytes that a step has copied in, and makes, less those that nobody needs behind it. near: storages with this
    stamp are there, too, and touched once more before."""
    amount = 0
    for at in range(touch_starts[step], touch_starts[step + 1]):
        item = touching[at]
        close = near >= 0 and stamp[item] == near
        if not hot[item] and not close:
            amount += sizes[item]
        if left[item] <= 1 + close and not lasts[item]:
            amount -= sizes[item]
    return amount


@compiled(lambda *arguments: 200.0 * len(arguments[6]))
def closest(  # type: ignore[no-untyped-def]
    reader_starts, readers, touch_starts, touching, sizes, lasts, missing, update, cap, latest, most
):
    """The order of steps. readers: of each step those that wait for it; touching: the storages of each step; missing:
    for how many each step waits. latest: of each step the last one that may come while it can be next. most: of the
    steps that can come next, so many are looked at."""
    count, storages = len(missing), len(sizes)
    missing = missing.copy()
    left = np.zeros(storages, np.int64)
    for at in range(len(touching)):
        left[touching[at]] += 1
    hot = np.zeros(storages, np.bool_)
    before, behind = np.full(storages + 1, -1, np.int64), np.full(storages + 1, -1, np.int64)
    end = storages  # of the ring of what is hot: the oldest is behind it, the newest before
    before[end] = behind[end] = end
    stamp = np.full(storages, -1, np.int64)
    ready, late = np.empty(count, np.int64), np.empty(count, np.int64)
    waiting, later, held = 0, 0, 0
    for step in range(count):
        if missing[step] == 0:
            if update[step]:
                late[later] = step
                later += 1
            else:
                ready[waiting] = step
                waiting += 1
    order = np.empty(count, np.int64)
    for turn in range(count):
        if waiting == 0:
            ready[:later] = np.sort(late[:later])
            waiting, later = later, 0
        chosen, best, best_none = 0, 0, 0
        for place in range(min(waiting, most)):
            step = ready[place]
            if step > latest[ready[0]]:
                break
            for at in range(touch_starts[step], touch_starts[step + 1]):
                stamp[touching[at]] = step
            least, follows = 0, False
            for at in range(reader_starts[step], reader_starts[step + 1]):
                reader = readers[at]
                if missing[reader] == 1 and not update[reader]:
                    amount = _added(reader, step, touch_starts, touching, sizes, lasts, left, hot, stamp)
                    least = min(least, amount) if follows else amount
                    follows = True
            if not follows:
                least = 1
            value = _added(step, -1, touch_starts, touching, sizes, lasts, left, hot, stamp) + min(least, 0)
            none = 1 if least > 0 else 0
            if place == 0 or value < best or (value == best and none < best_none):
                chosen, best, best_none = place, value, none
        first = ready[chosen]
        for place in range(chosen, waiting - 1):
            ready[place] = ready[place + 1]
        waiting -= 1
        order[turn] = first
        for at in range(touch_starts[first], touch_starts[first + 1]):
            item = touching[at]
            if hot[item]:
                behind[before[item]], before[behind[item]] = behind[item], before[item]
            else:
                held += sizes[item]
                hot[item] = True
            newest = before[end]
            behind[newest], before[item], behind[item], before[end] = item, newest, end, item
            left[item] -= 1
            if left[item] == 0 and not lasts[item]:
                behind[before[item]], before[behind[item]] = behind[item], before[item]
                hot[item] = False
                held -= sizes[item]
        while held > cap and behind[end] != end:
            oldest = behind[end]
            behind[end], before[behind[oldest]] = behind[oldest], end
            hot[oldest] = False
            held -= sizes[oldest]
        for at in range(reader_starts[first], reader_starts[first + 1]):
            reader = readers[at]
            missing[reader] -= 1
            if missing[reader] == 0:
                if update[reader]:
                    late[later] = reader
                    later += 1
                    continue
                place = waiting
                while place > 0 and ready[place - 1] > reader:
                    ready[place] = ready[place - 1]
                    place -= 1
                ready[place] = reader
                waiting += 1
    return order
