"""Stochastic gradient descent for matrix factorisation: a serial loop over ratings, run in parallel.

    python examples/loops/matrix_factorisation.py [ratings.csv]

Without a file, ratings of a random model of low rank are made up.
"""

from __future__ import annotations

import sys

import numpy as np

import girih.loop as gl

RANK = 16


def made_up(users: int = 2000, items: int = 800, count: int = 200_000) -> gl.Space:
    """Ratings around 0, of users and items of which few have most."""
    generator = np.random.default_rng(0)
    i = (users * generator.random(count) ** 2).astype(int)
    j = (items * generator.random(count) ** 2).astype(int)
    u, v = generator.standard_normal((users, 4)), generator.standard_normal((items, 4))
    values = (u[i] * v[j]).sum(axis=1) / 2 + 0.3 * generator.standard_normal(count)
    return gl.sparse((i, j), values.astype(np.float32), shape=(users, items))


def main(path: str | None = None, epochs: int = 10) -> list[float]:
    """The root of the mean squared error on ratings that were kept back, after each epoch."""
    ratings, kept = (gl.sparse(path) if path else made_up()).split(0.1)
    users, items = ratings.shape
    generator = np.random.default_rng(1)
    W = gl.array(generator.normal(0, 0.3, (users, RANK)), np.float32)
    H = gl.array(generator.normal(0, 0.3, (items, RANK)), np.float32)
    err = gl.accumulator(0.0)

    @gl.parallel_for(ratings, ordered=False)
    def sgd(key, v, W, H, step):
        i, j = key
        d = v - W[i] @ H[j]
        W[i], H[j] = W[i] + step * d * H[j], H[j] + step * d * W[i]

    @gl.parallel_for(kept)
    def test(key, v, W, H):
        i, j = key
        err += (v - W[i] @ H[j]) ** 2

    errors = []
    for epoch in range(epochs):
        sgd(W, H, step=0.02)
        err.reset()
        test(W, H)
        errors.append((err.value / len(kept)) ** 0.5)
        print(f"epoch {epoch}: test error {errors[-1]:.4f}")
    print(sgd.explain())
    return errors


if __name__ == "__main__":
    main(*sys.argv[1:2])
