"""Kernels of `girih.ops.catalogue.tile_functions`: they call a user's NumPy function on tiles, as read-only arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

import numpy as np
import torch

from girih.ops.functions import UFUNCS, function_of

Tensor = Any  # torch is untyped for the type checker
Array = Any


def map_tiles(tensors: Sequence[Tensor], function: str, kind: str) -> Tensor:
    tiles = [_tile(x) for x in tensors]
    shape = np.broadcast_shapes(*(tile.shape for tile in tiles))
    return _made(function, kind, shape, tiles, function_of(function)(*tiles))


def fold(input: Tensor, function: str, axis: int, kind: str, reducer: str = "") -> Tensor:
    """reducer: of what is folded of parts, for those who fold in parts; here is the whole."""
    return _folded(function, kind, _tile(input), axis)


def fold_tiles(input: Tensor, function: str, axis: int, size: int, kind: str) -> Tensor:
    parts = [_folded(function, kind, _tile(part), axis) for part in input.split(size, axis)]
    return torch.stack(parts)


def _folded(function: str, kind: str, tile: Array, axis: int) -> Tensor:
    shape = tile.shape[:axis] + tile.shape[axis + 1 :]
    return _made(function, kind, shape, [tile], function_of(function)(tile, axis))


def scan(input: Tensor, function: str, axis: int, kind: str, combine: str = "") -> Tensor:
    """combine: of what lies before a tile with the tile, for those who scan in tiles; here is the whole."""
    tile = _tile(input)
    return _made(function, kind, tile.shape, [tile], function_of(function)(tile, axis))


def carries(input: Tensor, function: str, axis: int) -> Tensor:
    """For each tile the last elements of all tiles before it, joined; the first tile has its own."""
    combine, lasts = function_of(function), input.unbind(axis)
    pair = [lasts[0], lasts[0]]
    for last in lasts[1:-1]:
        tiles = [_tile(pair[-1]), _tile(last)]
        pair.append(_made(function, _name(input), tiles[0].shape, tiles, combine(*tiles)))
    return torch.stack(pair[: len(lasts)], axis)


def carried(input: Tensor, carries: Tensor, function: str, axis: int, first: int = 0) -> Tensor:
    """Tiles joined with what comes before them; `first`: the number of the first tile."""
    out = input.clone()
    start = 1 if first == 0 else 0
    rest, before = (x.narrow(axis, start, x.shape[axis] - start) for x in (input, carries))
    if rest.numel():
        tiles = [np.broadcast_to(_tile(before.unsqueeze(axis + 1)), tuple(rest.shape)), _tile(rest)]
        result = _made(function, _name(input), tuple(rest.shape), tiles, function_of(function)(*tiles))
        out.narrow(axis, start, result.shape[axis]).copy_(result)
    return out


def join_update(
    tensors: Sequence[Tensor],
    function: str,
    axes: Sequence[int],
    reducer: str,
    shape: Sequence[int],
    kind: str,
    location: bool = False,
    first: int = 0,
) -> Tensor:
    """What `function` makes of tiles, on what the reducer leaves as it is where nothing is written."""
    tiles = [_tile(x) for x in tensors]
    updates = _call_join(function, tiles, axes, location, first)
    if not isinstance(updates, tuple):
        return _made(function, kind, tuple(shape), tiles, updates)
    box, update = _placed(function, shape, updates)
    out = np.full(tuple(shape), _identity(reducer, np.dtype(kind)), kind)
    out[box] = update
    return torch.from_numpy(out)


def _placed(function: str, shape: Sequence[int], updates: tuple[Any, ...]) -> tuple[tuple[slice, ...], Array]:
    """The box that a (place, update) is for, and the update.

    Raises:
        ValueError: it is not inside of the result.
    """
    place, update = updates[0], np.asarray(updates[1])
    if update.ndim != len(shape) or len(place) != len(shape):
        raise ValueError(f"{_name_in(function)} updates {update.shape} at {place}, of a result of shape {tuple(shape)}")
    box = tuple(slice(int(start), int(start) + size) for start, size in zip(place, update.shape, strict=True))
    if any(part.start < 0 or part.stop > size for part, size in zip(box, shape, strict=True)):
        raise ValueError(f"{_name_in(function)} updates {update.shape} at {place}, outside of {tuple(shape)}")
    return box, update


def join_parts(
    tensors: Sequence[Tensor],
    function: str,
    axes: Sequence[int],
    reducer: str,
    shape: Sequence[int],
    kind: str,
    size: int,
    window: Sequence[int],
    along: int = -1,
    location: bool = False,
    timed: bool = False,
    first: int = 0,
) -> tuple[Tensor, Tensor]:
    """[tiles, *window]: what each tile updates; [tiles, ...]: what was seen of it (`seen_of`).

    along: windows of tiles lie one after another along this dimension of the result; -1: each where its update is.
    timed: how long the function takes is seen, too: it differs from run to run, and nothing else is computed from it.
    """
    whole = [_tile(x) for x in tensors]
    length = next(tile.shape[axis] for tile, axis in zip(whole, axes, strict=True) if axis >= 0)
    count, rank = -(-length // size), len(shape)
    identity = _identity(reducer, np.dtype(kind))
    parts: Array = None
    seen = np.zeros((count, seen_of(rank)), np.int64)
    for number, row in enumerate(seen):
        start = number * size
        tiles = [_cut(tile, axis, start, size) for tile, axis in zip(whole, axes, strict=True)]
        began = perf_counter_ns()
        updates = _call_join(function, tiles, axes, location, first + start)
        row[-2] = perf_counter_ns() - began if timed else 0
        if isinstance(updates, tuple):
            box, update = _placed(function, shape, updates)
        else:
            update = _made(function, kind, tuple(shape), tiles, updates).numpy()
            box = _touched(update, identity)
            if count == 1 and tuple(window) == update.shape:  # it is what is asked for
                parts = update[None]
            update = update[box]
        begin = [min(part.start, total - most) for part, total, most in zip(box, shape, window, strict=True)]
        if along >= 0:
            begin[along] = (first // size + number) * window[along]
        row[:rank] = begin
        row[rank : 2 * rank] = [part.start for part in box]
        row[2 * rank : 3 * rank] = [part.stop for part in box]
        inside = tuple(slice(part.start - at, part.stop - at) for part, at in zip(box, begin, strict=True))
        fits = all(part.start >= 0 and part.stop <= most for part, most in zip(inside, window, strict=True))
        row[-1] = 0 if fits or not update.size else 1
        if parts is None:
            parts = np.full((count, *window), identity, kind)
        if fits:
            parts[number][inside] = update
    return torch.from_numpy(parts), torch.from_numpy(seen)


def seen_of(rank: int) -> int:
    """Numbers that `join_parts` says of each tile: where its window begins, where its update begins and ends (`rank`
    each); nanoseconds that the function took, or 0; and 1 if the update is larger than its window, and left out."""
    return 3 * rank + 2


def _cut(tile: Array, axis: int, start: int, size: int) -> Array:
    """A part of a tensor along an axis; for -1 all of it."""
    return tile if axis < 0 else tile[(slice(None),) * axis + (slice(start, start + size),)]


def _touched(update: Array, identity: Any) -> tuple[slice, ...]:
    """The box outside of which an update leaves everything as it is; looked at in parts of about a megabyte."""
    touched = [np.zeros(size, np.bool_) for size in update.shape]
    step = max(1, (1 << 20) * len(update) // max(1, update.size))
    for start in range(0, len(update), step):
        where = update[start : start + step] != identity
        for dim, there in enumerate(touched):
            other = tuple(number for number in range(update.ndim) if number != dim)
            if dim:
                there |= where.any(other)
            else:
                there[start : start + step] = where.any(other)
    ends = [np.flatnonzero(there)[[0, -1]] if there.any() else (0, -1) for there in touched]
    return tuple(slice(int(first), int(last) + 1) for first, last in ends)


def join_reduced(parts: Tensor, reducer: str) -> Tensor:
    array = _tile(parts)
    return torch.from_numpy(np.asarray(UFUNCS[reducer].reduce(array, axis=0, dtype=array.dtype)))


def join_placed(parts: Tensor, seen: Tensor, reducer: str, shape: Sequence[int], first: Sequence[int] = ()) -> Tensor:
    """Windows combined where they are; first: where this piece of the result begins."""
    updates, rank = _tile(parts), len(shape)
    out = np.full(tuple(shape), _identity(reducer, updates.dtype), updates.dtype)
    for update, row in zip(updates, seen.tolist(), strict=True):
        begin = [at - before for at, before in zip(row[:rank], first or (0,) * rank, strict=True)]
        here, there = [], []
        for at, most, size in zip(begin, update.shape, shape, strict=True):
            low, high = max(at, 0), min(at + most, size)
            here.append(slice(low, max(low, high)))
            there.append(slice(low - at, max(low, high) - at))
        into = out[tuple(here)]
        UFUNCS[reducer](into, update[tuple(there)], out=into)
    return torch.from_numpy(out)


def join_along(
    tensors: Sequence[Tensor],
    function: str,
    axes: Sequence[int],
    along: int,
    shape: Sequence[int],
    kind: str,
    location: bool = False,
    first: int = 0,
) -> Tensor:
    tiles = [_tile(x) for x in tensors]
    return _made(function, kind, tuple(shape), tiles, _call_join(function, tiles, axes, location, first))


def _call_join(function: str, tiles: list[Array], axes: Sequence[int], location: bool, first: int) -> Any:
    if not location:
        return function_of(function)(*tiles)
    count = next(tile.shape[axis] for tile, axis in zip(tiles, axes, strict=True) if axis >= 0)
    return function_of(function)(slice(first, first + count), *tiles)


def _identity(reducer: str, dtype: np.dtype) -> Any:
    if reducer in ("sum", "prod"):
        return 0 if reducer == "sum" else 1
    if dtype.kind == "b":
        return reducer == "min"
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    low, high = (-np.inf, np.inf) if dtype.kind == "f" else (limits.min, limits.max)
    return low if reducer == "max" else high


def _tile(x: Tensor) -> Array:
    tile = x.detach().resolve_conj().numpy()
    tile.flags.writeable = False  # it may be another's, too
    return tile


def _name(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def _name_in(function: str) -> str:
    return function.partition("|")[0]


def _made(function: str, kind: str, shape: tuple[int, ...], tiles: list[Array], results: Any) -> Tensor:
    """What the function made, as memory of its own, of the promised dtype.

    Raises:
        ValueError: it has another shape than it must have.
    """
    result = np.asarray(results)
    if result.shape != tuple(shape):
        shapes = ", ".join(str(tile.shape) for tile in tiles)
        raise ValueError(
            f"{_name_in(function)} made an array of shape {result.shape} of tiles of shape {shapes}: expected {shape}"
        )
    result = np.require(result, np.dtype(kind), ["C", "W"])
    if any(np.may_share_memory(result, tile) for tile in tiles):
        result = result.copy()
    return torch.from_numpy(result)


TILE_KERNELS: dict[str, Callable[..., Tensor]] = {
    "girih.map": map_tiles,
    "girih.fold": fold,
    "girih.fold_tiles": fold_tiles,
    "girih.fold_whole": fold,
    "girih.scan": scan,
    "girih.carries": carries,
    "girih.carried": carried,
    "girih.join_update": join_update,
    "girih.join_parts": join_parts,
    "girih.join_reduced": join_reduced,
    "girih.join_placed": join_placed,
    "girih.join_along": join_along,
}
