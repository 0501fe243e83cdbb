"""Evaluated arrays: where they lie, and what is said where one cannot be evaluated or is lost."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from girih.array.core.evaluation import Evaluator
from girih.array.session.planning import Planned, Tiled, Unplanned
from girih.capture.lazy.expressions import Expression, Needed
from girih.layout import Sharding
from girih.plans.plan import Plan
from girih.run.errors import WorkerError
from girih.run.tiles.tiles import TileRun


class EvaluationError(RuntimeError):
    """A worker failed while it computed an array; the message names the line of the program that made the array."""


class Keeper(Evaluator, Protocol):
    """The cluster whose workers hold a value. checkpoint: where they save it, if they do."""

    checkpoint: str | None

    @property
    def started(self) -> TileRun | None:
        """Its workers, if there are any now."""

    def tiled_of(self, plan: Plan) -> Tiled | None:
        """How one of its plans came about, as long as it is remembered."""

    def let_go(self, key: int) -> None:
        """Nobody refers to an array with this key any more."""


class Materialised(NamedTuple):
    """Where an evaluated array is: its tiles with the workers of `run`, of `cluster`, under `key`, as the plan has its
    value `name`.

    second: where it is in another layout, too.
    """

    cluster: Keeper
    run: TileRun
    key: int
    planned: Planned | Unplanned
    name: str
    second: Materialised | None = None

    @property
    def plan(self) -> Plan:
        return self.planned.plan

    @property
    def alive(self) -> bool:
        """Are the workers still there?"""
        return self.cluster.started is self.run

    def let_go(self) -> None:
        """Nobody refers to the array any more."""
        self.cluster.let_go(self.key)
        if self.second is not None:
            self.second.let_go()

    @property
    def layouts(self) -> tuple[Sharding, ...]:
        """How its tiles lie: one layout, or two where it is kept in both."""
        return (self.planned.layout(self.name), *(self.second.layouts if self.second is not None else ()))

    @property
    def bytes(self) -> int:
        """Bytes on all workers together, without the second layout."""
        return sum(self.planned.tiles(self.name))

    @property
    def tile_bytes(self) -> int:
        """Bytes on the worker that has most of it."""
        return max(self.planned.tiles(self.name))


NUMBERS = frozenset((torch.float64, torch.int64))
"""Dtypes whose elements are Python's numbers, which NumPy gives the same dtype."""


def as_numpy(tensor: Any) -> np.ndarray:
    """A copy of a tensor."""
    if not tensor.dim() and tensor.dtype in NUMBERS:
        return np.array(tensor.item())  # sooner than by a view of it
    value: np.ndarray = tensor.numpy()
    return np.array(value)


NUMPY_ERRORS: dict[str, type[Exception]] = {
    "out of bounds for dimension": IndexError,  # torch.gather's is a RuntimeError
    "self indexing axis dim should be positive": IndexError,  # nothing to choose from
    "negative integer powers": ValueError,
}
"""What the reasons of failures have in them that NumPy tells, and PyTorch by RuntimeErrors."""


SPECIAL = (KeyError, UnicodeError, ExceptionGroup, StopIteration, StopAsyncIteration)
"""Exceptions that are no text alone, or that Python itself awaits."""


def named(error: WorkerError, work: Needed, recovers: bool = False) -> Exception:
    """The error with the line that made the array. Its class is that of what was raised, where that is Python's or
    NumPy's and says something; what a function of the user's own raised is an EvaluationError, too.

    recovers: the cluster has checkpoints, so there is no need to tell of them."""
    lines = {work.names[item]: item for item in work.nodes}
    name = error.place.node
    failed = lines.get(name) or lines.get(name.rsplit(".", 2)[0])  # a part of a factorisation has its name before it
    operator = error.place.operator if name not in lines else failed.operator if failed is not None else ""
    where = f"{failed.source}: {operator} of the array made there" if failed is not None else "an evaluation"
    text = (
        f"{where}: worker {error.rank} {error.reason}{_advice(recovers)}" if error.lost else f"{where} {error.reason}"
    )
    kind = next((kind for words, kind in NUMPY_ERRORS.items() if words in error.reason), _class(error.kind))
    if failed is not None and any(name == "function" for name, _ in failed.arguments):
        return own_error(kind, text)
    return kind(text)


def _class(name: str) -> type[Exception]:
    """The class that `girih.run.errors.kind_of` named, unless a RuntimeError says as much."""
    module, _, own = name.rpartition(".")
    kind = getattr(sys.modules.get(module), own, Exception)
    says = issubclass(kind, Exception) and not issubclass(EvaluationError, kind) and not issubclass(kind, SPECIAL)
    return kind if says else EvaluationError


def own_error(kind: type[Exception], text: str) -> Exception:
    """A class of errors that are EvaluationErrors and also of this kind."""
    if issubclass(kind, EvaluationError):
        return kind(text)
    reduce = {"__reduce__": lambda self: (own_error, (kind, str(self)))}
    return type(kind.__name__, (kind, EvaluationError), reduce)(text)


def lost(expression: Expression) -> EvaluationError:
    recovers = expression.kept.cluster.checkpoint is not None
    text = f"{expression.source}: the array made there was lost with the worker that held it, or that others needed"
    return EvaluationError(text + _advice(recovers))


def _advice(recovers: bool) -> str:
    return "" if recovers else "; with girih.cluster(checkpoint=DIR) arrays outlive the loss of a worker"
