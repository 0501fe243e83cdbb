"""The Timeline of a schedule: spans of devices and of messages, and memory over time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from girih.ops.scratch import ScratchSource, at_most
from girih.program import Program
from girih.program.life.accounts import live_bytes
from girih.simulate.patterns import Pattern
from girih.simulate.tasks import POSTS, TaskGraph
from girih.simulate.ticks import TICKS_PER_SECOND, Ticks, seconds_of
from girih.simulate.timeline import COMPUTE, Memory, Timeline

FOLLOWED = 8  # devices whose memory is followed; of more, the first and the last


@dataclass(frozen=True, eq=False)
class Schedule:
    """When everything happens, in ticks; rows are counted by position.

    done: when each device has done with each row, [rows, devices]; start: of all message tasks, row by row.
    """

    graph: TaskGraph
    done: Ticks
    start: Ticks

    def _ordered(self, name: str) -> NDArray[Any]:
        """A column of the tasks, in the order of the rows."""
        return self.graph.columns[name].array[self.graph.order]

    @cached_property
    def kind(self) -> NDArray[np.int8]:
        return self._ordered("kind")

    @cached_property
    def before(self) -> Ticks:
        return self._ordered("before")

    @cached_property
    def after(self) -> Ticks:
        return self._ordered("after")

    @cached_property
    def step(self) -> NDArray[np.int32]:
        """The program's step of each row."""
        column: NDArray[np.int32] = self.graph.step.array[self.graph.order]
        return column

    @cached_property
    def partner(self) -> NDArray[np.int64]:
        """The position of each row's partner: of one that posts the one that waits, and the other way round."""
        position = np.zeros(self.graph.row_places.end, np.int64)
        position[self.graph.order] = np.arange(len(self.graph.order))
        partner: NDArray[np.int64] = position[self._ordered("partner")]
        return partner

    @cached_property
    def arrival(self) -> Ticks:
        """When each device comes to each row."""
        return np.concatenate([np.zeros((1, self.graph.devices), np.int64), self.done[:-1]])

    @cached_property
    def posting(self) -> NDArray[np.int64]:
        """The rows that post, by position."""
        return np.flatnonzero(self.kind & POSTS)

    @cached_property
    def patterns(self) -> list[Pattern]:
        """The patterns of the rows that post."""
        numbers = self.graph.columns["pattern"].array[self.graph.order[self.posting]]
        return [self.graph.store.patterns[number] for number in numbers.tolist()]

    @cached_property
    def first_task(self) -> NDArray[np.int64]:
        """Where the tasks of each row that posts begin; then the number of all tasks."""
        return np.concatenate([[0], np.cumsum([len(pattern) for pattern in self.patterns])]).astype(np.int64)

    @property
    def makespan(self) -> int:
        return int(self.done[-1].max()) if len(self.done) else 0


def timeline_of(
    program: Program, schedule: Schedule, *, memory: bool = True, threads: int = 0, scratch: ScratchSource = at_most
) -> Timeline:
    """The spans of devices, then those of messages, without those that take no time.

    A message's span is for how long it occupies its ports; it arrives later by the latency of its level.
    """
    graph = schedule.graph
    own = [_own(schedule, part) for part in ("before", "after")]
    device, step, begin, end = (np.concatenate(columns) for columns in zip(*own, strict=True))
    patterns, ports = schedule.patterns, graph.store.ports
    waiting = schedule.step[schedule.partner[schedule.posting]]
    nothing = np.zeros(0, np.int64)
    receiver = np.concatenate([nothing, *(pattern.receiver for pattern in patterns)])
    over = np.concatenate([nothing, *(pattern.axis for pattern in patterns)])
    amount = np.concatenate([nothing, *(pattern.bytes for pattern in patterns)])
    duration = np.concatenate([nothing, *(pattern.duration for pattern in patterns)])
    return Timeline(
        graph.devices,
        ("compute", *(level.name for level in ports.levels), *(("copy out", "copy in") if program.host else ())),
        np.concatenate([device, receiver]).astype(np.int32),
        np.concatenate([np.full(len(device), COMPUTE), 1 + over]).astype(np.int32),
        np.concatenate([step, np.repeat(waiting, np.diff(schedule.first_task))]).astype(np.int32),
        seconds_of(np.concatenate([begin, schedule.start])),
        seconds_of(np.concatenate([end, schedule.start + duration])),
        np.concatenate([np.zeros(len(device), np.int64), amount]),
        _memories(program, schedule, threads, scratch) if memory else (),
    )


def _own(schedule: Schedule, part: str) -> tuple[NDArray[np.int64], NDArray[np.int32], Ticks, Ticks]:
    """Device, step, begin and end of what devices do themselves before they post, or after they have waited."""
    if part == "before":
        took, begin = schedule.before, schedule.arrival
    else:
        took = schedule.after
        begin = schedule.done - took
    row, device = np.nonzero(took)
    return device, schedule.step[row], begin[row, device], begin[row, device] + took[row, device]


def _memories(program: Program, schedule: Schedule, threads: int, scratch: ScratchSource) -> tuple[Memory, ...]:
    count = schedule.graph.devices
    devices = range(count) if count <= FOLLOWED else (0, count - 1)
    return tuple(_memory(schedule, device, live_bytes(program, device, threads, scratch)) for device in devices)


def _memory(schedule: Schedule, device: int, amounts: NDArray[np.int64]) -> Memory:
    """What a step uses is in use from when the device comes to it until the device comes to the next."""
    done = np.concatenate([[0], schedule.done[:, device]])
    ends = done[np.searchsorted(schedule.step, np.arange(len(amounts) - 2), side="right")]
    begins = np.concatenate([[0, 0], ends])  # before the first step, in each step, behind the last
    kept = np.concatenate([[True], amounts[1:] != amounts[:-1]])
    return Memory(seconds_of(begins[kept]), amounts[kept])


def busy_ports(schedule: Schedule) -> NDArray[np.float64]:
    """Seconds that each port is occupied."""
    total = np.zeros(len(schedule.graph.store.ports.names), np.float64)
    numbers = schedule.graph.columns["pattern"].array[schedule.graph.order[schedule.posting]]
    for number, uses in zip(*np.unique(numbers, return_counts=True), strict=True):
        pattern = schedule.graph.store.patterns[number]
        for port in (pattern.egress, pattern.ingress):
            known = port >= 0
            total += uses * np.bincount(port[known], pattern.duration[known], len(total))
    return total / TICKS_PER_SECOND


def busy_devices(schedule: Schedule) -> NDArray[np.float64]:
    """Seconds that each device works itself."""
    return seconds_of(schedule.before.sum(axis=0) + schedule.after.sum(axis=0))
