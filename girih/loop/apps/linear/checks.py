"""Checks of parameters, which say what was given and what was expected."""

from __future__ import annotations

from typing import Any

import numpy as np

OPTIMIZERS = ("sgd", "adagrad", "adarevision")


def whole(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}={value!r}: expected a whole number from {least}")


def positive(name: str, value: Any, zero: bool = False) -> None:
    if (
        not isinstance(value, int | float | np.integer | np.floating)
        or not (value >= 0 if zero else value > 0)
        or value == float("inf")
    ):
        raise ValueError(f"{name}={value!r}: expected a number {'from' if zero else 'above'} 0")


def optimizer(value: Any) -> None:
    if value not in OPTIMIZERS:
        raise ValueError(f"optimizer={value!r}: expected one of {', '.join(map(repr, OPTIMIZERS))}")


def workers_of(jobs: Any) -> int | None:
    """The workers of a loop: None is as many as `gl.workers()` or the cluster in use has."""
    if jobs is None or jobs == -1:
        return None
    whole("n_jobs", jobs, 1)
    return int(jobs)
