"""Code that knows NumPy only, on girih arrays: NumPy's own functions hand them over to girih.

The estimators below could be any library's: they import NumPy, and never girih. `numpy.mean(x)`, `numpy.add(x, y)`,
`numpy.linalg.solve(a, b)` … on girih arrays stay lazy, and give girih arrays.

python examples/arrays/protocols.py [--rows 200000]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import girih
import girih.array


class Scaler:
    """Columns of mean 0 and variance 1."""

    def fit(self, x: Any) -> Scaler:
        self.mean, self.scale = np.mean(x, axis=0), np.std(x, axis=0)
        return self

    def transform(self, x: Any) -> Any:
        return np.divide(np.subtract(x, self.mean), self.scale)


class Ridge:
    """Least squares with a penalty on the size of the weights."""

    def __init__(self, penalty: float = 1.0) -> None:
        self.penalty = penalty

    def fit(self, x: Any, y: Any) -> Ridge:
        gram = np.matmul(np.transpose(x), x)
        self.weights = np.linalg.solve(gram + self.penalty * np.eye(x.shape[1]), np.matmul(np.transpose(x), y))
        return self

    def predict(self, x: Any) -> Any:
        return np.matmul(x, self.weights)


def score(y: Any, predicted: Any) -> Any:
    """R²: the share of the variance that is explained."""
    return 1 - np.sum(np.square(y - predicted)) / np.sum(np.square(y - np.mean(y)))


def data(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 8)) * np.arange(1, 9) + 5
    return x, x @ np.linspace(-1, 1, 8) + random.normal(size=rows)


def main(argv: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    options = parser.parse_args(argv)
    x, y = map(girih.array.array, data(options.rows))
    scaled = Scaler().fit(x).transform(x)
    model = Ridge().fit(scaled, y)
    found = score(y, model.predict(scaled))
    print(type(found).__name__, "of", f"{float(found):.4f}", "with weights", np.round(model.weights, 2))
    return float(found)


if __name__ == "__main__":
    with girih.cluster(workers=2, backend="threads"):
        main()
