"""Servers and workers of this host, as processes or as threads of this one.

Processes come from a fork server that has loaded what they need (`girih.run.engines.fork_server`): nothing of the
user's main module runs again, and functions travel by cloudpickle. A process ends when the pipe to the session closes,
whatever it is doing.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, Protocol

import cloudpickle
import zmq

from girih.loop.shared_tables.messages import decoded
from girih.loop.shared_tables.options import Options, TableSpec
from girih.loop.shared_tables.server import Server
from girih.loop.shared_tables.snapshots import read_state
from girih.loop.shared_tables.sockets import Lines, Stopped, serve
from girih.loop.shared_tables.worker import Worker
from girih.run.engines.folders import new_folder
from girih.run.engines.fork_server import Kind, Process, launch
from girih.run.engines.stopping import StoppedError, WorkerThread, stop

LEAVE_SECONDS = 1.0
KIND = Kind(__name__, "main", ("numba", "numpy", "scipy.sparse", "zmq", "cloudpickle", __name__))


@dataclass(frozen=True)
class ServerWork:
    """locked: only who knows its key may speak to it. secret: from which all programs derive it; "": it is new."""

    number: int
    address: str
    specs: tuple[TableSpec, ...]
    options: Options
    locked: bool = False
    secret: str = ""

    def run(self, context: Any, ready: Callable[[Any], None], stopped: Callable[[], bool]) -> None:
        serve(self.address, Server(self.number, self.specs, self.options), context, ready, self.locked, self.secret)


@dataclass(frozen=True)
class WorkerWork:
    """clock: at which it begins. resumed: whether it goes on from the snapshot of that clock."""

    rank: int
    addresses: tuple[str, ...]
    specs: tuple[TableSpec, ...]
    options: Options
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    clock: int = 0
    epoch: int = 0
    resumed: bool = False

    def run(self, context: Any, ready: Callable[[Any], None], stopped: Callable[[], bool]) -> tuple[Any, list[str]]:
        """(what the function returns, snapshots that could not be written)."""
        data = read_state(self.options.folder, self.clock, self.rank) if self.resumed else b""
        state = decoded(data) if data else None
        with Lines(
            self.rank, self.addresses, self.specs, self.options, self.clock, context, self.epoch, stopped
        ) as lines:
            with lines.lock:
                lines.client.greet()
                lines.wait(lambda: len(lines.client.welcomed) == self.options.servers, "the servers' first values")
            worker = Worker(lines, state)
            result = self.function(worker, self.rank, *self.arguments)
            with lines.lock:
                lines.client.leave()
                lines.wait(lambda: len(lines.client.dismissed) == self.options.servers, "the servers' farewell")
        return result, worker.failures


@dataclass(frozen=True)
class Ended:
    """A server or worker has ended. ok: whether as it should. result: then, what it returned; else what was raised, or
    how it died. lost: it died."""

    ok: bool
    result: Any
    details: str = ""
    lost: bool = False


class ProcessHost:
    """Starts processes. A context manager, which ends them."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._folder = new_folder("tables")
        self.context = zmq.Context()

    def address(self, server: int) -> str:
        return f"ipc://{self._folder.path}/{server}" if sys.platform == "linux" else "tcp://127.0.0.1:*"

    def start(self, work: ServerWork | WorkerWork) -> ProcessJob:
        return ProcessJob(work, self._threads, self._folder.path)

    def close(self) -> None:
        self.context.destroy(linger=0)
        self._folder.close()


class ProcessJob:
    """A process that does one piece of work."""

    look = 0.002

    def __init__(self, work: ServerWork | WorkerWork, threads: int, folder: Path) -> None:
        self.pipe, theirs = Pipe()
        with theirs:
            self.process: Process = launch([str(folder)], [theirs.fileno()], threads, KIND)
        self._outcome: Ended | None = None
        with suppress(OSError):  # it died at once; `ended` says so
            self.pipe.send_bytes(cloudpickle.dumps(work))

    @property
    def pid(self) -> int:
        return self.process.pid

    def ready(self, seconds: float) -> Any:
        """What it says when it is ready; None if it ended."""
        if not self.pipe.poll(seconds):
            raise TimeoutError(f"process {self.pid} did not start within {seconds:g} s")
        try:
            kind, value = cloudpickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            self._died()
            return None
        if kind == "ready":
            return value
        self._outcome = value
        return None

    def ended(self) -> Ended | None:
        """How it ended, or None if it goes on."""
        if self._outcome is None and self.pipe.poll(0):
            try:
                self._outcome = cloudpickle.loads(self.pipe.recv_bytes())[1]
            except (EOFError, OSError):
                self._died()
        return self._outcome

    def _died(self) -> None:
        try:
            code = self.process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            code = 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        self._outcome = Ended(False, how, lost=True)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.pipe.close()
        if self._outcome is None:
            self._outcome = Ended(False, "was ended", lost=True)

    def leave(self) -> None:
        """Let it end by itself; one that was stopped does not."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=LEAVE_SECONDS)
        self.kill()


class ThreadHost:
    """Starts threads of this process."""

    def __init__(self, threads: int) -> None:
        self.context = zmq.Context()

    def address(self, server: int) -> str:
        return f"inproc://tables-{id(self)}-{server}"

    def start(self, work: ServerWork | WorkerWork) -> ThreadJob:
        return ThreadJob(work, self.context)

    def close(self) -> None:
        self.context.destroy(linger=0)


class ThreadJob:
    look = 0.002

    def __init__(self, work: ServerWork | WorkerWork, context: Any) -> None:
        self._outcome: Ended | None = None
        self._stop = threading.Event()
        self._begun = threading.Event()
        self._value: Any = None
        self._thread = WorkerThread(self._run, (work, context), wake=self._stop.set)
        self._thread.start()

    @property
    def pid(self) -> int:
        return 0

    def _run(self, work: ServerWork | WorkerWork, context: Any) -> None:
        self._outcome = outcome_of(work, context, self._ready, self._stop.is_set)
        self._begun.set()

    def _ready(self, value: Any) -> None:
        self._value = value
        self._begun.set()

    def ready(self, seconds: float) -> Any:
        if not self._begun.wait(seconds):
            raise TimeoutError(f"a thread did not start within {seconds:g} s")
        return self._value

    def ended(self) -> Ended | None:
        return self._outcome

    def kill(self) -> None:
        """A thread cannot be killed: it ends as soon as it runs Python, or waits for others."""
        stop([self._thread], 0.2)

    def leave(self) -> None:
        self._thread.join(5.0)


class Job(Protocol):
    """A server or worker that was started somewhere. look: seconds between two looks whether it has ended."""

    look: float

    @property
    def pid(self) -> int: ...
    def ready(self, seconds: float) -> Any: ...
    def ended(self) -> Ended | None: ...
    def kill(self) -> None: ...
    def leave(self) -> None: ...


class Host(Protocol):
    """Where jobs are started. context: of the sockets of the program itself."""

    context: Any

    def address(self, server: int) -> str: ...
    def start(self, work: ServerWork | WorkerWork) -> Job: ...
    def close(self) -> None: ...


def outcome_of(
    work: ServerWork | WorkerWork, context: Any, ready: Callable[[Any], None], stopped: Callable[[], bool]
) -> Ended:
    try:
        return Ended(True, work.run(context, ready, stopped))
    except (Stopped, StoppedError):
        return Ended(False, "was stopped", lost=True)
    except BaseException as error:
        return Ended(False, error, "".join(traceback.format_exception(error)))


def wait_for(jobs: Sequence[Job], seconds: float) -> None:
    """Return when one of them may have ended, at the latest after so long."""
    pipes = [job.pipe for job in jobs if isinstance(job, ProcessJob) and job.ended() is None]
    if pipes:
        wait(pipes, timeout=seconds)
    else:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not any(job.ended() for job in jobs):
            time.sleep(max(job.look for job in jobs))


# ------------------------------------------------------------------------------------------- in the process


def main(arguments: Sequence[str] | None = None) -> None:
    """A process, from its command line: the session's folder, and its end of the pipe."""
    arguments = sys.argv[1:] if arguments is None else arguments
    pipe = Connection(int(arguments[1]))
    try:
        data = pipe.recv_bytes()
    except (EOFError, OSError):
        _end_with_session(pipe, arguments[0])
    threading.Thread(target=_end_with_session, args=(pipe, arguments[0]), daemon=True).start()
    try:
        work = cloudpickle.loads(data)
    except BaseException as error:
        outcome = Ended(False, error, "".join(traceback.format_exception(error)))
    else:
        outcome = outcome_of(work, None, lambda value: _say(pipe, "ready", value), lambda: False)
    _say(pipe, "ended", outcome)
    sys.stdout.flush()
    sys.stderr.flush()


def _end_with_session(pipe: Connection, folder: str) -> None:
    """The session is gone, or was killed: its folder goes too."""
    with suppress(EOFError, OSError):
        pipe.recv_bytes()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _say(pipe: Connection, kind: str, value: Any) -> None:
    try:
        data = cloudpickle.dumps((kind, value))
    except Exception as error:  # what a function returned, or raised
        details = value.details if isinstance(value, Ended) else ""
        kept = Ended(False, TypeError(f"what the function gave cannot be pickled: {error}"), details)
        data = cloudpickle.dumps((kind, kept))
    with suppress(OSError):
        pipe.send_bytes(data)
