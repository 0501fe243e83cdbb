"""A loop's schedule, priced: when each block runs and each part of an array arrives (Orion, thesis Figs. 5.9 to 5.13).

The schedule is the one that is run. A block starts when its worker is free and what it waits for has arrived; a part
that travels leaves when its block has ended, over a link that carries one part after another. Parts arrive while the
receiver computes other blocks, if it has others that are ready: that is what several time parts for a worker are for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from girih.loop.schedules.schedule import Schedule


@dataclass(frozen=True)
class LoopTimeline:
    """seconds: until the last block has ended. computing: of each worker. blocks: (began, ended) of each task."""

    seconds: float
    computing: tuple[float, ...]
    blocks: tuple[tuple[tuple[float, float], ...], ...]

    @property
    def busy(self) -> float:
        """The part of the workers' time in which they compute."""
        return sum(self.computing) / (len(self.computing) * self.seconds) if self.seconds else 1.0


def simulated(
    plan: Schedule,
    computing: np.ndarray,
    part_bytes: float = 0.0,
    bytes_per_second: float = float("inf"),
    latency: float = 0.0,
    overlapped: bool = True,
) -> LoopTimeline:
    """When blocks run. computing: seconds of each block, by space and time part.

    part_bytes: of what travels with one time part. overlapped False: a worker that sends or receives does not compute
    meanwhile, as where ranks exchange their parts between two steps.
    """
    ended: dict[tuple[int, int], float] = {}
    arrived: dict[tuple[int, int], float] = {}
    free = [0.0] * plan.workers
    link = [0.0] * plan.workers
    spent = [0.0] * plan.workers
    blocks: list[list[tuple[float, float]]] = [[] for _ in plan.tasks]
    taking = part_bytes / bytes_per_second + latency if part_bytes else 0.0
    following = {
        task.after: (worker, number)
        for worker, tasks in enumerate(plan.tasks)
        for number, task in enumerate(tasks)
        if task.after is not None
    }
    next_of = [0] * plan.workers
    left = sum(map(len, plan.tasks))
    while left:
        before = left
        for worker, tasks in enumerate(plan.tasks):
            while next_of[worker] < len(tasks):
                number = next_of[worker]
                task = tasks[number]
                ready = 0.0
                if task.after is not None:
                    if (worker, number) not in arrived:
                        break
                    ready = arrived[worker, number]
                    if not overlapped:
                        ready = max(ready, free[worker] + taking)
                began = max(free[worker], ready)
                seconds = float(computing[task.space, task.time])
                end = began + seconds
                spent[worker] += seconds
                blocks[worker].append((began, end))
                ended[worker, number] = free[worker] = end
                goal = following.get((worker, number + 1))
                if goal is not None:
                    link[worker] = max(link[worker], end) + taking
                    arrived[goal] = link[worker]
                    if not overlapped:
                        free[worker] = link[worker]
                next_of[worker] += 1
                left -= 1
        if left == before:
            raise ValueError("the schedule's tasks wait for each other")
    seconds = max((end for one in blocks for _, end in one), default=0.0)
    return LoopTimeline(seconds, tuple(spent), tuple(map(tuple, blocks)))
