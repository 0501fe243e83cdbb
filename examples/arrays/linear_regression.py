"""Linear regression: least squares by gradient descent, and by the normal equations.

python examples/arrays/linear_regression.py [--count 200000] [--features 12] [--steps 30]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy

import girih.array


def data(count: int = 200_000, features: int = 12, seed: int = 0) -> tuple[numpy.ndarray, ...]:
    """Features, and a noisy linear function of them."""
    random = numpy.random.default_rng(seed)
    x = random.normal(size=(count, features))
    return x, x @ random.normal(size=features) + 0.1 * random.normal(size=count)


def run(np: Any, x: Any, y: Any, steps: int = 30, rate: float = 0.5) -> Any:
    """Weights after some steps of gradient descent."""
    weights = np.zeros(x.shape[1])
    for _ in range(steps):
        error = x @ weights - y
        weights = weights - rate / x.shape[0] * (x.T @ error)
    return weights


def solve(np: Any, x: Any, y: Any) -> Any:
    """The weights of the least squares, by the normal equations."""
    return np.linalg.solve(x.T @ x, x.T @ y)


def main(argv: list[str] | None = None) -> tuple[Any, Any]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--features", type=int, default=12)
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args(argv)
    np = girih.array
    x, y = map(np.array, data(options.count, options.features))
    descended, exact = run(np, x, y, options.steps), solve(np, x, y)
    print(f"mean squared error {float(((x @ descended - y) ** 2).mean()):.5f} after {options.steps} steps")
    print(f"mean squared error {float(((x @ exact - y) ** 2).mean()):.5f} at best")
    return descended, exact


if __name__ == "__main__":
    main()
