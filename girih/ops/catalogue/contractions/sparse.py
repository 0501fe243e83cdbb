"""Sparse matrices: a value, a row and a column for each element that is stored, in any order.

All three are arrays over the stored elements, so that these can be cut anywhere, in equal parts whatever the skew; the
parts' products are partial sums. Duplicates add up, and the transpose is the same with rows and columns exchanged. Sums
over an axis and dense copies are `girih.embedding_gradient` (`girih.ops.catalogue.moves.lookup`).
"""

from __future__ import annotations

from girih.ops.language import Select, Sum, equal
from girih.ops.operator import operator


def product_piece(attributes, piece):
    """The rows from `first` of the product, with the rows of x from `start`."""
    local = {"count": piece.length("v"), "first": attributes["first"] + piece.start("v")}
    return {**attributes, **local, "start": attributes["start"] + piece.start("c")}


@operator("girih.sparse_product", piece=product_piece, walked=1)
def sparse_product(values, rows, columns, x, count, first=0, start=0):
    """out[v, j] = Σ over stored elements p with row v: values[p] · x[columns[p], j]."""

    def element(v, j, p, c):
        here = equal(rows[p], v + first) & equal(columns[p], c + start)
        return Select(here, values[p] * x[c, j], 0)

    return lambda v, j: Sum(lambda p, c: element(v, j, p, c), sizes=(values.shape[0], x.shape[0]))
