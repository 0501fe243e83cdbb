"""Places: an address in one arena for every storage of a device, so that storages alive at one time never overlap.

This is dynamic storage allocation with all lifetimes known beforehand, which is NP-hard. What is implemented: best fit
in two orders, by size and by length of life, of which the smaller arena is taken. Each storage goes, in that order,
into the smallest gap that is large enough between the storages placed before that are alive together with it, or
behind all of them. Sizes are rounded up to `ALIGNMENT`; the scratch of a step is a storage that lives in that step.

Cost: the square of the number of storages at most, in NumPy. Not done: new state is not made to lie where the old lay,
so the next application needs copies; a copy in that takes over what a copy out leaves is not told apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from girih.memory.lifetimes import Lifetimes

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector register."""

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Places:
    """Where everything lies in the arena of one device, in bytes from its beginning.

    addresses: of each storage, in the order of `Lifetimes.storages`. scratch: where each step's extra lies,
    [steps + 1]. bytes: of the arena. bound: the most that is alive at one time, sizes rounded up; no arena is smaller.
    """

    addresses: tuple[int, ...]
    scratch: tuple[int, ...]
    bytes: int
    bound: int


def placed(lives: Lifetimes, seed: int = 0) -> Places:
    """Addresses for all storages and the scratch of all steps. seed: kept for searches with random orders; unused."""
    count, steps = len(lives.storages), len(lives.steps)
    every = range(steps + 1)
    first = np.array([*(max(item.born, 0) for item in lives.storages), *every], np.int64)
    last = np.array([*(steps if item.lasts else item.last for item in lives.storages), *every], np.int64)
    exact = np.array([*(item.bytes for item in lives.storages), *lives.extra], np.int64)
    sizes = -(-exact // ALIGNMENT) * ALIGNMENT
    orders = (np.lexsort((first - last, -sizes)), np.lexsort((-sizes, first - last)))
    addresses = min((best_fit(first, last, sizes, order) for order in orders), key=lambda at: int((at + sizes).max()))
    places = tuple(addresses.tolist())
    return Places(places[:count], places[count:], int((addresses + sizes).max()), alive(first, last, sizes))


def alive(first: Numbers, last: Numbers, sizes: Numbers) -> int:
    """The most bytes alive at one time, if each item lives from its `first` to its `last` time, both included."""
    change = np.zeros(int(last.max()) + 2, np.int64)
    np.add.at(change, first, sizes)
    np.add.at(change, last + 1, -sizes)
    return int(np.cumsum(change).max())


def best_fit(first: Numbers, last: Numbers, sizes: Numbers, order: Numbers) -> Numbers:
    """The address of each item, placed one by one in an order; items without bytes lie at 0."""
    addresses = np.zeros(len(sizes), np.int64)
    done = order[:0]
    for item in order[sizes[order] > 0]:
        near = done[(first[done] <= last[item]) & (last[done] >= first[item])]
        near = near[np.argsort(addresses[near], kind="stable")]
        ends = np.concatenate(([0], np.maximum.accumulate(addresses[near] + sizes[near])))
        gaps = addresses[near] - ends[:-1]
        fitting = np.flatnonzero(gaps >= sizes[item])
        addresses[item] = ends[fitting[np.argmin(gaps[fitting])]] if len(fitting) else ends[-1]
        done = np.append(done, item)
    return addresses
