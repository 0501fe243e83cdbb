"""Samples of users' functions of tiles."""

from __future__ import annotations

import numpy as np
from sampling import Arguments, Generator, integer, real, sample, shape, some

from girih.ops.functions import text_of


def twice_and_more(tile: np.ndarray, *others: np.ndarray) -> np.ndarray:
    return sum(others, 2 * tile) + 1


def squares(tile: np.ndarray, axis: int) -> np.ndarray:
    return (tile**2).sum(axis)


def norm(tile: np.ndarray, axis: int) -> np.ndarray:
    return np.sqrt((tile**2).sum(axis))


def folded(rng: Generator, function: object) -> Arguments:
    size = shape(rng, 1, 3)
    return {"input": real(rng, size), "function": text_of(function), "axis": integer(rng, 0, len(size) - 1)}


@sample("girih.map")
def map_tiles(rng: Generator) -> Arguments:
    size = shape(rng)
    tensors = (real(rng, size), real(rng, size[1:]), real(rng, tuple(some(rng, 1, n) for n in size)))
    return {"tensors": tensors[: integer(rng, 1, 3)], "function": text_of(twice_and_more), "kind": "float64"}


@sample("girih.fold")
def fold(rng: Generator) -> Arguments:
    reducer, function = some(rng, ("sum", squares), ("max", np.max), ("prod", np.prod))
    return {**folded(rng, function), "reducer": reducer, "kind": "float64"}


@sample("girih.fold_tiles")
def fold_tiles(rng: Generator) -> Arguments:
    return {**folded(rng, norm), "size": integer(rng, 1, 5), "kind": "float64"}


@sample("girih.fold_whole")
def fold_whole(rng: Generator) -> Arguments:
    return {**folded(rng, norm), "kind": "float64"}


@sample("girih.scan")
def scan(rng: Generator) -> Arguments:
    return {**folded(rng, np.cumsum), "kind": "float64"}


@sample("girih.carries")
def carries(rng: Generator) -> Arguments:
    return folded(rng, np.maximum)


@sample("girih.carried")
def carried(rng: Generator) -> Arguments:
    size = shape(rng, 2, 4)
    axis = integer(rng, 0, len(size) - 2)
    before = real(rng, (*size[: axis + 1], *size[axis + 2 :]))
    return {"input": real(rng, size), "carries": before, "function": text_of(np.add), "axis": axis}


@sample("girih.join_update")
def join_update(rng: Generator) -> Arguments:
    n, k, m = (integer(rng, 1, 4) for _ in range(3))
    given = {"reducer": "sum", "shape": (n, m), "kind": "float64"}
    if some(rng, True, False):
        return {"tensors": (real(rng, (n, k)), real(rng, (k, m))), "function": text_of(np.dot), "axes": (1, 0), **given}
    placed = text_of(lambda place, a, b: ((place.start, 0), a @ b))
    return {
        "tensors": (real(rng, (n, k)), real(rng, (k, m))), "function": placed, "axes": (0, -1), **given,
        "location": True,
    }  # fmt: skip


@sample("girih.join_parts")
def join_parts(rng: Generator) -> Arguments:
    """Windows that hold all updates: lying one after another, wherever they are, or as large as the result."""
    n, m, size = integer(rng, 1, 6), integer(rng, 1, 4), integer(rng, 1, 3)
    tiles = -(-n // size)
    given = {"axes": (0,), "reducer": some(rng, "sum", "max", "min", "prod"), "kind": "float64", "size": size}
    placed = {"function": text_of(own_rows), "location": True, **given}
    return {
        "tensors": (real(rng, (n, m)),),
        **some(
            rng,
            {**placed, "shape": (tiles * size, m), "window": (size, m), "along": 0},
            {**placed, "shape": (tiles * size + 1, m), "window": (size, m)},
            {**given, "function": text_of(first_row), "shape": (2, m), "window": (2, m)},
        ),
    }


def own_rows(place: slice, tile: np.ndarray) -> tuple[tuple[int, int], np.ndarray]:
    return (place.start, 0), tile


def first_row(tile: np.ndarray) -> np.ndarray:
    return np.stack([tile[0], 0 * tile[0]])


@sample("girih.join_reduced")
def join_reduced(rng: Generator) -> Arguments:
    return {"parts": real(rng, shape(rng, 1, 4)), "reducer": some(rng, "sum", "max", "min", "prod")}


@sample("girih.join_placed")
def join_placed(rng: Generator) -> Arguments:
    tiles, rank = integer(rng, 1, 3), integer(rng, 1, 3)
    size = tuple(integer(rng, 1, 5) for _ in range(rank))
    window = tuple(integer(rng, 1, extent) for extent in size)
    seen = np.zeros((tiles, 3 * rank + 2), np.int64)
    for row in seen:
        row[:rank] = [integer(rng, 0, extent - most) for extent, most in zip(size, window, strict=True)]
    reducer = some(rng, "sum", "max", "min", "prod")
    return {"parts": real(rng, (tiles, *window)), "seen": seen, "reducer": reducer, "shape": size}


@sample("girih.join_along")
def join_along(rng: Generator) -> Arguments:
    n, k, m = (integer(rng, 1, 4) for _ in range(3))
    tensors = (real(rng, (n, k)), real(rng, (k, m)))
    given = {"along": 0, "shape": (n, m), "kind": "float64"}
    if some(rng, True, False):
        return {"tensors": tensors, "function": text_of(np.dot), "axes": (0, -1), **given}
    moved = text_of(lambda place, a, b: a @ b + np.arange(place.start, place.stop)[:, None])
    return {"tensors": tensors, "function": moved, "axes": (0, -1), **given, "location": True}
