"""Whole numbers never wrap in functions of a loop body (sum, abs, int, divmod), in helper functions, or in buffers:
each is Python's number or an OverflowError with its line."""

import sys

import numpy as np

import girih.loop as gl


def summed(i, a, n):
    a[i] = sum([n[i], n[i]])


def size(i, a, n):
    a[i] = abs(n[i] * 2)


def cut(x):
    return int(x * 1e30)


def helped(i, a, n):
    a[i] = cut(1.0 * n[i])


def divided(i, a, n):
    a[i] = divmod(n[i] * 2, -1)[0]


def put(a, i, x):
    a[i] = x


def stored(i, a, n):
    put(a, i, 1e30 * n[i])


def buffered(i, b):
    b[0] += 100


def main() -> str:
    for body, value in ((summed, 2**62), (size, -(2**62)), (helped, 2**62), (divided, -(2**62)), (stored, 2**62)):
        a = gl.array(np.zeros(3, np.int64))
        try:
            gl.parallel_for(gl.range(3), workers=1)(body)(a, gl.array(np.full(3, value)))
        except OverflowError as error:
            if "loop_whole_number_functions.py:" not in str(error):
                return f"{body.__name__} fails without its line: {error}"
        else:
            return f"{body.__name__} wraps: {a.values.tolist()}"
    for dtype in (np.uint8, np.int8):
        a = gl.array(np.zeros(3, dtype))
        try:
            gl.parallel_for(gl.range(3), workers=1)(buffered)(gl.buffer(a))
        except OverflowError as error:
            if "loop_whole_number_functions.py:" not in str(error):
                return f"the buffer fails without its line: {error}"
        else:
            return f"a buffer of {np.dtype(dtype)} wraps: {a.values.tolist()}"
    return ""


problem = main()
if problem:
    print(problem, file=sys.stderr)
sys.exit(bool(problem))
