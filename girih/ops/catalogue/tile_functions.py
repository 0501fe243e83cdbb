"""Users' functions of tiles, Spartan's five operators (§3.2): what is known of them is where they read and write.

`function` is the text of a NumPy function (`girih.ops.functions`), `kind` the dtype of what it makes.
"""

from __future__ import annotations

from girih.ops.catalogue.moves.indices import inserted, opaque_along, reduced_position, replaced, without
from girih.ops.language import Max, Min, Opaque, Prod, Select, Sum, equal, fn
from girih.ops.operator import operator

function_of_elements = fn("user function")


def reducing(reducer):
    return {"sum": Sum, "max": Max, "min": Min, "prod": Prod}[reducer]


@operator("girih.map")
def map_tiles(tensors):
    """The user's function, element by element of tensors of any shapes that broadcast."""
    return lambda *i: function_of_elements(*(x.broadcast(i) for x in tensors))


@operator("girih.fold")
def fold(input, axis, reducer):
    """What tiles are folded to is combined by a reducer that is known."""

    def meaning(*i):
        body = lambda k: function_of_elements(input[reduced_position(i, (k,), (axis,), input.rank, False)])
        return reducing(reducer)(body, sizes=(input.shape[axis],))

    return meaning


@operator("girih.fold_tiles")
def fold_tiles(input, axis, size):
    """Tiles of `size` along the axis, the last one shorter, each folded by itself: one result for each, in front."""

    def meaning(b, *i):
        inside = Sum(lambda t: input[inserted(i, axis, b * size + t)], sizes=(size,))
        return function_of_elements(inside)

    return meaning


@operator("girih.fold_whole")
def fold_whole(input, axis):
    return lambda *i: Opaque(input[inserted(i, axis, slice(None))])[()]


@operator("girih.scan", "girih.carries")
def scan(input, axis):
    return opaque_along((axis,), input)


@operator(
    "girih.carried", piece=lambda attributes, piece: {**attributes, "first": piece.start(f"i{attributes['axis']}")}
)
def carried(input, carries, axis, first=0):
    """Scans of tiles [.., tiles, size, ..] joined with what comes before each; before the first comes nothing."""

    def meaning(*i):
        before = carries[without(i, axis + 1)]
        return Select(equal(i[axis], 0), input[i], function_of_elements(before, input[i]))

    return meaning


@operator("girih.join_update", piece=lambda attributes, piece: {**attributes, "first": piece.start("k")})
def join_update(tensors, axes, reducer, first=0):
    """Tiles of all tensors along their axes (-1: the whole tensor), joined; results of the whole shape accumulate."""
    size = next(x.shape[axis] for x, axis in zip(tensors, axes, strict=True) if axis >= 0)

    def meaning(*o):
        parts = lambda k: (joined(x, axis, k) for x, axis in zip(tensors, axes, strict=True))
        return reducing(reducer)(lambda k: Opaque(*parts(k))[o], sizes=(size,))

    return meaning


@operator(
    "girih.join_parts",
    piece=lambda attributes, piece: {**attributes, "first": piece.start("w") * attributes["size"]},
    results=2,
)
def join_parts(tensors, axes, size, first=0):
    """`join_update` in tiles of `size`, the last one shorter: of each tile the part of the result that it updates, in a
    window of one shape for all, and where that is, with what was observed."""

    def meaning(w, *o):
        parts = lambda t: (joined(x, axis, w * size + t) for x, axis in zip(tensors, axes, strict=True))
        return function_of_elements(Sum(lambda t: Opaque(*parts(t))[o], sizes=(size,)))

    return meaning, meaning


@operator("girih.join_reduced")
def join_reduced(parts, reducer):
    """Updates of the whole result, one for each tile, combined."""
    return lambda *o: reducing(reducer)(lambda w: parts[(w, *o)], sizes=(parts.shape[0],))


def placed_piece(attributes, piece):
    return {**attributes, "shape": piece.output_shape, "first": tuple(start for start, _ in piece.output)}


@operator("girih.join_placed", piece=placed_piece)
def join_placed(parts, seen):
    """Updates of windows, combined where `seen` says that they are."""
    every = slice(None)
    return lambda *o: Opaque(parts[(every,) * parts.rank], seen[every, every])[()]


def placed(attributes, piece):
    return {**attributes, "first": piece.start(f"o{attributes['along']}"), "shape": piece.output_shape}


@operator("girih.join_along", piece=placed)
def join_along(tensors, axes, along, first=0):
    """As `join_update`, where tiles along `along` of the result are made of tiles of the tensors."""

    def meaning(*o):
        parts = (joined(x, axis, o[along]) for x, axis in zip(tensors, axes, strict=True))
        return Opaque(*parts)[without(o, along)]

    return meaning


def joined(x, axis, k):
    every = (slice(None),) * x.rank
    return x[replaced(every, axis, k) if axis >= 0 else every]
