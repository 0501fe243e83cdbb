"""The entries of a sparse iteration space, and the order in which they lie in memory for a schedule.

Entries lie block by block, each block in the order in which it is run. In an ordered loop that is the loop's own,
lexicographic by key. In an unordered one any order is right: INTERLEAVED rows by turns. Row after row would keep a row
in registers, but each entry would wait for the one before it, whose row it updates; by turns the processor computes
several at once. Where the rows of arrays that columns touch are more than the cache holds, columns lie in tiles, and
rows in bands.

All sorts are counting sorts: linear in the entries and the sizes of the dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from girih.layout.compiled import compiled
from girih.loop.capture.values import Scalar, Vector
from girih.loop.schedules.blocks import balanced
from girih.loop.schedules.schedule import Schedule
from girih.loop.schedules.unimodular import Form

INTERLEAVED = 32
BANDS = 16
"""Rows of a band. Tiles of bands come in a random order: a loop that learns from entries in the order of their columns
learns late from the last ones, as the first epochs of matrix factorisation show."""
TILE_BYTES = 1 << 24
"""Bytes of the array rows that the columns of a tile touch: about half of the cache that cores share. Tiles that fit a
core's own cache are no faster, since taking rows by turns hides the latency, and learn less in an execution."""


@dataclass(frozen=True)
class Ragged:
    """A column whose entries are arrays of different lengths: entry e is data[offsets[e]:offsets[e + 1]]."""

    data: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1


Column: TypeAlias = np.ndarray | Ragged


@dataclass(frozen=True)
class Entries:
    """keys: one array of indices for each dimension. columns: the values; `tuple_value`: a tuple of them."""

    keys: tuple[np.ndarray, ...]
    columns: tuple[Column, ...]
    shape: tuple[int, ...]
    tuple_value: bool = False

    def __len__(self) -> int:
        return len(self.keys[0])

    @property
    def values(self) -> tuple[Scalar | Vector, ...]:
        """What an entry's values are, for the analysis."""
        return tuple(described(column) for column in self.columns)


@dataclass(frozen=True)
class Layout:
    """Entries in the order of a schedule. offsets: where block space·times+time begins; the last is the end.

    space_cuts, time_cuts: the values of the forms at which parts begin, and the end. numbers: of the iterations, where
    they are needed.
    """

    entries: Entries
    offsets: np.ndarray
    times: int
    space_cuts: tuple[int, ...] = ()
    time_cuts: tuple[int, ...] = ()
    numbers: np.ndarray | None = None

    def block(self, space: int, time: int) -> tuple[int, int]:
        at = space * self.times + time
        return int(self.offsets[at]), int(self.offsets[at + 1])

    @property
    def work(self) -> np.ndarray:
        """Entries of each block, by space and time part."""
        return np.diff(self.offsets).reshape(-1, self.times)


def described(column: Column) -> Scalar | Vector:
    if isinstance(column, Ragged):
        return Vector(None, str(column.data.dtype))
    return Scalar(str(column.dtype)) if column.ndim == 1 else Vector(column.shape[1], str(column.dtype))


def laid_out(
    entries: Entries,
    plan: Schedule,
    space: Form | None,
    time: Form | None,
    ordered: bool,
    rows: int | None = None,
    columns: int | None = None,
    column_bytes: int = 0,
    numbers: np.ndarray | None = None,
) -> Layout:
    """The entries block by block.

    space, time: the forms that are cut. rows, columns: of an unordered loop, the dimensions whose entries are taken by
    turns and in tiles; column_bytes: what one column's rows of arrays take. numbers: of the iterations.
    """
    count = len(entries)
    (first, space_cuts), (second, time_cuts) = (
        parts_of(entries, space, plan.spaces),
        parts_of(entries, time, plan.times),
    )
    block = np.zeros(count, np.int64) if first is None else first.astype(np.int64) * plan.times
    if second is not None:
        block += second
    blocks = plan.spaces * plan.times
    order = np.arange(count, dtype=np.int64)
    if ordered:
        for keys, size in reversed(list(zip(entries.keys, entries.shape, strict=True))):
            order = sorted_by(keys, size, order)
        order = sorted_by(block, blocks, order)
    elif rows is not None and columns is not None:
        size = entries.shape[columns]
        tiles = max(1, round(size * column_bytes / TILE_BYTES / plan.times))
        tile = tile_of(entries.keys[columns], size, second, plan.times, tiles)
        order = sorted_by(entries.keys[rows], entries.shape[rows], order)
        bands = BANDS if tiles > 1 else 1
        cells = tiles * bands
        band = entries.keys[rows].astype(np.int64) * bands // max(1, entries.shape[rows])
        mixed = np.random.default_rng(0).permutation(cells)
        both = block * cells + mixed[tile * bands + band]
        order = sorted_by(both, blocks * cells, order)
        order = by_turns(order, entries.keys[rows], both, INTERLEAVED)
    elif blocks > 1:
        order = sorted_by(block, blocks, order)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(block, minlength=blocks))])
    mine = None if numbers is None else numbers[order]
    return Layout(taken(entries, order), offsets, plan.times, space_cuts, time_cuts, mine)


def parts_of(entries: Entries, form: Form | None, parts: int) -> tuple[np.ndarray | None, tuple[int, ...]]:
    """The part of each entry, where a form's values are cut into parts of nearly equal numbers of entries; the cuts."""
    if form is None or parts == 1:
        return None, ()
    values = np.zeros(len(entries), np.int64)
    for factor, keys in zip(form, entries.keys, strict=True):
        if factor:
            values += factor * keys.astype(np.int64)
    if not len(values):
        return values, (0,) * (parts + 1)
    least = int(values.min())
    values -= least
    cuts = balanced(np.bincount(values), parts)
    table = np.repeat(np.arange(parts, dtype=np.int32), np.diff(cuts))
    return table[values], tuple(cut + least for cut in cuts)


def tile_of(keys: np.ndarray, size: int, part: np.ndarray | None, parts: int, tiles: int) -> np.ndarray:
    """The tile of each entry within its time part: equal shares of the columns that the part has."""
    if tiles == 1 or not len(keys):
        return np.zeros(len(keys), np.int64)
    if part is None:
        return keys.astype(np.int64) * tiles // size
    low = np.full(parts, size, np.int64)
    high = np.zeros(parts, np.int64)
    np.minimum.at(low, part, keys)
    np.maximum.at(high, part, keys)
    wide = np.maximum(high - low + 1, 1)
    found: np.ndarray = (keys.astype(np.int64) - low[part]) * tiles // wide[part]
    return found


def taken(entries: Entries, order: np.ndarray) -> Entries:
    """The entries in another order."""
    return Entries(
        tuple(np.ascontiguousarray(keys[order]) for keys in entries.keys),
        tuple(_taken(column, order) for column in entries.columns),
        entries.shape,
        entries.tuple_value,
    )


def _taken(column: Column, order: np.ndarray) -> Column:
    if not isinstance(column, Ragged):
        return np.ascontiguousarray(column[order])
    lengths = np.diff(column.offsets)[order]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Ragged(_gathered(column.data, column.offsets, order, offsets), offsets)


@compiled(lambda keys, size, order: 2.0 * len(order) + size, nogil=True)
def sorted_by(keys: Any, size: int, order: Any) -> Any:
    """The order, stably sorted by the keys (0 ≤ key < size) of its entries: a counting sort."""
    starts = np.zeros(size + 1, np.int64)
    for entry in order:
        starts[keys[entry] + 1] += 1
    for key in range(size):
        starts[key + 1] += starts[key]
    sorted_order = np.empty(len(order), np.int64)
    for entry in order:
        key = keys[entry]
        sorted_order[starts[key]] = entry
        starts[key] += 1
    return sorted_order


@compiled(lambda data, offsets, order, target: float(target[-1] + len(order)), nogil=True)
def _gathered(data, offsets, order, target):  # type: ignore[no-untyped-def]
    """Rows of different lengths in another order. offsets, target: where each begins in the data, and in the result."""
    made = np.empty(target[len(target) - 1], data.dtype)
    for at in range(len(order)):
        first = offsets[order[at]]
        for k in range(target[at + 1] - target[at]):
            made[target[at] + k] = data[first + k]
    return made


@compiled(lambda order, *_: 4.0 * len(order), nogil=True)
def by_turns(order: Any, rows: Any, group: Any, together: int) -> Any:
    """Entries sorted by group and row, with `together` rows of a group by turns: one entry of each, then the next.

    places, ends: of the rows that take turns, the next entry and where the row ends. A row that has ended makes room
    for the group's next one, from `at` on.
    """
    count = len(order)
    made = np.empty(count, np.int64)
    places = np.empty(together, np.int64)
    ends = np.empty(together, np.int64)
    at = 0
    out = 0
    while at < count:
        here = group[order[at]]
        active = 0
        turn = 0
        while True:
            while active < together and at < count and group[order[at]] == here:
                row = rows[order[at]]
                end = at
                while end < count and rows[order[end]] == row and group[order[end]] == here:
                    end += 1
                places[active] = at
                ends[active] = end
                active += 1
                at = end
            if active == 0:
                break
            if turn >= active:
                turn = 0
            made[out] = order[places[turn]]
            out += 1
            places[turn] += 1
            if places[turn] == ends[turn]:
                active -= 1
                places[turn] = places[active]
                ends[turn] = ends[active]
            else:
                turn += 1
    return made


def boxes(starts: Sequence[int], stops: Sequence[int], plan: Schedule, space: Form | None, time: Form | None) -> list[
    list[tuple[tuple[int, int], ...]]
]:  # fmt: skip
    """The box of indices of each block, by space and time part, of a space that has all indices."""

    def cut(form: Form | None, parts: int) -> tuple[int, list[tuple[int, int]]]:
        if form is None:
            return -1, [(0, 0)]
        dim = form.index(1)
        size = stops[dim] - starts[dim]
        ends = [starts[dim] + size * part // parts for part in range(parts + 1)]
        return dim, list(pairwise(ends))

    (first, ranges), (second, others) = cut(space, plan.spaces), cut(time, plan.times)
    whole = list(zip(starts, stops, strict=True))
    found = []
    for mine in ranges:
        row = []
        for other in others:
            box = list(whole)
            if first >= 0:
                box[first] = mine
            if second >= 0:
                box[second] = other
            row.append(tuple(box))
        found.append(row)
    return found
