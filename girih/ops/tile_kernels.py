"""Kernels of `girih.ops.catalogue.tile_functions`: they call a user's NumPy function on tiles, as read-only arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from girih.ops.functions import function_of

Tensor = Any  # torch is untyped for the type checker
Array = Any

UFUNCS = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


def map_tiles(tensors: Sequence[Tensor], function: str, kind: str) -> Tensor:
    tiles = [_tile(x) for x in tensors]
    shape = np.broadcast_shapes(*(tile.shape for tile in tiles))
    return _made(function, kind, shape, tiles, function_of(function)(*tiles))


def fold(input: Tensor, function: str, axis: int, reducer: str, kind: str) -> Tensor:
    return _folded(function, kind, _tile(input), axis)


def fold_tiles(input: Tensor, function: str, axis: int, size: int, kind: str) -> Tensor:
    parts = [_folded(function, kind, _tile(part), axis) for part in input.split(size, axis)]
    return torch.stack(parts)


def fold_whole(input: Tensor, function: str, axis: int, kind: str) -> Tensor:
    return _folded(function, kind, _tile(input), axis)


def _folded(function: str, kind: str, tile: Array, axis: int) -> Tensor:
    shape = tile.shape[:axis] + tile.shape[axis + 1 :]
    return _made(function, kind, shape, [tile], function_of(function)(tile, axis))


def scan(input: Tensor, function: str, axis: int, kind: str) -> Tensor:
    tile = _tile(input)
    return _made(function, kind, tile.shape, [tile], function_of(function)(tile, axis))


def carries(input: Tensor, function: str, axis: int) -> Tensor:
    """Of each tile, the last elements of all tiles before it joined; its own for the first."""
    combine, lasts = function_of(function), input.unbind(axis)
    made = [lasts[0], lasts[0]]
    for last in lasts[1:-1]:
        tiles = [_tile(made[-1]), _tile(last)]
        made.append(_made(function, _name(input), tiles[0].shape, tiles, combine(*tiles)))
    return torch.stack(made[: len(lasts)], axis)


def carried(input: Tensor, carries: Tensor, function: str, axis: int, first: int = 0) -> Tensor:
    """Tiles joined with what comes before them; `first`: the number of the first tile."""
    out = input.clone()
    start = 1 if first == 0 else 0
    rest, before = (x.narrow(axis, start, x.shape[axis] - start) for x in (input, carries))
    if rest.numel():
        tiles = [np.broadcast_to(_tile(before.unsqueeze(axis + 1)), tuple(rest.shape)), _tile(rest)]
        made = _made(function, _name(input), tuple(rest.shape), tiles, function_of(function)(*tiles))
        out.narrow(axis, start, made.shape[axis]).copy_(made)
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
    made = _call_join(function, tiles, axes, location, first)
    if not isinstance(made, tuple):
        return _made(function, kind, tuple(shape), tiles, made)
    place, update = made[0], np.asarray(made[1])
    if update.ndim != len(shape) or len(place) != len(shape):
        raise ValueError(f"{_name_in(function)} updates {update.shape} at {place}, of a result of shape {tuple(shape)}")
    stops = [int(start) + size for start, size in zip(place, update.shape, strict=True)]
    if any(start < 0 or stop > size for start, stop, size in zip(place, stops, shape, strict=True)):
        raise ValueError(f"{_name_in(function)} updates {update.shape} at {place}, outside of {tuple(shape)}")
    out = np.full(tuple(shape), _identity(reducer, np.dtype(kind)), kind)
    out[tuple(slice(int(start), stop) for start, stop in zip(place, stops, strict=True))] = update
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


def _made(function: str, kind: str, shape: tuple[int, ...], tiles: list[Array], made: Any) -> Tensor:
    """What the function made, as memory of its own, of the promised dtype.

    Raises:
        ValueError: it has another shape than it must have.
    """
    result = np.asarray(made)
    if result.shape != tuple(shape):
        given = ", ".join(str(tile.shape) for tile in tiles)
        raise ValueError(
            f"{_name_in(function)} made an array of shape {result.shape} of tiles of shape {given}: expected {shape}"
        )
    result = np.require(result, np.dtype(kind), ["C", "W"])
    if any(np.may_share_memory(result, tile) for tile in tiles):
        result = result.copy()
    return torch.from_numpy(result)


TILE_KERNELS: dict[str, Callable[..., Tensor]] = {
    "girih.map": map_tiles,
    "girih.fold": fold,
    "girih.fold_tiles": fold_tiles,
    "girih.fold_whole": fold_whole,
    "girih.scan": scan,
    "girih.carries": carries,
    "girih.carried": carried,
    "girih.join_update": join_update,
    "girih.join_along": join_along,
}
