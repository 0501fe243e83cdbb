"""A server: the master copy of a partition of all tables, and the clocks of all workers. It knows no sockets.

Bösen (Wei 2019, dissertation, §3.1.1 and §3.2). Implemented: updates and clock messages of workers; pulls, answered
when the partition is as fresh as they need; once all workers have ended a clock, all rows that have changed go to the
workers that have them, then a clock message (SSPPush); copy-on-write snapshots strictly after a clock; managed
communication of changed rows between clocks; functions in place of addition, with versions of rows. Where we differ:
with staleness 0 the updates of a clock are held back until all workers have ended it and are added in the order of the
workers, so that results do not depend on who was first; a worker that says which rows it has dropped is not sent them.
Cost of a message: O(its rows × (width + workers)); of a clock: O(rows × workers) and what is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from girih.loop.shared_tables import messages as m
from girih.loop.shared_tables.bandwidth import Bucket, Link, first
from girih.loop.shared_tables.messages import FrameReader, Header, header_of, message
from girih.loop.shared_tables.options import TableOptions, TableSpec
from girih.loop.shared_tables.rows.store import Partition, Update
from girih.loop.shared_tables.snapshots import Snapshot

GONE = (1 << 31) - 1
"""The clock of a worker that has left: no other one waits for it."""
LARGEST_HALF = 65504.0
LARGEST = 1 << 20
"""Bytes of one message of rows."""


@dataclass(frozen=True)
class Pull:
    """A worker waits for rows until the server's clock is `need`."""

    worker: int
    table: int
    rows: NDArray[Any]
    need: int
    sequence: int


class Server:
    """outbox: (worker, frame), to be sent in this order. events: [clock, path, why it failed or ""] of snapshots."""

    def __init__(self, number: int, specs: tuple[TableSpec, ...], options: TableOptions) -> None:
        self.number, self.specs, self.options = number, specs, options
        self.tables = [Partition(spec, number, options) for spec in specs]
        self.outbox: list[tuple[int, bytes]] = []
        self.events: list[list[Any]] = []
        self._drawn: np.random.Generator | None = None
        self.snapshot: Snapshot | None = None
        self.begin(0)

    def begin(self, clock: int) -> None:
        """All workers are new, and at this clock."""
        workers = self.options.workers
        self.clock = clock
        self.clocks = [clock] * workers
        self._received = [0] * workers
        self._applied = [0] * workers
        self._sequence = [0] * workers
        self._pulls: list[Pull] = []
        self._held: dict[int, list[tuple[int, int, int, Update]]] = {}
        self._cursor = [0] * workers
        rate = self.options.bandwidth / workers
        self._links = [Link(Bucket(rate), self.options.silence) for _ in range(workers)]
        self._shadows: dict[int, Snapshot] = {}
        if self.snapshot is not None:
            self.snapshot.abandon()
            self.snapshot = None
        self.outbox.clear()
        for table in self.tables:
            table.forget_workers()

    # ------------------------------------------------------------------------------------------- messages

    def receive(self, worker: int, frame: bytes, now: float = 0.0) -> None:
        """A message of a worker."""
        header = header_of(frame)
        self._received[worker] = header.sequence
        self._links[worker].acknowledged(header.received)
        if header.kind == m.UPDATE:
            self._update(worker, header, frame)
            if header.flags & m.WANTS_ACK:
                self._send(worker, Header(m.ACK), now=now)
        elif header.kind == m.PULL:
            rows = FrameReader(frame).take(np.int32, header.rows)
            pull = Pull(worker, header.table, rows, header.clock, header.sequence)
            if header.clock <= self.clock:
                self._answer(pull, now)
            else:
                self._pulls.append(pull)
        elif header.kind == m.FORGET:
            rows = FrameReader(frame).take(np.int32, header.rows)
            table = self.tables[header.table]
            table.present[worker, rows] = False
            table.dirty[worker, rows] = False
        elif header.kind == m.CLOCK:
            self.clocks[worker] = header.clock
            if not self.options.held:
                self._applied[worker] = header.sequence
            self._advance(now)
        elif header.kind == m.BYE:
            self.clocks[worker] = GONE
            self._pulls = [pull for pull in self._pulls if pull.worker != worker]
            for table in self.tables:
                table.present[worker] = False
                table.dirty[worker] = False
            self._advance(now)
            self._send(worker, Header(m.FAREWELL), now=now)
        elif header.kind == m.ASK:
            late = np.array([rank for rank, clock in enumerate(self.clocks) if clock <= self.clock], np.int32)
            self._send(worker, Header(m.LAGGARDS, rows=len(late)), late, now=now)
        elif header.kind == m.HELLO:
            self._send(worker, Header(m.WELCOME), now=now)

    def _update(self, worker: int, header: Header, frame: bytes) -> None:
        spec = self.specs[header.table]
        reader = FrameReader(frame)
        versions = columns = None
        if spec.sparse:
            entries = reader.take(np.int64, header.rows)
            rows, columns = entries // spec.width, (entries % spec.width).astype(np.int32)
        else:
            rows = reader.take(np.int32, header.rows)
        if header.flags & m.VERSIONED:
            versions = reader.take(np.int32, header.rows)
        kind = np.float16 if header.flags & m.HALF else spec.kind
        if spec.sparse:
            deltas = reader.take(kind, header.rows).astype(spec.kind, copy=False)
        else:
            deltas = reader.take(kind, header.rows * spec.width).reshape(header.rows, spec.width)
            deltas = deltas.astype(spec.kind, copy=False)
        update = Update(rows, deltas, columns, versions)
        if self.options.held:
            self._held.setdefault(header.clock, []).append((worker, header.sequence, header.table, update))
        else:
            self._apply(worker, header.table, header.clock, update)
            self._applied[worker] = header.sequence

    def _apply(self, worker: int, table: int, tick: int, update: Update) -> None:
        """Ticks are counted from 0; a snapshot of clock c has the updates of the ticks before c."""
        every = self.options.snapshot_every
        if every:
            first_due = (self.clock // every + 1) * every
            for clock in range(first_due, tick + 1, every):
                if clock not in self._shadows:
                    self._shadows[clock] = Snapshot(self, clock)
            for clock, shadow in self._shadows.items():
                if tick >= clock:
                    shadow.protect(table, update.rows)
                else:
                    shadow.add(table, update)
            if self.snapshot is not None:
                self.snapshot.protect(table, update.rows)
        self.tables[table].add(update, worker, self.clock)

    # ------------------------------------------------------------------------------------------- clocks

    def _advance(self, now: float) -> None:
        """All that follows from workers having gone on: the server's clock is the slowest worker's."""
        goal = min(self.clocks)
        if goal == GONE:
            goal = max(self.clock, 1 + max(self._held, default=-1))
        if goal <= self.clock:
            return
        while self.clock < goal:
            for worker, sequence, table, update in sorted(
                self._held.pop(self.clock, ()), key=lambda held: (held[0], held[1])
            ):
                self._apply(worker, table, self.clock, update)
                self._applied[worker] = sequence
            self.clock += 1
            every = self.options.snapshot_every
            if every and self.clock % every == 0:
                self.begin_snapshot(
                    self._shadows.pop(self.clock) if self.clock in self._shadows else Snapshot(self, self.clock)
                )
        waiting, self._pulls = self._pulls, []
        for pull in waiting:
            if pull.need <= self.clock:
                self._answer(pull, now)
            else:
                self._pulls.append(pull)
        for worker, clock in enumerate(self.clocks):
            if clock == GONE:
                continue
            for number, partition in enumerate(self.tables):
                rows = np.flatnonzero(partition.dirty[worker])
                step = max(1, LARGEST // (4 + partition.spec.width * partition.spec.kind.itemsize))
                for begin in range(0, len(rows), step):
                    self._send_rows(m.PUSH, worker, number, rows[begin : begin + step], 0, now)
            self._send(worker, Header(m.AGE, clock=self.clock), now=now)

    def _answer(self, pull: Pull, now: float) -> None:
        self._send_rows(m.ROWS, pull.worker, pull.table, pull.rows, pull.sequence, now)

    def _send_rows(self, kind: int, worker: int, table: int, rows: NDArray[Any], answers: int, now: float) -> None:
        """clock: of an answer, the number of the pull; of a push, the server's clock."""
        partition = self.tables[table]
        arrays: list[NDArray[Any]] = [rows.astype(np.int32, copy=False)]
        parts = partition.take(worker, rows, self.clock)
        flags = 0
        if partition.spec.sparse:
            arrays += parts
        else:
            values = parts[0]
            if partition.spec.half and (not values.size or np.abs(values).max() < LARGEST_HALF):
                flags = m.HALF
                values = values.astype(np.float16)
            if len(parts) > 1:
                flags |= m.VERSIONED
                arrays.append(parts[1])
            arrays.append(values)
        clock = answers if kind == m.ROWS else self.clock
        self._send(worker, Header(kind, table, flags, clock=clock, rows=len(rows)), *arrays, now=now)

    def _send(self, worker: int, header: Header, *arrays: NDArray[Any], now: float) -> None:
        self._sequence[worker] += 1
        own = Header(
            header.kind,
            header.table,
            header.flags | (m.WANTS_ACK if header.kind == m.PUSH and self.options.managed else 0),
            self._sequence[worker],
            self._received[worker],
            header.clock,
            header.rows,
            self._applied[worker],
        )
        frame = message(own, *arrays)
        if self.options.managed:
            self._links[worker].sent(own.sequence, len(frame), now, awaited=header.kind == m.PUSH)
        self.outbox.append((worker, frame))

    def _generator(self) -> np.random.Generator:
        if self._drawn is None:
            self._drawn = np.random.default_rng((self.options.seed, self.number))
        return self._drawn

    # ------------------------------------------------------------------------------------------- between clocks

    def communicate(self, now: float) -> float:
        """Send rows that have changed over every link that is free. Seconds until it should be called again."""
        wait = 1.0
        for worker, link in enumerate(self._links):
            if self.clocks[worker] == GONE:
                continue
            if link.free(now):
                for number, table in enumerate(self.tables):
                    self._send_some(worker, number, table, now)
            wait = min(wait, max(link.bucket.seconds_to_empty(now), self.options.tick))
        return wait

    def _send_some(self, worker: int, number: int, table: Partition, now: float) -> None:
        rows = np.flatnonzero(table.dirty[worker])
        if len(rows) and table.store.versions is not None:
            rows = rows[table.store.versions.can_remember(rows, self.clock)]
        if not len(rows):
            return
        width = 2 if table.spec.half else table.spec.kind.itemsize
        limit = max(1, self.options.queue // len(self.tables) // (4 + width * table.spec.width))
        if len(rows) > limit:
            assert table.change is not None
            start = int(np.searchsorted(rows, self._cursor[worker]))
            order = self.options.order_of(table.spec)
            rows = rows[first(order, limit, table.change[worker, rows], self._generator(), start)]
            self._cursor[worker] = int(rows[-1]) + 1
        self._send_rows(m.PUSH, worker, number, rows, 0, now)

    # ------------------------------------------------------------------------------------------- snapshots

    def begin_snapshot(self, snapshot: Snapshot) -> None:
        """Its clock is reached: from now on it is written, part by part, by `work`."""
        if self.snapshot is not None:  # the one before must be whole first
            self.snapshot.finish()
            self._told(self.snapshot)
        self.snapshot = snapshot
        snapshot.open([rank for rank, clock in enumerate(self.clocks) if clock == GONE])

    def work(self) -> bool:
        """Write a part of the snapshot that is being taken. Whether there is more to do."""
        if self.snapshot is None:
            return False
        if self.snapshot.advance():
            return True
        self._told(self.snapshot)
        self.snapshot = None
        return False

    def _told(self, snapshot: Snapshot) -> None:
        self.events.append([snapshot.clock, snapshot.path, snapshot.failed.reason if snapshot.failed else ""])
