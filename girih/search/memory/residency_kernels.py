"""The loops of `girih.search.memory.belady`: which storage leaves when, and when copies into the device begin.

A stay is a row of numbers, with the columns STORAGE, START, FIRST, LAST, FRESH, COPIED, LASTS of `Stay`.
Cost: of `planned` O(touches · log touches), of `prefetched` O(stays · steps that are looked at).
"""

from __future__ import annotations

import numpy as np

from girih.layout.compiled import compiled, inside
from girih.program.life.touches import Touches
from girih.program.table import Integers


@inside()
def _before(queue, one, two):  # type: ignore[no-untyped-def]
    """Is one entry less than another?"""
    for column in range(3):
        if queue[one, column] != queue[two, column]:
            return queue[one, column] < queue[two, column]
    return False


@inside()
def _swap(queue, one, two):  # type: ignore[no-untyped-def]
    for column in range(3):
        queue[one, column], queue[two, column] = queue[two, column], queue[one, column]


@inside()
def _push(queue, count, rank, storage, step):  # type: ignore[no-untyped-def]
    """Onto the heap of `count` entries."""
    queue[count, 0], queue[count, 1], queue[count, 2] = rank, storage, step
    at = count
    while at > 0 and _before(queue, at, (at - 1) // 2):
        _swap(queue, at, (at - 1) // 2)
        at = (at - 1) // 2
    return count + 1


@inside()
def _pop(queue, count):  # type: ignore[no-untyped-def]
    """Take the least off the heap of `count` entries: it lies behind the others then."""
    count -= 1
    _swap(queue, 0, count)
    at = 0
    while True:
        least = at
        for child in (2 * at + 1, 2 * at + 2):
            if child < count and _before(queue, child, least):
                least = child
        if least == at:
            return count
        _swap(queue, at, least)
        at = least


@inside()
def _next_use(touches, end, storage, step):  # type: ignore[no-untyped-def]
    """The position of the step that touches a storage next; of new state, in the next application."""
    low, high = touches.starts[storage], touches.starts[storage + 1]
    stop = high
    while low < high:
        middle = (low + high) // 2
        if touches.steps[middle] < step:
            low = middle + 1
        else:
            high = middle
    if low < stop:
        return touches.steps[low]
    old = touches.old[storage]
    if old < 0:
        return end
    for at in range(touches.starts[old], touches.starts[old + 1]):
        if touches.steps[at] >= 0:
            return end + touches.steps[at]
    return 2 * end


def _turns(touches: Touches, *_: object) -> float:
    return 100.0 * len(touches.of_step)  # each goes in and out of the queue, and some several times


@compiled(_turns)
def planned(touches, cap, clock, recent, lru, home, forever):  # type: ignore[no-untyped-def]
    """(stays by start and storage, which state had to leave though it is not at home in the large memory, the first
    step for which there is no room or -1, bytes that it would need).

    home: of each storage, is it state that lies in the large memory between applications? forever: new state may stay
    on the device at the end nevertheless. clock: seconds before each step. recent, lru: as of `belady`.
    """
    count, end = len(touches.bytes), len(touches.extra) - 1
    size = touches.bytes
    most = 2 * len(touches.steps) + 2 * count + 4
    queue, queued = np.empty((most, 3), np.int64), 0
    kept, late = np.empty((most, 3), np.int64), np.empty((most, 3), np.int64)
    going, chosen = np.empty((count, 3), np.int64), np.zeros(count, np.bool_)
    stays, number = np.zeros((len(touches.steps) + 2 * count + 1, 7), np.int64), 0
    present = np.full(count, -1, np.int64)  # the stay of each storage that is on the device
    last_use = np.empty(count, np.int64)
    copied, leaving, at_end = np.zeros(count, np.bool_), np.zeros(count, np.bool_), touches.lasts.copy()
    driven, wanted = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    ending = np.empty(count, np.int64)
    bytes_held = 0
    for storage in range(count):
        last_use[storage] = touches.steps[touches.starts[storage + 1] - 1]
        is_new, is_old = touches.old[storage] >= 0, touches.new[storage] >= 0
        copied[storage] = home[storage] and is_old
        leaving[storage] = home[storage] and is_new and not forever
        if leaving[storage] or (home[storage] and is_old and not is_new):
            at_end[storage] = False
    for step in range(-1, end + 1):
        if step < 0:
            ends = 0
            for storage in range(count):
                if touches.steps[touches.starts[storage]] == -1 and not copied[storage]:
                    present[storage] = number
                    stays[number, 0], stays[number, 1:4], stays[number, 4] = storage, -1, 1
                    number += 1
                    rank = -1 if lru else -_next_use(touches, end, storage, 0)
                    queued = _push(queue, queued, rank, storage, -1)
                    bytes_held += size[storage]
                    if touches.old[storage] < 0 and touches.new[storage] < 0:
                        ending[ends] = storage
                        ends += 1
            needed = 0
        elif step < end:
            begin, ends = touches.step_starts[step], touches.step_starts[step + 1] - touches.step_starts[step]
            ending[:ends] = touches.of_step[begin : begin + ends]
            needed = touches.extra[step]
        else:
            ends = 0
            for storage in range(count):
                is_new = touches.old[storage] >= 0
                if at_end[storage] and not (is_new and (forever or present[storage] >= 0)):
                    ending[ends] = storage
                    ends += 1
            needed = touches.extra[step]
        for at in range(ends):
            wanted[ending[at]] = True
            if step >= 0 and present[ending[at]] < 0:
                needed += size[ending[at]]

        # Room: what is needed again last leaves, of what was not touched lately.
        keeping, waiting, first_late, gone = 0, 0, 0, 0
        missing = bytes_held + needed - cap
        while missing > 0 and (queued > 0 or first_late < waiting):
            if queued > 0:
                queued = _pop(queue, queued)
                rank, storage, touched = queue[queued, 0], queue[queued, 1], queue[queued, 2]
            else:
                rank, storage, touched = late[first_late, 0], late[first_late, 1], late[first_late, 2]
                first_late += 1
            stay = present[storage]
            if stay < 0 or stays[stay, 3] != touched or chosen[storage]:
                continue
            if wanted[storage] or not touches.movable[storage]:
                kept[keeping, 0], kept[keeping, 1], kept[keeping, 2] = rank, storage, touched
                keeping += 1
            elif queued > 0 and clock[max(step, 0)] - clock[touched + 1] < recent:
                late[waiting, 0], late[waiting, 1], late[waiting, 2] = rank, storage, touched
                waiting += 1
            else:
                going[gone, 0], going[gone, 1], going[gone, 2] = rank, storage, touched
                chosen[storage] = True
                gone += 1
                missing -= size[storage]
        for back in range(gone - 1, -1, -1):  # without some of them the others leave enough
            storage = going[back, 1]
            chosen[storage] = False
            if missing + size[storage] <= 0:
                missing += size[storage]
                kept[keeping, 0], kept[keeping, 1], kept[keeping, 2] = going[back, 0], storage, going[back, 2]
                keeping += 1
                continue
            stay = present[storage]
            old, new = touches.old[storage], touches.new[storage]
            if not home[storage]:
                # Would it be in the large memory between applications? Old state that was used and is used again is
                # not: it comes back before it is replaced. What nothing replaces has to come back under its own name.
                if old == storage:
                    driven[storage] = True
                elif new >= 0:
                    driven[storage] = driven[storage] or stays[stay, 3] == -1
                elif old >= 0:
                    driven[storage] = driven[storage] or stays[stay, 3] == last_use[storage]
            bytes_held -= size[storage]
            stays[stay, 5] = not copied[storage]
            copied[storage] = True
            present[storage] = -1
        for at in range(keeping):
            queued = _push(queue, queued, kept[at, 0], kept[at, 1], kept[at, 2])
        for at in range(first_late, waiting):
            queued = _push(queue, queued, late[at, 0], late[at, 1], late[at, 2])
        if bytes_held + needed > cap:
            return stays[:0], driven, step, bytes_held + needed

        for at in range(ends if step >= 0 else 0):
            storage = ending[at]
            if present[storage] < 0:
                present[storage] = number
                stays[number, 0], stays[number, 1:4] = storage, step
                stays[number, 4] = touches.steps[touches.starts[storage]] == step
                number += 1
                rank = step if lru else -_next_use(touches, end, storage, step + 1)
                queued = _push(queue, queued, rank, storage, step)
                bytes_held += size[storage]
        for at in range(ends):
            storage = ending[at]
            wanted[storage] = False
            if step >= 0:
                stays[present[storage], 3] = step
                rank = step if lru else -_next_use(touches, end, storage, step + 1)
                queued = _push(queue, queued, rank, storage, step)
        for at in range(ends if step >= 0 else 0):
            storage = ending[at]
            if step == last_use[storage] and not at_end[storage]:
                bytes_held -= size[storage]
                stays[present[storage], 5] = leaving[storage] and not copied[storage]
                copied[storage] = copied[storage] or leaving[storage]
                present[storage] = -1
    for storage in range(count):
        if present[storage] >= 0:
            stays[present[storage], 6] = 1
    return stays[:number], driven, -1, 0


def _stays(touches: Touches, stays: Integers, *_: object) -> float:
    return 30.0 * len(stays) + len(touches.extra)


@compiled(_stays)
def prefetched(touches, stays, by_first, by_last, by_need, cap, home, clock, rate_out, rate_in):  # type: ignore[no-untyped-def]
    """Stays with copies into the device as early as there is room, those first that are needed first.

    What is copied out takes room until it has left. Where that is too long for a copy in to arrive in time, it begins
    when it must, and takes over what copies out leave. by_first, by_last, by_need: the numbers of the stays by FIRST
    and LAST, by LAST, and by FIRST from the last on.
    """
    count, end, size = len(stays), len(touches.extra) - 1, touches.bytes
    change = np.zeros(end + 2, np.int64)
    gone = np.zeros(count, np.int64)  # the step before which what is copied out has left: copies follow each other
    away = np.zeros(count, np.bool_)
    leaving = np.zeros(end + 2, np.int64)
    for stay in range(count):
        bytes_of = size[stays[stay, 0]]
        change[max(stays[stay, 1], 0)] += bytes_of
        change[(end if stays[stay, 6] else stays[stay, 3]) + 1] -= bytes_of
    moment = 0.0
    for at in range(count):
        stay = by_last[at]
        if stays[stay, 5]:
            bytes_of, after = size[stays[stay, 0]], stays[stay, 3] + 1
            moment = max(moment, clock[after]) + bytes_of / rate_out
            gone[stay], away[stay] = np.searchsorted(clock, moment), True
            if after < gone[stay]:
                leaving[min(after, end + 1)] += bytes_of
                leaving[min(gone[stay], end + 1)] -= bytes_of
    latest = np.zeros(count, np.int64)  # the step before which a copy in must begin, so that all come in time
    begin = np.inf
    for at in range(count):
        stay = by_need[at]
        if not stays[stay, 4]:
            begin = min(begin, clock[stays[stay, 2]]) - size[stays[stay, 0]] / rate_in
            latest[stay] = max(np.searchsorted(clock, begin, "right") - 1, 0)
    used = np.cumsum(change)[: end + 1] + touches.extra
    busy = used + np.cumsum(leaving)[: end + 1]  # with what has not left yet

    result, number = stays.copy(), 0
    newest = np.full(len(size), -1, np.int64)  # the last stay of each storage so far
    goes, until_of = np.zeros(count, np.bool_), np.zeros(count, np.int64)
    for at in range(count):
        stay = by_first[at]
        storage, first, fresh = stays[stay, 0], stays[stay, 2], stays[stay, 4]
        bytes_of, mine = size[storage], newest[storage]
        start = stays[stay, 1]
        if not fresh:
            earliest = result[mine, 3] + 1 if mine >= 0 else 0
            room = _behind_full(used, earliest, first, bytes_of, cap)
            if mine >= 0 and room <= earliest:  # there is room for it to stay
                start = earliest
                if goes[mine]:
                    for step in range(start, min(until_of[mine], end + 1)):
                        busy[step] -= bytes_of
                result[mine, 3], result[mine, 6] = stays[stay, 3], stays[stay, 6]
                result[mine, 5] = stays[stay, 5] or result[mine, 5]
                goes[mine], until_of[mine] = True, gone[stay] if away[stay] else 0
            else:
                safe = _behind_full(busy, earliest, first, bytes_of, cap)
                start = max(room, min(safe, latest[stay]), earliest)
                mine = -1
            for step in range(start, first):
                used[step] += bytes_of
                busy[step] += bytes_of
        else:
            mine = -1
        if mine < 0:
            for column in range(7):
                result[number, column] = stays[stay, column]
            result[number, 1] = start
            goes[number], until_of[number] = away[stay], gone[stay]
            newest[storage] = number
            number += 1
    for storage in range(len(size)):
        if newest[storage] >= 0 and not home[storage]:
            result[newest[storage], 5] = 0  # it does not come back
    return result[:number]


@inside()
def _behind_full(amount, begin, end, size, cap):  # type: ignore[no-untyped-def]
    """The step from `begin` to `end` from which on there is room for this size up to `end`."""
    for step in range(end - 1, begin - 1, -1):
        if amount[step] + size > cap:
            return step + 1
    return begin
