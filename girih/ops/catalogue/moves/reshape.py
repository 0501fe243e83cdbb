"""Reshapes: an index space finer than both shapes, of whose indices each dimension is a merge (6·i + j).

A piece is again a box wherever it does not cut through a merge; shapes that interlock, (2, 3) and (3, 2), have no such
index space: those dimensions stay whole, and the others divide.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod

from girih.ops.catalogue.moves.indices import dimensions, inserted
from girih.ops.language import Affine, DescriptionError, Opaque, Over
from girih.ops.operator import Attributes, Piece, operator


def local_shape(name: str):
    """The attribute `name` is the output's shape: a piece has its own."""

    def rule(attributes: Attributes, piece: Piece) -> Attributes:
        return {**attributes, name: piece.output_shape}

    return rule


def as_reshape(attributes: Attributes, piece: Piece) -> tuple[str, Attributes]:
    return "aten.reshape", {"shape": piece.output_shape}


def groups(source: tuple[int, ...], target: tuple[int, ...]):
    """The shortest runs of dimensions with equal numbers of elements: (source dimensions, target dimensions).

    (2, 3, 4, 5) and (6, 5, 4): dimensions 0-1 become 0, dimensions 2-3 become 1-2.
    """
    if 0 in source:
        yield range(len(source)), range(len(target))
        return
    i = j = 0
    while i < len(source) or j < len(target):
        first, second = i, j
        i, j = min(i + 1, len(source)), min(j + 1, len(target))
        while (left := prod(source[first:i])) != (right := prod(target[second:j])):
            i, j = (i + 1, j) if left < right else (i, j + 1)
        yield range(first, i), range(second, j)


def common_factors(source: tuple[int, ...], target: tuple[int, ...]) -> list[int] | None:
    """The finest index space of which both shapes are merges; None where they interlock.

    (4, 6) and (2, 2, 6) share (2, 2, 6); (4, 6) and (8, 3) share (4, 2, 3); (2, 3) and (3, 2) share none.
    """

    def boundaries(shape: tuple[int, ...]) -> set[int]:
        return {prod(shape[dimension:]) for dimension in range(len(shape) + 1)}

    cuts = sorted(boundaries(source) | boundaries(target), reverse=True)
    if 0 in cuts or any(high % low for high, low in pairwise(cuts)):
        return None
    return [high // low for high, low in pairwise(cuts)]


def merged(shape: tuple[int, ...], factors: list[int], indices: tuple[Affine, ...]) -> list[Affine | int]:
    """For each dimension of `shape` the index that its factors' indices merge to: 6·i + j."""
    position = 0
    result: list[Affine | int] = []
    for extent in shape:
        index: Affine | int = 0
        size = 1
        while size < extent:
            size *= factors[position]
            index = index * factors[position] + indices[position]
            position += 1
        result.append(index)
    return result


def reshaped(x, shape):
    """Groups of dimensions that merge and split one by one divide; those that interlock stay whole."""
    shape = tuple(shape)
    if prod(x.shape) != prod(shape):
        raise DescriptionError(f"{list(x.shape)} cannot be {list(shape)}: other numbers of elements")
    plan = []  # for each group: source and target dimensions, and its factors or None
    for source, target in groups(x.shape, shape):
        factors = common_factors(tuple(x.shape[d] for d in source), tuple(shape[d] for d in target))
        plan.append((source, target, factors))
    sizes = [
        size for _, target, factors in plan for size in ([shape[d] for d in target] if factors is None else factors)
    ]

    def body(*i):
        read, place, inside, position = [], [], [], 0
        for source, target, factors in plan:
            count = len(target) if factors is None else len(factors)
            indices = i[position : position + count]
            position += count
            if factors is None:
                read += [slice(None)] * len(source)
                place += indices
                inside += indices
            else:
                read += merged(tuple(x.shape[d] for d in source), factors, indices)
                place += merged(tuple(shape[d] for d in target), factors, indices)
        element = x[tuple(read)]
        interlocked = any(factors is None for _, _, factors in plan)
        return tuple(place), Opaque(element, linear=(0,))[tuple(inside)] if interlocked else element

    return Over(tuple(sizes), body)


@operator("aten.reshape", piece=local_shape("shape"), view=True)
def reshape(x, shape):
    return reshaped(x, shape)


@operator("aten.view", "aten._unsafe_view", piece=as_reshape, view=True)
def view(x, size):
    return reshaped(x, size)


@operator("aten.squeeze", "aten.squeeze.dim", "aten.squeeze.dims", piece=as_reshape, view=True)
def squeeze(x, dim=None):
    gone = [d for d in dimensions(x.rank, dim) if x.shape[d] == 1]
    return reshaped(x, tuple(size for d, size in enumerate(x.shape) if d not in gone))


@operator("aten.unsqueeze", piece=as_reshape, view=True)
def unsqueeze(x, dim):
    return reshaped(x, inserted(x.shape, dim % (x.rank + 1), 1))
