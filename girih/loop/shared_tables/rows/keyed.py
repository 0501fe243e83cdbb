"""A worker's memory of a table as flat arrays: a cache of rows, and a log of updates in which equal keys are one.

The cache is a hash table with chains. Where room is needed, the clock algorithm drops a row: a hand goes round, takes
one off the marks of the rows that it passes, and drops the first that has none left. Rows that were fetched ahead begin
with more marks than those that are read, so that they are still there when their turn comes. Where all rows fit, each
has a place. The log is a hash table with open addressing whose positions are handed out in order. All loops are
Numba's; each is O(keys × width), the hash tables' probes and the hand's way aside.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from girih.layout.jit import numba

MIX = 0x9E3779B97F4A7C15  # of Fibonacci hashing: 2**64 over the golden ratio
READ, AHEAD = 1, 8
"""Marks: how often the hand passes a row that was read, or that was fetched ahead and not yet read."""
PLACE_BYTES = 21
"""What `Places` takes for a slot, at most: its row, its mark, its links."""


@numba.njit(nogil=True, cache=True)
def _mixed(key: int) -> int:
    """A hash of the key, by a product (Knuth's multiplicative hashing): its lower bits are a place in `heads`."""
    product = np.uint64(key) * np.uint64(MIX)
    return np.int64(product >> np.uint64(32))  # type: ignore[return-value]


@numba.njit(nogil=True, cache=True)
def _slot_of(tags, chain, heads, key):  # type: ignore[no-untyped-def]
    """Where the row lies, or -1."""
    if len(heads) == 0:
        return key if tags[key] == key else -1
    slot = np.int64(heads[_mixed(key) & (len(heads) - 1)])
    while slot >= 0 and tags[slot] != key:
        slot = np.int64(chain[slot])
    return slot


@numba.njit(nogil=True, cache=True)
def find_slots(tags, chain, heads, marks, wanted, slots, mark):  # type: ignore[no-untyped-def]
    """slots[i]: where row wanted[i] lies, or -1. Found rows are marked, unless by 0. How many were not found."""
    missing = 0
    for i in range(len(wanted)):
        slot = _slot_of(tags, chain, heads, wanted[i])
        slots[i] = slot
        if slot < 0:
            missing += 1
        elif mark:
            marks[slot] = mark
    return missing


@numba.njit(nogil=True, cache=True)
def claim_slots(tags, chain, heads, marks, hand, wanted, slots, dropped, mark):  # type: ignore[no-untyped-def]
    """slots[i]: a place for row wanted[i], its own if it has one; the rows that had to go are put into `dropped`. (how
    many those are, where the hand of the clock is then)."""
    mask = len(heads) - 1
    gone = 0
    for i in range(len(wanted)):
        key = wanted[i]
        slot = _slot_of(tags, chain, heads, key)
        if slot < 0 and mask < 0:
            slot = key
            tags[slot] = key
        elif slot < 0:
            while marks[hand]:
                marks[hand] -= 1
                hand = hand + 1 if hand + 1 < len(tags) else 0
            slot = np.int64(hand)
            hand = hand + 1 if hand + 1 < len(tags) else 0
            old = tags[slot]
            if old >= 0:
                dropped[gone] = old
                gone += 1
                place = _mixed(old) & mask
                if heads[place] == slot:
                    heads[place] = chain[slot]
                else:
                    before = heads[place]
                    while chain[before] != slot:
                        before = chain[before]
                    chain[before] = chain[slot]
            tags[slot] = key
            place = _mixed(key) & mask
            chain[slot] = heads[place]
            heads[place] = slot
        marks[slot] = mark
        slots[i] = slot
    return gone, hand


@numba.njit(nogil=True, cache=True)
def read_rows(values, slots, out):  # type: ignore[no-untyped-def]
    """out[i] = values[slots[i]] where there is such a slot."""
    for i in range(len(slots)):
        if slots[i] >= 0:
            for j in range(values.shape[1]):
                out[i, j] = values[slots[i], j]


@numba.njit(nogil=True, cache=True, fastmath={"reassoc"})
def add_up_changes(deltas, positions, values, slots, relative, out):  # type: ignore[no-untyped-def]
    """out[i] = the sum of |δ| of deltas[positions[i]]; relative: of |δ / a| with a of values[slots[i]], where that is
    not 0, and there is such a slot."""
    for i in range(len(positions)):
        position, slot, total = positions[i], slots[i], 0.0
        if relative and slot >= 0:
            for j in range(deltas.shape[1]):
                value = abs(values[slot, j])
                total += abs(deltas[position, j]) / (value if value != 0 else 1)
        else:
            for j in range(deltas.shape[1]):
                total += abs(deltas[position, j])
        out[i] = total


@numba.njit(nogil=True, cache=True)
def find_and_read(tags, chain, heads, marks, wanted, values, slots, out):  # type: ignore[no-untyped-def]
    """`find_slots`, and out[i] = values[slots[i]] where there is such a slot."""
    missing = find_slots(tags, chain, heads, marks, wanted, slots, READ)
    read_rows(values, slots, out)
    return missing


@numba.njit(nogil=True, cache=True)
def write_rows(values, slots, rows):  # type: ignore[no-untyped-def]
    """values[slots[i]] = rows[i] where there is such a slot."""
    for i in range(len(slots)):
        if slots[i] >= 0:
            for j in range(values.shape[1]):
                values[slots[i], j] = rows[i, j]


@numba.njit(nogil=True, cache=True)
def log_add(index, keys, deltas, live, count, wanted, rows, begin):  # type: ignore[no-untyped-def]
    """Add rows[begin:] to the log under the keys wanted[begin:]. index: position + 1 by hash, 0 where free.

    (how many rows are in the log by then, where it stopped: the number of rows, or the first that found no room).
    """
    mask = len(index) - 1
    for i in range(begin, len(wanted)):
        key = wanted[i]
        place = _mixed(key) & mask
        while index[place] != 0 and keys[index[place] - 1] != key:
            place = (place + 1) & mask
        position = index[place] - 1
        if position < 0:
            if count == len(keys):
                return count, i
            position = count
            keys[position] = key
            index[place] = position + 1
            count += 1
            for j in range(deltas.shape[1]):
                deltas[position, j] = 0
        live[position] = 1
        for j in range(deltas.shape[1]):
            deltas[position, j] += rows[i, j]
    return count, len(wanted)


@numba.njit(nogil=True, cache=True)
def log_and_add(  # type: ignore[no-untyped-def]
    index, keys, deltas, live, count, wanted, rows, begin, tags, chain, heads, values
):
    """`log_add`, and what is cached of the rows changes by as much."""
    count, end = log_add(index, keys, deltas, live, count, wanted, rows, begin)
    for i in range(begin, end):
        slot = _slot_of(tags, chain, heads, wanted[i])
        if slot >= 0:
            for j in range(values.shape[1]):
                values[slot, j] += rows[i, j]
    return count, end


@numba.njit(nogil=True, cache=True)
def add_logged(index, keys, deltas, wanted, rows):  # type: ignore[no-untyped-def]
    """rows[i] += what the log has under wanted[i]."""
    mask = len(index) - 1
    for i in range(len(wanted)):
        place = _mixed(wanted[i]) & mask
        while index[place] != 0:
            position = index[place] - 1
            if keys[position] == wanted[i]:
                for j in range(deltas.shape[1]):
                    rows[i, j] += deltas[position, j]
                break
            place = (place + 1) & mask


@numba.njit(nogil=True, cache=True)
def add_sorted(keys, deltas, wanted, rows):  # type: ignore[no-untyped-def]
    """rows[i] += deltas of wanted[i], by keys in ascending order, each once."""
    for i in range(len(wanted)):
        low, high = 0, len(keys)
        while low < high:
            middle = (low + high) // 2
            if keys[middle] < wanted[i]:
                low = middle + 1
            else:
                high = middle
        if low < len(keys) and keys[low] == wanted[i]:
            for j in range(deltas.shape[1]):
                rows[i, j] += deltas[low, j]


@numba.njit(nogil=True, cache=True)
def take_rows(deltas, live, positions, out):  # type: ignore[no-untyped-def]
    """out[i] = deltas[positions[i]], which are 0 from then on, and not live."""
    for i in range(len(positions)):
        live[positions[i]] = 0
        for j in range(deltas.shape[1]):
            out[i, j] = deltas[positions[i], j]
            deltas[positions[i], j] = 0


def changes_of(
    deltas: NDArray[Any], positions: NDArray[Any], values: NDArray[Any], slots: NDArray[Any], relative: bool
) -> NDArray[np.float64]:
    """How much each row changes, [positions]; see `add_up_changes`."""
    out = np.empty(len(positions))
    add_up_changes(deltas, positions, values, slots, relative, out)
    return out


def power_of_two(least: int) -> int:
    """The smallest power of two that is not below."""
    return 1 << (least - 1).bit_length()


class CachePlaces:
    """Which rows are cached, and where: `capacity` slots at most, or one for each row if all fit."""

    def __init__(self, rows: int, capacity: int) -> None:
        whole = rows <= capacity
        self.slots = rows if whole else max(2, capacity)
        self.tags = np.full(self.slots, -1, np.int64)
        self.chain = np.full(0 if whole else self.slots, -1, np.int32)
        self.heads = np.full(0 if whole else power_of_two(self.slots), -1, np.int32)
        self._marks = np.zeros(self.slots, np.uint8)
        self._hand = 0

    def find(self, rows: NDArray[Any], mark: int = 0) -> tuple[NDArray[np.int64], int]:
        """(slot of each row, or -1; how many are missing). mark: READ or AHEAD, or 0: they are not used by that."""
        slots = np.empty(len(rows), np.int64)
        return slots, find_slots(self.tags, self.chain, self.heads, self._marks, rows, slots, mark)

    def read(self, rows: NDArray[Any], values: NDArray[Any], out: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
        """As `find` by READ, and out[i] = values[slot] of rows that are there."""
        slots = np.empty(len(rows), np.int64)
        return slots, find_and_read(self.tags, self.chain, self.heads, self._marks, rows, values, slots, out)

    def claim(self, rows: NDArray[Any], mark: int = READ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(slot of each row, rows that went). Of rows that got the same slot, the last has it."""
        slots, dropped = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        gone, self._hand = claim_slots(
            self.tags, self.chain, self.heads, self._marks, self._hand, rows, slots, dropped, mark
        )
        return slots, dropped[:gone]

    def present(self) -> NDArray[np.int64]:
        return self.tags[self.tags >= 0]

    def clear(self) -> None:
        self.tags[:] = -1
        self.heads[:] = -1
        self._marks[:] = 0


class Log:
    """Updates that were not sent yet, `capacity` keys at most. deltas: [keys, width]; live: what is to be sent; what is
    not live is what rounding left of what was sent, which goes with the next update of its key."""

    def __init__(self, capacity: int, width: int, dtype: Any) -> None:
        self.count = 0
        self.keys = np.zeros(capacity, np.int64)
        self.deltas = np.zeros((capacity, width), dtype)
        self.live = np.zeros(capacity, np.uint8)
        self._index = np.zeros(power_of_two(max(16, 2 * capacity)), np.int32)

    def add(self, keys: NDArray[Any], rows: NDArray[Any], begin: int) -> int:
        """Where it stopped: len(keys), or the first key for which there is no room."""
        self.count, end = log_add(self._index, self.keys, self.deltas, self.live, self.count, keys, rows, begin)
        return int(end)

    def add_and_apply(
        self, keys: NDArray[Any], rows: NDArray[Any], begin: int, places: CachePlaces, values: NDArray[Any]
    ) -> int:
        """As `add` where keys are rows, which change by as much where they are cached."""
        self.count, end = log_and_add(
            self._index, self.keys, self.deltas, self.live, self.count, keys, rows, begin,
            places.tags, places.chain, places.heads, values,
        )  # fmt: skip
        return int(end)

    def add_to(self, keys: NDArray[Any], rows: NDArray[Any]) -> None:
        if self.count:
            add_logged(self._index, self.keys, self.deltas, keys, rows)

    def waiting(self) -> NDArray[np.int64]:
        """Positions of what is to be sent."""
        return np.flatnonzero(self.live[: self.count])

    def forget(self) -> None:
        """Drop everything, also what rounding left."""
        self.count = 0
        self._index[:] = 0
        self.live[:] = 0
