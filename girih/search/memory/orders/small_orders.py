"""The order of the lowest peak, for graphs of a few steps: best first over the sets of steps that may have been done.

What is in use behind a set of steps does not depend on the order in which they were done. So the best way to a set is
the one with the lowest peak, and sets are taken in the order of that peak (Dijkstra 1959 with maxima for sums): the
first time that all steps are done, the peak is the optimum. Cost: up to 2^steps sets; those with more steps come first
among equals, and sets beyond the optimum are never taken.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from girih.program.life.links import Links
from girih.program.table import Integers


def optimal(links: Links, most_sets: int) -> Integers | None:
    """The order of the lowest peak: [steps]; None if more sets would have to be taken."""
    count = len(links.extra)
    needs = [_mask(links.before_starts, links.before, step) for step in range(count)]
    touched = [links.touched[links.touched_starts[n] : links.touched_starts[n + 1]].tolist() for n in range(count)]
    touchers = [_mask(links.toucher_starts, links.touchers, storage) for storage in range(len(links.bytes))]
    takes = [links.takes[links.takes_starts[n] : links.takes_starts[n + 1]].tolist() for n in range(count)]
    sizes, given, lasts = links.bytes.tolist(), links.given.tolist(), links.lasts.tolist()
    begun = int(links.bytes[links.given].sum())
    came: dict[int, tuple[int, int]] = {}  # by set, the set before and the step between
    heap = [(links.ends, 0, 0, begun, -1, 0)]  # peak, less steps, set, bytes behind it, last step, set before
    while heap:
        peak, fewer, done, now, last, before = heappop(heap)
        if done in came:
            continue
        came[done] = (before, last)
        if fewer == -count:
            return _path(came, done, count)
        if len(came) > most_sets:
            return None
        for step in range(count):
            after = done | 1 << step
            if after == done or needs[step] & ~done or after in came:
                continue
            made = sum(sizes[item] for item in touched[step] if not given[item] and not touchers[item] & done)
            freed = sum(sizes[item] for item in touched[step] if not lasts[item] and not touchers[item] & ~after)
            ending = (item for item in takes[step] if not lasts[item] and not touchers[item] & ~after)
            taken = next((sizes[item] for item in ending), 0)
            most = max(peak, now + made - taken + int(links.extra[step]))
            heappush(heap, (most, fewer - 1, after, now + made - freed, step, done))
    raise AssertionError("a graph without circles has an order")


def _mask(starts: Integers, items: Integers, row: int) -> int:
    return sum(1 << int(item) for item in items[starts[row] : starts[row + 1]])


def _path(came: dict[int, tuple[int, int]], done: int, count: int) -> Integers:
    order = np.empty(count, np.int64)
    for place in range(count - 1, -1, -1):
        done, order[place] = came[done]
    return order
