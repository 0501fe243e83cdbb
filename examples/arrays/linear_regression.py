"""Linear regression by gradient descent, and by the normal equations, on rows that lie with the workers.

python examples/arrays/linear_regression.py
"""

from __future__ import annotations

import numpy

import girih
import girih.array as np


def measurements(count: int = 20_000, features: int = 12, seed: int = 0) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Features, and a noisy linear function of them."""
    random = numpy.random.default_rng(seed)
    x = random.normal(size=(count, features))
    return x, x @ random.normal(size=features) + 0.1 * random.normal(size=count)


def descend(x, y, steps: int, rate: float):
    """Weights of the least squares, by gradient descent; the loop's value is asked for in each step."""
    weights = np.zeros(x.shape[1])
    losses = []
    for _ in range(steps):
        error = x @ weights - y
        weights = weights - rate * (x.T @ error) / x.shape[0]
        losses.append(float((error**2).mean()))
    return weights, losses


def main(count: int = 20_000, steps: int = 30, workers: int = 2) -> tuple[numpy.ndarray, numpy.ndarray]:
    features, values = measurements(count)
    with girih.cluster(workers=workers, backend="threads") as cluster:
        x, y = np.array(features), np.array(values)
        weights, losses = descend(x, y, steps, rate=0.5)
        exact = np.linalg.solve(x.T @ x, x.T @ y)
        print(np.explain(exact))
        result = weights.compute(), exact.compute()
        print(f"loss {losses[0]:.3f} → {losses[-1]:.5f} in {steps} steps; {cluster.planned} graphs were planned")
    return result


if __name__ == "__main__":
    main()
