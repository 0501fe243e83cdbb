"""The simulator's clock: whole ticks, so that adding is exact and a schedule can be moved in time to the last bit.

With floating-point seconds a schedule that starts later is not the same schedule later: each sum rounds otherwise.
Whole ticks have no such trouble. A float64 holds up to 2^53 of them: seconds of a step of up to two hours are exact.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

TICKS_PER_SECOND = 1 << 40  # a tick is about a picosecond

Ticks: TypeAlias = NDArray[np.int64]


def ticks(seconds: NDArray[np.float64]) -> Ticks:
    """The nearest number of ticks.

    Raises:
        ValueError: seconds that are negative, infinite or not a number, or too many.
    """
    if seconds.size and not (seconds.min() >= 0 and seconds.max() < 1 << 20):
        raise ValueError(f"expected seconds from 0 to {1 << 20}, got {seconds.min()} to {seconds.max()}")
    rounded: Ticks = np.rint(seconds * TICKS_PER_SECOND).astype(np.int64)
    return rounded


def seconds_of(ticks: Ticks) -> NDArray[np.float64]:
    """Seconds of ticks: exact up to 2^53 of them."""
    return ticks / float(TICKS_PER_SECOND)
