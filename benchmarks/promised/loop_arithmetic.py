"""Scalar arithmetic in loop bodies has the bits of plain Python: nothing is rearranged or contracted."""

import math
import sys

import numpy as np

import girih.loop as gl


def body(i, v, out):
    x, y = v[0], v[1]
    out[i, 0] = (x + y) - y
    b = x * 1e8
    out[i, 1] = math.sqrt(b * b - 4 * (b / 2) * (b / 2)) if b * b >= 4 * (b / 2) * (b / 2) else -1.0
    out[i, 2] = x * y + 0.1
    out[i, 3] = x / 3 * 3 - x
    out[i, 4] = x**2 + y**3
    out[i, 5] = x / y / 3
    total, lost = 0.0, 0.0
    for k in range(v.shape[0]):
        part = v[k] - lost
        following = total + part
        lost = (following - total) - part
        total = following
    out[i, 6] = total
    out[i, 7] = x * y - x * y


def main() -> str:
    draw = np.random.default_rng(0)
    values = draw.normal(size=(200, 300)) * 10.0 ** draw.integers(-8, 9, (200, 300))
    expected = np.zeros((200, 8))
    for i, row in enumerate(values):
        body(i, row, expected)
    for workers in (1, 2):
        out = gl.array(np.zeros((200, 8)))
        gl.parallel_for(gl.sparse((np.arange(200),), values), workers=workers)(body)(out)
        apart = out.values.view(np.int64) != expected.view(np.int64)
        if apart.any():
            return f"{workers} workers: {int(apart.sum())} of {apart.size} results have other bits than plain Python's"
    return ""


problem = main()
if problem:
    print(problem, file=sys.stderr)
sys.exit(bool(problem))
