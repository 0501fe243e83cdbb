"""Cholesky's factor of a covariance, block by block, and a Gaussian process drawn with it.

python examples/arrays/cholesky.py [--count 1500] [--block 500]
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


def run(np: Any, a: Any, block: int = 500) -> Any:
    """The lower triangular factor of a symmetric positive definite matrix, a block of columns after another."""
    count = a.shape[0]
    columns: list[Any] = []
    for start in range(0, count, block):
        stop = min(start + block, count)
        panel = a[start:, start:stop]
        for left in columns:
            panel = panel - left[start:] @ left[start:stop].T
        top = np.linalg.cholesky(panel[: stop - start])
        below = np.linalg.solve(top, panel[stop - start :].T).T
        columns.append(np.concatenate([np.zeros((start, stop - start)), top, below]))
    return np.concatenate(columns, 1)


def main(argv: list[str] | None = None) -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--block", type=int, default=500)
    options = parser.parse_args(argv)
    np = girih.array
    (a,) = map(np.array, data(options.count))
    factor = run(np, a, options.block)
    draw = factor @ np.random.default_rng(0).standard_normal(options.count)
    print(f"|L · Lᵀ - a| {float(abs(factor @ factor.T - a).max()):.1e}; a draw has variance {float(draw.var()):.2f}")
    return factor


if __name__ == "__main__":
    main()
