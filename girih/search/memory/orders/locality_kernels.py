"""The loop of `girih.search.memory.orders.locality.staying`: which step comes next."""

from __future__ import annotations

import numpy as np

from girih.layout.compiled import compiled, inside


@inside()
def _added(step, near, touch_starts, touching, sizes, lasts, left, hot, stamp):  # type: ignore[no-untyped-def]
    """Bytes that a step has copied in, and makes, less those that nobody needs behind it. near: storages with this
    stamp are there, too, and touched once more before."""
    amount = 0
    for at in range(touch_starts[step], touch_starts[step + 1]):
        item = touching[at]
        close = near >= 0 and stamp[item] == near
        if not hot[item] and not close:
            amount += sizes[item]
        if left[item] <= 1 + close and not lasts[item]:
            amount -= sizes[item]
    return amount


@compiled(lambda *arguments: 200.0 * len(arguments[6]))
def closest(  # type: ignore[no-untyped-def]
    reader_starts, readers, touch_starts, touching, sizes, lasts, missing, update, cap, latest, most
):
    """The order of steps. readers: of each step those that wait for it; touching: the storages of each step; missing:
    for how many each step waits. latest: of each step the last one that may come while it can be next. most: of the
    steps that can come next, so many are looked at."""
    count, storages = len(missing), len(sizes)
    missing = missing.copy()
    left = np.zeros(storages, np.int64)
    for at in range(len(touching)):
        left[touching[at]] += 1
    hot = np.zeros(storages, np.bool_)
    before, behind = np.full(storages + 1, -1, np.int64), np.full(storages + 1, -1, np.int64)
    end = storages  # of the ring of what is hot: the oldest is behind it, the newest before
    before[end] = behind[end] = end
    stamp = np.full(storages, -1, np.int64)
    ready, late = np.empty(count, np.int64), np.empty(count, np.int64)
    waiting, later, held = 0, 0, 0
    for step in range(count):
        if missing[step] == 0:
            if update[step]:
                late[later] = step
                later += 1
            else:
                ready[waiting] = step
                waiting += 1
    order = np.empty(count, np.int64)
    for turn in range(count):
        if waiting == 0:
            ready[:later] = np.sort(late[:later])
            waiting, later = later, 0
        chosen, best, best_none = 0, 0, 0
        for place in range(min(waiting, most)):
            step = ready[place]
            if step > latest[ready[0]]:
                break
            for at in range(touch_starts[step], touch_starts[step + 1]):
                stamp[touching[at]] = step
            least, follows = 0, False
            for at in range(reader_starts[step], reader_starts[step + 1]):
                reader = readers[at]
                if missing[reader] == 1 and not update[reader]:
                    amount = _added(reader, step, touch_starts, touching, sizes, lasts, left, hot, stamp)
                    least = min(least, amount) if follows else amount
                    follows = True
            if not follows:
                least = 1
            value = _added(step, -1, touch_starts, touching, sizes, lasts, left, hot, stamp) + min(least, 0)
            none = 1 if least > 0 else 0
            if place == 0 or value < best or (value == best and none < best_none):
                chosen, best, best_none = place, value, none
        first = ready[chosen]
        for place in range(chosen, waiting - 1):
            ready[place] = ready[place + 1]
        waiting -= 1
        order[turn] = first
        for at in range(touch_starts[first], touch_starts[first + 1]):
            item = touching[at]
            if hot[item]:
                behind[before[item]], before[behind[item]] = behind[item], before[item]
            else:
                held += sizes[item]
                hot[item] = True
            newest = before[end]
            behind[newest], before[item], behind[item], before[end] = item, newest, end, item
            left[item] -= 1
            if left[item] == 0 and not lasts[item]:
                behind[before[item]], before[behind[item]] = behind[item], before[item]
                hot[item] = False
                held -= sizes[item]
        while held > cap and behind[end] != end:
            oldest = behind[end]
            behind[end], before[behind[oldest]] = behind[oldest], end
            hot[oldest] = False
            held -= sizes[oldest]
        for at in range(reader_starts[first], reader_starts[first + 1]):
            reader = readers[at]
            missing[reader] -= 1
            if missing[reader] == 0:
                if update[reader]:
                    late[later] = reader
                    later += 1
                    continue
                place = waiting
                while place > 0 and ready[place - 1] > reader:
                    ready[place] = ready[place - 1]
                    place -= 1
                ready[place] = reader
                waiting += 1
    return order
