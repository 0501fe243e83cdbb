"""Reductions over some dimensions. A mean's pieces divide by the whole's count, so that they add up to it."""

from __future__ import annotations

from math import inf, prod

import numpy as np

from girih.ops.catalogue.moves.indices import dimensions, inserted, opaque_along, reduced, reduced_position, whole
from girih.ops.derive.temporaries import copied, summed
from girih.ops.language import LogSumExp, Max, Min, Opaque, Prod, Select, Sum, equal, fn
from girih.ops.operator import operator

absolute, square_root, not_equal = fn("abs"), fn("sqrt"), fn("ne")


def lie_together(x, dims):
    """Do the dimensions follow each other in memory, so that PyTorch goes through them as one?"""
    wide = [d for d, size in enumerate(x.shape) if size > 1]
    order = wide if x.strides is None else sorted(wide, key=lambda d: -x.strides[d])
    at = [place for place, d in enumerate(order) if d in dims]
    if at != list(range(at[0], at[-1] + 1) if at else ()):
        return False
    follow = lambda d, after: x.strides is None or x.strides[d] == x.strides[after] * x.shape[after]
    return all(follow(order[place], order[place + 1]) for place in at[:-1])


def summed_wide(work):
    """Of short floating-point numbers PyTorch adds some sums up in float32: of all, and, after a copy of them, of
    dimensions that do not follow each other in memory."""
    (x,) = work.inputs.values()
    if not work.output.short:
        return 0
    dims = set(dimensions(len(x.shape), work.attributes.get("dim", work.attributes.get("dims"))))
    if not lie_together(x, dims):
        return 4 * (x.elements + work.output.elements)
    return 4 * work.output.elements if len(dims) == len(x.shape) else 0


def averaged_wide(work):
    """PyTorch averages short floating-point numbers in a float32 copy, and divides all of them by a number."""
    (x,) = work.inputs.values()
    return 4 * (x.elements + work.output.elements) + 8 if work.output.short else 0


def over(reducer, element=lambda value: value):
    """The reducer over the dimensions that are named, as a description."""
    return lambda x, dim=None, keepdim=False: reduced(reducer, x, dim, keepdim, element)


sum_ = operator("aten.sum", "aten.sum.dim_IntList", temporary=summed_wide)(over(Sum))


def extent(x, dim):
    return prod(x.shape[dimension] for dimension in dimensions(x.rank, dim))


def mean_by_count(attributes, piece):
    """A piece of a mean is its sum over the whole's count."""
    dims = dimensions(len(piece.inputs[0]), attributes["dim"])
    count = prod(piece.size(f"k{number}") for number in range(len(dims)))
    return "girih.mean", {"dims": dims, "keepdim": attributes["keepdim"], "count": count}


@operator(
    "aten.mean",
    "aten.mean.dim",
    piece=mean_by_count,
    condition=lambda _, attributes: attributes.get("dtype") is None,
    temporary=averaged_wide,
)
def mean(x, dim=None, keepdim=False):
    return reduced(Sum, x, dim, keepdim, finish=lambda total: total / extent(x, dim))


def count_as_tensor(work):
    """girih.kernels.scripted.mean: PyTorch makes a tensor of the number, and one of the operand's type of that."""
    return 8 + work.output.item_bytes + summed_wide(work)


@operator("girih.mean", temporary=count_as_tensor)
def counted_mean(input, dims, keepdim, count):
    return reduced(Sum, input, dims, keepdim, finish=lambda total: total / count)


amax, amin = operator("aten.amax")(over(Max)), operator("aten.amin")(over(Min))
max_of_all = operator("aten.max", temporary=copied)(over(Max))
min_of_all = operator("aten.min", temporary=copied)(over(Min))
max_values, min_values = operator("aten.max.dim", result=0)(over(Max)), operator("aten.min.dim", result=0)(over(Min))
prod_ = operator("aten.prod", "aten.prod.dim_int")(over(Prod))


def truths(work):
    """PyTorch makes truth values of all elements first, but where it goes through one dimension."""
    (x,) = work.inputs.values()
    return 0 if x.dtype == work.output.dtype else x.elements


any_nonzero, all_nonzero = (over(reducer, lambda value: not_equal(value, 0)) for reducer in (Max, Min))
any_, all_ = operator("aten.any.dim")(any_nonzero), operator("aten.all.dim")(all_nonzero)
any_of = operator("aten.any", "aten.any.dims", temporary=truths)(any_nonzero)
all_of = operator("aten.all", "aten.all.dims", temporary=truths)(all_nonzero)


def exponentials(work):
    """exp(x - max) is made whole, and the maxima (ATen/native/ReduceOps.cpp, logsumexp_out_impl)."""
    return work.inputs["self"].bytes + work.output.bytes


@operator("aten.logsumexp", temporary=exponentials)
def logsumexp(x, dim, keepdim=False):
    return reduced(LogSumExp, x, dim, keepdim)


def own_exponentials(work):
    """exp(x - max), the maxima and the sums of them, in the dtype of x; the result is in float64."""
    x = work.inputs["input"]
    return x.bytes + 2 * (work.output.bytes * x.item_bytes // 8)


@operator("girih.logsumexp", temporary=own_exponentials)
def own_logsumexp(input, dims):
    return reduced(LogSumExp, input, dims, True)


def variance(x, dim, keepdim, correction, finish=lambda value: value):
    """Σ (x - mean)² / (count - correction): the row is needed whole, for its mean and for the sum."""
    dims = dimensions(x.rank, dim)
    sizes = tuple(x.shape[dimension] for dimension in dims)

    def meaning(*i):
        at = lambda k: x[reduced_position(i, k, dims, x.rank, keepdim)]
        average = lambda: Sum(lambda *j: at(j), sizes=sizes) / prod(sizes)
        return finish(Sum(lambda *k: (at(k) - average()) ** 2, sizes=sizes) / (prod(sizes) - correction))

    return meaning


@operator("aten.var.correction")
def var(x, dim=None, correction=None, keepdim=False):
    return variance(x, dim, keepdim, 1 if correction is None else correction)


@operator("aten.var.dim")
def var_unbiased(x, dim=None, unbiased=True, keepdim=False):
    return variance(x, dim, keepdim, int(unbiased))


@operator("aten.std.correction")
def std(x, dim=None, correction=None, keepdim=False):
    return variance(x, dim, keepdim, 1 if correction is None else correction, finish=square_root)


@operator("aten.linalg_vector_norm")
def vector_norm(x, ord=2, dim=None, keepdim=False):
    if ord in (inf, -inf):
        return reduced(Max if ord > 0 else Min, x, dim, keepdim, absolute)
    if ord == 1:
        return reduced(Sum, x, dim, keepdim, absolute)
    if ord == 2:
        return reduced(Sum, x, dim, keepdim, lambda value: value * value, square_root)
    if ord == 0:
        return reduced(Sum, x, dim, keepdim, lambda value: Select(equal(value, 0), 0, 1))
    return reduced(Sum, x, dim, keepdim, lambda value: absolute(value) ** ord, lambda total: total ** (1 / ord))


@operator("girih.product_sum", temporary=summed)
def product_sum(a, b, dims):
    return reduced_together(lambda position: a.broadcast(position) * b.broadcast(position), dims, a, b)


def chosen_rows(work):
    """Their numbers and a copy of them, at most of all (a bound); the input, where its rows do not lie in order."""
    return 8 * work.inputs["mask"].elements + work.inputs["input"].bytes + work.copied


def sum_of_chosen(input, mask):
    return input[mask].sum(0, dtype=input.dtype)


@operator("girih.masked_sum", temporary=chosen_rows, numpy=sum_of_chosen)
def masked_sum(input, mask):
    return lambda *i: Sum(lambda *k: Select(mask[k], input[(*k, *i)], 0), sizes=mask.shape)


def reduced_together(element, dims, *tensors, finish=lambda value: value):
    """Σ over `dims` (kept, of size 1) of an element made from tensors that broadcast."""
    rank = max(x.rank for x in tensors)
    dims = dimensions(rank, dims)
    shapes = [(1,) * (rank - x.rank) + x.shape for x in tensors]
    sizes = tuple(max(shape[dimension] for shape in shapes) for dimension in dims)
    return lambda *i: finish(Sum(lambda *k: element(reduced_position(i, k, dims, rank, True)), sizes=sizes))


def extreme_values(work):
    """girih's kernels take the places from PyTorch's max and min, which make the values, too. The place among all is
    looked for in one line."""
    if work.attributes.get("dim") is None:
        return work.copied
    item = max(work.inputs.values(), key=lambda x: x.bytes).item_bytes
    return work.output.elements * item


def extreme_along(name):
    def piece(attributes, _):
        return attributes if attributes["dim"] is None else (name, attributes)

    return piece


def extreme_place(x, dim=None, keepdim=False):
    if dim is None or not x.rank:
        return lambda *i: Opaque(whole(x))[i]
    dim %= x.rank
    if keepdim:
        return opaque_along((dim,), x)
    return lambda *i: Opaque(x[(*i[:dim], slice(None), *i[dim:])])[()]


def place_by(name, find):
    by_numpy = lambda x, dim=None, keepdim=False: find(x, axis=dim, keepdims=keepdim)
    piece = extreme_along(f"girih.{name}")
    own = operator(f"aten.{name}", f"girih.{name}", piece=piece, temporary=extreme_values, numpy=by_numpy)
    return own(extreme_place)


argmax, argmin = place_by("argmax", np.argmax), place_by("argmin", np.argmin)


def first_piece(name):
    """The attribute `first` moves by where the piece of index variable `name` begins."""
    return lambda attributes, piece: {**attributes, "first": attributes["first"] + piece.start(name)}


def positions_and_hits(work):
    """girih's kernel: an int64 position, or the largest, for each element, and where it is equal (bool)."""
    elements = work.inputs["input"].elements
    return 9 * elements + 8 * work.inputs["input"].shape[work.attributes["dim"]]


@operator("girih.first_index", piece=first_piece("k"), temporary=positions_and_hits)
def first_index(input, extreme, dim, first=0):
    """argmax in two parts: where the row's extreme (keepdim) first occurs; a piece without it gives the largest."""
    dim %= input.rank
    return lambda *i: Min(
        lambda k: Select(equal(input[inserted(i, dim, k)], extreme[inserted(i, dim, 0)]), k + first, 2**63 - 1)
    )
