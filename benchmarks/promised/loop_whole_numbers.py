"""Whole numbers in loop bodies never wrap: constants are folded as Python does, and what does not fit is an error
with its line."""

import sys

import numpy as np

import girih.loop as gl


def folded(i, a, n):
    a[i] = 3**45 % 1000


def beyond(i, a, n):
    a[i] = 2**70 % (i + 7)


def shifted(i, a, n):
    a[i] = 1 << 20 * i


def counted(i, a, n):
    k = 1
    for _ in range(70):
        k *= 2
    a[i] = k


def product(i, a, n):
    a[i] = n[i] * 4


def narrow(i, a, n):
    n[0] += 2**62


def main() -> str:
    a = gl.array(np.zeros(5))
    gl.parallel_for(gl.range(5), workers=2)(folded)(a, gl.array(np.zeros(5, np.int64)))
    if set(a.values.tolist()) != {3**45 % 1000}:
        return f"3**45 % 1000 is {a.values[0]}, in Python {3**45 % 1000}"
    for body in (beyond, shifted, counted, product, narrow):
        a, n = gl.array(np.zeros(5, np.int64)), gl.array(np.full(5, 2**61))
        try:
            gl.parallel_for(gl.range(5), workers=2)(body)(a, n)
        except (OverflowError, gl.LoopError) as error:
            if body is not narrow and "loop_whole_numbers.py:" not in str(error):
                return f"{body.__name__} fails without its line: {error}"
        else:
            return f"{body.__name__} wraps: {a.values.tolist()}, {n.values.tolist()}"
    return ""


problem = main()
if problem:
    print(problem, file=sys.stderr)
sys.exit(bool(problem))
