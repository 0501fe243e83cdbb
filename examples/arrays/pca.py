"""Principal components: the directions in which points vary most, from their covariance.

python examples/arrays/pca.py [--count 100000] [--dimensions 64] [--components 5]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy

import girih.array


def data(count: int = 100_000, dimensions: int = 64, seed: int = 0) -> tuple[numpy.ndarray, ...]:
    """Correlated normal points whose variances fall geometrically."""
    random = numpy.random.default_rng(seed)
    turn = numpy.linalg.qr(random.normal(size=(dimensions, dimensions)))[0]
    return (random.normal(size=(count, dimensions)) * 0.9 ** numpy.arange(dimensions) @ turn + random.normal(),)


def run(np: Any, x: Any, components: int = 5) -> Any:
    """(variances, directions as rows, the points in these directions), the largest variance first."""
    away = x - x.mean(0)
    variances, directions = np.linalg.eigh(away.T @ away / (x.shape[0] - 1))
    directions = directions[:, ::-1][:, :components].T
    return variances[::-1][:components], directions, away @ directions.T


def main(argv: list[str] | None = None) -> tuple[Any, Any, Any]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--dimensions", type=int, default=64)
    parser.add_argument("--components", type=int, default=5)
    options = parser.parse_args(argv)
    np = girih.array
    (x,) = map(np.array, data(options.count, options.dimensions))
    variances, directions, points = run(np, x, options.components)
    share = variances.sum() / x.var(0, ddof=1).sum()
    print(f"{options.components} of {options.dimensions} directions have {float(share):.1%} of the variance")
    return variances, directions, points


if __name__ == "__main__":
    main()
