"""Workers as Ray actors, one each, spread over the nodes: Ray starts, places, watches and restarts them.

Commands go to actors by Ray; tensors go from worker to worker by torch.distributed (gloo), in a group that the driver
forms when all actors are there, and again after one was lost. Those that live keep what they hold. A worker that fails
leaves the group: its peers then fail in their exchanges at once in place of waiting for it. Parallel loops send over
ZeroMQ (`girih.run.transport.zeromq`), as soon as the first one runs; who leaves the group leaves these lines too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any

from girih.program import Program
from girih.run.engines.crew import Status, first_failure, hanging, resident_bytes
from girih.run.engines.loop_blocks import LoopBlocks
from girih.run.engines.ray_connect import RayUnavailableError, imported
from girih.run.errors import IDLE, NOT_BEGUN, ClosedError, Failure, WorkerError, failure_of, where
from girih.run.transport import gloo, wire
from girih.run.transport.meeting import Meeting
from girih.run.transport.transport import GroupTransport, NoTransport, Transport
from girih.run.worker.service import Options, Service

if TYPE_CHECKING:
    from girih.run.transport.zeromq import ZeroMQTransport

LOOK_SECONDS = 0.2  # between looks at the replies that are there
WATCH_SECONDS = 1.0  # between questions how far the workers are
GRACE_SECONDS = 5.0  # after a broken exchange, until the one that broke it is known; Ray takes over a second to say it
SETTLE_SECONDS = 10.0  # for workers to notice that a peer is gone
WATCH = "watch"
"""The concurrency group of what must be answered while the worker computes."""


@dataclass(frozen=True)
class RayOptions(Options):
    """cpus: processors that Ray reserves for a worker. start: seconds until all workers are there. silence: seconds
    without an answer to the question how far it is, after which a worker counts as hanging; `timeout` holds as well."""

    cpus: float = 1.0
    start: float = 120.0
    silence: float = 60.0


class RayCrew:
    """One actor for each device of the program, on the cluster that this process is connected to.

    Raises:
        RayUnavailableError: the cluster has no room for the workers.
        WorkerError: a worker could not start.
    """

    carries = False
    rank = 0

    def __init__(self, program: Program, options: Options) -> None:
        self.ray = imported()
        self.program: Program | LoopBlocks = program
        self.options = options if isinstance(options, RayOptions) else RayOptions(**vars(options))
        self.timeout = options.timeout
        self.size = program.mesh.devices
        self.broken: WorkerError | ClosedError | None = None
        self._turn = Lock()
        self.seen = [Status(rank, 0, IDLE) for rank in range(self.size)]
        self.places: list[tuple[str, str, int]] = []  # by rank: identity, address of the node, process
        self.group: Any = None
        self.actors: list[Any] = []
        self._pending: dict[Any, int] = {}
        self._content = wire.pack((program, self.options))
        try:
            self._reserve()
            self._hire()
            self.places = self._identify()
            self._form()
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        return [pid for _, _, pid in self.places]

    def command(self, name: str, fields: Sequence[dict[str, Any]]) -> list[Any]:
        """Have every worker do a command, each with its own fields; their replies by rank. Of several threads one has
        its command done at a time.

        Raises:
            WorkerError: one failed, died, or took longer than the timeout; the crew may be mended (`mend`).
            ClosedError: the crew was closed.
        """
        with self._turn:
            if self.broken is not None:
                raise self.broken
            try:
                packed = [wire.pack(own) for own in fields]
                return [wire.unpack(reply) for reply in self._ask(name, "handle", [(name, own) for own in packed])]
            except WorkerError as error:
                if name == "loop" and not error.lost:
                    self._go_on(error)
                raise
            except BaseException:  # also KeyboardInterrupt: workers that wait for each other are within a command
                reason = "was stopped with the driver's command"
                self.broken = WorkerError(0, where(self.program, IDLE), reason, lost=True)
                self._end_command()
                raise

    def mend(self) -> list[int]:
        """Wait until all workers are there again and form their group anew; those that have lost what they held.

        Raises:
            WorkerError: there is no worker in time.
        """
        self._settle()
        before = self.places
        self.places = self._identify()
        self._form()
        self.broken = None
        return [rank for rank in range(self.size) if before[rank][0] != self.places[rank][0]]

    def _go_on(self, error: WorkerError) -> None:
        """The body of a loop raised an error: nothing was made, and the workers keep what they hold. Without this, a
        cluster that girih has started would be started again, which takes ten seconds. An evaluation that failed may
        have left arrays with the workers: its crew stays broken."""
        with contextlib.suppress(WorkerError, self.ray.exceptions.RayError):
            if self.mend():
                self.broken = error

    def status(self) -> list[Status]:
        """How far the workers were when they were last asked, which is about once in a second."""
        return list(self.seen)

    def close(self) -> None:
        """End all workers. May be called again."""
        self.broken = self.broken or ClosedError()
        if not self.ray.is_initialized():
            return
        for actor in self.actors:
            self.ray.kill(actor)
        self.actors = []
        if self.group is not None:
            from ray.util.placement_group import remove_placement_group

            remove_placement_group(self.group)
            self.group = None

    # --------------------------------------------------------------------------------------- the beginning

    def _reserve(self) -> None:
        """A bundle of processors for each worker, on as many nodes as there are."""
        from ray.util.placement_group import placement_group

        self.group = placement_group([{"CPU": self.options.cpus}] * self.size, strategy="SPREAD")
        if not self.group.wait(self.options.start):
            processors = self.ray.cluster_resources().get("CPU", 0.0)
            free = self.ray.available_resources().get("CPU", 0.0)
            raise RayUnavailableError(
                f"Ray found no room for {self.size} workers of {self.options.cpus:g} processors within "
                f"{self.options.start:g} s: the cluster has {processors:g}, of which {free:g} are free; "
                "ask for fewer workers, or fewer cpus for each"
            )

    def _hire(self) -> None:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        nodes = self.ray.util.placement_group_table(self.group)["bundles_to_node_id"]
        bundles = sorted(range(self.size), key=lambda bundle: (nodes[bundle], bundle))  # neighbours on one node
        self.ray.method(concurrency_group=WATCH)(RayWorker.status)  # a client of Ray takes no group with the call
        actor = self.ray.remote(concurrency_groups={WATCH: 1}, max_restarts=-1)(RayWorker)
        for rank, bundle in enumerate(bundles):
            strategy = PlacementGroupSchedulingStrategy(self.group, bundle)
            options = actor.options(num_cpus=self.options.cpus, scheduling_strategy=strategy)
            self.actors.append(options.remote(rank))

    def _identify(self) -> list[tuple[str, str, int]]:
        """Ask all workers who they are, until all answer."""
        deadline = time.monotonic() + self.options.start
        places: list[tuple[str, str, int]] = []
        for rank, actor in enumerate(self.actors):
            while True:
                left = deadline - time.monotonic()
                try:
                    places.append(self.ray.get(actor.identify.remote(), timeout=max(left, 0.1)))
                    break
                except self.ray.exceptions.ActorUnavailableError:  # it is being restarted
                    if left <= 0:
                        raise self._not_there(rank) from None
                    time.sleep(0.05)
                except self.ray.exceptions.GetTimeoutError:
                    raise self._not_there(rank) from None
                except self.ray.exceptions.RayError as error:
                    raise self._lost(rank, f"could not be started by Ray ({_said(error)})") from None
        return places

    def _form(self) -> None:
        if self.size > 1:
            try:
                host, port = self.ray.get(self.actors[0].open.remote(), timeout=self.options.start)
            except self.ray.exceptions.RayError as error:
                raise self._lost(0, f"did not open a meeting place ({_said(error)})") from None
        else:
            host, port = "", 0
        self._ask("join", "join", [(self._content, host, port)] * self.size, max(self.options.start, self.timeout))

    # --------------------------------------------------------------------------------------- commands

    def _ask(self, name: str, method: str, arguments: Sequence[tuple[Any, ...]], timeout: float = 0.0) -> list[Any]:
        self._pending = {
            getattr(actor, method).remote(*own): rank
            for rank, (actor, own) in enumerate(zip(self.actors, arguments, strict=True))
        }
        return self._gather(name, timeout or self.timeout)

    def _gather(self, name: str, timeout: float) -> list[Any]:
        replies: dict[int, Any] = {}
        failures: list[Failure] = []
        began = time.monotonic()
        deadline = began + timeout
        watch = _Watch(self, began)
        while self._pending and time.monotonic() < deadline:
            waiting = list(self._pending)
            ready, _ = self.ray.wait(waiting, num_returns=len(waiting), timeout=LOOK_SECONDS)
            for reference in ready:
                rank = self._pending.pop(reference)
                try:
                    reply = self.ray.get(reference)
                except self.ray.exceptions.RayError as error:
                    self._break(self._lost(rank, f"died ({_said(error)})"))
                if not isinstance(reply, Failure):
                    replies[rank] = reply
                    continue
                failures.append(reply)
                if not reply.in_transfer:
                    self._break(reply.error())
                deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
            silent = watch.silent(set(self._pending.values()))
            if silent is not None:
                _, why = self._hanging([silent])
                self._break(self._hangs(silent, f"has not said for {self.options.silence:g} s how far it is; {why}"))
        if failures:
            self._break(first_failure(failures).error())
        if self._pending:
            late, why = self._hanging(list(self._pending.values()))
            self._break(self._hangs(late.rank, f"did not finish {name!r} within {timeout:g} s; {why}"))
        return [replies[rank] for rank in range(self.size)]

    def _hanging(self, ranks: Sequence[int]) -> tuple[Status, str]:
        """Who of these is to blame, and why; of processes on other nodes only how far they came is known."""
        here = {rank: self.places[rank][2] for rank in ranks if self.places and self._is_here(rank)}
        return hanging(self.program, [self.seen[rank] for rank in ranks], here)

    def _is_here(self, rank: int) -> bool:
        return bool(self.places[rank][1] == self.ray.util.get_node_ip_address())

    def _hangs(self, rank: int, reason: str) -> WorkerError:
        self._kill(rank)
        return self._lost(rank, reason)

    def _kill(self, rank: int) -> None:
        """End a worker's process; Ray starts another."""
        if self._is_here(rank):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.places[rank][2], signal.SIGKILL)  # at once, also if it is stopped; Ray waits for seconds
                return
        self.ray.kill(self.actors[rank], no_restart=False)

    def _lost(self, rank: int, reason: str) -> WorkerError:
        node = f" on {self.places[rank][1]}" if self.places else ""
        return WorkerError(rank, where(self.program, self.seen[rank].step), f"{reason}{node}", lost=True)

    def _not_there(self, rank: int) -> WorkerError:
        return self._lost(rank, f"was not there {self.options.start:g} s after Ray was asked for it")

    def _break(self, error: WorkerError) -> None:
        self.broken = error
        raise error

    def _settle(self) -> None:
        """Wait until no worker runs a command any more; those that still do after a while are ended."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while self._pending and (left := deadline - time.monotonic()) > 0:
            ready, _ = self.ray.wait(
                list(self._pending), num_returns=len(self._pending), timeout=min(left, LOOK_SECONDS)
            )
            for reference in ready:
                del self._pending[reference]
        self._end_command()

    def _end_command(self) -> None:
        for rank in self._pending.values():
            self._kill(rank)
        self._pending = {}


class _Watch:
    """Asks the workers how far they are while they run a command, and names one that does not answer."""

    def __init__(self, crew: RayCrew, now: float) -> None:
        self.crew = crew
        self.next = now + WATCH_SECONDS
        self.asked: dict[Any, tuple[int, float]] = {}

    def silent(self, busy: set[int]) -> int | None:
        """The worker among the busy ones that has not answered for too long, if there is one."""
        now = time.monotonic()
        ray = self.crew.ray
        if self.asked:
            ready, _ = ray.wait(list(self.asked), num_returns=len(self.asked), timeout=0)
            for reference in ready:
                rank, _ = self.asked.pop(reference)
                with contextlib.suppress(ray.exceptions.RayError):  # that it is dead its reply says
                    self.crew.seen[rank] = Status(rank, *ray.get(reference))
        for rank, since in self.asked.values():
            if rank in busy and now - since > self.crew.options.silence:
                return rank
        if now >= self.next:
            self.next = now + WATCH_SECONDS
            waiting = {rank for rank, _ in self.asked.values()}
            for rank in sorted(busy - waiting):
                self.asked[self.crew.actors[rank].status.remote()] = rank, now
        return None


def _said(error: Exception) -> str:
    """What Ray says in a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


# ------------------------------------------------------------------------------------------- in the actor


class RayWorker:
    """What the actor is: the same Service as in a thread or a process, and its place in a process group of gloo.

    identity: of this process; another one after a restart, which has lost everything.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.identity = uuid.uuid4().hex
        self.progress = list(NOT_BEGUN)
        self.rendezvous: Any = None
        self.service: Service | None = None
        self.meeting: Meeting | None = None
        self.lines: ZeroMQTransport | None = None
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
        from girih.run.transport.zeromq import ZeroMQTransport

        if self.lines is None:
            assert self.meeting is not None
            self.lines = ZeroMQTransport(self.meeting, self.timeout)
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
    """The address of this host, as the other nodes know it."""
    return str(imported().util.get_node_ip_address())
