"""Hosts that are network namespaces of this machine, on a switch whose every port has a limited rate; workers in them.

    with network(4, 1e9) as hosts, Workers(hosts) as workers:
        workers.call("benchmarks.namespaces:seconds_to_send", size=1 << 20)

Each host is a namespace with one interface, a veth pair leads from it to a bridge in a namespace of its own. `tc … tbf`
limits both ends of each pair, so that a host sends and receives at the rate and no faster. Nothing outside of the
namespaces is changed. All that was made is removed at the end, also after an error, Ctrl-C or SIGTERM; what a process
that was killed left behind is removed by the next one.
"""

from __future__ import annotations

import importlib
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PREFIX = "girih"  # of the namespaces' names: girih-PROCESS-0, …, girih-PROCESS-switch
INTERFACE = "eth0"
PORT = 29_400  # in namespaces all ports are free
START_SECONDS = 120.0
QUEUE = "50ms"  # of traffic that waits at a port; more is dropped, and sent again


class NetworkError(RuntimeError):
    """This machine does not allow what was tried; the message is what the command said."""


class HostError(RuntimeError):
    """A worker failed, ended or hung; the message has its own words."""


@dataclass(frozen=True)
class Network:
    """Hosts on a switch. names: of their namespaces; switch: of the bridge's. addresses: of each host."""

    names: tuple[str, ...]
    switch: str
    addresses: tuple[str, ...]

    def limit(self, bits_per_second: float) -> None:
        """Let every host send, and receive, so much and no more from now on.

        A bucket of a millisecond of traffic: with less, the rate is not reached where timers are late (cores shared
        with the hosts' own work). Segments are at most half of it, so that none has to be cut into packets one by one.
        """
        burst = int(max(1 << 16, bits_per_second / 8e3))
        shape = ["tbf", "rate", f"{bits_per_second:.0f}bit", "burst", str(burst), "latency", QUEUE]
        ends = [(name, INTERFACE) for name in self.names]
        ends += [(self.switch, f"port{number}") for number in range(len(self.names))]
        for namespace, interface in ends:
            run("ip", "-n", namespace, "link", "set", interface, "gso_max_size", str(min(1 << 16, burst // 2)))
            run("tc", "-n", namespace, "qdisc", "replace", "dev", interface, "root", *shape)


@contextmanager
def network(hosts: int, bits_per_second: float) -> Iterator[Network]:
    """So many hosts on one switch, as long as the block lasts.

    Raises:
        NetworkError: this machine does not allow it; see `refusal`.
    """
    base = f"{PREFIX}-{os.getpid()}"
    made = Network(
        tuple(f"{base}-{number}" for number in range(hosts)),
        f"{base}-switch",
        tuple(f"10.77.0.{number + 1}" for number in range(hosts)),
    )
    remove_left_behind()
    with _stopped_in_order():
        try:
            _make(made)
            made.limit(bits_per_second)
            yield made
        finally:
            _remove(made)


def refusal() -> str:
    """Why there can be no such network here, or "". Tries it."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are Linux's"
    if missing := [name for name in ("ip", "tc") if shutil.which(name) is None]:
        return f"there is no command {' and no command '.join(missing)} (iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with network(2, 1e9) as made:
            run("ip", "netns", "exec", made.names[0], "true")
    except NetworkError as error:
        return str(error)
    return ""


def _make(made: Network) -> None:
    run("ip", "netns", "add", made.switch)
    run("ip", "-n", made.switch, "link", "add", "bridge", "type", "bridge", "forward_delay", "0")
    run("ip", "-n", made.switch, "link", "set", "bridge", "up")
    for number, (name, address) in enumerate(zip(made.names, made.addresses, strict=True)):
        port = f"port{number}"
        run("ip", "netns", "add", name)
        run("ip", "link", "add", INTERFACE, "netns", name, "type", "veth", "peer", "name", port, "netns", made.switch)
        run("ip", "-n", name, "address", "add", f"{address}/24", "dev", INTERFACE)
        run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", name, "link", "set", INTERFACE, "up")
        run("ip", "-n", made.switch, "link", "set", port, "master", "bridge", "up")


def _remove(made: Network) -> None:
    """All of it, as far as it is there; veth pairs first: a namespace that is in use keeps them alive."""
    there = set(_namespaces())
    for name in made.names:
        if name in there:
            run("ip", "-n", name, "link", "delete", INTERFACE, check=False)
    for name in (*made.names, made.switch):
        if name in there:
            run("ip", "netns", "delete", name, check=False)


def remove_left_behind() -> None:
    """Namespaces of a process that is gone, in which nothing runs."""
    for name in _namespaces():
        match = re.fullmatch(rf"{PREFIX}-(\d+)-(\d+|switch)", name)
        if match is None or Path(f"/proc/{match[1]}").exists() or run("ip", "netns", "pids", name, check=False).strip():
            continue
        run("ip", "-n", name, "link", "delete", INTERFACE, check=False)
        run("ip", "netns", "delete", name, check=False)


def _namespaces() -> list[str]:
    return [line.split()[0] for line in run("ip", "netns", "list", check=False).splitlines() if line.strip()]


def run(*command: str, check: bool = True) -> str:
    """What a command prints. Ctrl-C does not reach it: it does what it has begun.

    Raises:
        NetworkError: it failed.
    """
    done = subprocess.run(command, capture_output=True, text=True, start_new_session=True)
    if check and done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise NetworkError(f"`{' '.join(command)}`: {said[0] if said else f'exit code {done.returncode}'}")
    return done.stdout


@contextmanager
def _stopped_in_order() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does; a signal while it is being ended does not end that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ending = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal ending
        if not ending:
            ending = True
            raise KeyboardInterrupt

    kept = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


# ------------------------------------------------------------------------------------------------- workers


class Workers:
    """A process in each host, with the environment that torchrun gives. A context manager.

    `call` has all of them do something together: a function of a module, the rank its first argument.
    """

    def __init__(self, hosts: Network, threads: int = 1) -> None:
        self._pipes: list[Connection] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._said = Path(tempfile.mkdtemp(prefix="girih-hosts-"))
        try:
            for rank in range(len(hosts.names)):
                self._start(hosts, rank, threads)
            self._replies("start", START_SECONDS)
        except BaseException:
            self.close()
            raise

    def call(self, function: str, *, timeout: float = 600.0, **fields: Any) -> list[Any]:
        """`module:name` in every worker with these fields; what each returns, by rank.

        Raises:
            HostError: one failed, ended or hung; all are gone then.
        """
        try:
            for pipe in self._pipes:
                pipe.send((function, fields))
            return self._replies(function, timeout)
        except OSError as error:
            self.close()
            raise HostError(f"{function}: a worker is gone: {error}") from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all of them; none is left behind."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        for pipe in self._pipes:
            pipe.close()
        self._processes, self._pipes = [], []
        shutil.rmtree(self._said, ignore_errors=True)

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, hosts: Network, rank: int, threads: int) -> None:
        ours, theirs = Pipe()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *(path for path in sys.path if path)]),
            "RANK": str(rank),
            "LOCAL_RANK": "0",
            "WORLD_SIZE": str(len(hosts.names)),
            "MASTER_ADDR": hosts.addresses[0],
            "MASTER_PORT": str(PORT),
            "GLOO_SOCKET_IFNAME": INTERFACE,
            "OMP_NUM_THREADS": str(threads),
        }
        child = [sys.executable, "-c", f"from {__name__} import main; main()", str(theirs.fileno()), str(threads)]
        with theirs, (self._said / str(rank)).open("wb") as said:
            process = subprocess.Popen(
                ["ip", "netns", "exec", hosts.names[rank], *child],
                env=environment,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,  # Ctrl-C is the driver's to handle
            )
        self._processes.append(process)
        self._pipes.append(ours)

    def _replies(self, what: str, timeout: float) -> list[Any]:
        pending = {pipe: rank for rank, pipe in enumerate(self._pipes)}
        replies: dict[int, Any] = {}
        deadline = time.monotonic() + timeout
        while pending:
            ready = wait(list(pending), timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                raise HostError(f"{what}: workers {sorted(pending.values())} did not answer within {timeout:g} s")
            for pipe in ready:
                assert isinstance(pipe, Connection)
                rank = pending.pop(pipe)
                try:
                    ok, reply = pipe.recv()
                except (EOFError, OSError):
                    raise HostError(f"{what}: worker {rank} ended: {self._last_words(rank)}") from None
                if not ok:
                    raise HostError(f"{what}: worker {rank} failed:\n{reply}")
                replies[rank] = reply
        return [replies[rank] for rank in range(len(self._pipes))]

    def _last_words(self, rank: int) -> str:
        lines = (self._said / str(rank)).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return "\n".join(lines[-20:]) or f"exit code {self._processes[rank].wait()}"


def main() -> None:
    """A worker process, from its command line: pipe, threads. Ends when its pipe does, whatever it is doing."""
    import torch
    import torch.distributed as dist

    pipe = Connection(int(sys.argv[1]))
    torch.set_num_threads(int(sys.argv[2]))
    commands: queue.SimpleQueue[tuple[str, dict[str, Any]]] = queue.SimpleQueue()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    threading.Thread(target=_listen, args=(pipe, commands), daemon=True).start()
    pipe.send((True, None))
    while True:
        function, fields = commands.get()
        module, _, name = function.partition(":")
        try:
            reply = (True, getattr(importlib.import_module(module), name)(rank, **fields))
        except BaseException:
            reply = (False, traceback.format_exc())
        pipe.send(reply)


def _listen(pipe: Connection, commands: queue.SimpleQueue[tuple[str, dict[str, Any]]]) -> None:
    with suppress(EOFError, OSError):
        while True:
            commands.put(pipe.recv())
    os._exit(0)


def address_of(rank: int) -> str:
    """This worker's own address, for tests."""
    found = re.search(r"inet (10\.77\.0\.\d+)/", run("ip", "address", "show", INTERFACE))
    return found[1] if found else ""


def seconds_to_send(rank: int, size: int) -> float:
    """From the first worker to the second, so many bytes and a short answer; for tests."""
    import torch
    import torch.distributed as dist

    message, answer = torch.zeros(size, dtype=torch.uint8), torch.zeros(1)
    took = 0.0
    for _ in range(2):  # the first connects
        dist.barrier()
        began = time.perf_counter()
        if rank == 0:
            dist.send(message, 1)
            dist.recv(answer, 1)
        elif rank == 1:
            dist.recv(message, 0)
            dist.send(answer, 0)
        took = time.perf_counter() - began
    return took
