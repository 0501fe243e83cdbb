"""Meshes, and layouts as solvers write them: a tensor lies over a hierarchical mesh of devices.

A mesh has axes, the outermost (slowest links) first. A layout says for each axis what it does to a tensor: split
dimension `d` (a number from 0), keep whole copies (`REPLICATE`), or hold partial sums (`PARTIAL`), partial maxima or
minima (`PARTIAL_BY`). Several axes may split one dimension; the outer axis then cuts first, so the devices of one host
hold neighbouring parts. Parts differ by at most one element where the size does not divide, unless shares are stated
beside the codes. What people read and files keep is a `girih.layout.sharding.Sharding`.

A code may also name the coordinates of its axis that take part (`among`): the other devices then hold nothing. So a
tensor, or an operator, is placed on a part of the machine (the operator dimension of FlexFlow §3.3).

Regions of a scalar have one dimension of one element, so that a device can hold nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod
from typing import TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

REPLICATE = -1
PARTIAL = -2
MOST_DIMENSIONS = 1 << 10  # of a tensor or an index space, and sets of inputs that let partial results pass
PARTIAL_BY = {"sum": PARTIAL, "max": PARTIAL - MOST_DIMENSIONS, "min": PARTIAL - MOST_DIMENSIONS - 1}
PARTIAL_KINDS = {code: reducer for reducer, code in PARTIAL_BY.items()}
"""The code of a value's partial results, by how they are combined, and back. Between those of sums and of the others
lie the codes of a node's further sets of inputs, which no value has."""
COUNTED = 1 << 32  # numbers of partial results are modulo this; beside them stands how they are combined
_KINDS = 1 << 12  # codes lie in half of it to both sides of 0; above them stands a bit for each coordinate taking part
MOST_COORDINATES = 48  # of an axis of which a part can be named

Layout: TypeAlias = tuple[int, ...]  # one code for each mesh axis
Shares: TypeAlias = tuple[tuple[int, ...] | None, ...]  # of each axis, None for equal parts; () if all are equal
Regions: TypeAlias = NDArray[np.int64]  # [devices, dimensions, 2]: start and stop; of a scalar one dimension
Bounds: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]  # starts and stops
Submesh: TypeAlias = tuple[tuple[int, ...] | None, ...]  # of a mesh: the coordinates of each axis, None for all of them


@dataclass(frozen=True)
class Mesh:
    """Axes of devices; device numbers count the last axis fastest."""

    sizes: tuple[int, ...]

    @property
    def devices(self) -> int:
        return prod(self.sizes)

    @property
    def axes(self) -> int:
        return len(self.sizes)

    @property
    def coordinates(self) -> NDArray[np.int64]:
        """Where each device stands on each axis: [devices, axes]."""
        return _coordinates(self.sizes)

    def __str__(self) -> str:
        return "×".join(map(str, self.sizes)) or "1"


@cache
def _coordinates(sizes: tuple[int, ...]) -> NDArray[np.int64]:
    if not sizes:
        return np.zeros((1, 0), np.int64)
    grid = np.indices(sizes).reshape(len(sizes), -1).T
    return np.ascontiguousarray(grid, np.int64)


def among(code: int, coordinates: Iterable[int]) -> int:
    """The code, done by these coordinates of its axis alone.

    Raises:
        ValueError: no coordinate, or one that is too large to be named.
    """
    bits = sum(1 << coordinate for coordinate in set(coordinates))
    if not 0 < bits < 1 << MOST_COORDINATES:
        raise ValueError(f"coordinates {list(coordinates)}: expected some below {MOST_COORDINATES}")
    return code + _KINDS * bits


@overload
def kind_of(codes: int) -> int: ...
@overload
def kind_of(codes: NDArray[np.int64]) -> NDArray[np.int64]: ...
def kind_of(codes: int | NDArray[np.int64]) -> int | NDArray[np.int64]:
    """Codes without the coordinates that take part."""
    return (codes + _KINDS // 2) % _KINDS - _KINDS // 2


def coordinates_of(code: int, size: int) -> tuple[int, ...]:
    """The coordinates of an axis of this size that take part."""
    bits = (code - kind_of(code)) // _KINDS
    return tuple(range(size)) if bits == 0 else tuple(at for at in range(size) if bits >> at & 1)


def own_mesh(submesh: Submesh, mesh: Mesh) -> Mesh:
    """A submesh of a mesh as a mesh of its own, without the axes of which it has one coordinate."""
    sizes = [size if some is None else len(some) for some, size in zip(submesh, mesh.sizes, strict=True)]
    return Mesh(tuple(size for size, some in zip(sizes, submesh, strict=True) if some is None or size > 1))


def on_submesh(layout: Layout, submesh: Submesh) -> Layout:
    """The layout of a submesh's own mesh (`own_mesh`) as one of the whole mesh, whose other devices hold nothing."""
    codes = iter(layout)
    whole = []
    for some in submesh:
        if some is None:
            whole.append(next(codes))
        else:
            whole.append(among(next(codes) if len(some) > 1 else REPLICATE, some))
    return tuple(whole)


def taking_part(codes: NDArray[np.int64], mesh: Mesh) -> NDArray[np.bool_]:
    """Does each device take part in each assignment? codes: [assignments, axes]. Returns [assignments, devices]."""
    bits = (codes - kind_of(codes)) // _KINDS
    named = (bits[:, None, :] >> mesh.coordinates) & 1
    result: NDArray[np.bool_] = ((bits[:, None, :] == 0) | (named == 1)).all(axis=-1)
    return result


def bounds(codes: NDArray[np.int64], sizes: tuple[int, ...], mesh: Mesh, shares: Shares = ()) -> Bounds:
    """Starts and stops of every device's part, for many assignments of axes to dimensions at once.

    codes: [assignments, axes]; negative kinds do not cut. Devices that do not take part have nothing: 0 to 0.
    shares: of the axes that cut, the same in all assignments.
    Returns starts and stops, each [assignments, devices, dimensions].
    """
    starts = np.empty((len(codes), mesh.devices, len(sizes)), np.int64)
    stops = np.empty_like(starts)
    if len(codes) == 1 or shares or (kind_of(codes) != codes).any():
        for number, row in enumerate(codes.tolist()):
            starts[number], stops[number] = bounds_of_codes(tuple(row), sizes, mesh, shares)
        return starts, stops
    # A dimension's parts depend on the set of axes that cut it alone: few, and the same for many assignments.
    cutting_each = (codes == np.arange(len(sizes))[:, None, None]) @ (1 << np.arange(mesh.axes, dtype=np.int64))
    for dimension, (extent, cutting) in enumerate(zip(sizes, cutting_each, strict=True)):
        cuts = _cuts(extent, mesh)
        starts[..., dimension] = cuts[0][cutting]
        stops[..., dimension] = cuts[1][cutting]
    return starts, stops


@lru_cache(maxsize=4096)
def _cuts(extent: int, mesh: Mesh) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts and stops of one dimension's parts under every set of axes: [sets, devices] each; a set is a bit mask."""
    sets = 1 << mesh.axes
    index = np.zeros((sets, mesh.devices), np.int64)
    parts = np.ones((sets, 1), np.int64)
    for axis, axis_size in enumerate(mesh.sizes):
        cut = ((np.arange(sets) >> axis) & 1)[:, None]
        factor = np.where(cut, axis_size, 1)
        index = index * factor + mesh.coordinates[None, :, axis] * cut
        parts = parts * factor
    return index * extent // parts, (index + 1) * extent // parts


@lru_cache(maxsize=65536)
def bounds_of_codes(codes: Layout, sizes: tuple[int, ...], mesh: Mesh, shares: Shares = ()) -> Bounds:
    """`bounds` of one assignment: [devices, dimensions] each."""
    if shares or any(kind_of(code) != code for code in codes):
        return _bounds_by_shares(codes, sizes, mesh, shares or (None,) * mesh.axes)
    starts, stops = np.empty((2, mesh.devices, len(sizes)), np.int64)
    for dimension, extent in enumerate(sizes):
        cutting = sum([1 << axis for axis, code in enumerate(codes) if code == dimension])
        cuts = _cuts(extent, mesh)
        starts[:, dimension], stops[:, dimension] = cuts[0][cutting], cuts[1][cutting]
    return starts, stops


def _bounds_by_shares(codes: Layout, sizes: tuple[int, ...], mesh: Mesh, shares: Shares) -> Bounds:
    """`bounds_of_codes` where devices are left out or parts differ: where a part begins and how wide it is, in parts of
    `whole`, are the products of the axes' shares.

    Raises:
        ValueError: shares fit no axis, or are too fine to be counted in 64 bits.
    """
    begin, width = np.zeros((mesh.devices, len(sizes)), np.int64), np.ones((mesh.devices, len(sizes)), np.int64)
    whole = [1] * len(sizes)
    present = np.ones(mesh.devices, np.bool_)
    for axis, code in enumerate(codes):
        able = coordinates_of(code, mesh.sizes[axis])
        position = np.full(mesh.sizes[axis], -1)
        position[list(able)] = np.arange(len(able))
        mine = position[mesh.coordinates[:, axis]]
        present &= mine >= 0
        if (dimension := kind_of(code)) < 0:
            continue
        share = np.asarray(shares[axis] or (1,) * len(able), np.int64)
        if len(share) != len(able):
            raise ValueError(f"{len(share)} shares for the {len(able)} parts along axis {axis} of a mesh {mesh}")
        whole[dimension] *= int(share.sum())
        if whole[dimension] * max(sizes[dimension], 1) >= 1 << 62:
            raise ValueError(f"shares of {sizes[dimension]} are in {whole[dimension]} parts: state smaller numbers")
        before = np.cumsum(share) - share
        begin[:, dimension] = begin[:, dimension] * share.sum() + width[:, dimension] * before[mine]
        width[:, dimension] *= share[mine]
    extent, parts = np.asarray(sizes, np.int64), np.asarray(whole, np.int64)
    starts, stops = begin * extent // parts, (begin + width) * extent // parts
    return np.where(present[:, None], starts, 0), np.where(present[:, None], stops, 0)


@cache
def regions_of_codes(layout: Layout, shape: tuple[int, ...], mesh: Mesh, shares: Shares = ()) -> Regions:
    """The region that each device holds: [devices, dimensions, 2]. Exact."""
    result = np.stack(bounds_of_codes(layout, shape or (1,), mesh, shares), axis=-1)
    result.setflags(write=False)
    return result


def part_shape(region: NDArray[np.int64], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of one device's part [dimensions, 2] of a value of this shape: (0,) where a scalar is absent."""
    sizes = tuple((region[:, 1] - region[:, 0]).tolist())
    return sizes if shape or sizes == (0,) else ()
