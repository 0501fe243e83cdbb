"""Gradient-boosted trees: which measurements are of a signal, some of them missing.

    python examples/loops/boosted_trees.py [rows.csv]

A line of the file has numbers, empty where missing; the last is the class, 0 or 1. Without it, rows are made up.
"""

from __future__ import annotations

import sys

import numpy as np

from girih.loop.apps.trees import GradientBoostedTrees


def made_up(count: int = 20_000) -> np.ndarray:
    """(rows, 9): eight measurements, of which a tenth is missing, and the class."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((count, 8))
    signal = x[:, 0] * x[:, 1] + np.abs(x[:, 2]) + 0.5 * x[:, 3] + draw.logistic(0, 0.5, count) > 0.8
    x[draw.random(x.shape) < 0.1] = np.nan
    return np.column_stack((x, signal))


def main(path: str | None = None, trees: int = 60) -> float:
    """The part of the rows kept back that is classified rightly."""
    table = np.genfromtxt(path, delimiter=",") if path else made_up()
    order = np.random.default_rng(1).permutation(len(table))
    train, test = table[order[len(table) // 5 :]], table[order[: len(table) // 5]]
    model = GradientBoostedTrees(trees, max_depth=5, random_state=0)
    model.fit(train[:, :-1], train[:, -1])
    right = model.score(test[:, :-1], test[:, -1])
    print(f"right: {right:.3f}")
    for feature in model.feature_importances_.argsort()[::-1][:4]:
        print(f"feature {feature}: {model.feature_importances_[feature]:.0%} of the gain")
    return float(right)


if __name__ == "__main__":
    main(*sys.argv[1:2])
