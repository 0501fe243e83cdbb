"""Cholesky's factor of a large covariance, by all workers, and a Gaussian process drawn with it.

python examples/arrays/cholesky.py [--count 1500]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy

import girih.array


def data(count: int = 1500, seed: int = 0) -> tuple[numpy.ndarray, ...]:
    """The covariance of a Gaussian process at random places of a line: exp(-distance), and a little on the diagonal."""
    places = numpy.sort(numpy.random.default_rng(seed).uniform(0, 20, count))
    return (numpy.exp(-abs(places[:, None] - places[None, :])) + 1e-6 * numpy.eye(count),)


def run(np: Any, a: Any) -> Any:
    """The lower triangular factor of a symmetric positive definite matrix."""
    return np.linalg.cholesky(a)


def main(argv: list[str] | None = None) -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1500)
    options = parser.parse_args(argv)
    np = girih.array
    (a,) = map(np.array, data(options.count))
    factor = run(np, a)
    noise = np.random.default_rng(0).standard_normal(options.count)
    draw = factor @ noise
    back = np.linalg.solve(factor, draw)
    print(f"|L · Lᵀ - a| {float(abs(factor @ factor.T - a).max()):.1e}; a draw has variance {float(draw.var()):.2f}")
    print(f"whitened again, it differs by {float(abs(back - noise).max()):.1e} from the noise that it was drawn with")
    return factor


if __name__ == "__main__":
    main()
