"""One tree from gradients and hessians, level by level or best leaf first.

After Chen and Guestrin 2016 (gain, values of leaves) and Ke et al. 2017 (histograms); Orion (thesis, table 5.3) has
gradient-boosted trees as a loop that is parallel in one dimension, that of the features: so are the histograms here.
The smaller of two new leaves is counted, the larger one's histogram is its parent's less that. Rows lie by leaf in one
order, which each split divides stably.

O(rows · features) for each level at most, of half of the rows below the first; O(leaves · features · 256) for splits.
Memory: 6 KB for each feature of each leaf that may still be split.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from girih.loop.apps.team import Team
from girih.loop.apps.trees import kernels
from girih.loop.apps.trees.bins import Bins


@dataclass(frozen=True)
class Growth:
    """How trees grow. leafwise: the leaf of the largest gain is split next; else all leaves of a level.

    depth: None for any. leaves: at most so many.
    """

    leafwise: bool
    depth: int | None
    leaves: int
    least_rows: int
    least_hessian: float
    l2: float
    rate: float


@dataclass(frozen=True)
class Tree:
    """Nodes by number, the root first; a leaf has feature -1. values: of leaves. begins, ends: of rows in the order."""

    features: np.ndarray
    thresholds: np.ndarray
    missing_left: np.ndarray
    lefts: np.ndarray
    rights: np.ndarray
    values: np.ndarray
    gains: np.ndarray
    begins: np.ndarray
    ends: np.ndarray


@dataclass
class _Leaf:
    """A node that grows: its rows' places in the order, sums (gradient, hessian, rows), table and best split."""

    number: int
    depth: int
    begin: int
    end: int
    totals: tuple[float, float, float]
    slot: int = -1
    gain: float = 0.0
    feature: int = -1
    split: tuple[float, ...] = ()


class Grower:
    """Grows one tree after another over the same rows in bins."""

    def __init__(self, rows: np.ndarray, bins: Bins, growth: Growth, team: Team) -> None:
        self.rows = rows
        self.bins = bins
        self.growth = growth
        self.team = team
        self.columns = np.empty(rows.shape[::-1], np.uint8)
        team.each(kernels.turn, len(rows), rows, self.columns)
        self.order = np.empty(0, np.int64)
        self._scratch = np.empty(0, np.int64)
        self._tables = np.empty((4, rows.shape[1] * 768))
        self._free = list(range(4))

    def grow(self, pairs: np.ndarray, chosen: np.ndarray) -> Tree:
        """pairs: (rows, 2) float32, gradient and hessian. chosen: the rows that count, ascending; they are kept in
        `order`, by leaf."""
        self.order = chosen.astype(np.int64)
        self._scratch = np.empty_like(self.order)
        self._free = list(range(len(self._tables)))
        sums = pairs[chosen].sum(axis=0, dtype=np.float64)
        root = _Leaf(0, 0, 0, len(chosen), (float(sums[0]), float(sums[1]), float(len(chosen))))
        nodes = [root]
        children: dict[int, tuple[int, int]] = {}
        self._search([(root, None)], pairs)
        open_leaves = [root]
        while batch := self._next(open_leaves, len(children) + 1):
            open_leaves = [leaf for leaf in open_leaves if not any(leaf is other for other in batch)]
            new: list[tuple[_Leaf, _Leaf | None]] = []
            for parent, (left, right) in zip(batch, self._divide(batch, len(nodes)), strict=True):
                nodes += [left, right]
                children[parent.number] = (left.number, right.number)
                if self.growth.depth is not None and left.depth >= self.growth.depth:
                    self._free.append(parent.slot)
                    continue
                small, large = (left, right) if left.totals[2] <= right.totals[2] else (right, left)
                large.slot = parent.slot
                new += [(small, large)]
            self._search(new, pairs)
            for small, other in new:
                for leaf in (small, other):
                    assert leaf is not None
                    if leaf.gain > 0:
                        open_leaves.append(leaf)
                    else:
                        self._free.append(leaf.slot)
            open_leaves.sort(key=lambda leaf: leaf.number)
        return self._tree(nodes, children)

    def _next(self, leaves: list[_Leaf], count: int) -> list[_Leaf]:
        """The leaves to split now; where there are too many, those of the largest gains."""
        able = [leaf for leaf in leaves if leaf.gain > 0]
        able.sort(key=lambda leaf: (-leaf.gain, leaf.number))
        most = self.growth.leaves - count
        return sorted(able[: min(most, 1) if self.growth.leafwise else most], key=lambda leaf: leaf.number)

    def _slot(self) -> int:
        if not self._free:
            old = self._tables
            self._tables = np.empty((2 * len(old), old.shape[1]))
            self._tables[: len(old)] = old
            self._free = list(range(len(old), 2 * len(old)))
        return self._free.pop()

    def _search(self, new: list[tuple[_Leaf, _Leaf | None]], pairs: np.ndarray) -> None:
        """Histograms and best splits of pairs of leaves, of which the first is counted."""
        if not new:
            return
        leaves: list[_Leaf] = []
        built, derived = [], []
        for small, large in new:
            small.slot = self._slot()
            built.append((small.slot, small.begin, small.end, len(leaves)))
            leaves.append(small)
            if large is not None:
                derived.append((large.slot, small.slot, len(leaves)))
                leaves.append(large)
        features = self.rows.shape[1]
        found = np.zeros((len(leaves), features, 7))
        growth = self.growth
        limits = np.array([growth.least_rows, growth.least_hessian, growth.l2])
        self.team.each(
            kernels.search, features, self._tables, self.rows, self.order, pairs, self.bins.counts,
            np.array(built, np.int64).reshape(-1, 4), np.array(derived, np.int64).reshape(-1, 3),
            np.array([leaf.totals for leaf in leaves]), limits, found,
        )  # fmt: skip
        best = found[:, :, 0].argmax(axis=1)  # the first of equals
        for at, (leaf, feature) in enumerate(zip(leaves, best.tolist(), strict=True)):
            leaf.feature, leaf.split = feature, tuple(found[at, feature].tolist())
            leaf.gain = leaf.split[0]

    def _divide(self, batch: list[_Leaf], number: int) -> Iterator[tuple[_Leaf, _Leaf]]:
        """The two leaves of each leaf, whose rows have been moved apart."""
        chunks: list[tuple[int, int, int]] = []
        for at, leaf in enumerate(batch):
            cuts = range(leaf.begin, leaf.end, kernels.CHUNK)
            chunks += [(begin, min(begin + kernels.CHUNK, leaf.end), at) for begin in cuts]
        places = np.array(chunks, np.int64)
        splits = np.array([(leaf.feature, int(leaf.split[1]), int(leaf.split[2])) for leaf in batch], np.int64)
        lefts = np.empty(len(chunks), np.int64)
        self.team.each(kernels.divide, len(chunks), self.order, self._scratch, places, splits, self.columns, lefts)
        counts = np.bincount(places[:, 2], weights=lefts, minlength=len(batch)).astype(np.int64)
        to_left, to_right = np.empty_like(lefts), np.empty_like(lefts)
        left_at = [leaf.begin for leaf in batch]
        right_at = [leaf.begin + int(count) for leaf, count in zip(batch, counts, strict=True)]
        for chunk, (begin, end, at) in enumerate(chunks):
            to_left[chunk], to_right[chunk] = left_at[at], right_at[at]
            left_at[at] += int(lefts[chunk])
            right_at[at] += end - begin - int(lefts[chunk])
        self.team.each(kernels.gather, len(chunks), self.order, self._scratch, places, lefts, to_left, to_right)
        for at, leaf in enumerate(batch):
            middle = leaf.begin + int(counts[at])
            gradient, hessian, rows = leaf.split[3:6]
            rest = (leaf.totals[0] - gradient, leaf.totals[1] - hessian, leaf.totals[2] - rows)
            first = number + 2 * at
            left = _Leaf(first, leaf.depth + 1, leaf.begin, middle, (gradient, hessian, rows))
            yield left, _Leaf(first + 1, leaf.depth + 1, middle, leaf.end, rest)

    def _tree(self, nodes: list[_Leaf], children: dict[int, tuple[int, int]]) -> Tree:
        count, growth = len(nodes), self.growth
        features, missing = np.full(count, -1, np.int32), np.zeros(count, np.bool_)
        lefts, rights = np.zeros(count, np.int32), np.zeros(count, np.int32)
        thresholds, values, gains = np.zeros(count), np.zeros(count), np.zeros(count)
        for node in nodes:
            at = node.number
            gradient, hessian, _ = node.totals
            if at in children:
                features[at], gains[at] = node.feature, node.gain
                thresholds[at] = self.bins.thresholds[node.feature, int(node.split[1])]
                lefts[at], rights[at] = children[at]
                left, right = nodes[lefts[at]].totals[2], nodes[rights[at]].totals[2]
                # Where no value was missing, they go the way of most rows.
                missing[at] = node.split[2] != 0 if node.split[6] > 0 else left >= right
            elif hessian + growth.l2 > 0:
                values[at] = -growth.rate * gradient / (hessian + growth.l2)
        begins, ends = (np.array([getattr(node, name) for node in nodes], np.int64) for name in ("begin", "end"))
        return Tree(features, thresholds, missing, lefts, rights, values, gains, begins, ends)
