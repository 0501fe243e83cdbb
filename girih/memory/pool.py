"""SwapAdvisor's memory pool (thesis §4.3.1) and how its genetic algorithm varies it (§4.4.3), as published.

A pool has size classes, each with a number of objects of one size. Every tensor size belongs to a class, whose objects
are as large as the largest size in it. `TS`, `CLS` and `CNT` of the thesis are `sizes`, `classes` (from 0) and `counts`
here. Sizes next to each other belong to one class or to neighbouring ones, so that there are 2^(sizes - 1) mappings
instead of sizes^sizes.

Crossover exchanges the first parts of two mappings, and of two lists that tell for each size how many objects it may
use; what is invalid then is repaired. Mutation changes several elements, each with a probability; numbers of objects
are drawn around the old ones. The thesis does not say how far around (here half of the number, at least 1), nor how the
first pools are drawn (here with random shares of the capacity).

`Pool.address` lays the classes out behind each other, so that a pool is also a way to give places: `FreeLists` hands
objects out and takes them back, and `pooled` does so for all stays of a residency.

Cost: of variation, linear in sizes; of `pooled`, O(stays · log stays).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from girih.memory.lifetimes import Lifetimes
from girih.memory.residency import Residency, Stay

Integers = NDArray[np.int64]


class PoolError(ValueError):
    """A class of a pool has no free object: the class, and the step that needs one."""

    def __init__(self, number: int, step: int) -> None:
        super().__init__(f"no object of size class {number} is free in step {step}")
        self.number = number
        self.step = step


@dataclass(frozen=True)
class Pool:
    """sizes: of tensors, in bytes, ascending, each once. classes: of each size, its class: from 0, each as the one
    before or one more. counts: of each class, its objects.

    Raises:
        ValueError: the sizes do not ascend, the classes are no such sequence, or there are not as many counts.
    """

    sizes: tuple[int, ...]
    classes: tuple[int, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.sizes or any(one >= two for one, two in zip(self.sizes, self.sizes[1:], strict=False)):
            raise ValueError(f"sizes must ascend, and there must be one: {self.sizes}")
        if len(self.classes) != len(self.sizes) or self.classes != mended_classes(self.classes):
            raise ValueError(f"classes must begin with 0 and grow by 0 or 1, one for each size: {self.classes}")
        if len(self.counts) != self.classes[-1] + 1 or min(self.counts) < 0:
            raise ValueError(f"there are {self.classes[-1] + 1} classes, each with 0 or more objects: {self.counts}")

    @cached_property
    def object_bytes(self) -> tuple[int, ...]:
        """Of an object of each class: the largest size in it."""
        return object_bytes(self.sizes, self.classes)

    @property
    def bytes(self) -> int:
        """Of all objects."""
        return sum(count * size for count, size in zip(self.counts, self.object_bytes, strict=True))

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where the objects of each class begin, if they lie behind each other."""
        lengths = [count * size for count, size in zip(self.counts, self.object_bytes, strict=True)]
        return tuple(np.cumsum([0, *lengths])[:-1].tolist())

    def class_of(self, size: int) -> int:
        """The class of a tensor of so many bytes.

        Raises:
            KeyError: the pool does not know this size.
        """
        at = bisect_left(self.sizes, size)
        if at == len(self.sizes) or self.sizes[at] != size:
            raise KeyError(f"the pool has sizes {self.sizes}, not {size}")
        return self.classes[at]

    def address(self, number: int, taken: int) -> int:
        """Where an object of a class lies: bytes from the beginning of the pool."""
        return self.starts[number] + taken * self.object_bytes[number]


def sizes_of(lives: Lifetimes) -> tuple[int, ...]:
    """The sizes of a program's storages in bytes, ascending: TS."""
    return tuple(sorted({item.bytes for item in lives.storages if item.bytes}))


def object_bytes(sizes: Sequence[int], classes: Sequence[int]) -> tuple[int, ...]:
    """Of an object of each class, in bytes."""
    return tuple(dict(zip(classes, sizes, strict=True)).values())  # the last size of a class is its largest


def mended_classes(classes: Sequence[int]) -> tuple[int, ...]:
    """A mapping in which each class is the one before or one more: elements grow as little as that takes, or shrink
    where they skip a class."""
    mended = [0]
    for number in classes[1:]:
        mended.append(min(max(number, mended[-1]), mended[-1] + 1))
    return tuple(mended)


def mended_counts(
    counts: Sequence[int], objects: Sequence[int], capacity: int, least: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Numbers of objects that fit into the capacity: where they did not, each is less by a number inverse to the size
    of its object, so that each class gives up as many bytes; none is below `least` (1 of each).

    objects: bytes of an object of each class. Raises ValueError: even the least do not fit.
    """
    low = np.ones(len(counts), np.int64) if least is None else np.asarray(least, np.int64)
    each = np.asarray(objects, np.int64)
    mended = np.maximum(np.asarray(counts, np.int64), low)
    if int(low @ each) > capacity:
        raise ValueError(
            f"{low.tolist()} objects of {each.tolist()} bytes need {int(low @ each)} bytes, not {capacity}"
        )
    while (excess := int(mended @ each) - capacity) > 0:
        free = mended > low
        share = excess / np.count_nonzero(free)
        mended[free] -= np.minimum(mended - low, np.ceil(share / each).astype(np.int64))[free]
    return tuple(mended.tolist())


def random_pool(random: np.random.Generator, sizes: tuple[int, ...], capacity: int) -> Pool:
    """A pool whose classes begin anywhere, and take any share of the capacity.

    Raises:
        ValueError: one object of each class does not fit.
    """
    classes = tuple(np.concatenate(([0], np.cumsum(random.integers(0, 2, len(sizes) - 1)))).tolist())
    objects = object_bytes(sizes, classes)
    shares = random.dirichlet(np.ones(len(objects)))
    counts = [int(share * capacity) // size for share, size in zip(shares, objects, strict=True)]
    return Pool(sizes, classes, mended_counts(counts, objects, capacity))


def crossed(one: Pool, two: Pool, at: int, capacity: int) -> tuple[Pool, Pool]:
    """Two children: the first has the second parent's mapping of the first `at` sizes, and the rest of the first
    parent; the second child the other way round."""
    children = []
    for head, tail in ((two, one), (one, two)):
        classes = mended_classes(head.classes[:at] + tail.classes[at:])
        children.append(_pool(one.sizes, classes, _extended(head)[:at] + _extended(tail)[at:], capacity))
    return children[0], children[1]


def mutated(random: np.random.Generator, pool: Pool, probability: float, capacity: int) -> Pool:
    """Each element of the mapping, and each number of objects, is changed with a probability.

    A size leaves its class for the next one or joins the one before, and all larger sizes with it.
    """
    classes = np.asarray(pool.classes, np.int64)
    for at in range(1, len(classes)):
        if random.random() < probability:
            classes[at:] += 1 if classes[at] == classes[at - 1] else -1
    counts = [
        max(1, round(random.normal(count, max(1.0, count / 2)))) if random.random() < probability else count
        for count in pool.counts
    ]
    changed = [counts[number] for number in pool.classes]
    return _pool(pool.sizes, tuple(classes.tolist()), changed, capacity)


def _extended(pool: Pool) -> list[int]:
    """How many objects each size may use."""
    return [pool.counts[number] for number in pool.classes]


def _pool(sizes: tuple[int, ...], classes: tuple[int, ...], extended: Sequence[int], capacity: int) -> Pool:
    """Each class has the mean number of what its sizes may use, made to fit."""
    usable: list[list[int]] = [[] for _ in range(classes[-1] + 1)]
    for number, count in zip(classes, extended, strict=True):
        usable[number].append(count)
    counts = [sum(own) // len(own) for own in usable]
    return Pool(sizes, classes, mended_counts(counts, object_bytes(sizes, classes), capacity))


class FreeLists:
    """The objects of a pool that are free, by class; what was given back last is taken first."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.free = [list(reversed(range(count))) for count in pool.counts]

    def has(self, number: int) -> bool:
        """Is an object of this class free?"""
        return bool(self.free[number])

    def take(self, number: int) -> int:
        """An object of a class. IndexError: none is free."""
        return self.free[number].pop()

    def give(self, number: int, taken: int) -> None:
        """An object is free again."""
        assert taken not in self.free[number]
        self.free[number].append(taken)


def pooled(lives: Lifetimes, residency: Residency, pool: Pool) -> tuple[int, ...]:
    """The address of each stay in the pool: [stays]; -1 of what has no bytes.

    Raises:
        PoolError: all objects of a class are taken where one more is needed.
    """
    lists = FreeLists(pool)
    addresses = [-1] * len(residency.stays)
    ends: dict[int, list[tuple[int, int]]] = {}  # (class, object) that are free before a step
    at = 0
    for number in _by_start(residency.stays):
        stay = residency.stays[number]
        size = lives.storages[stay.storage].bytes
        if not size:
            continue
        for step in range(at, max(stay.start, 0) + 1):
            for item in ends.pop(step, ()):
                lists.give(*item)
        at = max(stay.start, 0)
        own = pool.class_of(size)
        if not lists.has(own):
            raise PoolError(own, stay.start)
        taken = lists.take(own)
        addresses[number] = pool.address(own, taken)
        if not stay.lasts:
            ends.setdefault(max(stay.last, 0) + 1, []).append((own, taken))
    return tuple(addresses)


def least_counts(lives: Lifetimes, sizes: Sequence[int], classes: Sequence[int]) -> Integers:
    """The objects of each class that some step needs for what it touches: with fewer it cannot run."""
    at = dict(zip(sizes, classes, strict=True))
    touching: list[Collection[int]] = [() for _ in range(len(lives.steps) + 1)]
    for storage in lives.storages:
        for step in storage.touched if storage.bytes else ():
            if step >= 0:
                touching[step] = (*touching[step], at[storage.bytes])
    needed = [np.bincount(np.asarray(own, np.int64), minlength=classes[-1] + 1) for own in touching]
    most: Integers = np.max(needed, axis=0)
    return most


def _by_start(stays: Sequence[Stay]) -> list[int]:
    return sorted(range(len(stays)), key=lambda number: max(stays[number].start, 0))
