"""All engines by name: what the facade, the command line, clusters of arrays and calibration know of engines is read
from here. Their workers' code, and PyTorch with it, is loaded when a crew is started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from girih.lower import Program
from girih.run.engines.engine import Connection, Engine

if TYPE_CHECKING:
    from girih.run.engines.crew import Crew
    from girih.run.worker.service import Options


@dataclass(frozen=True)
class Processes(Engine):
    """Processes of this host, with shared memory between them."""

    name = "processes"
    calibrates = True

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
STARTED = tuple(name for name in TRAINING if not ENGINES[name].launched)
"""Those that a command which nobody has launched can train with."""


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
