"""What is written with brackets: mgrid and ogrid make grids of indices, r_ and c_ join arrays, numbers and slices."""

from __future__ import annotations

from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import as_array, cast
from girih.array.functions.shapes.manipulation import broadcast_to, concatenate, stack


class OpenGrid:
    """np.ogrid[0:3, 0:1:5j]: for each slice its numbers, in a shape that broadcasts; an imaginary step is how many."""

    def __getitem__(self, key: Any) -> Any:
        grids = np.ogrid[key]
        return tuple(as_array(part) for part in grids) if isinstance(grids, tuple | list) else as_array(grids)


class DenseGrid:
    """np.mgrid[0:3, 0:1:5j]: the parts of ogrid, each broadcast to the shape of all, stacked."""

    def __getitem__(self, key: Any) -> Array:
        grids = np.ogrid[key]
        if not isinstance(grids, tuple | list):
            return as_array(grids)
        shape = np.broadcast_shapes(*(part.shape for part in grids))
        return stack([broadcast_to(as_array(part), shape) for part in grids])


class Joined:
    """np.r_[x, 0, 1:4] and np.c_[x, y]: what stands between the commas, joined along an axis.

    axis: along which. rank: each item has at least so many dimensions. place: where the dimensions of an item with
    fewer go in the new shape, -1 last. A string in front gives all three, as `'1,2,0'`.
    """

    def __init__(self, axis: int, rank: int, place: int) -> None:
        self.axis, self.rank, self.place = axis, rank, place

    def __getitem__(self, key: Any) -> Array:
        """Raises ValueError for a string that is not one to three numbers: matrices are not there."""
        items = key if isinstance(key, tuple) else (key,)
        axis, rank, place = self.axis, self.rank, self.place
        if items and isinstance(items[0], str):
            try:
                directive = [int(part) for part in items[0].split(",")]
                axis, rank, place = (directive + [self.axis, 1, -1][len(directive) :])[:3]
            except ValueError as error:
                raise ValueError(f"unknown special directive {items[0]!r}: expected numbers such as '0,2'") from error
            items = items[1:]
        if any(isinstance(item, str) for item in items):
            raise ValueError("special directives must be the first entry.")
        parts = [np.r_[item] if isinstance(item, slice) else item for item in items]
        arrays = [as_array(part) for part in parts]
        numbers = (bool, int, float, complex)  # which take the dtype of what stands beside them
        kinds = [part if type(part) in numbers else x.dtype for part, x in zip(parts, arrays, strict=True)]
        dtype = np.result_type(*kinds) if kinds else np.dtype(float)
        return concatenate([_with_rank(cast(x, dtype), rank, place) for x in arrays], axis=axis)


def _with_rank(x: Array, rank: int, place: int) -> Array:
    """x with dimensions of length one before and behind its own, which begin at `place`."""
    new = rank - x.ndim
    if new <= 0:
        return x
    first = place if place >= 0 else new + 1 + place
    return x.reshape((1,) * first + x.shape + (1,) * (new - first))


mgrid, ogrid = DenseGrid(), OpenGrid()
r_, c_ = Joined(0, 1, -1), Joined(-1, 2, 0)
