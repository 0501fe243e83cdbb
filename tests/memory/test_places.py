"""Places in an arena: nothing that is alive at one time overlaps, and no arena is below the bound."""

from itertools import pairwise

import numpy as np
from graphs import random_graph
from hypothesis import given, settings
from hypothesis import strategies as st
from lowered_programs import alone

from girih.memory.lifetimes import lifetimes
from girih.memory.places import alive, best_fit, placed

ITEMS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 9)), min_size=1, max_size=30)


@given(ITEMS, st.randoms(use_true_random=False))
def test_nothing_alive_together_overlaps(items, random):
    first = np.array([min(one, two) for one, two, _ in items])
    last = np.array([max(one, two) for one, two, _ in items])
    sizes = np.array([64 * size for *_, size in items])
    order = np.array(random.sample(range(len(items)), len(items)))
    addresses = best_fit(first, last, sizes, order)
    for one in range(len(items)):
        for two in range(one):
            together = first[one] <= last[two] and first[two] <= last[one]
            apart = addresses[one] + sizes[one] <= addresses[two] or addresses[two] + sizes[two] <= addresses[one]
            assert not together or apart or not sizes[one] or not sizes[two]
    assert (addresses + sizes).max() >= alive(first, last, sizes)


def test_the_smallest_gap_that_is_large_enough_is_taken():
    """Two gaps open when the first and third of five items end: the small newcomer goes into the smaller one."""
    first, last = np.array([0, 0, 0, 0, 2]), np.array([1, 3, 1, 3, 3])
    sizes = np.array([256, 64, 128, 64, 128])
    assert best_fit(first, last, sizes, np.arange(5)).tolist() == [0, 256, 320, 448, 320]


@given(st.integers(0, 2**32), st.integers(1, 14))
@settings(max_examples=40)
def test_an_arena_holds_what_a_program_uses_in_every_step(seed, nodes):
    lives = lifetimes(alone(random_graph(np.random.default_rng(seed), nodes)))
    places = placed(lives)
    assert lives.used.max() <= places.bound <= places.bytes
    for step in range(len(lives.steps) + 1):
        runs = [(places.scratch[step], int(lives.extra[step]))] + [
            (address, item.bytes)
            for address, item in zip(places.addresses, lives.storages, strict=True)
            if item.born <= step and (item.lasts or step <= item.last)
        ]
        runs = sorted(run for run in runs if run[1])
        assert all(one + size <= two for (one, size), (two, _) in pairwise(runs))
        assert all(address % 64 == 0 and address + size <= places.bytes for address, size in runs)
