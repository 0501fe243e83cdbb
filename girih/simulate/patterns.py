"""Patterns: the tasks of one exchange, made once for all transfers that are alike.

An exchange becomes *gates* and *message tasks*. Devices post at a gate; when all its members have posted, its tasks are
ready and queue at their ports. Two resolutions (`girih.simulate.tasks` says when each is used):

- `messages`: each pair of devices that exchange something has one task, of all their bytes together, and a gate of its
  own: sender and receiver. Tasks are numbered in rounds around the mesh, as collectives send them: in this order they
  are served.
- `volumes`: each device has one task for each mesh axis over which it receives, with the bytes of
  `girih.layout.level_volumes`; its gate is the group of devices that agree with it on all axes before and that hold or
  get something, among which are those that it receives from. Senders' ports are not occupied. The number of tasks and
  gates is O(devices · axes).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from girih.layout import Mesh, Placement, becomes_partial, kept_terms, level_volumes
from girih.simulate.ports import Ports
from girih.simulate.ticks import Ticks

Resolution: TypeAlias = Literal["messages", "volumes"]
NOBODY = -1


@dataclass(frozen=True, eq=False)
class Pattern:
    """The tasks of one exchange, sorted by gate.

    egress, ingress: ports, or NOBODY. duration: ticks for which both are occupied. delay: ticks from then until the
    receiver has it. sender: NOBODY where it is not known. axis: the mesh axis that is crossed.
    first: of each gate the number of its first task, [gates + 1]. members: how many devices post at each gate.
    offsets, gates: of each device the gates at which it posts, [devices + 1] and its entries.
    waits: for how many tasks each device waits: those that it receives and, where known, sends.
    """

    egress: NDArray[np.int32]
    ingress: NDArray[np.int32]
    duration: Ticks
    delay: Ticks
    sender: NDArray[np.int32]
    receiver: NDArray[np.int32]
    axis: NDArray[np.int8]
    bytes: NDArray[np.int64]
    first: NDArray[np.int32]
    members: NDArray[np.int32]
    offsets: NDArray[np.int32]
    gates: NDArray[np.int32]
    waits: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.duration)


def pattern_of(
    mesh: Mesh, source: Placement, target: Placement, item_bytes: int, ports: Ports, resolution: Resolution
) -> Pattern:
    """The tasks of one hop."""
    make = _messages if resolution == "messages" else _volumes
    return make(mesh, source, target, item_bytes, ports)


def pattern_of_move(amounts: NDArray[np.int64], out: bool, waits_for: int, ports: Ports) -> Pattern:
    """The copies of one move, of each device with so many bytes of it. waits_for: how many other moves post at each
    gate, when they end, beside the device."""
    moving = np.flatnonzero(amounts > 0).astype(np.int32)
    count, devices = len(moving), len(amounts)
    number = np.arange(count, dtype=np.int32)
    return Pattern(
        np.full(count, NOBODY, np.int32),
        (ports.copiers + (0 if out else devices) + moving).astype(np.int32),
        ports.copies(amounts[moving], out),
        np.zeros(count, np.int64),
        np.full(count, NOBODY, np.int32),
        moving,
        np.full(count, len(ports.levels) + (0 if out else 1), np.int8),
        amounts[moving],
        np.arange(count + 1, dtype=np.int32),
        np.full(count, 1 + waits_for, np.int32),
        np.concatenate([[0], np.cumsum(amounts > 0)]).astype(np.int32),
        number,
        (amounts > 0).astype(np.int32),
    )


def _messages(mesh: Mesh, source: Placement, target: Placement, item_bytes: int, ports: Ports) -> Pattern:
    from girih.simulate.kernels import exchanges as exchange_kernels

    if becomes_partial(source, target):
        target = kept_terms(mesh, source, target)
    both = list(enumerate(zip(source.partial, target.partial, strict=True)))
    term = _numbers(mesh, [axis for axis, (held, wanted) in both if held and not wanted])
    peers = _numbers(mesh, [axis for axis, (held, wanted) in both if held and wanted])
    sizes = np.asarray(mesh.sizes, np.int64)
    sender, receiver, axis, elements = exchange_kernels.pairs(
        np.ascontiguousarray(source.regions), np.ascontiguousarray(target.regions), term, peers, mesh.coordinates, sizes
    )
    offsets, gates = exchange_kernels.links(sender, receiver, mesh.devices)
    amounts = elements * item_bytes
    count = len(sender)
    ingress = ports.ingress[axis, receiver]
    meets = np.bincount(ingress, minlength=ports.count)[ingress] > 1
    return Pattern(
        ports.egress[axis, sender],
        ingress,
        _durations(ports, axis, amounts, meets),
        ports.delay[axis],
        sender,
        receiver,
        axis,
        amounts,
        np.arange(count + 1, dtype=np.int32),
        np.full(count, 2, np.int32),
        offsets,
        gates,
        np.diff(offsets),
    )


def _volumes(mesh: Mesh, source: Placement, target: Placement, item_bytes: int, ports: Ports) -> Pattern:
    received = level_volumes(mesh, source, target)
    holds = np.asarray(np.all(source.regions[..., 0] < source.regions[..., 1], axis=-1))
    tasks: list[NDArray[np.int64]] = []
    posts: list[NDArray[np.int64]] = []
    counts: list[NDArray[np.int64]] = []  # of each gate: tasks and members
    gates = 0
    for axis in range(mesh.axes):
        gets = (received[:, axis] > 0).reshape(-1, prod(mesh.sizes[axis:]))
        asked = np.any(gets, axis=1)
        takes = (gets | holds.reshape(gets.shape)) & asked.reshape(-1, 1)
        number = gates + np.cumsum(asked) - 1  # of each group's gate
        group, member = np.nonzero(takes)
        tasks.append(np.stack([np.full(np.count_nonzero(gets), axis), np.flatnonzero(gets)]))
        posts.append(np.stack([number[group], group * gets.shape[1] + member]))
        counts.append(np.stack([gets.sum(axis=1), takes.sum(axis=1)])[:, asked])
        gates += int(np.count_nonzero(asked))
    over, receiver = np.concatenate([np.zeros((2, 0), np.int64), *tasks], axis=1)
    gate, device = np.concatenate([np.zeros((2, 0), np.int64), *posts], axis=1)
    tasks_of, members = np.concatenate([np.zeros((2, 0), np.int64), *counts], axis=1)
    count = len(receiver)
    order = np.lexsort((gate, device))
    amounts = received[receiver, over] * item_bytes
    return Pattern(
        np.full(count, NOBODY, np.int32),
        ports.ingress[over, receiver],
        _durations(ports, over, amounts),
        ports.delay[over],
        np.full(count, NOBODY, np.int32),
        receiver.astype(np.int32),
        over.astype(np.int8),
        amounts,
        np.concatenate([[0], np.cumsum(tasks_of)]).astype(np.int32),
        members.astype(np.int32),
        np.concatenate([[0], np.cumsum(np.bincount(device, minlength=mesh.devices))]).astype(np.int32),
        gate[order].astype(np.int32),
        np.bincount(receiver, minlength=mesh.devices).astype(np.int32),
    )


def _numbers(mesh: Mesh, axes: list[int]) -> NDArray[np.int64]:
    """A number for each device that is equal where the coordinates on these axes are."""
    number = np.zeros(mesh.devices, np.int64)
    for axis in axes:
        number = number * mesh.sizes[axis] + mesh.coordinates[:, axis]
    return number


def _durations(
    ports: Ports,
    axis: NDArray[np.int8] | NDArray[np.int64],
    amounts: NDArray[np.int64],
    meets: NDArray[np.bool_] | None = None,
) -> Ticks:
    duration = np.ones(len(amounts), np.int64)
    for number in np.unique(axis):
        mine = axis == number
        duration[mine] = ports.duration(int(number), amounts[mine], None if meets is None else meets[mine])
    return duration
