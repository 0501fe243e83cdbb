"""QR of a tall matrix, and a fit by it: polynomials of Chebyshev through noisy measurements.

python examples/arrays/qr.py [--count 200000] [--degree 20]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy

import girih.array


def data(count: int = 200_000, degree: int = 20, seed: int = 0) -> tuple[numpy.ndarray, ...]:
    """Chebyshev's polynomials at random places, and measurements of a function there."""
    random = numpy.random.default_rng(seed)
    places = random.uniform(-1, 1, count)
    values = numpy.exp(places) * numpy.sin(5 * places) + 0.1 * random.normal(size=count)
    return numpy.polynomial.chebyshev.chebvander(places, degree), values


def run(np: Any, a: Any, b: Any) -> Any:
    """q, r with q · r = a, and the coefficients that fit b best."""
    q, r = np.linalg.qr(a)
    return q, r, np.linalg.solve(r, q.T @ b)


def main(argv: list[str] | None = None) -> tuple[Any, Any, Any]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--degree", type=int, default=20)
    options = parser.parse_args(argv)
    np = girih.array
    a, b = map(np.array, data(options.count, options.degree))
    q, r, coefficients = run(np, a, b)
    print(f"coefficients {coefficients.round(3)}")
    crooked = abs(q.T @ q - np.eye(q.shape[1])).max()
    print(f"noise {float((a @ coefficients - b).std()):.4f}; |qᵀq - 1| {float(crooked):.1e}")
    return q, r, coefficients


if __name__ == "__main__":
    main()
