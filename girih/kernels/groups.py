"""Products of matrices in groups: rows of one matrix belong to groups that follow one another, each with a matrix.

A mixture of experts sorts its tokens by expert. `ends` says behind which row each group ends; how many rows a group has
is only known when it runs. Rows behind the last group belong to none. Rows and groups divide: a piece is told which row
is its `first`, and where the group before its own ended (`leading`); what belongs to other pieces' groups is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch

Tensor = Any  # torch is untyped for the type checker

torch.library.define("girih::grouped_product", "(Tensor x, Tensor weight, Tensor ends) -> Tensor")
torch.library.define("girih::grouped_gradient", "(Tensor x, Tensor grad, Tensor ends) -> Tensor")
torch.library.register_fake(
    "girih::grouped_product", lambda x, weight, ends: x.new_empty((x.shape[0], weight.shape[2]))
)
torch.library.register_fake(
    "girih::grouped_gradient", lambda x, grad, ends: x.new_empty((ends.shape[0], x.shape[0], grad.shape[1]))
)


def grouped_product(x: Tensor, weight: Tensor, ends: Tensor, first: int = 0, leading: bool = False) -> Tensor:
    """[rows, columns]: each row of x [rows, depth] times its group's matrix of weight [groups, depth, columns]; 0 for
    rows of no group.

    ends: [groups]; if `leading`, behind the end of the group before. first: the number of x's first row.
    """
    out = x.new_zeros((x.shape[0], weight.shape[2]))
    for group, start, stop in _groups(ends, first, x.shape[0], leading):
        torch.mm(x[start:stop], weight[group], out=out[start:stop])
    return out


def grouped_gradient(x: Tensor, grad: Tensor, ends: Tensor, first: int = 0, leading: bool = False) -> Tensor:
    """[groups, depth, columns]: of each group, its columns of x [depth, rows] times its rows of grad [rows, columns].

    ends, first, leading: as of `grouped_product`.
    """
    out = x.new_zeros((ends.shape[0] - leading, x.shape[0], grad.shape[1]))
    for group, start, stop in _groups(ends, first, grad.shape[0], leading):
        torch.mm(x[:, start:stop], grad[start:stop], out=out[group])
    return out


def _groups(ends: Tensor, first: int, rows: int, leading: bool) -> Iterator[tuple[int, int, int]]:
    """For each group that has some of these rows: its number, the first of them, and one past the last."""
    bounds = [min(max(end - first, 0), rows) for end in ends.tolist()]
    if not leading:
        bounds.insert(0, min(max(-first, 0), rows))
    for group, (start, stop) in enumerate(pairwise(bounds)):
        if start < stop:
            yield group, start, stop


GROUP_KERNELS: dict[str, Callable[..., Tensor]] = {
    "girih.grouped_product": grouped_product,
    "girih.grouped_gradient": grouped_gradient,
}
