"""The program's side of tables: it declares them, starts servers and workers, watches them, and starts them again.

Bösen §3.1.1, fault tolerance: if a worker or a server dies, all start again from the last snapshot. Here only the
workers start again where all servers live.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import zmq
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from girih.cost.cache import others_may_write, usable_cache
from girih.loop.shared_tables import snapshots
from girih.loop.shared_tables.client import checked_rows, checked_values
from girih.loop.shared_tables.options import TableError, TableOptions, TableSpec, bytes_of
from girih.loop.shared_tables.server import GONE
from girih.loop.shared_tables.sockets import Control, ServerWork, keys_of
from girih.loop.shared_tables.worker import WorkerWork
from girih.run.engines.jobs import Ended, Host, Job, ProcessHost, ThreadHost, outcome_of, wait_for
from girih.run.transport.meeting import endpoint, is_loopback, launched, numeric
from girih.store import places

PIECE = 4 << 20
"""Bytes of rows in one message."""
START_SECONDS = 120.0
LOADED = ("numba", "numpy", "scipy.sparse", "zmq", "girih.loop.shared_tables.worker")
LOOK = 0.25
"""Seconds between two looks at the servers' clocks."""


class TablesError(RuntimeError):
    """A worker or a server failed or died; the message names it, and the snapshot from which one can go on."""


@dataclass(frozen=True)
class WorkersLate:
    """Workers that have not ended a clock for longer than the session's patience, while others wait for them."""

    workers: tuple[int, ...]
    clock: int
    waiting: tuple[int, ...]

    def __str__(self) -> str:
        late, others = ", ".join(map(str, self.workers)), ", ".join(map(str, self.waiting))
        return f"worker {late} is at clock {self.clock} and holds worker {others}"


@dataclass(frozen=True)
class SnapshotTaken:
    clock: int


@dataclass(frozen=True)
class Restarted:
    """All workers start again at this clock."""

    clock: int
    why: str


Event = WorkersLate | SnapshotTaken | Restarted | snapshots.SnapshotFailed


@dataclass(frozen=True)
class Joining:
    """This process is one of several programs that run the same code, started by torchrun, Ray or by hand.

    addresses: of the servers; none where torchrun has started the programs, which meet there. address: then, of this
    host, by which the others reach it; "": the one by which it reaches torchrun's. key: a secret that all programs
    have; "": that of the user, if all addresses are of this host.
    """

    rank: int
    addresses: tuple[str, ...] = ()
    address: str = ""
    key: str = ""


class TableView:
    """A table in the program: what the servers hold between two runs."""

    def __init__(self, session: Session, number: int) -> None:
        self._session, self._number = session, number

    @property
    def spec(self) -> TableSpec:
        return self._session.specs[self._number]

    def read(self, rows: Any = None) -> Any:
        """Rows by their numbers, or all: values [n, width], or of a sparse table a `scipy.sparse.csr_array`."""
        wanted = np.arange(self.spec.rows) if rows is None else checked_rows(self.spec, rows)
        return self._session.read(self._number, wanted)

    def write(self, values: Any, rows: Any = None) -> None:
        """Set rows by their numbers, or all of them, before the first run. values: [n, width], dense or SciPy's."""
        wanted = np.arange(self.spec.rows) if rows is None else checked_rows(self.spec, rows)
        self._session.write(self._number, wanted, values)


class Session:
    """Tables, their servers and workers. A context manager: at its end all processes are gone."""

    def __init__(
        self,
        options: TableOptions,
        *,
        memory: str | int = 256 << 20,
        backend: str = "processes",
        threads: int = 1,
        restarts: int = 0,
        resume: bool | int = False,
        observer: Callable[[Event], None] | None = None,
        join: Joining | None = None,
    ) -> None:
        ray = backend == "ray" or backend.startswith("ray://")
        if backend not in ("processes", "threads") and not ray:
            raise TableError(f"backend {backend!r}: it must be 'processes', 'threads', 'ray' or 'ray://host:port'")
        if ray and join is not None:
            raise TableError(f"backend {backend!r} starts workers on Ray: give it no rank, addresses or torchrun")
        if restarts and not options.snapshot_every:
            raise TableError("workers can only start again from a snapshot: give snapshots=FOLDER")
        self.options = options
        self.specs: tuple[TableSpec, ...] = ()
        self.events: list[Event] = []
        self.clock = 0
        self._memory = bytes_of(memory)
        self._restarts, self._resume, self._observer, self._join = restarts, resume, observer, join
        self._context = zmq.Context()
        self._host: Host
        if ray:
            from girih.run.engines.ray_jobs import RayHost

            self._host = RayHost(threads, backend)
        else:
            self._host = ThreadHost(self._context) if backend == "threads" else ProcessHost(threads, LOADED)
        self._servers: dict[int, Job] = {}
        self._control: Control | None = None
        self._addresses: tuple[str, ...] = ()
        self._views: dict[str, TableView] = {}
        self._initial: list[tuple[int, NDArray[Any], Any]] = []
        self._resumed = False
        self._epoch = 0
        self._workers: tuple[Job, ...] = ()

    # ------------------------------------------------------------------------------------------- tables

    def dense(
        self,
        name: str,
        rows: int,
        width: int,
        dtype: Any = "float32",
        *,
        initial: Any = None,
        memory: str | int | None = None,
        half: bool = False,
        function: Any = None,
    ) -> TableView:
        """A table of rows [width], all 0 or as `initial` [rows, width] says.

        memory: what a worker may use for it. half: floats travel in 16 bits; what updates lose by that is sent with the
        next. function: what servers do with updates, such as `AdaRevision(step=0.1)`; None: they add.
        """
        return self._table(
            TableSpec(name, rows, width, str(np.dtype(dtype)), False, self._own(memory), half, function), initial
        )

    def sparse(
        self,
        name: str,
        rows: int,
        width: int,
        dtype: Any = "float32",
        *,
        initial: Any = None,
        memory: str | int | None = None,
        half: bool = False,
    ) -> TableView:
        """A table whose rows are maps from columns to values that are not 0. initial: of one of SciPy's formats."""
        return self._table(TableSpec(name, rows, width, str(np.dtype(dtype)), True, self._own(memory), half), initial)

    def __getitem__(self, name: str) -> TableView:
        try:
            return self._views[name]
        except KeyError:
            raise TableError(f"there is no table {name!r}: there are {', '.join(self._views) or 'none'}") from None

    def _own(self, memory: str | int | None) -> int:
        return self._memory if memory is None else bytes_of(memory)

    def _table(self, spec: TableSpec, initial: Any) -> TableView:
        if self._control is not None:
            raise TableError(f"table {spec.name!r}: all tables are declared before the first run, read or write")
        if spec.name in self._views:
            raise TableError(f"there is a table {spec.name!r} already")
        if initial is not None:
            _check_values(spec, spec.rows, initial)
        number = len(self.specs)
        self.specs += (spec,)
        view = self._views[spec.name] = TableView(self, number)
        if initial is not None:
            view.write(initial)
        return view

    # ------------------------------------------------------------------------------------------- rows

    def read(self, number: int, rows: NDArray[Any]) -> Any:
        self._start()
        control, spec, servers = self._ready(), self.specs[number], self.options.servers
        self._all_gone()
        out = np.zeros((len(rows), spec.width), spec.kind) if not spec.sparse else None
        parts: list[tuple[NDArray[Any], Any]] = []
        for server in range(servers):
            mine = np.flatnonzero(rows % servers == server)
            step = max(1, PIECE // (spec.width * spec.kind.itemsize))
            for begin in range(0, len(mine), step):
                at = mine[begin : begin + step]
                found = control.ask(server, "read", table=number, rows=(rows[at] // servers).astype(np.int32))
                if out is not None:
                    out[at] = found[0]
                else:
                    bounds = np.concatenate([[0], np.cumsum(found[0])])
                    parts.append((at, csr_array((found[2], found[1], bounds), shape=(len(at), spec.width))))
        if out is not None:
            return out
        from scipy.sparse import vstack

        stacked = csr_array(vstack([part for _, part in parts]))
        return stacked[np.argsort(np.concatenate([at for at, _ in parts]), kind="stable")]

    def write(self, number: int, rows: NDArray[Any], values: Any) -> None:
        """Before the first run. values: [n, width]."""
        if self._control is not None:
            raise TableError("rows are written before the first run; workers add to them")
        _check_values(self.specs[number], len(rows), values)
        self._initial.append((number, rows, values))

    def _write(self, number: int, rows: NDArray[Any], values: Any) -> None:
        control, spec, servers = self._ready(), self.specs[number], self.options.servers
        whole: Any = csr_array(values).astype(spec.kind) if spec.sparse else np.asarray(values, spec.kind)
        for server in range(servers):
            mine = np.flatnonzero(rows % servers == server)
            step = max(1, PIECE // (spec.width * spec.kind.itemsize))
            for begin in range(0, len(mine), step):
                at = mine[begin : begin + step]
                part = whole[at]
                arrays = [part] if not spec.sparse else [np.diff(part.indptr), part.indices, part.data]
                local = (rows[at] // servers).astype(np.int32)
                control.ask(server, "write", table=number, rows=local, parts=arrays)

    # ------------------------------------------------------------------------------------------- servers

    def _ready(self) -> Control:
        assert self._control is not None
        return self._control

    def _start(self) -> None:
        """Servers with the initial values, or those of a snapshot."""
        if self._control is not None:
            return
        if not self.specs:
            raise TableError("there are no tables: declare them by dense(…) or sparse(…)")
        options = self.options
        clock = self._clock_to_resume()
        join = self._join
        mine = range(options.servers) if join is None else [join.rank] if join.rank < options.servers else []
        meeting = launched("tables", join.address, options.timeout) if join is not None and not join.addresses else None
        secret = "" if join is None or not join.addresses else join.key or _user_secret(join.addresses)
        public = keys_of(secret)[0].decode()
        found = [] if join is None else [f"{address} {public}" for address in join.addresses]
        for server in mine:  # all are begun before the first is waited for
            if join is None:
                own = self._address(server)
            else:
                own = endpoint(meeting.address, "*") if meeting is not None else numeric(join.addresses[server])
            work = ServerWork(server, own, self.specs, options, join is not None, secret)
            self._servers[server] = self._host.start(work)
        for server in mine:
            job = self._servers[server]
            address = job.ready(START_SECONDS)
            if address is None:
                self._failed("server", server, job.ended())
            if join is None:
                found.append(address)
            elif meeting is not None:
                meeting.tell("server", address)
        if meeting is not None:
            found = list(meeting.hear("server", range(options.servers), options.timeout).values())
        self._addresses = tuple(found)
        rank = 0 if join is None else join.rank
        self._control = Control(self._addresses, self._context, options.timeout, rank)
        if clock is not None:
            for server in mine:
                self._control.ask(server, "restore", folder=options.folder, clock=clock)
            self.clock, self._resumed = clock, True
        elif rank == 0:
            for number, rows, values in self._initial:
                self._write(number, rows, values)
            if options.snapshot_every:
                self._empty_states(0)
            self._control.ask_all("written", save=options.snapshot_every > 0)
        self._initial.clear()

    def _address(self, server: int) -> str:
        """Where a server is to listen; "": on the host where Ray places it."""
        if isinstance(self._host, ThreadHost):
            return f"inproc://tables-{id(self)}-{server}"
        if isinstance(self._host, ProcessHost):
            return f"ipc://{self._host.folder}/{server}" if sys.platform == "linux" else "tcp://127.0.0.1:*"
        return ""

    def _clock_to_resume(self) -> int | None:
        options = self.options
        if not options.snapshot_every:
            if self._resume is not False:
                raise TableError("there is nothing to resume: give snapshots=FOLDER")
            return None
        there = snapshots.clocks_of(options.folder)
        if self._resume is False:
            if there and (self._join is None or self._join.rank == 0):
                raise TableError(
                    f"{options.folder} has snapshots of clocks {', '.join(map(str, there[::-1]))}: "
                    "resume=True goes on from them; a new run needs a new folder"
                )
            return None
        if self._resume is not True:
            snapshots.check_snapshot(options.folder, int(self._resume), self.specs, options)
            return int(self._resume)
        clock, wrong = snapshots.newest(options.folder, self.specs, options)
        damaged = [error for error in wrong if not isinstance(error, snapshots.SnapshotIncompleteError)]
        if damaged:
            rest = "no older one is whole" if clock is None else f"resume={clock} goes on from the newest that is whole"
            raise snapshots.SnapshotError(f"{damaged[0]}; {rest}")
        return clock

    def _empty_states(self, clock: int) -> None:
        for worker in range(self.options.workers):
            failed = snapshots.write_state(self.options, clock, worker, b"")
            if failed is not None:
                self._tell(failed)

    # ------------------------------------------------------------------------------------------- runs

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """function(t, rank, *arguments) in every worker, t a `Worker`; what they return, by rank.

        In a session that was joined, this process is one of the workers, and what its own call returns is returned.

        Raises:
            TablesError: a worker or a server died, more often than it may, or a function raised something.
        """
        self._start()
        if self._join is not None:
            return self._run_here(function, arguments)
        self._all_gone()
        epoch_clock = self.clock
        resumed = self._resumed
        left = self._restarts
        while True:
            self._epoch += 1
            self._ready().ask_all("begin", clock=epoch_clock, epoch=self._epoch)
            jobs = [
                self._host.start(
                    WorkerWork(
                        rank, self._addresses, self.specs, self.options, function, arguments, epoch_clock,
                        self._epoch, resumed,
                    )
                )
                for rank in range(self.options.workers)
            ]  # fmt: skip
            self._workers = tuple(jobs)
            try:
                lost = self._watch(jobs)
            finally:
                for job in jobs:
                    if job.ended() is None:
                        job.kill()
                    else:
                        job.leave()
            if lost is None:
                lost = self._lost_at_the_end()
            if lost is None:
                break
            if left == 0:
                raise TablesError(lost + self._advice())
            left -= 1
            epoch_clock = self._go_back(lost)
            resumed = True
        self._all_gone()
        self.clock = max(int(status["clock"]) for status in self._statuses())
        self._resumed = False
        results = []
        for job in jobs:
            outcome = job.ended()
            assert outcome is not None
            value, failures = outcome.result
            for words in failures:
                self._warn(words)
            results.append(value)
        return results

    @property
    def pids(self) -> tuple[int, ...]:
        """Process numbers of the workers of the present or last run."""
        return tuple(job.pid for job in self._workers)

    @property
    def server_pids(self) -> tuple[int, ...]:
        return tuple(job.pid for job in self._servers.values())

    def _run_here(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        assert self._join is not None
        if self._epoch:
            raise TableError("a session that was joined runs one function")
        self._epoch = 1
        work = WorkerWork(
            self._join.rank, self._addresses, self.specs, self.options, function, arguments, self.clock, 0,
            self._resumed,
        )  # fmt: skip
        outcome = outcome_of(work, None, lambda value: None, lambda: self._lost_server() is not None)
        if (lost := self._lost_server()) is not None:
            raise TablesError(lost + self._advice())
        if not outcome.ok:
            self._failed("worker", self._join.rank, outcome)
        value, failures = outcome.result
        for words in failures:
            self._warn(words)
        self._all_gone()
        return value

    def _watch(self, jobs: Sequence[Job]) -> str | None:
        """Wait for all workers. None, or how one was lost."""
        looked = time.monotonic()
        told: tuple[int, ...] = ()
        since, clocks = looked, [-1] * len(jobs)
        while True:
            outcomes = [job.ended() for job in jobs]
            for rank, outcome in enumerate(outcomes):
                if outcome is not None and not outcome.ok:
                    if not outcome.lost:
                        self._failed("worker", rank, outcome)
                    return f"worker {rank} {outcome.result}"
            if (lost := self._lost_server()) is not None:
                return lost
            if None not in outcomes:
                return None
            wait_for(jobs, LOOK)
            now = time.monotonic()
            if now - looked >= LOOK and all(job.ended() is None for job in self._servers.values()):
                looked = now
                with suppress(TimeoutError):
                    statuses = self._statuses(timeout=1.0)
                    seen = [min(status["clocks"][rank] for status in statuses) for rank in range(len(jobs))]
                    if min(seen) != min(clocks):
                        since, told = now, ()
                    clocks = seen
                    late = tuple(rank for rank, clock in enumerate(seen) if clock == min(seen))
                    waiting = tuple(
                        rank for rank, clock in enumerate(seen) if min(seen) + self.options.staleness < clock < GONE
                    )
                    if now - since > self.options.patience and waiting and late != told:
                        told = late
                        self._tell(WorkersLate(late, min(seen), waiting))

    def _statuses(self, timeout: float | None = None) -> list[Any]:
        """Every server's status; the observer is told what they report."""
        control = self._ready()
        statuses = [control.ask(server, "status", timeout) for server in range(self.options.servers)]
        for status in statuses:
            for clock, path, reason in status["events"]:
                if reason:
                    self._warn(snapshots.SnapshotFailed(clock, path, reason))
                else:
                    self._tell(SnapshotTaken(clock))
                    if self._join is None or self._join.rank == 0:
                        snapshots.remove_older(self.options.folder, self.options)
        return statuses

    def _all_gone(self) -> None:
        """Return when the servers have heard from all workers of a run that they have left."""
        if not self._epoch:
            return
        deadline = time.monotonic() + self.options.timeout
        while True:
            statuses = self._statuses()
            if all(min(status["clocks"]) == GONE for status in statuses):
                return
            if time.monotonic() > deadline:
                clocks = [[clock if clock != GONE else "gone" for clock in status["clocks"]] for status in statuses]
                raise TablesError(
                    f"a worker did not leave within {self.options.timeout:g} s; clocks of workers by server: {clocks}"
                )
            time.sleep(0.005)

    def _lost_server(self) -> str | None:
        """None, or how one of this process's servers was lost."""
        for number, job in self._servers.items():
            ended = job.ended()
            if ended is not None:
                return f"server {number} {ended.result if ended.lost else 'ended'}"
        return None

    def _lost_at_the_end(self) -> str | None:
        """None when all workers have left, or how a server was lost before it had heard that."""
        deadline = time.monotonic() + self.options.timeout
        while time.monotonic() < deadline:
            if (lost := self._lost_server()) is not None:
                return lost
            with suppress(TimeoutError):
                if all(min(status["clocks"]) == GONE for status in self._statuses(timeout=1.0)):
                    return None
            time.sleep(0.005)
        return None  # `_all_gone` says what is wrong

    def _go_back(self, why: str) -> int:
        """All servers have the newest snapshot; its clock."""
        for number, job in list(self._servers.items()):
            if job.ended() is not None:
                job.kill()
                server = self._servers[number] = self._host.start(
                    ServerWork(number, self._addresses[number], self.specs, self.options)
                )
                address = server.ready(START_SECONDS)
                if address is None:
                    self._failed("server", number, server.ended())
                if address != self._addresses[number]:
                    self._addresses = (*self._addresses[:number], address, *self._addresses[number + 1 :])
                    self._ready().reach(number, address)
        clock, wrong = snapshots.newest(self.options.folder, self.specs, self.options)
        for error in wrong:
            if not isinstance(error, snapshots.SnapshotIncompleteError):
                self._warn(str(error))
        if clock is None:
            reasons = "; ".join(map(str, wrong)) or self.options.folder
            raise TablesError(f"{why}, and there is no whole snapshot: {reasons}")
        self._ready().ask_all("restore", folder=self.options.folder, clock=clock)
        self._tell(Restarted(clock, why))
        return clock

    def _advice(self) -> str:
        if not self.options.snapshot_every:
            return "; with snapshots=FOLDER and restarts=N workers would start again"
        clock, _ = snapshots.newest(self.options.folder, self.specs, self.options)
        where = "there is no whole snapshot" if clock is None else f"resume=True goes on from clock {clock}"
        return f"; {where} in {self.options.folder}"

    def _failed(self, what: str, number: int, outcome: Ended | None) -> None:
        if outcome is None or not isinstance(outcome.result, BaseException):
            raise TablesError(f"{what} {number} {outcome.result if outcome else 'ended'}")
        error = TablesError(
            f"{what} {number} failed: {type(outcome.result).__name__}: {outcome.result}\n\n{outcome.details.rstrip()}"
        )
        raise error from outcome.result

    def _warn(self, event: snapshots.SnapshotFailed | str) -> None:
        warnings.warn(f"{event}; the run goes on, snapshots before it are as they were", RuntimeWarning, stacklevel=3)
        if not isinstance(event, str):
            self._tell(event)

    def _tell(self, event: Event) -> None:
        self.events.append(event)
        if self._observer is not None:
            self._observer(event)

    # ------------------------------------------------------------------------------------------- the end

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        try:
            if self._control is not None and kind is None:
                users = 1 if self._join is None else self.options.workers
                with suppress(TimeoutError):
                    self._control.ask_all("stop", of=users)
                for job in self._servers.values():
                    while users > 1 and job.ended() is None:
                        wait_for([job], LOOK)
                    job.leave()
        finally:
            if isinstance(self._host, ThreadHost) and self._control is not None and kind is not None:
                for server in self._servers:  # those of others end with their programs
                    with suppress(TimeoutError):
                        self._control.ask(server, "stop", 1.0, of=1)
            for job in self._servers.values():
                if job.ended() is None:
                    job.kill()
            if self._control is not None:
                self._control.close()
            self._context.destroy(linger=0)
            self._host.close()


def _user_secret(addresses: Sequence[str]) -> str:
    """What only programs of this user on this host can read: they need not be told a key.

    Raises:
        TableError: the addresses are of other hosts, or the user's cache may not be used.
    """
    where = [place.partition("://")[2].rpartition(":")[0].strip("[]") for place in map(numeric, addresses)]
    folder = usable_cache("tables") if all(is_loopback(host) for host in where) else None
    if folder is None:
        raise TableError(
            "programs that join by addresses need a key, without which their servers take no messages: give all the "
            "same key='…', such as secrets.token_hex(32) makes"
        )
    path, own = folder / "key", folder / secrets.token_hex(16)
    if not path.exists():
        places.exchange(str(own), secrets.token_hex(32).encode(), places.OWN)
        with suppress(FileExistsError):  # another program was first
            os.link(own, path)
        own.unlink()
    if why := others_may_write(path):
        raise TableError(f"{why}: delete it, or give all programs the same key='…'")
    return path.read_text()


def _check_values(spec: TableSpec, rows: int, values: Any) -> None:
    if np.shape(values) != (rows, spec.width):
        raise TableError(f"table {spec.name!r}: values of shape {np.shape(values)}; expected {(rows, spec.width)}")
    checked_values(spec, values.data if issparse(values) else values)
