"""Placements for tests, and what it means to turn one into another, written with sets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from hypothesis import strategies as st

from girih.layout import Axis, Mesh, Partial, Placement, Replicated, Sharding, Split

Element = tuple[int, ...]
Term = tuple[int, ...]  # coordinates on the axes that are reduced

MESHES = [(2,), (3,), (2, 2), (2, 3), (3, 2), (2, 2, 2)]


@st.composite
def shardings(draw: st.DrawFn, mesh: Mesh, dimensions: int, partial: bool = True) -> Sharding:
    """Any sharding of so many dimensions: stated shares, some coordinates alone, partial sums, maxima or minima."""
    axes: list[Axis] = []
    reducer = draw(st.sampled_from(["sum", "max", "min"]))
    for size in mesh.sizes:
        on = draw(st.none() | st.sets(st.integers(0, size - 1), min_size=1).map(lambda some: tuple(sorted(some))))
        parts = size if on is None else len(on)
        kind = draw(st.sampled_from(["R", *("P" * partial), *range(dimensions)]))
        if isinstance(kind, int):
            shares = st.lists(st.integers(1, 9), min_size=parts, max_size=parts).map(tuple)
            axes.append(Split(kind, draw(st.none() | shares), on))
        else:
            axes.append(Replicated(on) if kind == "R" else Partial(0, on, reducer))
    return Sharding(tuple(axes))


@st.composite
def changes(draw: st.DrawFn, possible: bool = True) -> tuple[Mesh, tuple[int, ...], Placement, Placement]:
    """A mesh, a shape, and two placements; targets may also be odd boxes, as with halos."""
    mesh = Mesh(draw(st.sampled_from(MESHES)))
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=0, max_size=3)))
    source, target = draw(shardings(mesh, len(shape))), draw(shardings(mesh, len(shape)))
    if possible:  # what stays partial is partial already, and stays where it is
        target = Sharding(tuple(
            axis if not isinstance(axis, Partial) else goal if isinstance(goal, Partial) else Replicated()
            for axis, goal in zip(target.axes, source.axes, strict=True)
        ))  # fmt: skip
    after = Placement.of(target, shape, mesh)
    if draw(st.booleans()) and shape:
        before, behind = draw(st.integers(0, 2)), draw(st.integers(0, 2))
        dimension = draw(st.integers(0, len(shape) - 1))
        regions = after.regions.copy()
        present = (regions[..., 1] > regions[..., 0]).all(axis=1)
        regions[present, dimension, 0] = np.maximum(regions[present, dimension, 0] - before, 0)
        regions[present, dimension, 1] = np.minimum(regions[present, dimension, 1] + behind, shape[dimension])
        after = Placement(regions, after.partial)
    return mesh, shape, Placement.of(source, shape, mesh), after


def elements(region: np.ndarray) -> set[Element]:
    return set(product(*(range(int(start), int(stop)) for start, stop in region)))


def reduced_axes(source: Placement, target: Placement) -> list[int]:
    return [axis for axis, (a, b) in enumerate(zip(source.partial, target.partial, strict=True)) if a and not b]


def wanted(mesh: Mesh, source: Placement, target: Placement) -> Iterator[tuple[int, Element, Term, int]]:
    """(device, element, term, level): all that devices lack, and the outermost axis over which they can get it from
    the nearest device that has it."""
    coordinates = mesh.coordinates
    reduced = reduced_axes(source, target)
    kept = [axis for axis in range(mesh.axes) if source.partial[axis] and target.partial[axis]]
    held = [elements(region) for region in source.regions]
    for device in range(mesh.devices):
        for element in elements(target.regions[device]):
            for term in product(*(sorted({at[axis] for at, part in zip(coordinates, held, strict=True) if part})
                                  for axis in reduced)):  # fmt: skip
                able = [
                    other
                    for other in range(mesh.devices)
                    if element in held[other]
                    and all(coordinates[other][axis] == part for axis, part in zip(reduced, term, strict=True))
                    and all(coordinates[other][axis] == coordinates[device][axis] for axis in kept)
                ]
                if device in able:
                    continue
                level = max(int(np.argmax(coordinates[other] != coordinates[device])) for other in able)
                yield device, element, term, level
