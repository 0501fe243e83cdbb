"""The compiled simulation, imported when a first program is simulated: Numba is slow to load.

`simulate` runs the events of a task graph in order of time, from one changed region of its rows to the next. A full
simulation is the case of one region that holds everything; FlexFlow's delta simulation (§3.4.3) is the case of an
earlier schedule (`Past`) and small regions.

Devices run ahead on their own until they wait for messages; messages are served in ascending (ready time, number).
Since a message takes at least a tick, what becomes ready because of it is ready later: the order is the order of time.

How a change ends early, exactly. Times are whole numbers, and all that happens after a moment follows from the state
at that moment: where each device is in its work and when it will have done with what it is doing, and when messages
under way will arrive (ports are busy until then). What is past has no influence. If at a moment the state is what it
was in the earlier schedule at a moment `delta` before, and no change lies ahead, the rest is the earlier schedule
moved by `delta`: to the last bit. If a change lies ahead, the state right before it follows from the moved schedule,
and the simulation goes on from there. `_restore` makes a state from a schedule, `_settled` compares states.

Cost: O(tasks that are re-simulated · log queue) and O(rows) for bookkeeping.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

# Nothing is allocated here. Without counting references to arrays, which Numba does at each use of a tuple's field,
# the loops are five times as fast.
COMPILED = numba.njit(cache=True, _nrt=False)

POSTS, WAITS = 1, 2  # bits of a row's kind
_TASK_BITS = 24  # of the numbers that settle ties: position of the row, then the task in its pattern

Ints = NDArray[np.int64]
Numbers = NDArray[np.int32]


class Pool(NamedTuple):
    """All patterns one behind the other; `*_at`: where each begins. Other arrays as in `girih.simulate.patterns`."""

    task_at: Ints
    gate_at: Ints
    first_at: Ints
    link_at: Ints
    egress: Numbers
    ingress: Numbers
    duration: Ints
    sender: Numbers
    receiver: Numbers
    first: Numbers
    members: Numbers
    gates: Numbers
    offsets: Numbers  # [patterns, devices + 1]
    waits: Numbers  # [patterns, devices]


class Rows(NamedTuple):
    """What devices do, by row; the order of rows is kept apart.

    kind: POSTS, WAITS, both or neither. partner: of a row that posts the one that waits, and the other way round; the
    row itself if it does both. task_at, gate_at: where the tasks and gates of a posting row begin.
    before, after: ticks [rows, devices].
    """

    kind: NDArray[np.int8]
    pattern: Numbers
    partner: Numbers
    task_at: Ints
    gate_at: Ints
    before: Ints
    after: Ints


class Past(NamedTuple):
    """A schedule. done: when each device has done with each row [rows, devices]; start: of each task. In ticks from
    the row's `base`."""

    done: Ints
    start: Ints
    base: Ints


class Work(NamedTuple):
    """Room for a simulation, by row (touched, fresh, done, left, latest, completed), by task (start, served), by gate
    (gate_left, gate_latest), by device (at, clock, current), by position (shift).

    touched: the row's times are here; else they are the past's, moved by `shift`. fresh: the row has no past.
    position: of each row in the order. left: for how many tasks the device still waits; latest: when the last of those
    that are known ends. at: the position at which a device waits, since `clock`. scalars: see below.
    """

    position: Numbers
    touched: NDArray[np.uint8]
    fresh: NDArray[np.uint8]
    done: Ints
    left: Numbers
    latest: Ints
    completed: Numbers
    start: Ints
    served: NDArray[np.uint8]
    gate_left: Numbers
    gate_latest: Ints
    at: Numbers
    clock: Ints
    current: Numbers
    shift: Ints
    free: Ints
    queue: Ints
    follow: Numbers
    scalars: Ints


QUEUED, HIGH, NEWEST, SERVED, RAN, RESTORED = range(6)  # scalars: length of the queue, highest touched position,
# newest position that all devices have passed; statistics: tasks served, rows run (on each device), restorations


@COMPILED
def _push(work, ready, number):  # type: ignore[no-untyped-def]
    queue = work.queue
    at = work.scalars[QUEUED]
    work.scalars[QUEUED] = at + 1
    while at > 0:
        above = (at - 1) >> 2
        if queue[above, 0] < ready or (queue[above, 0] == ready and queue[above, 1] < number):
            break
        queue[at, 0], queue[at, 1] = queue[above, 0], queue[above, 1]
        at = above
    queue[at, 0], queue[at, 1] = ready, number


@COMPILED
def _sink(work, ready, number):  # type: ignore[no-untyped-def]
    """Put an entry in the place of the first."""
    queue = work.queue
    count = work.scalars[QUEUED]
    at = 0
    while True:
        child = 4 * at + 1
        if child >= count:
            break
        least, when, which = child, queue[child, 0], queue[child, 1]
        for other in range(child + 1, min(child + 4, count)):
            if queue[other, 0] < when or (queue[other, 0] == when and queue[other, 1] < which):
                least, when, which = other, queue[other, 0], queue[other, 1]
        if ready < when or (ready == when and number < which):
            break
        queue[at, 0], queue[at, 1] = when, which
        at = least
    queue[at, 0], queue[at, 1] = ready, number


@COMPILED
def _done(order, past, work, position, device):  # type: ignore[no-untyped-def]
    """When a device has done with the row at a position, as far as it is known."""
    if position < 0:
        return 0
    row = order[position]
    if work.touched[row]:
        return work.done[row, device]
    return past.done[row, device] + past.base[row] + work.shift[position]


@COMPILED
def _open(rows, pool, work, row):  # type: ignore[no-untyped-def]
    """A posting row before anyone has posted."""
    pattern = rows.pattern[row]
    gates = pool.gate_at[pattern + 1] - pool.gate_at[pattern]
    tasks = pool.task_at[pattern + 1] - pool.task_at[pattern]
    members, gate_at, task_at = pool.gate_at[pattern], rows.gate_at[row], rows.task_at[row]
    for g in range(gates):
        work.gate_left[gate_at + g] = pool.members[members + g]
        work.gate_latest[gate_at + g] = 0
    for t in range(tasks):
        work.served[task_at + t] = 0
    for d in range(work.at.shape[0]):
        work.left[row, d] = pool.waits[pattern, d]
        work.latest[row, d] = 0


@COMPILED
def _touch(rows, pool, past, work, row):  # type: ignore[no-untyped-def]
    """From here on the row's times are in `work`: those of the past until they are simulated."""
    if work.touched[row]:
        return
    position = work.position[row]
    work.touched[row] = 1
    work.completed[row] = 0
    work.scalars[HIGH] = max(work.scalars[HIGH], position)
    posts = rows.kind[row] & POSTS
    if not work.fresh[row]:
        moved = past.base[row] + work.shift[position]
        for d in range(work.at.shape[0]):
            work.done[row, d] = past.done[row, d] + moved
        if posts:
            pattern, task_at = rows.pattern[row], rows.task_at[row]
            for t in range(task_at, task_at + pool.task_at[pattern + 1] - pool.task_at[pattern]):
                work.start[t] = past.start[t] + moved
    if posts:
        _open(rows, pool, work, row)


@COMPILED
def _post(rows, pool, work, row, device, time, queue):  # type: ignore[no-untyped-def]
    """A device posts at its gates. queue: tasks that become ready are queued; else they are as recorded in `start`."""
    pattern = rows.pattern[row]
    gate_at, first_at, task_at = rows.gate_at[row], pool.first_at[pattern], rows.task_at[row]
    links = pool.link_at[pattern]
    run, ready = -1, 0
    for link in range(links + pool.offsets[pattern, device], links + pool.offsets[pattern, device + 1]):
        gate = pool.gates[link]
        number = gate_at + gate
        latest = max(work.gate_latest[number], time)
        work.gate_latest[number] = latest
        work.gate_left[number] -= 1
        if work.gate_left[number] > 0:
            continue
        for t in range(pool.first[first_at + gate], pool.first[first_at + gate + 1]):
            if not queue:
                _take(rows, pool, work, row, t)
            elif run >= 0 and latest == ready:
                work.follow[task_at + run] = t
                run = t
            else:
                if run >= 0:
                    work.follow[task_at + run] = -1
                _push(work, latest, (np.int64(work.position[row]) << _TASK_BITS) | t)
                run, ready = t, latest
    if run >= 0:
        work.follow[task_at + run] = -1


@COMPILED
def _take(rows, pool, work, row, t):  # type: ignore[no-untyped-def]
    """A task begins at its `start`: it occupies its ports, and those who wait for it know when it ends."""
    task, kind = rows.task_at[row] + t, pool.task_at[rows.pattern[row]] + t
    end = work.start[task] + pool.duration[kind]
    work.served[task] = 1
    if pool.egress[kind] >= 0:
        work.free[pool.egress[kind]] = max(work.free[pool.egress[kind]], end)
    work.free[pool.ingress[kind]] = max(work.free[pool.ingress[kind]], end)
    for device in (pool.sender[kind], pool.receiver[kind]):
        if device >= 0:
            work.left[row, device] -= 1
            work.latest[row, device] = max(work.latest[row, device], end)


@COMPILED
def _run(order, rows, pool, past, work, device, position, time):  # type: ignore[no-untyped-def]
    """A device goes on from the beginning of a row until it has to wait."""
    devices = work.at.shape[0]
    while position < order.shape[0]:
        row = order[position]
        _touch(rows, pool, past, work, row)
        kind = rows.kind[row]
        time += rows.before[row, device]
        if kind & POSTS:
            _post(rows, pool, work, row, device, time, True)
        if kind & WAITS:
            posting = rows.partner[row]
            if work.left[posting, device] > 0:
                break
            time = max(time, work.latest[posting, device]) + rows.after[row, device]
        work.done[row, device] = time
        work.completed[row] += 1
        if work.completed[row] == devices:
            work.scalars[NEWEST] = position
        work.scalars[RAN] += 1
        position += 1
    work.at[device] = position
    work.clock[device] = time


@COMPILED
def _resume(order, rows, pool, past, work, device):  # type: ignore[no-untyped-def]
    """A device whose messages are all known goes on behind its wait."""
    position = work.at[device]
    row = order[position]
    time = max(work.clock[device], work.latest[rows.partner[row], device]) + rows.after[row, device]
    work.done[row, device] = time
    work.completed[row] += 1
    if work.completed[row] == work.at.shape[0]:
        work.scalars[NEWEST] = position
    work.scalars[RAN] += 1
    _run(order, rows, pool, past, work, device, position + 1, time)


@COMPILED
def _serve(order, rows, pool, past, work):  # type: ignore[no-untyped-def]
    """The next task of the queue begins as soon as its ports are free."""
    ready, number = work.queue[0, 0], work.queue[0, 1]
    row, t = order[number >> _TASK_BITS], number & ((1 << _TASK_BITS) - 1)
    following = work.follow[rows.task_at[row] + t]
    if following >= 0:
        _sink(work, ready, number - t + following)
    else:
        count = work.scalars[QUEUED] - 1
        work.scalars[QUEUED] = count
        _sink(work, work.queue[count, 0], work.queue[count, 1])
    kind = pool.task_at[rows.pattern[row]] + t
    begin = max(ready, work.free[pool.ingress[kind]])
    if pool.egress[kind] >= 0:
        begin = max(begin, work.free[pool.egress[kind]])
    work.start[rows.task_at[row] + t] = begin
    work.scalars[SERVED] += 1
    _take(rows, pool, work, row, t)
    waiting = work.position[rows.partner[row]]
    for device in (pool.sender[kind], pool.receiver[kind]):
        if device >= 0 and work.left[row, device] == 0 and work.at[device] == waiting:
            _resume(order, rows, pool, past, work, device)


@COMPILED
def _restore(order, rows, pool, past, work, changed):  # type: ignore[no-untyped-def]
    """The state right before the earliest time at which any device arrives at the changed position, and go on.

    Times before that are final: they are in `work` or in the moved past.
    """
    devices = work.at.shape[0]
    moment = np.iinfo(np.int64).max
    for d in range(devices):
        moment = min(moment, _done(order, past, work, changed - 1, d))
    low, top = order.shape[0], 0
    for d in range(devices):
        position = max(changed - 1, 0)
        while position > 0 and _done(order, past, work, position - 1, d) >= moment:
            position -= 1
        work.current[d] = position
        low, top = min(low, position), max(top, position)
    work.scalars[QUEUED] = 0
    work.scalars[RESTORED] += 1
    work.free[:] = 0
    work.at[:] = -1
    if changed > 0:
        for position in range(top + 1):
            row = order[position]
            if not rows.kind[row] & POSTS or work.position[rows.partner[row]] < low:
                continue
            _touch(rows, pool, past, work, row)
            _open(rows, pool, work, row)
            for d in range(devices):
                if position <= work.current[d]:
                    posted = _done(order, past, work, position - 1, d) + rows.before[row, d]
                    if position < work.current[d] or posted < moment:
                        _post(rows, pool, work, row, d, posted, False)
    for d in range(devices):
        position = work.current[d]
        row = order[position]
        arrival = _done(order, past, work, position - 1, d)
        posted = arrival + rows.before[row, d]
        if changed > 0 and rows.kind[row] & WAITS and posted < moment:
            _touch(rows, pool, past, work, row)
            work.at[d], work.clock[d] = position, posted
            if work.left[rows.partner[row], d] == 0:
                _resume(order, rows, pool, past, work, d)
        else:
            _run(order, rows, pool, past, work, d, position, arrival)


@COMPILED
def _settled(order, rows, pool, past, work, passed, limit, ahead, now, then):  # type: ignore[no-untyped-def]
    """Is the state right before `now` that of the past right before `then`? All devices have passed a position.

    limit: the end of what is unchanged behind it; ahead: is there a change, before which all devices must then be?
    `work.current` is then where each device is.
    """
    delta = now - then
    low, top = order.shape[0], 0
    for d in range(work.at.shape[0]):
        position = passed + 1
        while position < limit:
            row = order[position]
            here = work.at[d] > position and work.done[row, d] < now
            if here != (past.done[row, d] + past.base[row] < then):
                return False
            if not here:
                break
            position += 1
        if position == limit and ahead:
            return False
        work.current[d] = position
        low, top = min(low, position), max(top, position)
        if position == order.shape[0]:
            continue
        row, before = order[position], order[position - 1]
        own = rows.before[row, d]
        posted = work.done[before, d] + own - now
        if max(posted, -1) != max(past.done[before, d] + past.base[before] + own - then, -1):
            return False
        arrived = posted < 0 and rows.kind[row] & WAITS and work.left[rows.partner[row], d] == 0
        if arrived and work.done[row, d] != past.done[row, d] + past.base[row] + delta:
            return False
    for position in range(min(top + 1, order.shape[0])):
        row = order[position]
        if not rows.kind[row] & POSTS or work.position[rows.partner[row]] < low or not work.touched[row]:
            continue
        task_at, kind_at = rows.task_at[row], pool.task_at[rows.pattern[row]]
        for t in range(pool.task_at[rows.pattern[row] + 1] - kind_at):
            if work.served[task_at + t]:
                length = pool.duration[kind_at + t]
                end = work.start[task_at + t] + length - now
                if max(end, -1) != max(past.start[task_at + t] + past.base[row] + length - then, -1):
                    return False
    return True


@COMPILED
def _merge(order, rows, pool, past, work, passed, delta):  # type: ignore[no-untyped-def]
    """After `_settled`: what is ahead is the past moved by `delta`."""
    n = order.shape[0]
    low, top = n, 0
    for d in range(work.at.shape[0]):
        low, top = min(low, work.current[d]), max(top, work.current[d])
    for position in range(passed + 1, min(top + 1, n)):
        row = order[position]
        if work.touched[row]:
            for d in range(work.at.shape[0]):
                if position >= work.current[d]:
                    work.done[row, d] = past.done[row, d] + past.base[row] + delta
    for position in range(min(top + 1, n)):
        row = order[position]
        if rows.kind[row] & POSTS and work.position[rows.partner[row]] >= low and work.touched[row]:
            task_at, pattern = rows.task_at[row], rows.pattern[row]
            for t in range(task_at, task_at + pool.task_at[pattern + 1] - pool.task_at[pattern]):
                if not work.served[t]:
                    work.start[t] = past.start[t] + past.base[row] + delta
    for position in range(top + 1, work.scalars[HIGH] + 1):
        work.touched[order[position]] = 0
    work.scalars[HIGH] = top
    work.shift[passed + 1 :] = delta


@COMPILED
def simulate(order, regions, rows, pool, past, work):  # type: ignore[no-untyped-def]
    """When the last device has done with the last row. Afterwards `work` has the times, as `Work` says.

    order: rows in the order of the program. regions: [begin, end) of the changed positions, ascending; a transfer that
    is changed, new or gone lies in one region, from its start to its finish. Rows without a past lie in regions.
    """
    n, devices = order.shape[0], work.at.shape[0]
    for position in range(n):
        work.position[order[position]] = position
        work.touched[order[position]] = 0
    work.shift[:n] = 0
    work.scalars[:] = 0
    region = 0
    while region < regions.shape[0] and n > 0:
        work.scalars[NEWEST] = -1
        _restore(order, rows, pool, past, work, min(regions[region, 0], n))
        candidate, now, then, settled = -1, 0, 0, False
        while work.scalars[QUEUED] > 0:
            if candidate >= 0 and work.queue[0, 0] >= now:
                following = region
                while following < regions.shape[0] and regions[following, 1] <= candidate:
                    following += 1
                ahead = following < regions.shape[0]
                limit = regions[following, 0] if ahead else n
                if candidate < limit and _settled(order, rows, pool, past, work, candidate, limit, ahead, now, then):
                    _merge(order, rows, pool, past, work, candidate, now - then)
                    region, settled = following, True
                    break
                candidate = -1
            _serve(order, rows, pool, past, work)
            newest = work.scalars[NEWEST]
            if candidate < 0 and newest >= regions[region, 1]:
                candidate, now, then = _candidate(order, past, work, newest)
                work.scalars[NEWEST] = -1
        if not settled:
            break
    makespan = 0
    for d in range(devices):
        makespan = max(makespan, _done(order, past, work, n - 1, d))
    return makespan


@COMPILED
def _candidate(order, past, work, position):  # type: ignore[no-untyped-def]
    """(position, now, then) if all devices have passed the position by the same time later than before, else -1."""
    row = order[position]
    if work.fresh[row]:
        return -1, 0, 0
    later = work.done[row, 0] - past.done[row, 0] - past.base[row]
    now = 0
    for d in range(work.at.shape[0]):
        if work.done[row, d] - past.done[row, d] - past.base[row] != later:
            return -1, 0, 0
        now = max(now, work.done[row, d] + 1)
    return position, now, now - later


@COMPILED
def commit(order, rows, pool, past, work):  # type: ignore[no-untyped-def]
    """The simulated times become the past."""
    for position in range(order.shape[0]):
        row = order[position]
        if not work.touched[row]:
            past.base[row] += work.shift[position]
            continue
        past.base[row] = 0
        work.fresh[row] = 0
        for d in range(work.at.shape[0]):
            past.done[row, d] = work.done[row, d]
        if rows.kind[row] & POSTS:
            task_at, pattern = rows.task_at[row], rows.pattern[row]
            for t in range(task_at, task_at + pool.task_at[pattern + 1] - pool.task_at[pattern]):
                past.start[t] = work.start[t]
