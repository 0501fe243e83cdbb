"""Logistic regression with an L2 penalty, by Nesterov's accelerated gradient descent.

python examples/arrays/logistic_regression.py [--count 200000] [--features 20] [--steps 100]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy

import girih.array


def data(count: int = 200_000, features: int = 20, seed: int = 0) -> tuple[numpy.ndarray, ...]:
    """Features, and 0 or 1, drawn with the odds that a linear function of them gives."""
    random = numpy.random.default_rng(seed)
    x = random.normal(size=(count, features))
    odds = 1 / (1 + numpy.exp(-x @ random.normal(size=features)))
    return x, (random.random(count) < odds).astype(float)


def run(np: Any, x: Any, y: Any, steps: int = 100, rate: float = 1.0, penalty: float = 1e-3) -> Any:
    """The weights after some steps; `penalty` times half their square is added to the mean loss."""
    weights = ahead = np.zeros(x.shape[1])
    for step in range(steps):
        chance = 1 / (1 + np.exp(-(x @ ahead)))
        gradient = x.T @ (chance - y) / x.shape[0] + penalty * ahead
        before, weights = weights, ahead - rate * gradient
        ahead = weights + step / (step + 3) * (weights - before)
    return weights


def main(argv: list[str] | None = None) -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args(argv)
    np = girih.array
    x, y = map(np.array, data(options.count, options.features))
    weights = run(np, x, y, options.steps)
    right = ((x @ weights > 0) == (y > 0)).mean()
    print(f"{float(right):.2%} of {options.count} are told apart; weights {weights.compute().round(2)}")
    return weights


if __name__ == "__main__":
    main()
