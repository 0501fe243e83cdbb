"""A timeline for tests: the steps of a program one after another, without any contention on links."""

from __future__ import annotations

import numpy as np

from girih.api import Plan
from girih.layout import bounds, level_volumes
from girih.ops import description_of
from girih.ops.derive.arithmetic import operations_per_point
from girih.program import ComputeStep, FreeStep, Program, TransferStep
from girih.simulate.timeline import Memory, Timeline

HOSTILE = """</script><img src=x onerror="document.title='broken'">&amp;'"`${1}\u2028%"""


class _Walk:
    def __init__(self, plan: Plan) -> None:
        self.plan, self.program = plan, plan.program
        self.mesh = plan.machine.mesh
        self.now = np.zeros(self.mesh.devices)
        self.held = np.zeros(self.mesh.devices, np.int64)
        self.rows: list[tuple[int, int, int, float, float, int]] = []
        self.curves: list[list[tuple[float, int]]] = [[] for _ in range(self.mesh.devices)]
        for item in plan.graph.inputs:
            self.hold(item.name, 1)
        self.note()

    def hold(self, buffer: str, sign: int) -> None:
        regions = self.program.places[buffer].regions
        item = self.plan.graph.values[self.program.value_of[buffer]].item_bytes
        self.held += sign * (regions[..., 1] - regions[..., 0]).prod(axis=-1) * item

    def note(self) -> None:
        for device, curve in enumerate(self.curves):
            curve.append((float(self.now[device]), int(self.held[device])))

    def compute(self, position: int, step: ComputeStep) -> None:
        seconds = seconds_of(self.plan, step)
        for device in np.flatnonzero(seconds).tolist():
            self.rows.append((device, 0, position, self.now[device], self.now[device] + seconds[device], 0))
        self.now += seconds

    def transfer(self, position: int, step: TransferStep) -> None:
        item = self.plan.graph.values[step.value].item_bytes
        volumes = level_volumes(self.mesh, step.before, step.after) * item
        links = self.plan.machine.links
        begin = float(self.now.max())
        for device, axis in zip(*np.nonzero(volumes), strict=True):
            amount = int(volumes[device, axis])
            end = begin + links.latency[axis] + amount * links.seconds_per_byte[axis]
            self.rows.append((int(device), 1 + int(axis), position, begin, end, amount))
            self.now[device] = max(self.now[device], end)


def seconds_of(plan: Plan, step: ComputeStep) -> np.ndarray:
    """[devices]: the roofline of a node's pieces."""
    graph, mesh, device = plan.graph, plan.machine.mesh, plan.machine.device
    node = graph.nodes[step.node]
    description = description_of(graph, node)
    if description is None:
        return np.full(mesh.devices, device.launch_seconds)
    if description.operator.view:
        return np.zeros(mesh.devices)
    codes = np.asarray([plan.strategy.divisions[step.node].codes], np.int64).reshape(1, mesh.axes)
    starts, stops = bounds(codes, description.sizes, mesh)
    points = (stops[0] - starts[0]).prod(axis=-1).astype(float)
    arithmetic = points * operations_per_point(description) / device.flops_per_second
    moved = sum((part.needed.regions[..., 1] - part.needed.regions[..., 0]).prod(axis=-1) for part in step.reads)
    traffic = (moved + points) * 4.0 / device.memory_bytes_per_second
    return np.where(points > 0, np.maximum(arithmetic, traffic) + device.launch_seconds, 0.0)


def timeline_of(plan: Plan) -> Timeline:
    walk = _Walk(plan)
    program: Program = plan.program
    for position, step in enumerate(program.steps):
        if isinstance(step, ComputeStep):
            for buffer in step.writes:
                walk.hold(buffer, 1)
            walk.note()
            walk.compute(position, step)
        elif isinstance(step, TransferStep):
            walk.hold(step.target, 1)
            walk.note()
            walk.transfer(position, step)
        elif isinstance(step, FreeStep):
            for buffer in step.buffers:
                walk.hold(buffer, -1)
            walk.note()
    streams = ("compute", *(level.name for level in plan.machine.levels for _ in level.axes))
    columns = [np.asarray(column) for column in zip(*walk.rows, strict=True)]
    memory = tuple(Memory(*(np.asarray(column) for column in zip(*curve, strict=True))) for curve in walk.curves)
    return Timeline(
        plan.machine.devices,
        streams,
        columns[0].astype(np.int32),
        columns[1].astype(np.int32),
        columns[2].astype(np.int32),
        columns[3],
        columns[4],
        columns[5].astype(np.int64),
        memory,
    )


def as_if_measured(timeline: Timeline) -> Timeline:
    """The same step, every span of it 3 % to 37 % longer, as if a run had measured it."""
    factor = 1.03 + 0.34 * ((timeline.step % 7) / 6)
    length = (timeline.end - timeline.begin) * factor
    begin = timeline.begin * 1.2
    memory = tuple(Memory(item.seconds * 1.2, item.bytes) for item in timeline.memory)
    return Timeline(
        timeline.devices, timeline.streams, timeline.device, timeline.stream, timeline.step, begin, begin + length,
        timeline.amount, memory, measured=True,
    )  # fmt: skip
