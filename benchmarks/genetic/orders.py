"""How SwapAdvisor's genetic algorithm varies orders of operators (thesis §4.4.2), as published.

Cost: linear in dependencies, times the logarithm of the steps that are ready at once.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from girih.layout.compiled import compiled
from girih.program.life.links import Links

Integers = NDArray[np.int64]


def crossed_orders(one: Integers, two: Integers, at: int) -> tuple[Integers, Integers]:
    """Two children: the first has the first `at` steps of the second parent, then the others in the order of the first
    parent; the second child the other way round. Both keep what both parents keep."""
    children = []
    for head, tail in ((two[:at], one), (one[:at], two)):
        inside = np.zeros(len(one), np.bool_)
        inside[head] = True
        children.append(np.concatenate([head, tail[~inside[tail]]]))
    return children[0], children[1]


def mutated_order(random: np.random.Generator, links: Links, order: Integers, probability: float) -> Integers:
    """The order of a scheduler that takes, of the steps that are ready, the one that comes first in the old order, but
    with this probability any. With probability 1 it is a random order."""
    draws = np.where(random.random(len(order)) < probability, random.random(len(order)), -1.0)
    mutated: Integers = _scheduled(links.after_starts, links.after, links.before_starts, order, draws)
    return mutated


def _work(starts: Integers, after: Integers, before: Integers, order: Integers, draws: Integers) -> float:
    return 4.0 * (len(after) + len(order))


@compiled(_work, nogil=True)
def _scheduled(after_starts, after, before_starts, order, draws):  # type: ignore[no-untyped-def]
    """draws: of each position, where in the ready set the step is taken, in [0, 1); below 0 for the first."""
    count = len(order)
    rank = np.empty(count, np.int64)
    for position in range(count):
        rank[order[position]] = position
    missing = before_starts[1:] - before_starts[:-1]
    ready = np.empty(count, np.int64)  # the ready set, in any order
    where = np.full(count, -1, np.int64)
    size = 0
    first = [count]  # their ranks as a heap, with those that were taken at random still in it
    for step in range(count):
        if missing[step] == 0:
            ready[size], where[step] = step, size
            size += 1
            heappush(first, rank[step])
    scheduled = np.empty(count, np.int64)
    for position in range(count):
        if draws[position] >= 0:
            step = ready[int(draws[position] * size)]
        else:
            while where[order[first[0]]] < 0:
                heappop(first)
            step = order[heappop(first)]
        size -= 1
        moved = ready[size]
        ready[where[step]], where[moved] = moved, where[step]
        where[step] = -1
        scheduled[position] = step
        for entry in range(after_starts[step], after_starts[step + 1]):
            other = after[entry]
            missing[other] -= 1
            if missing[other] == 0:
                ready[size], where[other] = other, size
                size += 1
                heappush(first, rank[other])
    return scheduled
