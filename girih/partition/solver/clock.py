"""The time of a search, without what is done once on each machine: compiling its loops."""

from __future__ import annotations

import sys
import time


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


def _compiled() -> float:
    """Seconds that this process has compiled; nothing does but by `girih.layout.jit`."""
    if "girih.layout.jit" not in sys.modules:
        return 0.0
    from girih.layout.jit import compiled_seconds

    return compiled_seconds()
