"""How far the workers of a loop are, as a table for people."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.table import Table

from girih.report.live import WorkerLine, workers_table
from girih.run.engines.crew import Status, resident_bytes
from girih.run.engines.loop_blocks import LoopBlocks
from girih.run.errors import IDLE, NOT_BEGUN


def workers_of(program: LoopBlocks, statuses: Sequence[Status], began: float) -> Table:
    """began: time.monotonic() at the loop's begin."""
    memory = resident_bytes()
    lines = []
    for status in statuses:
        ended = status.step == IDLE and status.begun
        done = 1.0 if ended else max(status.step, 0) / len(program.steps)
        at = program.at(status.step) if status.step != IDLE else "done" if ended else ""
        lines.append(WorkerLine(status.rank, 0, status.resident or memory, done, at))
    title = f"{program.name} ({program.source}): {len(lines)} workers, {time.monotonic() - began:.0f} s"
    return workers_table(title, lines, tiles=False)


class ThreadProgress:
    """The cells in which the threads of one execution tell how far they are."""

    def __init__(self, program: LoopBlocks, workers: int) -> None:
        self.program = program
        self.cells = [list(NOT_BEGUN) for _ in range(workers)]

    def table(self, began: float) -> Table:
        return workers_of(self.program, [Status(rank, *cells) for rank, cells in enumerate(self.cells)], began)
