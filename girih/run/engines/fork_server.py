"""Where worker processes come from: a process that has loaded what they need, and forks one for each that is asked for.

Loading PyTorch takes more than a second of a core, and each worker of a host would take it. A fork server takes it once
for all workers of a driver that have as many threads. It computes nothing, so that a fork of it is as new as a process
that has just loaded the same; it ends with its driver's end of a socket. A worker has the driver's environment, working
directory, output and errors as they are when it is asked for, and a session of its own; of open files it keeps those
that are handed to it. Variables that libraries read as they are loaded count as they were at a driver's first worker.

Only on Linux: elsewhere not all libraries allow a fork, and every worker loads for itself.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol


@dataclass(frozen=True)
class ProcessKind:
    """Processes with one main. module, main: what a worker calls with its arguments. loaded: modules that the fork
    server loads beforehand."""

    module: str
    main: str
    loaded: tuple[str, ...]


CREW = ProcessKind(
    "girih.run.engines.processes",
    "main",
    ("torch", "girih.run.engines.processes", "girih.run.worker.service", "girih.run.transport.shared"),
)
NUMBER = struct.Struct("q")
LOOPBACK = "lo" if sys.platform == "linux" else ""
"""Over which gloo sends between processes of one host, unless the user names another interface."""
MOST_FILES = 250  # the kernel hands over 253 with a message


class Process(Protocol):
    """A worker process, as its driver sees it; `subprocess.Popen` is one."""

    pid: int

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; of a signal, negative.

        Raises:
            subprocess.TimeoutExpired: it goes on.
        """

    def kill(self) -> None:
        """End it at once."""


def say_how_it_ended(code: int) -> str:
    """What became of a process, by its exit code."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def launch(arguments: Sequence[str], files: Sequence[int], threads: int, kind: ProcessKind = CREW) -> Process:
    """A new process in which the worker's main has these arguments, and behind them the numbers of the open files.

    Raises:
        OSError: it could not be started.
    """
    if sys.platform == "linux" and len(files) <= MOST_FILES:
        return _server(threads, kind).fork(arguments, files)
    return subprocess.Popen(
        [sys.executable, "-c", f"from {kind.module} import {kind.main}; {kind.main}()", *arguments, *map(str, files)],
        env=_environment(threads),
        pass_fds=tuple(files),
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is the driver's to handle
    )


def _environment(threads: int) -> dict[str, str]:
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        "OMP_NUM_THREADS": str(threads),
    }
    if LOOPBACK:
        variables.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    return variables


# ------------------------------------------------------------------------------------------- in the driver

_known: dict[tuple[int, int, ProcessKind], ForkServer] = {}  # by driver (a fork of one is another), threads and kind
_lock = threading.Lock()


@atexit.register
def _end_all() -> None:
    for (driver, *_), server in _known.items():
        if driver == os.getpid():
            server.close()


def _server(threads: int, kind: ProcessKind) -> ForkServer:
    with _lock:
        key = os.getpid(), threads, kind
        known = _known.get(key)
        if known is None or not known.lives:
            if known is not None:
                known.close()
            known = _known[key] = ForkServer(threads, kind)
        return known


class ForkServer:
    """A process that forks workers of so many threads, until it is closed or its driver ends."""

    def __init__(self, threads: int, kind: ProcessKind = CREW) -> None:
        self.threads = threads
        self._lock = threading.Lock()
        self._whole = True
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import main; main()", str(theirs.fileno()), *_words(kind)],
                env=_environment(threads),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

    @property
    def lives(self) -> bool:
        return self._whole and self._process.poll() is None

    def fork(self, arguments: Sequence[str], files: Sequence[int]) -> Forked:
        """See `launch`."""
        status, theirs = os.pipe()
        text = pickle.dumps((list(arguments), _environment(self.threads), os.getcwd()))
        try:
            with self._lock:
                socket.send_fds(self._socket, [NUMBER.pack(len(text))], [theirs, 1, 2, *files])
                self._socket.sendall(text)
        except BaseException:  # also KeyboardInterrupt: half an order would be taken for the beginning of the next
            self._whole = False
            os.close(status)
            raise
        finally:
            os.close(theirs)
        return Forked(status)


def _words(kind: ProcessKind) -> list[str]:
    return [kind.module, kind.main, *kind.loaded]


class Forked:
    """A process that a fork server made. status: a pipe on which come its process number, then its exit code."""

    def __init__(self, status: int) -> None:
        self._status = status
        self._code: int | None = None
        self.pid = self._read()
        if self._code is not None:
            raise OSError("the process that starts workers is gone; its errors are above")

    def wait(self, timeout: float | None = None) -> int:
        if self._code is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"worker process {self.pid}", timeout or 0.0)
            code = self._read()
            if self._code is None:
                self._code = code
                os.close(self._status)
        return self._code

    def kill(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(timeout=0.0)
        if self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _read(self) -> int:
        """The next number; without a fork server there is none, and its workers count as killed."""
        data = os.read(self._status, NUMBER.size)
        if len(data) == NUMBER.size:
            return int(NUMBER.unpack(data)[0])
        self._code = -signal.SIGKILL
        os.close(self._status)
        return 0

    def __del__(self) -> None:
        if self._code is None:
            os.close(self._status)


# ------------------------------------------------------------------------------------------- in the fork server


def main() -> None:
    """A fork server, from its command line: its end of the socket, and its kind."""
    orders = socket.socket(fileno=int(sys.argv[1]))
    kind = ProcessKind(sys.argv[2], sys.argv[3], tuple(sys.argv[4:]))
    for name in kind.loaded:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a worker need not touch, and so copy, what all share
    ended, told = os.pipe()
    os.set_blocking(told, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    pipes: dict[int, int] = {}  # of each child
    while True:
        ready = select.select([orders.fileno(), ended], [], [])[0]
        if ended in ready:
            os.read(ended, 1 << 16)
            _bury(pipes)
        if orders.fileno() not in ready:
            continue
        try:
            order, files, _, _ = socket.recv_fds(orders, NUMBER.size, MOST_FILES + 3)
        except ConnectionError:
            order = b""
        if len(order) < NUMBER.size:  # the driver is gone, or wants no more
            os._exit(0)
        text = _received(orders, NUMBER.unpack(order)[0])
        pid = os.fork()
        if pid == 0:
            _become_worker(kind, pickle.loads(text), files)
        pipes[pid] = files[0]
        with suppress(BrokenPipeError):  # the driver was interrupted meanwhile; the child sees it and ends
            os.write(files[0], NUMBER.pack(pid))
        for file in files[1:]:
            os.close(file)


def _received(orders: socket.socket, count: int) -> bytes:
    text = b""
    while len(text) < count:
        part = orders.recv(count - len(text))
        if not part:
            os._exit(0)
        text += part
    return text


def _bury(pipes: dict[int, int]) -> None:
    """Tell the driver of those that have ended."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pipe = pipes.pop(ended[0])
            with suppress(OSError):  # nobody listens any more
                os.write(pipe, NUMBER.pack(os.waitstatus_to_exitcode(ended[1])))
            os.close(pipe)


def _become_worker(kind: ProcessKind, order: tuple[list[str], dict[str, str], str], files: list[int]) -> NoReturn:
    arguments, environment, directory = order
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.dup2(files[1], 1)
        os.dup2(files[2], 2)
        keep = {0, 1, 2, *files[3:]}
        for name in os.listdir("/proc/self/fd"):
            if int(name) not in keep:
                with suppress(OSError):  # the directory's own, closed by now
                    os.close(int(name))
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(directory)
        sys.path[:] = ["", *environment["PYTHONPATH"].split(os.pathsep)]
        work: Any = getattr(importlib.import_module(kind.module), kind.main)
        work([*arguments, *map(str, files[3:])])
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
