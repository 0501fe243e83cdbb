"""SwapAdvisor's genetic algorithm (thesis §4.4): orders and memory pools that evolve together.

A population of random pairs of an order and a pool; each generation crosses pairs of parents, mutates the children,
and lets a population survive by the softmax of the normalized time. Of each pair of parents there are two new orders
and two new pools, and so four children. Children are timed on all cores.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import cpu_count
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from benchmarks.genetic.evaluate import SwapProblem, seconds_of_step
from benchmarks.genetic.orders import crossed_orders, mutated_order
from benchmarks.genetic.pool import Pool, crossed, least_counts, mended_counts, mutated, object_bytes, random_pool
from girih.layout.budget import Budget

Integers = NDArray[np.int64]

POPULATION = 144
"""Individuals that live at a time: as many as in the thesis (§5.1), which had 72 cores."""

MUTATION = 0.1
"""The probability of the thesis (§5.1)."""

ATTEMPTS = 20
"""How often a random pool is drawn anew where the mapping of sizes leaves too few objects."""

INDIVIDUAL, STEP = 200_000.0, 500.0
"""Nanoseconds that an individual takes, made and timed on two cores: at all, and for each step of the graph."""


@dataclass(frozen=True)
class Individual:
    """An order, a pool, and the seconds of a step with them; infinite where it cannot run."""

    order: Integers
    pool: Pool
    seconds: float = np.inf


@dataclass(frozen=True)
class Generation:
    """What was alive behind a generation: wall seconds since the search began, and of those that can run the shortest,
    the mean and the longest step, in seconds."""

    took: float
    best: float
    mean: float
    worst: float


@dataclass(frozen=True)
class Evolution:
    """best: of all that ever were. generations: the first is the random one."""

    best: Individual
    generations: tuple[Generation, ...]


def evolved(
    item: SwapProblem,
    capacity: int,
    *,
    budget: float,
    seed: int = 0,
    population: int = POPULATION,
    mutation: float = MUTATION,
    recent: float = 0.0,
    orders: bool = True,
    pools: bool = True,
    observe: Callable[[Generation], None] = lambda generation: None,
) -> Evolution:
    """The best order and pool of so many whole generations as `budget` allows; at least the random one.

    budget: seconds of work, counted, so that equal seeds give equal answers. capacity: bytes of the pool. recent: of
    the planner's threshold, in seconds. orders, pools: is this half searched? Else all have the program's order, or a
    pool as frameworks have it.

    Raises:
        ValueError: no pool can be drawn that has the objects which each step needs by itself.
    """
    random, began, work = np.random.default_rng(seed), perf_counter(), Budget(budget)
    captured = np.arange(len(item.seconds))
    each = INDIVIDUAL + STEP * len(captured)
    needs, sizes = item.needs, item.size_table

    def pool() -> Pool:
        for attempt in range(ATTEMPTS):
            try:
                return random_pool(random, sizes, capacity, needs)
            except ValueError:
                if attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError

    def changed(old: Pool) -> Pool:
        if not pools:
            return old
        try:
            return mutated(random, old, mutation, capacity, needs)
        except ValueError:  # this mapping of sizes leaves too few objects
            return old

    def both(one: Pool, two: Pool) -> tuple[Pool, Pool]:
        try:
            return crossed(one, two, int(random.integers(0, len(sizes) + 1)), capacity, needs) if pools else (one, two)
        except ValueError:
            return one, two

    def order(old: Integers, probability: float) -> Integers:
        return mutated_order(random, item.links, old, probability) if orders else old

    def timed(individual: Individual) -> Individual:
        took = seconds_of_step(item, individual.order, individual.pool, recent)
        return Individual(individual.order, individual.pool, took)

    fixed = None if pools else _usual(item, capacity)
    with ThreadPoolExecutor(cpu_count()) as threads:
        drawn = [Individual(order(captured, 1.0), fixed or pool()) for _ in range(population)]
        alive = list(threads.map(timed, drawn))
        best = min(alive, key=lambda individual: individual.seconds)
        work.spend(population * each)
        generations = [_seen(alive, perf_counter() - began)]
        observe(generations[0])
        while not work.late:
            children = []
            for one, two in random.permutation(population)[: population // 2 * 2].reshape(-1, 2):
                at = int(random.integers(0, len(captured) + 1))
                new_orders = crossed_orders(alive[one].order, alive[two].order, at) if orders else (captured,)
                new_pools = both(alive[one].pool, alive[two].pool)
                for new_order in new_orders:
                    mine = order(new_order, mutation)
                    children += [Individual(mine, changed(new_pool)) for new_pool in new_pools]
            alive += threads.map(timed, children)
            work.spend(len(children) * each)
            best = min((best, *alive), key=lambda individual: individual.seconds)
            alive = _surviving(random, alive, population, best.seconds)
            generations.append(_seen(alive, perf_counter() - began))
            observe(generations[-1])
    return Evolution(best, tuple(generations))


def _surviving(random: np.random.Generator, alive: list[Individual], population: int, best: float) -> list[Individual]:
    """So many, drawn by the softmax of (best - seconds) / best (4.1). Those that cannot run fill up what is missing."""
    seconds = np.asarray([individual.seconds for individual in alive])
    if not np.isfinite(best):
        return alive[-population:]
    weights = np.exp((best - seconds) / best)
    able = np.flatnonzero(weights > 0)
    count = min(population, len(able))
    chosen = random.choice(able, count, replace=False, p=weights[able] / weights[able].sum()).tolist()
    chosen += np.flatnonzero(weights == 0)[: population - count].tolist()
    return [alive[number] for number in chosen]


def _seen(alive: list[Individual], took: float) -> Generation:
    seconds = np.asarray([individual.seconds for individual in alive])
    able = seconds[np.isfinite(seconds)]
    if not len(able):
        return Generation(took, np.inf, np.inf, np.inf)
    return Generation(took, float(able.min()), float(able.mean()), float(able.max()))


def _usual(item: SwapProblem, capacity: int) -> Pool:
    """Classes of sizes within a factor, the smallest power of 2 with which what each step needs fits, as allocators of
    frameworks have them; each with a share of the capacity as of all tensors' bytes.

    Raises:
        ValueError: no factor fits.
    """
    sizes = np.asarray(item.size_table)
    many = np.bincount(item.sizes[item.sizes >= 0], minlength=len(sizes))
    share = min(1.0, capacity / float(many @ sizes))
    for octaves in (1, 2, 4, 64):
        classes = np.unique(np.log2(sizes).astype(np.int64) // octaves, return_inverse=True)[1]
        counts = (np.bincount(classes, many) * share).astype(np.int64)
        objects = object_bytes(item.size_table, classes.tolist())
        try:
            fitting = mended_counts(counts.tolist(), objects, capacity, least_counts(item.needs, classes))
        except ValueError:
            if octaves == 64:
                raise
        else:
            return Pool(item.size_table, tuple(classes.tolist()), fitting)
    raise AssertionError
