"""Sums of rows by their labels: what masks `labels == value` choose, for all values at once.

The labels become positions among the values; a sum by position is then a look-up's adjoint, which divides along the
rows (partial sums), along the groups (`first` says where a piece begins) and along the rest.
"""

from __future__ import annotations

from girih.ops.catalogue.reductions import first_piece
from girih.ops.language import Min, Select, Sum, equal
from girih.ops.operator import operator


def order_and_places(work):
    """Values in order with their numbers, places of labels (int64) twice, values there, and outside (a bound)."""
    labels, values = work.inputs["labels"], work.inputs["values"]
    return (19 + labels.item_bytes) * labels.elements + 40 * values.elements + work.copied


@operator("girih.label_positions", piece=first_piece("g"), temporary=order_and_places)
def label_positions(labels, values, first=0):
    return lambda i: Min(lambda g: Select(equal(labels[i], values[g]), g + first, 2**63 - 1))


def groups_piece(attributes, piece):
    return {**attributes, "groups": piece.length("g"), "first": attributes["first"] + piece.start("g")}


def spots(work):
    """Positions - first, again with those outside moved, and outside with its halves; one more group (a bound)."""
    return 19 * work.inputs["positions"].elements + 8 * (work.output.elements + 1)


def spots_and_rows(work):
    """Also the input in float64, if it has less bits, and sums of one more group in it (a bound)."""
    input, output, groups = work.inputs["input"], work.output, max(work.output.shape[0], 1)
    wide = max(8, output.item_bytes)
    copied = wide * input.elements if output.item_bytes < 8 else 0
    return spots(work) + work.copied + copied + wide * (output.elements + output.elements // groups)


@operator("girih.sums_by_position", piece=groups_piece, temporary=spots_and_rows)
def sums_by_position(input, positions, groups, first=0):
    return lambda g, *j: Sum(lambda k: Select(equal(positions[k], g + first), input[(k, *j)], 0))


@operator("girih.counts_by_position", piece=groups_piece, temporary=spots)
def counts_by_position(positions, groups, first=0):
    return lambda g: Sum(lambda k: Select(equal(positions[k], g + first), 1, 0))
