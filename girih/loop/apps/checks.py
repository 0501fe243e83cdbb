"""Checks of estimators' parameters and of their checkpoints, which say what was given and what was expected."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from girih.loop.checkpoint import LoopCheckpointError

OPTIMIZERS = ("sgd", "adagrad", "adarevision")


def whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    known = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not known or value < least or (most is not None and value > most):
        to = "" if most is None else f" to {most}"
        raise ValueError(f"{name}={value!r}: expected a whole number from {least}{to}")


def number(name: str, value: Any, least: float, most: float = math.inf, above: bool = False) -> None:
    """A finite number from `least`, or above it, to `most`."""
    known = isinstance(value, int | float | np.integer | np.floating) and value < math.inf
    if not known or not (least < value if above else least <= value) or value > most:
        to = "" if most == math.inf else f" to {most}"
        raise ValueError(f"{name}={value!r}: expected a number {'above' if above else 'from'} {least}{to}")


def optimizer(value: Any) -> None:
    if value not in OPTIMIZERS:
        raise ValueError(f"optimizer={value!r}: expected one of {', '.join(map(repr, OPTIMIZERS))}")


def workers_of(jobs: Any) -> int | None:
    """The workers of a loop: None is as many as `gl.workers()` or the cluster in use has."""
    if jobs is None or jobs == -1:
        return None
    whole("n_jobs", jobs, 1)
    return int(jobs)


def same_fit(path: str | Path, found: dict[str, Any], expected: dict[str, Any]) -> None:
    """
    Raises:
        LoopCheckpointError: the checkpoint is of another fit than the one that is to go on; what differs is named.
    """
    for name, value in expected.items():
        if found.get(name) != value:
            raise LoopCheckpointError(
                f"{path} is of {name} {found.get(name)}: expected {value}, as in this fit; fit as it was begun, or "
                "without resume=True"
            )
