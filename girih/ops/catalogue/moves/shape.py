"""Operators that order, repeat, select and join elements."""

from __future__ import annotations

from girih.ops.catalogue.moves.indices import dimensions, inserted, opaque_along, replaced, whole, without
from girih.ops.catalogue.moves.reshape import local_shape
from girih.ops.derive.temporaries import copied, image
from girih.ops.language import Concatenated, DescriptionError, Opaque, Over, Select, equal, fn
from girih.ops.operator import Attributes, Piece, operator

at_least, at_most = fn("ge"), fn("le")


# ------------------------------------------------------------------------------------------- order and extent


@operator("aten.permute", view=True)
def permute(x, dims):
    dims = [dim % x.rank for dim in dims]
    return lambda *i: x[tuple(i[dims.index(dimension)] for dimension in range(x.rank))]


@operator("aten.transpose.int", view=True)
def transpose(x, dim0, dim1):
    order = list(range(x.rank))
    if order:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return lambda *i: x[tuple(i[dimension] for dimension in order)]


@operator("aten.t", view=True)
def matrix_transpose(x):
    return lambda *i: x[tuple(reversed(i))]


@operator("aten.expand", piece=local_shape("size"), view=True)
def expand(x, size):
    return lambda *i: x.broadcast(i)


@operator("aten.flip")
def flip(x, dims):
    dims = dimensions(x.rank, tuple(dims)) if dims else ()
    return lambda *i: x[tuple(x.shape[d] - 1 - index if d in dims else index for d, index in enumerate(i))]


def rolled_before(work):
    """The results of all dimensions but the last one's; where all are rolled as one, what does not lie in order."""
    dims = work.attributes.get("dims") or ()
    several = len(dims) if isinstance(dims, tuple | list) else 1
    return (several - 1) * work.output.bytes if several else work.copied


@operator("aten.roll", temporary=rolled_before)
def roll(x, shifts, dims=()):
    if not dims:
        return lambda *i: Opaque(whole(x), linear=(0,))[i]
    shifts, dims = ((value,) if isinstance(value, int) else tuple(value) for value in (shifts, dims))

    def rolled(i, pairs):
        if not pairs:
            return x[i]
        (dim, shift), *rest = pairs
        dim, extent = dim % x.rank, x.shape[dim % x.rank]
        front = shift % max(extent, 1)
        offsets = (extent - front, 0)
        return Concatenated(
            i[dim], (front, extent - front), lambda part, j: rolled(replaced(i, dim, j + offsets[part]), rest)
        )

    return lambda *i: rolled(i, list(zip(dims, shifts, strict=True)))


def repeat_piece(attributes: Attributes, piece: Piece) -> Attributes:
    before, after = piece.input_shape(0), piece.output_shape
    aligned = (1,) * (len(after) - len(before)) + before
    return {**attributes, "repeats": tuple(b // max(a, 1) for a, b in zip(aligned, after, strict=True))}


def extents(work):
    """PyTorch notes sizes and strides in tensors."""
    return 32 * len(work.output.shape)


@operator("aten.repeat", piece=repeat_piece, temporary=extents)
def repeat(x, repeats):
    shape = (1,) * (len(repeats) - x.rank) + x.shape

    def body(*i):
        copies, inside = i[::2], i[1::2]
        place = tuple(copy * size + j for copy, size, j in zip(copies, shape, inside, strict=True))
        return place, x.broadcast(inside)

    return Over(tuple(size for pair in zip(repeats, shape, strict=True) for size in pair), body)


# ------------------------------------------------------------------------------------------- parts


def sliced(attributes: Attributes, piece: Piece) -> Attributes:
    """A piece of a slice begins at 0: what arrives begins where the result's first element is read."""
    start, stop = piece.inputs[0][attributes["dim"] % len(piece.output)]
    return {**attributes, "start": 0, "end": stop - start}


@operator("aten.slice.Tensor", piece=sliced, view=True)
def slice_(x, dim=0, start=None, end=None, step=1):
    dim %= x.rank
    first, _, _ = slice(start, end, step).indices(x.shape[dim])
    return lambda *i: x[replaced(i, dim, i[dim] * step + first)]


@operator("aten.select.int", piece=lambda attributes, _: {**attributes, "index": 0}, view=True)
def select(x, dim, index):
    dim %= x.rank
    return lambda *i: x[inserted(i, dim, index % x.shape[dim])]


def first_part(attributes: Attributes, piece: Piece) -> tuple[str, Attributes]:
    start, stop = piece.inputs[0][attributes["dim"] % len(piece.output)]
    return "aten.slice.Tensor", {"dim": attributes["dim"], "start": 0, "end": stop - start}


@operator("aten.split_with_sizes", "aten.split.Tensor", piece=first_part, result=0, view=True)
def split(x, dim=0):
    return lambda *i: x[i]  # the first part; canonical graphs have slices in its place


@operator("aten.diagonal", piece=lambda attributes, _: {**attributes, "offset": 0}, view=True)
def diagonal(x, offset=0, dim1=0, dim2=1):
    dim1, dim2 = dim1 % x.rank, dim2 % x.rank

    def meaning(*i):
        rest = iter(i[:-1])
        at = {dim1: i[-1] + max(-offset, 0), dim2: i[-1] + max(offset, 0)}
        return x[tuple(at[d] if d in at else next(rest) for d in range(x.rank))]

    return meaning


@operator("aten.unfold", piece=lambda attributes, piece: {**attributes, "size": piece.output_shape[-1]}, view=True)
def unfold(x, dimension, size, step):
    dimension %= max(x.rank, 1)
    return lambda *i: x[replaced(i[:-1], dimension, i[dimension] * step + i[-1])]


@operator("aten.as_strided")
def as_strided(x):
    return lambda *i: Opaque(whole(x), linear=(0,))[i]


# ------------------------------------------------------------------------------------------- composition


@operator("aten.cat")
def cat(tensors, dim=0):
    rank = max(x.rank for x in tensors)
    if any(x.rank != rank for x in tensors):
        raise DescriptionError("cat with an empty tensor of another rank")
    dim %= rank
    sizes = [x.shape[dim] for x in tensors]
    return lambda *i: Concatenated(i[dim], sizes, lambda part, j: tensors[part][replaced(i, dim, j)])


@operator("aten.stack")
def stack(tensors, dim=0):
    dim %= tensors[0].rank + 1
    return lambda *i: Concatenated(i[dim], [1] * len(tensors), lambda part, _: tensors[part][without(i, dim)])


@operator("aten.select_scatter")
def select_scatter(x, src, dim, index):
    dim %= x.rank
    return lambda *i: Select(equal(i[dim], index % x.shape[dim]), src[without(i, dim)], x[i])


def scattered(attributes: Attributes, piece: Piece) -> Attributes:
    """Where the part of the source that a piece reads begins in the piece."""
    dim = attributes["dim"] % len(piece.output)
    size = piece.size(f"i{dim}")
    first, last, step = slice(attributes["start"], attributes["end"], attributes["step"]).indices(size)
    (low, high), (start, _) = piece.inputs[1][dim], piece.output[dim]
    if step != 1 or high <= low:
        return {**attributes, "start": first if step != 1 else 0, "end": last if step != 1 else 0}
    return {**attributes, "start": first + low - start, "end": first + high - start}


@operator("aten.slice_scatter", piece=scattered)
def slice_scatter(x, src, dim=0, start=None, end=None, step=1):
    dim %= x.rank
    first, last, _ = slice(start, end, step).indices(x.shape[dim])
    if step != 1:
        return opaque_along((dim,), x, src, linear=())

    def meaning(*i):
        return Select(within(i[dim], first, last), src[replaced(i, dim, i[dim] - first)], x[i])

    return meaning


# ------------------------------------------------------------------------------------------- borders


def within(index, start, stop):
    """start <= index < stop, as a condition."""
    return at_least(index, start) & at_most(index, stop - 1)


def local_pad(attributes: Attributes, piece: Piece) -> Attributes:
    """Each side's padding is what the piece's output has and its input lacks."""
    pad, flat = attributes["pad"], []
    for number, dimension in enumerate(reversed(range(len(piece.output)))):
        before = pad[2 * number] if 2 * number < len(pad) else 0
        (low, high), (start, stop) = piece.output[dimension], piece.inputs[0][dimension]
        if start == stop:
            flat += [high - low, 0]
        else:
            flat += [start + before - low, high - before - stop]
    return {**attributes, "pad": tuple(flat)}


@operator("aten.constant_pad_nd", piece=local_pad)
def constant_pad(x, pad, value=0):
    padded = {x.rank - 1 - number: pad[2 * number] for number in range(len(pad) // 2)}

    def meaning(*i):
        inside = True
        for dimension, before in padded.items():
            condition = within(i[dimension], before, before + x.shape[dimension])
            inside = condition if inside is True else inside & condition
        element = x[tuple(index - padded.get(dimension, 0) for dimension, index in enumerate(i))]
        return Select(inside, element, value)

    return meaning


def border_pad(x, padding):
    """The last dimension's padding, before and behind it, stands first."""
    padded = [x.rank - 1 - place // 2 for place, amount in enumerate(padding) if amount]
    return opaque_along(tuple(padded), x, linear=(0,))


PADS = ("aten.reflection_pad", "aten.replication_pad")
image_pads = operator(*(f"{name}2d" for name in PADS), temporary=image, order_of=0)(border_pad)
border_pads = operator(*(f"{name}{rank}d" for name in PADS for rank in (1, 3)), temporary=copied)(border_pad)


@operator("aten.col2im", condition=lambda tensors, _: tensors["self"].rank == 3, temporary=copied)
def col2im(x):
    return lambda n, *i: Opaque(x[n, :, :], linear=(0,))[i]


def image_and_columns(work):
    """PyTorch copies the images, and those first that do not lie in order."""
    return work.inputs["self"].bytes + work.copied


@operator("aten.im2col", condition=lambda tensors, _: tensors["self"].rank == 4, temporary=image_and_columns)
def im2col(x):
    return lambda n, *i: Opaque(x[n, :, :, :], linear=(0,))[i]


def shifted_diagonal(attributes: Attributes, piece: Piece) -> Attributes:
    (row, _), (column, _) = piece.output[-2:]
    return {**attributes, "diagonal": attributes["diagonal"] + row - column}


@operator("aten.triu", piece=shifted_diagonal, temporary=copied)
def triu(x, diagonal=0):
    return lambda *i: Select(at_least(i[-1] - i[-2], diagonal), x[i], 0)


@operator("aten.tril", piece=shifted_diagonal, temporary=copied)
def tril(x, diagonal=0):
    return lambda *i: Select(at_most(i[-1] - i[-2], diagonal), x[i], 0)
