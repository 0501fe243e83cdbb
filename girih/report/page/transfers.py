"""The program's transfers: bytes over each mesh axis, the collective that each is, and which are the largest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from girih.layout import level_volumes
from girih.program import Program

MOST_DEVICES = 64  # up to which the messages of every exchange are listed to name its collective


@dataclass(frozen=True)
class Traffic:
    """received: bytes of each device over each mesh axis [devices, axes]. amounts, kinds: of each transfer. Exact."""

    received: NDArray[np.int64]
    amounts: tuple[int, ...]
    kinds: tuple[str, ...]


def traffic_of(program: Program) -> Traffic:
    """Every transfer's volume, from `girih.layout.level_volumes`. Cost: transfers × devices × axes."""
    mesh = program.mesh
    total = np.zeros((mesh.devices, mesh.axes), np.int64)
    amounts, kinds = [], []
    for step in program.transfers:
        volumes = level_volumes(mesh, step.before, step.after) * program.graph.values[step.value].item_bytes
        total += volumes
        amounts.append(int(volumes.sum()))
        kinds.append(program.exchange_of(step).kind if mesh.devices <= MOST_DEVICES else "transfer")
    return Traffic(total, tuple(amounts), tuple(kinds))


def axis_names(levels: tuple[tuple[str, tuple[int, ...]], ...]) -> list[str]:
    """For each mesh axis `network ×4`; `PCIe 1 ×2` for the second axis of a level that has several.

    levels: the name and the axes' sizes of each level of the machine, the outermost first.
    """
    return [
        f"{name} ×{size}" if len(sizes) == 1 else f"{name} {number} ×{size}"
        for name, sizes in levels
        for number, size in enumerate(sizes)
    ]


def links_data(traffic: Traffic, devices: tuple[int, ...], axes: list[str]) -> dict[str, Any]:
    """Bytes received by each drawn device over each axis; and of all devices by collective."""
    by_kind: dict[str, list[int]] = {}
    for kind, amount in zip(traffic.kinds, traffic.amounts, strict=True):
        count = by_kind.setdefault(kind, [0, 0])
        count[0] += 1
        count[1] += amount
    ordered = sorted(by_kind.items(), key=lambda item: -item[1][1])
    return {
        "axes": axes,
        "devices": list(devices),
        "received": traffic.received[list(devices)].tolist(),
        "total": traffic.received.sum(axis=0).tolist(),
        "kinds": [[kind, count, amount] for kind, (count, amount) in ordered],
    }
