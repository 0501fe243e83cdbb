"""Small programs written down step by step, on machines whose numbers are easy to add."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from girih.cost.prices import Prices
from girih.graph import Graph, Input, Value
from girih.layout import Mesh, Placement
from girih.machine import Device, Level, Machine
from girih.partition import Strategy
from girih.program import ComputeStep, Program, StartStep, Step, TransferStep

DEVICE = Device("test", 1e9, 10**9, 1e9, 1e-6)
SIZE = 8  # elements of every value, one byte each

Work = tuple[Step, Sequence[float] | float, Sequence[float] | float]  # a step, and before and after of each device


def machine(
    sizes: Sequence[int], seconds_per_byte: float = 0.125, latency: float = 0.0, shared: bool = False
) -> Machine:
    """One level for each mesh axis; a message of SIZE bytes takes a second over the first, half over the second."""
    levels = tuple(
        Level(f"level {n}", (size,), 2**n / seconds_per_byte, latency, shared=shared) for n, size in enumerate(sizes)
    )
    return Machine("hand-made", DEVICE, levels)


def placement(mesh: Mesh, parts: dict[int, tuple[int, int]]) -> Placement:
    """Devices that hold a part of the one dimension; the others hold nothing."""
    regions = np.zeros((mesh.devices, 1, 2), np.int64)
    for device, part in parts.items():
        regions[device, 0] = part
    return Placement(regions, (False,) * mesh.axes)


def send(mesh: Mesh, name: str, pairs: dict[int, int], size: int = SIZE) -> TransferStep:
    """From each key to its value: a part of its own, of `size` elements."""
    parts = {number: (number * size, (number + 1) * size) for number in range(len(pairs))}
    before = placement(mesh, {sender: parts[number] for number, sender in enumerate(pairs)})
    after = placement(mesh, {receiver: parts[number] for number, receiver in enumerate(pairs.values())})
    return TransferStep("v", 0, name, f"{name}'", before, after, "fetch", "sum")


def gather(mesh: Mesh, name: str, size: int = SIZE) -> TransferStep:
    """Every device gets all parts, of `size` elements each."""
    count = mesh.devices
    before = placement(mesh, {device: (device * size, (device + 1) * size) for device in range(count)})
    after = placement(mesh, dict.fromkeys(range(count), (0, count * size)))
    return TransferStep("v", 0, name, f"{name}'", before, after, "fetch", "sum")


def compute(seconds: Sequence[float] | float) -> Work:
    return ComputeStep(0, (), ()), seconds, 0.0


def whole(step: TransferStep, before: Sequence[float] | float = 0.0, after: Sequence[float] | float = 0.0) -> Work:
    return step, before, after


def start(step: TransferStep, before: Sequence[float] | float = 0.0) -> Work:
    return StartStep(step), before, 0.0


def program(sizes: Sequence[int], *work: Work) -> tuple[Program, Prices]:
    mesh = Mesh(tuple(sizes))
    graph = Graph({"v": Value("v", (1024,), "int8")}, (), (Input("v", "batch", ""),), ())
    rows = [
        [np.broadcast_to(np.asarray(item[part], float), (mesh.devices,)) for item in work]
        for part in (1, 2)
    ]  # fmt: skip
    prices = Prices(*(np.asarray(row, float).reshape(len(work), mesh.devices) for row in rows))
    return Program(graph, Strategy(mesh, (), {}), tuple(item[0] for item in work), {}, {}), prices
