"""Places in an arena: nothing that is alive at one time overlaps, and no arena is below the bound."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from girih.memory.places import alive, best_fit

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
