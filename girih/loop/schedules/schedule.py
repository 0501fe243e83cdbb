"""In which order each worker takes its blocks, and for whom it waits (Orion, thesis Figs. 5.7 to 5.13).

A block is (space part, time part); a worker has one space part, or several. `one_dimension`: each worker has one block
and waits for nobody. `wavefront` (ordered loops): time parts in order; block (s, t) waits for (s-1, t), which has
waited for all that lie before it (Fig. 5.10). `rotation` (unordered loops): worker s begins at its own time part and
goes round; a time part comes to it from worker s+1 alone (Fig. 5.12). With several time parts for each worker, a part
that has just been released is on its way while the worker computes the next (Fig. 5.13).
"""

from __future__ import annotations

from dataclasses import dataclass

from girih.loop.schedules.strategy import LoopStrategy

PIPELINED = 2
"""Time parts for each worker of an unordered loop."""
ROUNDS = 4
"""Space parts for each worker of an unordered loop. Each time part comes by once for each: a loop that learns
meets every index in several moments of an execution, as it would in a random order, not all at once. The fewer, the
longer a worker can go on that others keep waiting, as where cores are shared, and the less moves between processes."""
WAVES = 4
"""Time parts for each worker of an ordered loop: with more, workers begin earlier and wait oftener."""


@dataclass(frozen=True)
class Task:
    """A block, and how many tasks another worker must have finished before it: (worker, count) or None."""

    space: int
    time: int
    after: tuple[int, int] | None = None


@dataclass(frozen=True)
class Schedule:
    """tasks: of each worker, in its order."""

    spaces: int
    times: int
    tasks: tuple[tuple[Task, ...], ...]

    @property
    def workers(self) -> int:
        return len(self.tasks)

    @property
    def hand_overs(self) -> int:
        """How often a time part goes from one worker to another."""
        return sum(task.after is not None for tasks in self.tasks for task in tasks)


def schedule(strategy: LoopStrategy, pipelined: int | None = None, rounds: int = 1) -> Schedule:
    """The order of the blocks. pipelined, rounds: time and space parts for each worker."""
    workers = strategy.workers
    if strategy.kind == "serial":
        return Schedule(1, 1, ((Task(0, 0),),))
    if strategy.kind == "1d":
        return one_dimension(workers)
    if strategy.wavefront:
        return wavefront(workers, workers * (pipelined or WAVES))
    return rotation(workers, pipelined or PIPELINED, rounds)


def one_dimension(workers: int) -> Schedule:
    return Schedule(workers, 1, tuple((Task(worker, 0),) for worker in range(workers)))


def wavefront(workers: int, times: int) -> Schedule:
    return Schedule(
        workers,
        times,
        tuple(
            tuple(Task(worker, time, (worker - 1, time + 1) if worker else None) for time in range(times))
            for worker in range(workers)
        ),
    )


def rotation(workers: int, each: int, rounds: int = 1) -> Schedule:
    """each: time parts, and rounds: space parts, for each worker."""
    times = workers * each

    def task(worker: int, step: int) -> Task:
        before = None if step < each or workers == 1 else ((worker + 1) % workers, step - each + 1)
        return Task(worker * rounds + step // times, (worker * each + step) % times, before)

    return Schedule(
        workers * rounds,
        times,
        tuple(tuple(task(worker, step) for step in range(times * rounds)) for worker in range(workers)),
    )


def rounds_of(plan: Schedule) -> tuple[tuple[int, ...], ...]:
    """The first round in which each worker's tasks can run, where all workers stop after each round.

    Raises:
        ValueError: tasks wait for each other in a circle, or for tasks that there are not.
    """
    before = finished_before(plan)
    found: dict[tuple[int, int], int] = {}
    for worker, number in sorted(before, key=lambda task: sum(before[task])):
        after = plan.tasks[worker][number].after
        needed = [(worker, number - 1)] if number else []
        needed += [(after[0], after[1] - 1)] if after is not None else []
        found[worker, number] = 1 + max((found[task] for task in needed), default=-1)
    return tuple(
        tuple(found[worker, number] for number in range(len(tasks))) for worker, tasks in enumerate(plan.tasks)
    )


def finished_before(plan: Schedule) -> dict[tuple[int, int], tuple[int, ...]]:
    """For each task (worker, number): how many tasks of every worker are surely finished when it begins.

    Raises:
        ValueError: tasks wait for each other in a circle, or for tasks that there are not.
    """
    known: dict[tuple[int, int], tuple[int, ...]] = {}
    ended: dict[tuple[int, int], tuple[int, ...]] = {}
    left = {(worker, number) for worker, tasks in enumerate(plan.tasks) for number in range(len(tasks))}
    while left:
        ready = [
            (worker, number)
            for worker, number in sorted(left)
            if (number == 0 or (worker, number - 1) in ended)
            and ((after := plan.tasks[worker][number].after) is None or (after[0], after[1] - 1) in ended)
        ]
        if not ready:
            raise ValueError(f"tasks {sorted(left)[:4]} wait for each other, or for tasks that there are not")
        for worker, number in ready:
            clock = [0] * plan.workers
            sources = [(worker, number - 1)] if number else []
            after = plan.tasks[worker][number].after
            if after is not None:
                sources.append((after[0], after[1] - 1))
            for source in sources:
                clock = [max(a, b) for a, b in zip(clock, ended[source], strict=True)]
            known[worker, number] = tuple(clock)
            clock[worker] = number + 1
            ended[worker, number] = tuple(clock)
            left.discard((worker, number))
    return known
