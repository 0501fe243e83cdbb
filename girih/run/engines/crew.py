"""A crew: the workers of a run, wherever they live, and who is to blame when one does not answer."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from girih.program import Program, TransferStep
from girih.run.engines.loop_blocks import LoopBlocks
from girih.run.errors import IDLE, Failure


class Crew(Protocol):
    """The workers of a run, as their driver sees them.

    program: the one that is under way, whose instructions the workers' progress counts; whoever has the workers run
    another one sets it. size: how many workers. carries: their own threads copy what is sent and received, and compute
    nothing meanwhile.

    A crew that raised WorkerError is broken: its workers are gone, or, where it is a `MendingCrew`, wait for `mend`.
    """

    program: Program | LoopBlocks
    size: int
    carries: bool

    @property
    def rank(self) -> int:
        """The worker in whose process this is, where each has a driver of its own; else 0."""

    def command(self, name: str, fields: Sequence[dict[str, Any]]) -> list[Any]:
        """Have every worker do a command (a method of Service), each with its own fields; their replies by rank.

        Raises:
            WorkerError: a worker failed, died, or took longer than the timeout.
            ClosedError: the crew was closed.
        """

    def status(self) -> list[Status]:
        """How far each worker is; also while a command is under way, from another thread."""

    def close(self) -> None:
        """End all workers. May be called again."""


@runtime_checkable
class MendingCrew(Crew, Protocol):
    """A crew whose workers can be replaced."""

    def mend(self) -> list[int]:
        """Wait until all workers are there again; the ranks of those that have lost what they held.

        Raises:
            WorkerError: there is no worker in time.
        """


@runtime_checkable
class AgreeingCrew(Crew, Protocol):
    """A crew whose workers have a driver each, which ought to do the same."""

    def agree(self, word: str) -> list[str]:
        """What the driver of each worker says.

        Raises:
            WorkerError: one says nothing.
        """


@dataclass(frozen=True)
class Status:
    """A worker's progress: steps begun, the instruction it is in or -1, and how many thousandths of that, if it is a
    long loop, are done; bytes of its memory, or 0 if unknown."""

    rank: int
    begun: int
    step: int
    thousandths: int = 0
    resident: int = 0


def resident_bytes(pid: int | str = "self") -> int:
    """Memory of a process of this host that is in use, or 0 where that cannot be seen."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


STANDSTILL = {
    "T": "its process is stopped (SIGSTOP, or Ctrl-Z)",
    "t": "its process is stopped by a debugger",
    "Z": "its process has ended",
    "X": "its process has ended",
}
"""What Linux's letter for the state of a process says of one that does not go on by itself."""


def standstill(pid: int) -> str:
    """Why a process of this host cannot go on, or "" where it can, or where that cannot be seen."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, ValueError):
        return ""
    # The name of the program, in parentheses, may itself have spaces and parentheses; the state follows.
    state = fields.rpartition(")")[2].split()[:1]
    return STANDSTILL.get(state[0], "") if state else ""


def culprit(program: Program | LoopBlocks, late: Sequence[Status], standing: Container[int] = ()) -> Status:
    """Which of the workers that have not answered is to blame: one whose process stands still; else the one that has
    come least far, and of two at the same instruction the one that does not wait in a transfer.

    standing: ranks whose processes stand still (`standstill`).
    """

    def place(status: Status) -> tuple[bool, int, int, bool, int]:
        # Between steps counts as the end of the steps that it has begun.
        step = status.step if status.step != IDLE else len(program.steps)
        inside = step < len(program.steps)
        if isinstance(program, LoopBlocks):
            waiting = inside and step % 2 == 0
        else:
            waiting = inside and isinstance(program.steps[step], TransferStep)
        return status.rank not in standing, status.begun, step, waiting, status.rank

    return min(late, key=place)


def hanging(program: Program | LoopBlocks, late: Sequence[Status], pids: Mapping[int, int]) -> tuple[Status, str]:
    """Who is to blame that these workers have not answered, and what to say of it.

    pids: processes of this host by rank, as far as they are known.
    """
    standing = {rank: why for rank, pid in pids.items() if (why := standstill(pid))}
    blamed = culprit(program, late, standing)
    why = standing.get(blamed.rank, "")
    return blamed, f"it hangs: {why}" if why else "it hangs"


def first_failure(failures: Sequence[Failure]) -> Failure:
    """The failure that the others follow from: one that is not a broken exchange, if there is one."""
    return min(failures, key=lambda failure: (failure.in_transfer, failure.place.step, failure.rank))
