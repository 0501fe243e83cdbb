"""Single pieces of work that run beside the program, each in a thread of it, in a process of this host, or elsewhere.

The workers of a crew do commands together (`girih.run.engines.crew`). A job does one piece of work by itself: it may
say once that it is ready, and it ends with a result, with what it raised, or because it died. Whoever started it asks
for that, and nothing is started anew.

Processes come from a fork server that has loaded what they need (`girih.run.engines.fork_server`): nothing of the
user's main module runs again, and work travels by cloudpickle. A process ends when the pipe to its starter closes,
whatever it is doing. Actors of Ray are in `girih.run.engines.ray_jobs`.
"""

from __future__ import annotations

import os
import shutil
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

from girih.run.engines.folders import new_folder
from girih.run.engines.fork_server import Process, ProcessKind, launch, say_how_it_ended
from girih.run.engines.stopping import StoppedError, WorkerThread, stop

LEAVE_SECONDS = 1.0
LOOK_SECONDS = 0.002


class JobWork(Protocol):
    """What a job does. computes: it needs processors for as long as it runs."""

    @property
    def computes(self) -> bool: ...

    def run(self, shared: Any, ready: Callable[[Any], None], stopped: Callable[[], bool]) -> Any:
        """Do it, and return its result.

        shared: what the jobs of a ThreadHost share, elsewhere None. ready: to be called once, with what the starter is
        to know. stopped: whether it should end, by StoppedError.
        """

    def placed(self, host: str) -> JobWork:
        """What it becomes on a host that was only known when it was started there."""


@dataclass(frozen=True)
class Ended:
    """How a job ended. ok: whether as it should. result: then, what it returned; else what was raised, or how it died.
    details: the traceback of what was raised. lost: it died."""

    ok: bool
    result: Any
    details: str = ""
    lost: bool = False


class Job(Protocol):
    """A piece of work that was started somewhere. look: seconds between two looks whether it has ended."""

    look: float

    @property
    def pid(self) -> int:
        """The number of its process; 0: it has none of its own, or none yet."""

    def ready(self, seconds: float) -> Any:
        """Wait for what it says when it is ready; None if it has ended before.

        Raises:
            TimeoutError: it has said nothing for so long.
        """

    def ended(self) -> Ended | None:
        """How it ended, or None if it goes on."""

    def kill(self) -> None:
        """End it at once."""

    def leave(self) -> None:
        """Let it end by itself, and end it if it does not."""


class Host(Protocol):
    """Where jobs are started."""

    def start(self, work: JobWork) -> Job: ...
    def close(self) -> None: ...


def outcome_of(work: JobWork, shared: Any, ready: Callable[[Any], None], stopped: Callable[[], bool]) -> Ended:
    """Do a piece of work here."""
    try:
        return Ended(True, work.run(shared, ready, stopped))
    except StoppedError:
        return Ended(False, "was stopped", lost=True)
    except BaseException as error:
        return failed(error)


def failed(error: BaseException) -> Ended:
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


# ------------------------------------------------------------------------------------------- threads


class ThreadHost:
    """Starts threads of this process. shared: what each piece of work is given."""

    def __init__(self, shared: Any) -> None:
        self._shared = shared

    def start(self, work: JobWork) -> ThreadJob:
        return ThreadJob(work, self._shared)

    def close(self) -> None:
        """There is nothing to give back."""


class ThreadJob:
    look = LOOK_SECONDS
    pid = 0

    def __init__(self, work: JobWork, shared: Any) -> None:
        self._outcome: Ended | None = None
        self._stop = threading.Event()
        self._begun = threading.Event()
        self._value: Any = None
        self._thread = WorkerThread(self._run, (work, shared), wake=self._stop.set)
        self._thread.start()

    def _run(self, work: JobWork, shared: Any) -> None:
        self._outcome = outcome_of(work, shared, self._ready, self._stop.is_set)
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


# ------------------------------------------------------------------------------------------- processes


class ProcessHost:
    """Starts processes of so many threads of kernels. loaded: modules that they find loaded. folder: theirs and the
    starter's, which goes when the starter ends, however it ends."""

    def __init__(self, threads: int, loaded: tuple[str, ...]) -> None:
        self._threads = threads
        self._kind = ProcessKind(__name__, "main", ("cloudpickle", *loaded, __name__))
        self._folder = new_folder("jobs")
        self.folder = self._folder.path

    def start(self, work: JobWork) -> ProcessJob:
        return ProcessJob(work, self._threads, self._kind, self.folder)

    def close(self) -> None:
        self._folder.close()


class ProcessJob:
    look = LOOK_SECONDS

    def __init__(self, work: JobWork, threads: int, kind: ProcessKind, folder: Path) -> None:
        self.pipe, theirs = Pipe()
        with theirs:
            self.process: Process = launch([str(folder)], [theirs.fileno()], threads, kind)
        self._outcome: Ended | None = None
        with suppress(OSError):  # it died at once; `ended` says so
            self.pipe.send_bytes(cloudpickle.dumps(work))

    @property
    def pid(self) -> int:
        return self.process.pid

    def ready(self, seconds: float) -> Any:
        if not self.pipe.poll(seconds):
            raise TimeoutError(f"process {self.pid} did not start within {seconds:g} s")
        return self._receive()

    def ended(self) -> Ended | None:
        if self._outcome is None and self.pipe.poll(0):
            self._receive()
        return self._outcome

    def _receive(self) -> Any:
        """What it says when it is ready; None if it has ended."""
        try:
            kind, value = cloudpickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            try:
                code = self.process.wait(timeout=5.0)
            except subprocess.TimeoutExpired:
                code = 0
            kind, value = "ended", Ended(False, say_how_it_ended(code), lost=True)
        if kind == "ready":
            return value
        self._outcome = value
        return None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.pipe.close()
        if self._outcome is None:
            self._outcome = Ended(False, "was ended", lost=True)

    def leave(self) -> None:
        """A process that was stopped (SIGSTOP) does not end by itself."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=LEAVE_SECONDS)
        self.kill()


def main(arguments: Sequence[str] | None = None) -> None:
    """The process of a job, from its command line: the host's folder, and its end of the pipe."""
    arguments = sys.argv[1:] if arguments is None else arguments
    pipe = Connection(int(arguments[1]))
    try:
        data = pipe.recv_bytes()
    except (EOFError, OSError):
        _end_with_starter(pipe, arguments[0])
    threading.Thread(target=_end_with_starter, args=(pipe, arguments[0]), daemon=True).start()
    try:
        work = cloudpickle.loads(data)
    except BaseException as error:
        outcome = failed(error)
    else:
        outcome = outcome_of(work, None, lambda value: _say(pipe, "ready", value), lambda: False)
    _say(pipe, "ended", outcome)
    sys.stdout.flush()
    sys.stderr.flush()


def _end_with_starter(pipe: Connection, folder: str) -> None:
    """The starter is gone, or was killed: its folder goes too."""
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
