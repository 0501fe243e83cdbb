"""Random arrays by position: an element depends on the seed and on its place in the whole, never on the tiling."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np

from girih.array.array import Array
from girih.array.dtypes import name_of
from girih.array.make import apply, number


class Generator:
    """NumPy's Generator as far as it goes; each call draws from a seed of its own."""

    def __init__(self, seed: int | None = None) -> None:
        self.seed = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
        self._calls = count()

    def _seed(self) -> Array:
        state = np.random.SeedSequence((self.seed, next(self._calls))).generate_state(1, np.uint64)
        return number(state.view(np.int64)[0], np.dtype(np.int64))

    def _draw(self, operator: str, size: Any, dtype: Any, **more: Any) -> Array:
        shape = _shape(size)
        kind = np.dtype(dtype)
        where = {"stream": 0, "size": shape, "start": (0,) * len(shape), "full": shape}
        return apply(operator, shape, kind, seed=self._seed(), **where, **more, dtype=name_of(kind))

    def random(self, size: Any = None, dtype: Any = np.float64) -> Array:
        """Uniform in [0, 1)."""
        return self._draw("girih.random_uniform", size, dtype)

    def standard_normal(self, size: Any = None, dtype: Any = np.float64) -> Array:
        return self._draw("girih.random_normal", size, dtype)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Array:
        return self.random(size) * (high - low) + low

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Array:
        return self.standard_normal(size) * scale + loc

    def lognormal(self, mean: Any = 0.0, sigma: Any = 1.0, size: Any = None) -> Array:
        from girih.array.elementwise import exp

        return exp(self.normal(mean, sigma, size))

    def exponential(self, scale: Any = 1.0, size: Any = None) -> Array:
        from girih.array.elementwise import log1p

        return log1p(-self.random(size)) * -scale

    def integers(self, low: int, high: int | None = None, size: Any = None, dtype: Any = np.int64) -> Array:
        """Whole numbers in [low, high), high - low below 2**31."""
        low, high = (0, low) if high is None else (low, high)
        if not low < high:
            raise ValueError("low >= high")
        return self._draw("girih.random_integers", size, dtype, low=int(low), high=int(high))


def _shape(size: Any) -> tuple[int, ...]:
    return () if size is None else tuple(map(int, size)) if isinstance(size, (tuple, list)) else (int(size),)


def default_rng(seed: int | None = None) -> Generator:
    return Generator(seed)
