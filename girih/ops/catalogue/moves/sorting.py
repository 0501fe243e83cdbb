"""What orders or scans a dimension: opaque along it, a batch in all others."""

from __future__ import annotations

from girih.ops.catalogue.moves.indices import opaque_along
from girih.ops.language import Opaque
from girih.ops.operator import operator


def along(x, dim, linear=()):
    return opaque_along((dim % x.rank,) if x.rank else (), x, linear=linear)


@operator("aten.cumsum")
def cumsum(x, dim):
    return along(x, dim, linear=(0,))


@operator("aten.cumprod", "aten.logcumsumexp", "aten.argsort")
def scan(x, dim=-1):
    return along(x, dim)


def places(work):
    """The second result, which is dropped (int64)."""
    return 8 * work.output.elements


def places_and_line(work):
    """Also the places of one line, while it is sorted."""
    shape = work.output.shape
    return places(work) + 8 * (shape[work.attributes.get("dim", -1)] if shape else 1)


@operator("aten.sort", "aten.sort.stable", result=0, temporary=places_and_line)
def sort(x, dim=-1):
    return along(x, dim)


@operator("aten.cummax", "aten.cummin", "aten.topk", result=0, temporary=places)
def scan_or_choose(x, dim=-1):
    return along(x, dim)


def line(work):
    """One line, while it is put in order; the last dimension's are put in order where they lie."""
    dim, shape = work.attributes["dim"], work.output.shape
    return 0 if dim in (-1, len(shape) - 1) else work.output.bytes // max(work.output.elements, 1) * shape[dim]


@operator("girih.sort", "girih.partition", "girih.partition_indices", temporary=line)
def order(input, dim):
    return along(input, dim)


def sorted_values(work):
    """The values, which are made with their positions and dropped."""
    return work.inputs["input"].bytes


@operator("girih.sort_indices", temporary=sorted_values)
def sort_indices(input, dim):
    return along(input, dim)


def without_unknown(work):
    """Truth values and sums of them: which numbers are not NaN, of the sorted ones and of those looked for."""
    return work.inputs["sequence"].elements + 17 * work.inputs["values"].elements


@operator("girih.search_sorted", temporary=without_unknown)
def search_sorted(sequence, values, right=False):
    return lambda *i: Opaque(sequence[:], values[i])[()]


def first_values(work):
    x, attributes = work.inputs["input"], work.attributes
    return x.bytes // max(x.shape[attributes["dim"]], 1) * attributes["k"]


@operator("girih.topk_indices", temporary=first_values)
def topk_indices(input, dim):
    return along(input, dim)


@operator("aten.kthvalue", "aten.median.dim", "aten.mode", result=0)
def order_statistic(x, dim=-1, keepdim=False):
    dim %= max(x.rank, 1)
    if keepdim or not x.rank:
        return along(x, dim)
    return lambda *i: Opaque(x[(*i[:dim], slice(None), *i[dim:])])[()]
