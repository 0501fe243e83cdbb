"""What orders or scans a dimension: opaque along it, a batch in all others."""

from __future__ import annotations

import numpy as np

from girih.ops.catalogue.moves.indices import opaque_along
from girih.ops.derive.temporaries import COUNTED
from girih.ops.language import Opaque, Sum
from girih.ops.operator import operator


def along(x, dim, linear=()):
    return opaque_along((dim % x.rank,) if x.rank else (), x, linear=linear)


@operator("aten.cumsum", scan=True, numpy=lambda x, dim, **_: np.cumsum(x, axis=dim, dtype=x.dtype))
def cumsum(x, dim):
    return along(x, dim, linear=(0,))


@operator("aten.cumprod", scan=True, numpy=lambda x, dim, **_: np.cumprod(x, axis=dim, dtype=x.dtype))
def cumprod(x, dim):
    return along(x, dim)


def line_places(work):
    """The places of one line, while it is sorted."""
    shape = work.output.shape
    return 8 * (shape[work.attributes.get("dim", -1)] if shape else 1)


def values_and_line(work):
    """The values, which are made with their places and dropped, and the places of one line."""
    return next(iter(work.inputs.values())).bytes + line_places(work)


def scan(x, dim=-1):
    return along(x, dim)


logcumsumexp = operator("aten.logcumsumexp")(scan)
argsort = operator("aten.argsort", temporary=values_and_line)(scan)


def places(work):
    """The second result, which is dropped (int64)."""
    return 8 * work.output.elements


def places_and_line(work):
    """Also the places of one line, while it is sorted."""
    return places(work) + line_places(work)


def sorted_array(x, dim=-1, descending=False, **_):
    rising = np.sort(x, axis=dim, kind="stable")
    return np.flip(rising, dim) if descending else rising


sort = operator("aten.sort", "aten.sort.stable", result=0, temporary=places_and_line, numpy=sorted_array)(scan)
scan_or_choose = operator("aten.cummax", "aten.cummin", "aten.topk", result=0, temporary=places)(scan)


def line(work):
    """One line, while it is put in order; the last dimension's are put in order where they lie."""
    dim, shape = work.attributes["dim"], work.output.shape
    return 0 if dim in (-1, len(shape) - 1) else work.output.bytes // max(work.output.elements, 1) * shape[dim]


def own(input, dim):
    return along(input, dim)


order = operator("girih.sort", "girih.partition", "girih.partition_indices", temporary=line)(own)


def sorting_places(x, dim, descending=False):
    if not descending:
        return np.argsort(x, axis=dim, kind="stable")
    return x.shape[dim] - 1 - np.flip(np.argsort(np.flip(x, dim), axis=dim, kind="stable"), dim)


sort_indices = operator("girih.sort_indices", temporary=values_and_line, numpy=sorting_places)(own)


def without_unknown(work):
    """Truth values and sums of them: which numbers are not NaN, of the sorted ones and of those looked for."""
    return work.inputs["sequence"].elements + 17 * work.inputs["values"].elements


def insertion_places(sequence, values, right=False):
    return np.searchsorted(sequence, values, "right" if right else "left")


@operator("girih.search_sorted", temporary=without_unknown, numpy=insertion_places)
def search_sorted(sequence, values, right=False):
    return lambda *i: Opaque(sequence[:], values[i])[()]


def parts_of_numbers(work):
    """Of some numbers at a time the bins, whole and as fractions, their edges and truth values, or the numbers in order
    (a bound); some copies of the edges and the counts."""
    numbers = min(COUNTED, work.inputs["input"].elements)
    return work.copied + 48 * numbers + 6 * work.inputs["edges"].bytes


@operator("girih.bin_counts", temporary=parts_of_numbers, numpy=lambda input, edges: np.histogram(input, edges)[0])
def bin_counts(input, edges):
    return lambda b: Sum(lambda *i: Opaque(edges[:], input[i])[(b,)], sizes=input.shape)


def first_values(work):
    x, attributes = work.inputs["input"], work.attributes
    return x.bytes // max(x.shape[attributes["dim"]], 1) * attributes["k"]


def first_places(x, k, dim, largest=True):
    return np.take(sorting_places(x, dim, largest), np.arange(k), axis=dim)


topk_indices = operator("girih.topk_indices", temporary=first_values, numpy=first_places)(own)


def copied_values(work):
    """The values, which are put in order."""
    return next(iter(work.inputs.values())).bytes


def copied_values_and_places(work):
    """The values, and their places (int64)."""
    (x,) = work.inputs.values()
    return x.bytes + 8 * x.elements


def order_statistic(x, dim=-1, keepdim=False):
    dim %= max(x.rank, 1)
    if keepdim or not x.rank:
        return along(x, dim)
    return lambda *i: Opaque(x[(*i[:dim], slice(None), *i[dim:])])[()]


kthvalue = operator("aten.kthvalue", result=0, temporary=copied_values_and_places)(order_statistic)
median = operator("aten.median.dim", result=0, temporary=copied_values)(order_statistic)
mode = operator("aten.mode", result=0)(order_statistic)
