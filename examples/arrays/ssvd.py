"""Stochastic SVD: the largest singular values of a tall matrix from products with a few random vectors.

Halko, Martinsson, Tropp: Finding structure with randomness (SIAM Review 2011), algorithms 4.4 and 5.1.

python examples/arrays/ssvd.py [--rows 50000] [--columns 400] [--rank 10]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy

import girih.array


def data(rows: int = 50_000, columns: int = 400, rank: int = 10, seed: int = 0) -> tuple[numpy.ndarray, ...]:
    """A matrix of about this rank with noise, and random vectors: ten more than the rank."""
    random = numpy.random.default_rng(seed)
    strong = random.normal(size=(rows, rank)) * numpy.linspace(3, 1, rank) @ random.normal(size=(rank, columns))
    return strong + 0.1 * random.normal(size=(rows, columns)), random.normal(size=(columns, rank + 10))


def run(np: Any, a: Any, vectors: Any, rank: int = 10, powers: int = 2) -> Any:
    """u, s, vᵀ of the largest singular values: u · diag(s) · vᵀ is about a."""
    basis = np.linalg.qr(a @ vectors)[0]
    for _ in range(powers):
        across = np.linalg.qr(a.T @ basis)[0]
        basis = np.linalg.qr(a @ across)[0]
    v, s, ut = np.linalg.svd(a.T @ basis, full_matrices=False)
    return basis @ ut[:rank].T, s[:rank], v[:, :rank].T


def main(argv: list[str] | None = None) -> tuple[Any, Any, Any]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--columns", type=int, default=400)
    parser.add_argument("--rank", type=int, default=10)
    options = parser.parse_args(argv)
    np = girih.array
    a, vectors = map(np.array, data(options.rows, options.columns, options.rank))
    u, s, vt = run(np, a, vectors, options.rank)
    rest = np.linalg.norm(a - (u * s) @ vt) / np.linalg.norm(a)
    print(f"singular values {s.round(1)}; {float(rest):.2%} of the matrix is left")
    return u, s, vt


if __name__ == "__main__":
    main()
