"""Who sends which region to whom when a value changes its placement: exact, and recognised as a collective.

Every device receives each missing element once for each contribution that it needs, from the nearest device that has
it: the one that agrees with it on the most outer mesh axes, ties broken so that replicas share the load. The volumes
are those of `girih.layout.transfer`, which the search minimises; a test holds them against each other.

`exchange` writes down the messages of all devices: O(devices · regions · terms) in Python, for small meshes and for
the collective's name. `messages_of` finds those of one device, of a mesh of any size, `message_arrays` all of them
without an object for each, and `is_local` needs none.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from girih.layout import Mesh, Placement, becomes_partial, kept_terms, level_volumes
from girih.layout.mesh import COUNTED, Regions

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
    if becomes_partial(source, target):
        target = kept_terms(mesh, source, target)
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
    mesh: Mesh, held: bytes, held_partial: tuple[int, ...], needed: bytes, needed_partial: tuple[int, ...], rank: int
) -> Exchange:
    shape = (mesh.devices, rank, 2)
    source = np.frombuffer(held, np.int64).reshape(shape)
    target = np.frombuffer(needed, np.int64).reshape(shape)
    coordinates = [tuple(int(part) for part in row) for row in mesh.coordinates]
    reduced, kept = axes_of(held_partial, needed_partial)
    holders = _holders(source)
    terms = list(product(*(along.tolist() for along in _contributing(mesh, source, reduced))))
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
    holders: dict[Box, list[int]] = {}
    for device, region in enumerate(source):
        box: Box = tuple((int(low), int(high)) for low, high in region)
        if all(high > low for low, high in box):
            holders.setdefault(box, []).append(device)
    return sorted(holders.items())


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


def _contributing(mesh: Mesh, source: Regions, reduced: list[int]) -> list[NDArray[np.int64]]:
    """For each reduced axis the coordinates that hold a contribution: all, unless devices are left out."""
    present = mesh.coordinates[(source[..., 1] > source[..., 0]).all(axis=1)]
    return [np.unique(present[:, axis]) for axis in reduced]


def contributions(mesh: Mesh, source: Regions, reduced: list[int]) -> NDArray[np.int64]:
    """The number of the contribution that each device holds: [devices]."""
    term = np.zeros(mesh.devices, np.int64)
    for axis, along in zip(reduced, _contributing(mesh, source, reduced), strict=True):
        term = term * len(along) + np.searchsorted(along, mesh.coordinates[:, axis])
    return term


def terms_of(mesh: Mesh, source: Placement, target: Placement) -> int:
    """How many contributions are combined: 1 where nothing is reduced."""
    return prod(source.partial[axis] % COUNTED for axis in axes_of(source.partial, target.partial)[0])


def is_local(mesh: Mesh, source: Placement, target: Placement) -> bool:
    """Does no device receive anything from another?"""
    inside = (source.regions[..., 0] <= target.regions[..., 0]) & (target.regions[..., 1] <= source.regions[..., 1])
    if bool(inside.all()) and terms_of(mesh, source, target) == 1:
        return True
    return not bool(level_volumes(mesh, source, target).any())


def messages_of(mesh: Mesh, source: Placement, target: Placement, rank: int) -> tuple[Message, ...]:
    """The messages that one device receives, sends or copies at home, in their order in the whole exchange.

    Cost: a few operations on arrays over all devices; O(receivers · holders of its own region) for what it sends.
    """
    if becomes_partial(source, target):
        target = kept_terms(mesh, source, target)
    return _messages_of(
        mesh,
        source.regions.tobytes(),
        source.partial,
        target.regions.tobytes(),
        target.partial,
        source.regions.shape[1],
        rank,
    )


@lru_cache(maxsize=4096)
def _messages_of(
    mesh: Mesh,
    held: bytes,
    held_partial: tuple[int, ...],
    needed: bytes,
    needed_partial: tuple[int, ...],
    dimensions: int,
    rank: int,
) -> tuple[Message, ...]:
    shape = (mesh.devices, dimensions, 2)
    source = np.frombuffer(held, np.int64).reshape(shape)
    target = np.frombuffer(needed, np.int64).reshape(shape)
    reduced, kept = axes_of(held_partial, needed_partial)
    places = mesh.coordinates
    term = contributions(mesh, source, reduced)
    peers = (places[:, kept] == places[rank, kept]).all(axis=1)  # whose contributions are combined with each other
    received = _received(mesh, source, target[rank], term, peers, rank)
    sent = _sent(mesh, source, target, term, peers, rank)
    before = [message for message in sent if message.target < rank]
    return (*before, *received, *sent[len(before) :])


def _received(
    mesh: Mesh, source: Regions, wanted: NDArray[np.int64], term: NDArray[np.int64], peers: NDArray[np.bool_], rank: int
) -> list[Message]:
    """For each term and region that it needs, from the nearest of the devices that hold it."""
    low, high, meets = meeting(source, wanted)
    able = np.flatnonzero(meets & peers)
    if not len(able):
        return []
    distance = distances(mesh, mesh.coordinates[rank], mesh.coordinates[able])
    region = source[able].reshape(len(able), -1)
    order = np.lexsort((distance, *region.T[::-1], term[able]))
    groups = np.column_stack([term[able], region])[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (groups[1:] != groups[:-1]).any(axis=1)
    nearest = able[order[first]]
    boxes = _boxes(low[nearest], high[nearest])
    return [
        Message(device, rank, number, box)
        for device, number, box in zip(nearest.tolist(), term[nearest].tolist(), boxes, strict=True)
    ]


def _sent(
    mesh: Mesh, source: Regions, target: Regions, term: NDArray[np.int64], peers: NDArray[np.bool_], rank: int
) -> list[Message]:
    """To each device that needs something of its region and has no nearer device with the same to ask."""
    alike = peers & (term == term[rank]) & (source == source[rank]).all(axis=(1, 2))
    low, high, meets = meeting(target, source[rank])
    asking = np.flatnonzero(meets & peers & ~alike)  # who holds the region itself asks nobody
    if not len(asking):
        return []
    able = np.flatnonzero(alike)
    places = mesh.coordinates
    nearest = able[distances(mesh, places[asking, None], places[None, able]).argmin(axis=1)]
    asking = asking[nearest == rank]
    number, boxes = int(term[rank]), _boxes(low[asking], high[asking])
    return [Message(rank, device, number, box) for device, box in zip(asking.tolist(), boxes, strict=True)]


def meeting(
    regions: Regions, other: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Starts and stops of the intersections of all regions with another one, and which are not empty."""
    low = np.maximum(regions[..., 0], other[..., 0])
    high = np.minimum(regions[..., 1], other[..., 1])
    meets: NDArray[np.bool_] = np.all(low < high, axis=-1)
    return low, high, meets


def _boxes(low: NDArray[np.int64], high: NDArray[np.int64]) -> list[Box]:
    return [tuple((start, stop) for start, stop in box) for box in np.stack([low, high], axis=-1).tolist()]


def distances(mesh: Mesh, own: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number for each of the others that orders them as `_distance` does: coordinates in the last axis."""
    around = (others - own) % np.asarray(mesh.sizes, np.int64)
    differs = np.zeros(around.shape[:-1], np.int64)
    steps = np.zeros(around.shape[:-1], np.int64)
    for axis, size in enumerate(mesh.sizes):
        differs = differs * 2 + (around[..., axis] > 0)
        steps = steps * size + around[..., axis]
    return differs * mesh.devices + steps


def axes_of(held_partial: tuple[int, ...], needed_partial: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """The axes over which contributions are combined, and those over which they stay apart."""
    pairs = list(enumerate(zip(held_partial, needed_partial, strict=True)))
    reduced = [axis for axis, (held, needed) in pairs if held and not needed]
    return reduced, [axis for axis, (held, needed) in pairs if held and needed]


class MessageArrays(NamedTuple):
    """The messages of all devices as arrays: an entry for each, in the order of the exchange, which is by receiver,
    contribution, and region.

    source, target, term: [messages], as of `Message`. box: [messages, dimensions, 2].
    """

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    term: NDArray[np.int64]
    box: NDArray[np.int64]

    @property
    def extents(self) -> NDArray[np.int64]:
        """[messages, dimensions]."""
        lengths: NDArray[np.int64] = self.box[..., 1] - self.box[..., 0]
        return lengths


def message_arrays(mesh: Mesh, source: Placement, target: Placement) -> MessageArrays:
    """The messages that turn one placement into another in one hop, for prices, which need the sizes and the shapes of
    all messages of a small mesh but no object for each. Cost: operations on arrays over all pairs of devices."""
    if becomes_partial(source, target):
        target = kept_terms(mesh, source, target)
    places, devices = mesh.coordinates, mesh.devices
    reduced, kept = axes_of(source.partial, target.partial)
    term = contributions(mesh, source.regions, reduced)
    low, high, meets = meeting(source.regions[None], target.regions[:, None])
    if kept:
        meets &= (places[:, None, kept] == places[None][:, :, kept]).all(axis=-1)
    receiver, holder = np.nonzero(meets)
    rows = list(map(tuple, source.regions.reshape(devices, -1).tolist()))
    known = {row: number for number, row in enumerate(sorted(set(rows)))}  # (`np.unique` of rows takes longer)
    region = np.asarray([known[row] for row in rows], np.int64)
    group = (receiver * devices + term[holder]) * devices + region[holder]
    order = np.lexsort((distances(mesh, places[receiver], places[holder]), group))
    first = np.ones(len(order), np.bool_)
    first[1:] = np.diff(group[order]) != 0  # the nearest of those that hold the same
    receiver, holder = receiver[order[first]], holder[order[first]]
    box = np.stack([low[receiver, holder], high[receiver, holder]], axis=-1)
    return MessageArrays(holder, receiver, term[holder], box)
