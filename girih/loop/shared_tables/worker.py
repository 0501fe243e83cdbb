"""A worker: what its function gets, which is the tables, with the paper's five calls and their batches, and the
clock; and the work that calls the function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from girih.loop.shared_tables import snapshots
from girih.loop.shared_tables.client import Read, checked_rows, checked_values
from girih.loop.shared_tables.messages import decoded, encoded
from girih.loop.shared_tables.options import TableError, TableOptions, TableSpec
from girih.loop.shared_tables.sockets import Lines

Rows = NDArray[Any]


class Table:
    """A table in a worker. All that it gives is a copy of one's own; all that it takes is copied."""

    def __init__(self, number: int, spec: TableSpec, lines: Lines) -> None:
        self._number, self.spec, self._lines = number, spec, lines

    @property
    def shape(self) -> tuple[int, int]:
        return self.spec.rows, self.spec.width

    def get(self, row: int, key: int) -> Any:
        """One value (the paper's Get)."""
        self._check_keys(key)
        if self.spec.sparse:
            columns, values = self.get_row(row)
            at = np.searchsorted(columns, key)
            return values[at] if at < len(columns) and columns[at] == key else self.spec.kind.type(0)
        return self.get_row(row)[key]

    def get_row(self, row: int) -> Any:
        """A row (GetRow): its values [width], or of a sparse table (columns, values), columns ascending."""
        found = self._read(checked_rows(self.spec, row))
        return (found.columns, found.values) if self.spec.sparse else found[0]

    def get_rows(self, rows: Any) -> Any:
        """Rows by their numbers: values [n, width], or of a sparse table a `scipy.sparse.csr_array`.

        Raises:
            TableError: there is no such row.
            HeldError: others are too far behind for longer than the session's timeout.
        """
        wanted = checked_rows(self.spec, rows)
        found = self._read(wanted)
        if not self.spec.sparse:
            return found
        bounds = np.concatenate([[0], np.cumsum(found.counts)])
        return csr_array((found.values, found.columns, bounds), shape=(len(wanted), self.spec.width))

    def prefetch(self, rows: Any) -> None:
        """Ask for rows that will be read soon; does not wait."""
        with self._lines.lock:
            self._lines.client.prefetch(self._number, checked_rows(self.spec, rows))
            self._lines.hurry()

    def inc(self, row: int, key: int, delta: float) -> None:
        """Add to one value (Inc)."""
        self.inc_entries([row], [key], [delta])

    def inc_row(self, row: int, deltas: Any) -> None:
        """Add to a row (IncRow): [width], or of a sparse table a mapping from columns to numbers."""
        if isinstance(deltas, Mapping):
            self.inc_entries(np.full(len(deltas), row), list(deltas), list(deltas.values()))
        else:
            self.inc_rows([row], np.asarray(deltas)[None])

    def inc_rows(self, rows: Any, deltas: Any) -> None:
        """Add to rows, which may repeat: [n, width], dense or of SciPy's sparse formats."""
        wanted = checked_rows(self.spec, rows)
        thin = not isinstance(deltas, np.ndarray) and issparse(deltas)
        given = deltas.shape if thin else np.shape(deltas)
        if given != (len(wanted), self.spec.width):
            raise TableError(
                f"table {self.spec.name!r}: deltas of shape {given} for {len(wanted)} rows; "
                f"expected {(len(wanted), self.spec.width)}"
            )
        if self.spec.sparse:
            entries = csr_array(deltas).tocoo()
            self.inc_entries(wanted[entries.coords[0]], entries.coords[1], entries.data)
            return
        changes = checked_values(self.spec, deltas.toarray() if thin else deltas)
        with self._lines.lock:
            self._lines.client.inc_dense(self._number, wanted, changes)
            self._make_room()

    def inc_entries(self, rows: Any, keys: Any, deltas: Any) -> None:
        """Add to single values (rows[i], keys[i])."""
        wanted, columns = checked_rows(self.spec, rows), np.asarray(keys)
        changes = checked_values(self.spec, deltas)
        if not len(wanted) == len(columns) == len(changes):
            raise TableError(
                f"table {self.spec.name!r}: {len(wanted)} rows, {len(columns)} keys and {len(changes)} deltas; "
                "as many of each are needed"
            )
        self._check_keys(columns)
        if not self.spec.sparse:
            whole = np.zeros((len(wanted), self.spec.width), self.spec.kind)
            whole[np.arange(len(wanted)), columns] = changes
            self.inc_rows(wanted, whole)
            return
        with self._lines.lock:
            self._lines.client.inc_sparse(self._number, wanted, columns, changes)
            self._make_room()

    def _read(self, rows: Rows) -> Any:
        lines = self._lines
        with lines.lock:
            lines.pump(0)
            read: Read = lines.client.begin_read(self._number, rows)
            if not read.done:
                lines.wait(lambda: lines.client.continue_read(read), f"rows of table {self.spec.name!r}")
        return read.values

    def _make_room(self) -> None:
        lines = self._lines
        if lines.client.overfull(self._number):
            lines.wait(lambda: not lines.client.overfull(self._number), "servers to take updates")

    def _check_keys(self, keys: Any) -> None:
        found = np.asarray(keys)
        if found.size and (found.dtype.kind not in "iu" or found.min() < 0 or found.max() >= self.spec.width):
            raise TableError(
                f"table {self.spec.name!r}: keys are whole numbers from 0 to {self.spec.width - 1}, "
                f"not {found.ravel()[:3]}"
            )


class Worker:
    """What a worker's function gets first. rank: its number of `workers`. state: what it gave to `clock` at the
    snapshot from which it goes on, or None."""

    def __init__(self, lines: Lines, state: Any = None) -> None:
        self._lines = lines
        self.rank = lines.client.rank
        self.workers = lines.options.workers
        self.state = state
        self._tables = {spec.name: Table(number, spec, lines) for number, spec in enumerate(lines.client.specs)}
        self.failures: list[str] = []

    def __getitem__(self, name: str) -> Table:
        try:
            return self._tables[name]
        except KeyError:
            raise TableError(f"there is no table {name!r}: there are {', '.join(self._tables) or 'none'}") from None

    @property
    def ticks(self) -> int:
        """How many clocks this worker has ended; a loop over them begins here, so that it can go on from a snapshot."""
        return self._lines.client.clock

    def clock(self, state: Any = None) -> None:
        """End a tick (Clock): all see what was added, at the latest when they are `staleness` + 1 ticks on.

        state: what this worker needs besides the tables to go on from here: numbers, strings, lists, dictionaries and
        NumPy arrays, or a function that makes them. It is kept with the snapshot of this clock, if one is taken.

        Raises:
            HeldError: others are too far behind for longer than the session's timeout.
        """
        lines, options = self._lines, self._lines.options
        with lines.lock:
            clock = lines.client.clock + 1
            if options.snapshot_every and clock % options.snapshot_every == 0:
                given = state() if callable(state) else state
                data = b"" if given is None else encoded(given)
                failed = snapshots.write_state(options, clock, self.rank, data)
                if failed is not None:
                    self.failures.append(str(failed))
            lines.client.end_tick()
            lines.flush()
            lines.wait(lines.client.may_go_on, "the others' clocks")

    @property
    def statistics(self) -> dict[str, float]:
        """Rows that were cached and that were not, messages sent between clocks, seconds waited for others."""
        client = self._lines.client
        return {
            "hits": client.hit_rows,
            "pulled": client.pulled_rows,
            "early_messages": client.early_messages,
            "seconds_waited": self._lines.waited,
        }


@dataclass(frozen=True)
class WorkerWork:
    """A worker, as a job of the session (`girih.run.engines.jobs`).

    clock: at which it begins. epoch: how often workers were started before. resumed: whether it goes on from the
    snapshot of that clock.
    """

    rank: int
    addresses: tuple[str, ...]
    specs: tuple[TableSpec, ...]
    options: TableOptions
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    clock: int = 0
    epoch: int = 0
    resumed: bool = False

    computes = True

    def run(self, shared: Any, ready: Callable[[Any], None], stopped: Callable[[], bool]) -> tuple[Any, list[str]]:
        """(what the function returns, snapshots that could not be written)."""
        options = self.options
        data = snapshots.read_state(options.folder, self.clock, self.rank) if self.resumed else b""
        state = decoded(data) if data else None
        with Lines(self.rank, self.addresses, self.specs, options, self.clock, shared, self.epoch, stopped) as lines:
            with lines.lock:
                lines.client.greet()
                lines.wait(lambda: len(lines.client.welcomed) == options.servers, "the servers' first values")
            worker = Worker(lines, state)
            result = self.function(worker, self.rank, *self.arguments)
            with lines.lock:
                lines.client.leave()
                lines.wait(lambda: len(lines.client.dismissed) == options.servers, "the servers' farewell")
        return result, worker.failures

    def placed(self, host: str) -> WorkerWork:
        """The same work: a worker listens at no address, so the host does not matter."""
        return self
