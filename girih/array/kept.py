"""Evaluated arrays: where they lie, and what is said where one cannot be evaluated or is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from girih.capture.expressions import Expression, Needed
from girih.layout import Layout
from girih.plans import Plan
from girih.run.errors import WorkerError
from girih.run.tiles import TileRun

if TYPE_CHECKING:
    from girih.array.clusters import Cluster


class EvaluationError(RuntimeError):
    """A worker failed while it computed an array; the message names the line of the program that made the array."""


@dataclass(frozen=True, eq=False)
class Kept:
    """Where an evaluated array is: its tiles with the workers of `run`, of `cluster`, under `key`, as `plan` has its
    value `name`.

    second: where it is in another layout, too.
    """

    cluster: Cluster
    run: TileRun
    key: int
    plan: Plan
    name: str
    second: Kept | None = None

    @property
    def alive(self) -> bool:
        """Are the workers still there?"""
        return self.cluster._run is self.run

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """One or two."""
        return (self.plan.strategy.layouts[self.name], *(self.second.layouts if self.second is not None else ()))

    @property
    def bytes(self) -> int:
        """On all workers together, the second layout apart."""
        return int(self._tiles().sum())

    @property
    def tile_bytes(self) -> int:
        """On the worker that has most."""
        return int(self._tiles().max())

    def _tiles(self) -> np.ndarray:
        program = self.plan.program
        regions = program.layout_regions(self.name)
        elements: np.ndarray = (regions[..., 1] - regions[..., 0]).prod(axis=-1)
        return elements * program.graph.values[self.name].item_bytes


def as_numpy(tensor: Any) -> np.ndarray:
    value: np.ndarray = tensor.numpy()
    return np.array(value)


NUMPY_ERRORS: dict[str, type[Exception]] = {
    "LinAlgError": np.linalg.LinAlgError,
    "IndexError": IndexError,
    "out of bounds for dimension": IndexError,  # torch.gather's is a RuntimeError
    "self indexing axis dim should be positive": IndexError,  # nothing to choose from
    "negative integer powers": ValueError,
}
"""What the reasons of failures that NumPy tells have in them."""


def named(error: WorkerError, work: Needed) -> Exception:
    """The error with the line that made the array; NumPy's class where NumPy has one."""
    lines = {work.names[item]: item for item in work.nodes}
    failed = lines.get(error.place.node)
    where = f"{failed.source}: {failed.operator} of the array made there" if failed is not None else "an evaluation"
    text = f"{where} {error.reason}"
    kinds = (kind for words, kind in NUMPY_ERRORS.items() if words in error.reason)
    return next(kinds, EvaluationError)(text)


def lost(expression: Expression) -> EvaluationError:
    return EvaluationError(f"{expression.source}: the array made there was lost with the workers that held it")
