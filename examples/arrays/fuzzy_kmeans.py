"""Fuzzy k-means (Dunn 1973, Bezdek 1981): a point belongs to every centre, more to nearer ones.

python examples/arrays/fuzzy_kmeans.py [--count 100000] [--groups 6] [--iterations 10]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy

import girih.array


def data(count: int = 100_000, dimensions: int = 8, groups: int = 6, seed: int = 0) -> tuple[numpy.ndarray, ...]:
    """Points in overlapping blobs, and where the search begins: points of the data, moved a little."""
    random = numpy.random.default_rng(seed)
    centres = random.uniform(-4, 4, size=(groups, dimensions))
    x = centres[random.integers(0, groups, count)] + 2 * random.normal(size=(count, dimensions))
    return x, x[:groups] + 0.1 * random.normal(size=(groups, dimensions))


def memberships(np: Any, x: Any, centres: Any) -> Any:
    """Of every point in every group, from 0 to 1; with fuzziness 2 they go with 1 / distance²."""
    squares = (x**2).sum(1)[:, None] + (centres**2).sum(1) - 2 * (x @ centres.T)
    nearness = 1 / np.maximum(squares, 1e-12)
    return nearness / nearness.sum(1)[:, None]


def run(np: Any, x: Any, centres: Any, iterations: int = 10) -> Any:
    """The centres after some iterations: means, weighted by squared memberships."""
    for _ in range(iterations):
        weights = memberships(np, x, centres) ** 2
        centres = (weights.T @ x) / weights.sum(0)[:, None]
    return centres


def main(argv: list[str] | None = None) -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--groups", type=int, default=6)
    parser.add_argument("--iterations", type=int, default=10)
    options = parser.parse_args(argv)
    np = girih.array
    x, start = map(np.array, data(options.count, groups=options.groups))
    centres = run(np, x, start, options.iterations)
    certain = memberships(np, x, centres).max(1).mean()
    print(centres.round(3))
    print(f"a point's largest membership is {float(certain):.2f} in the mean")
    return centres


if __name__ == "__main__":
    main()
