"""The time of a search, without what is done once on each machine: compiling its loops; and its work, counted."""

from __future__ import annotations

import sys
import time

PATIENCE = 10.0
"""Times the seconds of its budget after which a search ends however little it has done: the machine is that slow, or
that busy."""
FOREVER = 1e9
"""In its place for searches that count their work alone."""


class Clock:
    """Seconds since it was made, less those in which Numba compiled. Loading what was compiled before counts."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.working = time.thread_time()
        self.before = _compiled()

    def end(self, seconds: float) -> float:
        """When so many seconds will have gone by: of `time.perf_counter`; later when more is compiled."""
        return self.started + seconds + (_compiled() - self.before)

    @property
    def passed(self) -> float:
        """Seconds of `time.perf_counter` since, less those in which Numba compiled."""
        return time.perf_counter() - self.started - (_compiled() - self.before)

    @property
    def worked(self) -> float:
        """Seconds that this thread has computed since, less those: the same however busy the host is."""
        return time.thread_time() - self.working - (_compiled() - self.before)


class Budget:
    """Seconds of work that a search has, counted and not measured, so that what it finds is the same on a busy machine.

    What is done says about how many nanoseconds a core of 2023 takes for it. patience: times the seconds that the clock
    may show meanwhile.
    """

    def __init__(self, seconds: float, patience: float = PATIENCE) -> None:
        self.left = seconds * 1e9
        self.spent = 0.0
        self.ends = time.monotonic() + patience * seconds

    def spend(self, nanoseconds: float) -> None:
        self.spent += nanoseconds

    @property
    def late(self) -> bool:
        return self.spent > self.left or time.monotonic() > self.ends

    @property
    def why(self) -> str:
        """What has ended it: its work ("time"), or the clock ("clock")."""
        return "time" if self.spent > self.left else "clock"


def _compiled() -> float:
    """Seconds that this process has compiled; nothing does but by `girih.layout.jit`."""
    if "girih.layout.jit" not in sys.modules:
        return 0.0
    from girih.layout.jit import compiled_seconds

    return compiled_seconds()
