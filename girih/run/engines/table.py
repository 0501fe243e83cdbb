"""All engines by name: what the facade, the command line, clusters of arrays and calibration know of engines is read
from here. Their workers' code, and PyTorch with it, is loaded when a crew is started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from girih.lower import Program
from girih.run.engines.engine import Connection, Engine
from girih.run.engines.launcher import counted, fits, launched_rank

if TYPE_CHECKING:
    from girih.run.engines.crew import Crew
    from girih.run.worker.service import Options


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
    trains = False

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
