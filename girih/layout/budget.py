"""The time of a search, without what is done once on each machine: compiling its loops; and its work, counted.

A search whose result could depend on a clock counts its work instead (`Budget`): a busy machine gives the same answer
later, and not another one.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 10.0
"""Times the seconds of its budget after which a search ends however little it has done: the machine is that slow, or
that busy."""


class Clock:
    """Seconds since it was made, less those in which Numba compiled. Loading what was compiled before counts."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.before = _compiled()

    @property
    def passed(self) -> float:
        """Seconds of `time.perf_counter` since, less those in which Numba compiled."""
        return time.perf_counter() - self.started - (_compiled() - self.before)


class Budget:
    """Seconds of work that a search has, counted and not measured, so that what it finds is the same on a busy machine.

    What is done says about how many nanoseconds a core of 2023 takes for it. The clock is the last bound: it may show
    `PATIENCE` times the seconds meanwhile, and who is ended by it says so (`why`). Who asks `over` has no clock.
    """

    def __init__(self, seconds: float) -> None:
        self.left = seconds * 1e9
        self.spent = 0.0
        self.ends = _now() + PATIENCE * seconds

    @property
    def seconds(self) -> float:
        """Seconds of work that are left, at least 0."""
        return max(self.left - self.spent, 0.0) / 1e9

    def part(self, seconds: float) -> Budget:
        """A budget of its own for a part of the work, under the same clock. Who makes it spends here what was spent
        there."""
        part = Budget(seconds)
        part.ends = self.ends
        return part

    def extend(self, seconds: float) -> None:
        """Have so many seconds of work from here on, at least, and the clock's for them."""
        self.left = max(self.left, self.spent + seconds * 1e9)
        self.ends = max(self.ends, _now() + PATIENCE * seconds)

    def spend(self, nanoseconds: float) -> None:
        self.spent += nanoseconds

    def affords(self, nanoseconds: float) -> bool:
        """Is that much work left, and the clock not over?"""
        return self.spent + nanoseconds <= self.left and not self.late

    @property
    def over(self) -> bool:
        """Is the work done, whatever the clock shows?"""
        return self.spent >= self.left

    @property
    def late(self) -> bool:
        return self.over or _now() > self.ends

    @property
    def why(self) -> str:
        """What has ended it: its work ("time"), or the clock ("clock")."""
        return "clock" if self.spent < self.left and _now() > self.ends else "time"


@contextmanager
def without_collection() -> Iterator[None]:
    """Without Python's cycle collector: a search makes millions of small objects, which it looks at again and again,
    and no cycles (a ninth to a sixth of the time). Where several threads search at once, it is on again as soon as the
    first of them ends: never later than the last one does."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _now() -> float:
    """The clock of budgets: it stands while loops are compiled."""
    return time.monotonic() - _compiled()


def _compiled() -> float:
    """Seconds that this process has compiled; nothing does but by `girih.layout.jit`."""
    if "girih.layout.jit" not in sys.modules:
        return 0.0
    from girih.layout.jit import compiled_seconds

    return compiled_seconds()
