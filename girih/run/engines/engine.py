"""What an engine is: a frozen dataclass of its options with one verb, from a Program to a crew of workers; and all
engines by name.

Whoever starts workers takes an Engine, or the name of one, and asks it what has to be known; nobody compares names.
The facade, the command line, clusters of arrays and calibration read from `ENGINES` which there are. The code of
workers, and PyTorch with it, is loaded when a crew is started.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from girih.host import cores_here
from girih.machine.names import threads_here
from girih.machine.units import counted
from girih.program import Program
from girih.run.engines.launcher import fits, launched_rank

if TYPE_CHECKING:
    from girih.run.engines.crew import Crew
    from girih.run.worker.service import Options


class Connection(Protocol):
    """The hosts on which an engine starts workers. processors: that they have."""

    @property
    def processors(self) -> float: ...

    def close(self) -> None:
        """Let go of the hosts."""


@dataclass(frozen=True)
class ThisHost:
    """The host of this process."""

    processors: float

    def close(self) -> None:
        """Nothing is to be let go of: this process goes on."""


@dataclass(frozen=True)
class Engine(ABC):
    """Where the workers of a run live, and who starts and watches them."""

    name: ClassVar[str]
    """What `backend=`, the command line and stores of measurements call it."""
    trains: ClassVar[bool] = True
    """Can it run a plan's steps (`Plan.start`)?"""
    keeps_tiles: ClassVar[bool] = True
    """Can its workers keep arrays between programs (`girih.cluster`)?"""
    calibrates: ClassVar[bool] = False
    """Are its workers measured by `girih calibrate`?"""
    one_process: ClassVar[bool] = False
    """Are the workers threads of this process, so that they share its memory and its threads of kernels?"""
    launched: ClassVar[bool] = False
    """Has a launcher started the workers, of which this process is one, and others may be on other hosts?"""

    @classmethod
    def summary(cls) -> str:
        """Where the workers live, in one line."""
        return (cls.__doc__ or "").partition("\n\n")[0].replace("\n    ", " ").rstrip(".")

    def connect(self) -> Connection:
        """The hosts on which workers are started.

        Raises:
            RayUnavailableError: of Ray, nothing answers.
        """
        return ThisHost(float(cores_here()))

    def most_workers(self, processors: float) -> int:
        """How many workers there are where nobody says how many."""
        return max(1, int(processors))

    def threads(self, workers: int) -> int:
        """How many threads of kernels each worker has where nobody says how many."""
        return threads_here(workers)

    def in_ranks(self) -> Engine | None:
        """The engine that takes this one's place where a launcher has started this process as one of several ranks;
        None: none does, and each rank would run the program by itself."""
        return self if self.launched else None

    @abstractmethod
    def crew(self, program: Program, options: Options) -> Crew:
        """Start a worker for each device of the program, and wait until all are there.

        Raises:
            WorkerError: one could not start. ValueError: the program does not fit the engine.
        """


@dataclass(frozen=True)
class Processes(Engine):
    """Processes of this host, with shared memory between them; under a launcher its ranks."""

    name = "processes"
    calibrates = True

    def in_ranks(self) -> Engine:
        return Ranks()

    def crew(self, program: Program, options: Options) -> Crew:
        from girih.run.engines.processes import ProcessCrew

        return ProcessCrew(program, options)


@dataclass(frozen=True)
class Threads(Engine):
    """Threads of this process, which share its memory."""

    name = "threads"
    calibrates = True
    one_process = True

    def crew(self, program: Program, options: Options) -> Crew:
        from girih.run.engines.threads import ThreadCrew

        return ThreadCrew(program, options)


@dataclass(frozen=True)
class Ranks(Engine):
    """Processes that torchrun, or any other launcher of torch.distributed, has started: this one and its peers."""

    name = "torchrun"
    keeps_tiles = False
    launched = True

    def crew(self, program: Program, options: Options) -> Crew:
        from girih.run.engines.torchrun import RankCrew

        return RankCrew(program, options)


@dataclass(frozen=True)
class Ray(Engine):
    """Actors of Ray, on one host or many.

    address: of the cluster, as of `girih.cluster(ray=)`; "": the one that this process is connected to, else a new one
    of this host. cpus: processors for each actor.
    """

    address: str = ""
    cpus: float = 1.0

    name = "ray"

    def connect(self) -> Connection:
        from girih.run.engines.ray_connect import connect

        return connect(self.address)

    def most_workers(self, processors: float) -> int:
        return max(1, int(processors // self.cpus))

    def threads(self, workers: int) -> int:
        return max(1, int(self.cpus))

    def crew(self, program: Program, options: Options) -> Crew:
        from girih.run.engines.ray_crew import RayCrew, RayOptions

        if not isinstance(options, RayOptions):
            options = RayOptions(**vars(options), cpus=self.cpus)
        return RayCrew(program, options)


ENGINES: dict[str, Engine] = {engine.name: engine for engine in (Processes(), Threads(), Ranks(), Ray())}
TRAINING = tuple(name for name, engine in ENGINES.items() if engine.trains)
KEEPING_TILES = tuple(name for name, engine in ENGINES.items() if engine.keeps_tiles)
CALIBRATED = tuple(name for name, engine in ENGINES.items() if engine.calibrates)


def engine_of(backend: str | Engine, among: tuple[str, ...] = tuple(ENGINES)) -> Engine:
    """An engine as it is, or the one that a name stands for. among: the names that may be given here.

    Raises:
        ValueError: there is none of this name.
    """
    if isinstance(backend, Engine):
        return backend
    if not isinstance(backend, str) or backend not in among:
        raise ValueError(f"no backend {backend!r}: expected an Engine, or one of {', '.join(among)}")
    return ENGINES[backend]


def check_launched(engine: Engine) -> None:
    """Raises ValueError for an engine whose workers a launcher starts, where none has started this process."""
    if engine.launched and launched_rank() is None:
        raise ValueError(
            f"backend {engine.name}: no launcher has started this process. Start one process for each device of the "
            "plan, as in: torchrun --nproc-per-node 4 program.py"
        )


def engine_here(engine: Engine, devices: int, alone: bool = False) -> Engine:
    """The engine that runs a program for so many devices in this process: under a launcher the ranks are the workers.

    alone: may every rank run the program by itself? It may where nothing is trained.

    Raises:
        ValueError: no launcher has started this process, or the ranks are more or fewer than the devices, or the engine
            would start workers of its own in each of several ranks, which would then train apart.
    """
    rank = launched_rank()
    if rank is None:
        check_launched(engine)
        return engine
    own = engine.in_ranks()
    if own is not None:
        fits(rank, devices)
        return own
    if rank.size > 1 and not alone:
        raise ValueError(
            f"a launcher has started {rank.size} ranks, and backend {engine.name} would start "
            f"{counted(devices, 'worker')} of its own in each of them: the ranks would train apart. Take backend "
            f"torchrun and a plan for {rank.size} devices, or start one process"
        )
    return engine
