"""Cholesky's factorisation in panels of columns, whose rows are divided cyclically.

Panel after panel: what those on its left take from it is subtracted at once, in the memory of the result, then it is
factored (the left-looking variant, as D'Azevedo and Dongarra's out of core; Concurrency: Pract. Exper. 12, 2000). So a
panel is written twice, however many there are, and moves only the rows that lie beside its square. A panel begins at
its diagonal: what is above is never computed.

Of every block of as many rows as a panel has columns each worker has its part (ScaLAPACK's cyclic layout; Choi et al.,
Sci. Program. 5, 1996): a panel is [workers, rows of each, columns], and what begins further down is a slice of it that
lies where it is wanted. All workers have the same to do, and only the squares on the diagonal, which everybody factors,
and the rows beside them, which everybody multiplies with, are gathered. Cost: n³/3 multiplications, of which n·width²/3
are done by everybody; n²/2 elements are gathered.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakSet

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import apply, from_memory
from girih.array.core.evaluation import current
from girih.array.functions.shapes.manipulation import pad, reshape, transpose
from girih.capture.lazy.expressions import Expression

WIDTH = 300
"""Columns of a panel, about: so few that everybody may factor the squares, so many that products are fast."""
MOST = 32
"""Panels of a matrix: of larger ones they are wider."""
LEAST = 1000
"""Rows of a matrix that is worth being divided."""
_factors: WeakSet[Expression] = WeakSet()
"""What was made here and is still there."""


def divides(x: Array) -> bool:
    """Is it a matrix so large that several workers factor it faster than one?"""
    return x.ndim == 2 and x.shape[0] >= LEAST and _workers() > 1


def is_factor(x: Array) -> bool:
    """Was it made as a factor of Cholesky, so that it is a lower triangle?"""
    return x.expression.operator == "aten.linalg_cholesky" or x.expression in _factors


def panels_of(size: int, workers: int) -> tuple[int, int]:
    """(how many panels, columns of each): a multiple of the workers, if possible without columns that are added."""
    count = min(MOST, max(1, round(size / WIDTH)))
    near = [n for n in range(count - count // 4, min(MOST, count + count // 3) + 1) if size % (n * workers) == 0]
    count = min(near, key=lambda n: abs(n - count), default=count)
    width = -(-size // (count * workers)) * workers
    return -(-size // width), width


def cholesky(x: Array) -> Array:
    """L of x = L·Lᴴ, of the lower triangle of a square matrix."""
    size, workers = x.shape[0], _workers()
    count, width = panels_of(size, workers)
    rows, more = width // workers, count * width - size
    if more:  # columns of the identity, which are their own factor
        x = pad(x, ((0, more), (0, more)))
    blocks = reshape(x, (count, workers, rows, count * width))
    panels: list[Array] = []
    for number in range(count):
        panel = _panel(blocks, number, width)
        if more and number == count - 1:
            panel = panel + _ones(width, more, x.dtype).reshape(panel.shape)
        if panels:
            panel = _without(panel, panels)
        panels.append(_factored(panel))
    shape = (count, workers, rows, count * width)
    parts = tuple(reshape(panel, (workers, count - number, rows, width)) for number, panel in enumerate(panels))
    made = reshape(apply("girih.join_panels", shape, x.dtype, tensors=parts), x.shape)
    made = made[:size, :size] if more else made
    _factors.add(made.expression)
    return made


def _workers() -> int:
    return current().workers


def _panel(blocks: Array, number: int, width: int) -> Array:
    """[workers, rows of each, columns] of [blocks of rows, workers, rows of each in a block, columns]."""
    mine = transpose(blocks[number:, :, :, number * width : (number + 1) * width], (1, 0, 2, 3))
    return reshape(mine, (mine.shape[0], -1, width))


def _ones(width: int, more: int, dtype: np.dtype) -> Array:
    """The identity in the last columns of a square."""
    return from_memory(np.diag((np.arange(width) >= width - more).astype(dtype)), copy=False)


def _square(panel: Array) -> Array:
    """A panel's first rows, of all workers."""
    workers, _, width = panel.shape
    rows = width // workers
    return reshape(panel[:, :rows], (width, width))


def _factored(panel: Array) -> Array:
    rows = panel.shape[2] // panel.shape[0]
    return apply("girih.cholesky_panel", panel.shape, panel.dtype, square=_square(panel), panel=panel, rows=rows)


def _without(panel: Array, panels: Sequence[Array]) -> Array:
    """The panel without the product of what is left of it and what is left of its square."""
    workers, length, width = panel.shape
    rows, depth = width // workers, sum(left.shape[2] for left in panels)
    tensors = tuple(panels)
    shape = (workers, rows, depth)
    beside = apply("girih.panel_rows", shape, panel.dtype, tensors=tensors, below=length - rows, rows=rows)
    square = reshape(beside, (width, depth))
    return apply("girih.less_panels", panel.shape, panel.dtype, panel=panel, tensors=tensors, square=square)
