"""A worker's side of the protocol: reads that are fresh enough, updates, clocks. It knows no sockets and never waits.

Bösen (Wei 2019, dissertation, §3.1). Implemented: a worker in tick t reads what has all updates of the ticks up to
t − S − 1 of all workers, and all of its own; cached rows first, a pull for the others; buffered updates, sent when a
clock ends, when their memory is full, or earlier if the links are idle (§3.2); a clock message after them. Where we
differ: one worker, and one thread that computes, for each client. A cached row is as fresh as the last clock message
of its server, because all that had changed was sent before it; so the age of a row need not be kept. A worker does not
end a tick whose reads would have had to wait, so that it cannot run ahead by reading nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from girih.loop.shared_tables import messages as m
from girih.loop.shared_tables.bandwidth import Bucket, Link, first
from girih.loop.shared_tables.messages import FrameReader, Header, header_of, message
from girih.loop.shared_tables.options import TableError, TableOptions, TableSpec
from girih.loop.shared_tables.rows.cache import VERSION, DenseCached, Rowset, SparseCached
from girih.loop.shared_tables.rows.keyed import AHEAD, READ

Rows = NDArray[Any]
LARGEST = 1 << 20
"""Bytes of one message of updates."""

MOST_PENDING = 1
"""Pulls whose answers are under way, beyond which rows that are to be fetched ahead are collected."""
MOST_DROPPED = 4096
"""Rows that were dropped, of which the servers are told before the tick ends."""


@dataclass(eq=False)
class Read:
    """A read that may have to wait. values: [n, width], or of a sparse table a Rowset, when it is done."""

    table: int
    rows: Rows
    values: Any = None
    begun: bool = False
    pulls: dict[tuple[int, int], Rows] = field(default_factory=dict)  # (server, sequence) → positions
    parts: list[tuple[Rows, Any]] = field(default_factory=list)  # of a sparse table: positions, rows

    @property
    def done(self) -> bool:
        return self.begun and not self.pulls


class Client:
    """send(server, frame) puts a message on its way. All methods are called under one lock, if there are threads.

    hurry: rows were asked for, and what `send` got should not wait for more.
    """

    def __init__(
        self,
        rank: int,
        specs: tuple[TableSpec, ...],
        options: TableOptions,
        send: Callable[[int, bytes], None],
        clock: int = 0,
    ) -> None:
        self.rank, self.specs, self.options = rank, specs, options
        self.clock = clock
        self.tables = [
            (SparseCached if spec.sparse else DenseCached)(spec, options.servers, options.held) for spec in specs
        ]
        self.ages = [clock] * options.servers
        self.welcomed: set[int] = set()
        self.dismissed: set[int] = set()
        self.laggards: dict[int, set[int]] = {}
        self.pulled_rows = self.hit_rows = 0
        self.early_messages = 0
        self._put = send
        self._sequence = [0] * options.servers
        self._received = [0] * options.servers
        self._reads: list[Read] = []
        self._wanted: dict[int, list[Rows]] = {}
        self.hurry = False
        self._links = [Link(Bucket(options.bandwidth / options.servers), options.silence) for _ in self.ages]
        self._drawn: np.random.Generator | None = None
        self._cursor = 0
        self._now = 0.0

    # ------------------------------------------------------------------------------------------- reads

    def begin_read(self, table: int, rows: Rows) -> Read:
        read = Read(table, rows)
        self.continue_read(read)
        return read

    def continue_read(self, read: Read) -> bool:
        """Whether it is done. Call again after messages have come."""
        if not read.begun and min(self.ages) >= self.clock - self.options.staleness and not self._coming(read):
            self._begin(read)
        return read.done

    def _coming(self, read: Read) -> bool:
        """Whether rows of it are missing that may come by a prefetch which is under way."""
        if any(other.values is None and other.table == read.table for other in self._reads):
            return self.tables[read.table].places.find(read.rows)[1] > 0
        return False

    def _begin(self, read: Read) -> None:
        read.begun = True
        table = self.tables[read.table]
        read.values, missing = table.get(read.rows)
        self.hit_rows += len(read.rows) - len(missing)
        if not len(missing):
            return
        if isinstance(table, SparseCached):
            there = np.setdiff1d(np.arange(len(read.rows)), missing)
            if len(there):
                read.parts.append((there, table.get(read.rows[there])[0]))
            _, once = np.unique(read.rows[missing], return_index=True)
            missing = missing[once]
        self._pull(read, missing)

    def _pull(self, read: Read, missing: Rows) -> None:
        self.pulled_rows += len(missing)
        self._reads.append(read)
        servers = self.options.servers
        wanted = read.rows[missing]
        for server in range(servers):
            positions = missing if servers == 1 else missing[wanted % servers == server]
            if not len(positions):
                continue
            rows = (read.rows[positions] // servers).astype(np.int32)
            need = self.clock - self.options.staleness
            sequence = self._send(server, Header(m.PULL, read.table, clock=need, rows=len(rows)), rows)
            read.pulls[server, sequence] = positions

    def _tell_dropped(self, number: int) -> None:
        """Which rows this worker has no more. Any moment is right: what came back, or will, is not among them."""
        table = self.tables[number]
        pulled = [read.rows for read in self._reads if read.table == number]
        rows = table.forgotten(pulled)
        servers = self.options.servers
        for server in range(servers):
            own = rows if servers == 1 else rows[rows % servers == server]
            if len(own):
                self._send(server, Header(m.FORGET, number, rows=len(own)), (own // servers).astype(np.int32))

    def prefetch(self, table: int, rows: Rows) -> None:
        """Ask for rows that are not cached, and do not wait. While an answer is under way, rows are collected; they are
        asked for together when it has come, since every message has its price, however few rows it is about."""
        slots, missing = self.tables[table].places.find(rows, AHEAD)
        if missing:
            self._wanted.setdefault(table, []).append(rows[slots < 0] if missing < len(rows) else rows)
            if len(self._reads) < MOST_PENDING:
                self._ask()

    def _ask(self) -> None:
        """Pull the rows that were collected, but for those that have come by other reads since."""
        for table, parts in self._wanted.items():
            rows = np.concatenate(parts) if len(parts) > 1 else parts[0]
            rows = rows[self.tables[table].places.find(rows, AHEAD)[0] < 0]
            if self.specs[table].sparse:
                rows = np.unique(rows)
            if len(rows):
                self._pull(Read(table, rows, begun=True), np.arange(len(rows)))
        self._wanted.clear()
        self.hurry = True

    # ------------------------------------------------------------------------------------------- updates

    def inc_dense(self, number: int, rows: Rows, deltas: Rows) -> None:
        self._add(number, rows, deltas)

    def inc_sparse(self, number: int, rows: Rows, columns: Rows, deltas: Rows) -> None:
        keys = rows.astype(np.int64) * self.specs[number].width + columns
        self._add(number, keys, deltas.reshape(-1, 1))

    def _add(self, number: int, keys: Rows, deltas: Rows) -> None:
        table = self.tables[number]
        done = 0
        while (done := table.add(keys, deltas, done)) < len(keys):
            self.flush(number, whole=True)
            table.log.forget()

    def overfull(self, number: int) -> bool:
        """Whether so many updates are on their way that no more should follow before the servers have some. With
        staleness 0 the servers hold them until the clock ends, and there is nothing to wait for."""
        return self.tables[number].overfull and not self.options.held

    def flush(self, number: int, whole: bool = False) -> None:
        """Send all waiting updates of a table. whole: nothing is rounded to 16 bits."""
        table = self.tables[number]
        if whole and table.spec.half:
            left = np.abs(table.log.deltas[: table.log.count]).sum(axis=1) > 0
            table.log.live[: table.log.count][left] = 1
        self._send_updates(number, table.log.waiting(), whole)

    def _send_updates(self, number: int, positions: Rows, whole: bool) -> None:
        if not len(positions):
            return
        table, spec, servers = self.tables[number], self.specs[number], self.options.servers
        keys, positions = table.keys_of(positions)
        deltas = table.take(positions, whole)
        entry = spec.width if spec.sparse else VERSION if spec.function is not None else 1
        rows = keys // entry if entry > 1 else keys
        step = max(1, LARGEST // (12 + deltas.shape[1] * spec.kind.itemsize))
        for server in range(servers):
            mine = None if servers == 1 else np.flatnonzero(rows % servers == server)
            own_keys, own_rows, own_deltas = (
                (keys, rows, deltas) if mine is None else (keys[mine], rows[mine], deltas[mine])
            )
            for begin in range(0, len(own_keys), step):
                part = slice(begin, begin + step)
                arrays: list[Rows]
                flags = m.WANTS_ACK if self.options.managed or table.nearly_overfull(keys.nbytes + deltas.nbytes) else 0
                if spec.sparse:
                    local = own_rows[part] // servers * spec.width + own_keys[part] % spec.width
                    arrays = [local.astype(np.int64, copy=False)]
                else:
                    arrays = [(own_rows[part] // servers).astype(np.int32)]
                if spec.function is not None:
                    arrays.append((own_keys[part] % VERSION).astype(np.int32))
                    flags |= m.VERSIONED
                if spec.half and not whole:
                    flags |= m.HALF
                    arrays.append(own_deltas[part].astype(np.float16))
                else:
                    arrays.append(own_deltas[part])
                header = Header(m.UPDATE, number, flags, clock=self.clock, rows=len(own_keys[part]))
                sequence = self._send(server, header, *arrays)
                table.on_its_way(server, sequence, own_keys[part], own_deltas[part])

    # ------------------------------------------------------------------------------------------- clocks

    def end_tick(self) -> None:
        """Send what waits, then the clock message."""
        for number in range(len(self.tables)):
            self.flush(number)
            self._tell_dropped(number)
        self.clock += 1
        for server in range(self.options.servers):
            self._send(server, Header(m.CLOCK, clock=self.clock))

    def may_go_on(self) -> bool:
        """Whether the tick that has ended may have ended: its reads would not have had to wait."""
        return min(self.ages) >= self.clock - 1 - self.options.staleness

    def greet(self) -> None:
        """Ask the servers whether they have what a worker begins with; they answer when they do, see `welcomed`."""
        for server in range(self.options.servers):
            self._send(server, Header(m.HELLO))

    def leave(self) -> None:
        """Send everything, also what rounding left, and that no other worker has to wait for this one any more.

        Messages are received until all servers have said farewell, see `dismissed`: a line that is closed with
        something unread may lose what was sent last.
        """
        for number in range(len(self.tables)):
            self.flush(number, whole=True)
        for server in range(self.options.servers):
            self._send(server, Header(m.BYE, clock=self.clock))

    def ask_who(self) -> None:
        """Ask the servers that are behind for the workers they wait for; the answers come into `laggards`."""
        for server, age in enumerate(self.ages):
            if age < self.clock - self.options.staleness:
                self._send(server, Header(m.ASK))

    # ------------------------------------------------------------------------------------------- messages

    def receive(self, server: int, frame: bytes, now: float = 0.0) -> None:
        """A message of a server."""
        header = header_of(frame)
        self._now = max(self._now, now)
        self._received[server] = header.sequence
        self._links[server].acknowledged(header.received)
        for table in self.tables:
            table.acknowledge(server, header.applied)
        if header.kind in (m.ROWS, m.PUSH):
            self._rows(server, header, frame)
            if header.flags & m.WANTS_ACK:
                self._send(server, Header(m.ACK))
        elif header.kind == m.FAREWELL:
            self.dismissed.add(server)
        elif header.kind == m.WELCOME:
            self.welcomed.add(server)
        elif header.kind == m.AGE:
            self.ages[server] = max(self.ages[server], header.clock)
        elif header.kind == m.LAGGARDS:
            self.laggards[server] = set(FrameReader(frame).take(np.int32, header.rows).tolist())

    def _rows(self, server: int, header: Header, frame: bytes) -> None:
        table, spec, servers = self.tables[header.table], self.specs[header.table], self.options.servers
        reader = FrameReader(frame)
        local = reader.take(np.int32, header.rows).astype(np.int64)
        rows = local if servers == 1 else local * servers + server
        read = None
        if header.kind == m.ROWS:
            read = next(read for read in self._reads if (server, header.clock) in read.pulls)
        mark = 0 if read is None else AHEAD if read.values is None else READ
        values: Any
        if isinstance(table, SparseCached):
            counts = reader.take(np.int32, header.rows)
            total = int(counts.sum())
            got = Rowset(counts, reader.take(np.int32, total), reader.take(spec.kind, total))
            values = table.receive(rows, got, mark)
        else:
            versions = reader.take(np.int32, header.rows) if header.flags & m.VERSIONED else None
            kind = np.float16 if header.flags & m.HALF else spec.kind
            found = reader.take(kind, header.rows * spec.width).reshape(header.rows, spec.width)
            values = table.receive(rows, found, versions, mark)
        if read is not None:
            self._answered(read, read.pulls.pop((server, header.clock)), values)

    def _answered(self, read: Read, positions: Rows, values: Any) -> None:
        """Rows of a read have come: those at these positions."""
        if read.values is not None and isinstance(values, Rowset):
            read.parts.append((positions, values))
        elif read.values is not None:
            read.values[positions] = values
        if read.pulls:
            return
        self._reads.remove(read)
        if self._wanted and len(self._reads) < MOST_PENDING:
            self._ask()
        if self.tables[read.table].dropped_rows > MOST_DROPPED:
            self._tell_dropped(read.table)
        if read.parts:
            read.values = _joined(read)

    def _send(self, server: int, header: Header, *arrays: Rows) -> int:
        self._sequence[server] += 1
        sequence = self._sequence[server]
        own = Header(
            header.kind, header.table, header.flags, sequence, self._received[server], header.clock, header.rows
        )
        frame = message(own, *arrays)
        if self.options.managed:
            self._links[server].sent(sequence, len(frame), self._now, awaited=header.kind == m.UPDATE)
        self._put(server, frame)
        return sequence

    def _generator(self) -> np.random.Generator:
        if self._drawn is None:
            self._drawn = np.random.default_rng((self.options.seed, 7919, self.rank))
        return self._drawn

    # ------------------------------------------------------------------------------------------- between clocks

    def communicate(self, now: float) -> float:
        """Send waiting updates over the links that are free (§3.2.1). Seconds until it should be called again."""
        self._now = max(self._now, now)
        wait = 1.0
        for server, link in enumerate(self._links):
            if link.free(now):
                for number in range(len(self.tables)):
                    self._send_some(number, server)
            wait = min(wait, max(link.bucket.seconds_to_empty(now), self.options.tick))
        return wait

    def _send_some(self, number: int, server: int) -> None:
        table, spec, servers = self.tables[number], self.specs[number], self.options.servers
        positions = table.log.waiting()
        if servers > 1:
            keys = table.log.keys[positions]
            rows = keys // spec.width if spec.sparse else keys // VERSION if spec.function is not None else keys
            positions = positions[rows % servers == server]
        if not len(positions):
            return
        width = 2 if spec.half else spec.kind.itemsize
        entry = 8 + width if spec.sparse else 4 + width * spec.width
        limit = max(1, self.options.queue // len(self.tables) // entry)
        if len(positions) > limit:
            order = self.options.order_of(spec)
            magnitude = order in ("relative", "absolute")
            importance = table.importance(positions, order == "relative") if magnitude else positions
            start = int(np.searchsorted(positions, self._cursor))
            positions = positions[first(order, limit, importance, self._generator(), start)]
            self._cursor = int(positions[-1]) + 1
        self.early_messages += 1
        self._send_updates(number, positions, whole=False)


def _joined(read: Read) -> Rowset:
    """The rows of a sparse read, in the order in which they were asked for."""
    counts = np.zeros(len(read.rows), np.int64)
    own: dict[int, tuple[Rows, Rows]] = {}
    for positions, part in read.parts:
        ends = np.cumsum(part.counts)
        for position, begin, end in zip(positions.tolist(), (ends - part.counts).tolist(), ends.tolist(), strict=True):
            own[int(read.rows[position])] = part.columns[begin:end], part.values[begin:end]
    pieces = [own[row] for row in read.rows.tolist()]
    counts[:] = [len(columns) for columns, _ in pieces]
    return Rowset(
        counts, np.concatenate([columns for columns, _ in pieces]), np.concatenate([values for _, values in pieces])
    )


def checked_rows(spec: TableSpec, rows: Any) -> Rows:
    """Row numbers as the protocol takes them.

    Raises:
        TableError: naming the first that is not a row of the table.
    """
    plain = isinstance(rows, np.ndarray) and rows.dtype == np.int64 and rows.ndim == 1
    # Without its sign, a negative number is a large one.
    if plain and len(rows) and np.maximum.reduce(rows.view(np.uint64)) < spec.rows:
        return np.asarray(rows)
    found = np.asarray(rows)
    if found.ndim == 0:
        found = found[None]
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise TableError(f"table {spec.name!r}: rows are given by whole numbers, not by {found.dtype} {found.shape}")
    found = found.astype(np.int64, copy=False)
    if len(found) and (found.min() < 0 or found.max() >= spec.rows):
        wrong = found[(found < 0) | (found >= spec.rows)][0]
        raise TableError(f"table {spec.name!r} has no row {wrong}: its rows are 0 to {spec.rows - 1}")
    return found


def checked_values(spec: TableSpec, values: Any) -> Rows:
    """Numbers of a table's dtype, in one piece of memory.

    Raises:
        TableError: they are no numbers, or not whole ones for a table of these.
    """
    found = np.asarray(values)
    whole = spec.kind.kind == "i"
    fractions = whole and found.dtype.kind == "f" and not (np.isfinite(found) & (found == np.floor(found))).all()
    if found.dtype.kind not in "biuf" or fractions:
        raise TableError(
            f"table {spec.name!r} has {spec.dtype}: expected {'whole ' if whole else ''}numbers, not {found.dtype} "
            f"{found.ravel()[:3].tolist()}"
        )
    return np.ascontiguousarray(found, spec.kind)
