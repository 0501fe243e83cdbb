"""The compiled loops of `girih.program.overlap`: in which slots transfers start and finish, and the order of all steps.

Slot k lies before the k-th compute step. Buffers are numbers. Nothing here knows of names, so that programs that are
composed of known pieces (`girih.search.composed`) find their order without being written down.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from girih.layout.compiled import compiled, inside

Ints = NDArray[np.int64]
Flags = NDArray[np.uint8]
COMPUTE, START, TRANSFER = 0, 1, 2


class Outline(NamedTuple):
    """A program without overlap, for the loops.

    works: of each compute step, does it do work? reads_from, reads and writes_from, writes: of each compute step where
    its buffers begin, and the buffers. slot, store: of each move (a route of transfers of which each goes on from the
    one before), where lowering has put it, and whether it is a store. first: of each move its first transfer, and their
    number at the end. remote, source, target: of each transfer, does it exchange anything, and its buffers. entering:
    the buffers that are there from the start. buffers: how many there are.
    """

    works: Flags
    reads_from: Ints
    reads: Ints
    writes_from: Ints
    writes: Ints
    slot: Ints
    store: Flags
    first: Ints
    remote: Flags
    source: Ints
    target: Ints
    entering: Ints
    buffers: int


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
def _uses(outline, fetch):  # type: ignore[no-untyped-def]
    """For each buffer the slots in which it is read, each with the window that the reader itself would have."""
    moves, slots = len(outline.slot), len(outline.works)
    starts = np.zeros(outline.buffers + 1, np.int64)
    for place in range(len(outline.reads)):
        starts[outline.reads[place] + 1] += 1
    for move in range(moves):
        if not outline.store[move]:
            starts[outline.source[outline.first[move]] + 1] += 1
    starts = np.cumsum(starts)
    filled = starts.copy()
    use, window = np.empty(starts[-1], np.int64), np.zeros(starts[-1], np.int64)
    for slot in range(slots):
        for place in range(outline.reads_from[slot], outline.reads_from[slot + 1]):
            buffer = outline.reads[place]
            use[filled[buffer]] = slot
            filled[buffer] += 1
    for move in range(moves):
        if not outline.store[move]:
            buffer = outline.source[outline.first[move]]
            use[filled[buffer]] = outline.slot[move]
            for hop in range(outline.first[move], outline.first[move + 1]):
                if outline.remote[hop]:
                    window[filled[buffer]] = fetch
            filled[buffer] += 1
    return starts, use, window


@compiled(lambda outline, *_: 20 * (len(outline.works) + len(outline.remote)), nogil=True)
def windows(outline, fetch, store):  # type: ignore[no-untyped-def]
    """(the slot in which each transfer starts, in which it finishes)."""
    slots, transfers = len(outline.works), len(outline.remote)
    work = np.zeros(slots + 1, np.int64)
    for slot in range(slots):
        work[slot + 1] = work[slot] + outline.works[slot]
    begin, end = np.zeros(transfers, np.int64), np.zeros(transfers, np.int64)
    ready = np.zeros(outline.buffers, np.int64)
    for slot in range(slots):
        for place in range(outline.writes_from[slot], outline.writes_from[slot + 1]):
            ready[outline.writes[place]] = slot + 1
    starts, use, window = _uses(outline, fetch)
    for move in range(len(outline.slot)):  # stores start as soon as the value is made, and finish late
        if not outline.store[move]:
            continue
        slot, hops = outline.slot[move], outline.first[move + 1] - outline.first[move]
        last = _left(work, work[slot] + store, slot, slots)
        goal = outline.target[outline.first[move + 1] - 1]
        for place in range(starts[goal], starts[goal + 1]):
            wanted = work[use[place]] - min(window[place], (work[use[place]] - work[slot]) // 2)
            last = min(last, max(slot, _right(work, wanted, slot, use[place] + 1) - 1))
        for count in range(hops):
            hop = outline.first[move] + count
            share = -(-(work[last] - work[slot]) // (hops - count))
            finish = _left(work, work[slot] + share, slot, last) if outline.remote[hop] else slot
            if work[finish] == work[slot]:
                finish = slot
            begin[hop], end[hop] = slot, finish
            slot = finish
        ready[goal] = slot
    for move in range(len(outline.slot)):  # fetches finish right before the use, and start early
        if outline.store[move]:
            continue
        slot = outline.slot[move]
        first = max(ready[outline.source[outline.first[move]]], _right(work, work[slot] - fetch, 0, slot + 1) - 1)
        for count in range(outline.first[move + 1] - outline.first[move], 0, -1):
            hop = outline.first[move] + count - 1
            share = -(-(work[slot] - work[first]) // count)
            start = _right(work, work[slot] - share, first, slot + 1) - 1 if outline.remote[hop] else slot
            if work[start] == work[slot]:
                start = slot
            begin[hop], end[hop] = start, slot
            slot = start
    return begin, end


@compiled(lambda outline, *_: 20 * (len(outline.works) + len(outline.remote)), nogil=True)
def ordered(outline, begin, end):  # type: ignore[no-untyped-def]
    """(kinds, numbers) of all steps in the order of slots: COMPUTE and the slot, START or TRANSFER and the transfer."""
    slots, transfers = len(outline.works), len(outline.remote)
    starting = np.argsort(begin * (slots + 1) + end, kind="mergesort")
    waiting = np.argsort(end, kind="mergesort")
    begun, waited = 0, 0
    written = np.zeros(outline.buffers, np.bool_)
    written[outline.entering] = True
    kinds, numbers = np.empty(slots + 2 * transfers, np.uint8), np.empty(slots + 2 * transfers, np.int64)
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
            if outline.remote[waiting[place - 1]] and begin[waiting[place - 1]] == slot:
                after = place
        for turn in range(waited, place + 1):
            if turn >= after or turn == place:
                left = 0
                for number in queue[:queued]:
                    if written[outline.source[number]]:
                        kinds[count], numbers[count] = START, number
                        count += 1
                    else:
                        queue[left] = number
                        left += 1
                queued = left
            if turn < place:
                kinds[count], numbers[count] = TRANSFER, waiting[turn]
                count += 1
                written[outline.target[waiting[turn]]] = True
        assert queued == 0, "a source is made after its exchange starts"
        waited = place
        if slot < slots:
            kinds[count], numbers[count] = COMPUTE, slot
            count += 1
            for read in range(outline.writes_from[slot], outline.writes_from[slot + 1]):
                written[outline.writes[read]] = True
    return kinds[:count], numbers[:count]
