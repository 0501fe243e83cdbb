"""A server's partition of one table: the values, who has which rows, and what has changed for whom.

Rows are numbered within the partition. A shadow holds rows as they were at a clock, so that a snapshot of that clock
can be written while updates go on (`Shadow`). Cost of an update: O(its entries + its rows × workers).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from girih.layout.jit import numba
from girih.loop.shared_tables.options import TableOptions, TableSpec
from girih.loop.shared_tables.rows.functions import ServerFunction, Versions
from girih.loop.shared_tables.rows.keyed import changes_of
from girih.loop.shared_tables.rows.sparse import SparseRows

Rows = NDArray[Any]


@numba.njit(nogil=True, cache=True)
def add_and_mark(values, rows, deltas, present, dirty, worker):  # type: ignore[no-untyped-def]
    """values[rows] += deltas, and the other workers that have these rows lack it."""
    for i in range(len(rows)):
        row = rows[i]
        for j in range(values.shape[1]):
            values[row, j] += deltas[i, j]
        for other in range(present.shape[0]):
            if other != worker and present[other, row]:
                dirty[other, row] = True


@numba.njit(nogil=True, cache=True)
def copy_and_mark(values, rows, present, dirty, worker, out):  # type: ignore[no-untyped-def]
    """out = values[rows]; the worker has them from now on."""
    for i in range(len(rows)):
        row = rows[i]
        for j in range(values.shape[1]):
            out[i, j] = values[row, j]
        present[worker, row] = True
        dirty[worker, row] = False


class Update:
    """Changes of rows. rows: [n]. deltas: [n, width], or of a sparse table [n], each of (rows[i], columns[i]).
    versions: [n], or None. Rows of a dense table occur once, or once with each version."""

    __slots__ = ("columns", "deltas", "rows", "versions")

    def __init__(self, rows: Rows, deltas: Rows, columns: Rows | None = None, versions: Rows | None = None) -> None:
        self.rows, self.deltas, self.columns, self.versions = rows, deltas, columns, versions

    def part(self, chosen: Rows) -> Update:
        columns = None if self.columns is None else self.columns[chosen]
        versions = None if self.versions is None else self.versions[chosen]
        return Update(self.rows[chosen], self.deltas[chosen], columns, versions)


class Dense:
    """Values [rows, width], and further numbers [columns, rows, width] of a server's function."""

    def __init__(self, spec: TableSpec, rows: int, options: TableOptions) -> None:
        self.function: ServerFunction | None = spec.function
        self.values = np.zeros((rows, spec.width), spec.kind)
        self.versions: Versions | None = None
        self.further: Rows | None = None
        self.staleness = options.staleness
        self.workers = options.workers
        if self.function is not None:
            self.reset()

    def reset(self) -> None:
        """The function's numbers, from values that have just been written."""
        if self.function is not None:
            self.further = self.function.start(self.values)
            rows, width = self.values.shape
            self.versions = Versions(
                rows, width, self.values.dtype, max(self.staleness + 3, self.workers + 2), self.staleness
            )

    def add(self, update: Update, clock: int) -> None:
        if self.function is None:
            self.values[update.rows] += update.deltas
            return
        assert self.further is not None
        assert self.versions is not None
        for part in _once_each(update):
            seen = self.seen(part)
            values, further = self.values[part.rows], self.further[:, part.rows]
            self.function.apply(values, further, part.deltas, seen)
            self.values[part.rows], self.further[:, part.rows] = values, further
            self.versions.changed(part.rows, clock)

    def seen(self, part: Update) -> Rows | None:
        assert self.function is not None
        assert self.versions is not None
        if self.function.seen is None or part.versions is None:
            return None
        return self.versions.seen(part.rows, part.versions)

    def sent(self, rows: Rows, clock: int) -> None:
        """These rows go to a worker now."""
        if self.versions is not None and self.function is not None and self.function.seen is not None:
            assert self.further is not None
            self.versions.remember(rows, self.further[self.function.seen, rows], clock)

    def get(self, rows: Rows) -> tuple[Rows, ...]:
        if self.versions is None:
            return (self.values[rows],)
        return self.values[rows], self.versions.numbers[rows]

    def importance(self, update: Update, relative: bool) -> Rows:
        """How much each row of an update changes, or each over the values."""
        return changes_of(update.deltas, np.arange(len(update.rows)), self.values, update.rows, relative)


def _once_each(update: Update) -> list[Update]:
    """The update as parts in which every row occurs once, in order."""
    _, first = np.unique(update.rows, return_index=True)
    if len(first) == len(update.rows):
        return [update]
    rest = np.setdiff1d(np.arange(len(update.rows)), first)
    return [update.part(np.sort(first)), *_once_each(update.part(rest))]


class Sparse:
    """Rows as maps."""

    versions = None

    def __init__(self, spec: TableSpec, rows: int, options: TableOptions) -> None:
        self.rows = SparseRows(rows, spec.kind)

    def reset(self) -> None:
        pass

    def add(self, update: Update, clock: int) -> None:
        assert update.columns is not None
        self.rows.add(update.rows, update.columns, update.deltas)

    def sent(self, rows: Rows, clock: int) -> None:
        pass

    def get(self, rows: Rows) -> tuple[Rows, ...]:
        return self.rows.get(rows)

    def importance(self, update: Update, relative: bool) -> Rows:
        """How much each entry of an update changes, or each over its value."""
        assert update.columns is not None
        changes = np.abs(update.deltas)
        if not relative:
            return changes
        rows, local = np.unique(update.rows, return_inverse=True)
        counts, columns, values = self.rows.get(rows)
        width = 1 + max(int(update.columns.max(initial=0)), int(columns.max(initial=0)))
        keys = np.repeat(np.arange(len(rows)), counts) * width + columns
        wanted = local * width + update.columns
        at = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
        there = keys[at] == wanted if len(keys) else np.zeros(len(wanted), np.bool_)
        sizes = np.ones(len(wanted))
        sizes[there] = np.abs(values[at[there]])
        return changes / sizes


class Shadow:
    """A table as it was strictly after a clock: rows that later updates have changed are kept as they were.

    Before the servers reach the clock, updates of earlier ticks are added to both, later ones to the table alone.
    """

    def __init__(self, store: Dense | Sparse, rows: int) -> None:
        self._store = store
        self._place = np.full(rows, -1, np.int64)
        self._kept: list[tuple[Rows, ...]] = []  # of each kept row: values, further numbers; or columns, values

    def protect(self, rows: Rows) -> None:
        """These rows are about to be changed by an update that the snapshot does not have."""
        new = np.unique(rows)
        new = new[self._place[new] < 0]
        if not len(new):
            return
        self._place[new] = len(self._kept) + np.arange(len(new))
        if isinstance(self._store, Dense):
            further = self._store.further
            for row in new.tolist():
                own = () if further is None else (further[:, row].copy(),)
                self._kept.append((self._store.values[row].copy(), *own))
        else:
            for row in new.tolist():
                _, columns, values = self._store.rows.get(np.array([row]))
                self._kept.append((columns, values))

    def add(self, update: Update) -> None:
        """An update that the snapshot has: to the kept rows; the others have it from the table. Call it before."""
        mine = self._place[update.rows] >= 0
        if not mine.any():
            return
        part = update.part(np.flatnonzero(mine))
        if isinstance(self._store, Sparse):
            assert part.columns is not None
            for row, column, delta in zip(part.rows.tolist(), part.columns.tolist(), part.deltas, strict=True):
                place = self._place[row]
                columns, values = self._kept[place]
                at = int(np.searchsorted(columns, column))
                if at < len(columns) and columns[at] == column:
                    values[at] += delta
                else:
                    self._kept[place] = (np.insert(columns, at, column), np.insert(values, at, delta))
            return
        for once in [part] if self._store.function is None else _once_each(part):
            seen = None if self._store.function is None else self._store.seen(once)
            for i, row in enumerate(once.rows.tolist()):
                kept = self._kept[self._place[row]]
                if self._store.function is None:
                    kept[0][:] += once.deltas[i]
                else:
                    one = None if seen is None else seen[i : i + 1]
                    self._store.function.apply(kept[0][None], kept[1][:, None], once.deltas[i : i + 1].copy(), one)

    def read(self, begin: int, end: int) -> list[Rows]:
        """Rows of the snapshot: values, and further numbers if there are; or counts, columns, values."""
        rows = np.arange(begin, end)
        kept = np.flatnonzero(self._place[begin:end] >= 0)
        places = self._place[begin:end][kept].tolist()
        if isinstance(self._store, Dense):
            values = self._store.values[begin:end].copy()
            further = None if self._store.further is None else self._store.further[:, begin:end].copy()
            for i, place in zip(kept.tolist(), places, strict=True):
                values[i] = self._kept[place][0]
                if further is not None:
                    further[:, i] = self._kept[place][1]
            return [values] if further is None else [values, further]
        own = {i: self._kept[place] for i, place in zip(kept.tolist(), places, strict=True)}
        if not own:
            return list(self._store.rows.get(rows))
        parts = [own.get(i) or self._store.rows.get(rows[i : i + 1])[1:] for i in range(end - begin)]
        parts = [(columns[values != 0], values[values != 0]) for columns, values in parts]
        counts = np.array([len(columns) for columns, _ in parts], np.int32)
        return [counts, np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])]


class Partition:
    """What a server knows of one table. present, dirty: [workers, rows]: who has a row cached, and whose copy lacks a
    change; change: the magnitude of what it lacks (managed communication only)."""

    def __init__(self, spec: TableSpec, server: int, options: TableOptions) -> None:
        self.spec = spec
        self.count = spec.local_rows(server, options.servers)
        self.store: Dense | Sparse = (Sparse if spec.sparse else Dense)(spec, self.count, options)
        self.present = np.zeros((options.workers, self.count), np.bool_)
        self.dirty = np.zeros((options.workers, self.count), np.bool_)
        self.change = np.zeros((options.workers, self.count), np.float32) if options.managed else None
        self.plain = not spec.sparse and spec.function is None
        self.relative = options.order_of(spec) == "relative"
        self.others_only = spec.function is None and not options.held

    def forget_workers(self) -> None:
        """Nobody has any row."""
        self.present[:] = False
        self.dirty[:] = False
        if self.change is not None:
            self.change[:] = 0

    def add(self, update: Update, worker: int, clock: int) -> None:
        """The update of a worker. Its own copy has it already, unless the servers have a function or hold updates."""
        if self.plain:
            assert isinstance(self.store, Dense)
            knows = worker if self.others_only else -1
            add_and_mark(self.store.values, update.rows, update.deltas, self.present, self.dirty, knows)
            self._note_change(update, worker)
            return
        self.store.add(update, clock)
        own = self.dirty[worker, update.rows] if self.others_only else None
        self.dirty[:, update.rows] |= self.present[:, update.rows]
        if own is not None:
            self.dirty[worker, update.rows] = own
        self._note_change(update, worker)

    def _note_change(self, update: Update, worker: int) -> None:
        """Add up by how much the copies of other workers than this one, which made the update, are out of date."""
        if self.change is None:
            return
        sizes = self.store.importance(update, self.relative)
        for other in range(len(self.change)):
            if other != worker or not self.others_only:
                np.add.at(self.change[other], update.rows, sizes)

    def take(self, worker: int, rows: Rows, clock: int) -> tuple[Rows, ...]:
        """These rows, which go to a worker now."""
        if self.plain and self.change is None:
            assert isinstance(self.store, Dense)
            out = np.empty((len(rows), self.spec.width), self.spec.kind)
            copy_and_mark(self.store.values, rows, self.present, self.dirty, worker, out)
            return (out,)
        self.store.sent(rows, clock)
        self.present[worker, rows] = True
        self.dirty[worker, rows] = False
        if self.change is not None:
            self.change[worker, rows] = 0
        return self.store.get(rows)

    def write(self, rows: Rows, *parts: Rows) -> None:
        """Set rows; of a sparse table by counts, columns and values."""
        if isinstance(self.store, Sparse):
            self.store.rows.set(rows, *parts)
        else:
            self.store.values[rows] = parts[0]
