"""A lower bound on the makespan of all strategies that agree on some operators: the loops of the search `optimum`.

One pass over the nodes in the program's order, which is the order on every device. Each device has a clock, each value
a moment at which each device has it. What is left out only makes the bound smaller:

- Ports serve whoever is ready: a message begins when its sender and its receiver are; several messages of one device
  over one port take their sum. Exchanges do not wait for each other.
- An exchange begins as soon as its source is made and the window of overlap (`girih.program.overlap`) allows. What a
  device itself does for it may lie anywhere from then to where the value is read: it is counted there, less the time
  for which the device waited in between (what is done before a wait makes the wait shorter).
- A node of an undecided operator takes what the smallest piece of any of its configurations takes, alone on its
  device, and waits for the earliest piece of what it reads; nothing is transferred to or from it.

Times are ticks. Cost: O(nodes · devices + messages) for each bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from girih.layout.compiled import compiled

Ints = NDArray[np.int64]
NOTHING = -1
IMPOSSIBLE = -2
NEVER = 1 << 62
"""Ticks of configurations that cannot be together."""


class BoundTables(NamedTuple):
    """A space for the compiled loops; C is the number of configurations of a node's or value's operator.

    operator: of each node. rows: where a node's C rows of `compute` [rows, devices] and `part` (does it take part?)
    begin. least, together: of a node over all configurations its smallest piece, and all pieces of the cheapest.
    read_…: what each node reads: where it begins, the value, the operator that decides its layout, where the C × C
    numbers of transfers by (decider's, node's configuration) begin, NOTHING for none and IMPOSSIBLE where none leads
    there, and whether every piece reads something. make_…: the same for what each node makes. sizes: configurations of
    each operator.
    hop_from: of each transfer. before, after: [hops, devices]. task_from: of each hop, then the tasks' devices and
    ticks. bundle_from: of each hop; bundle_device, bundle_at, bundle_task: tasks that share a device's port.
    window: how many steps that do work a fetch may start before its use, at most; at least 1.
    """

    operator: Ints
    rows: Ints
    compute: Ints
    part: NDArray[np.uint8]
    least: Ints
    together: Ints
    read_from: Ints
    read_value: Ints
    read_decider: Ints
    read_at: Ints
    read_chained: NDArray[np.uint8]
    make_from: Ints
    make_value: Ints
    make_decider: Ints
    make_at: Ints
    transfer: Ints
    sizes: Ints
    hop_from: Ints
    before: Ints
    after: Ints
    task_from: Ints
    sender: Ints
    receiver: Ints
    duration: Ints
    delay: Ints
    bundle_from: Ints
    bundle_device: Ints
    bundle_at: Ints
    bundle_task: Ints
    values: int
    devices: int
    window: int


@compiled(nogil=True)
def _waits(space, hop, post, wait, begin):  # type: ignore[no-untyped-def]
    """When each device has received and sent all of a hop's messages."""
    wait[:] = 0
    first = space.task_from[hop]
    for task in range(first, space.task_from[hop + 1]):
        sender, receiver = space.sender[task], space.receiver[task]
        moment = max(post[sender], post[receiver])
        begin[task - first] = moment
        moment += space.duration[task]
        if moment > wait[sender]:
            wait[sender] = moment
        moment += space.delay[task]
        if moment > wait[receiver]:
            wait[receiver] = moment
    for bundle in range(space.bundle_from[hop], space.bundle_from[hop + 1]):
        earliest, total = np.iinfo(np.int64).max, 0
        for place in range(space.bundle_at[bundle], space.bundle_at[bundle + 1]):
            task = space.bundle_task[place]
            earliest = min(earliest, begin[task - first])
            total += space.duration[task]
        device = space.bundle_device[bundle]
        if earliest + total > wait[device]:
            wait[device] = earliest + total


@compiled(nogil=True)
def _pay(clock, idle, since, work, ready):  # type: ignore[no-untyped-def]
    """Work that was done at some time since `since`, in part instead of waiting; then wait for what is ready."""
    for device in range(len(clock)):
        clock[device] += max(0, work[device] - (idle[device] - since[device]))
        idle[device] += max(0, ready[device] - clock[device])
        clock[device] = max(clock[device], ready[device])


@compiled(nogil=True)
def bound(space, choice):  # type: ignore[no-untyped-def]
    """Ticks below which no strategy with these configurations ends. choice: of each operator, or -1 if undecided."""
    nodes, devices, values = len(space.operator), space.devices, space.values
    clock, busy = np.zeros(devices, np.int64), np.zeros(devices, np.int64)
    ready = np.zeros((values, devices), np.int64)
    owed = np.zeros((values, devices), np.int64)  # what devices still have to do at the end of a store
    idle = np.zeros(devices, np.int64)  # how long each has waited
    since = np.zeros((values, devices), np.int64)  # how long each had waited when a value was made
    early = np.zeros(devices, np.int64)
    pending = np.zeros(values, np.uint8)
    known = np.ones(values, np.uint8)
    single = np.zeros(values, np.int64)
    source, post, wait = np.zeros(devices, np.int64), np.zeros(devices, np.int64), np.zeros(devices, np.int64)
    begin = np.zeros(4 * devices * devices, np.int64)
    clocks = np.zeros((space.window, devices), np.int64)  # before each of the last steps that do work, in turn
    idles = np.zeros((space.window, devices), np.int64)
    opened, opened_idle = np.zeros(devices, np.int64), np.zeros(devices, np.int64)
    longest, shared, steps = 0, 0, 0
    for node in range(nodes):
        mine = choice[space.operator[node]]
        turn = steps % space.window
        opened[:], opened_idle[:] = clocks[turn], idles[turn]  # when a fetch for this node may start
        if space.least[node] > 0:
            clocks[turn], idles[turn] = clock, idle
            steps += 1
        if mine < 0:
            start = 0
            for place in range(space.read_from[node], space.read_from[node + 1]):
                if space.read_chained[place]:
                    start = max(start, single[space.read_value[place]])
            start += space.least[node]
            shared += space.together[node]
            longest = max(longest, start)
            for place in range(space.make_from[node], space.make_from[node + 1]):
                known[space.make_value[place]] = 0
                single[space.make_value[place]] = start
            continue
        arrive = 0
        for place in range(space.read_from[node], space.read_from[node + 1]):
            value = space.read_value[place]
            if not known[value]:
                if space.read_chained[place]:
                    arrive = max(arrive, single[value])
            elif pending[value]:
                pending[value] = 0
                _pay(clock, idle, since[value], owed[value], ready[value])
        for place in range(space.read_from[node], space.read_from[node + 1]):
            value, decider = space.read_value[place], choice[space.read_decider[place]]
            if not known[value] or decider < 0:
                continue
            number = space.transfer[space.read_at[place] + decider * space.sizes[space.operator[node]] + mine]
            if number == IMPOSSIBLE:
                return NEVER
            if number == NOTHING:
                continue
            source[:] = ready[value]
            early[:] = 0
            last = space.hop_from[number + 1] - 1
            for hop in range(space.hop_from[number], last + 1):
                for device in range(devices):
                    post[device] = max(source[device], opened[device]) + space.before[hop, device]
                    early[device] += space.before[hop, device]
                _waits(space, hop, post, wait, begin)
                for device in range(devices):
                    source[device] = max(post[device], wait[device]) + space.after[hop, device]
                    busy[device] += space.before[hop, device] + space.after[hop, device]
                    if hop < last:
                        early[device] += space.after[hop, device]
            _pay(clock, idle, np.maximum(since[value], opened_idle), early, wait)
            clock += space.after[last]
        row = space.rows[node] + mine
        first = np.iinfo(np.int64).max
        for device in range(devices):
            if space.part[row, device]:
                idle[device] += max(0, arrive - clock[device])
                clock[device] = max(clock[device], arrive) + space.compute[row, device]
                busy[device] += space.compute[row, device]
                first = min(first, clock[device])
        if first == np.iinfo(np.int64).max:
            first = arrive
        for place in range(space.make_from[node], space.make_from[node + 1]):
            value = space.make_value[place]
            single[value] = first
            decider = choice[space.make_decider[place]]
            known[value] = decider >= 0
            if decider < 0:
                continue
            ready[value] = clock
            since[value] = idle
            number = space.transfer[space.make_at[place] + decider * space.sizes[space.operator[node]] + mine]
            if number == IMPOSSIBLE:
                return NEVER
            if number == NOTHING:
                continue
            source[:] = clock
            owed[value] = 0
            pending[value] = 1
            for hop in range(space.hop_from[number], space.hop_from[number + 1]):
                starts = hop == space.hop_from[number]
                for device in range(devices):
                    post[device] = source[device] + space.before[hop, device]
                _waits(space, hop, post, wait, begin)
                for device in range(devices):
                    own, last = space.before[hop, device], space.after[hop, device]
                    source[device] = max(post[device], wait[device]) + last
                    busy[device] += own + last
                    if starts:
                        clock[device] += own
                        owed[value, device] = last
                    else:
                        owed[value, device] += own + last
            ready[value] = source
    for value in range(values):
        if pending[value]:
            _pay(clock, idle, since[value], owed[value], ready[value])
    for device in range(devices):
        longest = max(longest, clock[device], busy[device])
        shared += busy[device]
    return max(longest, shared // devices)


@compiled(nogil=True)
def pairs(space, able, starts, limit):  # type: ignore[no-untyped-def]
    """[configurations of all, of all]: 1 where two configurations of different operators can be together below a limit.

    able: which configurations are left; starts: where each operator's begin.
    """
    operators = len(space.sizes)
    good = np.ones((len(able), len(able)), np.uint8)
    choice = np.full(operators, -1, np.int64)
    for one in range(operators):
        for other in range(one + 1, operators):
            for first in range(space.sizes[one]):
                for second in range(space.sizes[other]):
                    here, there = starts[one] + first, starts[other] + second
                    fine = able[here] and able[there]
                    if fine:
                        choice[one], choice[other] = first, second
                        fine = bound(space, choice) < limit
                    good[here, there] = good[there, here] = fine
            choice[other] = -1
        choice[one] = -1
    return good


@compiled(nogil=True)
def enumerate_below(space, good, able, starts, order, limit, most, effort, choices, bounds):  # type: ignore[no-untyped-def]
    """Depth first over the operators in `order`: all choices whose bound is below the limit, into `found`.

    good: of `pairs`. most: bounds to compute at most. effort: bounds computed, choices found. False: too many.
    """
    operators = len(order)
    choice = np.full(operators, -1, np.int64)
    depth = 0
    position = np.zeros(operators + 1, np.int64)
    while depth >= 0:
        operator = order[depth]
        number = position[depth]
        if number >= space.sizes[operator]:
            choice[operator] = -1
            depth -= 1
            continue
        position[depth] += 1
        here = starts[operator] + number
        fine = able[here] == 1
        for above in range(depth):
            fine = fine and good[here, starts[order[above]] + choice[order[above]]] == 1
        if not fine:
            continue
        choice[operator] = number
        if effort[0] >= most:
            return False
        effort[0] += 1
        least = bound(space, choice)
        if least >= limit:
            continue
        if depth + 1 < operators:
            depth += 1
            position[depth] = 0
        else:
            if effort[1] >= len(choices):
                return False
            choices[effort[1]] = choice
            bounds[effort[1]] = least
            effort[1] += 1
    return True
