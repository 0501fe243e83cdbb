"""The simulation's loops, compiled where there is much to simulate.

`simulate` runs the events of a task graph in order of time, from one changed region of its rows to the next. A full
simulation is the case of one region that holds everything; FlexFlow's delta simulation (§3.4.3) is the case of an
earlier schedule (`Past`) and small regions.

Devices run ahead on their own until they wait for messages (`device_kernels`); messages begin in the order of time
(`port_kernels`). Since a message takes at least a tick, what becomes ready because of it is ready later.

How a change ends early, exactly. Times are whole numbers, and all that happens from a moment on follows from the state
at that moment: where each device is in its work and when it will have done with what it is doing; which messages are
under way and when they end; which stand in line. (In which order follows from the program.) What is past has no
influence. If at a moment the state is what it was in the earlier schedule at a moment `delta` before, and no change
lies ahead, the rest is the earlier schedule moved by `delta`: to the last bit. If a change lies ahead, the state right
before it follows from the moved schedule, and the simulation goes on from there. `_restore` makes a state from a
schedule, `_settled` compares states, `_merge` takes over the rest.

Cost: O(tasks that are re-simulated · (log queue + those in line)) and O(rows) for bookkeeping.
"""

from __future__ import annotations

import numpy as np

from girih.simulate.kernels.arrays import COMPILED, EVENTS, HIGH, NEWEST, POSTS, RESTORED, SPARE, STANDS, WAITS, WHOLE
from girih.simulate.kernels.devices import clear, done_at, post, resume, run, serve, touch
from girih.simulate.kernels.ports import gather, next_choice


@COMPILED
def _restore(order, rows, pool, past, work, changed):  # type: ignore[no-untyped-def]
    """The state right before the earliest time at which any device arrives at the changed position, and go on.

    Times before that are final: they are in `work` or in the moved past.
    """
    devices = work.at.shape[0]
    moment = np.iinfo(np.int64).max
    for d in range(devices):
        moment = min(moment, done_at(order, past, work, changed - 1, d))
    low, top = order.shape[0], 0
    for d in range(devices):
        position = max(changed - 1, 0)
        while position > 0 and done_at(order, past, work, position - 1, d) >= moment:
            position -= 1
        work.current[d] = position
        low, top = min(low, position), max(top, position)
    work.free[:] = 0
    work.first[:] = -1
    work.last[:] = -1
    work.hint[:] = -1
    work.seen[:] = -1
    work.at[:] = -1
    work.scalars[EVENTS] = 0
    work.scalars[SPARE] = 0
    work.scalars[STANDS] = 0
    work.scalars[RESTORED] += 1
    if changed > 0:
        for position in range(top + 1):
            row = order[position]
            if not rows.kind[row] & POSTS or work.position[rows.partner[row]] < low:
                continue
            touch(rows, pool, past, work, row)
            clear(rows, pool, work, row)
            for d in range(devices):
                if position <= work.current[d]:
                    posted = done_at(order, past, work, position - 1, d) + rows.before[row, d]
                    if position < work.current[d] or posted < moment:
                        post(order, rows, pool, work, row, d, posted, moment)
    for d in range(devices):
        position = work.current[d]
        row = order[position]
        arrival = done_at(order, past, work, position - 1, d)
        posted = arrival + rows.before[row, d]
        if changed > 0 and rows.kind[row] & WAITS and posted < moment:
            touch(rows, pool, past, work, row)
            work.at[d], work.clock[d] = position, posted
            if work.left[rows.partner[row], d] == 0:
                resume(order, rows, pool, past, work, d)
        else:
            run(order, rows, pool, past, work, d, position, arrival)


@COMPILED
def _settled(order, rows, pool, past, work, passed, limit, ahead, now, then):  # type: ignore[no-untyped-def]
    """Is the state right before `now` that of the past right before `then`? All devices have passed a position.

    limit: the end of what is unchanged behind it; ahead: is there a change, before which all devices must then be?
    `work.current` is then where each device is.
    """
    n, delta = order.shape[0], now - then
    low, top = n, 0
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
        if position == n:
            continue
        row, before = order[position], order[position - 1]
        own = rows.before[row, d]
        posted = work.done[before, d] + own - now
        if max(posted, -1) != max(past.done[before, d] + past.base[before] + own - then, -1):
            return False
        arrived = posted < 0 and rows.kind[row] & WAITS and work.left[rows.partner[row], d] == 0
        if arrived and work.done[row, d] != past.done[row, d] + past.base[row] + delta:
            return False
    for position in range(min(top + 1, n)):
        row = order[position]
        if not rows.kind[row] & POSTS or work.position[rows.partner[row]] < low or not work.touched[row]:
            continue
        # Gates open for the same tasks before both moments, because devices have posted alike.
        task_at, kind_at = rows.task_at[row], pool.task_at[rows.pattern[row]]
        for t in range(pool.task_at[rows.pattern[row] + 1] - kind_at):
            task = task_at + t
            start = past.start[task] + past.base[row]
            if work.begun[task]:
                length = pool.duration[kind_at + t] + pool.delay[kind_at + t]
                if start >= then or max(work.start[task] + length - now, -1) != max(start + length - then, -1):
                    return False
            elif start < then:
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
                if not work.begun[t]:
                    work.start[t] = past.start[t] + past.base[row] + delta
    for position in range(top + 1, work.scalars[HIGH] + 1):
        work.touched[order[position]] = 0
    work.scalars[HIGH] = top
    work.shift[passed + 1 :] = delta


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


@WHOLE
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
        while work.scalars[EVENTS] > 0:
            if candidate >= 0 and work.events[0, 0] >= now:
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
            moment = gather(order, rows, pool, work)
            number = next_choice(order, rows, pool, work, moment)
            while number >= 0:
                serve(order, rows, pool, past, work, number, moment)
                number = next_choice(order, rows, pool, work, moment)
            newest = work.scalars[NEWEST]
            if candidate < 0 and newest >= regions[region, 1]:
                candidate, now, then = _candidate(order, past, work, newest)
                work.scalars[NEWEST] = -1
        if not settled:
            break
    makespan = 0
    for d in range(devices):
        makespan = max(makespan, done_at(order, past, work, n - 1, d))
    return makespan


@WHOLE
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
