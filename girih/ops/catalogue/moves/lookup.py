"""Tables: rows found by number, written as sums over the table of what has the number looked for.

`Sum(lambda v: Select(equal(indices[i], v), weight[v, d]))` is a look-up. A piece of the table finds the rows that it
has and gives zero for the others, so that the pieces add up: `first` says where the piece begins.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from girih.ops.catalogue.moves.indices import inserted, opaque_along, replaced, whole, without
from girih.ops.catalogue.reductions import first_piece
from girih.ops.derive.temporaries import added_wide, copied, slice_bytes, slices
from girih.ops.language import DescriptionError, Max, Opaque, Select, Sum, equal, fn
from girih.ops.operator import operator

remainder = fn("remainder")


def table_piece(attributes, piece):
    return ("girih.embedding", {"first": piece.start("v"), "of": piece.size("v")}) if piece.cut("v") else attributes


def numbers_in_order(work):
    """PyTorch's kernel copies numbers that do not lie in order."""
    return 0 if work.inputs["indices"].contiguous else work.inputs["indices"].bytes


@operator("aten.embedding", piece=table_piece, temporary=numbers_in_order)
def embedding(weight, indices):
    return lambda *i: Sum(lambda v: Select(equal(indices[i[:-1]], v), weight[v, i[-1]]))


def spots(work):
    """girih's kernels look at index - first (int64) and whether it is inside (bool), and outside.

    Indices of another type are made int64 first.
    """
    index = work.inputs["index" if "index" in work.inputs else "indices"]
    return index.elements * (10 if index.item_bytes == 8 else 18)


def spots_in_order(work):
    """PyTorch's kernel copies numbers that do not lie in order. Of a whole table the numbers are rows as they are."""
    numbers = work.inputs["indices"]
    turned = 0 if numbers.contiguous else 8 * numbers.elements
    if work.attributes.get("first") is None:
        return turned if numbers.item_bytes == 8 else 8 * numbers.elements
    return spots(work) + turned


def rows_from(attributes, piece):
    """Where the table was whole, the kernel is told of how many rows it has a part: a number of none is an error."""
    first = attributes["first"]
    if piece.cut("v"):
        return {"first": (first or 0) + piece.start("v")} | ({"of": piece.size("v")} if first is None else {})
    return {} if first is None else attributes


@operator("girih.embedding", piece=rows_from, temporary=spots_in_order)
def embedding_from(weight, indices, first=None):
    """Rows of the table that begins at row `first` of the whole; None: it is the whole, with a row for each number."""
    return lambda *i: Sum(lambda v: Select(equal(indices[i[:-1]], v + (first or 0)), weight[v, i[-1]]))


def collected(grad, indices, first, padding):
    """out[v, d] = Σ grad[position, d] over the positions whose index is v."""

    def element(v, d, p):
        value = Select(equal(indices[p], v + first), grad[(*p, d)])
        return value if padding < 0 else Select(equal(indices[p], padding), 0, value)

    return lambda v, d: Sum(lambda *p: element(v, d, p), sizes=indices.shape)


def of_whole(attributes, size):
    """What says that the numbers are rows, or classes, of a whole with `size` of them, where they count from its first:
    the kernel has an error for others."""
    return attributes if attributes["first"] else {**attributes, "of": size}


def rows_piece(attributes, piece):
    part = {"rows": piece.length("v"), "first": attributes["first"] + piece.start("v")}
    return {**of_whole(attributes, piece.size("v")), **part}


def spots_and_rows(work):
    """Where some are outside, the rows that are inside are picked slice by slice: at most one slice (a bound)."""
    grad = work.inputs["grad"]
    flat = (work.inputs["indices"].elements, grad.shape[-1])
    rows = slices(flat, grad.item_bytes, (0,))
    some_outside = "v" in work.cut or work.attributes.get("padding", -1) >= 0
    chosen = slice_bytes(flat, grad.item_bytes, rows) + 16 * min(rows[1], flat[0])  # with their numbers and places
    return spots(work) + work.copied + (chosen if some_outside else 0)


@operator("girih.embedding_gradient", piece=rows_piece, temporary=spots_and_rows, walked=1)
def embedding_gradient(grad, indices, rows, first=0, padding=-1):
    return collected(grad, indices, first, padding)


def dense_piece(attributes, piece):
    if not piece.cut("v"):
        return attributes
    rows = {"rows": piece.length("v"), "first": piece.start("v"), "padding": attributes["padding_idx"]}
    return "girih.embedding_gradient", {**rows, "of": piece.size("v")}


@operator(
    "aten.embedding_dense_backward",
    piece=dense_piece,
    condition=lambda _, attributes: not attributes["scale_grad_by_freq"],
    temporary=copied,
)
def embedding_dense_backward(grad_output, indices, num_weights, padding_idx):
    return collected(grad_output, indices, 0, padding_idx)


def bags_of_numbers(work):
    """Of means and maxima, and of tables that do not lie in order, the bag of each number, twice, and how many numbers
    each bag has (a bound)."""
    if not work.attributes.get("mode") and work.inputs["weight"].contiguous:
        return 0
    return 16 * (work.inputs["indices"].elements + work.output.shape[0])


@operator("aten._embedding_bag", result=0, temporary=bags_of_numbers)
def embedding_bag(weight, indices, offsets, per_sample_weights=None):
    shared = [whole(x) for x in (indices, offsets, per_sample_weights) if x is not None]
    return lambda b, d: Opaque(weight[:, d], *shared, linear=(0,))[b]


# ------------------------------------------------------------------------------------------- along one dimension


def spots_and_picked(work):
    return spots(work) + added_wide(work)


def pick_piece(attributes, piece):
    return first_piece("c")(of_whole(attributes, piece.size("c")), piece)


@operator("girih.pick", piece=pick_piece, temporary=spots_and_picked)
def pick(input, index, dim, first=0, ignored=-100):
    """ignored: the one number that may pick nothing, which no place has; for whoever checks them."""
    dim %= input.rank
    return lambda *i: Sum(lambda c: Select(equal(index[i], c + first), input[inserted(i, dim, c)]))


def place_piece(attributes, piece):
    dim = attributes["dim"] % len(piece.output)
    start, stop = piece.output[dim]
    part = {"size": stop - start, "first": attributes["first"] + start}
    return {**of_whole(attributes, attributes["size"]), **part}


def spots_and_values(work):
    """Beside the spots the values that are inside, and the zeros that are taken in place of the others."""
    return spots(work) - work.inputs["index"].elements + 2 * work.inputs["value"].bytes + added_wide(work)


@operator("girih.place", piece=place_piece, temporary=spots_and_values)
def place(value, index, dim, first=0, ignored=-100):
    """Zeros but for `value` at the index along a new dimension. ignored: as for `pick`."""
    dim %= value.rank + 1
    return lambda *i: Select(equal(index[without(i, dim)], i[dim] + first), value[without(i, dim)])


@operator("girih.wrap_index", elementwise=True)
def wrap_index(index, size):
    return Select((index < 0) & (index >= -size), index + size, index)


@operator("aten.index_select", temporary=copied, numpy=lambda x, index, dim: np.take(x, index, axis=dim))
def index_select(x, dim, index):
    dim %= x.rank
    return lambda *i: Sum(lambda v: Select(equal(index[i[dim]], v), x[replaced(i, dim, v)]))


def taken_array(x, index, dim, **_):
    """Elements at the index along `dim`; in other dimensions the index may be smaller than x."""
    near = tuple(slice(None) if place == dim % x.ndim else slice(size) for place, size in enumerate(index.shape))
    return np.take_along_axis(x[near], index, dim)


@operator("aten.gather", numpy=taken_array, temporary=added_wide)
def gather(x, dim, index):
    dim %= x.rank
    return lambda *i: Sum(lambda v: Select(equal(index[i], v), x[replaced(i, dim, v)]), sizes=(x.shape[dim],))


def aligned(tensors, attributes):
    """The index has the size of the tensor in all dimensions but one."""
    x, index = tensors["self"], tensors["index"]
    dim = attributes["dim"] % max(x.rank, 1)
    return x.rank > 0 and without(x.shape, dim) == without(index.shape, dim)


def found(i, dim, index, value, reducer):
    """The reducer over k of value(k), where index k is the output's position."""
    body = lambda k: Select(equal(index[replaced(i, dim, k)], i[dim]), value(replaced(i, dim, k)))
    return reducer(body, sizes=(index.shape[dim],))


@operator("aten.scatter.value", condition=aligned, temporary=added_wide)
def scatter_value(x, dim, index, value):
    dim %= x.rank
    return lambda *i: Select(found(i, dim, index, lambda _: True, Max), value, x[i])


def scattered_array(x, index, src, dim):
    result = x.copy()
    np.put_along_axis(result, index, src, dim)
    return result


@operator("aten.scatter.src", condition=aligned, numpy=scattered_array, temporary=added_wide)
def scatter_src(x, dim, index, src):
    dim %= x.rank
    new = lambda i: found(i, dim, index, lambda position: src[position], Sum)
    return lambda *i: Select(found(i, dim, index, lambda _: True, Max), new(i), x[i])


def scattered_sum(x, dim, index, src):
    dim %= x.rank
    return lambda *i: x[i] + found(i, dim, index, lambda position: src[position], Sum)


scatter_add = operator("aten.scatter_add", condition=aligned, temporary=added_wide)(scattered_sum)


UFUNCS = {"sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


def reduced_array(x, index, src, dim, reduce, include_self=True):
    if reduce not in UFUNCS or not include_self:
        raise NotImplementedError(f"PyTorch cannot scatter {x.dtype}, and NumPy only {', '.join(UFUNCS)} with x itself")
    result = x.copy()
    places = list(np.indices(index.shape, sparse=True))
    places[dim] = index
    UFUNCS[reduce].at(result, tuple(places), src)
    return result


@operator("aten.scatter_reduce.two", condition=aligned, numpy=reduced_array, temporary=added_wide)
def scatter_reduce(x, dim, index, src, reduce, include_self=True):
    if reduce == "sum" and include_self:
        return scattered_sum(x, dim, index, src)
    return opaque_along((dim % x.rank,), x, index, src)


@operator("aten.index_add", condition=lambda tensors, _: tensors["self"].rank > 0, temporary=added_wide)
def index_add(x, dim, index, source, alpha=1):
    dim %= x.rank
    total = lambda i: Sum(lambda k: Select(equal(index[k], i[dim]), source[replaced(i, dim, k)]))
    return lambda *i: x[i] + total(i) * alpha


@operator("aten.masked_scatter")
def masked_scatter(x, mask, source):
    return lambda *i: Opaque(whole(x), whole(mask), whole(source))[i]


# ------------------------------------------------------------------------------------------- along several dimensions


class Lookup:
    """x[:, a, b]: which dimensions have index tensors, and where their common shape stands in the result."""

    def __init__(self, x, indices):
        if any(index is not None and index.dtype in ("bool", "uint8") for index in indices):
            raise DescriptionError("a mask as an index makes a result whose shape depends on the data")
        self.x = x
        self.indices = {dim: index for dim, index in enumerate(indices) if index is not None}
        self.dims = tuple(self.indices)
        rank = max(index.rank for index in self.indices.values())
        shapes = [(1,) * (rank - index.rank) + index.shape for index in self.indices.values()]
        self.shape = tuple(max(sizes) if 0 not in sizes else 0 for sizes in zip(*shapes, strict=True))
        together = self.dims == tuple(range(self.dims[0], self.dims[-1] + 1))
        self.at = self.dims[0] if together else 0

    def split(self, i):
        """The result's indices as (of the index tensors, of the rest of x)."""
        stop = self.at + len(self.shape)
        return i[self.at : stop], (*i[: self.at], *i[stop:])

    def join(self, inner, rest):
        """The result's indices from those of the index tensors and of the rest of x."""
        return (*rest[: self.at], *inner, *rest[self.at :])

    def position(self, rest, v):
        """x's indices: `v` in the dimensions with index tensors, `rest` in the others."""
        rest, v = iter(rest), iter(v)
        return tuple(next(v) if dim in self.dims else next(rest) for dim in range(self.x.rank))

    def hit(self, inner, v):
        """Do the index tensors say `v`? Negative numbers count from the end."""
        conditions = (
            equal(remainder(self.indices[dim].broadcast(inner), self.x.shape[dim]), one)
            for dim, one in zip(self.dims, v, strict=True)
        )
        return reduce(lambda first, second: first & second, conditions)

    @property
    def sizes(self):
        return tuple(self.x.shape[dim] for dim in self.dims)


def places_of(indices):
    return tuple(slice(None) if item is None else item for item in indices)


@operator("aten.index.Tensor", numpy=lambda x, indices: x[places_of(indices)])
def index(x, indices):
    look = Lookup(x, indices)

    def meaning(*i):
        inner, rest = look.split(i)
        return Sum(lambda *v: Select(look.hit(inner, v), x[look.position(rest, v)]), sizes=look.sizes)

    return meaning


def written_array(x, indices, values, accumulate=False):
    result = x.copy()
    if accumulate:
        np.add.at(result, places_of(indices), values)
    else:
        result[places_of(indices)] = values
    return result


@operator("aten.index_put", "girih.assign", numpy=written_array)
def index_put(x, indices, values, accumulate=False):
    look = Lookup(x, indices)

    def meaning(*i):
        v = tuple(i[dim] for dim in look.dims)
        rest = tuple(one for dim, one in enumerate(i) if dim not in look.dims)
        if accumulate:
            total = lambda *k: Select(look.hit(k, v), values.broadcast(look.join(k, rest)))
            return x[i] + Sum(total, sizes=look.shape)
        every = (slice(None),)
        old = x[look.position(rest, every * len(v))]
        new = values.broadcast(look.join(every * len(look.shape), rest))
        return Opaque(old, *map(whole, look.indices.values()), new)[v]

    return meaning
