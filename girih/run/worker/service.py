"""What a worker does on a command: the same in a thread, a process of this host, or a rank of torchrun."""

from __future__ import annotations

from collections.abc import Callable, Generator, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from girih.program import Program
from girih.program.places.addresses import Addresses
from girih.run.arena.arena import possible
from girih.run.arena.region import ArenaUse
from girih.run.tiles.store import TileStore
from girih.run.training import checkpoint, saving
from girih.run.transport.transport import Transport
from girih.run.worker import measure
from girih.run.worker.initial import initial_parts
from girih.run.worker.pages import give_back, keep_freed
from girih.run.worker.parts import Tensor, reporters
from girih.run.worker.worker import MeasuredInterval, Times, Worker


class LoopShares(Protocol):
    """What runs a worker's shares of parallel loops, of which it keeps those that may be asked for again."""

    def run(self, call: LoopCall, transport: Transport, rank: int, cells: MutableSequence[int]) -> Any: ...


class LoopCall(Protocol):
    """One execution of a parallel loop, which brings what runs it (`girih.loop.run.messages`)."""

    def shares(self) -> LoopShares: ...


@dataclass(frozen=True)
class Options:
    """Options of all workers of a run.

    timeout: seconds that an exchange may wait. device: `cpu`, `cuda` or `cuda:1`. keeps: workers that are processes,
    or ranks of a launcher, keep the memory that they free (`girih.run.worker.pages`). addresses: by rank, where
    everything lies in the worker's arena; None: it has none. strict: what has no place there is refused. without: why
    there are no addresses, where workers are to stay near a limit of memory.
    """

    timeout: float = 60.0
    device: str = "cpu"
    timeline: bool = False
    threads: int = 0
    keeps: bool = True
    addresses: tuple[Addresses, ...] | None = None
    strict: bool = False
    without: str = ""

    def settle_pages(self) -> None:
        """What a worker that is a process of its own does with the memory that it frees: keep it, but where it was to
        lie in an arena and there can be none, so that the process stays near its limit nevertheless."""
        if self.without or (self.addresses is not None and not possible()):
            give_back()
        elif self.keeps:
            keep_freed()


@dataclass(frozen=True)
class Statistics:
    """Measured on one worker since it started.

    sent, received: payload in bytes, for each peer. times: seconds. peak_bytes: of the last measured step, or 0.
    stolen: chunks of others' loops that it computed (threads count together). arena: of the worker's arena, or None;
    without: why it has none. copied: bytes that steps have copied (out to, in from) the large memory, or files.
    """

    rank: int
    sent: tuple[int, ...]
    received: tuple[int, ...]
    times: Times
    peak_bytes: int
    stolen: int = 0
    arena: ArenaUse | None = None
    without: str = ""
    copied: tuple[int, int] = (0, 0)

    @property
    def bytes_received(self) -> int:
        return sum(self.received)


class Service:
    """A worker and its commands. Each command is a method that takes fields by name and returns a reply.

    lines: makes the transport of parallel loops, when all workers run their first; None: it is the same.
    OF_TILES: methods of the worker's TileStore; programs other than the crew's, on tiles that stay there.
    """

    COMMANDS = (
        "set_state", "step", "get_state", "save", "agree", "peak", "statistics", "timeline", "measure", "loop", "turn",
    )  # fmt: skip
    OF_TILES = (
        "evaluate", "begin", "advance", "finish", "place", "spill", "fetch", "drop", "forget", "tiles",
        "check_place", "save_tiles", "load_tiles", "save_step", "load_step",
    )  # fmt: skip

    def __init__(
        self,
        program: Program,
        rank: int,
        transport: Transport,
        options: Options,
        progress: MutableSequence[int],
        lines: Callable[[], Transport] | None = None,
    ) -> None:
        self.rank = rank
        self.peak_bytes = 0
        self._options = options
        self._loops: LoopShares | None = None
        self._lines = lines
        self._progress = progress
        self._writing: saving.Writing | None = None
        self._task: Generator[Any, Any, None] | None = None
        self.worker = Worker(
            program,
            rank,
            transport,
            device=options.device,
            progress=progress,
            timeline=options.timeline,
            addresses=None if options.addresses is None else options.addresses[rank],
            strict=options.strict,
            without=options.without,
        )
        self.store = TileStore(rank, transport, self.worker.device, progress, self.worker.times)
        self._turn_to(self.worker)
        self._workers = {"": self.worker}

    def _turn_to(self, worker: Worker) -> None:
        self.worker, self.program = worker, worker.program
        self._reports = {
            output.name
            for output in self.program.graph.outputs
            if output.replaces is None and self.rank in reporters(self.program, output.name)
        }

    def turn(self, key: str, program: Program | None) -> None:
        """Go on with another program, whose state lies as that of the present one, which nothing has to move then.

        key: names the program, which is given where none, or another, has had this name.
        """
        before = self.worker
        if program is not None:
            self._workers[key] = Worker(
                program,
                self.rank,
                before.transport,
                device=before.device,
                progress=self._progress,
                timeline=self._options.timeline,
            )
            self._workers[key].times = before.times
        state, before.state = before.state, {}
        self._turn_to(self._workers[key])
        self.worker.state = state

    def handle(self, command: str, fields: dict[str, Any]) -> Any:
        if command in self.OF_TILES:
            return getattr(self.store, command)(**fields)
        if command not in self.COMMANDS:
            raise ValueError(f"no command {command!r}")
        return getattr(self, command)(**fields)

    def set_state(
        self, parts: dict[str, Tensor], recipes: dict[str, Any], seed: int, resume: str | None, resumed: list[str]
    ) -> checkpoint.Answer:
        """First what recipes make, then what the checkpoint `resume` holds of the paths `resumed`, then `parts`.

        The value is the digest of the checkpoint's manifest: all workers must have read the same.
        """
        for name, part in initial_parts(self.program, self.rank, recipes, seed, self.worker.device):
            self.worker.take_state({name: part})
        digest = ""
        if resume is not None:
            try:
                manifest = checkpoint.read_manifest(resume)
                for name, part in checkpoint.read(resume, manifest, self.program, self.rank, resumed):
                    self.worker.take_state({name: part})
            except checkpoint.CheckpointError as error:
                return checkpoint.Answer(str(error))
            digest = manifest.digest
        self.worker.take_state(parts)
        return checkpoint.Answer(value=digest)

    def step(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        device = self.worker.device
        for name in inputs:
            inputs[name] = inputs[name].to(device)
        outputs = self.worker.step(inputs)
        return {name: tensor.cpu() for name, tensor in outputs.items() if name in self._reports}

    def get_state(self, names: Sequence[str]) -> dict[str, Tensor]:
        """The parts of these that this worker reports, by name, in the host's memory."""
        self.worker.settle()
        held = self.worker.state
        return {name: held[name].cpu() for name in names if name in held and self.rank in reporters(self.program, name)}

    def save(self, folder: str) -> checkpoint.Answer:
        """Begin to write this worker's parts into the folder; or, with "", go on for about a second."""
        if folder:
            self.worker.settle()
            strides = saving.write(folder, self.program, self.rank, self.worker.state)
            self._writing = saving.Writing(strides, self.rank, folder)
        assert self._writing is not None
        return self._writing.go_on()

    def agree(self, word: checkpoint.Answer) -> checkpoint.Answer:
        """What the driver of this worker says: where each worker has its own, all drivers hear all of them. No save is
        under way then."""
        self._writing = None
        return word

    def peak(self, inputs: dict[str, Tensor]) -> int:
        self.peak_bytes = measure.peak_bytes(self.worker, inputs)
        return self.peak_bytes

    def statistics(self) -> Statistics:
        transport, times = self.worker.transport, self.worker.times
        return Statistics(
            self.rank,
            tuple(transport.sent),
            tuple(transport.received),
            Times(times.steps, times.total, times.kernels, times.transfers),
            self.peak_bytes,
            0 if transport.board is None else transport.board.stolen,
            None if self.worker.region is None else self.worker.region.use(),
            self.worker.without,
            (0, 0) if self.worker.copiers is None else (self.worker.copiers.copied[0], self.worker.copiers.copied[1]),
        )

    def timeline(self) -> list[MeasuredInterval]:
        return list(self.worker.intervals)

    def loop(self, call: LoopCall) -> Any:
        """Run this worker's share of a parallel loop."""
        self._loops = self._loops or call.shares()
        transport = self.worker.transport if self._lines is None else self._lines()
        return self._loops.run(call, transport, self.rank, self._progress)

    def measure(self, task: Callable[[Transport, int, Any], Any] | None = None, given: Any = None) -> Any:
        """Do something else than the program with the worker's transport and device
        (`girih.run.calibrate.calibrate`). A task that is a generator goes on at each command without a task, with what
        is given there, until it has no more replies."""
        if task is not None:
            reply = task(self.worker.transport, self.rank, self.worker.device)
            self._task = reply if isinstance(reply, Generator) else None
            return reply if self._task is None else next(self._task)
        try:
            return None if self._task is None else self._task.send(given)
        except StopIteration:
            return None
