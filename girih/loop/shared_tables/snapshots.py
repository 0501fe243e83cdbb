"""Snapshots of tables strictly after a clock: written while updates go on, checked when they are read.

A folder `clock-000012` has a file of each server and one of each worker (what the worker gave to `clock(state=…)`); a
snapshot is whole when all are there. A file is a line of JSON that says what is in it, the arrays, and a digest of all
that. It gets its name when it is on the disk, so that at any moment it is there as a whole or not at all. What is to be
written is copied in parts between two messages of the server, and written by a thread.
"""

from __future__ import annotations

import hashlib
import os
import queue
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from girih.loop.shared_tables.options import TableOptions, TableSpec
from girih.loop.shared_tables.rows.store import Dense, Shadow, Update

MAGIC = "girih tables 1"
PART = 4 << 20  # bytes that are copied at one time
NAME = re.compile(r"clock-(\d{6,})")


class SnapshotError(RuntimeError):
    """A snapshot cannot be read: which file, and what is wrong with it."""


class SnapshotIncompleteError(SnapshotError):
    """A file is missing: the snapshot was being written when its run ended."""


@dataclass(frozen=True)
class SnapshotFailed:
    """A snapshot could not be written; those before are as they were."""

    clock: int
    path: str
    reason: str

    def __str__(self) -> str:
        return f"the snapshot of clock {self.clock} could not be written to {self.path}: {self.reason}"


def folder_of(folder: str, clock: int) -> Path:
    return Path(folder) / f"clock-{clock:06d}"


class Snapshot:
    """A snapshot of one server that is being taken. server: a `girih.loop.shared_tables.server.Server`."""

    def __init__(self, server: Any, clock: int) -> None:
        self._server, self.clock = server, clock
        self._shadows = [Shadow(table.store, table.count) for table in server.tables]
        self.path = str(folder_of(server.options.folder, clock) / f"server-{server.number}")
        self.failed: SnapshotFailed | None = None
        self._steps: Iterator[None] | None = None
        self._parts: queue.Queue[bytes | None] = queue.Queue(maxsize=2)
        self._writer: threading.Thread | None = None

    def protect(self, table: int, rows: NDArray[Any]) -> None:
        self._shadows[table].protect(rows)

    def add(self, table: int, update: Update) -> None:
        self._shadows[table].add(update)

    def open(self, left: list[int]) -> None:
        """The clock is reached: from now on it is written. left: the workers that had ended before."""
        self._steps = self._produce(left)
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def advance(self) -> bool:
        """Copy the next part, unless the disk is behind. Whether there is more to do."""
        assert self._steps is not None
        assert self._writer is not None
        if self._parts.full() and self._writer.is_alive():
            return True
        if next(self._steps, self) is self:  # all parts are handed over
            if self._writer.is_alive():
                self._writer.join(0.002)
            return self._writer.is_alive()
        return True

    def finish(self) -> None:
        """All of it, now."""
        while self.advance():
            pass

    def abandon(self) -> None:
        """Write no more of it."""
        if self._writer is not None:
            self.failed = SnapshotFailed(self.clock, self.path, "the run was stopped")
            while self._writer.is_alive():
                try:
                    self._parts.put(None, timeout=0.01)
                except queue.Full:
                    continue
                self._writer.join(1.0)

    def _produce(self, left: list[int]) -> Iterator[None]:
        server = self._server
        tables = [_described(table.spec, table.count) for table in server.tables]
        head = {
            "magic": MAGIC,
            "clock": self.clock,
            "server": server.number,
            "servers": server.options.servers,
            "workers": server.options.workers,
            "left": left,
            "tables": tables,
        }
        self._hand(msgspec.json.encode(head) + b"\n")
        yield
        for table, shadow in zip(server.tables, self._shadows, strict=True):
            row_bytes = max(64, table.spec.width * table.spec.kind.itemsize)
            step = max(1, PART // row_bytes)
            for begin in range(0, table.count, step):
                end = min(table.count, begin + step)
                arrays = shadow.read(begin, end)
                sizes = np.array([begin, end, len(arrays), *(array.nbytes for array in arrays)], np.int64)
                self._hand(b"".join([sizes.tobytes(), *(array.tobytes() for array in arrays)]))
                yield
            store = table.store
            if isinstance(store, Dense) and store.versions is not None:
                numbers = store.versions.numbers
                self._hand(numbers.tobytes())
                yield
        self._hand(None)

    def _hand(self, part: bytes | None) -> None:
        assert self._writer is not None
        while self._writer.is_alive():
            try:
                self._parts.put(part, timeout=0.05)
                return
            except queue.Full:
                continue

    def _write(self) -> None:
        """The thread."""
        try:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            with open(self.path + ".part", "wb") as file:
                digest = hashlib.blake2b(digest_size=16)
                while (part := self._parts.get()) is not None:
                    digest.update(part)
                    file.write(part)
                file.write(digest.digest())
                file.flush()
                os.fsync(file.fileno())
            if self.failed is None:
                os.replace(self.path + ".part", self.path)
        except OSError as error:
            self.failed = SnapshotFailed(self.clock, self.path, f"{error.strerror or error}")
        if self.failed is not None:
            Path(self.path + ".part").unlink(missing_ok=True)


def _described(spec: TableSpec, count: int) -> dict[str, Any]:
    columns = 0 if spec.function is None else spec.function.columns
    return {
        "name": spec.name, "rows": spec.rows, "width": spec.width, "dtype": spec.dtype, "sparse": spec.sparse,
        "columns": columns, "count": count,
    }  # fmt: skip


# ------------------------------------------------------------------------------------------- workers' own state


def write_state(options: TableOptions, clock: int, worker: int, state: bytes) -> SnapshotFailed | None:
    """What a worker wants to have again when it goes on from this clock."""
    path = folder_of(options.folder, clock) / f"worker-{worker}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            head = msgspec.json.encode({"magic": MAGIC, "clock": clock, "worker": worker, "bytes": len(state)}) + b"\n"
            file.write(head + state + hashlib.blake2b(head + state, digest_size=16).digest())
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        path.with_suffix(".part").unlink(missing_ok=True)
        return SnapshotFailed(clock, str(path), f"{error.strerror or error}")
    return None


def read_state(folder: str, clock: int, worker: int) -> bytes:
    """What the worker gave for this clock; b"" if it gave nothing."""
    path = folder_of(folder, clock) / f"worker-{worker}"
    body = checked(path)
    return body[body.index(b"\n") + 1 :]


# ------------------------------------------------------------------------------------------- reading


def checked(path: Path) -> bytes:
    """The contents of a file of a snapshot, without the digest.

    Raises:
        SnapshotError: it is missing, cut short or damaged.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        kind = SnapshotIncompleteError if isinstance(error, FileNotFoundError) else SnapshotError
        raise kind(f"{path}: {error.strerror or error}; the snapshot is not whole") from None
    body, digest = data[:-16], data[-16:]
    if len(data) < 17 or hashlib.blake2b(body, digest_size=16).digest() != digest:
        raise SnapshotError(f"{path}: damaged: its contents ({len(data)} bytes) do not have the digest at its end")
    try:
        known = msgspec.json.decode(body[: body.index(b"\n")], type=_Any).magic == MAGIC
    except (ValueError, msgspec.DecodeError):
        known = False
    if not known:
        raise SnapshotError(f"{path}: not a snapshot of tables of this version")
    return body


class _Any(msgspec.Struct):
    """What every file of a snapshot begins with."""

    magic: str


class _Head(_Any):
    """What a server's file begins with."""

    clock: int
    server: int
    servers: int
    workers: int
    left: list[int]
    tables: list[dict[str, Any]]


def head_of(path: Path) -> dict[str, Any]:
    """
    Raises:
        SnapshotError: it is missing, damaged, or says something else than a server's file does.
    """
    body = checked(path)
    try:
        head = msgspec.json.decode(body[: body.index(b"\n")], type=_Head)
    except msgspec.DecodeError as error:
        raise SnapshotError(f"{path}: damaged: its head: {error}") from None
    return msgspec.structs.asdict(head)


def check_snapshot(folder: str, clock: int, specs: tuple[TableSpec, ...], options: TableOptions) -> None:
    """Everything that a restart from this clock needs is there and sound.

    Raises:
        SnapshotError: naming the file.
    """
    place = folder_of(folder, clock)
    left: set[int] = set()
    for server in range(options.servers):
        path = place / f"server-{server}"
        head = head_of(path)
        if (head["servers"], head["workers"]) != (options.servers, options.workers):
            raise SnapshotError(
                f"{path}: of {head['servers']} servers and {head['workers']} workers; "
                f"this run has {options.servers} and {options.workers}"
            )
        wanted = [_described(spec, spec.local_rows(server, options.servers)) for spec in specs]
        if head["tables"] != wanted:
            raise SnapshotError(f"{path}: of other tables: {head['tables']}; this run has {wanted}")
        left |= set(head["left"])
    for worker in set(range(options.workers)) - left:
        checked(place / f"worker-{worker}")


def clocks_of(folder: str) -> list[int]:
    """The clocks of which there is anything, the newest first."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted((int(match[1]) for name in names if (match := NAME.fullmatch(name))), reverse=True)


def newest(folder: str, specs: tuple[TableSpec, ...], options: TableOptions) -> tuple[int | None, list[SnapshotError]]:
    """(the newest clock whose snapshot is whole, or None; what is wrong with those that are newer)."""
    wrong: list[SnapshotError] = []
    for clock in clocks_of(folder):
        try:
            check_snapshot(folder, clock, specs, options)
        except SnapshotError as error:
            wrong.append(error)
            continue
        return clock, wrong
    return None, wrong


def remove_older(folder: str, specs: tuple[TableSpec, ...], options: TableOptions) -> None:
    """Keep the newest whole snapshots, so many as the options say, and what is newer than they."""
    whole = 0
    for clock in clocks_of(folder):
        if whole >= options.keep:
            place = folder_of(folder, clock)
            for path in place.iterdir():
                path.unlink(missing_ok=True)
            place.rmdir()
        else:
            files = [folder_of(folder, clock) / f"server-{server}" for server in range(options.servers)]
            whole += all(path.exists() for path in files)


def restore(server: Any, folder: str, clock: int) -> None:
    """Give a server the tables of a snapshot that was checked, and all workers this clock.

    Raises:
        SnapshotError: its rows are not those of these tables; each part is held against them before it is written.
    """
    path = folder_of(folder, clock) / f"server-{server.number}"
    body = checked(path)
    data = memoryview(body)[body.index(b"\n") + 1 :]

    def take(count: int) -> memoryview:
        nonlocal data
        if not 0 <= count <= len(data):
            raise SnapshotError(f"{path}: damaged: {count} bytes are to follow, there are {len(data)}")
        part, data = data[:count], data[count:]
        return part

    def expect(found: object, wanted: object, what: str) -> None:
        if found != wanted:
            raise SnapshotError(f"{path}: damaged: {what}: expected {wanted}, there is {found}")

    for table in server.tables:
        dense = isinstance(table.store, Dense)
        if dense and table.spec.function is not None:
            table.store.reset()
        elif not dense:
            table.store.rows.clear()
        done = 0
        while done < table.count:
            begin, end, arrays = np.frombuffer(take(24), np.int64).tolist()
            expect(begin, done, "the first row of a part")
            expect(done < end <= table.count, True, f"a part that ends behind row {done}, by row {table.count}")
            width, item = table.spec.width, table.spec.kind.itemsize
            more = dense and table.store.further is not None
            expect(arrays, 3 if not dense else 2 if more else 1, "the number of arrays of a part")
            sizes = np.frombuffer(take(8 * arrays), np.int64).tolist()
            if dense:
                each = (end - begin) * width * item
                expect(sizes, [each] + ([len(table.store.further) * each] if more else []), "the bytes of a part")
            else:
                entries = sizes[1] // 4
                expect(sizes, [4 * (end - begin), 4 * entries, item * entries], "the bytes of a part")
            parts = [take(size) for size in sizes]
            rows = np.arange(begin, end)
            if dense:
                table.store.values[begin:end] = np.frombuffer(parts[0], table.spec.kind).reshape(-1, width)
                if table.store.further is not None:
                    further = np.frombuffer(parts[1], table.spec.kind)
                    table.store.further[:, begin:end] = further.reshape(-1, end - begin, width)
            else:
                counts, columns = np.frombuffer(parts[0], np.int32), np.frombuffer(parts[1], np.int32)
                expect(bool((counts >= 0).all()) and int(counts.sum(dtype=np.int64)), len(columns), "a row's entries")
                expect(bool(((columns >= 0) & (columns < width)).all()), True, f"columns from 0 to {width - 1}")
                table.store.rows.set(rows, counts, columns, np.frombuffer(parts[2], table.spec.kind))
            done = end
        if dense and table.store.versions is not None:
            table.store.versions.numbers[:] = np.frombuffer(take(4 * table.count), np.int32)
    server.begin(clock)
