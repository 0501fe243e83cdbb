"""What devices do: they go on from row to row, post messages, and wait for those that they send and receive."""

from __future__ import annotations

import numpy as np

from girih.simulate.kernels.arrays import BEGUN, COMPILED, EVENTS, HIGH, NEWEST, POSTS, RAN, TASK_BITS, WAITS
from girih.simulate.kernels.ports import line_up, push


@COMPILED
def done_at(order, past, work, position, device):  # type: ignore[no-untyped-def]
    """When a device has done with the row at a position, as far as it is known."""
    if position < 0:
        return 0
    row = order[position]
    if work.touched[row]:
        return work.done[row, device]
    return past.done[row, device] + past.base[row] + work.shift[position]


@COMPILED
def clear(rows, pool, work, row):  # type: ignore[no-untyped-def]
    """A posting row before anyone has posted."""
    pattern = rows.pattern[row]
    gates = pool.gate_at[pattern + 1] - pool.gate_at[pattern]
    tasks = pool.task_at[pattern + 1] - pool.task_at[pattern]
    members, gate_at, task_at = pool.gate_at[pattern], rows.gate_at[row], rows.task_at[row]
    for g in range(gates):
        work.gate_left[gate_at + g] = pool.members[members + g]
        work.gate_latest[gate_at + g] = 0
    for t in range(tasks):
        work.begun[task_at + t] = 0
    for d in range(work.at.shape[0]):
        work.left[row, d] = pool.waits[pattern, d]
        work.latest[row, d] = 0


@COMPILED
def touch(rows, pool, past, work, row):  # type: ignore[no-untyped-def]
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
        clear(rows, pool, work, row)


@COMPILED
def begin(rows, pool, work, row, t):  # type: ignore[no-untyped-def]
    """A task begins at its `start`: those who wait for it know when it ends. When its ports are free again."""
    task, kind = rows.task_at[row] + t, pool.task_at[rows.pattern[row]] + t
    end = work.start[task] + pool.duration[kind]
    work.begun[task] = 1
    for device, moment in ((pool.sender[kind], end), (pool.receiver[kind], end + pool.delay[kind])):
        if device >= 0:
            work.left[row, device] -= 1
            work.latest[row, device] = max(work.latest[row, device], moment)
    return end


@COMPILED
def _recorded(order, rows, pool, work, row, t, moment):  # type: ignore[no-untyped-def]
    """A task that was ready before a moment: it has begun, as recorded in `start`, or it stands in line."""
    number = (np.int64(work.position[row]) << TASK_BITS) | t
    task = rows.task_at[row] + t
    if work.start[task] >= moment:
        line_up(order, rows, pool, work, number)
        return
    end = begin(rows, pool, work, row, t)
    if end >= moment:
        kind = pool.task_at[rows.pattern[row]] + t
        if pool.egress[kind] >= 0:
            work.free[pool.egress[kind]] = end
        work.free[pool.ingress[kind]] = end
        push(work.events, work.scalars, EVENTS, end, -1 - number)


@COMPILED
def post(order, rows, pool, work, row, device, time, moment):  # type: ignore[no-untyped-def]
    """A device posts at its gates. Tasks that become ready are queued, in runs of those that are ready together.

    moment: if it is not negative, this is before it, and is not simulated but restored (`_recorded`).
    """
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
            if moment >= 0:
                _recorded(order, rows, pool, work, row, t, moment)
            elif run >= 0 and latest == ready:
                work.follow[task_at + run] = t
                run = t
            else:
                if run >= 0:
                    work.follow[task_at + run] = -1
                push(work.events, work.scalars, EVENTS, latest, (np.int64(work.position[row]) << TASK_BITS) | t)
                run, ready = t, latest
    if run >= 0:
        work.follow[task_at + run] = -1


@COMPILED
def _finish(work, row, position, device, time):  # type: ignore[no-untyped-def]
    work.done[row, device] = time
    work.completed[row] += 1
    if work.completed[row] == work.at.shape[0]:
        work.scalars[NEWEST] = position
    work.scalars[RAN] += 1


@COMPILED
def run(order, rows, pool, past, work, device, position, time):  # type: ignore[no-untyped-def]
    """A device goes on from the beginning of a row until it has to wait."""
    while position < order.shape[0]:
        row = order[position]
        touch(rows, pool, past, work, row)
        kind = rows.kind[row]
        time += rows.before[row, device]
        if kind & POSTS:
            post(order, rows, pool, work, row, device, time, -1)
        if kind & WAITS:
            posting = rows.partner[row]
            if work.left[posting, device] > 0:
                break
            time = max(time, work.latest[posting, device]) + rows.after[row, device]
        _finish(work, row, position, device, time)
        position += 1
    work.at[device] = position
    work.clock[device] = time


@COMPILED
def resume(order, rows, pool, past, work, device):  # type: ignore[no-untyped-def]
    """A device whose messages have all begun goes on behind its wait."""
    position = work.at[device]
    row = order[position]
    time = max(work.clock[device], work.latest[rows.partner[row], device]) + rows.after[row, device]
    _finish(work, row, position, device, time)
    run(order, rows, pool, past, work, device, position + 1, time)


@COMPILED
def serve(order, rows, pool, past, work, number, now):  # type: ignore[no-untyped-def]
    """A task begins; devices that waited for nothing else go on."""
    row, t = order[number >> TASK_BITS], number & ((1 << TASK_BITS) - 1)
    work.start[rows.task_at[row] + t] = now
    work.scalars[BEGUN] += 1
    end = begin(rows, pool, work, row, t)
    kind = pool.task_at[rows.pattern[row]] + t
    entry = rows.release[row]
    while entry >= 0:
        follower = rows.releases[entry, 0]
        touch(rows, pool, past, work, follower)
        post(order, rows, pool, work, follower, pool.receiver[kind], end, -1)
        entry = rows.releases[entry, 1]
    waiting = work.position[rows.partner[row]]
    for device in (pool.sender[kind], pool.receiver[kind]):
        if device >= 0 and work.left[row, device] == 0 and work.at[device] == waiting:
            resume(order, rows, pool, past, work, device)
