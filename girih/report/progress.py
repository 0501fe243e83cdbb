"""What is being done, told on the error stream while it takes long."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.errors import LiveError

from girih.machine.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from girih.plans.plan import Plan

SECONDS_BETWEEN_LINES = 10.0


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
    """The steps of a run as they are done, for `girih.fit(progress=True)`: in place on a terminal, else a plain line
    now and then."""

    def __init__(self) -> None:
        self.progress = Progress()
        self.began = False

    def __call__(self, plan: Plan, step: int, loss: float, seconds: float, resident: int) -> None:
        """After a step. seconds: that it took. resident: bytes of this process in memory."""
        if not self.began:
            self.began = True
            self.progress.__enter__()
        predicted = "" if plan.costs.simulated is None else f" ({format_seconds(plan.costs.simulated)} predicted)"
        limit = "" if plan.memory is None else f" of {format_bytes(plan.memory)}"
        self.progress(
            f"step {step}  loss {loss:.5g}  {format_seconds(seconds)} a step{predicted}  plan's peak "
            f"{format_bytes(plan.peak)}{limit}, this process {format_bytes(resident)}",
            0.0,
        )

    def close(self) -> None:
        if self.began:
            self.progress.__exit__()
            self.began = False


def shows(progress: bool | None) -> bool:
    """Whether to tell: as it was asked for, or where the error stream is a terminal."""
    return Console(stderr=True).is_terminal if progress is None else progress
