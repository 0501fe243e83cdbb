"""The processes that torchrun has started, on one host or several, as the workers of loops.

Every process runs the same program with the same data, and is itself one worker: it computes its own share of each
loop, and has all results when the loop ends. So whatever a program does between loops, it does on every process alike.
What processes send each other goes over ZeroMQ.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from girih.layout import Mesh
from girih.loop.progress import workers_of
from girih.loop.run.messages import framed, opened
from girih.program import Program
from girih.report.live import LiveView
from girih.run.engines import in_use
from girih.run.engines.crew import Crew, Status
from girih.run.engines.engine import ENGINES, Engine
from girih.run.engines.launcher import Rank, launched_rank
from girih.run.engines.loop_blocks import LoopBlocks
from girih.run.errors import NOT_BEGUN, failure_of
from girih.run.tiles.tiles import nothing
from girih.run.transport.meeting import launched
from girih.run.worker.service import Options, Service


class LoopCrew:
    """This process's worker of parallel loops, and over ZeroMQ all others."""

    carries = False

    def __init__(self, program: Program, options: Options, address: str) -> None:
        """address: of this host, by which the others reach it; "": the one by which it reaches the launcher's.

        Raises:
            TransportError: another rank has not come, or cannot be reached.
        """
        from girih.run.transport.zeromq import ZeroMQTransport

        options.settle_pages()
        meeting = launched("loops", address, options.timeout)
        self.size, self.rank = meeting.size, meeting.rank
        self.program: Program | LoopBlocks = program
        self.mesh = ZeroMQTransport(meeting, options.timeout)
        self._progress = list(NOT_BEGUN)
        self._service = Service(program, self.rank, self.mesh, options, self._progress)

    def command(self, name: str, fields: Sequence[dict[str, Any]]) -> list[Any]:
        """Do this rank's share of a loop; the replies of all ranks.

        Raises:
            WorkerError: this rank failed, or another one did: all are told, and no rank runs another loop.
        """
        with self._told():
            reply = self._service.handle(name, fields[self.rank])
            return [opened(frames) for frames in self.mesh.gather(framed(reply))]

    def agree(self, word: str) -> list[str]:
        """What each rank's driver says.

        Raises:
            WorkerError: another rank failed.
        """
        with self._told():
            return [bytes(frames[0]).decode() for frames in self.mesh.gather([word.encode()])]

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What is raised here the other ranks are told, and that this one has left them."""
        try:
            yield
        except Exception as error:
            failure = failure_of(self.rank, error)
            self.mesh.close(failure.message)
            raise failure.error() from error

    def status(self) -> list[Status]:
        """How far this rank is: the others are not asked."""
        return [Status(self.rank, *self._progress)]

    def close(self, failed: str = "") -> None:
        """Leave the others: at once and with a word if something has failed, else when all want to."""
        self.mesh.close(failed)


class LoopRanks:
    """All processes of a launcher; a context manager in which they are the workers of loops."""

    def __init__(self, own: Rank, timeout: float, progress: bool | None, address: str) -> None:
        self.engine: Engine = ENGINES["torchrun"]
        self.workers = own.size
        self.rank = own.rank
        self.timeout = timeout
        self.address = address
        self.view = LiveView(progress if self.rank == 0 else False)
        self._crew: LoopCrew | None = None

    def crew(self) -> Crew:
        """This process's worker, and its lines to all others, whom it meets when a loop first needs them.

        Raises:
            TransportError: another one has not come, or cannot be reached.
        """
        if self._crew is None:
            program = nothing(Mesh((self.workers,)))
            self._crew = LoopCrew(program, Options(self.timeout, keeps=False), self.address)
        return self._crew

    def watched(self, program: LoopBlocks) -> AbstractContextManager[None]:
        """In which rank 0 shows how far it is."""
        return self.view(lambda began: workers_of(program, self.crew().status(), began))

    def close(self, failed: str = "") -> None:
        """Leave the others; loops are run by this process alone again. failed: why it leaves before they do."""
        self.view.close()
        in_use.end(self)
        if self._crew is not None:
            self._crew.close(failed)
            self._crew = None

    def __enter__(self) -> LoopRanks:
        in_use.begin(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self.close(f"{kind.__name__}: {error}" if kind is not None else "")

    def __repr__(self) -> str:
        return f"<girih rank {self.rank} of {self.workers}>"


def ranks(*, timeout: float = 3600.0, progress: bool | None = None, address: str = "") -> LoopRanks:
    """The processes that torchrun, or another launcher of torch.distributed, has started, as the workers of loops.

    timeout: seconds that a loop may take. progress: rank 0 shows how far it is in a loop that lasts over a second; by
    default on terminals only. address: of this host, by which the others reach it; by default the one by which it
    reaches the launcher's host.

    Raises:
        RuntimeError: no launcher has started this process.
    """
    own = launched_rank()
    if own is None or "MASTER_ADDR" not in os.environ:  # they meet at the launcher's store
        raise RuntimeError("no launcher has started this process: torchrun --nproc-per-node 4 program.py")
    return LoopRanks(own, timeout, progress, address)
