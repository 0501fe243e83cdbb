"""The processes that torchrun has started as the workers of parallel loops.

Loops have many messages between two ranks at a time, and send them over ZeroMQ; of torch.distributed they need only
its store, to find each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from girih.loop.run.messages import framed, opened
from girih.program import Program
from girih.run.engines.crew import Status
from girih.run.engines.loop_blocks import LoopBlocks
from girih.run.errors import NOT_BEGUN, failure_of
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
