"""What is being done, told on the error stream while it takes long."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.errors import LiveError
from rich.table import Table

from girih.machine.units import format_bytes, format_seconds
from girih.report.live import LiveView, WorkerLine, workers_table

if TYPE_CHECKING:
    from girih.plans.plan import Plan

SECONDS_BETWEEN_LINES = 10.0

Look = Callable[[], Sequence[tuple[int, int, float, str, bool]]]
"""Tells of each worker its rank, the bytes of its memory, the share of its step that is done, where it is, and whether
it exchanges something there or copies, so that it may wait."""


class Progress:
    """An observer (`girih.plan(observe=)`): in place on a terminal, else a plain line now and then. silent: nothing."""

    def __init__(self, *, silent: bool = False) -> None:
        self.console = Console(stderr=True)
        self.status = self.console.status("starting") if self.console.is_terminal and not silent else None
        self.said = time.monotonic()
        self.silent = silent

    def __enter__(self) -> Self:
        if self.status is not None:
            try:
                self.status.start()
            except LiveError:  # whoever calls shows something himself
                self.status, self.silent = None, True
        return self

    def __exit__(self, *_: object) -> None:
        if self.status is not None:
            self.status.stop()

    def __call__(self, what: str, share: float) -> None:
        text = what + (f" {share:.0%}" if share else "")
        if self.status is not None:
            self.status.update(text)
        elif not self.silent and time.monotonic() - self.said >= SECONDS_BETWEEN_LINES:
            self.console.print(f"girih: {text}", highlight=False, markup=False, soft_wrap=True)
            self.said = time.monotonic()


class TrainingView:
    """The steps of a run as they are done, for `girih.fit(progress=True)`: on a terminal the last one, and how far each
    worker is in the next, as loops and arrays show it; else a plain line now and then. console: to tell it on."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.live = LiveView(True, self.console)
        self.line = "the first step"
        self.look: Look = list
        self.shown = ExitStack()
        self.log: Progress | None = None

    def watch(self, look: Look) -> None:
        """Steps begin. look: how far each worker is now, as the view's thread asks."""
        self.look = look
        if self.log is None:
            self.log = Progress()
            if self.console.is_terminal:
                self.shown.enter_context(self.live(self.table))

    def __call__(self, plan: Plan, step: int, loss: float, seconds: float, resident: int) -> None:
        """After a step. seconds: that it took. resident: bytes of this process in memory."""
        predicted = "" if plan.costs.simulated is None else f" ({format_seconds(plan.costs.simulated)} predicted)"
        limit = "" if plan.memory is None else f" of {format_bytes(plan.memory)}"
        self.line = (
            f"step {step}  loss {loss:.5g}  {format_seconds(seconds)} a step{predicted}  plan's peak "
            f"{format_bytes(plan.peak)}{limit}, this process {format_bytes(resident)}"
        )
        if self.log is not None and not self.console.is_terminal:
            self.log(self.line, 0.0)

    def table(self, began: float) -> Table:
        """What is to be seen now."""
        lines = [WorkerLine(rank, 0, memory, done, at) for rank, memory, done, at, _ in self.look()]
        rows = workers_table(self.line, lines, tiles=False)
        rows.min_width = min(len(self.line), self.console.width)  # where it is shorter than the title, that is broken
        return rows

    def close(self) -> None:
        self.shown.close()
        self.live.close()
        self.log = None


def shows(progress: bool | None) -> bool:
    """Whether to tell: as it was asked for, or where the error stream is a terminal."""
    return Console(stderr=True).is_terminal if progress is None else progress
