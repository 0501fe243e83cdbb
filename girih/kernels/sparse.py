"""The loop of `girih.sparse_product`, compiled; imported when it is first called: Numba is slow to load."""

from __future__ import annotations

import numpy as np

from girih.layout.jit import numba


@numba.njit(nogil=True, cache=True)
def accumulate(
    out: np.ndarray, values: np.ndarray, rows: np.ndarray, columns: np.ndarray, x: np.ndarray, first: int, start: int
) -> None:
    """out[rows[p] - first] += values[p] · x[columns[p] - start]; what is outside of out or x is left out.

    Elements are taken as they are stored: where they lie in the order of rows, a row of out stays in the cache.
    """
    width = x.shape[1]
    for p in range(len(values)):
        row, column = rows[p] - first, columns[p] - start
        if row < 0 or row >= len(out) or column < 0 or column >= len(x):
            continue
        value = values[p]
        for j in range(width):
            out[row, j] += value * x[column, j]
