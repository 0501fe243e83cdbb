"""Sums of rows by their labels: what masks `labels == value` choose, for all values at once.

The labels become positions among the values; a sum by position is then a look-up's adjoint, which divides along the
rows (partial sums), along the groups (`first` says where a piece begins) and along the rest.
"""

from __future__ import annotations

import numpy as np

from girih.ops.catalogue.reductions import first_piece
from girih.ops.language import Min, Select, Sum, equal, fn
from girih.ops.operator import operator

floor, smaller = fn("floor"), fn("min")


def order_and_places(work):
    """Values in order with their numbers, places (int64) and whether the value there is another, for values in any
    order; others need less, but where there are more values than labels."""
    values = work.inputs["values"]
    return max(9 * work.output.elements + (8 + values.item_bytes) * values.elements + 8, 40 * values.elements)


@operator("girih.label_positions", piece=first_piece("g"), temporary=order_and_places)
def label_positions(labels, values, first=0):
    return lambda i: Min(lambda g: Select(equal(labels[i], values[g]), g + first, 2**63 - 1))


def groups_piece(attributes, piece):
    return {**attributes, "groups": piece.length("g"), "first": attributes["first"] + piece.start("g")}


def spots(work, copies=0):
    """Positions - first (int64), and which of them are outside: with its two halves, until that is known; then sums of
    one more group, made with these copies, then copied to the result. Where none is outside, less."""
    count, output = work.inputs["positions"].elements, work.output
    groups = max(output.shape[0], 1)
    sums = max(8, output.item_bytes) * (output.elements + output.elements // groups)
    return max(11 * count + 16 - output.bytes, 9 * count + sums + copies - output.bytes, count + sums)


def spots_and_rows(work):
    """Also the input in order, and in float64 if it has less bits."""
    input = work.inputs["input"]
    return spots(work, work.copied + (8 * input.elements if input.item_bytes < 8 else 0))


def sums_of_groups(input, positions, groups, first=0):
    sums = np.zeros((groups, *input.shape[1:]), input.dtype)
    inside = (positions >= first) & (positions < first + groups)
    np.add.at(sums, positions[inside] - first, input[inside])
    return sums


@operator("girih.sums_by_position", piece=groups_piece, temporary=spots_and_rows, walked=1, numpy=sums_of_groups)
def sums_by_position(input, positions, groups, first=0):
    return lambda g, *j: Sum(lambda k: Select(equal(positions[k], g + first), input[(k, *j)], 0))


def spots_in_order(work):
    """Also the positions in order, where they have several dimensions and lie otherwise."""
    return spots(work) + work.copied


@operator("girih.counts_by_position", piece=groups_piece, temporary=spots_in_order)
def counts_by_position(positions, groups, first=0):
    return lambda g: Sum(lambda *k: Select(equal(positions[k], g + first), 1, 0), sizes=positions.shape)


def edges(work):
    """The edges of the bins, and for each thread a row of counts, which are added up (a bound); what does not lie in
    order."""
    return (work.threads + 1) * work.output.bytes + work.output.item_bytes + work.copied


@operator(
    "aten.histc", condition=lambda _, attributes: attributes.get("min", 0) < attributes.get("max", 0), temporary=edges
)
def histc(x, bins=100, min=0, max=0):
    """How many numbers lie in each of the bins between min and max; the last bin has its end. Where no ends are given,
    they are the data's own, and there is no description."""

    def meaning(b):
        def counted(*i):
            number = x[i]
            place = smaller(floor((number - min) / (max - min) * bins), bins - 1)
            return Select((number >= min) & (number <= max) & equal(place, b), 1, 0)

        return Sum(counted, sizes=x.shape)

    return meaning
