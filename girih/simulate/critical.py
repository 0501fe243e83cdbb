"""The critical path of a schedule: what the makespan consists of, from the last end back to the start.

Each moment of the step belongs to exactly one part of the path: a device's own work, a message under way, or a message
that waits for a port which others hold. Cost: O(parts · tasks of one exchange).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from girih.simulate.patterns import Pattern
from girih.simulate.spans import Schedule
from girih.simulate.tasks import WAITS
from girih.simulate.ticks import seconds_of

OWN, TRANSFER, PORT = range(3)  # kinds of parts


@dataclass(frozen=True, eq=False)
class CriticalPath:
    """Parts that follow each other without a gap, in time. Equal positions are one part.

    step: the position in the program. device: who works, or who receives. kind: OWN, TRANSFER, or PORT where a message
    is ready and waits for a port. begin, end: seconds.
    """

    step: NDArray[np.int32]
    device: NDArray[np.int32]
    kind: NDArray[np.int8]
    begin: NDArray[np.float64]
    end: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.step)

    def seconds(self, kind: int) -> float:
        """How long all parts of a kind take together."""
        mine = self.kind == kind
        return float((self.end[mine] - self.begin[mine]).sum())

    def share(self, kind: int) -> float:
        """The share of the makespan that a kind takes; 0 where the makespan is 0."""
        whole = float(self.end[-1]) if len(self) else 0.0
        return self.seconds(kind) / whole if whole else 0.0


class _Walk:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.parts: list[tuple[int, int, int, int, int]] = []
        self.number = {int(position): number for number, position in enumerate(schedule.posting)}

    def part(self, position: int, device: int, kind: int, begin: int, end: int) -> None:
        if end > begin:
            self.parts.append((int(self.schedule.step[position]), device, kind, begin, end))

    def back(self, position: int, device: int) -> None:
        """From when a device has done with a row, back to the start."""
        plan = self.schedule
        finished = True  # else the device has posted in this row, and nothing more
        while position >= 0:
            kind = int(plan.kind[position])
            arrival = int(plan.arrival[position, device])
            posted = arrival + int(plan.before[position, device])
            if finished and kind & WAITS:
                done = int(plan.done[position, device])
                waited = done - int(plan.after[position, device])
                self.part(position, device, OWN, waited, done)
                if waited > posted:
                    position, device = self.message(position, device, waited)
                    finished = False
                    continue
            self.part(position, device, OWN, arrival, posted)
            position, finished = position - 1, True

    def message(self, position: int, device: int, end: int) -> tuple[int, int]:
        """The message that ends then and that the device waits for: where, and by whom, it was posted last."""
        plan = self.schedule
        posting = int(plan.partner[position])
        number = self.number[posting]
        pattern = plan.patterns[number]
        starts = plan.start[plan.first_task[number] : plan.first_task[number + 1]]
        left, there = starts + pattern.duration, starts + pattern.duration + pattern.delay
        ends = ((pattern.sender == device) & (left == end)) | ((pattern.receiver == device) & (there == end))
        task = int(np.flatnonzero(ends)[0])
        begin = int(starts[task])
        members = _members(pattern, task)
        posts = plan.arrival[posting, members] + plan.before[posting, members]
        ready = int(posts.max())
        receiver = int(pattern.receiver[task])
        self.part(position, receiver, TRANSFER, begin, end)
        self.part(position, receiver, PORT, ready, begin)
        return posting, int(members[posts.argmax()])


def _members(pattern: Pattern, task: int) -> NDArray[np.int64]:
    """The devices that post at a task's gate."""
    gate = int(np.searchsorted(pattern.first, task, side="right")) - 1
    device = np.repeat(np.arange(len(pattern.offsets) - 1), np.diff(pattern.offsets))
    members: NDArray[np.int64] = device[pattern.gates == gate]
    return members


def critical_path(schedule: Schedule) -> CriticalPath:
    """One critical path; where several causes end at the same time, a device's own work, then the first message."""
    walk = _Walk(schedule)
    if len(schedule.done):
        walk.back(len(schedule.done) - 1, int(schedule.done[-1].argmax()))
    table = np.asarray(walk.parts[::-1], np.int64).reshape(-1, 5)
    step, device, kind, begin, end = table.T
    return CriticalPath(
        step.astype(np.int32), device.astype(np.int32), kind.astype(np.int8), seconds_of(begin), seconds_of(end)
    )
