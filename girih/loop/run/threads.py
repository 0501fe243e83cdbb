"""A schedule on threads of this process: each takes its blocks in order, and waits for the one block that it must.

The code of a block is compiled and lets go of the interpreter, so that threads compute at once. There are no barriers:
a worker waits until another has finished so many blocks (`girih.loop.schedules.schedule`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass
from math import inf

from girih.loop.schedules.schedule import Schedule
from girih.run.engines import loop_blocks as progress
from girih.run.engines.loop_blocks import IDLE
from girih.run.engines.stopping import WorkerThread, stop


@dataclass(frozen=True)
class Span:
    """When a worker ran a block: seconds since the schedule began."""

    worker: int
    space: int
    time: int
    began: float
    ended: float


class _Counts:
    """How many blocks each worker has finished. failed: what one has raised; the others stop waiting then."""

    def __init__(self, workers: int) -> None:
        self.finished = [0] * workers
        self.changed = threading.Condition()
        self.failed: BaseException | None = None

    def wait(self, after: tuple[int, int] | None) -> bool:
        """False: the schedule has failed."""
        if after is None:
            return self.failed is None
        worker, count = after
        with self.changed:
            self.changed.wait_for(lambda: self.failed is not None or self.finished[worker] >= count)
        return self.failed is None

    def done(self, worker: int) -> None:
        with self.changed:
            self.finished[worker] += 1
            self.changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self.changed:
            self.failed = self.failed or error
            self.changed.notify_all()


def run(
    plan: Schedule, work: Callable[[int, int, int], None], cells: Sequence[MutableSequence[int]] | None = None
) -> tuple[Span, ...]:
    """Run work(worker, space part, time part) for every block; when each was run.

    cells: in which each worker tells how far it is (`girih.run.engines.loop_blocks`).

    Raises:
        What a block raised first; blocks that had begun have ended, others were not run.
    """
    counts = _Counts(plan.workers)
    spans: list[list[Span]] = [[] for _ in plan.tasks]
    started = time.perf_counter()

    def worker(number: int) -> None:
        own = cells[number] if cells is not None else [0, IDLE, 0]
        progress.begin(own)
        try:
            for block, task in enumerate(plan.tasks[number]):
                progress.wait(own, block)
                if not counts.wait(task.after):
                    return
                progress.run(own, block)
                began = time.perf_counter() - started
                work(number, task.space, task.time)
                spans[number].append(Span(number, task.space, task.time, began, time.perf_counter() - started))
                counts.done(number)
        except BaseException as error:
            counts.fail(error)
        finally:
            progress.end(own)

    threads = [WorkerThread(worker, (number,)) for number in range(1, plan.workers)]
    try:
        for thread in threads:
            thread.start()
        worker(0)
        for thread in threads:
            thread.join()
    except BaseException as error:  # Ctrl-C while it waits
        counts.fail(error)
        raise
    finally:
        _stopped(threads)
    if counts.failed is not None:
        raise counts.failed
    return tuple(span for one in spans for span in one)


def together(workers: int, work: Callable[[int], None]) -> None:
    """Run work(worker) for each worker at once, and wait for all.

    Raises:
        What one raised first.
    """
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [WorkerThread(guarded, (number,)) for number in range(1, workers)]
    try:
        for thread in threads:
            thread.start()
        guarded(0)
        for thread in threads:
            thread.join()
    finally:
        _stopped(threads)
    if failures:
        raise failures[0]


def _stopped(threads: Sequence[WorkerThread]) -> None:
    """After Ctrl-C none goes on alone in the user's arrays: each ends with the block that it has begun."""
    stop(threads, inf)
