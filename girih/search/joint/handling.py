"""What devices compute for transfers, whatever the route: they begin messages, notice their ends, copy and combine.

The tables of a division's seconds know what links take (`girih.layout.transfer`), the simulated step also what the
devices do themselves (`girih.cost.pricing.TransferWork`); of small messages that is most, and of activations that go
from one dimension to another it is the packing. Here it is a table, too. Each hop of a route has the messages that the
program has, so that of every route the work is known but for what depends on the buffers, and the table has the least
of all routes. Not counted: packing of what does not lie in one run though its region would, and the copy of a result of
which every device keeps a part of its own.

A few devices stand for all on larger machines: a step takes at least what any of them works, so at least their mean.
Cost: placements × placements × followed devices × devices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from girih.cost.pricing import MOST_DEVICES
from girih.layout import Placements, Transfers
from girih.layout.compiled import compiled, inside
from girih.layout.mesh import COUNTED
from girih.machine import Machine
from girih.partition.space.problem import Objective
from girih.program.exchange import distances
from girih.simulate.bounds import may_be_measured

Floats = NDArray[np.float64]

FOLLOWED = 8, 2
"""Devices that are followed where there are no more, and how many of more."""


def followed(devices: int) -> NDArray[np.int64]:
    """Those of so many that stand for all."""
    count = devices if devices <= FOLLOWED[0] else FOLLOWED[1]
    return (2 * np.arange(count) + 1) * devices // (2 * count)


@dataclass(frozen=True)
class Handling(Transfers):
    """Seconds for each of all devices, in the mean of them. each: of a message, however small, when it is begun, when
    its end is noticed by who sends, and by who gets it; per_byte: of a byte of memory that is read or written. packs:
    is what does not lie in one run packed before it is sent, and placed behind it? behind: is a hop behind another,
    which copies a part of what the first has brought? By itself nothing is copied that is there already."""

    each: float = 0.0
    per_byte: float = 0.0
    packs: bool = True
    behind: bool = False

    def spreading(self, targets: Placements, shape: tuple[int, ...], item_bytes: int) -> Floats:
        return Transfers.spreading(replace(self, behind=True), targets, shape, item_bytes)

    def _seconds(self, sources: Placements, targets: Placements, item_bytes: int) -> Floats:
        if self.mesh.devices > MOST_DEVICES:
            return self._by_volumes(sources, targets, item_bytes)
        places = self.mesh.coordinates
        seconds: Floats = handled(
            sources.regions,
            sources.partial,
            targets.regions,
            targets.partial,
            places,
            distances(self.mesh, places[:, None], places[None]),
            followed(self.mesh.devices),
            self.each,
            self.per_byte * item_bytes,
            self.packs,
            self.behind,
        )
        return seconds

    def _by_volumes(self, sources: Placements, targets: Placements, item_bytes: int) -> Floats:
        """What is taken where messages are not written down one by one: everything is packed and placed."""
        held, needed = sources.regions[:, None], targets.regions[None]
        both = np.minimum(held[..., 1], needed[..., 1]) - np.maximum(held[..., 0], needed[..., 0])
        home = both.clip(0).prod(axis=-1).astype(np.float64)  # [sources, targets, devices]
        source, target = sources.partial[:, None], targets.partial[None]
        terms = np.where((source > 0) & (target == 0), source % COUNTED, 1).prod(axis=-1)[..., None]
        extents = targets.regions[..., 1] - targets.regions[..., 0]
        wanted = extents.clip(0).prod(axis=-1).astype(np.float64)[None]
        received = terms * wanted - home
        combined = np.where(terms > 1, received + home - wanted, 0.0)
        bytes_touched = 2 * (2 * received + home - combined) + 3 * combined
        seconds = 2 * self.each * (received > 0) + self.per_byte * item_bytes * bytes_touched * (received > 0)
        impossible = ((target > 0) & (source != target)).any(axis=-1)
        mean: Floats = np.where(impossible, np.inf, seconds.mean(axis=-1))
        return mean


@dataclass(frozen=True)
class Handled(Objective):
    """`seconds` in which transfers take what devices compute for them, by the data sheet of the machine's fastest."""

    @property
    def transfers(self) -> Handling:
        plain, device = super().transfers, self.machine.fastest
        return Handling(
            plain.mesh,
            plain.links,
            plain.objective,
            plain.keeps,
            plain.submeshes,
            device.launch_seconds,
            1 / device.memory_bytes_per_second,
            not may_be_measured(self.machine),  # workers that were measured may share memory
        )

    @staticmethod
    def on(machine: Machine) -> Handled:
        return Handled("seconds", machine)


# ------------------------------------------------------------------------------------------- compiled loops


@inside()
def _in_one_run(low, high, region):  # type: ignore[no-untyped-def]
    """Do the elements of a box follow each other in a contiguous buffer of this region?"""
    run, stride = 1, 1
    for d in range(region.shape[0] - 1, -1, -1):
        extent = high[d] - low[d]
        if extent != 1 and run != stride:
            return False
        run *= extent
        stride *= region[d, 1] - region[d, 0]
    return True


@inside()
def _meeting(one, other, low, high):  # type: ignore[no-untyped-def]
    """Elements of both regions; their box is written to `low` and `high`."""
    volume = 1
    for d in range(one.shape[0]):
        low[d] = max(one[d, 0], other[d, 0])
        high[d] = min(one[d, 1], other[d, 1])
        if high[d] <= low[d]:
            return 0
        volume *= high[d] - low[d]
    return volume


@inside()
def _senders(held, places, distance, roles, sends):  # type: ignore[no-untyped-def]
    """sends[receiver, holder]: would the holder send to the receiver what both have? It is the nearest of those with
    the same region and term. roles: of each axis, 1 if terms along it are combined, 2 if they stay apart."""
    devices, dimensions = held.shape[0], held.shape[1]
    alike = np.zeros((devices, devices), np.bool_)
    for one in range(devices):
        for other in range(devices):
            same = True
            for axis in range(len(roles)):
                same = same and (roles[axis] == 0 or places[one, axis] == places[other, axis])
            for d in range(dimensions):
                same = same and held[one, d, 0] == held[other, d, 0] and held[one, d, 1] == held[other, d, 1]
            alike[one, other] = same
    for receiver in range(devices):
        for holder in range(devices):
            able = True
            for axis in range(len(roles)):
                able = able and (roles[axis] != 2 or places[receiver, axis] == places[holder, axis])
            for other in range(devices):
                if able and alike[holder, other] and distance[receiver, other] < distance[receiver, holder]:
                    able = False
            sends[receiver, holder] = able


@compiled(lambda held, _, needed, __, places, ___, followed, *____: held.size * len(needed) * len(followed), nogil=True)
def handled(  # type: ignore[no-untyped-def]
    held, source_partial, needed, target_partial, places, distance, followed, each, per_element, packs, behind
):
    """[sources, targets]: seconds that the followed devices work for one hop, in their mean; 0 where nothing has to be
    done; inf where partial results would have to be made.

    A device works for each message that it sends, packed once for all who get the same, and for each that it gets, its
    own part included, as `girih.cost.pricing.TransferWork.by_messages` has it.
    """
    sources, devices, dimensions = held.shape[0], held.shape[1], held.shape[2]
    targets, axes = needed.shape[0], places.shape[1]
    seconds = np.empty((sources, targets))
    roles, before, first = np.zeros(axes, np.int64), np.zeros(axes, np.int64), np.zeros(axes, np.int64)
    sends = np.zeros((devices, devices), np.bool_)
    low, high = np.empty(dimensions, np.int64), np.empty(dimensions, np.int64)
    packed = np.empty((devices, dimensions, 2), np.int64)
    wanted = np.empty((targets, devices), np.int64)
    for t in range(targets):
        for c in range(devices):
            wanted[t, c] = _meeting(needed[t, c], needed[t, c], low, high)
    for s in range(sources):
        before[:] = -1
        for axis in range(axes):  # the first of those that have a term
            first[axis] = devices
            for c in range(devices):
                if _meeting(held[s, c], held[s, c], low, high) > 0:
                    first[axis] = min(first[axis], places[c, axis])
        for t in range(targets):
            possible, reduces, terms = True, False, 1
            for axis in range(axes):
                roles[axis] = 0
                if target_partial[t, axis] and source_partial[s, axis] != target_partial[t, axis]:
                    possible = False
                elif target_partial[t, axis]:
                    roles[axis] = 2
                elif source_partial[s, axis]:
                    roles[axis] = 1
                    reduces = True
                    terms *= source_partial[s, axis] % COUNTED
            if not possible:
                seconds[s, t] = np.inf
                continue
            covers = not reduces and not behind
            for c in range(devices):
                if not covers:
                    break  # else all is there
                covers = wanted[t, c] == _meeting(held[s, c], needed[t, c], low, high)
            if covers:
                seconds[s, t] = 0.0
                continue
            different = False
            for axis in range(axes):
                different = different or roles[axis] != before[axis]
                before[axis] = roles[axis]
            if different:
                _senders(held[s], places, distance, roles, sends)
            messages, touched = 0, 0  # elements that are read or written
            for f in range(len(followed)):
                c = followed[f]
                for h in range(devices):
                    if not sends[c, h]:
                        continue
                    volume = _meeting(held[s, h], needed[t, c], low, high)
                    if volume == 0:
                        continue
                    messages += 1
                    if terms > 1:
                        later = False
                        for axis in range(axes):
                            later = later or (roles[axis] == 1 and places[h, axis] != first[axis])
                        touched += 3 * volume if later else 2 * volume
                    elif h == c or (packs and not _in_one_run(low, high, needed[t, c])):
                        touched += 2 * volume
                count = 0
                for r in range(devices):
                    if r == c or not sends[r, c]:
                        continue
                    volume = _meeting(held[s, c], needed[t, r], low, high)
                    if volume == 0:
                        continue
                    messages += 2  # it is begun, and its end noticed
                    if not packs or _in_one_run(low, high, held[s, c]):
                        continue
                    again = False
                    for other in range(count):
                        same = True
                        for d in range(dimensions):
                            same = same and packed[other, d, 0] == low[d] and packed[other, d, 1] == high[d]
                        again = again or same
                    if not again:
                        for d in range(dimensions):
                            packed[count, d, 0] = low[d]
                            packed[count, d, 1] = high[d]
                        count += 1
                        touched += 2 * volume
            seconds[s, t] = (messages * each + touched * per_element) / len(followed)
    return seconds
