"""Placing items one by one in an order, and better orders by trial.

`fit` takes each item in turn and puts it into a gap between those placed before that are alive together with it. What
then ends too high is what the order has served too late: `improved` moves such items forward and tries again ("squeaky
wheel", Joslin and Clements 1999), with chance, so that it does not repeat itself. Cost of one order: pairs of items.
"""

from __future__ import annotations

import numpy as np

from girih.layout.compiled import compiled, inside


@inside()
def together(first, last, first2, last2, one, two):  # type: ignore[no-untyped-def]
    """Are two items alive at one time? A second span that is none ends before it begins."""
    if first[one] <= last[two] and first[two] <= last[one]:
        return True
    if first2[one] <= last2[one]:
        if first2[one] <= last[two] and first[two] <= last2[one]:
            return True
        if first2[two] <= last2[two] and first2[one] <= last2[two] and first2[two] <= last2[one]:
            return True
    return first2[two] <= last2[two] and first[one] <= last2[two] and first2[two] <= last[one]


@compiled(lambda first, last, first2, last2, sizes, starts, over, order, lowest, limit: len(order) ** 2)
def fit(first, last, first2, last2, sizes, starts, over, order, lowest, limit):  # type: ignore[no-untyped-def]
    """The address of each item, -1 of those behind the first that ends above the limit: [items].

    starts, over: of each item those that it may overlap, as rows of a table. lowest: the lowest gap that is large
    enough is taken, else the smallest.
    """
    count = len(order)
    addresses = np.full(len(sizes), -1, np.int64)
    placed = np.empty(count, np.int64)
    number = 0
    allowed = np.full(len(sizes), -1, np.int64)
    for turn in range(count):
        item = order[turn]
        size = sizes[item]
        if size == 0:
            addresses[item] = 0
            continue
        for at in range(starts[item], starts[item + 1]):
            allowed[over[at]] = item
        end = 0
        best = -1
        smallest = -1
        for at in range(number):
            other = placed[at]
            if allowed[other] == item or not together(first, last, first2, last2, item, other):
                continue
            gap = addresses[other] - end
            if gap >= size and (smallest < 0 or gap < smallest):
                smallest, best = gap, end
                if lowest or gap == size:
                    break
            end = max(end, addresses[other] + sizes[other])
        if smallest < 0:
            best = end
        addresses[item] = best
        if best + size > limit:
            return addresses
        at = number
        while at > 0 and addresses[placed[at - 1]] > best:
            placed[at] = placed[at - 1]
            at -= 1
        placed[at] = item
        number += 1
    return addresses


@compiled()
def improved(first, last, first2, last2, sizes, starts, over, order, lowest, limit, aim, turns, seed):  # type: ignore[no-untyped-def]
    """Addresses and an order of them that end as low as was found, and how many turns of loops were left.

    All items are placed in the order, none above the limit, which is lowered whenever that succeeds. An item that does
    not fit goes before one of those that are alive with it, rather one that was placed shortly before, and placing goes
    on from there. No addresses (empty) if the limit was never met. aim: no arena is smaller. turns: of loops, before it
    ends.
    """
    np.random.seed(seed)
    count = len(order)
    order = order.copy()
    addresses = np.full(len(sizes), -1, np.int64)
    best, best_order = np.empty(0, np.int64), order.copy()
    placed = np.empty(count, np.int64)
    position = np.empty(len(sizes), np.int64)  # in the order
    rivals = np.empty(count, np.int64)  # positions of what is alive with an item that does not fit
    allowed = np.full(len(sizes), -1, np.int64)
    for at in range(count):
        position[order[at]] = at
    number = 0
    turn = 0
    failures = 0
    while turns > 0:
        item = order[turn]
        size = sizes[item]
        for at in range(starts[item], starts[item + 1]):
            allowed[over[at]] = item
        end = 0
        address = -1
        smallest = -1
        met = 0
        turns -= number
        for at in range(number):
            other = placed[at]
            if allowed[other] == item or not together(first, last, first2, last2, item, other):
                continue
            rivals[met] = position[other]
            met += 1
            gap = addresses[other] - end
            if gap >= size and (smallest < 0 or gap < smallest):
                smallest, address = gap, end
                if lowest or gap == size:
                    break
            end = max(end, addresses[other] + sizes[other])
        for at in range(starts[item], starts[item + 1]):
            allowed[over[at]] = -1
        if smallest < 0:
            address = end
        if address + size <= limit:
            addresses[item] = address
            at = number
            while at > 0 and addresses[placed[at - 1]] > address:
                placed[at] = placed[at - 1]
                at -= 1
            placed[at] = item
            number += 1
            turn += 1
            if turn < count:
                continue
            top = 0
            for at in range(count):
                top = max(top, addresses[order[at]] + sizes[order[at]])
            best, best_order = addresses.copy(), order.copy()
            failures = 0
            if top <= aim:
                break
            limit = top - 1
            turn = count - 1  # what ends highest goes forward
            for at in range(count):
                if addresses[order[at]] + sizes[order[at]] > limit:
                    turn = at
                    break
            item = order[turn]
            met = 0
            for at in range(turn):
                if together(first, last, first2, last2, item, order[at]):
                    rivals[met] = at
                    met += 1
        if met == 0:
            break  # it alone is higher than the limit
        failures += 1
        if failures > 200 + count and len(best) > 0:  # lost: back to the best
            failures = 0
            for at in range(count):
                order[at] = best_order[at]
                position[order[at]] = at
                addresses[order[at]] = best[order[at]]
            placed[:] = order[np.argsort(best[order])]
            number = count
            turn = np.random.randint(1, count)
            item = order[turn]
            target = np.random.randint(0, turn)
        else:
            ranked = np.sort(rivals[:met])
            back = min(met - 1, int(np.exp(np.random.random() * np.log(met + 1.0))) - 1)
            target = ranked[met - 1 - back]
        for at in range(turn, target, -1):
            order[at] = order[at - 1]
            position[order[at]] = at
        order[target] = item
        position[item] = target
        kept = 0
        for at in range(number):
            if position[placed[at]] < target:
                placed[kept] = placed[at]
                kept += 1
        number = kept
        turn = target
        turns -= count
    return best, best_order, turns
