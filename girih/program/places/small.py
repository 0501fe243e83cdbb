"""Places of few items, exactly: branch and bound over orders.

The items of a smallest arena, sorted by address and put one by one into the lowest gap, each come to lie no higher than
there: so some order gives a smallest arena. Orders are built item by item, and one is given up where it already ends as
high as the best; of items that are alike one comes first. Cost: orders, at worst.
"""

from __future__ import annotations

import numpy as np

from girih.program.places.fit import together
from girih.program.places.items import Items, Numbers


def smallest(items: Items) -> Numbers:
    """The address of each item in an arena as small as can be; 0 of those without a place of their own."""
    spans = items.first, items.last, items.first2, items.last2
    allowed = {frozenset(pair) for pair in items.overlapping.tolist()}
    given = np.flatnonzero(items.sizes).tolist()
    given.sort(key=lambda item: -int(items.sizes[item]))
    sizes = {item: int(items.sizes[item]) for item in given}
    rivals = {
        one: {two for two in given if together(*spans, one, two) and frozenset((one, two)) not in allowed}
        for one in given
    }
    kind = {item: tuple(int(part[item]) for part in (*spans, items.sizes)) for item in given}
    special = set(items.over.ravel().tolist())  # not alike, whatever their spans
    best: dict[int, int] = {}
    least = sum(sizes.values()) + 1

    def lowest(item: int, places: dict[int, int]) -> int:
        end = 0
        for start, other in sorted((places[other], other) for other in rivals[item] if other in places):
            if start - end >= sizes[item]:
                break
            end = max(end, start + sizes[other])
        return end

    def extend(places: dict[int, int], height: int) -> None:
        nonlocal best, least
        if len(places) == len(given):
            best, least = dict(places), height
            return
        tried = set()
        for item in given:
            if item in places or (kind[item] in tried and item not in special):
                continue
            tried.add(kind[item])
            address = lowest(item, places)
            if max(height, address + sizes[item]) < least:
                extend({**places, item: address}, max(height, address + sizes[item]))
            if least <= items.bound:
                return

    extend({}, 0)
    addresses = np.zeros(len(items.sizes), np.int64)
    addresses[list(best)] = list(best.values())
    return addresses
