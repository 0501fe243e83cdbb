"""Events and ports: of the messages and copies that are ready, who begins when.

A message begins at the first moment at which it is ready and both of its ports are free. Of those that could begin at
the same moment and want the same port, the one with the smallest number goes first: of the exchange that comes first
in the program, then in rounds. So a port is never kept free for a message that cannot begin.

Every port has a line of the messages that wait for it, in that order; a message stands in two lines. Only the lines of
ports that have just become free, or have just got somebody in line, need to be looked at.
"""

from __future__ import annotations

import numpy as np

from girih.simulate.kernels.arrays import (
    ACTIVE,
    BEFORE,
    BEHIND,
    CHOICES,
    COMPILED,
    EVENTS,
    IN,
    OUT,
    PORT,
    POSITION,
    SPARE,
    STANDS,
    TASK,
    TASK_BITS,
)


@COMPILED
def push(heap, scalars, count, key, number):  # type: ignore[no-untyped-def]
    """Onto a heap of four children; `scalars[count]` is its length."""
    at = scalars[count]
    scalars[count] = at + 1
    while at > 0:
        above = (at - 1) >> 2
        if heap[above, 0] < key or (heap[above, 0] == key and heap[above, 1] < number):
            break
        heap[at, 0], heap[at, 1] = heap[above, 0], heap[above, 1]
        at = above
    heap[at, 0], heap[at, 1] = key, number


@COMPILED
def sink(heap, length, key, number):  # type: ignore[no-untyped-def]
    """Put an entry in the place of the first."""
    at = 0
    while True:
        child = 4 * at + 1
        if child >= length:
            break
        least, low, which = child, heap[child, 0], heap[child, 1]
        for other in range(child + 1, min(child + 4, length)):
            if heap[other, 0] < low or (heap[other, 0] == low and heap[other, 1] < which):
                least, low, which = other, heap[other, 0], heap[other, 1]
        if key < low or (key == low and number < which):
            break
        heap[at, 0], heap[at, 1] = low, which
        at = least
    heap[at, 0], heap[at, 1] = key, number


@COMPILED
def drop(heap, scalars, count):  # type: ignore[no-untyped-def]
    """Take the first away."""
    length = scalars[count] - 1
    scalars[count] = length
    sink(heap, length, heap[length, 0], heap[length, 1])


@COMPILED
def kind_of(order, rows, pool, number):  # type: ignore[no-untyped-def]
    """The task in the pool, and its own, of a number."""
    row, t = order[number >> TASK_BITS], number & ((1 << TASK_BITS) - 1)
    return pool.task_at[rows.pattern[row]] + t, rows.task_at[row] + t


@COMPILED
def _ahead(work, stand, position, t):  # type: ignore[no-untyped-def]
    """Does a stand lie ahead of this place?"""
    where = work.line[stand, POSITION]
    return where < position or (where == position and work.line[stand, TASK] < t)


@COMPILED
def _enter(work, side, port, stand):  # type: ignore[no-untyped-def]
    """Into the line of a port, to its place. Its neighbours have mostly come right before it: they are met first."""
    position, t = work.line[stand, POSITION], work.line[stand, TASK]
    before = work.hint[port]
    if before < 0:
        before = work.last[port]
    behind = work.line[before, BEHIND + side] if before >= 0 else -1
    while before >= 0 and not _ahead(work, before, position, t):
        before, behind = work.line[before, BEFORE + side], before
    while behind >= 0 and _ahead(work, behind, position, t):
        before, behind = behind, work.line[behind, BEHIND + side]
    work.line[stand, BEFORE + side] = before
    work.line[stand, BEHIND + side] = behind
    if before >= 0:
        work.line[before, BEHIND + side] = stand
    else:
        work.first[port] = stand
    if behind >= 0:
        work.line[behind, BEFORE + side] = stand
    else:
        work.last[port] = stand
    work.hint[port] = stand


@COMPILED
def _leave(work, side, port, stand):  # type: ignore[no-untyped-def]
    before, behind = work.line[stand, BEFORE + side], work.line[stand, BEHIND + side]
    if before >= 0:
        work.line[before, BEHIND + side] = behind
    else:
        work.first[port] = behind
    if behind >= 0:
        work.line[behind, BEFORE + side] = before
    else:
        work.last[port] = before
    if work.hint[port] == stand:
        work.hint[port] = before


@COMPILED
def line_up(order, rows, pool, work, number):  # type: ignore[no-untyped-def]
    """A task that is ready stands in line at its ports. Where it is in the pool, and its own number."""
    kind, task = kind_of(order, rows, pool, number)
    if work.scalars[SPARE] > 0:
        work.scalars[SPARE] -= 1
        stand = work.spare[work.scalars[SPARE]]
    else:
        stand = work.scalars[STANDS]
        work.scalars[STANDS] += 1
    work.line[stand, POSITION] = number >> TASK_BITS
    work.line[stand, TASK] = number & ((1 << TASK_BITS) - 1)
    for side, port in ((OUT, pool.egress[kind]), (IN, pool.ingress[kind])):
        work.line[stand, PORT + side] = port
        if port >= 0:
            _enter(work, side, port, stand)
    return kind, task


@COMPILED
def look_at(work, port, now):  # type: ignore[no-untyped-def]
    """A port whose line may have somebody who can begin."""
    if port >= 0 and work.free[port] <= now and work.seen[port] != now and work.first[port] >= 0:
        work.seen[port] = now
        work.active[work.scalars[ACTIVE]] = port
        work.scalars[ACTIVE] += 1


@COMPILED
def _choose(work, side, stand, now):  # type: ignore[no-untyped-def]
    """In the line at a free port, from a stand on, the first whose other port is free too becomes a choice."""
    while stand >= 0:
        other = work.line[stand, PORT + IN - side]
        if other < 0 or work.free[other] <= now:
            number = (np.int64(work.line[stand, POSITION]) << TASK_BITS) | work.line[stand, TASK]
            push(work.choices, work.scalars, CHOICES, number, stand)
            return
        stand = work.line[stand, BEHIND + side]


@COMPILED
def next_choice(order, rows, pool, work, now):  # type: ignore[no-untyped-def]
    """The number of the next task that begins now, or -1. It has left its lines, and its ports are busy."""
    for n in range(work.scalars[ACTIVE]):
        port = work.active[n]
        _choose(work, OUT if work.outward[port] else IN, work.first[port], now)
    work.scalars[ACTIVE] = 0
    while work.scalars[CHOICES] > 0:
        number, stand = work.choices[0, 0], work.choices[0, 1]
        drop(work.choices, work.scalars, CHOICES)
        while work.scalars[CHOICES] > 0 and work.choices[0, 0] == number:  # it was found at both of its ports
            drop(work.choices, work.scalars, CHOICES)
        egress, ingress = work.line[stand, PORT + OUT], work.line[stand, PORT + IN]
        out, into = egress < 0 or work.free[egress] <= now, work.free[ingress] <= now
        if out and into:
            kind, _ = kind_of(order, rows, pool, number)
            end = now + pool.duration[kind]
            if egress >= 0:
                _leave(work, OUT, egress, stand)
                work.free[egress] = end
            _leave(work, IN, ingress, stand)
            work.free[ingress] = end
            work.spare[work.scalars[SPARE]] = stand
            work.scalars[SPARE] += 1
            push(work.events, work.scalars, EVENTS, end, -1 - number)
            return number
        # Another one has taken one of its ports. If the other is still free, the next in line there may have a chance.
        if into:
            _choose(work, IN, work.line[stand, BEHIND + IN], now)
        elif out and egress >= 0:
            _choose(work, OUT, work.line[stand, BEHIND + OUT], now)
    return np.int64(-1)


@COMPILED
def gather(order, rows, pool, work):  # type: ignore[no-untyped-def]
    """All events of the earliest moment: ports become free, runs of tasks stand in line. The moment."""
    now = work.events[0, 0]
    while work.scalars[EVENTS] > 0 and work.events[0, 0] == now:
        number = work.events[0, 1]
        drop(work.events, work.scalars, EVENTS)
        if number < 0:
            kind, _ = kind_of(order, rows, pool, -1 - number)
            look_at(work, pool.egress[kind], now)
            look_at(work, pool.ingress[kind], now)
            continue
        row_number = number & ~((1 << TASK_BITS) - 1)
        following = number & ((1 << TASK_BITS) - 1)
        while following >= 0:
            kind, task = line_up(order, rows, pool, work, row_number | following)
            look_at(work, pool.egress[kind], now)
            look_at(work, pool.ingress[kind], now)
            following = work.follow[task]
    return now
