"""A node along one of its index variables: what a block of that variable reads, makes and is called with.

A block is a piece in time as a tile is a piece in space, and follows from the same description
(`girih.ops.derive.divisions`). Regions and attributes of the blocks [low, high) are affine in low and high, so they
are derived once for all blocks: the piece is made for three of them, its numbers are fitted, and a fourth proves the
fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from girih.ops import Description
from girih.ops.derive.divisions import divisible, executable
from girih.ops.derive.pieces import PieceCall, make_piece

FREE, MOVING = -1, -2
"""How an input is read that has no dimension which is read exactly at the variable: always the same, or otherwise."""
SHORTEST = 3
"""The fewest values of an index variable that are cut into blocks."""


@dataclass(frozen=True)
class Along:
    """How a node is cut along an index variable.

    made: the dimension of the result that the variable places; None where the result is reduced over it.
    read: for each input the dimension that is read exactly at the variable, or FREE, or MOVING.
    """

    made: int | None
    read: tuple[int, ...]


@lru_cache(maxsize=16384)
def along(description: Description, variable: int) -> Along | None:
    """None where blocks of the variable cannot be computed by themselves, or are no boxes."""
    able = divisible(description)[variable] and description.sizes[variable] >= SHORTEST
    if not able or description.operator.padding is not None:
        return None
    dimensions = [d for d, index in enumerate(description.place) if any(term == variable for term, _ in index.terms)]
    if any(description.place[d].variable != variable for d in dimensions) or len(dimensions) > 1:
        return None
    # What is added to a sum would be added once for each block.
    root = description.root.variables if description.root is not None and not description.alongside else ()
    if not dimensions and variable not in root:
        return None
    read = tuple(_read_at(description, number, variable) for number in range(len(description.inputs)))
    return Along(dimensions[0] if dimensions else None, read)


def _read_at(description: Description, number: int, variable: int) -> int:
    dimensions, exact = set(), True
    for read in description.reads[number]:
        for dimension, index in enumerate(read):
            if index is not None and any(term == variable for term, _ in index.terms):
                dimensions.add(dimension)
                exact = exact and index.variable == variable
    if not dimensions:
        return FREE
    return dimensions.pop() if exact and len(dimensions) == 1 else MOVING


@dataclass(frozen=True)
class Moving:
    """A whole number of a block [low, high): constant + by_low · low + by_high · high."""

    constant: int
    by_low: int
    by_high: int

    def at(self, low: int, high: int) -> int:
        return self.constant + self.by_low * low + self.by_high * high


Number = int | Moving


def difference(first: Number, second: Number) -> Number:
    """first - second: an int where it is the same for all blocks."""
    one, other = (item if isinstance(item, Moving) else Moving(item, 0, 0) for item in (first, second))
    moving = Moving(one.constant - other.constant, one.by_low - other.by_low, one.by_high - other.by_high)
    return moving if moving.by_low or moving.by_high else moving.constant


def moving_piece(
    description: Description,
    attributes: Mapping[str, Any],
    starts: Sequence[int],
    stops: Sequence[int],
    variable: int,
) -> PieceCall | None:
    """The call for any block of a device's piece [starts, stops): a PieceCall with Moving in the place of numbers.

    None where the numbers are not affine in the block.
    """
    first, last = starts[variable], stops[variable]
    if last - first < SHORTEST:
        return None
    third = (last - first) // SHORTEST
    # Of two with one start, and two with one length, the coefficients follow; the last one proves them.
    boxes = [
        (first, first + third),
        (first + third, first + 2 * third),
        (first, first + 2 * third),
        (last - third, last),
    ]
    low, high = np.tile(np.asarray(starts, np.int64), (4, 1)), np.tile(np.asarray(stops, np.int64), (4, 1))
    low[:, variable], high[:, variable] = zip(*boxes, strict=True)
    if not executable(description, low, high).all():
        return None
    pieces = [make_piece(description, attributes, *box) for box in zip(low.tolist(), high.tolist(), strict=True)]
    one = pieces[0]
    if any((other.operator, other.names, other.result) != (one.operator, one.names, one.result) for other in pieces):
        return None
    try:
        named, regions, output = (
            _fitted([getattr(piece, name) for piece in pieces], boxes) for name in ("attributes", "regions", "output")
        )
    except _NotAffineError:
        return None
    return PieceCall(one.operator, named, one.names, regions, one.pads, one.padding, output, one.result)


class _NotAffineError(Exception):
    pass


def _fitted(parts: list[Any], boxes: list[tuple[int, int]]) -> Any:
    first = parts[0]
    if all(type(part) is type(first) and part == first for part in parts):
        return first
    if all(isinstance(part, dict) and part.keys() == first.keys() for part in parts):
        return {name: _fitted([part[name] for part in parts], boxes) for name in first}
    if all(isinstance(part, tuple) and len(part) == len(first) for part in parts):
        return tuple(_fitted(list(items), boxes) for items in zip(*parts, strict=True))
    if not all(type(part) is int for part in parts):
        raise _NotAffineError
    (low, high), (later, _), (_, longer), _ = boxes
    both, by_low_and_high = divmod(parts[1] - first, later - low)
    by_high, rest = divmod(parts[2] - first, longer - high)
    if by_low_and_high or rest:
        raise _NotAffineError
    moving = Moving(first - (both - by_high) * low - by_high * high, both - by_high, by_high)
    if any(moving.at(*box) != part for box, part in zip(boxes, parts, strict=True)):
        raise _NotAffineError
    return moving


def at_block(item: Any, low: int, high: int) -> Any:
    """The numbers of one block in the place of Moving."""
    if isinstance(item, Moving):
        return item.at(low, high)
    if isinstance(item, tuple):
        return tuple(at_block(part, low, high) for part in item)
    return {name: at_block(part, low, high) for name, part in item.items()} if isinstance(item, dict) else item
