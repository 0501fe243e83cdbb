"""Places in an arena: nothing that is alive at one time overlaps, and no arena is below the bound."""

from dataclasses import replace
from itertools import combinations, pairwise, permutations

import numpy as np
import pytest
from counts import random_cases
from graphs import random_graph
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lowered_programs import alone
from run_programs import training

from girih.program.life.lifetimes import lifetimes
from girih.program.moves.moves import moved
from girih.program.moves.residency import floor
from girih.program.places.fit import fit, improved
from girih.program.places.items import Items, StateError, items_of
from girih.program.places.peaks import by_peaks
from girih.program.places.places import _arrays, _small_last, addressed, by_size, by_time, placed, top
from girih.program.places.small import smallest
from girih.search.memory.belady import belady

ITEMS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 9)), min_size=1, max_size=30)
FEW = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 5)), min_size=1, max_size=5)


def plain_items(first, last, sizes) -> Items:
    """Items with one span each."""
    nothing, own = np.zeros(0, np.int64), np.arange(len(sizes))
    return Items(
        first, last, np.ones_like(first), np.zeros_like(first), sizes, sizes, own, nothing.reshape(0, 2), nothing
    )


def items_from(drawn):
    first = np.array([min(one, two) for one, two, _ in drawn])
    last = np.array([max(one, two) for one, two, _ in drawn])
    return plain_items(first, last, np.array([64 * size for *_, size in drawn]))


def check(items, addresses) -> None:
    """No two items that are alive together overlap, but where they may."""
    allowed = {frozenset(pair) for pair in items.overlapping.tolist()}
    spans = [
        [(first, last) for first, last in (pair[:2], pair[2:]) if first <= last]
        for pair in zip(*(part.tolist() for part in (items.first, items.last, items.first2, items.last2)), strict=True)
    ]
    for one, two in combinations(np.flatnonzero(items.sizes).tolist(), 2):
        together = any(a[0] <= b[1] and b[0] <= a[1] for a in spans[one] for b in spans[two])
        ends = addresses + items.sizes
        apart = ends[one] <= addresses[two] or ends[two] <= addresses[one]
        assert not together or apart or frozenset((one, two)) in allowed
    assert top(items, addresses) >= items.bound or len(items.over)


@given(ITEMS, st.randoms(use_true_random=False), st.booleans())
def test_nothing_alive_together_overlaps(drawn, random, lowest):
    items = items_from(drawn)
    order = np.array(random.sample(range(len(drawn)), len(drawn)))
    order = order[items.sizes[order] > 0]
    arrays = _arrays(items)
    plain = np.maximum(fit(*arrays, order, lowest, 1 << 62), 0)
    check(items, plain)
    if len(order):
        better, _, _ = improved.plain(*arrays, order, lowest, top(items, plain), items.bound, 20_000, 1)
        check(items, np.maximum(better, 0))
        assert top(items, np.maximum(better, 0)) <= top(items, plain)


def test_the_smallest_gap_that_is_large_enough_is_taken():
    """Two gaps open when the first and third of five items end: the small newcomer goes into the smaller one."""
    items = plain_items(np.array([0, 0, 0, 0, 2]), np.array([1, 3, 1, 3, 3]), np.array([256, 64, 128, 64, 128]))
    arrays = _arrays(items)
    assert fit(*arrays, np.arange(5), False, 1 << 62).tolist() == [0, 256, 320, 448, 320]
    assert fit(*arrays, np.arange(5), True, 1 << 62).tolist() == [0, 256, 320, 448, 0]


@given(FEW)
@settings(max_examples=random_cases(60))
def test_few_items_are_placed_as_by_brute_force(drawn):
    """Some order of the items, each at the lowest gap, gives the smallest arena."""
    items = items_from(drawn)
    arrays = _arrays(items)
    orders = (np.array(order) for order in permutations(range(len(drawn))))
    best = min(top(items, fit.plain(*arrays, order, True, 1 << 62)) for order in orders)
    exact = smallest(items)
    check(items, exact)
    assert top(items, exact) == best


def test_the_search_finds_what_no_order_of_sizes_has():
    """Lives as bricks: best fit by size and by time leave holes, and the search fills the arena."""
    random = np.random.default_rng(3)
    first = random.integers(0, 30, 60)
    items = plain_items(first, first + random.integers(0, 12, 60), 64 * random.integers(1, 30, 60))
    addresses = addressed(items, 3_000_000)
    check(items, addresses)
    assert top(items, addresses) <= 1.003 * items.bound < min(by_size(items), by_time(items))


def state_changes_names(graph, lives) -> bool:
    """Whether what is to be one part of the state is, unchanged, another part of it or another input."""
    number_of = {buffer: number for number, item in enumerate(lives.storages) for buffer in item.buffers}
    pairs = ((number_of.get(old), number_of.get(new)) for old, new in graph.updates.items())
    return any(
        None not in (old, new) and old != new and lives.storages[old].bytes and lives.storages[new].born == -1
        for old, new in pairs
    )


@given(st.integers(0, 2**32), st.integers(1, 14))
@settings(max_examples=random_cases(25))
@example(286181, 3)  # a state input whose new value is another input
@example(0, 6)  # new state with a stride of its own for one element
def test_an_arena_holds_what_a_program_uses_in_every_step(seed, nodes):
    graph = random_graph(np.random.default_rng(seed), nodes)
    lives = lifetimes(alone(graph))
    if state_changes_names(graph, lives):
        with pytest.raises(StateError, match="old state of another name"):
            placed(lives, 100_000)
        return
    places = placed(lives, 100_000)
    assert places.bound <= places.bytes
    for step in range(len(lives.steps) + 1):
        operand = lives.taken.get(step)
        over = 0 if operand is None else lives.storages[operand].bytes
        results = [number for number, item in enumerate(lives.storages) if item.born == step]
        inside = (
            {operand} if any(places.addresses[number] == places.addresses[operand or 0] for number in results) else ()
        )
        runs = [(places.scratch[step], int(lives.extra[step]) + over if step < len(lives.steps) else 0)] + [
            (address, item.bytes)
            for number, (address, item) in enumerate(zip(places.addresses, lives.storages, strict=True))
            if item.born <= step and (item.lasts or step <= item.last) and number not in inside
        ]
        runs = sorted(run for run in runs if run[1])
        assert all(one + size <= two for (one, size), (two, _) in pairwise(runs))
        assert all(address % 64 == 0 and address + size <= places.bytes for address, size in runs)
        for start, stop in places.gaps[step].tolist():
            assert all(stop <= at or at + size <= start for at, size in runs[1:] if at != places.scratch[step])


@pytest.mark.parametrize("share", [None, 0.5])
def test_state_comes_to_lie_where_it_lay(share) -> None:
    captured, *_ = training((64, 32, 48, 16))
    program = alone(captured.graph)
    lives = lifetimes(program)
    if share is not None:
        least = floor(lives)[0]
        cap = least + int(share * (int(lives.used.max()) - least))
        lives = lifetimes(moved(program_lives := lives, belady(program_lives, cap, np.ones(len(lives.steps))), cap))
    places = placed(lives, 1_000_000)
    items = places.items
    check(items, np.array([*places.addresses, *places.scratch]))
    numbers = {buffer: number for number, item in enumerate(lives.storages) for buffer in item.buffers}
    copied = set(items.copied)
    pairs = [(numbers[old], numbers[new]) for old, new in lives.program.graph.updates.items() if new in numbers]
    pairs = [(old, new) for old, new in pairs if lives.storages[old].bytes]
    assert pairs
    for old, new in pairs:
        assert (places.addresses[old] == places.addresses[new]) or (old, new) in copied
    assert len(copied) < len(pairs)
    if share is None:
        assert places.bytes <= 1.003 * places.bound
        assert items_of(lives).in_place


def test_what_is_handed_over_is_not_over_a_second_life() -> None:
    """A copy in takes over what old state leaves, and is still there when the new state comes back to its place."""
    first, last, sizes = np.array([0, 3]), np.array([4, 9]), np.array([128, 64])
    plain = plain_items(first, last, sizes)
    handed = replace(plain, over=np.array([[1, 0]]), taken=np.array([64]))
    assert handed.overlapping.tolist() == [[1, 0]]
    assert top(handed, addressed(handed)) == handed.bound == 128
    again = replace(handed, first2=np.array([8, 1]), last2=np.array([10, 0]))
    assert again.overlapping.tolist() == []
    check(again, addressed(again))
    assert top(again, addressed(again)) == 192


def test_what_is_alive_in_the_fullest_steps_lies_in_stacks() -> None:
    """Steps with much scratch among values of unlike lives: their stacks leave no gap, where other orders do."""
    random = np.random.default_rng(1)
    first = random.integers(0, 200, 300)
    last = np.minimum(first + random.integers(1, 120, 300), 199)
    sizes = 64 * random.integers(1, 40, 300)
    used = np.array([sizes[(first <= step) & (step <= last)].sum() for step in range(200)])
    spikes = np.array([60, 100, 140])
    scratch = (used.max() * 6 // 5 - used[spikes] + 64 * np.array([3, 2, 1])) // 64 * 64
    items = plain_items(np.append(first, spikes), np.append(last, spikes), np.append(sizes, scratch))
    order = by_peaks(items, lambda order: fit(*_arrays(items), order, True, 1 << 62))
    assert sorted(order.tolist()) == list(range(303))
    stacked = top(items, fit(*_arrays(items), order, True, 1 << 62))
    assert items.bound <= stacked < min(by_size(items), by_time(items))


def test_small_items_come_behind_large_ones_in_one_of_the_orders() -> None:
    """An order by the fullest steps places small items that live there before large ones that do not."""
    times = np.arange(40)
    items = plain_items(times, times + 3, np.where(times % 2, 64 * (1 + times), 64 * 640))
    order = np.random.default_rng(0).permutation(40)
    orders = _small_last(items, order)
    assert len(orders) > 1
    for other in orders:
        sizes = items.sizes[other]
        (split,) = (
            at
            for at in range(1, 40)
            if sizes[:at].min() > sizes[at:].max()
            and [*other] == [item for part in (other[:at], other[at:]) for item in order if item in {*part}]
        )
        assert split >= 20
    assert any(not np.array_equal(one, other) for one, other in pairwise(orders))
