"""The order of the fullest steps: what is alive there is placed first, so that nothing lies between.

A step that is as full as the arena has no room for gaps: what is alive in it has to be one stack. So items are placed
by the fullest step that they are alive in; of those that this step has in common, those first that are alive in the
next fullest steps too, so that these have their stacks at the bottom as well. A step that is full because its kernel
takes much scratch has that on top, where the scratch of other steps has room too.

Where something ends above the fullest step nevertheless, the step that it is in was served too late: it goes before all
others, and all is placed anew ("squeaky wheel", Joslin and Clements 1999, of steps).

Cost: ROUNDS times that of placing all items in one order, which is the square of their number.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from girih.program.places.items import Items, Numbers

STACKS = 64
"""Fullest steps whose stacks are told apart."""
ROUNDS = 12


def by_peaks(items: Items, place: Callable[[Numbers], Numbers]) -> Numbers:
    """The items that have a place of their own, in the order of the fullest steps; of several the one that ends lowest.
    place: the addresses of the items in an order."""
    used = _used(items)
    rank, best, least = used.copy(), np.zeros(0, np.int64), None
    last_served = -1
    for _ in range(ROUNDS):
        order = _by_rank(items, rank)
        ends = place(order) + items.sizes
        highest = int(ends[order].argmax()) if len(order) else 0
        if least is None or ends[order].max(initial=0) < least:
            best, least = order, int(ends[order].max(initial=0))
        if not len(order) or least <= items.bound:
            break
        item = order[highest]
        step = int(items.first[item] + used[items.first[item] : items.last[item] + 1].argmax())
        if step == last_served:  # it was first, and is too high
            break
        rank[step], last_served = rank.max() + 1, step
    return best


def _by_rank(items: Items, rank: Numbers) -> Numbers:
    spans = (items.first, items.last), (items.first2, items.last2)
    stacks = np.argsort(-rank, kind="stable")[:STACKS]
    elsewhere = [~np.any([(first <= step) & (step <= last) for first, last in spans], axis=0) for step in stacks[::-1]]
    most = np.max([_most(rank, first, last) for first, last in spans], axis=0)
    order: Numbers = np.lexsort((-items.sizes, -most, *elsewhere))
    return order[items.sizes[order] > 0]


def _used(items: Items) -> Numbers:
    """Bytes that are alive at each time."""
    change = np.zeros(int(max(items.last.max(), items.last2.max())) + 2, np.int64)
    for first, last in ((items.first, items.last), (items.first2, items.last2)):
        some = first <= last
        np.add.at(change, first[some], items.sizes[some])
        np.add.at(change, last[some] + 1, -items.sizes[some])
    used: Numbers = np.cumsum(change)[:-1]
    return used


def _most(used: Numbers, first: Numbers, last: Numbers) -> Numbers:
    """The most bytes in each span of times, 0 in those that end before they begin."""
    most = np.zeros(len(first), np.int64)
    length = last - first + 1
    table, width = used, 1  # the most of each run of `width` times
    while True:
        mine = np.flatnonzero((length >= width) & (length < 2 * width))
        most[mine] = np.maximum(table[first[mine]], table[last[mine] - width + 1])
        if 2 * width > len(used):
            return most
        table, width = np.maximum(table[:-width], table[width:]), 2 * width
