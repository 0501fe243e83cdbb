"""Features become numbers of bins: uint8, at most 255 by the quantiles of a sample, and one for missing values.

A feature of few distinct values has a bin for each, so that no split between them is lost; else the thresholds are
quantiles. O(n · features · log bins) for n rows, and a sort of the sample for each feature.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from girih.loop.apps.team import Team
from girih.loop.apps.trees import kernels

MISSING = 255
"""The bin of NaN."""
SAMPLE = 200_000
"""Rows of which the quantiles are taken."""


@dataclass(frozen=True)
class Bins:
    """thresholds: (features, 256), padded with +∞; x is in bin b if thresholds[b - 1] < x ≤ thresholds[b].

    counts: how many bins each feature has, without that for missing values.
    """

    thresholds: np.ndarray
    counts: np.ndarray


def find_bins(x: np.ndarray, most: int, seed: np.random.Generator, team: Team) -> Bins:
    """The thresholds of each column of x (rows, features), of at most `most` bins."""
    rows, features = x.shape
    sample = x if rows <= SAMPLE else x[np.sort(seed.choice(rows, SAMPLE, replace=False))]
    thresholds = np.full((features, 256), np.inf)
    counts = np.ones(features, np.int64)

    def find(first: int, last: int) -> None:
        for feature in range(first, last):
            found = thresholds_of(sample[:, feature].astype(np.float64), most)
            thresholds[feature, : len(found)] = found
            counts[feature] = len(found) + 1

    team.each(find, features)
    return Bins(thresholds, counts)


def thresholds_of(values: np.ndarray, most: int) -> np.ndarray:
    """Ascending; between neighbours of the sorted values, NaN left out."""
    values = np.sort(values[~np.isnan(values)])
    if not len(values):
        return values
    distinct = values[np.concatenate(([True], values[1:] != values[:-1]))]
    if len(distinct) <= most:
        below, above = distinct[:-1], distinct[1:]
    else:
        cuts = np.arange(1, most) * len(values) // most
        below = np.unique(values[cuts - 1])
        below = below[below < distinct[-1]]
        above = distinct[np.searchsorted(distinct, below, side="right")]
    with np.errstate(over="ignore", invalid="ignore"):
        middle = below + (above - below) / 2
    return np.where((middle < above) & (middle > below), middle, below)  # rounding, ±∞: x ≤ below still divides them


def put_in_bins(x: np.ndarray, bins: Bins, team: Team) -> np.ndarray:
    """x (rows, features) → uint8 numbers of bins, of the same shape."""
    found = np.empty(x.shape, np.uint8)
    team.each(kernels.put_in_bins, len(x), x, bins.thresholds, found)
    return found
