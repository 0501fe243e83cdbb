"""Conjugate gradients, for kernel ridge regression: the kernel's matrix is large, and only multiplied by vectors.

python examples/arrays/cg.py [--count 2000] [--tolerance 1e-8]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy

import girih.array


def data(count: int = 2000, dimensions: int = 5, seed: int = 0) -> tuple[numpy.ndarray, ...]:
    """Points, and measurements there (Friedman's first function, with noise)."""
    random = numpy.random.default_rng(seed)
    x = random.random((count, dimensions))
    values = 10 * numpy.sin(numpy.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    return x, values - values.mean() + random.normal(size=count)


def kernel(np: Any, x: Any, width: float, ridge: float) -> Any:
    """exp(-|x - x'|² / width), with `ridge` added on the diagonal."""
    squares = (x**2).sum(1)
    distances = squares[:, None] + squares[None, :] - 2 * (x @ x.T)
    return np.exp(distances / -width) + ridge * np.eye(x.shape[0])


def conjugate_gradients(a: Any, b: Any, tolerance: float, most: int = 1000) -> Any:
    """x with a · x = b, for symmetric positive definite a, to |a · x - b| ≤ tolerance |b|."""
    x, residual = 0 * b, b
    direction, square = residual, residual @ residual
    goal = tolerance**2 * float(square)
    for _ in range(most):
        if square <= goal:
            break
        turned = a @ direction
        step = square / (direction @ turned)
        x = x + step * direction
        residual = residual - step * turned
        before, square = square, residual @ residual
        direction = residual + square / before * direction
    return x


def run(np: Any, x: Any, y: Any, tolerance: float = 1e-8, width: float = 1.0, ridge: float = 1.0) -> Any:
    """The weights of the points in the regression."""
    return conjugate_gradients(kernel(np, x, width, ridge), y, tolerance)


def main(argv: list[str] | None = None) -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--tolerance", type=float, default=1e-8)
    options = parser.parse_args(argv)
    np = girih.array
    x, y = map(np.array, data(options.count))
    weights = run(np, x, y, options.tolerance)
    error = kernel(np, x, 1.0, 0.0) @ weights - y
    print(f"{options.count} measurements are met to {float(error.std()):.3f} in the mean; their noise is 1")
    return weights


if __name__ == "__main__":
    main()
