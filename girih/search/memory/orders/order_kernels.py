"""Loops of the searches for orders of steps: runs that free memory are hoisted, what lies at the peak is moved away.

All work on the arrays of `girih.program.life.links` and change nothing that they are given. Hoisting is
near linear: each step begins a few trial runs of at most `LONGEST` steps. Each attempt at the peak costs one scan of
the order.
"""

from __future__ import annotations

import numpy as np

from girih.layout.compiled import compiled, inside
from girih.program.life.links import begun_bytes, done, scanned, undone

LONGEST = 96
"""Steps of a trial run: enough for an optimizer's update of one tensor, and for the backward pass of a layer."""


@compiled(lambda links, order, limit: LONGEST * (len(links.touched) + len(links.after)))
def hoisted(links, order, limit):  # type: ignore[no-untyped-def]
    """The order with every run of steps that frees more than it makes as early as it can come: [steps].

    A run begins with a step that has just become possible, and goes on with what it makes possible. It is hoisted if
    memory during it stays within the limit, in bytes. Memory at all other times can only shrink.
    """
    count = len(order)
    position = np.empty(count, np.int64)
    for at in range(count):
        position[order[at]] = at
    missing = np.empty(count, np.int64)
    for step in range(count):
        missing[step] = links.before_starts[step + 1] - links.before_starts[step]
    left = links.uses.copy()
    is_done = np.zeros(count, np.bool_)
    result = np.empty(count, np.int64)
    length = 0
    now = begun_bytes(links)
    candidates = np.empty(count + 1, np.int64)  # a stack
    waiting = np.zeros(count, np.bool_)  # is a step on it?
    run = np.empty(LONGEST, np.int64)
    ready = np.empty(LONGEST, np.int64)
    for at in range(count):
        if is_done[order[at]]:
            continue
        run[0] = order[at]
        taken = 1
        height = 0
        while taken > 0:
            for member in range(taken):
                step = run[member]
                now, _ = done(links, left, now, step)
                is_done[step] = True
                result[length] = step
                length += 1
                for own in range(links.touched_starts[step], links.touched_starts[step + 1]):
                    storage = links.touched[own]
                    if left[storage] != 1:
                        continue
                    for at_toucher in range(links.toucher_starts[storage], links.toucher_starts[storage + 1]):
                        other = links.touchers[at_toucher]  # the one that is left frees it now
                        if not is_done[other] and missing[other] == 0 and not waiting[other]:
                            waiting[other] = True
                            candidates[height] = other
                            height += 1
                for edge in range(links.after_starts[step], links.after_starts[step + 1]):
                    other = links.after[edge]
                    missing[other] -= 1
                    if missing[other] == 0 and not waiting[other]:
                        waiting[other] = True
                        candidates[height] = other
                        height += 1
            taken = 0
            while height > 0 and taken == 0:
                height -= 1
                first = candidates[height]
                waiting[first] = False
                if not is_done[first]:
                    taken = _freeing_run(links, position, missing, left, now, limit, first, run, ready)
    return result


@inside()
def _freeing_run(links, position, missing, left, now, limit, first, run, ready):  # type: ignore[no-untyped-def]
    """How many steps, written to `run` from the given one on, free the most together; 0 if none do within the limit."""
    begun, low, best, length, waiting = now, now, 0, 0, 1
    ready[0] = first
    while waiting > 0 and length < len(run):
        chosen = 0  # the one that comes first in the order so far
        for at in range(1, waiting):
            if position[ready[at]] < position[ready[chosen]]:
                chosen = at
        step = ready[chosen]
        waiting -= 1
        ready[chosen] = ready[waiting]
        now, most = done(links, left, now, step)
        run[length] = step
        length += 1
        for edge in range(links.after_starts[step], links.after_starts[step + 1]):
            other = links.after[edge]
            missing[other] -= 1
            if missing[other] == 0 and waiting < len(ready):
                ready[waiting] = other
                waiting += 1
        if most > limit:
            break
        if now < low:
            low, best = now, length
    for member in range(length - 1, -1, -1):
        step = run[member]
        undone(links, left, step)
        for edge in range(links.after_starts[step], links.after_starts[step + 1]):
            missing[links.after[edge]] += 1
    return best if low < begun else 0


@compiled(lambda links, order, ends, attempts: 4 * attempts * (len(links.touched) + len(order)))
def descended(links, order, ends, attempts):  # type: ignore[no-untyped-def]
    """The order after moves that lower the peak: [steps].

    A storage that is alive at the peak, and is not touched there, may die before: the steps that touch it later come
    earlier, with all that they need. Or it is made later, with all that needs it. A move is kept if the peak is lower,
    or as high with less memory near it. Ends where no move helps, or after so many attempts, each one scan.
    """
    order = order.copy()
    count, storages = len(order), len(links.bytes)
    position = np.empty(count, np.int64)
    chosen = np.zeros(count, np.bool_)
    stack = np.empty(count, np.int64)
    trial = np.empty(count, np.int64)
    used = scanned(links, order)
    alive = np.empty(storages, np.int64)
    better = True
    while better and attempts > 0:
        better = False
        peak = used.max()
        if peak <= ends:
            return order
        near = peak - peak // 50
        top = 0
        while used[top] != peak:
            top += 1
        above = _above(used, near)
        for at in range(count):
            position[order[at]] = at
        found = 0
        for storage in range(storages):
            low, high = links.toucher_starts[storage], links.toucher_starts[storage + 1]
            if low == high or links.bytes[storage] == 0:
                continue
            first, last = count, -1
            here = False
            for at in range(low, high):
                place = position[links.touchers[at]]
                first, last = min(first, place), max(last, place)
                here = here or place == top
            born = -1 if links.given[storage] else first
            dies = count if links.lasts[storage] else last
            if born < top and dies > top and not here and (born >= 0 or dies < count):
                alive[found] = storage
                found += 1
        largest = np.argsort(-links.bytes[alive[:found]], kind="mergesort")  # the same with and without Numba
        for rank in range(min(found, 64)):
            storage = alive[largest[rank]]
            for way in range(4):
                if attempts <= 0:
                    break
                earlier = way < 2
                if (links.lasts[storage] if earlier else links.given[storage]) or not _moved(
                    links, order, position, storage, top, earlier, way % 2 == 0, chosen, stack, trial
                ):
                    continue
                attempts -= 1
                other = scanned(links, trial)
                most = other.max()
                if most < peak or (most == peak and _above(other, near) < above):
                    order[:] = trial
                    used = other
                    better = True
                    break
            if better:
                break
    return order


@inside()
def _above(used, level):  # type: ignore[no-untyped-def]
    """Bytes over a level, in all steps."""
    total = 0
    for at in range(len(used)):
        if used[at] > level:
            total += used[at] - level
    return total


@inside()
def _moved(links, order, position, storage, top, earlier, far, chosen, stack, trial):  # type: ignore[no-untyped-def]
    """Write to `trial` the order in which a storage is not alive at position `top`; False if there is none.

    earlier: what touches it behind `top` comes before, with all that it needs; else what touches it before comes
    behind, with all that needs it. far: as far as may be; else next to `top`.
    """
    count = len(order)
    height = 0
    for at in range(links.toucher_starts[storage], links.toucher_starts[storage + 1]):
        step = links.touchers[at]
        if (position[step] > top) == earlier:
            chosen[step] = True
            stack[height] = step
            height += 1
    size, walked, possible = height, 0, height > 0
    bound = -1 if earlier else count  # the position behind, or before, which all of them come
    starts = links.before_starts if earlier else links.after_starts
    items = links.before if earlier else links.after
    while walked < size and possible:
        step = stack[walked]
        walked += 1
        for at in range(starts[step], starts[step + 1]):
            other = items[at]
            place = position[other]
            if place == top:
                possible = False
            elif (place > top) == earlier:
                if not chosen[other]:
                    chosen[other] = True
                    stack[size] = other
                    size += 1
            elif earlier:
                bound = max(bound, place)
            else:
                bound = min(bound, place)
    if possible:
        if not far:
            bound = top - 1 if earlier else top + 1
        length = 0
        for at in range(count + 1):
            if (at == bound + 1) if earlier else (at == bound):
                for place in range(count):
                    if chosen[order[place]]:
                        trial[length] = order[place]
                        length += 1
            if at < count and not chosen[order[at]]:
                trial[length] = order[at]
                length += 1
    for at in range(size):
        chosen[stack[at]] = False
    return possible
