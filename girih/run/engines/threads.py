"""Workers as threads of this process: no start-up, no copies between them; PyTorch releases the interpreter in kernels.

What a single worker does in a moment is done in the thread that asks for it: to wake another one takes longer than
most small work.

A thread cannot be killed: one that hangs inside a kernel is left behind (it is a daemon), and the run is over. Ctrl-C
stops the others wherever they are (`girih.run.engines.stopping`).
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, TypeVar

import torch

from girih.graph import Graph
from girih.program import Program
from girih.run.engines.crew import Status, culprit, first_failure
from girih.run.engines.loop_blocks import LoopBlocks
from girih.run.engines.stopping import WorkerThread, held_back, stop
from girih.run.errors import IDLE, NOT_BEGUN, ClosedError, Failure, WorkerError, failure_of, where
from girih.run.tiles.store import TileStore
from girih.run.transport.transport import NoTransport, ThreadHub, ThreadTransport, Transport
from girih.run.worker.devices import device_of
from girih.run.worker.service import Options, Service

QUICK_BYTES = 1 << 24
"""A program of fewer bytes, all values together, and without functions of users is done in a moment."""
Result = TypeVar("Result")
_Command = tuple[str, dict[str, Any]] | None


def quick(graph: Graph) -> bool:
    """Is it done in a moment, whatever the user wrote?"""
    if any(name == "function" for node in graph.nodes for name, _ in node.arguments):
        return False
    return sum(value.bytes for value in graph.values.values()) < QUICK_BYTES


class _KernelThreads:
    """In which this thread computes with so many threads for kernels."""

    __slots__ = ("count", "own")

    def __init__(self, count: int) -> None:
        self.count = count

    def __enter__(self) -> None:
        self.own = torch.get_num_threads()
        if self.own != self.count:
            torch.set_num_threads(self.count)

    def __exit__(self, *_: object) -> None:
        if self.own != self.count:
            torch.set_num_threads(self.own)


class ThreadCrew:
    """One thread for each device of the program."""

    carries = True
    rank = 0

    def __init__(self, program: Program, options: Options) -> None:
        self.program: Program | LoopBlocks = program
        self.timeout = options.timeout
        self.size = program.mesh.devices
        # The driver's own deadline names who hangs; waiting threads give up a little later.
        self.hub = ThreadHub(self.size, options.timeout * 1.5 + 1.0)
        self.progress = [list(NOT_BEGUN) for _ in range(self.size)]
        self.broken: WorkerError | ClosedError | None = None
        self._turn = Lock()
        self.services: list[Service | None] = [None] * self.size
        self._quick: tuple[Program | LoopBlocks, bool] = (program, False)
        self._replies: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._commands: list[queue.SimpleQueue[_Command]] = [queue.SimpleQueue() for _ in range(self.size)]
        # A new thread computes with as many threads as whoever set a number last, in whichever thread that was: so each
        # worker says its own, and this thread's number is then again that of threads to come.
        own = torch.get_num_threads()
        options = replace(options, threads=options.threads or own)
        self._kernel_threads = options.threads
        self._threads = [
            WorkerThread(
                self._serve, (program, rank, options), name=f"girih worker {rank}", wake=partial(commands.put, None)
            )
            for rank, commands in enumerate(self._commands)
        ]
        try:
            for thread in self._threads:
                thread.start()
            self._gather("start", max(options.timeout, 120.0))
        except BaseException:
            self.close()
            raise
        finally:
            torch.set_num_threads(own)

    def command(self, name: str, fields: Sequence[dict[str, Any]]) -> list[Any]:
        """Have every worker do a command, each with its own fields; their replies by rank. Of several threads one has
        its command done at a time.

        Raises:
            WorkerError: one failed or took longer than the timeout; the crew is then broken.
            ClosedError: the crew was closed.
        """
        with self._turn:
            if self.broken is not None:
                raise self.broken
            try:
                if self.size == 1 and name in ("evaluate", "fetch") and self._is_quick():
                    return [self._here(name, fields[0])]
                for commands, own in zip(self._commands, fields, strict=True):
                    commands.put((name, own))
                del fields
                return self._gather(name, self.timeout)
            except WorkerError:
                raise
            except BaseException:  # also KeyboardInterrupt: replies would no longer match commands
                reason = "was stopped, because the driver was interrupted"
                self.broken = WorkerError(0, where(self.program, IDLE), reason, lost=True)
                self.close()
                raise

    def _is_quick(self) -> bool:
        """Is the program under way done in a moment, whatever the user wrote? Looked at once for each program."""
        program, done_soon = self._quick
        if program is not self.program:
            program = self.program
            done_soon = isinstance(program, Program) and quick(program.graph)
            self._quick = program, done_soon
        return done_soon

    def _here(self, name: str, fields: dict[str, Any]) -> Any:
        """A command of the only worker, in this thread, with as many threads for kernels as the worker's has."""
        service = self.services[0]
        assert service is not None
        try:
            with _KernelThreads(self._kernel_threads), self.hub.board.working():
                return service.handle(name, fields)
        except Exception as error:
            self._break(failure_of(0, error).error())

    def at_hand(self, compute: Callable[[TileStore], Result]) -> Result:
        """What a function makes of the only worker's tiles, computed in this thread in the worker's place. If it fails,
        nothing is broken.

        Raises:
            WorkerError, ClosedError: the crew is broken.
        """
        with self._turn:
            if self.broken is not None:
                raise self.broken
            (service,) = self.services
            assert service is not None
            with _KernelThreads(self._kernel_threads):
                return compute(service.store)

    def status(self) -> list[Status]:
        """How far each thread is, read from the memory that all share."""
        return [Status(rank, *cells) for rank, cells in enumerate(self.progress)]

    def close(self) -> None:
        failed, self.broken = self.broken is not None, self.broken or ClosedError()
        with held_back():
            self.hub.abort()
            stop(self._threads, 1.0 if failed else 5.0)
            self.services = [None] * self.size  # their memory goes now, not when somebody collects cycles

    def _gather(self, name: str, timeout: float) -> list[Any]:
        replies: dict[int, Any] = {}
        failures: list[Failure] = []
        deadline = time.monotonic() + timeout
        while len(replies) + len(failures) < self.size:
            try:
                rank, reply = self._replies.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            if isinstance(reply, Failure):
                if not failures:
                    self.hub.abort()
                    deadline = min(deadline, time.monotonic() + 2.0)
                failures.append(reply)
            else:
                replies[rank] = reply
        if failures:
            self._break(first_failure(failures).error())
        late = [status for status in self.status() if status.rank not in replies]
        if late:
            slow = culprit(self.program, late)
            reason = f"did not finish {name!r} within {timeout:g} s; it hangs"
            self._break(WorkerError(slow.rank, where(self.program, slow.step), reason, lost=True))
        return [replies[rank] for rank in range(self.size)]

    def _break(self, error: WorkerError) -> None:
        self.broken = error
        self.close()
        raise error

    def _serve(self, program: Program, rank: int, options: Options) -> None:
        try:
            torch.set_num_threads(options.threads)
            options = replace(options, device=str(device_of(options.device, rank, self.size, shares=True)))
            transport: Transport = NoTransport() if self.size == 1 else ThreadTransport(self.hub, rank)
            service = Service(program, rank, transport, options, self.progress[rank])
            self.services[rank] = service
        except BaseException as error:
            self._replies.put((rank, failure_of(rank, error)))
            return
        self._replies.put((rank, None))
        while (received := self.hub.board.next(self._commands[rank])) is not None:
            name, fields = received
            del received
            try:
                with self.hub.board.working():
                    reply = service.handle(name, fields)
            except BaseException as error:
                self._replies.put((rank, failure_of(rank, error)))
                return
            self._replies.put((rank, reply))
            del reply, fields
