"""A NumPy Generator in a loop body gives each iteration a stream of its own, the same on any number of workers, and
other objects that change when used are refused."""

import sys

import numpy as np

import girih.loop as gl


def drawn(i, a, rng):
    a[i] = rng.random()


def global_drawn(i, a):
    a[i] = RANDOM.random()


def by_iterator(i, a, it):
    a[i] = next(it)


RANDOM = np.random.default_rng(3)


def main() -> str:
    results = []
    for workers in (1, 2, 3):
        rng, a = np.random.default_rng(7), gl.array(np.zeros(2000))
        loop = gl.parallel_for(gl.range(2000), workers=workers)(drawn)
        loop(a, rng)
        results.append(a.numpy())
        loop(a, rng)
        if np.array_equal(results[-1], a.values):
            return "the second execution draws the numbers of the first"
    if any(not np.array_equal(results[0], other) for other in results[1:]):
        return "other numbers of workers draw other numbers"
    if len(set(results[0].tolist())) != 2000:
        return f"only {len(set(results[0].tolist()))} of 2000 iterations drew numbers of their own"
    a = gl.array(np.zeros(1000))
    gl.parallel_for(gl.range(1000), workers=3)(global_drawn)(a)
    if len(set(a.values.tolist())) != 1000:
        return "iterations share numbers of a global Generator"
    for body, held in ((by_iterator, iter(range(1000))), (drawn, np.random.RandomState(0))):
        try:
            gl.parallel_for(gl.range(9), workers=2)(body)(gl.array(np.zeros(9)), held)
        except gl.LoopError as error:
            if "loop_generators.py:" not in str(error) or "Numba" in str(error):
                return f"a {type(held).__name__} is refused without the cure: {error}"
        else:
            return f"a {type(held).__name__} was used by several workers"
    return ""


problem = main()
if problem:
    print(problem, file=sys.stderr)
sys.exit(bool(problem))
