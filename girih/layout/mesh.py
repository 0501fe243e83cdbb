"""Meshes and layouts: a tensor lies over a hierarchical mesh of devices.

A mesh has axes, the outermost (slowest links) first. A layout says for each axis what it does to a tensor: split
dimension `d` (a number from 0), keep whole copies (`REPLICATE`), or hold partial sums (`PARTIAL`). Several axes may
split one dimension; the outer axis then cuts first, so the devices of one host hold neighbouring parts. Parts differ
by at most one element where the size does not divide.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

REPLICATE = -1
PARTIAL = -2

Layout: TypeAlias = tuple[int, ...]  # one code for each mesh axis
Regions: TypeAlias = NDArray[np.int64]  # [devices, dimensions, 2]: start and stop


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
        """[devices, axes]"""
        return _coordinates(self.sizes)

    def __str__(self) -> str:
        return "×".join(map(str, self.sizes)) or "1"


@cache
def _coordinates(sizes: tuple[int, ...]) -> NDArray[np.int64]:
    if not sizes:
        return np.zeros((1, 0), np.int64)
    grid = np.indices(sizes).reshape(len(sizes), -1).T
    return np.ascontiguousarray(grid, np.int64)


def bounds(codes: NDArray[np.int64], sizes: tuple[int, ...], mesh: Mesh) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts and stops of every device's part, for many assignments of axes to dimensions at once.

    codes: [assignments, axes]; negative codes do not cut. Devices that an assignment leaves out have nothing.
    Returns starts and stops, each [assignments, devices, dimensions].
    """
    starts = np.empty((len(codes), mesh.devices, len(sizes)), np.int64)
    stops = np.empty_like(starts)
    weight = 1 << np.arange(mesh.axes, dtype=np.int64)
    for dimension, extent in enumerate(sizes):
        # A dimension's parts depend on the set of axes that cut it alone: few, and the same for many assignments.
        cutting = (codes == dimension) @ weight
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


@cache
def regions_of(layout: Layout, shape: tuple[int, ...], mesh: Mesh) -> Regions:
    """The region that each device holds: [devices, dimensions, 2]. Exact."""
    starts, stops = bounds(np.asarray([layout], np.int64).reshape(1, mesh.axes), shape, mesh)
    result = np.stack([starts[0], stops[0]], axis=-1)
    result.setflags(write=False)
    return result


def format_layout(layout: Layout, mesh: Mesh) -> str:
    """`S0·R`: the dimension that each axis splits, R for copies, P for partial sums."""
    words = {REPLICATE: "R", PARTIAL: "P"}
    return "·".join(words.get(code, f"S{code}") for code in layout) or "whole"
