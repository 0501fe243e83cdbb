"""What went wrong, and where: rank, instruction, node, operator, the user's line."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

from girih.ops.gate import called
from girih.program import BlockStep, ComputeStep, FreeStep, Program, StartStep
from girih.run.engines import loop_blocks as progress
from girih.run.engines.loop_blocks import LoopBlocks

IDLE = progress.IDLE
NOT_BEGUN = (0, IDLE, 0)
"""The cells in which a worker tells its progress: how many steps it has begun, the instruction that it is in or IDLE,
and how many thousandths of that are done, if it is a long loop."""


class TransportError(RuntimeError):
    """A peer did not send or receive: it died, stopped, or the run was aborted."""


@dataclass(frozen=True)
class Where:
    """An instruction of a program. `step` is its position, or -1 between steps."""

    step: int
    steps: int
    node: str = ""
    operator: str = ""
    source: str = ""
    action: str = "idle"

    def __str__(self) -> str:
        if self.step == IDLE:
            return "between steps"
        line = f", {self.source}" if self.source else ""
        return f"at instruction {self.step} of {self.steps} ({self.action}): node {self.node!r}, {self.operator}{line}"


def where(program: Program | LoopBlocks, step: int, member: int | None = None) -> Where:
    """Describe the instruction at a position. member: of several nodes that are computed in blocks, which."""
    count = len(program.steps)
    if not 0 <= step < count:
        return Where(IDLE, count)
    if isinstance(program, LoopBlocks):
        return Where(step, count, program.name, program.at(step), program.source, "loop")
    item = program.steps[step]
    if isinstance(item, FreeStep):
        return Where(step, count, action="free")
    if isinstance(item, StartStep):
        transfer = item.transfer
        number, action = transfer.node, f"start of the {transfer.purpose} of {transfer.value!r}"
    elif isinstance(item, BlockStep):
        number, action = item.members[-1].node if member is None else member, f"blocks of {len(item.members)} nodes"
    elif isinstance(item, ComputeStep):
        number, action = item.node, "compute"
    else:
        number, action = item.node, f"{item.purpose} of {item.value!r}"
    node = program.graph.nodes[number]
    return Where(step, count, node.name, called(node), node.source, action)


class MemberError(RuntimeError):
    """One of several nodes that are computed in blocks failed; the cause is its `__cause__`."""

    def __init__(self, node: int) -> None:
        super().__init__(f"node {node} failed")
        self.node = node


class StepError(RuntimeError):
    """An instruction failed on one worker; the cause is its `__cause__`."""

    def __init__(self, rank: int, place: Where, cause: BaseException) -> None:
        super().__init__(f"worker {rank} failed {place}: {type(cause).__name__}: {cause}")
        self.rank = rank
        self.place = place
        self.in_transfer = isinstance(cause, TransportError)


class WorkerError(RuntimeError):
    """A worker failed, died or hung, and the run was stopped.

    rank: the worker that is to blame. place: the instruction it was in. details: its traceback, or "". lost: it died,
    hung or lost its peers, so that another worker may do the same with success. kind: as `kind_of` names the class of
    what was raised there, or "". raised: the class's own name, and what it was made of, numbers and texts.
    """

    def __init__(
        self,
        rank: int,
        place: Where,
        reason: str,
        details: str = "",
        lost: bool = False,
        kind: str = "",
        raised: tuple[Any, ...] = (),
    ) -> None:
        text = f"worker {rank} {reason} {place}"
        super().__init__(f"{text}\n\n{details.rstrip()}" if details else text)
        self.rank = rank
        self.place = place
        self.reason = reason
        self.details = details
        self.lost = lost
        self.kind = kind
        self.raised = raised

    def __reduce__(self) -> Any:
        return type(self), (self.rank, self.place, self.reason, self.details, self.lost, self.kind, self.raised)


class ClosedError(RuntimeError):
    """A command to workers that were ended on purpose."""

    def __init__(self) -> None:
        super().__init__("the run was closed and its workers have ended: start another one")


class SpoiltError(WorkerError):
    """A worker failed while it computed, and all went on without what it would have made: nothing was made, the workers
    are there, and their tiles are as before."""


class WorkerIndexError(WorkerError, IndexError):
    """A number that a worker computed picks no row of a table, for which PyTorch has an IndexError."""


class UnreadableError(WorkerError):
    """What was lost with a worker cannot be read from the checkpoint."""


@dataclass(frozen=True)
class Failure:
    """What a worker reports instead of a reply. in_transfer: it may only be the victim of another. kind, raised: of
    what was raised, as in `WorkerError`."""

    rank: int
    place: Where
    message: str
    details: str
    in_transfer: bool
    kind: str = ""
    raised: tuple[Any, ...] = ()

    def error(self, kind: type[WorkerError] = WorkerError) -> WorkerError:
        reason = f"failed ({self.message})"
        if kind is WorkerError and self.kind == "builtins.IndexError":
            kind = WorkerIndexError
        return kind(self.rank, self.place, reason, self.details, self.in_transfer, self.kind, self.raised)


@dataclass(frozen=True)
class Spoilt:
    """What a worker replies that failed and went on, so that none of its peers waited in vain."""

    failure: Failure


def failure_of(rank: int, error: BaseException) -> Failure:
    """The report of an exception."""
    inner = error.__cause__ if isinstance(error, StepError) and error.__cause__ is not None else error
    place = error.place if isinstance(error, StepError) else Where(IDLE, 0)
    details = "".join(traceback.format_exception(inner))
    message = f"{type(inner).__name__}: {inner}"
    plain = all(isinstance(item, str | int | float | None) for item in inner.args)
    raised = (type(inner).__name__, *(inner.args if plain else (str(inner),)))
    return Failure(rank, place, message, details, isinstance(inner, TransportError), kind_of(inner), raised)


PUBLIC = ("builtins", "numpy.linalg", "numpy.exceptions")
"""Modules whose classes every process has under the same name."""
ALIKE = {"torch._C._LinAlgError": "numpy.linalg.LinAlgError", "torch.OutOfMemoryError": "builtins.MemoryError"}
"""What PyTorch raises where NumPy has a class."""


def kind_of(error: BaseException) -> str:
    """The qualified name of the nearest class, of the error's own and its bases, that is NumPy's or Python's."""
    names = (f"{base.__module__}.{base.__qualname__}" for base in type(error).__mro__)
    return next(ALIKE.get(name, name) for name in names if name in ALIKE or name.rpartition(".")[0] in PUBLIC)
