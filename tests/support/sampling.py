"""Random arguments for every described operator, by the kind of its signature.

A sample is the operator's arguments by schema name: arrays (float64, int64, bool) for tensors, tuples of arrays for
lists of tensors, everything else attributes. `SAMPLES` maps each operator to a function from a random generator; the
pages `samples_*.py` fill it, `samples.py` imports them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Generator = np.random.Generator
Arguments = dict[str, Any]
Maker = Callable[[Generator], Arguments]

SAMPLES: dict[str, Maker] = {}


def sample(*names: str) -> Callable[[Maker], Maker]:
    def decorate(maker: Maker) -> Maker:
        for name in names:
            assert name not in SAMPLES, f"{name} has two samples"
            SAMPLES[name] = maker
        return maker

    return decorate


def add(names: str, maker: Maker) -> None:
    sample(*names.split())(maker)


# ------------------------------------------------------------------------------------------- pieces of samples


def some(rng: Generator, *choices: Any) -> Any:
    return choices[rng.integers(len(choices))]


def integer(rng: Generator, low: int, high: int) -> int:
    return int(rng.integers(low, high + 1))


def shape(rng: Generator, low: int = 0, high: int = 3, size: int = 4) -> tuple[int, ...]:
    return tuple(integer(rng, 1, size) for _ in range(integer(rng, low, high)))


def real(rng: Generator, size: tuple[int, ...]) -> np.ndarray:
    return rng.normal(size=size)


def positive(rng: Generator, size: tuple[int, ...]) -> np.ndarray:
    return rng.uniform(0.3, 3.0, size)


def unit(rng: Generator, size: tuple[int, ...]) -> np.ndarray:
    return rng.uniform(-0.95, 0.95, size)


def whole(rng: Generator, size: tuple[int, ...], low: int = -6, high: int = 6) -> np.ndarray:
    return rng.integers(low, high + 1, size)


def truth(rng: Generator, size: tuple[int, ...]) -> np.ndarray:
    return rng.random(size) < 0.5


def away(rng: Generator, size: tuple[int, ...]) -> np.ndarray:
    """Not near zero, of either sign."""
    return positive(rng, size) * np.where(truth(rng, size), 1.0, -1.0)


def broadcast(rng: Generator, size: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to `size`."""
    cut = integer(rng, 0, len(size)) if rng.random() < 0.3 else 0
    return tuple(1 if rng.random() < 0.3 else extent for extent in size[cut:])


def dim_of(rng: Generator, rank: int) -> int:
    return integer(rng, -rank, rank - 1) if rank else 0


def dims_of(rng: Generator, rank: int, least: int = 1) -> tuple[int, ...]:
    count = integer(rng, min(least, rank), rank)
    return tuple(int(dim) for dim in rng.permutation(rank)[:count])


def plain(**attributes: object) -> Maker:
    return lambda rng: {"self": real(rng, shape(rng)), **attributes}


def with_dim(rng: Generator, x: np.ndarray) -> Arguments:
    return {"self": x, "dim": dim_of(rng, x.ndim)}
