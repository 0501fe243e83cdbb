"""The ports of a machine: what messages queue for.

Every mesh axis belongs to one level of the machine's hierarchy. Each device has one port to send and one to receive on
each level; of a `shared` level each part has them instead (one network card in each host), and the devices inside
share them. A message travels over the outermost axis on which the coordinates of its two devices differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from girih.machine import Level, Machine
from girih.machine.machine import Tier
from girih.simulate.ticks import Ticks, ticks


@dataclass(frozen=True, eq=False)
class Ports:
    """egress, ingress: the number of the port that each device uses for each mesh axis: [axes, devices].

    names: of each port. outward: 1 for the ports out. levels: the level of each mesh axis.
    host: the large memory behind each device; its copiers are ports too, of each device one for what goes out and one
    for what comes in, from `copiers` on: [out or in, devices].
    """

    egress: NDArray[np.int32]
    ingress: NDArray[np.int32]
    names: tuple[str, ...]
    outward: NDArray[np.uint8]
    levels: tuple[Level, ...]
    copiers: int = 0
    host: Tier | None = None

    @property
    def count(self) -> int:
        return len(self.names)

    def duration(self, axis: int, amounts: NDArray[np.int64], meets: NDArray[np.bool_] | None = None) -> Ticks:
        """Ticks for which messages of so many bytes occupy their ports; at least one: nothing arrives when it is sent.

        meets: of each message, does its receiver get others in the same exchange? Default: none does.
        """
        occupied = self._occupied(self.levels[axis], amounts, False)
        if meets is not None and self.levels[axis].meeting_points and meets.any():
            occupied[meets] = self._occupied(self.levels[axis], amounts[meets], True)
        return occupied

    def _occupied(self, level: Level, amounts: NDArray[np.int64], meeting: bool) -> Ticks:
        different, number = np.unique(amounts, return_inverse=True)
        seconds = np.asarray([level.occupied_seconds(int(size), meeting) for size in different], np.float64)
        occupied: Ticks = np.maximum(ticks(seconds), 1)[number]
        return occupied

    def copies(self, amounts: NDArray[np.int64], out: bool) -> Ticks:
        """Ticks of copies of so many bytes between a device and the large memory; at least one."""
        if self.host is None:
            raise ValueError("the program moves buffers to a large memory, and the machine has none: give it a `host`")
        seconds = [self.host.copy_seconds(int(size), out) for size in amounts]
        copied: Ticks = np.maximum(ticks(np.asarray(seconds, np.float64)), 1)
        return copied

    def own(self, amounts: NDArray[np.int64], out: bool) -> Ticks:
        """Ticks of their own that devices lose to such copies, which run beside computation."""
        if self.host is None:
            return np.zeros(len(amounts), np.int64)
        return ticks(np.asarray([self.host.own_seconds(int(size), out) for size in amounts], np.float64))

    @cached_property
    def delay(self) -> Ticks:
        """Ticks of each mesh axis that a message is under way after it has left its ports: [axes]."""
        return ticks(np.asarray([level.delay_seconds for level in self.levels], np.float64))


@lru_cache(maxsize=64)
def ports_of(machine: Machine) -> Ports:
    """All ports of a machine."""
    mesh = machine.mesh
    egress = np.zeros((mesh.axes, mesh.devices), np.int32)
    ingress = np.zeros((mesh.axes, mesh.devices), np.int32)
    names: list[str] = []
    outward: list[int] = []
    levels: list[Level] = []
    axis = 0
    for level in machine.levels:
        behind = axis + len(level.axes)
        inside = prod(mesh.sizes[behind:])
        part = np.arange(mesh.devices) // (inside if level.shared else 1)
        count = int(part[-1]) + 1 if level.axes else 0
        egress[axis:behind] = len(names) + part
        ingress[axis:behind] = len(names) + count + part
        owner = "part" if level.shared and inside > 1 else "device"
        names += [f"{level.name}, {owner} {number}, {way}" for way in ("out", "in") for number in range(count)]
        outward += [1] * count + [0] * count
        levels += [level] * len(level.axes)
        axis = behind
    copiers = len(names)
    if machine.host is not None:
        names += [
            f"{machine.host.name}, device {number}, {way}" for way in ("out", "in") for number in range(mesh.devices)
        ]
        outward += [0] * (2 * mesh.devices)
    return Ports(egress, ingress, tuple(names), np.asarray(outward, np.uint8), tuple(levels), copiers, machine.host)
