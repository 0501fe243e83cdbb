"""Operators that only move elements: a division passes through them wherever a piece is again a box."""

from __future__ import annotations

from math import prod

from girih.ops.language import Affine, Over
from girih.ops.operator import Attributes, Piece, operator


def local_shape(name: str):
    """The attribute `name` is the output's shape: a piece has its own."""

    def rule(attributes: Attributes, piece: Piece) -> Attributes:
        return {**attributes, name: piece.output_shape}

    return rule


def common_factors(source: tuple[int, ...], target: tuple[int, ...]) -> list[int]:
    """The finest index space of which both shapes are merges, or the flat one where they do not align.

    (4, 6) and (2, 2, 6) share (2, 2, 6); (4, 6) and (8, 3) share (4, 2, 3); (2, 3) and (3, 2) share only (6,).
    """
    total = prod(source)
    if total == 0:
        return [0]

    def boundaries(shape: tuple[int, ...]) -> set[int]:
        strides, size = set(), 1
        for extent in reversed(shape):
            size *= extent
            strides.add(size)
        return strides | {1}

    cuts = sorted(boundaries(source) | boundaries(target), reverse=True)
    factors: list[int] = []
    for high, low in zip(cuts, cuts[1:], strict=False):
        if high % low:
            return [total]  # the shapes interlock: no common grid, only the flat order
        factors.append(high // low)
    return factors or [1]


def merged(shape: tuple[int, ...], factors: list[int], indices: tuple[Affine, ...]) -> tuple[object, ...]:
    """For each dimension of `shape` the affine index that the factors' indices merge to; None if not expressible."""
    position, result = 0, []
    for extent in shape:
        index, size = Affine((), 0), 1
        taken = []
        while size < extent:
            if position == len(factors):
                return ()
            size *= factors[position]
            taken.append(position)
            position += 1
        if size != extent:
            return ()
        stride = 1
        for number in reversed(taken):
            index = index + indices[number] * stride
            stride *= factors[number]
        result.append(index)
    return tuple(result)


@operator("aten.reshape", piece=local_shape("shape"), view=True)
def reshape(x, shape):
    factors = common_factors(x.shape, tuple(shape))

    def body(*indices):
        return merged(tuple(shape), factors, indices), x[merged(x.shape, factors, indices)]

    return Over(tuple(factors), body)


@operator("aten.permute", view=True)
def permute(x, dims):
    return lambda *i: x[tuple(i[dims.index(dimension)] for dimension in range(x.rank))]
