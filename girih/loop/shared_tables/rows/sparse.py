"""Rows that are maps from columns to values: all of them in two arrays, each row a run of it in ascending order.

A row that outgrows its run moves to the end; when half of the arrays is left behind they are packed. Adding an entry
costs a binary search and a move of the row's tail. Zeros are left out where rows are read, and go when their row moves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from girih.layout.jit import numba


@numba.njit(nogil=True, cache=True)
def add_entries(start, length, room, columns, values, used, rows, keys, deltas, begin):  # type: ignore[no-untyped-def]
    """values of (rows[i], keys[i]) += deltas[i] from `begin` on. (what is used then, where it stopped: all is full)."""
    for i in range(begin, len(rows)):
        row, key = rows[i], keys[i]
        low, high = start[row], start[row] + length[row]
        end = high
        while low < high:
            middle = (low + high) // 2
            if columns[middle] < key:
                low = middle + 1
            else:
                high = middle
        if low < end and columns[low] == key:
            values[low] += deltas[i]
            continue
        if deltas[i] == 0:
            continue
        if length[row] == room[row]:
            wanted = max(4, 2 * room[row])
            if used + wanted > len(columns):
                return used, i
            begin_old, kept = start[row], 0
            for place in range(begin_old, end):
                if values[place] != 0:
                    columns[used + kept] = columns[place]
                    values[used + kept] = values[place]
                    kept += 1
            start[row], length[row], room[row] = used, kept, wanted
            used += wanted
            low, end = start[row], start[row] + kept
            while low < end and columns[low] < key:
                low += 1
        place = end
        while place > low:
            columns[place] = columns[place - 1]
            values[place] = values[place - 1]
            place -= 1
        columns[low] = key
        values[low] = deltas[i]
        length[row] += 1
    return used, len(rows)


@numba.njit(nogil=True, cache=True)
def count_entries(start, length, values, rows, counts):  # type: ignore[no-untyped-def]
    """counts[i]: how many entries of rows[i] are not zero. Their sum."""
    total = 0
    for i in range(len(rows)):
        counts[i] = 0
        for place in range(start[rows[i]], start[rows[i]] + length[rows[i]]):
            if values[place] != 0:
                counts[i] += 1
        total += counts[i]
    return total


@numba.njit(nogil=True, cache=True)
def copy_entries(start, length, columns, values, rows, out_columns, out_values):  # type: ignore[no-untyped-def]
    """The entries of the rows that are not zero, one row after another."""
    at = 0
    for i in range(len(rows)):
        for place in range(start[rows[i]], start[rows[i]] + length[rows[i]]):
            if values[place] != 0:
                out_columns[at] = columns[place]
                out_values[at] = values[place]
                at += 1


@numba.njit(nogil=True, cache=True)
def pack_entries(start, length, room, columns, values, new_columns, new_values):  # type: ignore[no-untyped-def]
    """Write all rows one behind another, each with room for half as much again, and no zeros. How much that takes."""
    used = 0
    for row in range(len(start)):
        begin = used
        for place in range(start[row], start[row] + length[row]):
            if values[place] != 0:
                new_columns[used] = columns[place]
                new_values[used] = values[place]
                used += 1
        start[row], length[row] = begin, used - begin
        room[row] = length[row] + length[row] // 2
        used = begin + room[row]
    return used


class SparseRows:
    """`rows` maps, at first empty."""

    def __init__(self, rows: int, dtype: Any, entries: int = 1024) -> None:
        self._start = np.zeros(rows, np.int64)
        self._length = np.zeros(rows, np.int32)
        self._room = np.zeros(rows, np.int32)
        self._columns = np.zeros(entries, np.int32)
        self._values = np.zeros(entries, dtype)
        self._used = 0

    @property
    def bytes(self) -> int:
        """Bytes of the part that is used."""
        return self._used * (4 + self._values.itemsize)

    @property
    def lengths(self) -> NDArray[Any]:
        """How many entries each row has."""
        return self._length

    def add(self, rows: NDArray[Any], columns: NDArray[Any], deltas: NDArray[Any]) -> None:
        """Entry by entry; an entry may occur several times."""
        at = 0
        while True:
            self._used, at = add_entries(
                self._start,
                self._length,
                self._room,
                self._columns,
                self._values,
                self._used,
                rows,
                columns,
                deltas,
                at,
            )
            if at == len(rows):
                return
            self._grow()

    def set(self, rows: NDArray[Any], counts: NDArray[Any], columns: NDArray[Any], values: NDArray[Any]) -> None:
        """Replace these rows; each occurs once."""
        self._length[rows] = 0
        self.add(np.repeat(rows, counts), columns, values)

    def get(self, rows: NDArray[Any]) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[Any]]:
        """(entries of each row, their columns, their values)."""
        counts = np.empty(len(rows), np.int32)
        total = count_entries(self._start, self._length, self._values, rows, counts)
        columns, values = np.empty(total, np.int32), np.empty(total, self._values.dtype)
        copy_entries(self._start, self._length, self._columns, self._values, rows, columns, values)
        return counts, columns, values

    def clear(self) -> None:
        self._length[:] = 0
        self._room[:] = 0
        self._used = 0

    def _grow(self) -> None:
        need = int(self._length.astype(np.int64).sum())
        size = max(2 * len(self._columns), 1024) if 4 * need > len(self._columns) else len(self._columns)
        columns, values = np.zeros(size, np.int32), np.zeros(size, self._values.dtype)
        self._used = pack_entries(self._start, self._length, self._room, self._columns, self._values, columns, values)
        self._columns, self._values = columns, values
