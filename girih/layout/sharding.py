"""Shardings: what each mesh axis does to a tensor, or to the index space of a node, as people read it.

    S0·R         the first axis splits dimension 0 into equal parts, the second keeps whole copies
    S0[7:3]·P    the first axis cuts dimension 0 seven to three, along the second lie partial sums
    Pmax·R       along the first axis lie partial maxima: the largest of them is the value
    S1@0,2·R     the coordinates 0 and 2 of the first axis split dimension 1, the others hold nothing

A sharding of a node speaks of its index variables in place of dimensions: `R` repeats the work, and `P1` lets partial
results pass through the second set of its inputs that can (`girih.ops.derive.passing.passages`).

Part i of an extent n with shares s goes from n·(s[0] + … + s[i-1]) // Σs to n·(s[0] + … + s[i]) // Σs; equal parts are
shares of 1. Several axes that split one dimension multiply their shares, the outer axis cuts first.

Solvers write a sharding without stated shares as integers (`girih.layout.mesh`): `codes` and `sharding_of` go between.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from girih.layout.mesh import (
    MOST_COORDINATES,
    MOST_DIMENSIONS,
    PARTIAL_BY,
    PARTIAL_KINDS,
    REPLICATE,
    Bounds,
    Layout,
    Mesh,
    Regions,
    Shares,
    among,
    bounds_of_codes,
    coordinates_of,
    kind_of,
    regions_of_codes,
)

MOST_SHARE = 1 << 20  # parts of a whole that shares state


@dataclass(frozen=True)
class Split:
    """Parts along a dimension of a tensor, or an index variable of a node.

    shares: how large the part of each coordinate that takes part is, relative to the others; None: all are equal.
    on: the coordinates that take part, in order; None: all do.
    """

    dimension: int
    shares: tuple[int, ...] | None = None
    on: tuple[int, ...] | None = None

    def __str__(self) -> str:
        stated = "" if self.shares is None else f"[{':'.join(map(str, self.shares))}]"
        return f"S{self.dimension}{stated}{_coordinates(self.on)}"


@dataclass(frozen=True)
class Replicated:
    """Whole copies of a tensor, or the whole work of a node, on each coordinate that takes part."""

    on: tuple[int, ...] | None = None

    def __str__(self) -> str:
        return f"R{_coordinates(self.on)}"


@dataclass(frozen=True)
class Partial:
    """Partial sums, maxima or minima of a tensor; of a node, that partial results pass through the set of inputs with
    this number."""

    passes: int = 0
    on: tuple[int, ...] | None = None
    reducer: str = "sum"

    def __str__(self) -> str:
        return f"P{self.passes or ''}{'' if self.reducer == 'sum' else self.reducer}{_coordinates(self.on)}"


Axis: TypeAlias = Split | Replicated | Partial


def _coordinates(on: tuple[int, ...] | None) -> str:
    return "" if on is None else "@" + ",".join(map(str, on))


@dataclass(frozen=True)
class Sharding:
    """What each mesh axis does, the outermost first. Its text is read by `parse_sharding`.

    Raises:
        ValueError: an entry says what nothing can do.
    """

    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        for axis in self.axes:
            if wrong := _wrong(axis):
                raise ValueError(f"sharding {self}: {wrong}")

    def __str__(self) -> str:
        return "·".join(map(str, self.axes)) or "whole"

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.axes)

    @cached_property
    def codes(self) -> Layout:
        """The axes as solvers write them, as if all parts were equal."""
        return tuple(_code(axis) for axis in self.axes)

    @cached_property
    def shares(self) -> Shares:
        """The stated shares of each axis; () where no axis states any."""
        stated = tuple(axis.shares if isinstance(axis, Split) else None for axis in self.axes)
        return () if all(item is None for item in stated) else stated

    @property
    def even_codes(self) -> Layout | None:
        """`codes`; None where shares are stated, which solvers cannot write."""
        return None if self.shares else self.codes

    @property
    def partial_axes(self) -> tuple[int, ...]:
        """The axes along which partial sums, maxima or minima lie."""
        return tuple(number for number, axis in enumerate(self.axes) if isinstance(axis, Partial))

    @property
    def reducer(self) -> str:
        """How partial results are combined, along all axes in one way; "sum" where there are none."""
        return next((axis.reducer for axis in self.axes if isinstance(axis, Partial)), "sum")

    def misfit(self, mesh: Mesh, dimensions: int, sets: int = 1) -> str:
        """Why it cannot shard what has so many dimensions, and sets of inputs that let partial results pass, over this
        mesh; "" if it can. sets: 1 of a value."""
        if len(self.axes) != mesh.axes:
            return f"it has {len(self.axes)} axes, the mesh {mesh} has {mesh.axes}"
        if len({axis.reducer for axis in self.axes if isinstance(axis, Partial)}) > 1:
            return "it mixes partial sums, maxima and minima, which are combined in one way"
        for axis, size in zip(self.axes, mesh.sizes, strict=True):
            if axis.on is not None and axis.on[-1] >= size:
                return f"{axis} names coordinate {axis.on[-1]} of an axis of {size}"
            if isinstance(axis, Partial) and axis.passes >= sets:
                return f"{axis} is the number of a set of inputs: expected P, Pmax or Pmin"
            if isinstance(axis, Partial) and axis.reducer != "sum" and sets > 1:
                return f"{axis} says how a value lies: expected P and the number of a set of inputs"
            if not isinstance(axis, Split):
                continue
            if axis.dimension >= dimensions:
                return f"{axis} splits dimension {axis.dimension} of {dimensions}"
            parts = size if axis.on is None else len(axis.on)
            if axis.shares is not None and len(axis.shares) != parts:
                return f"{axis} states {len(axis.shares)} shares for {parts} parts"
        return ""

    def taking_part(self, mesh: Mesh) -> NDArray[np.bool_]:
        """Does each device take part? [devices]"""
        able = [axis.on or range(size) for axis, size in zip(self.axes, mesh.sizes, strict=True)]
        taking: NDArray[np.bool_] = np.ones(mesh.devices, np.bool_)
        for number, some in enumerate(able):
            taking &= np.isin(mesh.coordinates[:, number], some)
        return taking

    def empty_part(self, sizes: tuple[int, ...], mesh: Mesh) -> str:
        """Which extent the stated shares leave nothing of to a device that takes part; "" if none."""
        starts, stops = bounds_of(self, sizes, mesh)
        here = self.taking_part(mesh)
        for axis in self.axes:
            if isinstance(axis, Split) and (stops <= starts)[here, axis.dimension].any():
                return f"{axis} leaves nothing of {sizes[axis.dimension]} to a device: state shares that give each one"
        return ""


def _wrong(axis: Axis) -> str:
    """What is wrong with an entry by itself."""
    if axis.on is not None and not (axis.on and list(axis.on) == sorted(set(axis.on)) and axis.on[0] >= 0):
        return f"{axis}: expected the coordinates that take part in rising order"
    if axis.on is not None and axis.on[-1] >= MOST_COORDINATES:
        return f"{axis}: expected coordinates below {MOST_COORDINATES}"
    number = axis.dimension if isinstance(axis, Split) else axis.passes if isinstance(axis, Partial) else 0
    if not 0 <= number < MOST_DIMENSIONS:
        return f"{axis}: expected a number from 0 to {MOST_DIMENSIONS - 1}"
    if isinstance(axis, Split) and axis.shares is not None:
        whole = all(isinstance(share, int) and share > 0 for share in axis.shares)
        if not axis.shares or not whole or sum(axis.shares) > MOST_SHARE:
            return f"{axis}: expected shares that are whole numbers from 1, together at most {MOST_SHARE}"
    if isinstance(axis, Partial) and (axis.reducer not in PARTIAL_BY or (axis.passes and axis.reducer != "sum")):
        return f"{axis}: expected P, Pmax or Pmin of a value, P and a number of a node"
    return ""


def _code(axis: Axis) -> int:
    if isinstance(axis, Split):
        kind = axis.dimension
    else:
        kind = REPLICATE if isinstance(axis, Replicated) else PARTIAL_BY[axis.reducer] - axis.passes
    return kind if axis.on is None else among(kind, axis.on)


@lru_cache(maxsize=65536)
def sharding_of(codes: Layout) -> Sharding:
    """What the codes of solvers mean; equal codes give one object."""
    axes: list[Axis] = []
    for code in codes:
        kind = kind_of(code)
        on = None if kind == code else coordinates_of(code, MOST_COORDINATES)
        if kind >= 0:
            axes.append(Split(kind, None, on))
        else:
            axes.append(Replicated(on) if kind == REPLICATE else _partial(kind, on))
    return Sharding(tuple(axes))


def _partial(kind: int, on: tuple[int, ...] | None) -> Partial:
    reducer = PARTIAL_KINDS.get(kind, "sum")
    return Partial(PARTIAL_BY[reducer] - kind, on, reducer)


_ENTRY = re.compile(
    r"(?:S(\d{1,4})(?:\[(\d{1,10}(?::\d{1,10})*)\])?|(R)|P(max|min|\d{0,4}))(?:@(\d{1,2}(?:,\d{1,2})*))?"
)


@lru_cache(maxsize=65536)
def parse_sharding(text: str) -> Sharding:
    """The sharding that prints as this text.

    Raises:
        ValueError: the text is none.
    """
    if text == "whole":
        return Sharding(())
    axes: list[Axis] = []
    for part in text.split("·"):
        match = _ENTRY.fullmatch(part)
        if match is None or not part.isascii():
            raise ValueError(
                f"sharding {text[:60]!r}: {part[:40]!r} is no entry: expected such as S0, S0[7:3], R, P or Pmax, each "
                "with the coordinates that take part as S0@0,2 where not all do, one for each mesh axis with · between"
            )
        dimension, shares, replicated, passes, coordinates = match.groups()
        on = None if coordinates is None else tuple(map(int, coordinates.split(",")))
        if dimension is not None:
            axes.append(Split(int(dimension), None if shares is None else tuple(map(int, shares.split(":"))), on))
        else:
            reducer = passes if passes in PARTIAL_BY else "sum"
            number = 0 if passes in PARTIAL_BY else int(passes or 0)
            axes.append(Replicated(on) if replicated else Partial(number, on, reducer))
    return Sharding(tuple(axes))


def bounds_of(division: Sharding, sizes: tuple[int, ...], mesh: Mesh) -> Bounds:
    """Starts and stops of every device's part of an index space: [devices, index variables] each."""
    return bounds_of_codes(division.codes, sizes, mesh, division.shares)


def regions_of(layout: Sharding | Layout, shape: tuple[int, ...], mesh: Mesh) -> Regions:
    """The region that each device holds: [devices, dimensions, 2]. Exact."""
    if isinstance(layout, Sharding):
        return regions_of_codes(layout.codes, shape, mesh, layout.shares)
    return regions_of_codes(layout, shape, mesh)
