"""The processes that torchrun has started, on one host or several, as the workers of loops.

Every process runs the same program with the same data, and is itself one worker: it computes its own share of each
loop, and has all results when the loop ends. So whatever a program does between loops, it does on every process alike.
What processes send each other goes over ZeroMQ.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager

from girih.layout import Mesh
from girih.loop.progress import workers_of
from girih.loop.run.crew import LoopCrew
from girih.report.live import LiveView
from girih.run.engines import in_use
from girih.run.engines.crew import Crew
from girih.run.engines.engine import ENGINES, Engine
from girih.run.engines.launcher import Rank, launched_rank
from girih.run.engines.loop_blocks import LoopBlocks
from girih.run.tiles.tiles import nothing
from girih.run.worker.service import Options


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
