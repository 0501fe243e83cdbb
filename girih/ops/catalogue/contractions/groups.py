"""Products of matrices in groups of rows (a mixture of experts): where a group ends is a value in a tensor.

`ends[e - 1] <= t < ends[e]` says that row t belongs to group e; before the first group stands 0, the padding. A piece
of the groups also reads the end of the group before it, a piece of the rows is told where it begins, and both give zero
for what belongs to others, so that pieces add up.
"""

from __future__ import annotations

from girih.ops.language import Select, Sum
from girih.ops.operator import operator


def group_piece(attributes, piece):
    return {"first": attributes["first"] + piece.start("t"), "leading": piece.cut("e")}


def within(ends, e, t):
    """Does row t belong to group e?"""
    return (ends[e - 1] <= t) & (t < ends[e])


@operator("girih.grouped_product", piece=group_piece, padding=0)
def grouped_product(x, weight, ends, first=0):
    return lambda t, n: Sum(lambda e, k: Select(within(ends, e, t + first), x[t, k] * weight[e, k, n]))


@operator("girih.grouped_gradient", piece=group_piece, padding=0)
def grouped_gradient(x, grad, ends, first=0):
    return lambda e, m, n: Sum(lambda t: Select(within(ends, e, t + first), x[m, t] * grad[t, n]))
