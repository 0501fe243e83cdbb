"""Which part of a value each device holds, how partial results are combined, and whole tensors from parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from math import inf
from typing import Any

import numpy as np
import torch

from girih.kernels.numpy_fallback import in_place
from girih.kernels.own import add_logsumexp_
from girih.layout import Placement
from girih.program import Program

Tensor = Any  # torch is untyped for the type checker
Box = tuple[tuple[int, int], ...]  # (start, stop) of each dimension, in the whole value's coordinates
Cuts = tuple[tuple[int, int, int], ...]  # (dimension, start, length) where a box is narrower than its buffer

COMBINE: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "sum": partial(in_place, np.add, lambda target, part: target.add_(part)),
    "prod": partial(in_place, np.multiply, lambda target, part: target.mul_(part)),
    "max": partial(in_place, np.maximum, lambda target, part: torch.maximum(target, part, out=target)),
    "min": partial(in_place, np.minimum, lambda target, part: torch.minimum(target, part, out=target)),
    "logsumexp": add_logsumexp_,
}


def neutral(reducer: str, dtype: Any) -> bool | int | float:
    """The number of a dtype that changes no sum, maximum or minimum; of floating-point numbers an infinite one.

    Raises:
        ValueError: any other reducer.
    """
    if reducer == "sum":
        return 0
    if reducer not in ("max", "min"):
        raise ValueError(f"what is whole becomes partial sums, maxima or minima, not what {reducer} combines")
    least = reducer == "max"
    if dtype == torch.bool:
        return not least
    if dtype.is_floating_point:
        return -inf if least else inf
    return int(torch.iinfo(dtype).min if least else torch.iinfo(dtype).max)


def as_box(region: np.ndarray, shape: tuple[int, ...]) -> Box:
    """A part of a value of this shape. A scalar is the box without dimensions; where it is absent, ((0, 0),)."""
    box = tuple((int(start), int(stop)) for start, stop in region)
    return box if shape or box == ((0, 0),) else ()


def held_box(program: Program, buffer: str, place: Placement, rank: int) -> Box:
    """What of its value one device holds in a buffer at a place."""
    return as_box(place.regions[rank], program.graph.values[program.value_of[buffer]].shape)


def shape_of(box: Box) -> tuple[int, ...]:
    return tuple(stop - start for start, stop in box)


def box_of(program: Program, name: str, rank: int) -> Box:
    """Where one device's part of a value lies under its layout."""
    return as_box(program.layout_regions(name)[rank], program.graph.values[name].shape)


def cut(tensor: Tensor, box: Box) -> Tensor:
    """The box of a whole tensor, as a view."""
    if len(box) > tensor.dim():  # an absent scalar
        tensor = tensor.reshape(1)
    return tensor[tuple(slice(start, stop) for start, stop in box)]


def relative(box: Box, held: Box) -> Cuts:
    """How to cut `box` out of a buffer that holds `held`.

    Raises:
        ValueError: the buffer does not hold it.
    """
    cuts = []
    for dimension, ((start, stop), (first, last)) in enumerate(zip(box, held, strict=True)):
        if start < first or stop > last:
            raise ValueError(f"{box} is not inside of {held}")
        if (start, stop) != (first, last):
            cuts.append((dimension, start - first, stop - start))
    return tuple(cuts)


def narrow(tensor: Tensor, cuts: Cuts) -> Tensor:
    for dimension, start, length in cuts:
        tensor = tensor.narrow(dimension, start, length)
    return tensor


@lru_cache(maxsize=65536)
def _reporters(partial: tuple[int, ...], regions: bytes, coordinates: bytes, devices: int) -> tuple[int, ...]:
    boxes = np.frombuffer(regions, np.int64).reshape(devices, -1, 2)
    places = np.frombuffer(coordinates, np.int64).reshape(devices, -1)
    seen: set[bytes] = set()
    ranks = []
    for rank in range(devices):
        key = boxes[rank].tobytes() + places[rank, list(partial)].tobytes()
        if key not in seen and bool((boxes[rank, :, 1] > boxes[rank, :, 0]).all()):
            seen.add(key)
            ranks.append(rank)
    return tuple(ranks)


def reporters(program: Program, name: str) -> tuple[int, ...]:
    """The devices whose parts make up the whole value: of equal parts the lowest, of empty ones none."""
    return _reporters(
        program.strategy.layouts[name].partial_axes,
        program.layout_regions(name).tobytes(),
        program.mesh.coordinates.tobytes(),
        program.mesh.devices,
    )


def assemble(program: Program, name: str, parts: Iterable[tuple[int, Tensor]]) -> Tensor:
    """The whole value from (rank, part) of its reporters; partial results are combined in the order of ranks."""
    value = program.graph.values[name]
    dtype = getattr(torch, value.dtype)
    if not program.strategy.layouts[name].partial_axes:
        whole = torch.empty(value.shape, dtype=dtype)
        for rank, part in parts:
            cut(whole, box_of(program, name, rank)).copy_(part)
        return whole
    reducer = program.strategy.layouts[name].reducer
    whole = torch.full(value.shape, neutral(reducer, dtype), dtype=dtype)
    for rank, part in sorted(parts, key=lambda item: item[0]):
        COMBINE[reducer](cut(whole, box_of(program, name, rank)), part.cpu())
    return whole


def assembled(program: Program, name: str, parts: Sequence[tuple[int, Tensor]]) -> Tensor:
    """As `assemble`; where one part is the whole value already, that part."""
    if len(parts) == 1 and not program.strategy.layouts[name].partial_axes:
        ((_, part),) = parts
        if part.shape == program.graph.values[name].shape and part.device.type == "cpu":
            return part
    return assemble(program, name, parts)
