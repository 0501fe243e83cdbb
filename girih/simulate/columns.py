"""Arrays that grow at their end, and blocks in them that are used again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class Column:
    """An array [capacity, …] of which the first `size` entries are in use; appending takes O(entries) on average."""

    def __init__(self, dtype: DTypeLike, *, width: tuple[int, ...] = (), capacity: int = 64) -> None:
        self.array: NDArray[Any] = np.zeros((capacity, *width), dtype)
        self.size = 0

    def reserve(self, size: int) -> None:
        """Room for so many entries in all."""
        if size > len(self.array):
            larger = np.zeros((max(size, 2 * len(self.array)), *self.array.shape[1:]), self.array.dtype)
            larger[: self.size] = self.array[: self.size]
            self.array = larger

    def extend(self, entries: NDArray[Any]) -> int:
        """Append; where the new entries begin."""
        begin = self.size
        self.reserve(begin + len(entries))
        self.array[begin : begin + len(entries)] = entries
        self.size = begin + len(entries)
        return begin


class Staged:
    """A column of numbers that come one by one: in a list until the array is asked for."""

    def __init__(self, dtype: DTypeLike, *entries: int) -> None:
        self.column = Column(dtype)
        self.fresh = list(entries)

    @property
    def size(self) -> int:
        return self.column.size + len(self.fresh)

    @property
    def array(self) -> NDArray[Any]:
        """The entries; valid until more come."""
        if self.fresh:
            self.column.extend(np.asarray(self.fresh, self.column.array.dtype))
            self.fresh.clear()
        return self.column.array[: self.column.size]


class Places:
    """Numbers from 0, handed out in runs; runs that are given back are handed out again to those of equal length."""

    def __init__(self) -> None:
        self.end = 0
        self.spare: dict[int, list[int]] = {}

    def take(self, length: int) -> int:
        spare = self.spare.get(length)
        if spare:
            return spare.pop()
        self.end += length
        return self.end - length

    def take_each(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """The same of several, one after the other."""
        if self.spare:
            return np.asarray([self.take(length) for length in lengths.tolist()], np.int64)
        ends = self.end + np.cumsum(lengths)
        self.end += int(lengths.sum())
        return ends - lengths

    def give_back(self, begin: int, length: int) -> None:
        self.spare.setdefault(length, []).append(begin)
