"""Seconds by size: a table of measured sizes, with a curve between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SizeTable:
    """Seconds for amounts of bytes, by measured points; sizes ascend.

    Between points log seconds are linear in log bytes; beyond the last the last two points' rate goes on; below the
    first it takes what the first takes.
    """

    sizes: tuple[int, ...]
    all_seconds: tuple[float, ...]
    spreads: tuple[float, ...] = ()

    @staticmethod
    def of(points: Sequence[tuple[int, float]]) -> SizeTable:
        ordered = sorted(points)
        return SizeTable(tuple(size for size, _ in ordered), tuple(seconds for _, seconds in ordered))

    @property
    def points(self) -> tuple[tuple[int, float], ...]:
        return tuple(zip(self.sizes, self.all_seconds, strict=True))

    def seconds(self, size: float) -> float:
        return float(self.of_sizes(np.asarray([size]))[0])

    def of_sizes(self, amounts: NDArray[np.float64] | NDArray[np.int64]) -> NDArray[np.float64]:
        """Seconds for each amount, of any shape; 0 bytes take none."""
        sizes, seconds = np.asarray(self.sizes, float), np.asarray(self.all_seconds)
        wanted = np.asarray(amounts, float)
        inside = np.exp(np.interp(np.log(np.maximum(wanted, 1.0)), np.log(sizes), np.log(seconds)))
        beyond = seconds[-1] + np.maximum(wanted - sizes[-1], 0.0) * self._last_rate()
        result: NDArray[np.float64] = np.where(wanted > sizes[-1], beyond, inside)
        return np.where(wanted > 0, result, 0.0)

    @property
    def latency(self) -> SizeTable:
        """All sizes take what the smallest takes."""
        return replace(self, all_seconds=self.all_seconds[:1] * len(self.sizes))

    def scaled(self, latency: float, rest: float) -> SizeTable:
        """What the smallest size takes is multiplied by `latency`, and what others take beyond it by `rest`."""
        first = self.all_seconds[0]
        return replace(self, all_seconds=tuple(latency * first + rest * (own - first) for own in self.all_seconds))

    def line(self) -> tuple[float, float]:
        """(latency in seconds, bytes per second): of the lines through the table the one with the least sum of squared
        relative errors, latency and rate kept above zero."""
        sizes, seconds = np.asarray(self.sizes, float), np.asarray(self.all_seconds)
        relative = np.column_stack([1 / seconds, sizes / seconds])
        (latency, slope), *_ = np.linalg.lstsq(relative, np.ones(len(sizes)), rcond=None)
        if slope <= 0:
            slope = self.all_seconds[-1] / self.sizes[-1]
        return float(max(latency, seconds.min() / 10)), float(1 / slope)

    def _last_rate(self) -> float:
        """Seconds for each further byte."""
        if len(self.sizes) < 2:
            return self.all_seconds[-1] / self.sizes[-1]
        slope = (self.all_seconds[-1] - self.all_seconds[-2]) / (self.sizes[-1] - self.sizes[-2])
        return slope if slope > 0 else self.all_seconds[-1] / self.sizes[-1]
