"""Commands of Python, each in a process of its own, which is forked from one that has loaded PyTorch, Numba and girih.

Loading them takes two seconds of a core, and what PyTorch's optimizers load as long again (`torch._dynamo`); most
programs of the tests do little else. All else is as in a new process: command line, surroundings, folder, output,
a session of its own, what runs at its end, and how it ends. What libraries read as they are loaded is as it was for the
tests, but for OMP_NUM_THREADS. The first fork server that a program starts for workers of its own is such a fork, too.
Who tests the loading itself starts a process by `subprocess`.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import IO, Any, NoReturn

from threadpoolctl import threadpool_limits

from girih.run.engines import fork_server
from girih.run.engines.fork_server import ForkServer, Process, ProcessKind, launch

LOADED = (
    "torch", "torch._dynamo", "girih.layout.jit", "girih.cli.main", "girih.api", "girih.array", "girih.loop",
    "girih.loop.code.kernel", "girih.run.engines.processes", "girih.run.worker.service", "girih.run.transport.shared",
)  # fmt: skip
KIND = ProcessKind(__name__, "main", LOADED)
WITHOUT_GIRIH = ProcessKind(__name__, "main", ("torch", "torch._dynamo", "all_of_numba"))
NURSERY = ProcessKind(__name__, "nursed", WITHOUT_GIRIH.loaded)
SERVER = ["-c", f"from {launch.__module__} import main; main()"]
"""How `girih.run.engines.fork_server` starts a fork server."""
NETWORK = 0x40000000
"""CLONE_NEWNET, of the system's setns."""


class Program:
    """A command that runs, as `subprocess.Popen` shows it. Its output and errors are text."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None,
        folder: Path | None,
        network: str,
        new: bool,
    ) -> None:
        assert command[0] == sys.executable
        self.args = list(command)
        self.returncode: int | None = None
        self._files: list[IO[str]] = [tempfile.TemporaryFile("w+", encoding="utf-8") for _ in range(2)]  # noqa: SIM115
        known = dict(os.environ if environment is None else environment)
        order = json.dumps([self.args[1:], known, os.fspath(folder or os.getcwd()), network, new])
        threads = int(known.get("OMP_NUM_THREADS") or os.cpu_count() or 1)
        kind = WITHOUT_GIRIH if new else KIND
        self._process = launch([order], [file.fileno() for file in self._files], threads, kind)
        self.pid = self._process.pid

    def wait(self, timeout: float | None = None) -> int:
        """See `subprocess.Popen.wait`."""
        self.returncode = self._process.wait(timeout)
        return self.returncode

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        self._process.kill()

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it has printed, and its errors, once it has ended.

        Raises:
            subprocess.TimeoutExpired: it goes on after so many seconds.
        """
        self.wait(timeout)
        printed = []
        for file in self._files:
            file.seek(0)
            printed.append(file.read())
            file.close()
        return printed[0], printed[1]


def start(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    folder: Path | None = None,
    network: str = "",
    new: bool = False,
) -> Program:
    """Begin `python -c CODE`, `python -m MODULE` or `python FILE` with its arguments.

    environment: all of it; None: as it is here. network: the name of a network namespace to run in. new: no module of
    girih is loaded yet, so that what the program forgets to import is not there.
    """
    return Program(command, environment, folder, network, new)


def run(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    timeout: float,
    folder: Path | None = None,
    new: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. See `start`.

    Raises:
        subprocess.TimeoutExpired: it goes on after so many seconds; it is ended.
    """
    program = start(command, environment, folder=folder, new=new)
    try:
        out, err = program.communicate(timeout)
    except subprocess.TimeoutExpired:
        program.kill()
        raise
    return subprocess.CompletedProcess(program.args, program.wait(), out, err)


def start_ranks(
    command: Sequence[str],
    count: int,
    environment: Mapping[str, str],
    *,
    networks: Sequence[str] = (),
    host: str = "",
    folder: Path | None = None,
    new: bool = False,
) -> list[Program]:
    """A command as so many ranks, with the variables that torchrun, mpirun and others set.

    networks: of each rank, its network namespace. host: the address of the first rank's. new: see `start`.
    """
    port = "29400"
    if not networks:
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            port = str(bound.getsockname()[1])
    common = {"WORLD_SIZE": str(count), "MASTER_ADDR": host or "127.0.0.1", "MASTER_PORT": port}
    return [
        start(
            command, {**environment, **common, "RANK": str(rank)}, folder=folder,
            network=networks[rank] if networks else "", new=new,
        )
        for rank in range(count)
    ]  # fmt: skip


class _Nursed:
    """A fork server that is a fork itself, as `subprocess.Popen` shows one."""

    def __init__(self, process: Process) -> None:
        self.wait = process.wait

    def poll(self) -> int | None:
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None


class _Nursery:
    """Stands in for `subprocess` where fork servers are started: the first of a process loads PyTorch, and all others,
    of whatever kind and number of threads, are forks of it."""

    DEVNULL, TimeoutExpired = subprocess.DEVNULL, subprocess.TimeoutExpired

    def Popen(self, command: list[str], **options: Any) -> Any:
        words = command[4:]
        if words == fork_server._words(NURSERY):
            return subprocess.Popen(command, **options)
        key = os.getpid(), 1, NURSERY
        if key not in fork_server._known or not fork_server._known[key].lives:
            fork_server._known[key] = ForkServer(1, NURSERY)
        order = json.dumps([words, options["env"]])
        return _Nursed(fork_server._known[key].fork([order], options["pass_fds"]))


def nurse_fork_servers() -> None:
    """From here on, fork servers of this process are forks of one that has loaded PyTorch."""
    fork_server.subprocess = _Nursery()  # type: ignore[assignment]


def nursed(arguments: list[str]) -> NoReturn:
    """What such a fork becomes: its order and its end of a socket are given."""
    words, environment = json.loads(arguments[0])
    os.environ.clear()
    os.environ.update(environment)
    _serve(int(arguments[1]), words, environment)


def main(arguments: list[str]) -> NoReturn:
    """What such a process does. It ends as Python ends: with its own exit code, or by Ctrl-C's signal."""
    for descriptor, file in enumerate(arguments[1:], 1):
        os.dup2(int(file), descriptor)
        os.close(int(file))
    command, environment, folder, network, new = json.loads(arguments[0])
    if network:
        with open(f"/var/run/netns/{network}") as place:
            assert ctypes.CDLL(None, use_errno=True).setns(place.fileno(), NETWORK) == 0, os.strerror(
                ctypes.get_errno()
            )
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    tempfile.tempdir = None  # is where its own surroundings say
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if new:
        for name in [name for name in sys.modules if name.partition(".")[0] == "girih"]:
            del sys.modules[name]
    _lend_a_fork_server()
    code = _ended(command)
    _flush()
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60.0)
    os._exit(code)


class _Lent:
    """The process that stands in for a program's first fork server, as `subprocess.Popen` shows it."""

    def __init__(self, pid: int) -> None:
        self.pid, self.returncode = pid, None

    def poll(self) -> int | None:
        return self._ended(os.WNOHANG)

    def wait(self) -> int | None:
        return self._ended(0)

    def _ended(self, how: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, how)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def _lend_a_fork_server() -> None:
    """Fork this process before the program has threads. What the program would start as its first fork server, and
    what would load PyTorch again, is then this fork."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.close()
        _serve_when_asked(theirs)
    theirs.close()
    lent = [_Lent(pid)]

    class Popen(subprocess.Popen):  # type: ignore[type-arg]
        def __new__(cls, *arguments: Any, **options: Any) -> Any:
            command = arguments[0] if arguments else options.get("args")
            if not lent or not isinstance(command, list) or command[1:3] != SERVER:
                return super().__new__(cls)
            text = json.dumps([command[4:], options["env"], os.getcwd()])
            with ours:
                socket.send_fds(ours, [text.encode()], [*options["pass_fds"], 1, 2])
            return lent.pop()

    subprocess.Popen = Popen  # type: ignore[misc]


def _serve_when_asked(orders: socket.socket) -> NoReturn:
    """Become a fork server in the surroundings in which it was to be started, or end with the program."""
    os.setsid()
    order, files, _, _ = socket.recv_fds(orders, 1 << 20, 3)
    if not order:
        os._exit(0)
    words, environment, folder = json.loads(order)
    for descriptor, file in enumerate((os.open(os.devnull, os.O_RDONLY), *files[1:])):
        os.dup2(file, descriptor)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in (0, 1, 2, files[0]):
            with suppress(OSError):  # the directory's own, closed by now
                os.close(int(name))
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    _serve(files[0], words, environment)


def _serve(file: int, words: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Be the fork server of a kind (its words) that gets its orders by an open file."""
    sys.path[:] = environment["PYTHONPATH"].split(os.pathsep)
    sys.argv[:] = ["-c", str(file), *words]
    threadpool_limits(int(environment["OMP_NUM_THREADS"]))
    importlib.import_module(launch.__module__).main()
    os._exit(1)


def _ended(command: list[str]) -> int:
    """The exit code of a command that has run, with what runs at the end of a process."""
    code = 0
    try:
        try:
            _execute(command)
        finally:
            threading._shutdown()
    except SystemExit as end:
        if isinstance(end.code, int) or end.code is None:
            code = end.code or 0
        else:
            print(end.code, file=sys.stderr)
            code = 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    atexit._run_exitfuncs()
    return code


def _execute(command: list[str]) -> None:
    how, rest = (command[0], command[1:]) if command[0] in ("-c", "-m") else ("", command)
    first = str(Path(rest[0]).parent) if not how else "" if how == "-c" else os.getcwd()
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    here = str(Path(__file__).parent)
    sys.path[:] = [first, *filter(None, paths), *(path for path in sys.path if path not in ("", here))]
    sys.argv[:] = [how or rest[0], *rest[1:]]
    warnings.filterwarnings("error", category=SyntaxWarning)
    if how == "-m":
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif how == "-c":
        sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(sys.modules["__main__"]))
    else:
        runpy.run_path(rest[0], run_name="__main__")


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed, or its reader is gone
            stream.flush()
