"""A loop that carries a dependence keeps the serial order unless told, and says once what another order would gain,
or why it is serial."""

import sys
import warnings

import numpy as np

import girih.loop as gl


def floyd_warshall(key, d):
    k, i, j = key
    d[i, j] = min(d[i, j], d[i, k] + d[k, j])


def chain(i, a):
    a[i] = a[i - 1] + 1


def main() -> str:
    draw = np.random.default_rng(0)
    edges = np.where(draw.random((60, 60)) < 0.05, draw.integers(1, 100, (60, 60)).astype(float), np.inf)
    shortest = edges.copy()
    for k in range(60):
        shortest = np.minimum(shortest, shortest[:, k, None] + shortest[k])
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        loop = gl.parallel_for(gl.range(60, 60, 60), workers=2)(floyd_warshall)
        for _ in range(2):
            d = gl.array(edges.copy())
            loop(d)
            if not np.array_equal(d.values, shortest):
                return f"{int((d.values != shortest).sum())} of 3600 distances are wrong"
        serial = gl.parallel_for(gl.range((1, 9)), workers=2)(chain)
        for _ in range(2):
            serial(gl.array(np.zeros(9)))
    said = [str(item.message) for item in heard]
    if len(said) != 2 or "ordered=False" not in said[0] or "gl.buffer(a)" not in said[1]:
        return f"what is told is not one sentence for each loop, with the cure: {said}"
    return ""


problem = main()
if problem:
    print(problem, file=sys.stderr)
sys.exit(bool(problem))
