"""SwapAdvisor's memory pool (thesis §4.3.1) and how its genetic algorithm varies it (§4.4.3), as published.

A pool has size classes, each with a number of objects of one size. Every tensor size belongs to a class, whose objects
are as large as the largest size in it. `TS`, `CLS` and `CNT` of the thesis are `sizes`, `classes` (from 0) and `counts`
here. Sizes next to each other belong to one class or to neighbouring ones, so that there are 2^(sizes - 1) mappings
instead of sizes^sizes.

Crossover exchanges the first parts of two mappings, and of two lists that tell for each size how many objects it may
use; what is invalid then is repaired. Mutation changes several elements, each with a probability; numbers of objects
are drawn around the old ones. The thesis does not say how far around (here half of the number, at least 1), nor how the
first pools are drawn (here with random shares of the capacity).

`needs` is a table with a row for each kind of step and a column for each size: how many tensors of that size the step
uses at once. A pool has no fewer objects than each step needs by itself, since it could not run.

Cost: of each variation, linear in the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


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
        """The bytes of an object of each class: the largest size in it."""
        return object_bytes(self.sizes, self.classes)

    @property
    def bytes(self) -> int:
        """The bytes of all objects together."""
        return sum(count * size for count, size in zip(self.counts, self.object_bytes, strict=True))


def object_bytes(sizes: Sequence[int], classes: Sequence[int]) -> tuple[int, ...]:
    """The bytes of an object of each class."""
    return tuple(dict(zip(classes, sizes, strict=True)).values())  # the last size of a class is its largest


def mended_classes(classes: Sequence[int]) -> tuple[int, ...]:
    """A mapping in which each class is the one before or one more: elements grow as little as that takes, or shrink
    where they skip a class."""
    mended = [0]
    for number in classes[1:]:
        mended.append(min(max(number, mended[-1]), mended[-1] + 1))
    return tuple(mended)


def mended_counts(
    counts: Sequence[int], objects: Sequence[int], capacity: int, least: Sequence[int] | Integers | None = None
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


def random_pool(random: np.random.Generator, sizes: tuple[int, ...], capacity: int, needs: Integers) -> Pool:
    """A pool whose classes begin anywhere, and take any share of the capacity.

    Raises:
        ValueError: what some step needs does not fit in these classes.
    """
    classes = tuple(np.concatenate(([0], np.cumsum(random.integers(0, 2, len(sizes) - 1)))).tolist())
    objects = object_bytes(sizes, classes)
    shares = random.dirichlet(np.ones(len(objects)))
    counts = [int(share * capacity) // size for share, size in zip(shares, objects, strict=True)]
    return Pool(sizes, classes, mended_counts(counts, objects, capacity, least_counts(needs, classes)))


def crossed(one: Pool, two: Pool, at: int, capacity: int, needs: Integers) -> tuple[Pool, Pool]:
    """Two children: the first has the second parent's mapping of the first `at` sizes, and the rest of the first
    parent; the second child the other way round."""
    children = []
    for head, tail in ((two, one), (one, two)):
        classes = mended_classes(head.classes[:at] + tail.classes[at:])
        children.append(_pool(one.sizes, classes, _extended(head)[:at] + _extended(tail)[at:], capacity, needs))
    return children[0], children[1]


def mutated(random: np.random.Generator, pool: Pool, probability: float, capacity: int, needs: Integers) -> Pool:
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
    return _pool(pool.sizes, tuple(classes.tolist()), changed, capacity, needs)


def _extended(pool: Pool) -> list[int]:
    """How many objects each size may use."""
    return [pool.counts[number] for number in pool.classes]


def _pool(
    sizes: tuple[int, ...], classes: tuple[int, ...], extended: Sequence[int], capacity: int, needs: Integers
) -> Pool:
    """Each class has the mean number of what its sizes may use, made to fit."""
    usable: list[list[int]] = [[] for _ in range(classes[-1] + 1)]
    for number, count in zip(classes, extended, strict=True):
        usable[number].append(count)
    counts = [sum(own) // len(own) for own in usable]
    return Pool(
        sizes, classes, mended_counts(counts, object_bytes(sizes, classes), capacity, least_counts(needs, classes))
    )


def least_counts(needs: Integers, classes: Sequence[int] | Integers) -> Integers:
    """The objects of each class that some step needs by itself."""
    begins = np.flatnonzero(np.diff(np.asarray(classes), prepend=-1))
    least: Integers = np.maximum(np.add.reduceat(needs, begins, axis=1).max(axis=0), 1)
    return least
