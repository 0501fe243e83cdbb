"""Workers as processes of this host: shared memory between them, and a pipe from the driver to each.

Where memory cannot be shared (not on Linux) gloo carries the messages, over loopback; between GPUs NCCL does.

A worker is a process of its own (`girih.run.engines.fork_server`) that is handed one end of its pipe, so nothing of
the user's main module is run again (no `if __name__ == "__main__"` is needed). Program and store lie in a temporary
directory, in which a mapped file also shows the driver in which instruction every worker is. A worker ends when its
pipe closes, and when the driver dies, whatever it is doing: a thread of it waits for the end of a pipe.
"""

from __future__ import annotations

import mmap
import os
import pickle
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import MutableSequence, Sequence
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

from girih.machine.names import threads_here
from girih.program import Program
from girih.run.engines.crew import Status, first_failure, hanging, resident_bytes, standstill
from girih.run.engines.folders import Folder, new_folder
from girih.run.engines.fork_server import LOOPBACK, Process, launch, say_how_it_ended
from girih.run.engines.loop_blocks import LoopBlocks
from girih.run.engines.stopping import held_back
from girih.run.errors import NOT_BEGUN, ClosedError, Failure, WorkerError, failure_of, where
from girih.run.transport import gloo, shared, wire
from girih.run.transport.group import form, transport_on
from girih.run.transport.transport import NoTransport, Transport
from girih.run.worker.devices import check_device, device_of
from girih.run.worker.service import Options, Service

CELLS = len(NOT_BEGUN)  # of progress, for each worker
START_SECONDS = 120.0  # the least that workers are given to start
GRACE_SECONDS = 1.0  # after a broken exchange, until the one that broke it is known


class ProcessCrew:
    """One process for each device of the program.

    Raises:
        MachineError: they cannot share memory, and gloo finds no network interface; nothing has begun then.
        WorkerError: one could not start.
    """

    rank = 0

    def __init__(self, program: Program, options: Options) -> None:
        self.program: Program | LoopBlocks = program
        self.timeout = options.timeout
        self.size = program.mesh.devices
        check_device(options.device, self.size)
        options = replace(options, threads=options.threads or threads_here(self.size))
        shares = options.device == "cpu" and self.size > 1 and shared.available()
        if self.size > 1 and not shares:
            gloo.check_interface(LOOPBACK)
        self.broken: WorkerError | ClosedError | None = None
        self._turn = threading.Lock()
        folder = new_folder("run")
        self.directory = folder.path
        self.processes: list[Process] = []
        self._pipes: list[Connection] = []
        life, self._life = os.pipe()
        files = shared.Files.made(self.size) if shares else None
        self.carries = shares
        self._finalizer = weakref.finalize(self, _end, os.getpid(), self.processes, self._pipes, self._life, folder)
        try:
            self._progress = _progress_file(self.directory, self.size)
            (self.directory / "program.pickle").write_bytes(pickle.dumps((program, options), protocol=5))
            for rank in range(self.size):
                self._start(rank, life, options, files)
            self._gather("start", max(options.timeout, START_SECONDS))
        except BaseException:
            self.close()
            raise
        finally:
            os.close(life)
            if files is not None:
                files.close()

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def command(self, name: str, fields: Sequence[dict[str, Any]]) -> list[Any]:
        """Have every worker do a command, each with its own fields; their replies by rank. Of several threads one has
        its command done at a time.

        Raises:
            WorkerError: one failed, died, or took longer than the timeout; all workers are then gone.
            ClosedError: the crew was closed.
        """
        with self._turn:
            if self.broken is not None:
                raise self.broken
            try:
                for rank, (pipe, own) in enumerate(zip(self._pipes, fields, strict=True)):
                    try:
                        wire.send(pipe, (name, own))
                    except BlockingIOError:
                        why = standstill(self.pids[rank])
                        reason = f"took no command for {self.timeout:g} s{f': {why}' if why else ''}"
                        self._break(WorkerError(rank, self._where(rank), reason, lost=True))
                    except OSError:
                        self._break(self._died(rank))
                return self._gather(name, self.timeout)
            except WorkerError:
                raise
            except BaseException:  # also KeyboardInterrupt: replies would no longer match commands
                reason = "was stopped, because the driver was interrupted"
                self.broken = WorkerError(0, self._where(0), reason, lost=True)
                self.close()
                raise

    def status(self) -> list[Status]:
        return [replace(self._status(rank), resident=resident_bytes(pid)) for rank, pid in enumerate(self.pids)]

    def close(self) -> None:
        self.broken = self.broken or ClosedError()
        with held_back():
            self._finalizer()

    def _start(self, rank: int, life: int, options: Options, files: shared.Files | None) -> None:
        ours, theirs = Pipe()
        _limit_waiting(ours, self.timeout)
        common = () if files is None else files.all
        with theirs:
            open_files = (theirs.fileno(), life, *common)
            self.processes.append(launch([str(rank), str(self.directory)], open_files, options.threads))
        self._pipes.append(ours)

    def _gather(self, name: str, timeout: float) -> list[Any]:
        replies: dict[int, Any] = {}
        failures: list[Failure] = []
        pending = {pipe: rank for rank, pipe in enumerate(self._pipes)}
        deadline = time.monotonic() + timeout
        while pending:
            ready = wait(list(pending), timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            for pipe in ready:
                assert isinstance(pipe, Connection)
                rank = pending.pop(pipe)
                try:
                    reply = wire.receive(pipe)
                except (EOFError, OSError):
                    self._break(self._died(rank))
                if not isinstance(reply, Failure):
                    replies[rank] = reply
                    continue
                failures.append(reply)
                if not reply.in_transfer:
                    self._break(reply.error())
                deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
        if failures:
            self._break(first_failure(failures).error())
        if pending:
            pids = {rank: self.pids[rank] for rank in pending.values()}
            late, why = hanging(self.program, [self._status(rank) for rank in pids], pids)
            reason = f"did not finish {name!r} within {timeout:g} s; {why}"
            self._break(WorkerError(late.rank, where(self.program, late.step), reason, lost=True))
        return [replies[rank] for rank in range(self.size)]

    def _status(self, rank: int) -> Status:
        return Status(rank, *self._progress[CELLS * rank : CELLS * rank + CELLS])

    def _where(self, rank: int) -> Any:
        return where(self.program, self._status(rank).step)

    def _died(self, rank: int) -> WorkerError:
        place = self._where(rank)
        try:
            code = self.processes[rank].wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            return WorkerError(rank, place, standstill(self.pids[rank]) or "closed its pipe", lost=True)
        return WorkerError(rank, place, say_how_it_ended(code), lost=True)

    def _break(self, error: WorkerError) -> None:
        self.broken = error
        for process in self.processes:
            process.kill()
        self.close()
        raise error


def _end(owner: int, processes: list[Process], pipes: list[Connection], life: int, folder: Folder) -> None:
    """Leave no process and no file behind: closed pipes end the workers, and who does not end is killed."""
    if os.getpid() != owner:  # a fork of the driver owns nothing
        return
    for pipe in pipes:
        pipe.close()
    os.close(life)
    deadline = time.monotonic() + 2.0
    for process in processes:
        try:
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
    for process in processes:
        process.wait()
    folder.close()


def _limit_waiting(pipe: Connection, seconds: float) -> None:
    """A stopped worker must not block the driver: reads and writes of its pipe give up."""
    limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
    with socket.socket(fileno=os.dup(pipe.fileno())) as handle:
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


def _progress_file(directory: Path, workers: int) -> MutableSequence[int]:
    """The cells of all workers as shared memory."""
    path = directory / "progress"
    if not path.exists():
        path.write_bytes(struct.pack("qqq", *NOT_BEGUN) * workers)
    with path.open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 0)).cast("q")  # type: ignore[return-value]


# ------------------------------------------------------------------------------------------- in the worker


def main(arguments: Sequence[str] | None = None) -> None:
    """A worker process, from its command line: rank, directory, pipe, pipe of life, and the files that are shared."""
    arguments = sys.argv[1:] if arguments is None else arguments
    rank, directory = int(arguments[0]), Path(arguments[1])
    pipe = Connection(int(arguments[2]))
    threading.Thread(target=_die_with_driver, args=(int(arguments[3]), directory), daemon=True).start()
    try:
        program, options = pickle.loads((directory / "program.pickle").read_bytes())
        service = _service(program, rank, options, directory, [int(number) for number in arguments[4:]])
        reply: Any = None
    except BaseException as error:
        _say(pipe, failure_of(rank, error))
        os._exit(1)
    while _say(pipe, reply):
        del reply
        try:
            name, fields = wire.receive(pipe)
        except (EOFError, OSError):
            break
        try:
            reply = service.handle(name, fields)
        except BaseException as error:
            _say(pipe, failure_of(rank, error))
            os._exit(1)
        del fields
    _leave(directory)


def _service(program: Program, rank: int, options: Options, directory: Path, files: Sequence[int]) -> Service:
    import torch

    options.settle_pages()
    workers = program.mesh.devices
    torch.set_num_threads(options.threads)
    device = device_of(options.device, rank, workers)
    # The driver's deadline comes first, so that it can name the worker that the others wait for.
    limit = options.timeout * 1.5 + 1.0
    transport: Transport = NoTransport()
    if files:
        transport = shared.SharedTransport(shared.Files(files[0], tuple(files[1:])), rank, limit)
    elif workers > 1:
        import torch.distributed as dist

        store = dist.FileStore(str(directory / "store"), workers)
        form(device, store=store, rank=rank, world_size=workers, timeout=timedelta(seconds=limit))
        transport = transport_on(device)
    progress = _progress_file(directory, workers)[CELLS * rank : CELLS * rank + CELLS]
    own = replace(options, device=str(device))
    return Service(program, rank, transport, own, progress)


def _say(pipe: Connection, reply: Any) -> bool:
    try:
        wire.send(pipe, reply)
    except OSError:
        return False
    return True


def _die_with_driver(life: int, directory: Path) -> None:
    os.read(life, 1)  # returns when the driver has closed it, or is gone
    _leave(directory)


def _leave(directory: Path) -> None:
    """End, because the driver has closed its pipes or is gone; in case it is gone, its files go too."""
    shutil.rmtree(directory, ignore_errors=True)
    os._exit(0)
