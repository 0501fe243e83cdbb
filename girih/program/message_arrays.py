"""The messages of all devices in one hop, as arrays: `girih.program.exchange` finds the same ones device by device.

For prices, which need the sizes and the shapes of all messages of a small mesh, but no object for each.
Cost: a few operations on arrays over all pairs of devices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from girih.layout import Mesh, Placement, becomes_partial, kept_terms
from girih.program.exchange import axes_of, contributions, distances, meeting

Ints = NDArray[np.int64]


class MessageArrays(NamedTuple):
    """One entry for each message, in the order of the exchange: by receiver, contribution, and region.

    source, target, term: [messages], as of `Message`. box: [messages, dimensions, 2].
    """

    source: Ints
    target: Ints
    term: Ints
    box: Ints

    @property
    def extents(self) -> Ints:
        """[messages, dimensions]."""
        lengths: Ints = self.box[..., 1] - self.box[..., 0]
        return lengths


def message_arrays(mesh: Mesh, source: Placement, target: Placement) -> MessageArrays:
    """The messages that turn one placement into another in one hop."""
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
