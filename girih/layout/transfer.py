"""Transfers between placements: exact bytes on every level of the mesh, and the cheapest route.

A placement is where the parts of a value lie: one region for each device, and the axes over which the parts are
partial results: sums, maxima, minima. Turning placement S into T, device c must receive what of its region T(c) it does
not hold; where S is partial over axes that T is not, it needs one contribution for each coordinate of those axes that
takes part. Every missing element comes from the nearest device that has it (the one that shares most outer mesh
coordinates), so with `held[a](c)` = what the devices agreeing with c on all axes before `a` hold together, level `a`
carries

    K[a]·|T(c) ∩ held[a](c)| - K[a+1]·|T(c) ∩ held[a+1](c)|,      K[a] = Π terms along reduced axes >= a

summed over levels K·|T| - |T ∩ S|: nothing is sent twice. Where T is partial over axes that S is not, every element
has to lie within the group of devices along those axes: one of its holders keeps it as its term (of maxima and minima
all do), the others begin with zeros (with what is below, or above, all numbers), and nothing is sent. These are the
very bytes that lowering emits and workers send. A route may go over intermediate layouts where that is cheaper: an
all-reduce is a reduce-scatter and an all-gather; between hosts, terms are combined inside of each first, each device
fetches its share once and spreads it inside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from girih.layout.mesh import (
    COUNTED,
    PARTIAL_KINDS,
    REPLICATE,
    Layout,
    Mesh,
    Regions,
    Submesh,
    bounds,
    coordinates_of,
    kind_of,
    on_submesh,
    own_mesh,
)
from girih.layout.sharding import Sharding, regions_of


@dataclass(frozen=True)
class Links:
    """Cost of each mesh level: seconds per byte that a device receives over it, and seconds per message round."""

    seconds_per_byte: tuple[float, ...]
    latency: tuple[float, ...]


MOST_DEVICES = 16
"""Devices on which values become partial sums: looking for who keeps what takes a look at each device for each two
placements, which on large meshes would take longer than all else."""


REDUCERS = (*PARTIAL_KINDS.values(), "prod", "logsumexp")
"""How partial results are combined. A value is held as those of the first three; the others are combined at once."""
IDEMPOTENT = ("max", "min")
"""Reducers for which it does not matter whether one device or several hold the same term."""


def mark_of(reducer: str) -> int:
    """What an entry of `Placement.partial` has beside its number of terms: nothing where they are added. So entries are
    equal where as many terms are combined in the same way."""
    return COUNTED * REDUCERS.index(reducer)


def reducer_of(partial: Iterable[int]) -> str | None:
    """How partial results are combined, which is the same along all axes; None: there are none."""
    return next((REDUCERS[int(entry) // COUNTED] for entry in partial if entry), None)


def partial_terms(layout: Layout, mesh: Mesh) -> tuple[int, ...]:
    """How many partial results lie along each axis, with the reducer's mark (`mark_of`)."""
    entries = []
    for code, size in zip(layout, mesh.sizes, strict=True):
        reducer = PARTIAL_KINDS.get(kind_of(code))
        entries.append(0 if reducer is None else len(coordinates_of(code, size)) + mark_of(reducer))
    return tuple(entries)


@dataclass(frozen=True, eq=False)
class Placement:
    """Regions of all devices; for each axis how many partial results lie along it, with the mark of how they are
    combined (`mark_of`), 0 where it holds none."""

    regions: Regions
    partial: tuple[int, ...]

    def __post_init__(self) -> None:
        self.regions.setflags(write=False)  # as they mostly are: loops are compiled for one kind of array

    @staticmethod
    def of(layout: Sharding | Layout, shape: tuple[int, ...], mesh: Mesh) -> Placement:
        return _placement_of(layout, shape, mesh)

    @cached_property
    def first(self) -> int:
        """The first device whose part has elements; 0 if none has."""
        return int(np.argmax((self.regions[..., 0] < self.regions[..., 1]).all(axis=-1)))

    def is_as(self, other: Placement) -> bool:
        """Has each device the same of a value?"""
        return self.partial == other.partial and np.array_equal(self.regions, other.regions)


@dataclass(frozen=True, eq=False)
class Placements:
    """Many placements of values of one shape: regions [count, devices, dimensions, 2], partial [count, axes]."""

    regions: NDArray[np.int64]
    partial: NDArray[np.int64]
    named: bool = False  # made of layouts by `of`: equal layouts give this very object
    keys: NDArray[np.int64] | None = None  # [count, …]: placements with equal keys are equal

    def __post_init__(self) -> None:
        self.regions.setflags(write=False)

    @staticmethod
    def of(layouts: Sequence[Layout], shape: tuple[int, ...], mesh: Mesh) -> Placements:
        return _placements_of(tuple(layouts), shape, mesh)

    @staticmethod
    def single(item: Placement) -> Placements:
        return Placements(item.regions[None], np.asarray(item.partial, np.int64)[None])

    def __len__(self) -> int:
        return len(self.regions)

    def __getitem__(self, number: int) -> Placement:
        return Placement(self.regions[number], tuple(int(terms) for terms in self.partial[number]))

    def distinct(self) -> tuple[Placements, NDArray[np.int64]]:
        """Different ones, and for each placement the number of its equal among them.

        With keys a few may still be equal; without, none are.
        """
        if len(self) == 1:
            return self, np.zeros(1, np.int64)
        # Without keys, compare all regions. The first column keeps what has no other from having no column.
        rows = self.keys if self.keys is not None else self.regions
        flat = np.concatenate(
            (np.zeros((len(self), 1), np.int64), rows.reshape(len(self), -1), self.partial), axis=1, dtype=np.int64
        )
        if len(flat) <= 64:  # a dictionary is quicker than sorting
            numbers: dict[bytes, int] = {}
            number = [numbers.setdefault(row.tobytes(), len(numbers)) for row in flat]
            kept = [number.index(place) for place in range(len(numbers))]
            return Placements(self.regions[kept], self.partial[kept]), np.asarray(number, np.int64)
        words = np.ascontiguousarray(flat).view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1])))
        _, first, inverse = np.unique(words.ravel(), return_index=True, return_inverse=True)
        return Placements(self.regions[first], self.partial[first]), inverse.reshape(-1)


@lru_cache(maxsize=65536)
def _placement_of(layout: Sharding | Layout, shape: tuple[int, ...], mesh: Mesh) -> Placement:
    codes = layout.codes if isinstance(layout, Sharding) else layout
    return Placement(regions_of(layout, shape, mesh), partial_terms(codes, mesh))


@lru_cache(maxsize=4096)
def _placements_of(layouts: tuple[Layout, ...], shape: tuple[int, ...], mesh: Mesh) -> Placements:
    codes = np.asarray(layouts, np.int64).reshape(len(layouts), mesh.axes)
    regions = np.stack(bounds(codes, shape or (1,), mesh), axis=-1)
    terms = [partial_terms(layout, mesh) for layout in layouts]
    partial = np.asarray(terms, np.int64).reshape(len(layouts), mesh.axes)
    return Placements(regions, partial, True)


def held_by_levels(regions: NDArray[np.int64], mesh: Mesh) -> NDArray[np.int64]:
    """What device c and those agreeing with it on the axes before `a` hold together.

    regions: [placements, devices, dimensions, 2]. Returns [placements, axes + 1, devices, dimensions, 2].
    The union is a box because inner axes cut what outer axes have cut. Who has nothing adds nothing.
    """
    from girih.layout import kernels

    held: NDArray[np.int64] = kernels.hulls(np.ascontiguousarray(regions), np.asarray(mesh.sizes, np.int64))
    return held


@dataclass(frozen=True)
class Transfers:
    """The cost function of transfers for one objective: `bytes` (all devices together) or `seconds`. keeps: may what is
    whole or split become partial results, for nothing? submeshes: of the machine, such as the stages of a pipeline,
    whose devices reduce and spread values among themselves: a route may go over their layouts, too."""

    mesh: Mesh
    links: Links
    objective: str = "bytes"
    keeps: bool = True
    submeshes: tuple[Submesh, ...] = ()

    def direct(self, sources: Placements, targets: Placements, item_bytes: int) -> NDArray[np.float64]:
        """[sources, targets]: cost of one hop.

        On at most MOST_DEVICES, and with submeshes, a source becomes more partial results for nothing where one
        holder keeps each element; inf where a target wants other partial results that the source has not.
        """
        from girih.layout import kernels

        sizes = np.asarray(self.mesh.sizes, np.int64)
        ends = sources.regions, sources.partial, targets.regions, targets.partial, sizes
        if self.objective == "bytes":
            received: NDArray[np.float64] = kernels.volumes(*ends)
            cost = received * item_bytes
        else:
            cost = self._seconds(sources, targets, item_bytes)
        few = self.mesh.devices <= MOST_DEVICES or self.submeshes
        if self.keeps and targets.partial.any() and few:
            cost[kernels.becoming(*ends)] = 0.0
        return cost

    def _seconds(self, sources: Placements, targets: Placements, item_bytes: int) -> NDArray[np.float64]:
        from girih.layout import kernels

        sizes = np.asarray(self.mesh.sizes, np.int64)
        seconds: NDArray[np.float64] = kernels.costs(
            held_by_levels(sources.regions, self.mesh),
            sources.partial,
            targets.regions,
            targets.partial,
            sizes,
            np.asarray(self.links.seconds_per_byte) * item_bytes,
            np.asarray(self.links.latency),
        )
        return seconds

    def table(
        self, sources: Placements, targets: Placements, shape: tuple[int, ...], item_bytes: int
    ) -> NDArray[np.float64]:
        """[sources, targets]: cost of the cheapest route: of one or two hops; over links of different speed of up to
        four, which combine inside of a group before they go between groups, and spread inside what has come there."""
        cost = self.shorter(sources, targets, shape, item_bytes)
        if (inside := self.combined_inside(sources)) is not None and cost.any():
            from girih.layout import kernels

            first = self.direct(sources, inside, item_bytes)
            kernels.min_plus(first, self.shorter(inside, targets, shape, item_bytes), cost)
        return cost

    def shorter(
        self, sources: Placements, targets: Placements, shape: tuple[int, ...], item_bytes: int
    ) -> NDArray[np.float64]:
        """[sources, targets]: the same of routes that combine all terms in one hop."""
        cost = self.direct(sources, targets, item_bytes)
        # For bytes a second hop can only help where partial sums are wanted in several copies, or made.
        sums = sources.partial.any() or targets.partial.any()
        if (self.objective == "bytes" and not sums) or not cost.any():
            return cost
        from girih.layout import kernels

        first = (_layout_hop if sources.named else Transfers.direct)(self, sources, self.between(shape), item_bytes)
        kernels.min_plus(first, self.spreading(targets, shape, item_bytes), cost)
        return cost

    def spreading(self, targets: Placements, shape: tuple[int, ...], item_bytes: int) -> NDArray[np.float64]:
        """[layouts of `between`, targets]: cost of one hop, or of two, of which the second stays inside of groups."""
        between, inside = self.between(shape), _spread_inside(shape, self.mesh, self.cuts)
        last = _layout_hop if targets.named else Transfers.direct
        cost = last(self, between, targets, item_bytes)
        if len(inside):
            from girih.layout import kernels

            cost = cost.copy()  # it may be remembered
            kernels.min_plus(
                _layout_hop(self, between, inside, item_bytes), last(self, inside, targets, item_bytes), cost
            )
        return cost

    @cached_property
    def cuts(self) -> tuple[int, ...]:
        """The axes before which the links become faster: devices that agree on all axes before one are a group."""
        rates = () if self.objective == "bytes" else self.links.seconds_per_byte
        return tuple(axis for axis in range(1, len(rates)) if rates[axis - 1] > rates[axis])

    def combined_inside(self, sources: Placements) -> Placements | None:
        """Where terms that lie inside of groups and between them are combined inside alone: each device of a group has
        a part of what the group holds, along one dimension, or all of it. None: no source has such terms."""
        found: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        for cut in self.cuts:
            rows = sources.partial[:, :cut].any(axis=1) & sources.partial[:, cut:].any(axis=1)
            if not rows.any():
                continue
            terms = sources.partial[rows].copy()
            terms[:, cut:] = 0
            group = held_by_levels(sources.regions[rows], self.mesh)[:, cut]
            found.append((group, terms))
            count = int(np.prod(self.mesh.sizes[cut:]))
            place = np.arange(self.mesh.devices) % count
            for dimension in range(group.shape[2]):
                start, length = group[..., dimension, 0], group[..., dimension, 1] - group[..., dimension, 0]
                able = ((length >= count) | (length == 0)).all(axis=1)
                parts = group[able].copy()
                parts[..., dimension, 0] = (start + length * place // count)[able]
                parts[..., dimension, 1] = (start + length * (place + 1) // count)[able]
                found.append((parts, terms[able]))
        if not found:
            return None
        from girih.layout import kernels

        regions, partial = (np.concatenate(each) for each in zip(*found, strict=True))
        _, firsts = kernels.distinct_rows(np.concatenate((regions.reshape(len(regions), -1), partial), axis=1))
        return Placements(np.ascontiguousarray(regions[firsts]), partial[firsts])

    def between(self, shape: tuple[int, ...]) -> Placements:
        """The layouts over which a route may go."""
        return _between(shape, self.mesh, self.submeshes)


@lru_cache(maxsize=1024)
def _layout_hop(transfers: Transfers, sources: Placements, targets: Placements, item_bytes: int) -> NDArray[np.float64]:
    """`direct` between layouts, which many operators share: remembered."""
    return transfers.direct(sources, targets, item_bytes)


@lru_cache(maxsize=512)
def _between(shape: tuple[int, ...], mesh: Mesh, submeshes: tuple[Submesh, ...]) -> Placements:
    layouts = list(full_layouts(shape, mesh))
    for submesh in submeshes:
        layouts += [on_submesh(layout, submesh) for layout in full_layouts(shape, own_mesh(submesh, mesh))]
    return Placements.of(layouts, shape, mesh)


@lru_cache(maxsize=512)
def _spread_inside(shape: tuple[int, ...], mesh: Mesh, cuts: tuple[int, ...]) -> Placements:
    """Layouts in which each group of devices has the whole, cut along one dimension."""
    able = set(full_layouts(shape, mesh)) if cuts else set()
    uniform = [(REPLICATE,) * cut + (code,) * (mesh.axes - cut) for cut in cuts for code in range(len(shape))]
    return Placements.of([layout for layout in uniform if layout in able], shape, mesh)


@lru_cache(maxsize=4096)
def full_layouts(shape: tuple[int, ...], mesh: Mesh) -> tuple[Layout, ...]:
    """All layouts without partial sums in which no part is empty."""
    layouts: list[Layout] = [()]
    for size in mesh.sizes:
        longer: list[Layout] = []
        for layout in layouts:
            for code in range(-1, len(shape)):
                parts = size
                for axis, other in enumerate(layout):
                    parts *= mesh.sizes[axis] if other == code else 1
                if code < 0 or shape[code] >= parts:
                    longer.append((*layout, code))
        layouts = longer
    return tuple(layouts)


def route(
    transfers: Transfers, source: Placement, target: Placement, shape: tuple[int, ...], item_bytes: int
) -> tuple[Placement, ...]:
    """The placements after each hop of the cheapest route; () if nothing has to move or be reduced.

    Ties go to fewer hops, then to the first intermediate layout: lowering and search agree.
    """
    if source.partial == target.partial and _covers(source.regions, target.regions):
        return ()
    if transfers.objective == "bytes" and not any(source.partial) and not any(target.partial):
        return (target,)
    start, goal = Placements.single(source), Placements.single(target)
    cost, hops = _shorter(transfers, start, target, shape, item_bytes)
    if (inside := transfers.combined_inside(start)) is not None and cost > 0:
        ways = transfers.direct(start, inside, item_bytes)[0] + transfers.shorter(inside, goal, shape, item_bytes)[:, 0]
        best = int(np.argmin(ways))
        if ways[best] < cost:
            rest = _shorter(transfers, Placements.single(inside[best]), target, shape, item_bytes)[1]
            return (inside[best], *rest)
    return hops


def _shorter(
    transfers: Transfers, start: Placements, target: Placement, shape: tuple[int, ...], item_bytes: int
) -> tuple[float, tuple[Placement, ...]]:
    """The cost of the cheapest route that combines all terms in one hop, and its hops."""
    goal, between = Placements.single(target), transfers.between(shape)
    direct = float(transfers.direct(start, goal, item_bytes)[0, 0])
    first = transfers.direct(start, between, item_bytes)[0]
    second = transfers.spreading(goal, shape, item_bytes)[:, 0]
    best = int(np.argmin(first + second))
    if not first[best] + second[best] < direct:
        return direct, (target,)
    middle = Placements.single(between[best])
    cost = float(first[best] + second[best])
    if second[best] < transfers.direct(middle, goal, item_bytes)[0, 0]:
        inside = _spread_inside(shape, transfers.mesh, transfers.cuts)
        ways = transfers.direct(middle, inside, item_bytes)[0] + transfers.direct(inside, goal, item_bytes)[:, 0]
        return cost, (between[best], inside[int(np.argmin(ways))], target)
    return cost, (between[best], target)


def _covers(held: Regions, needed: Regions) -> bool:
    empty = (needed[..., 1] <= needed[..., 0]).any(axis=-1)
    inside = ((held[..., 0] <= needed[..., 0]) & (needed[..., 1] <= held[..., 1])).all(axis=-1)
    return bool((empty | inside).all())


def becomes_partial(source: Placement, target: Placement) -> bool:
    """Does a hop make partial results over an axis where the source has none? Then nothing is sent."""
    return any(wanted and not held for held, wanted in zip(source.partial, target.partial, strict=True))


def kept_terms(mesh: Mesh, source: Placement, target: Placement) -> Placement:
    """Of a target with more partial results than the source what each device begins with: its own part; of sums only
    where it is the first of the group along the new axes to hold it, else nothing. The rest of its part of the target
    is what changes no result: of sums zero.
    """
    low = np.maximum(source.regions[..., 0], target.regions[..., 0])
    high = np.minimum(source.regions[..., 1], target.regions[..., 1])
    regions = np.stack([low, high], axis=-1)
    wanted = np.asarray((target.regions[..., 0] < target.regions[..., 1]).all(axis=-1))
    keeps = np.asarray((low < high).all(axis=-1))
    if reducer_of(target.partial) in IDEMPOTENT:
        return Placement(np.where(keeps[:, None, None], regions, 0), target.partial)
    parts, there = source.regions.reshape(*mesh.sizes, -1), wanted.reshape(mesh.sizes)
    for axis in range(mesh.axes):
        if not (target.partial[axis] and not source.partial[axis]):
            continue
        along, able = np.moveaxis(parts, axis, 0), np.moveaxis(there, axis, 0)
        size = mesh.sizes[axis]
        earlier = np.tri(size, k=-1, dtype=np.bool_).reshape(size, size, *[1] * (mesh.axes - 1))
        again = ((along[:, None] == along[None]).all(axis=-1) & able[None] & earlier).any(axis=1)
        keeps &= ~np.moveaxis(again, 0, axis).reshape(-1)
    return Placement(np.where(keeps[:, None, None], regions, 0), target.partial)


def level_volumes(mesh: Mesh, source: Placement, target: Placement) -> NDArray[np.int64]:
    """Elements that each device receives over each level in one hop: [devices, axes]. Exact."""
    if becomes_partial(source, target):
        return np.zeros((mesh.devices, mesh.axes), np.int64)
    held = held_by_levels(source.regions[None], mesh)[0]
    copies = np.ones(mesh.axes + 1, np.int64)
    for axis in range(mesh.axes - 1, -1, -1):
        reduced = source.partial[axis] and not target.partial[axis]
        copies[axis] = copies[axis + 1] * (source.partial[axis] % COUNTED if reduced else 1)
    low = np.maximum(held[..., 0], target.regions[None, ..., 0])
    high = np.minimum(held[..., 1], target.regions[None, ..., 1])
    volumes = np.maximum(0, high - low).prod(axis=-1) * copies[:, None]
    received: NDArray[np.int64] = np.maximum(volumes[:-1] - volumes[1:], 0).T
    return received
