"""What devices compute for transfers, whatever the route: they begin messages, notice their ends, copy and combine.

The tables of a division's seconds know what links take (`girih.layout.transfer`), the simulated step also what the
devices do themselves (`girih.cost.pricing.TransferWork`); of small messages that is most. Here it is a table, too, from
below: a device that lacks something gets at least as many messages as their largest size demands, which is that of the
part that another has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from girih.layout import Placements, Transfers
from girih.layout.mesh import COUNTED
from girih.machine import Machine
from girih.partition.space.problem import Objective

Floats = NDArray[np.float64]

PER_MESSAGE = 3
"""How often a device does something for a message: it is begun, its end is noticed by who sends and by who gets it."""


@dataclass(frozen=True)
class Handling(Transfers):
    """Seconds for each of all devices, in the mean of them. each: of a message, however small; per_byte: of a byte of
    memory that is read or written."""

    each: float = 0.0
    per_byte: float = 0.0

    def _seconds(self, sources: Placements, targets: Placements, item_bytes: int) -> Floats:
        held, needed = sources.regions[:, None], targets.regions[None]
        both = np.minimum(held[..., 1], needed[..., 1]) - np.maximum(held[..., 0], needed[..., 0])
        home = both.clip(0).prod(axis=-1).astype(np.float64)  # [sources, targets, devices]
        source, target = sources.partial[:, None], targets.partial[None]
        terms = np.where((source > 0) & (target == 0), source % COUNTED, 1).prod(axis=-1)[..., None]
        wanted = _elements(targets)[None]
        received = terms * wanted - home
        largest = np.minimum(_elements(sources).max(axis=1)[:, None, None], wanted)
        messages = np.ceil(received / np.maximum(largest, 1.0) - 1e-9)
        seconds = self.each * (PER_MESSAGE * messages + ((home > 0) & (received > 0)))
        # Each term is copied, or combined with others: read and written.
        seconds += 2 * self.per_byte * item_bytes * (received + home) * (terms > 1)
        impossible = ((target > 0) & (source != target)).any(axis=-1)
        mean: Floats = np.where(impossible, np.inf, seconds.mean(axis=-1))
        return mean


def _elements(placements: Placements) -> Floats:
    """How many each device has: [placements, devices]."""
    extents = placements.regions[..., 1] - placements.regions[..., 0]
    elements: Floats = extents.clip(0).prod(axis=-1).astype(np.float64)
    return elements


@dataclass(frozen=True)
class Handled(Objective):
    """`seconds` in which transfers take what devices compute for them, by the data sheet of the machine's fastest."""

    @property
    def transfers(self) -> Handling:
        plain, device = super().transfers, self.machine.fastest
        per_byte = 1 / device.memory_bytes_per_second
        return Handling(
            plain.mesh, plain.links, plain.objective, plain.keeps, plain.submeshes, device.launch_seconds, per_byte
        )

    @staticmethod
    def on(machine: Machine) -> Handled:
        return Handled("seconds", machine)
