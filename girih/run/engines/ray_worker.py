"""A worker in a Ray actor: the same Service as in a thread or a process, and its place in a process group of gloo.

The group is formed by the driver, and again whenever a worker was lost. A worker that fails leaves the group: its
peers then fail in their exchanges at once in place of waiting for it. Parallel loops send over ZeroMQ
(`girih.run.transport.mesh`), as soon as the first one runs; who leaves the group leaves these lines too.
"""

from __future__ import annotations

import os
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from girih.run.engines.crew import resident_bytes
from girih.run.engines.ray_connect import imported
from girih.run.errors import NOT_BEGUN, Failure, failure_of
from girih.run.transport import gloo, wire
from girih.run.transport.meeting import Meeting
from girih.run.transport.transport import GroupTransport, NoTransport, Transport
from girih.run.worker.service import Service

if TYPE_CHECKING:
    from girih.run.transport.mesh import Mesh

WATCH = "watch"
"""The concurrency group of what must be answered while the worker computes."""


class RayWorker:
    """What the actor is. identity: of this process; another one after a restart, which has lost everything."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.identity = uuid.uuid4().hex
        self.progress = list(NOT_BEGUN)
        self.rendezvous: Any = None
        self.service: Service | None = None
        self.meeting: Meeting | None = None
        self.lines: Mesh | None = None
        self.timeout = 0.0

    def identify(self) -> tuple[str, str, int]:
        """Who this is, on which host, in which process."""
        return self.identity, _address(), os.getpid()

    def open(self) -> tuple[str, int]:
        """Rank 0: where the others meet, for the group that is formed next."""
        from torch.distributed import TCPStore

        self.rendezvous = TCPStore(_address(), 0, None, True, wait_for_workers=False)
        return _address(), self.rendezvous.port

    def join(self, content: wire.Packed, host: str, port: int) -> None:
        """Form the group, all workers at once. content: the crew's program and its Options."""
        import torch
        import torch.distributed as dist
        from torch.distributed import TCPStore

        program, options = wire.unpack(content)
        options.settle_pages()
        torch.set_num_threads(options.threads or 1)  # of the kernels that the calling thread, the actor's, asks for
        workers = program.mesh.devices
        transport: Transport = NoTransport()
        if workers > 1:
            self.leave()
            if interface := gloo.interface_of(_address()):
                os.environ.setdefault(gloo.INTERFACE, interface)
            store = self.rendezvous if self.rank == 0 else TCPStore(host, port, None, False)
            # The driver's deadline comes first, so that it can name the worker that the others wait for.
            self.timeout = options.timeout * 1.5 + 1.0
            limit = timedelta(seconds=self.timeout)
            dist.init_process_group("gloo", store=store, rank=self.rank, world_size=workers, timeout=limit)
            transport = GroupTransport()
            self.meeting = Meeting(dist.PrefixStore("loops", store), self.rank, workers, _address())
        if self.service is None:  # a transport speaks through whatever group there is
            lines = self.loop_lines if workers > 1 else None
            self.service = Service(program, self.rank, transport, options, self.progress, lines)

    def loop_lines(self) -> Transport:
        """To the others, for parallel loops: made when all run their first, in this group.

        Raises:
            TransportError: another worker cannot be reached.
        """
        from girih.run.transport.mesh import Mesh

        if self.lines is None:
            assert self.meeting is not None
            self.lines = Mesh(self.meeting, self.timeout)
        return self.lines

    def leave(self, why: str = "it left, to meet again") -> None:
        import torch.distributed as dist

        if self.lines is not None:
            self.lines.close(why)
            self.lines = None
        if dist.is_initialized():
            dist.destroy_process_group()

    def handle(self, name: str, fields: wire.Packed) -> wire.Packed | Failure:
        """Do a command (a method of Service)."""
        try:
            if self.service is None:
                raise RuntimeError("the worker has not joined the others")
            return wire.pack(self.service.handle(name, wire.unpack(fields)))
        except Exception as error:
            failure = failure_of(self.rank, error)
            self.leave(failure.message)
            return failure

    def status(self) -> tuple[int, ...]:
        """Its progress (`girih.run.errors.NOT_BEGUN`), and the bytes of its memory."""
        return *self.progress, resident_bytes()


def _address() -> str:
    """Of this host, as the other nodes know it."""
    return str(imported().util.get_node_ip_address())
