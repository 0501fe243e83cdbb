"""What a worker holds of one table: cached rows, updates that were not sent, and updates of which the servers have not
said that they are in the rows. It knows no sockets.

A worker reads its own updates: a row that comes from a server gets added what the server did not have of them. Where
servers hold updates until the clock ends (staleness 0), the cache has the servers' rows, and own updates are added as
they are read: so what is read does not depend on what was cached before, to the last bit. Half of
a table's memory is for cached rows, a quarter for updates that wait, a quarter for those on their way. Cost of a read,
an update or a message: O(its rows × width), and for a message O(updates on their way) more.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from girih.loop.shared_tables.options import TableSpec
from girih.loop.shared_tables.rows.keyed import (
    PLACE_BYTES,
    READ,
    CachePlaces,
    Log,
    add_sorted,
    changes_of,
    take_rows,
    write_rows,
)
from girih.loop.shared_tables.rows.sparse import SparseRows

Rows = NDArray[Any]
VERSION = 1 << 31
"""A key of the log of a versioned table: row × VERSION + version."""


@dataclass(frozen=True)
class Sent:
    """Updates on their way: keys in ascending order, each once; deltas as the server will add them."""

    server: int
    sequence: int
    keys: Rows
    deltas: Rows

    @property
    def bytes(self) -> int:
        return self.keys.nbytes + self.deltas.nbytes


@dataclass(frozen=True)
class Rowset:
    """Rows of a sparse table: entries of each, their columns and values, one row behind another."""

    counts: Rows
    columns: Rows
    values: Rows


class Cached:
    """What both kinds of tables have. servers: over how many the rows are spread."""

    def __init__(self, spec: TableSpec, servers: int, width: int, row_bytes: int, held: bool) -> None:
        self.spec, self.servers, self.held = spec, servers, held
        entry = 9 + 8 + width * spec.kind.itemsize  # key, mark and two places in the index
        self.places = CachePlaces(spec.rows, max(8, spec.memory // 2 // row_bytes))
        most = spec.rows if not spec.sparse else spec.rows * spec.width
        self.log = Log(max(8, min(spec.memory // 4 // entry, most)), width, spec.kind)
        self.sent: deque[Sent] = deque()
        self.sent_bytes = 0
        self.dropped: list[Rows] = []
        self.dropped_rows = 0

    @property
    def overfull(self) -> bool:
        """Whether more is on its way than there is memory for."""
        return self.sent_bytes > self.spec.memory // 4

    def nearly_overfull(self, more: int) -> bool:
        """Whether it soon would be, with so many bytes more: the servers should acknowledge them at once."""
        return 2 * (self.sent_bytes + more) > self.spec.memory // 4

    def acknowledge(self, server: int, applied: int) -> None:
        """The server's rows have all updates up to this message."""
        if not self.sent:
            return
        kept = deque(item for item in self.sent if item.server != server or item.sequence > applied)
        self.sent_bytes = sum(item.bytes for item in kept)
        self.sent = kept

    def keys_of(self, chosen: Rows) -> tuple[Rows, Rows]:
        """(the keys at these positions of the log in ascending order, the positions so ordered)."""
        keys = self.log.keys[chosen]
        order = np.argsort(keys, kind="stable")
        return keys[order], chosen[order]

    def take(self, positions: Rows, whole: bool) -> Rows:
        """Updates that are sent now, as the servers will add them; with `half` and not whole, what rounding to 16 bits
        leaves stays in the log."""
        deltas = np.empty((len(positions), self.log.deltas.shape[1]), self.spec.kind)
        take_rows(self.log.deltas, self.log.live, positions, deltas)
        if self.spec.half and not whole:
            rounded = np.clip(deltas, -65504, 65504).astype(np.float16).astype(self.spec.kind)
            self.log.deltas[positions] = deltas - rounded
            return rounded
        return deltas

    def on_its_way(self, server: int, sequence: int, keys: Rows, deltas: Rows) -> None:
        if self.spec.function is None:
            item = Sent(server, sequence, keys, deltas)
            self.sent.append(item)
            self.sent_bytes += item.bytes

    def drop(self, rows: Rows) -> None:
        """The worker has no copy of these rows any more; the servers should know."""
        if len(rows):
            self.dropped.append(rows)
            self.dropped_rows += len(rows)

    def forgotten(self, pulled: list[Rows]) -> Rows:
        """Rows that were dropped, and neither came back nor will: what the servers are to be told now."""
        if not self.dropped:
            return np.empty(0, np.int64)
        rows = np.concatenate(self.dropped)
        self.dropped.clear()
        self.dropped_rows = 0
        rows = rows[self.places.find(rows)[0] < 0]
        if pulled:
            coming = np.sort(np.concatenate(pulled))
            at = np.minimum(np.searchsorted(coming, rows), len(coming) - 1)
            rows = rows[coming[at] != rows]
        return rows


class DenseCached(Cached):
    def __init__(self, spec: TableSpec, servers: int, held: bool = False) -> None:
        super().__init__(spec, servers, spec.width, spec.width * spec.kind.itemsize + PLACE_BYTES, held)
        self.values = np.zeros((self.places.slots, spec.width), spec.kind)
        versioned = spec.function is not None
        self.versions = np.zeros(self.places.slots, np.int32) if versioned else None
        self.read_versions = np.zeros(spec.rows, np.int32) if versioned else None

    def get(self, rows: Rows) -> tuple[Rows, Rows]:
        """(values [n, width], of missing rows undefined; positions of missing rows)."""
        out = np.empty((len(rows), self.spec.width), self.spec.kind)
        slots, missing = self.places.read(rows, self.values, out)
        if self.held:
            self._add_own(rows, out)
        if self.read_versions is not None:
            assert self.versions is not None
            there = slots >= 0
            self.read_versions[rows[there]] = self.versions[slots[there]]
        return out, (np.flatnonzero(slots < 0) if missing else np.empty(0, np.int64))

    def receive(self, rows: Rows, values: Rows, versions: Rows | None, mark: int) -> Rows:
        """Rows from a server. mark: READ or AHEAD; 0: they were not asked for, and are not kept unless they are cached.
        What a read gets."""
        values = np.array(values, self.spec.kind)  # a message cannot be written to
        if not self.held:
            self._add_own(rows, values)
        if mark:
            slots, dropped = self.places.claim(rows, mark)
            self.drop(dropped)
        else:
            slots, missing = self.places.find(rows)
            if missing:
                self.drop(rows[slots < 0])
        write_rows(self.values, slots, values)
        if versions is not None and self.versions is not None:
            self.versions[slots[slots >= 0]] = versions[slots >= 0]
            if mark and self.read_versions is not None:
                self.read_versions[rows] = versions
        if self.held and mark:
            self._add_own(rows, values)
        return values

    def _add_own(self, rows: Rows, values: Rows) -> None:
        """Add what the servers' rows lack of this worker's updates."""
        if self.spec.function is None:
            for item in self.sent:
                add_sorted(item.keys, item.deltas, rows, values)
            self.log.add_to(rows, values)

    def add(self, rows: Rows, deltas: Rows, begin: int) -> int:
        """Into the log, and to cached rows. Where it stopped: the log is full, and is to be sent first."""
        if self.read_versions is not None:
            return self.log.add(rows * VERSION + self.read_versions[rows], deltas, begin)
        if self.held:
            return self.log.add(rows, deltas, begin)
        return self.log.add_and_apply(rows, deltas, begin, self.places, self.values)

    def importance(self, positions: Rows, relative: bool) -> Rows:
        """Magnitudes of waiting updates; relative: divided by those of the cached values."""
        rows = self.log.keys[positions]
        slots, _ = self.places.find(rows // VERSION if self.read_versions is not None else rows)
        return changes_of(self.log.deltas, positions, self.values, slots, relative)


class SparseCached(Cached):
    """The log's keys are entries: row × width + column."""

    def __init__(self, spec: TableSpec, servers: int, held: bool = False) -> None:
        super().__init__(spec, servers, 1, 43 + PLACE_BYTES + 8 * min(spec.width, 16), held)
        self.maps = SparseRows(self.places.slots, spec.kind)

    def get(self, rows: Rows) -> tuple[Rowset, Rows]:
        slots, missing = self.places.find(rows, READ)
        positions = np.flatnonzero(slots < 0) if missing else np.empty(0, np.int64)
        if missing:
            return Rowset(*(np.empty(0),) * 3), positions
        found = Rowset(*self.maps.get(slots))
        return (self._with_own(rows, found) if self.held else found), positions

    def receive(self, rows: Rows, got: Rowset, mark: int) -> Rowset:
        """As for dense rows; rows occur once."""
        if self.maps.bytes > self.spec.memory // 2:
            self.maps_full()
        if mark:
            slots, dropped = self.places.claim(rows, mark)
            self.drop(dropped)
            slots, _ = self.places.find(rows)  # two that fell on one place: the last has it
        else:
            slots, _ = self.places.find(rows)
            self.drop(rows[slots < 0])
        counts = got.counts.astype(np.int64)
        there = np.repeat(slots >= 0, counts)
        kept = slots >= 0
        self.maps.set(slots[kept], counts[kept], got.columns[there], got.values[there])
        if not self.held:
            own_rows, columns, changes = self._fixed(rows)
            own, _ = self.places.find(own_rows)
            self.maps.add(own[own >= 0], columns[own >= 0], changes[own >= 0])
        return self._with_own(rows, got) if mark else got

    def _with_own(self, rows: Rows, got: Rowset) -> Rowset:
        """The servers' rows with what they lack of this worker's updates. Rows may repeat."""
        own_rows, columns, changes = self._fixed(rows)
        if not len(own_rows):
            return got
        whole = SparseRows(len(rows), self.spec.kind, 1024 + 2 * len(got.values))
        whole.set(np.arange(len(rows)), got.counts.astype(np.int64), got.columns, got.values)
        order = np.argsort(rows, kind="stable")
        first = np.searchsorted(rows[order], own_rows, side="left")
        times = np.searchsorted(rows[order], own_rows, side="right") - first
        begins = np.repeat(first - np.concatenate([[0], np.cumsum(times)[:-1]]), times)
        whole.add(order[begins + np.arange(times.sum())], np.repeat(columns, times), np.repeat(changes, times))
        return Rowset(*whole.get(np.arange(len(rows))))

    def _fixed(self, rows: Rows) -> tuple[Rows, Rows, Rows]:
        """(row, column, delta) of all own updates of these rows that the server's copy lacks."""
        width = self.spec.width
        keys = [item.keys for item in self.sent]
        deltas = [item.deltas[:, 0] for item in self.sent]
        if self.log.count:
            keys.append(self.log.keys[: self.log.count])
            deltas.append(self.log.deltas[: self.log.count, 0])
        if not keys:
            return np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, self.spec.kind)
        every, changes = np.concatenate(keys), np.concatenate(deltas)
        mine = np.isin(every // width, rows) & (changes != 0)
        every = every[mine]
        return every // width, (every % width).astype(np.int32), changes[mine]

    def maps_full(self) -> None:
        """The cached rows have outgrown their memory: begin anew."""
        self.drop(self.places.present())
        self.places.clear()
        self.maps.clear()

    def add(self, keys: Rows, deltas: Rows, begin: int) -> int:
        """keys: entries. deltas: [n, 1]."""
        end = self.log.add(keys, deltas, begin)
        if self.held:
            return end
        slots, _ = self.places.find(keys[begin:end] // self.spec.width)
        there = slots >= 0
        columns = (keys[begin:end] % self.spec.width).astype(np.int32)
        self.maps.add(slots[there], columns[there], deltas[begin:end, 0][there])
        return end

    def importance(self, positions: Rows, relative: bool) -> Rows:
        changes: Rows = np.abs(self.log.deltas[positions, 0])
        if not relative:
            return changes
        keys = self.log.keys[positions]
        slots, _ = self.places.find(keys // self.spec.width)
        sizes = np.zeros(len(positions))
        there = np.flatnonzero(slots >= 0)
        counts, columns, values = self.maps.get(slots[there])
        owner = np.repeat(there, counts)
        same = columns == (keys[owner] % self.spec.width)
        sizes[owner[same]] = np.abs(values[same])
        return np.asarray(changes / np.where(sizes > 0, sizes, 1.0))
