"""The compiled loops of `girih.program.overlap`: in which slots transfers start and finish, and the order of all steps.

They walk the columns of a program without overlap (`girih.program.table`), of which compute steps and transfers count.
Slot k lies before the k-th compute step. A move is a route: transfers of one purpose of which each goes on from the one
before. Nothing here knows of names, so that programs that are composed of known pieces (`girih.search.composed`) find
their order without being written down.
"""

from __future__ import annotations

import numpy as np

from girih.layout.compiled import compiled, inside
from girih.program.table import COMPUTE, FETCH, STORE


@inside()
def _slots(table):  # type: ignore[no-untyped-def]
    """(the rows of compute steps, the rows of transfers; of each move its slot, and its first transfer, with their
    number at the end)."""
    count = len(table.kind)
    computes, hops = np.empty(count, np.int64), np.empty(count, np.int64)
    slot, first = np.empty(count, np.int64), np.zeros(count + 1, np.int64)
    slots, moves, transfers, before = 0, 0, 0, -1
    for row in range(count):
        if table.kind[row] == COMPUTE:
            computes[slots] = row
            slots += 1
            before = -1
        elif table.kind[row] == FETCH or table.kind[row] == STORE:
            goes_on = before >= 0 and table.kind[before] == table.kind[row]
            if not goes_on or table.writes[table.write_starts[before]] != table.reads[table.read_starts[row]]:
                slot[moves], first[moves] = slots, transfers
                moves += 1
            hops[transfers] = row
            transfers += 1
            before = row
    first[moves] = transfers
    return computes[:slots], hops[:transfers], slot[:moves], first[: moves + 1]


@inside()
def _left(work, wanted, low, high):  # type: ignore[no-untyped-def]
    """The first place in [low, high) of what is at least as large; high if none is."""
    while low < high:
        middle = (low + high) // 2
        if work[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@inside()
def _right(work, wanted, low, high):  # type: ignore[no-untyped-def]
    """The first place in [low, high) of what is larger; high if nothing is."""
    while low < high:
        middle = (low + high) // 2
        if wanted < work[middle]:
            high = middle
        else:
            low = middle + 1
    return low


@inside()
def _uses(table, works, computes, hops, slot, first, fetch):  # type: ignore[no-untyped-def]
    """For each buffer the slots in which it is read, each with the window that the reader itself would have."""
    starts = np.zeros(table.buffers + 1, np.int64)
    for row in computes:
        for place in range(table.read_starts[row], table.read_starts[row + 1]):
            starts[table.reads[place] + 1] += 1
    for move in range(len(slot)):
        row = hops[first[move]]
        if table.kind[row] == FETCH:
            starts[table.reads[table.read_starts[row]] + 1] += 1
    starts = np.cumsum(starts)
    filled = starts.copy()
    use, window = np.empty(starts[-1], np.int64), np.zeros(starts[-1], np.int64)
    for number in range(len(computes)):
        row = computes[number]
        for place in range(table.read_starts[row], table.read_starts[row + 1]):
            buffer = table.reads[place]
            use[filled[buffer]] = number
            filled[buffer] += 1
    for move in range(len(slot)):
        row = hops[first[move]]
        if table.kind[row] == FETCH:
            buffer = table.reads[table.read_starts[row]]
            use[filled[buffer]] = slot[move]
            for hop in range(first[move], first[move + 1]):
                if works[hops[hop]]:
                    window[filled[buffer]] = fetch
            filled[buffer] += 1
    return starts, use, window


@compiled(lambda table, *_: 20 * len(table.kind), nogil=True)
def windows(table, works, fetch, store):  # type: ignore[no-untyped-def]
    """(the slot in which each transfer starts, in which it finishes): [rows]. works: does a step do any work, does a
    transfer exchange anything? [rows]."""
    computes, hops, move_slot, first = _slots(table)
    slots, moves = len(computes), len(move_slot)
    work = np.zeros(slots + 1, np.int64)
    for number in range(slots):
        work[number + 1] = work[number] + works[computes[number]]
    begin, end = np.zeros(len(table.kind), np.int64), np.zeros(len(table.kind), np.int64)
    ready = np.zeros(table.buffers, np.int64)
    for number in range(slots):
        row = computes[number]
        for place in range(table.write_starts[row], table.write_starts[row + 1]):
            ready[table.writes[place]] = number + 1
    starts, use, window = _uses(table, works, computes, hops, move_slot, first, fetch)
    for move in range(moves):  # stores start as soon as the value is made, and finish late
        if table.kind[hops[first[move]]] != STORE:
            continue
        slot, count = move_slot[move], first[move + 1] - first[move]
        last = _left(work, work[slot] + store, slot, slots)
        goal = table.writes[table.write_starts[hops[first[move + 1] - 1]]]
        for place in range(starts[goal], starts[goal + 1]):
            wanted = work[use[place]] - min(window[place], (work[use[place]] - work[slot]) // 2)
            last = min(last, max(slot, _right(work, wanted, slot, use[place] + 1) - 1))
        for hop in range(count):
            row = hops[first[move] + hop]
            share = -(-(work[last] - work[slot]) // (count - hop))
            finish = _left(work, work[slot] + share, slot, last) if works[row] else slot
            if work[finish] == work[slot]:
                finish = slot
            begin[row], end[row] = slot, finish
            slot = finish
        ready[goal] = slot
    for move in range(moves):  # fetches finish right before the use, and start early
        if table.kind[hops[first[move]]] != FETCH:
            continue
        slot = move_slot[move]
        source = table.reads[table.read_starts[hops[first[move]]]]
        earliest = max(ready[source], _right(work, work[slot] - fetch, 0, slot + 1) - 1)
        for left in range(first[move + 1] - first[move], 0, -1):
            row = hops[first[move] + left - 1]
            share = -(-(work[slot] - work[earliest]) // left)
            start = _right(work, work[slot] - share, earliest, slot + 1) - 1 if works[row] else slot
            if work[start] == work[slot]:
                start = slot
            begin[row], end[row] = start, slot
            slot = start
    return begin, end


@inside()
def _by_slot(rows, of, slots):  # type: ignore[no-untyped-def]
    """The rows by the slot, 0 to `slots`, that each has in `of`; those of one slot as they were. It counts: Numba's
    argsort takes a second to compile."""
    places = np.zeros(slots + 2, np.int64)
    for row in rows:
        places[of[row] + 1] += 1
    for slot in range(slots + 1):
        places[slot + 1] += places[slot]
    ordered = np.empty(len(rows), np.int64)
    for row in rows:
        ordered[places[of[row]]] = row
        places[of[row]] += 1
    return ordered


@compiled(lambda table, *_: 20 * len(table.kind), nogil=True)
def ordered(table, works, entering, begin, end):  # type: ignore[no-untyped-def]
    """(is it the start of a transfer, its row) of all compute steps and transfers, in the order of slots. entering: the
    buffers that are there from the start."""
    computes, hops, _, _ = _slots(table)
    slots, transfers = len(computes), len(hops)
    waiting = _by_slot(hops, end, slots)
    starting = _by_slot(waiting, begin, slots)
    begun, waited = 0, 0
    written = np.zeros(table.buffers, np.bool_)
    written[entering] = True
    starts, rows = np.zeros(slots + 2 * transfers, np.bool_), np.empty(slots + 2 * transfers, np.int64)
    queue = np.empty(transfers, np.int64)
    count = 0
    for slot in range(slots + 1):
        queued = 0
        while begun < transfers and begin[starting[begun]] == slot:
            if end[starting[begun]] > slot:
                queue[queued] = starting[begun]
                queued += 1
            begun += 1
        after, place = waited, waited  # what is needed at once and stays whole goes first
        while place < transfers and end[waiting[place]] == slot:
            place += 1
            if works[waiting[place - 1]] and begin[waiting[place - 1]] == slot:
                after = place
        for turn in range(waited, place + 1):
            if turn >= after or turn == place:
                left = 0
                for row in queue[:queued]:
                    if written[table.reads[table.read_starts[row]]]:
                        starts[count], rows[count] = True, row
                        count += 1
                    else:
                        queue[left] = row
                        left += 1
                queued = left
            if turn < place:
                rows[count] = waiting[turn]
                count += 1
                written[table.writes[table.write_starts[waiting[turn]]]] = True
        assert queued == 0, "a source is made after its exchange starts"
        waited = place
        if slot < slots:
            rows[count] = computes[slot]
            count += 1
            for place in range(table.write_starts[computes[slot]], table.write_starts[computes[slot] + 1]):
                written[table.writes[place]] = True
    return starts[:count], rows[:count]
