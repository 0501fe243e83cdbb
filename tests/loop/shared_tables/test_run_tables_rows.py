"""What workers and servers hold rows in: hash tables, caches and sparse rows, against dictionaries."""

from __future__ import annotations

import numpy as np
import pytest
from counts import random_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from girih.loop.shared_tables.options import TableOptions, TableSpec
from girih.loop.shared_tables.rows.cache import DenseCached, Rowset, SparseCached
from girih.loop.shared_tables.rows.functions import AdaRevision, Versions
from girih.loop.shared_tables.rows.keyed import AHEAD, READ, CachePlaces, Log
from girih.loop.shared_tables.rows.sparse import SparseRows
from girih.loop.shared_tables.rows.store import Dense, Partition, Shadow, Sparse, Update

KEYS = st.lists(st.integers(0, 40), min_size=1, max_size=30)


@settings(max_examples=random_cases(40))
@given(st.lists(KEYS, min_size=1, max_size=6))
def test_a_log_adds_up_what_has_the_same_key(batches: list[list[int]]) -> None:
    log = Log(16, 2, np.float64)
    expected: dict[int, float] = {}
    for batch in batches:
        keys = np.array(batch)
        deltas = np.arange(2.0 * len(keys)).reshape(-1, 2)
        end = log.add(keys, deltas, 0)
        for key, delta in zip(batch[:end], deltas, strict=False):
            expected[key] = expected.get(key, 0.0) + delta[1]
        if end < len(keys):  # full: it holds as many keys as it may, and not this one
            assert log.count == 16
            assert batch[end] not in expected
            break
    assert dict(zip(log.keys[: log.count].tolist(), log.deltas[: log.count, 1].tolist(), strict=True)) == expected
    out = np.zeros((41, 2))
    log.add_to(np.arange(41), out)
    assert {key: value for key, value in enumerate(out[:, 1].tolist()) if value} == {
        key: value for key, value in expected.items() if value
    }


@settings(max_examples=random_cases(40))
@given(st.lists(KEYS, min_size=1, max_size=8), st.sampled_from([2, 8, 16, 100]))
def test_a_cache_finds_what_it_has_and_says_what_went(batches: list[list[int]], capacity: int) -> None:
    places = CachePlaces(41, capacity)
    held = np.full(places.slots, -1)
    there: set[int] = set()
    for batch in batches:
        rows = np.array(batch)
        slots, dropped = places.claim(rows)
        held[slots] = rows
        there = (there | set(batch)) - set(dropped.tolist())
        there |= {row for row in batch if places.find(np.array([row]))[1] == 0}  # it went, and came back
        found, missing = places.find(np.arange(41))
        assert {row for row in range(41) if found[row] >= 0} == there
        assert missing == 41 - len(there)
        assert all(held[found[row]] == row for row in there)
        assert sorted(places.present().tolist()) == sorted(there)


ENTRIES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30), st.integers(-3, 3)), max_size=60)


@settings(max_examples=random_cases(40))
@given(st.lists(ENTRIES, min_size=1, max_size=4))
def test_sparse_rows_are_maps_without_zeros(batches: list[list[tuple[int, int, int]]]) -> None:
    rows = SparseRows(5, np.int32, entries=8)
    expected = np.zeros((5, 31), np.int32)
    for batch in batches:
        if not batch:
            continue
        at = np.array(batch)
        rows.add(at[:, 0], at[:, 1].astype(np.int32), at[:, 2].astype(np.int32))
        np.add.at(expected, (at[:, 0], at[:, 1]), at[:, 2])
    counts, columns, values = rows.get(np.array([4, 0, 1, 2, 3]))
    found = np.zeros_like(expected)
    for row, begin, count in zip([4, 0, 1, 2, 3], np.cumsum(counts) - counts, counts, strict=True):
        own = slice(begin, begin + count)
        assert (np.diff(columns[own]) > 0).all()
        found[row, columns[own]] = values[own]
    assert (found == expected).all()
    assert (values != 0).all()


def test_sparse_rows_take_no_more_room_than_they_need() -> None:
    rows = SparseRows(10, np.float32)
    ones = np.ones(50, np.float32)
    for round_ in range(200):
        sign = 1 if round_ % 2 == 0 else -1
        rows.add(np.full(50, round_ % 10), np.arange(50, dtype=np.int32), sign * ones)
    assert rows.bytes < 8 * 4096


def revised_by_hand(step: float, gradients: list[float], missed: list[float]) -> float:
    """Algorithm 2 of McMahan and Streeter for one number."""
    x, total, z, largest = 0.0, 0.0, 1.0, 1.0
    for g, behind in zip(gradients, missed, strict=True):
        old = step / largest**0.5
        z += g * g + 2 * g * behind
        largest = max(largest, z)
        new = step / largest**0.5
        x = x - new * g + (old - new) * behind
        total += g
    return x


def test_adarevision_is_the_algorithm_of_its_paper() -> None:
    spec = TableSpec("w", 2, 1, "float64", function=AdaRevision(0.5))
    partition = Partition(spec, 0, TableOptions(workers=2, staleness=1))
    partition.take(0, np.array([1]), 0)  # version 0 of row 1, with the sum 0
    one = np.array([1])
    gradients, missed = [0.5, -1.5, 2.0], [0.0, 0.5, -1.0]
    for gradient in gradients:  # all computed from version 0
        update = Update(one, np.array([[gradient]]), versions=np.array([0], np.int32))
        partition.add(update, 0, 0)
    assert isinstance(partition.store, Dense)
    assert partition.store.values[1, 0] == revised_by_hand(0.5, gradients, missed)
    assert partition.store.versions is not None
    assert partition.store.versions.numbers.tolist() == [0, 3]


def test_an_update_of_several_versions_is_applied_one_after_another() -> None:
    spec = TableSpec("w", 1, 1, "float64", function=AdaRevision(0.5))
    together, apart = (Partition(spec, 0, TableOptions(workers=1, staleness=1)) for _ in range(2))
    rows = np.array([0, 0])
    deltas, versions = np.array([[1.0], [2.0]]), np.array([0, 1], np.int32)
    for partition in (together, apart):
        partition.take(0, rows[:1], 0)
    together.add(Update(rows, deltas, versions=versions), 0, 0)
    for i in range(2):
        apart.add(Update(rows[i : i + 1], deltas[i : i + 1], versions=versions[i : i + 1]), 0, 0)
    assert together.store.get(rows)[0].tolist() == apart.store.get(rows)[0].tolist()


def test_versions_that_may_be_in_use_are_kept() -> None:
    versions = Versions(1, 1, np.float64, limit=2, staleness=1)
    row = np.array([0])
    versions.remember(row, np.array([[10.0]]), 0)
    versions.changed(row, 0)
    versions.remember(row, np.array([[20.0]]), 0)
    versions.changed(row, 0)
    assert versions.seen(np.array([0, 0]), np.array([0, 1])).tolist() == [[10.0], [20.0]]
    assert not versions.can_remember(row, 2)[0]
    assert versions.can_remember(row, 3)[0]  # all workers have read a newer one by then
    versions.remember(row, np.array([[30.0]]), 2)
    assert versions.replaced == 1
    assert versions.seen(row, np.array([0])).tolist() == [[20.0]]  # the oldest that is known


def test_a_shadow_has_no_later_updates() -> None:
    rows = np.array([1, 3])
    spec = TableSpec("w", 5, 2, "int32")
    dense = Dense(spec, 5, TableOptions(workers=1))
    shadow = Shadow(dense, 5)
    early, late = np.ones((2, 2), np.int32), np.full((2, 2), 10, np.int32)
    shadow.protect(rows)
    dense.add(Update(rows, late), 0)
    shadow.add(Update(rows[:1], early[:1]))  # of an earlier tick, after a later one
    dense.add(Update(rows[:1], early[:1]), 0)
    assert shadow.read(0, 5)[0][:, 0].tolist() == [0, 1, 0, 0, 0]
    assert dense.values[:, 0].tolist() == [0, 11, 0, 10, 0]


def test_a_shadow_of_sparse_rows_has_no_later_updates() -> None:
    sparse = Sparse(TableSpec("w", 3, 9, "int32", sparse=True), 3, TableOptions(workers=1))
    one = np.array([1])
    sparse.add(Update(one, np.array([4], np.int32), np.array([2], np.int32)), 0)
    shadow = Shadow(sparse, 3)
    shadow.protect(one)
    sparse.add(Update(one, np.array([7], np.int32), np.array([5], np.int32)), 0)
    for column in (2, 8):
        shadow.add(Update(one, np.array([1], np.int32), np.array([column], np.int32)))
    counts, columns, values = shadow.read(0, 3)
    assert (counts.tolist(), columns.tolist(), values.tolist()) == ([0, 2, 0], [2, 8], [5, 1])


def test_what_a_copy_lacks_counts_for_those_who_lack_it() -> None:
    """A worker's copy has its own updates: they must not push a row to the front of what it is sent."""
    options = TableOptions(workers=2, staleness=1, bandwidth=1e6, priority="absolute")
    for sparse in (False, True):
        partition = Partition(TableSpec("w", 3, 1, "float64", sparse=sparse), 0, options)
        rows = np.array([0, 2])
        for worker in (0, 1):
            partition.take(worker, rows, 0)
        deltas, columns = np.array([-3.0, 1.0]), np.zeros(2, np.int32)
        for _ in range(2):
            partition.add(Update(rows, deltas, columns) if sparse else Update(rows, deltas[:, None]), 0, 0)
        assert partition.change is not None
        assert partition.change.tolist() == [[0.0, 0.0, 0.0], [6.0, 0.0, 2.0]]
        partition.take(1, rows[:1], 0)
        assert partition.change[1].tolist() == [0.0, 0.0, 2.0]


def test_rows_fetched_ahead_outlive_rows_that_were_read() -> None:
    """Twelve rows are always ahead in twenty slots: none goes before it is read, though all that were read are newer
    than some of them."""
    places = CachePlaces(10_000, 20)
    places.claim(np.arange(12), AHEAD)
    for row in range(2000):
        assert places.find(np.array([row]), READ)[1] == 0
        places.claim(np.array([row + 12]), AHEAD)


@pytest.mark.parametrize(("dtype", "order", "change"), [("float64", "relative", 0.25), ("int32", "absolute", 2.0)])
def test_counts_go_by_their_change_and_other_numbers_by_the_relative_one(dtype: str, order: str, change: float) -> None:
    options, spec = TableOptions(workers=2, staleness=1, bandwidth=1e6), TableSpec("w", 1, 1, dtype)
    partition = Partition(spec, 0, options)
    partition.write(np.array([0]), np.array([[6]], dtype))
    partition.add(Update(np.array([0]), np.array([[2]], dtype)), 0, 0)
    assert options.order_of(spec) == order
    assert partition.change is not None
    assert partition.change[1].tolist() == [change]


def test_relative_importance_is_the_sum_of_changes_over_values() -> None:
    """Of a value that is 0, or not cached, the change itself counts."""
    options = TableOptions(workers=2, staleness=1, bandwidth=1e6, priority="relative")
    start = np.array([[8.0, 0.0], [1.0, 2.0]])
    rows, deltas = np.array([0, 1]), np.array([[2.0, 0.0], [1.0, -4.0]])
    for sparse in (False, True):
        spec = TableSpec("w", 3, 2, "float64", sparse=sparse)
        partition = Partition(spec, 0, options)
        cached = (SparseCached if sparse else DenseCached)(spec, 1)
        if sparse:
            counts, columns, values = np.array([1, 2], np.int32), np.array([0, 0, 1], np.int32), start[start != 0]
            partition.write(rows, counts, columns, values)
            cached.receive(rows, Rowset(counts, columns, values), READ)
            entries = np.array([0, 1, 1]), np.array([0, 0, 1], np.int32)
            changed = Update(entries[0], deltas[entries], entries[1])
            keys, waiting = entries[0] * 2 + entries[1], changed.deltas[:, None]
        else:
            partition.write(rows, start)
            cached.receive(rows, start, None, READ)
            changed, keys, waiting = Update(rows, deltas), rows, deltas
        partition.add(changed, 0, 0)
        assert partition.change is not None
        assert partition.change[1].tolist() == [np.float32(2 / 10), 1 / 2 + 4 / 2, 0.0]
        cached.add(keys, waiting, 0)
        assert cached.importance(np.arange(len(keys)), True).sum() == 2 / 10 + 1 / 2 + 4 / 2
        cached.places.clear()
        assert cached.importance(np.arange(len(keys)), True).sum() == 7.0
