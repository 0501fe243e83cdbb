"""Workers that torchrun (or any other launcher of torch.distributed) has started: every rank runs the same script.

On each rank the same `Run` is driven by the same calls; a command is done by the rank's own worker, and the replies
are gathered on all ranks. A rank that fails raises, its process ends, and the launcher ends the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from girih.lower import Program
from girih.run.engines.crew import Status
from girih.run.errors import NOT_BEGUN, ClosedError, failure_of
from girih.run.parallel.progress import LoopBlocks
from girih.run.transport.transport import GroupTransport, NoTransport, Transport
from girih.run.worker.service import Options, Service


class RankCrew:
    """This process's worker, and through the process group all others."""

    carries = False

    def __init__(self, program: Program, options: Options) -> None:
        import torch
        import torch.distributed as dist

        options.settle_pages()
        device = torch.device(options.device)
        self._closed = False
        self._started = not dist.is_initialized()
        if self._started:
            backend = "nccl" if device.type == "cuda" else "gloo"
            dist.init_process_group(backend, timeout=timedelta(seconds=options.timeout))
        self.size, self.rank = dist.get_world_size(), dist.get_rank()
        if self.size != program.mesh.devices:
            raise ValueError(
                f"{self.size} ranks were started, the program is for {program.mesh.devices} devices: start as many "
                f"ranks (--nproc-per-node times --nnodes), or plan for {self.size}"
            )
        if device.type == "cuda":
            device = torch.device("cuda", self.rank % torch.cuda.device_count())
            torch.cuda.set_device(device)
        transport: Transport = GroupTransport() if self.size > 1 else NoTransport()
        self.program: Program | LoopBlocks = program
        own = replace(options, device=str(device))
        self._progress = list(NOT_BEGUN)
        self._service = Service(program, self.rank, transport, own, self._progress)

    def command(self, name: str, fields: Sequence[dict[str, Any]]) -> list[Any]:
        """Do this rank's share; the replies of all ranks.

        Raises:
            WorkerError: this rank failed.
            ClosedError: the crew was closed.
        """
        import torch.distributed as dist

        if self._closed:
            raise ClosedError

        try:
            reply = self._service.handle(name, fields[self.rank])
        except Exception as error:
            raise failure_of(self.rank, error).error() from error
        replies: list[Any] = [None] * self.size
        dist.all_gather_object(replies, reply)
        return replies

    def status(self) -> list[Status]:
        """Of this rank alone."""
        return [Status(self.rank, *self._progress)]

    def close(self) -> None:
        import torch.distributed as dist

        self._closed = True
        if self._started and dist.is_initialized():
            self._started = False
            dist.destroy_process_group()
