"""Kernels of Cholesky's factorisation in panels (`girih.rewrite.passes.factorisations`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Tensor = Any  # torch is untyped for the type checker


def panel_rows(tensors: Sequence[Tensor], below: int, rows: int) -> Tensor:
    """The `rows` above the last `below` of panels [parts, rows, columns] side by side, which end at the same row."""
    return torch.cat([panel.narrow(1, panel.shape[1] - below - rows, rows) for panel in tensors], 2)


def less_panels(panel: Tensor, tensors: Sequence[Tensor], square: Tensor) -> Tensor:
    """panel - tensors · squareᴴ: the last rows of panels side by side, as many as `panel` has.

    Panel by panel, into the same memory: they are nowhere put side by side.
    """
    result = torch.empty(panel.shape, dtype=panel.dtype, device=panel.device)
    turned = square.mH
    for number, done in enumerate(result):
        done.copy_(panel[number])
        start = 0
        for left in tensors:
            depth = left.shape[2]
            done.addmm_(left[number, left.shape[1] - len(done) :], turned[start : start + depth], alpha=-1)
            start += depth
    return result


def cholesky_panel(square: Tensor, panel: Tensor, rows: int, first: int = 0) -> Tensor:
    """A panel of Cholesky's factor: L of square = L·Lᴴ on top, panel·L⁻ᴴ below.

    panel: [parts, rows of each, columns]; the first `rows` of each part are those of the square, of which the lower
    triangle is read. first: how many parts come before these. Whoever has one of them factors the square.
    """
    # Its rows in order, with which BLAS solves faster than with columns in order, as LAPACK would leave them.
    factor = torch.linalg.cholesky(square.mT, upper=True).mT
    result = torch.empty(panel.shape, dtype=panel.dtype, device=panel.device)
    for number, (part, done) in enumerate(zip(panel, result, strict=True), first):
        done[:rows] = factor[number * rows : (number + 1) * rows]
        if len(part) > rows:  # X of X·Lᴴ = B, as conj(L)·Xᵀ = Bᵀ: LAPACK's columns are rows, and made where they stay
            torch.linalg.solve_triangular(factor.conj(), part[rows:].mT, upper=False, out=done[rows:].mT)
    return result


def join_panels(tensors: Sequence[Tensor]) -> Tensor:
    """[blocks, parts, rows, columns] of panels [parts, blocks, rows, columns], side by side, all down to the same
    block; above them are zeros."""
    parts, blocks, rows, _ = tensors[0].shape
    result = tensors[0].new_empty(blocks, parts, rows, sum(panel.shape[3] for panel in tensors))
    start = 0
    for panel in tensors:
        columns = result[..., start : start + panel.shape[3]]
        above = blocks - panel.shape[1]
        columns[:above] = 0
        columns[above:] = panel.transpose(0, 1)
        start += panel.shape[3]
    return result


FACTOR_KERNELS: dict[str, Callable[..., Tensor]] = {
    "girih.cholesky_panel": cholesky_panel,
    "girih.join_panels": join_panels,
    "girih.less_panels": less_panels,
    "girih.panel_rows": panel_rows,
}
