"""Cuts of a dimension into parts of nearly equal work, from a histogram of the iterations (Orion, thesis §5.3.3)."""

from __future__ import annotations

import numpy as np


def balanced(histogram: np.ndarray, parts: int) -> tuple[int, ...]:
    """Where parts + 1 cuts lie, so that the largest part is about as small as it can be; parts may be empty.

    Each cut is where the running sum comes nearest to its share: no part is larger than its share by more than the
    largest single count. Linear in the histogram.
    """
    running = np.concatenate([[0], np.cumsum(histogram, dtype=np.int64)])
    shares = running[-1] * np.arange(1, parts) / parts
    after = np.searchsorted(running, shares)
    before = np.maximum(after - 1, 0)
    nearer = np.where(running[after] - shares <= shares - running[before], after, before)
    cuts = np.maximum.accumulate(nearer)
    return (0, *map(int, cuts), len(histogram))


def imbalance(work: np.ndarray) -> float:
    """The largest worker's share over the mean: 1 is balanced."""
    total = float(work.sum())
    return float(work.max()) * len(work) / total if total else 1.0
