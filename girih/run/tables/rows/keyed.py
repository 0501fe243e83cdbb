"""A worker's memory of a table as flat arrays: a cache of rows, and a log of updates in which equal keys are one.

The cache is set-associative (eight rows in a set, the least recently used goes), or, where all rows fit, has a place
for each. The log is a hash table with open addressing whose positions are handed out in order. All loops are Numba's;
each is O(keys × width), the hash table's probes aside.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

WAYS = 8
MIX = 0x9E3779B97F4A7C15  # of Fibonacci hashing: 2**64 over the golden ratio


@numba.njit(nogil=True, cache=True)
def _mixed(key: int) -> int:
    product = np.uint64(key) * np.uint64(MIX)
    return np.int64(product >> np.uint64(32))  # type: ignore[return-value]


@numba.njit(nogil=True, cache=True)
def find_slots(tags, stamps, wanted, slots, now):  # type: ignore[no-untyped-def]
    """slots[i]: where row wanted[i] lies, or -1. Found rows count as used now. How many were not found."""
    sets, ways = tags.shape
    missing = 0
    for i in range(len(wanted)):
        key = wanted[i]
        place = key if ways == 1 else _mixed(key) % sets
        slots[i] = -1
        for way in range(ways):
            if tags[place, way] == key:
                slots[i] = place * ways + way
                stamps[place, way] = now
                break
        if slots[i] < 0:
            missing += 1
    return missing


@numba.njit(nogil=True, cache=True)
def claim_slots(tags, stamps, wanted, slots, dropped, now):  # type: ignore[no-untyped-def]
    """slots[i]: a place for row wanted[i], its own if it has one; the rows that had to go are put into `dropped`. How
    many those are."""
    sets, ways = tags.shape
    gone = 0
    for i in range(len(wanted)):
        key = wanted[i]
        place = key if ways == 1 else _mixed(key) % sets
        chosen = 0
        for way in range(ways):
            if tags[place, way] == key:
                chosen = way
                break
            if stamps[place, way] < stamps[place, chosen]:
                chosen = way
        if tags[place, chosen] != key:
            if tags[place, chosen] >= 0:
                dropped[gone] = tags[place, chosen]
                gone += 1
            tags[place, chosen] = key
        stamps[place, chosen] = now
        slots[i] = place * ways + chosen
    return gone


@numba.njit(nogil=True, cache=True)
def read_rows(values, slots, out):  # type: ignore[no-untyped-def]
    """out[i] = values[slots[i]] where there is such a slot."""
    for i in range(len(slots)):
        if slots[i] >= 0:
            for j in range(values.shape[1]):
                out[i, j] = values[slots[i], j]


@numba.njit(nogil=True, cache=True)
def find_and_read(tags, stamps, wanted, now, values, slots, out):  # type: ignore[no-untyped-def]
    """`find_slots`, and out[i] = values[slots[i]] where there is such a slot."""
    missing = find_slots(tags, stamps, wanted, slots, now)
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
def log_and_add(index, keys, deltas, live, count, wanted, rows, begin, tags, values):  # type: ignore[no-untyped-def]
    """`log_add`, and what is cached of the rows changes by as much."""
    count, end = log_add(index, keys, deltas, live, count, wanted, rows, begin)
    sets, ways = tags.shape
    for i in range(begin, end):
        place = wanted[i] if ways == 1 else _mixed(wanted[i]) % sets
        for way in range(ways):
            if tags[place, way] == wanted[i]:
                for j in range(values.shape[1]):
                    values[place * ways + way, j] += rows[i, j]
                break
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


class Places:
    """Which rows are cached, and where: `capacity` slots at most, or one for each row if all fit."""

    def __init__(self, rows: int, capacity: int) -> None:
        if rows <= capacity:
            shape = (rows, 1)
        else:
            shape = (max(1, capacity // WAYS), min(WAYS, max(2, capacity)))
        self.slots = shape[0] * shape[1]
        self.tags = np.full(shape, -1, np.int64)
        self._stamps = np.zeros(shape, np.int64)
        self._now = 0

    def find(self, rows: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
        """(slot of each row, or -1; how many are missing)."""
        self._now += 1
        slots = np.empty(len(rows), np.int64)
        return slots, find_slots(self.tags, self._stamps, rows, slots, self._now)

    def read(self, rows: NDArray[Any], values: NDArray[Any], out: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
        """As `find`, and out[i] = values[slot] of rows that are there."""
        self._now += 1
        slots = np.empty(len(rows), np.int64)
        return slots, find_and_read(self.tags, self._stamps, rows, self._now, values, slots, out)

    def claim(self, rows: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(slot of each row, rows that went). Of rows that got the same slot, the last has it."""
        self._now += 1
        slots, dropped = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        gone = claim_slots(self.tags, self._stamps, rows, slots, dropped, self._now)
        return slots, dropped[:gone]

    def present(self) -> NDArray[np.int64]:
        return self.tags[self.tags >= 0]

    def clear(self) -> None:
        self.tags[:] = -1


class Log:
    """Updates that were not sent yet, `capacity` keys at most. deltas: [keys, width]; live: what is to be sent; what is
    not live is what rounding left of what was sent, which goes with the next update of its key."""

    def __init__(self, capacity: int, width: int, dtype: Any) -> None:
        size = 16
        while size < 2 * capacity:
            size *= 2
        self.count = 0
        self.keys = np.zeros(capacity, np.int64)
        self.deltas = np.zeros((capacity, width), dtype)
        self.live = np.zeros(capacity, np.uint8)
        self._index = np.zeros(size, np.int32)

    def add(self, keys: NDArray[Any], rows: NDArray[Any], begin: int) -> int:
        """Where it stopped: len(keys), or the first key for which there is no room."""
        self.count, end = log_add(self._index, self.keys, self.deltas, self.live, self.count, keys, rows, begin)
        return int(end)

    def add_and_apply(
        self, keys: NDArray[Any], rows: NDArray[Any], begin: int, places: Places, values: NDArray[Any]
    ) -> int:
        """As `add` where keys are rows, which change by as much where they are cached."""
        self.count, end = log_and_add(
            self._index, self.keys, self.deltas, self.live, self.count, keys, rows, begin, places.tags, values
        )
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
