"""The trees of a model, behind each other, and what they say of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from girih.loop.apps.team import Team
from girih.loop.apps.trees import kernels
from girih.loop.apps.trees.grow import Tree


@dataclass(frozen=True)
class Forest:
    """starts: the first node of each tree; the others are those of a Tree, of all nodes. base: before any."""

    base: float
    starts: np.ndarray
    features: np.ndarray
    thresholds: np.ndarray
    missing_left: np.ndarray
    lefts: np.ndarray
    rights: np.ndarray
    values: np.ndarray
    gains: np.ndarray

    def raw(self, x: np.ndarray, team: Team) -> np.ndarray:
        """base and the sum of the trees' values, for each row of x (rows, features)."""
        raw = np.full(len(x), self.base)
        team.each(kernels.predict, len(x), x, self.starts, self.features, self.thresholds, self.missing_left,
                  self.lefts, self.rights, self.values, raw)  # fmt: skip
        return raw

    def importances(self, features: int) -> np.ndarray:
        """The gain of each feature's splits, as a part of the whole."""
        inner = self.features >= 0
        gains = np.bincount(self.features[inner], self.gains[inner], minlength=features)
        return gains / gains.sum() if gains.any() else gains


def forest_of(base: float, trees: Sequence[Tree]) -> Forest:
    sizes = np.array([len(tree.features) for tree in trees], np.int64)
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int64)
    names = [item.name for item in fields(Forest)][2:]
    joined = {name: np.concatenate([getattr(tree, name) for tree in trees]) for name in names}
    return Forest(base, starts, **joined)
