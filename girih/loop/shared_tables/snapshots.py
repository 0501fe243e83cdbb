"""Snapshots of tables strictly after a clock: written while updates go on, checked when they are read.

A folder `clock-000012` has a file of each server and one of each worker (what the worker gave to `clock(state=…)`); a
snapshot is whole when all are there, and each file (`girih.store.stored`) is at any moment there as a whole or not at
all. What is to be written is copied in parts between two messages of the server, and written by a thread. Files of
girih's first version are read.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import queue
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from girih.loop.shared_tables.options import TableOptions, TableSpec
from girih.loop.shared_tables.rows.store import Dense, Shadow, Update
from girih.store import durable, stored
from girih.store.manifest import Manifest
from girih.store.sealed import Natural, StoredError

PART = 4 << 20  # bytes that are copied at one time
NAME = re.compile(r"clock-(\d{6,})")


class SnapshotHead(msgspec.Struct, frozen=True):
    """What a file says beside its arrays. A server's file has how many servers and workers there were, which workers
    had ended before the clock, and the tables; a worker's has the clock alone."""

    clock: Natural
    servers: Natural = 0
    workers: Natural = 0
    left: tuple[Natural, ...] = ()
    tables: tuple[dict[str, Any], ...] = ()


class FirstSnapshotHead(SnapshotHead, frozen=True, kw_only=True):
    """What a file of girih's first version says beside its arrays."""

    magic: Literal["girih tables 1"]


class SnapshotManifest(Manifest, frozen=True, kw_only=True):
    """What a file of a snapshot holds."""

    KIND = "snapshot of tables"

    head: SnapshotHead


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
        self._parts: queue.Queue[tuple[str, NDArray[Any], tuple[int, ...]] | None] = queue.Queue(maxsize=2)
        self._writer: threading.Thread | None = None

    def protect(self, table: int, rows: NDArray[Any]) -> None:
        self._shadows[table].protect(rows)

    def add(self, table: int, update: Update) -> None:
        self._shadows[table].add(update)

    def open(self, left: list[int]) -> None:
        """The clock is reached: from now on it is written. left: the workers that had ended before."""
        self._steps = self._produce()
        self._writer = threading.Thread(target=self._write, args=(left,), daemon=True)
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

    def _produce(self) -> Iterator[None]:
        for number, (table, shadow) in enumerate(zip(self._server.tables, self._shadows, strict=True)):
            store, entries = table.store, 0
            for begin, end in _parts(table):
                values, *more = shadow.read(begin, end)
                if isinstance(store, Dense):
                    self._hand((f"{number}.values", values, (begin, 0)))
                    for further in more:
                        self._hand((f"{number}.further", further, (0, begin, 0)))
                else:
                    self._hand((f"{number}.counts", values, (begin,)))
                    for name, array in zip(("columns", "entries"), more, strict=True):
                        self._hand((f"{number}.{name}", array, (entries,)))
                    entries += len(more[0])
                yield
            if isinstance(store, Dense) and store.versions is not None:
                self._hand((f"{number}.versions", store.versions.numbers.copy(), (0,)))
                yield
        self._hand(None)

    def _hand(self, part: tuple[str, NDArray[Any], tuple[int, ...]] | None) -> None:
        assert self._writer is not None
        while self._writer.is_alive():
            try:
                self._parts.put(part, timeout=0.05)
                return
            except queue.Full:
                continue

    def _write(self, left: list[int]) -> None:
        """The thread."""
        server, options = self._server, self._server.options
        tables = tuple(_described(table.spec, table.count) for table in server.tables)
        head = SnapshotHead(self.clock, options.servers, options.workers, tuple(left), tables)
        try:
            durable.make_folder(os.path.abspath(os.path.dirname(self.path)))
            with stored.replacing(self.path) as writer:
                while (part := self._parts.get()) is not None:
                    writer.put(*part)
                if self.failed is not None:
                    raise InterruptedError
                writer.end(SnapshotManifest, head=head)
            durable.sync_folder(os.path.dirname(self.path))
        except OSError as error:
            self.failed = self.failed or SnapshotFailed(self.clock, self.path, f"{error.strerror or error}")


def _parts(table: Any) -> list[tuple[int, int]]:
    """(first row, one behind the last) of parts of about PART bytes."""
    width, item = table.spec.width, table.spec.kind.itemsize
    if isinstance(table.store, Dense):
        edges = [*range(0, table.count, max(1, PART // max(1, width * item))), table.count]
    else:
        ends = np.cumsum(table.store.rows.lengths * (4 + item), dtype=np.int64) // PART
        edges = [0, *(np.flatnonzero(np.diff(ends)) + 1).tolist(), table.count]
    return list(itertools.pairwise(edges)) if table.count else []


def _described(spec: TableSpec, count: int) -> dict[str, Any]:
    columns = 0 if spec.function is None else spec.function.columns
    return {
        "name": spec.name, "rows": spec.rows, "width": spec.width, "dtype": spec.dtype, "sparse": spec.sparse,
        "columns": columns, "count": count,
    }  # fmt: skip


# ------------------------------------------------------------------------------------------- workers' own state


def write_state(options: TableOptions, clock: int, worker: int, state: bytes) -> SnapshotFailed | None:
    """What a worker wants to have again when it goes on from this clock."""
    path = str(folder_of(options.folder, clock) / f"worker-{worker}")
    try:
        durable.make_folder(os.path.abspath(os.path.dirname(path)))
        stored.write(path, {"state": np.frombuffer(state, np.uint8)}, SnapshotManifest, head=SnapshotHead(clock))
    except OSError as error:
        return SnapshotFailed(clock, path, f"{error.strerror or error}")
    return None


def read_state(folder: str, clock: int, worker: int) -> bytes:
    """What the worker gave for this clock; b"" if it gave nothing."""
    return _state(folder_of(folder, clock) / f"worker-{worker}")


def _state(path: Path) -> bytes:
    arrays = contents(path)[1]
    if "state" not in arrays:
        raise SnapshotError(f"{path}: damaged: it is no worker's")
    return arrays["state"].tobytes()


# ------------------------------------------------------------------------------------------- reading


def contents(path: Path) -> tuple[SnapshotHead, dict[str, NDArray[Any]]]:
    """What a file of a snapshot says, and its arrays.

    Raises:
        SnapshotError: it is missing, cut short or damaged.
    """
    try:
        with durable.opened(str(path)) as file:
            if file.bytes(0, 9) == b'{"magic":':
                return _first_version(path, file.bytes(0, file.size))
            reader = stored.reading(SnapshotManifest, file)
            return reader.manifest.head, {name: reader.read(name) for name in reader.manifest.entries}
    except OSError as error:
        kind = SnapshotIncompleteError if isinstance(error, FileNotFoundError) else SnapshotError
        raise kind(f"{path}: {error.strerror or error}; the snapshot is not whole") from None
    except StoredError as error:
        raise SnapshotError(f"{path}: damaged: it {error}") from None


def _first_version(path: Path, data: bytes) -> tuple[SnapshotHead, dict[str, NDArray[Any]]]:
    """A line of JSON, the rows of each table in parts, and a digest of all that. A part has its first row, the one
    behind its last, the number of its arrays, the bytes of each, and the arrays."""
    body, digest = data[:-16], data[-16:]
    if hashlib.blake2b(body, digest_size=16).digest() != digest:
        raise SnapshotError(f"{path}: damaged: its contents ({len(data)} bytes) do not have the digest at its end")
    at = body.find(b"\n") + 1

    def take(dtype: Any, *shape: int) -> NDArray[Any]:
        nonlocal at
        array = np.frombuffer(body, dtype, prod(shape), at).reshape(shape)
        at += array.nbytes
        return array

    try:
        head = msgspec.json.decode(body[:at], type=FirstSnapshotHead)
        if not head.servers:
            return head, {"state": take(np.uint8, len(body) - at)}
        parts: dict[str, list[NDArray[Any]]] = {}
        for number, table in enumerate(head.tables):
            done, arrays, width, columns, dtype = 0, 0, table["width"], table["columns"], np.dtype(table["dtype"])
            while done < table["count"]:
                begin, done, arrays = take(np.int64, 3).tolist()
                rows, sizes = done - begin, take(np.int64, arrays).tolist()
                entries = sizes[1] // 4 if table["sparse"] else 0
                shapes = {"values": (dtype, rows, width), "further": (dtype, columns, rows, width)}
                if table["sparse"]:
                    shapes = {"counts": (np.int32, rows), "columns": (np.int32, entries), "entries": (dtype, entries)}
                for name, shape in itertools.islice(shapes.items(), arrays):
                    parts.setdefault(f"{number}.{name}", []).append(take(*shape))
            if not table["sparse"] and arrays == 2:
                parts[f"{number}.versions"] = [take(np.int32, table["count"])]
        return head, {name: np.concatenate(own, int(own[0].ndim == 3)) for name, own in parts.items()}
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        raise SnapshotError(f"{path}: damaged: {error}") from None


def check_snapshot(folder: str, clock: int, specs: tuple[TableSpec, ...], options: TableOptions) -> None:
    """Everything that a restart from this clock needs is there and sound.

    Raises:
        SnapshotError: naming the file.
    """
    place = folder_of(folder, clock)
    left: set[int] = set()
    for server in range(options.servers):
        path = place / f"server-{server}"
        head, _ = contents(path)
        if (head.servers, head.workers) != (options.servers, options.workers):
            raise SnapshotError(
                f"{path}: of {head.servers} servers and {head.workers} workers; "
                f"this run has {options.servers} and {options.workers}"
            )
        wanted = tuple(_described(spec, spec.local_rows(server, options.servers)) for spec in specs)
        if head.tables != wanted:
            raise SnapshotError(f"{path}: of other tables: {list(head.tables)}; this run has {list(wanted)}")
        left |= set(head.left)
    for worker in set(range(options.workers)) - left:
        _state(place / f"worker-{worker}")


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


def remove_older(folder: str, options: TableOptions) -> None:
    """Keep the newest whole snapshots, so many as the options say, and what is newer than they."""
    whole = 0
    for clock in clocks_of(folder):
        if whole >= options.keep:
            durable.remove_folder(str(folder_of(folder, clock)))
        else:
            files = [folder_of(folder, clock) / f"server-{server}" for server in range(options.servers)]
            whole += all(path.exists() for path in files)


def restore(server: Any, folder: str, clock: int) -> None:
    """Give a server the tables of a snapshot that was checked, and all workers this clock.

    Raises:
        SnapshotError: its rows are not those of these tables; each array is held against them before it is written.
    """
    path = folder_of(folder, clock) / f"server-{server.number}"
    _, arrays = contents(path)

    def expect(found: object, wanted: object, what: str) -> None:
        if found != wanted:
            raise SnapshotError(f"{path}: damaged: {what}: expected {wanted}, there is {found}")

    def take(name: str, dtype: Any, *shape: int) -> NDArray[Any]:
        array = arrays.get(name, np.empty(0, np.void))
        expect(f"{array.dtype}{list(array.shape)}", f"{np.dtype(dtype)}{list(shape)}", f"array {name}")
        return array

    for number, table in enumerate(server.tables):
        store, count, width, kind = table.store, table.count, table.spec.width, table.spec.kind
        if not isinstance(store, Dense):
            store.rows.clear()
        elif table.spec.function is not None:
            store.reset()
        if not count:
            continue
        if isinstance(store, Dense):
            store.values[:] = take(f"{number}.values", kind, count, width)
            if store.further is not None:
                store.further[:] = take(f"{number}.further", kind, *store.further.shape)
            if store.versions is not None:
                store.versions.numbers[:] = take(f"{number}.versions", np.int32, count)
            continue
        counts = take(f"{number}.counts", np.int32, count)
        expect(bool((counts >= 0).all()), True, "a row's entries")
        entries = int(counts.sum(dtype=np.int64))
        columns = take(f"{number}.columns", np.int32, entries)
        expect(bool(((columns >= 0) & (columns < width)).all()), True, f"columns from 0 to {width - 1}")
        store.rows.set(np.arange(count), counts, columns, take(f"{number}.entries", kind, entries))
    server.begin(clock)
