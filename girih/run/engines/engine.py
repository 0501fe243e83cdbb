"""What an engine is: a frozen dataclass of its options with one verb, from a Program to a crew of workers.

`girih.run.engines.table` has all engines by name. Whoever starts workers takes an Engine, or the name of one, and asks
it what has to be known; nobody compares names.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from girih.lower import Program

if TYPE_CHECKING:
    from girih.run.engines.crew import Crew
    from girih.run.worker.service import Options


class Connection(Protocol):
    """The hosts on which an engine starts workers. processors: that they have."""

    @property
    def processors(self) -> float: ...

    def close(self) -> None:
        """Let go of them."""


@dataclass(frozen=True)
class ThisHost:
    """The host of this process."""

    processors: float

    def close(self) -> None:
        """It stays."""


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
        return ThisHost(float(os.cpu_count() or 1))

    def most_workers(self, processors: float) -> int:
        """How many workers there are where nobody says how many."""
        return max(1, int(processors))

    def threads(self, workers: int) -> int:
        """How many threads of kernels each worker has where nobody says how many."""
        return max(1, (os.cpu_count() or 1) // workers)

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
