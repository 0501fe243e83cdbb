"""Who sends which region to whom when a value changes its placement: exact, and recognised as a collective.

Every device receives each missing element once for each contribution that it needs, from the nearest device that has
it: the one that agrees with it on the most outer mesh axes, ties broken so that replicas share the load. The volumes
are those of `girih.layout.transfer`, which the search minimises; a test holds them against each other.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from girih.layout import Mesh, Placement

Box = tuple[tuple[int, int], ...]  # (start, stop) of each dimension, in the whole value's coordinates


@dataclass(frozen=True, slots=True)
class Message:
    """One box of one contribution going from `source` to `target` (equal where it is copied at home).

    term: which term of the reduction it belongs to; 0 where nothing is reduced.
    """

    source: int
    target: int
    term: int
    box: Box

    @property
    def elements(self) -> int:
        count = 1
        for start, stop in self.box:
            count *= stop - start
        return count


@dataclass(frozen=True)
class Exchange:
    """All messages of one hop in an order on which every device agrees; `kind` is the collective that it amounts to."""

    messages: tuple[Message, ...]
    terms: int
    kind: str


def exchange(mesh: Mesh, source: Placement, target: Placement) -> Exchange:
    """The messages that turn one placement into another in one hop."""
    return _exchange(
        mesh,
        source.regions.tobytes(),
        source.partial,
        target.regions.tobytes(),
        target.partial,
        source.regions.shape[1],
    )


@lru_cache(maxsize=8192)
def _exchange(
    mesh: Mesh, held: bytes, held_partial: tuple[bool, ...], needed: bytes, needed_partial: tuple[bool, ...], rank: int
) -> Exchange:
    shape = (mesh.devices, rank, 2)
    source = np.frombuffer(held, np.int64).reshape(shape)
    target = np.frombuffer(needed, np.int64).reshape(shape)
    coordinates = [tuple(int(part) for part in row) for row in mesh.coordinates]
    reduced = [axis for axis in range(mesh.axes) if held_partial[axis] and not needed_partial[axis]]
    kept = [axis for axis in range(mesh.axes) if held_partial[axis] and needed_partial[axis]]
    holders = _holders(source)
    terms = list(product(*(range(mesh.sizes[axis]) for axis in reduced)))
    messages: list[Message] = []
    for receiver in range(mesh.devices):
        wanted: Box = tuple((int(low), int(high)) for low, high in target[receiver])
        if any(high <= low for low, high in wanted):
            continue
        own = coordinates[receiver]
        for number, term in enumerate(terms):
            for region, devices in holders:
                box = _intersect(wanted, region)
                if box is None:
                    continue
                able = [
                    device
                    for device in devices
                    if all(coordinates[device][axis] == part for axis, part in zip(reduced, term, strict=True))
                    and all(coordinates[device][axis] == own[axis] for axis in kept)
                ]
                nearest = min(able, key=lambda device: _distance(mesh, own, coordinates[device]))
                messages.append(Message(nearest, receiver, number, box))
    return Exchange(tuple(messages), len(terms), _kind(mesh, messages, len(terms), source, target))


def _holders(source: np.ndarray) -> list[tuple[Box, list[int]]]:
    """The different regions, in order, each with the devices that hold it. They are disjoint."""
    found: dict[Box, list[int]] = {}
    for device, region in enumerate(source):
        box: Box = tuple((int(low), int(high)) for low, high in region)
        if all(high > low for low, high in box):
            found.setdefault(box, []).append(device)
    return sorted(found.items())


def _intersect(first: Box, second: Box) -> Box | None:
    box = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(first, second, strict=True))
    return box if all(low < high for low, high in box) else None


def _distance(mesh: Mesh, own: tuple[int, ...], other: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    differs = tuple(int(a != b) for a, b in zip(own, other, strict=True))
    around = tuple((b - a) % size for a, b, size in zip(own, other, mesh.sizes, strict=True))
    return differs, around


def _kind(mesh: Mesh, messages: list[Message], terms: int, source: np.ndarray, target: np.ndarray) -> str:
    """The name of the collective that the messages amount to; a label for people and for cost tables."""
    remote = [message for message in messages if message.source != message.target]
    if not remote:
        return "local copy"
    if terms > 1:
        replicas = Counter(region.tobytes() for region in target)
        inputs = Counter(region.tobytes() for region in source)
        return "all-reduce" if max(replicas.values()) >= max(inputs.values()) else "reduce-scatter"
    overlapping = (np.maximum(source[..., 0], target[..., 0]) < np.minimum(source[..., 1], target[..., 1])).all(axis=1)
    contains = ((target[..., 0] <= source[..., 0]) & (source[..., 1] <= target[..., 1])).all(axis=1)
    received = Counter(message.target for message in remote)
    if len({message.source for message in remote}) == 1 and len(received) > 1:
        return "broadcast"
    if bool(contains.all()):
        extent = target[..., 1] - target[..., 0]
        held = np.maximum(source[..., 1] - source[..., 0], 1)
        whole = np.isin(extent, [0]) | (extent == held) | (extent >= 2 * held)
        return "all-gather" if bool(whole.all()) else "halo exchange"
    if bool(overlapping.all()) and len(messages) > mesh.devices and max(received.values()) > 1:
        return "all-to-all"
    return "all-to-all" if len(received) == mesh.devices else "send"
