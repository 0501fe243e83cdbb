"""The loops of `girih.program.moves.moves`: when copies begin and end, and which wait for which.

An event is a row (what, which): STEP with its position; IN and OUT, the start of the copy of a stay into and out of the
device; END_IN and END_OUT, the device's wait for it.
Cost: O(steps + stays + copies out that are under way at once · copies).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from girih.layout.compiled import compiled, inside
from girih.program.table import Integers

STEP, IN, OUT, END_IN, END_OUT = range(5)


class Script(NamedTuple):
    """events: in their order. after: stays whose copies out other copies wait for; of the copy of a stay into the
    device those from after_from to after_to."""

    events: Integers
    after: Integers
    after_from: Integers
    after_to: Integers


@inside()
def _event(events, count, what, which):  # type: ignore[no-untyped-def]
    events[count, 0], events[count, 1] = what, which
    return count + 1


@compiled(lambda stays, bytes, extra, cap: 40.0 * len(stays) + len(extra))
def scripted(stays, bytes, extra, cap):  # type: ignore[no-untyped-def]
    """The columns of `Script`. bytes: of each storage. extra: of each step, and at the end. Copies out that are under
    way are served in the order in which they began; at the end all of them."""
    count, steps = len(stays), len(extra) - 1
    begins, arrives, ends = np.zeros((3, steps + 2), np.int64)
    for stay in range(count):
        begins[stays[stay, 1] + 1] += 1
        arrives[stays[stay, 2] + 1] += not stays[stay, 4]
        if not stays[stay, 6]:
            ends[stays[stay, 3] + 1] += 1
    starting, arriving, ending = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    for table in (begins, arrives, ends):
        total = 0
        for step in range(steps + 2):
            total += table[step]
            table[step] = total - table[step]
    for stay in range(count):
        step = stays[stay, 1] + 1
        starting[begins[step]] = stay
        begins[step] += 1
        if not stays[stay, 4]:
            step = stays[stay, 2] + 1
            arriving[arrives[step]] = stay
            arrives[step] += 1
        if not stays[stay, 6]:
            step = stays[stay, 3] + 1
            ending[ends[step]] = stay
            ends[step] += 1
    # Each row of the three tables ends where it says, and begins where the one before ends.
    events, number = np.empty((4 * count + steps + 1, 2), np.int64), 0
    after, waiting = np.empty(count + 1, np.int64), 0
    line, first, behind = np.empty(count, np.int64), 0, 0  # copies out under way
    leaving = np.full(count, -1, np.int64)  # of each such stay, bytes that it will leave
    out_of = np.full(len(bytes), -1, np.int64)  # of each storage, the stay that is copied out and under way
    waits_from, waits_to = np.zeros(count, np.int64), np.zeros(count, np.int64)  # of a stay, its events AFTER
    used = 0
    for step in range(-1, steps + 1):
        coming = extra[step] if step >= 0 else 0
        low, high = begins[step] if step >= 0 else 0, begins[step + 1]
        for at in range(low, high):
            if stays[starting[at], 4]:
                coming += bytes[stays[starting[at], 0]]
        for at in range(low, high):
            stay = starting[at]
            if stays[stay, 4]:
                continue
            storage = stays[stay, 0]
            wanted, size = bytes[storage], bytes[storage]
            if waiting + 1 + behind - first > len(after):
                larger = np.empty(2 * len(after) + behind - first, np.int64)
                larger[:waiting] = after[:waiting]
                after = larger
            number = _event(events, number, IN, stay)
            waits_from[stay] = waiting
            own = out_of[storage]
            if own >= 0:
                taken = min(wanted, max(leaving[own], 0))
                leaving[own] -= taken
                used -= taken
                wanted -= taken
                after[waiting] = own
                waiting += 1
            for place in range(first, behind):
                out = line[place]
                if leaving[out] < 0 or out == own:  # it has ended
                    continue
                if used + size + coming <= cap:
                    break
                taken = min(wanted, leaving[out])
                if taken > 0:
                    leaving[out] -= taken
                    used -= taken
                    wanted -= taken
                    after[waiting] = out
                    waiting += 1
            waits_to[stay] = waiting
            used += size
        for at in range(arrives[step] if step >= 0 else 0, arrives[step + 1]):
            stay = arriving[at]
            for place in range(waits_from[stay], waits_to[stay]):
                out = after[place]
                if leaving[out] >= 0:  # the copy in has waited for it
                    used -= leaving[out]
                    leaving[out] = -1
                    out_of[stays[out, 0]] = -1
                    number = _event(events, number, END_OUT, out)
            number = _event(events, number, END_IN, stay)
        while first < behind and used + coming > cap:
            out = line[first]
            first += 1
            if leaving[out] >= 0:
                used -= leaving[out]
                leaving[out] = -1
                out_of[stays[out, 0]] = -1
                number = _event(events, number, END_OUT, out)
        if step >= 0:
            number = _event(events, number, STEP, step)
            used += coming - extra[step]
        else:
            used = coming
        for at in range(ends[step] if step >= 0 else 0, ends[step + 1]):
            stay = ending[at]
            if stays[stay, 5]:
                number = _event(events, number, OUT, stay)
                line[behind] = stay
                behind += 1
                leaving[stay] = bytes[stays[stay, 0]]
                out_of[stays[stay, 0]] = stay
            else:
                used -= bytes[stays[stay, 0]]
    for place in range(first, behind):
        if leaving[line[place]] >= 0:
            number = _event(events, number, END_OUT, line[place])
    return events[:number], after[:waiting], waits_from, waits_to


def script(stays: Integers, bytes: Integers, extra: Integers, cap: int) -> Script:
    """When the copies of a residency begin and end that needs at most `cap` bytes; see `scripted`."""
    return Script(*scripted(stays, bytes, extra, cap))
