"""Workers that torchrun (or any other launcher of torch.distributed) has started: every rank runs the same script.

On each rank the same `Run` is driven by the same calls; a command is done by the rank's own worker, and the replies
are gathered on all ranks: what is said as objects, large tensors one after another, each from the rank that has it. A
rank that fails raises, its process ends, and the launcher ends the others.

On GPUs (LOCAL_RANK says which is whose) steps exchange by NCCL, and replies go through the host's memory by gloo; a
group that the user has formed may know NCCL alone, and replies then pass through the GPU, one tensor at a time.

The steps of plans exchange tensors by torch.distributed. Parallel loops have a crew of their own
(`girih.loop.ranks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from girih.program import Program
from girih.run.engines.crew import Status
from girih.run.engines.launcher import fits, launched_rank, local_rank
from girih.run.engines.loop_blocks import LoopBlocks
from girih.run.errors import NOT_BEGUN, ClosedError, TransportError, failure_of
from girih.run.transport import gloo
from girih.run.transport.group import form, gathered, transport_on
from girih.run.transport.meeting import launched
from girih.run.transport.transport import NoTransport, Transport
from girih.run.worker.devices import device_of
from girih.run.worker.service import Options, Service


class RankCrew:
    """This process's worker, and through the process group all others."""

    carries = False

    def __init__(self, program: Program, options: Options) -> None:
        """Raises ValueError: there are more or fewer ranks than devices, or nobody has launched this process; no group
        is formed then. WorkerError: the others have not come."""
        import torch.distributed as dist

        rank = launched_rank()
        if rank is None:
            raise ValueError("no launcher has started this process: torchrun --nproc-per-node 4 program.py")
        fits(rank, program.mesh.devices)
        options.settle_pages()
        here = local_rank(rank)
        device = device_of(options.device, here.rank, here.size)
        self.size, self.rank = rank.size, rank.rank
        self.program: Program | LoopBlocks = program
        self._closed = False
        self._progress = list(NOT_BEGUN)
        self._started = not dist.is_initialized()
        if self._started:
            _join(self.rank, device, options.timeout)
        try:
            transport: Transport = transport_on(device) if self.size > 1 else NoTransport()
            own = replace(options, device=str(device))
            self._service = Service(program, self.rank, transport, own, self._progress)
        except BaseException:
            self.close()
            raise

    def command(self, name: str, fields: Sequence[dict[str, Any]]) -> list[Any]:
        """Do this rank's share; the replies of all ranks.

        Raises:
            WorkerError: this rank failed.
            ClosedError: the crew was closed.
        """
        if self._closed:
            raise ClosedError

        try:
            reply = self._service.handle(name, fields[self.rank])
        except Exception as error:
            raise failure_of(self.rank, error).error() from error
        return gathered(reply, self.rank, self.size)

    def agree(self, word: str) -> list[str]:
        """What each rank's driver says."""
        import torch.distributed as dist

        if self._closed:
            raise ClosedError
        words = [""] * self.size
        dist.all_gather_object(words, word)
        return words

    def status(self) -> list[Status]:
        """How far this rank is: the others are not asked."""
        return [Status(self.rank, *self._progress)]

    def close(self) -> None:
        import torch.distributed as dist

        self._closed = True
        if self._started and dist.is_initialized():
            self._started = False
            dist.destroy_process_group()


def _join(rank: int, device: Any, seconds: float) -> None:
    """Form the group of all ranks; for a process, this may be the second.

    Raises:
        MachineError: gloo has no interface to send over. WorkerError: the others have not come.
    """
    try:
        # The launcher's store still has the addresses of groups that were left: each group has a part of its own.
        meeting = launched("plans", "", seconds)
        with gloo.reached_at(meeting.address):
            gloo.check_interface()
            limit = timedelta(seconds=seconds)
            form(device, timeout=limit, store=meeting.store, rank=meeting.rank, world_size=meeting.size)
    except RuntimeError as error:
        raise failure_of(rank, TransportError(f"the ranks have not met: {error}")).error() from error
