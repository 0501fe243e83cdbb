"""The simulator's semantics, slow and obvious: dictionaries, lists, and one message at a time.

It shares no code with `girih.simulate` but the length of a tick.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import prod

import numpy as np

from girih.cost.prices import Prices
from girih.layout import Mesh
from girih.machine import Level, Machine
from girih.program import FreeStep, Program, StartStep, TransferStep
from girih.simulate.ticks import TICKS_PER_SECOND


def ticks(seconds: float) -> int:
    return int(np.rint(seconds * TICKS_PER_SECOND))


@dataclass
class Task:
    """A message task, and when it begins."""

    sender: int
    receiver: int
    bytes: int
    axis: int
    duration: int  # for which its ports are occupied
    delay: int  # from then until the receiver has it
    order: tuple[int, int, int]  # posting step, round, receiver
    ports: tuple[object, object]
    begin: int | None = None

    @property
    def end(self) -> int:
        assert self.begin is not None
        return self.begin + self.duration

    def done(self, device: int) -> int:
        """When it is done for its sender, or its receiver."""
        return self.end + (self.delay if device == self.receiver else 0)


@dataclass
class Reference:
    """done: when each device has done with each step. tasks: of each step that posts."""

    done: dict[tuple[int, int], int] = field(default_factory=dict)
    tasks: dict[int, list[Task]] = field(default_factory=dict)
    makespan: int = 0


def level_of(machine: Machine, axis: int) -> tuple[int, Level]:
    at = 0
    for number, level in enumerate(machine.levels):
        at += len(level.axes)
        if axis < at:
            return number, level
    raise AssertionError(axis)


def port(machine: Machine, mesh: Mesh, axis: int, device: int, way: str) -> object:
    number, level = level_of(machine, axis)
    inside = prod(prod(other.axes) for other in machine.levels[number + 1 :])
    return number, device // inside if level.shared else device, way


def tasks_of(program: Program, machine: Machine, move: TransferStep, position: int) -> list[Task]:
    mesh = program.mesh
    item = program.graph.values[move.value].item_bytes
    sizes: dict[tuple[int, int], int] = defaultdict(int)
    for message in program.exchange_of(move).messages:
        if message.source != message.target:
            sizes[message.source, message.target] += message.elements * item
    found = []
    for (sender, receiver), size in sizes.items():
        places = zip(mesh.coordinates[sender].tolist(), mesh.coordinates[receiver].tolist(), mesh.sizes, strict=True)
        around = [(there - here) % extent for there, here, extent in places]
        axis = next(axis for axis, steps in enumerate(around) if steps)
        steps = 0
        for part, extent in zip(around, mesh.sizes, strict=True):
            steps = steps * extent + part
        level = level_of(machine, axis)[1]
        duration, delay = max(1, ticks(size / level.bytes_per_second)), ticks(level.latency_seconds)
        ports = (port(machine, mesh, axis, sender, "out"), port(machine, mesh, axis, receiver, "in"))
        found.append(Task(sender, receiver, size, axis, duration, delay, (position, steps, receiver), ports))
    return found


def simulate(program: Program, machine: Machine, prices: Prices) -> Reference:
    steps, devices = program.steps, program.mesh.devices
    result = Reference()
    starts = {step.transfer.target: number for number, step in enumerate(steps) if isinstance(step, StartStep)}
    for number, step in enumerate(steps):
        if isinstance(step, StartStep):
            result.tasks[number] = tasks_of(program, machine, step.transfer, number)
        elif isinstance(step, TransferStep) and step.target not in starts:
            result.tasks[number] = tasks_of(program, machine, step, number)
    posted: dict[tuple[int, int], int] = {}
    at = [0] * devices  # the step that each device is in
    orders = [set(program.order_of(device)) for device in range(devices)]
    free: dict[object, int] = defaultdict(int)
    waiting = [task for tasks in result.tasks.values() for task in tasks]

    def before(number: int, device: int) -> int:
        return ticks(prices.before[number, device])

    def advance(device: int) -> None:
        while at[device] < len(steps):
            number = at[device]
            step = steps[number]
            time = result.done[number - 1, device] if number else 0
            if number not in orders[device]:
                posted[number, device] = time
            elif isinstance(step, StartStep):
                time += before(number, device)
                posted[number, device] = time
            elif isinstance(step, TransferStep):
                posting = starts.get(step.target, number)
                if posting == number:
                    time += before(number, device)
                    posted[number, device] = time
                mine = [task for task in result.tasks[posting] if device in (task.sender, task.receiver)]
                if any(task.begin is None for task in mine):
                    return
                time = max([time, *(task.done(device) for task in mine)]) + ticks(prices.after[number, device])
            elif not isinstance(step, FreeStep):
                time += before(number, device)
            result.done[number, device] = time
            at[device] += 1

    def ready(task: Task) -> int | None:
        ends = [posted.get((task.order[0], device)) for device in (task.sender, task.receiver)]
        return None if None in ends else max(end for end in ends if end is not None)

    while True:
        for device in range(devices):
            advance(device)
        able = []
        for task in waiting:
            time = ready(task)
            if time is not None:
                able.append((max(time, *(free[port] for port in task.ports)), task.order, task))
        if not able:
            break
        begin, _, task = min(able, key=lambda item: item[:2])
        task.begin = begin
        for port in task.ports:
            free[port] = task.end
        waiting.remove(task)
    assert not waiting
    assert at == [len(steps)] * devices
    result.makespan = max((result.done[len(steps) - 1, device] for device in range(devices)), default=0) if steps else 0
    return result
