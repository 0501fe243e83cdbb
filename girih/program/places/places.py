"""Places: an address in one arena for every storage of a device, so that storages alive at one time never overlap.

This is dynamic storage allocation with all lifetimes known beforehand, which is NP-hard. Items (`places.items`) are
placed one by one into gaps, in the order of the fullest steps (`places.peaks`), the same with small items behind all
others, in orders by size, by life, by both, and by first and last use; those that end lowest are improved by local
search (`places.fit`) until the arena is nearly as small as what is alive at one time, or the turns are used up. Few
items are placed exactly (`places.small`).

Two baselines stand beside: the largest first (as TensorFlow Lite plans its arena), and the order of time, as an
allocator serves requests at run time.

Cost: the square of the number of items for each order that is tried; of the search what it is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from girih.program.life.accounts import messages_of
from girih.program.life.lifetimes import Lifetimes
from girih.program.places.addresses import Addresses, Runs
from girih.program.places.fit import fit, improved
from girih.program.places.items import ALIGNMENT, Items, Numbers, items_of
from girih.program.places.peaks import by_peaks
from girih.program.places.small import smallest
from girih.program.steps import StartStep, TransferStep

TURNS = 100_000_000
"""Turns of the search's loops, at most: about two seconds."""
NEAREST = 4
"""Orders that are improved: those that end lowest."""
SMALL = 8
"""Items of what is placed exactly."""
NEAR = 1024
"""An arena that is larger than the most bytes alive by one part in so many is not improved any more."""
SHARES = range(6, 13)
"""Powers of a half of the most bytes alive: what is smaller comes behind all else, in an order for each."""
UNLIMITED = 1 << 62
MOST_RUNS = 8
"""That nothing has in a step and that a worker is told of, beside those of the step's own scratch."""


@dataclass(frozen=True)
class Places:
    """Where everything lies in the arena of one device, in bytes from its beginning.

    addresses: of each storage, in the order of `Lifetimes.storages`. scratch: where each step's extra lies,
    [steps + 1]. bytes: of the arena. bound: the most that is alive at one time, sizes rounded up; no arena is smaller.
    items: what was placed.
    """

    addresses: tuple[int, ...]
    scratch: tuple[int, ...]
    bytes: int
    bound: int
    items: Items

    @cached_property
    def gaps(self) -> tuple[NDArray[np.int64], ...]:
        """What nothing but a step's scratch has in each step: runs from a first byte to one behind the last, ascending,
        up to the arena's planned end: [steps + 1] of [runs, 2]. Cost: steps times items, a few instructions each."""
        items, count, steps = self.items, len(self.addresses), len(self.scratch)
        own = np.flatnonzero(items.sizes[:count])
        own = own[np.argsort(np.asarray(self.addresses, np.int64)[own], kind="stable")]
        starts = np.asarray(self.addresses, np.int64)[own]
        ends = starts + items.sizes[own]
        births: list[list[int]] = [[] for _ in range(steps + 1)]
        deaths: list[list[int]] = [[] for _ in range(steps + 1)]
        for first, last in ((items.first[own], items.last[own]), (items.first2[own], items.last2[own])):
            for at in np.flatnonzero((first <= last) & (first < steps)).tolist():
                births[int(first[at])].append(at)
                deaths[min(int(last[at]) + 1, steps)].append(at)
        alive = np.zeros(len(own), np.int64)
        gaps = []
        for step in range(steps):
            np.subtract.at(alive, deaths[step], 1)
            np.add.at(alive, births[step], 1)
            there = alive > 0
            low = np.maximum.accumulate(np.concatenate([[0], ends[there]]))
            runs = np.stack([low, np.concatenate([starts[there], [self.bytes]])], axis=1)
            gaps.append(runs[runs[:, 0] < runs[:, 1]])
        return tuple(gaps)


def placed(lives: Lifetimes, turns: int = TURNS, seed: int = 0, enough: int = 0) -> Places:
    """Addresses for all storages and the scratch of all steps. turns: of the search's loops; seed: of its chance.
    enough: bytes of an arena that need not be smaller.

    Raises:
        StateError: state has no fixed address.
    """
    items = items_of(lives)
    addresses = addressed(items, turns, seed, enough)[items.part_of]
    count = len(lives.storages)
    places = tuple(addresses.tolist())
    return Places(places[:count], places[count:], top(items, addresses), items.bound, items)


def addresses_of(lives: Lifetimes, places: Places) -> Addresses:
    """The addresses of a device's places. Cost: as of `Places.gaps`."""
    storages = lives.storages
    known = {
        item.name: (address, item.bytes)
        for item, address in zip(storages, places.addresses, strict=True)
        if item.bytes > 0
    }
    scratch: list[Runs] = []
    for number, step in enumerate(lives.steps):
        if isinstance(step, StartStep):  # what it makes stays until the exchange ends
            transfer = step.transfer
            run = known.get(messages_of(transfer.target)) if isinstance(transfer, TransferStep) else None
            scratch.append(() if run is None else ((run[0], run[0] - -run[1] // ALIGNMENT * ALIGNMENT),))
            continue
        runs = places.gaps[number]
        own = places.scratch[number]
        size = int(places.items.sizes[len(storages) + number])
        mine = (runs[:, 0] < own + size) & (own < runs[:, 1])
        order = np.lexsort((runs[:, 0] - runs[:, 1], ~mine))[: MOST_RUNS + int(mine.sum())]
        scratch.append(tuple((int(low), int(high)) for low, high in runs[order]))
    copied = tuple((storages[old].name, storages[new].name) for old, new in places.items.copied)
    return Addresses(places.bytes, places.bound, places.items.peak, known, tuple(scratch), copied)


def addressed(items: Items, turns: int = TURNS, seed: int = 0, enough: int = 0) -> Numbers:
    """The address of each item that has a place of its own; 0 of the others. Half of the turns is for improving the
    nearest orders, the other half for the best of them. enough: bytes of an arena that need not be smaller."""
    if np.count_nonzero(items.sizes) <= SMALL:
        return smallest(items)
    aim, arrays = max(items.bound, enough), _arrays(items)
    best = np.zeros(len(items.sizes), np.int64)
    least = UNLIMITED
    ends: list[tuple[int, int, Numbers, bool]] = []
    orders = _orders(items)
    tries = [(order, lowest) for order in orders for lowest in (True, False)]
    tries += [(order, True) for order in _small_last(items, orders[0])]
    for number, (order, lowest) in enumerate(tries):
        plain = fit(*arrays, order, lowest, UNLIMITED)
        if top(items, plain) < least:
            best, least = plain, top(items, plain)
        if least <= aim:
            return np.maximum(best, 0)
        ends.append((top(items, plain), number, order, lowest))
    aim = max(aim, items.bound + items.bound // NEAR)
    if least <= aim:
        return np.maximum(best, 0)
    for _, number, order, lowest in sorted(ends, key=itemgetter(0))[:NEAREST]:
        found, other, _ = improved(*arrays, order, lowest, ends[number][0], aim, turns // (2 * NEAREST), seed)
        if len(found):
            ends[number] = (top(items, found), number, other, lowest)
            if ends[number][0] < least:
                best, least = found, ends[number][0]
        if least <= aim:
            break
    if least > aim:
        _, _, order, lowest = min(ends, key=itemgetter(0))
        found, _, _ = improved(*arrays, order, lowest, least - 1, aim, turns // 2, seed)
        best = found if len(found) else best
    return np.maximum(best, 0)


def by_size(items: Items) -> int:
    """Bytes of the arena with the largest first, each in the smallest gap."""
    return _baseline(items, np.argsort(-items.sizes, kind="stable"), lowest=False)


def by_time(items: Items) -> int:
    """Bytes of the arena as requests come, each in the smallest gap of then: what best fit at run time needs."""
    return _baseline(items, np.argsort(items.first, kind="stable"), lowest=False)


def top(items: Items, addresses: Numbers) -> int:
    return int((addresses + items.sizes).max(initial=0))


def _baseline(items: Items, order: Numbers, lowest: bool) -> int:
    return top(items, fit(*_arrays(items), order[items.sizes[order] > 0], lowest, UNLIMITED))


def _orders(items: Items) -> list[Numbers]:
    """The orders in which the items that have a place of their own are tried."""
    first, sizes = items.first, items.sizes
    last = np.maximum(items.last, items.last2)
    life = items.last - first + 1 + np.maximum(items.last2 - items.first2 + 1, 0)
    orders = (
        by_peaks(items, lambda order: fit(*_arrays(items), order, True, UNLIMITED)),
        np.lexsort((-sizes, first)),  # as they come, contiguous from the beginning of the program on
        np.lexsort((-life, -sizes)),
        np.lexsort((-sizes, -last)),
        np.argsort(-life.astype(np.float64) * sizes, kind="stable"),
        np.lexsort((-sizes, -life)),
        np.argsort(-sizes, kind="stable"),
        np.argsort(first, kind="stable"),
    )
    return [order[sizes[order] > 0] for order in orders]


def _small_last(items: Items, order: Numbers) -> list[Numbers]:
    """An order with small items behind all others, which fit between large ones, where large ones do not fit between
    them: by several sizes that are powers of two, as sizes of tensors like to be."""
    sizes = {1 << max(1, items.bound >> share).bit_length() for share in SHARES}
    large = [items.sizes[order] >= size for size in sorted(sizes)]
    return [np.concatenate([order[some], order[~some]]) for some in large if 0 < some.sum() < len(order)]


def _arrays(items: Items) -> tuple[Numbers, ...]:
    """As `fit` takes them; the last two are a table of those that each item may overlap: (starts, numbers)."""
    over = items.overlapping
    pairs = np.concatenate([over, over[:, ::-1]])
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    starts = np.searchsorted(pairs[:, 0], np.arange(len(items.sizes) + 1)).astype(np.int64)
    table = np.ascontiguousarray(pairs[:, 1])
    return items.first, items.last, items.first2, items.last2, items.sizes, starts, table
