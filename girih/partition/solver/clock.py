"""The time of a search, without what is done once on each machine: compiling its loops."""

from __future__ import annotations

import sys
import time
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numba.core.event import TimingListener


class Clock:
    """Seconds since it was made, less those in which Numba compiled. Loading what was compiled before counts."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.working = time.thread_time()
        self.before = _compiled()

    def end(self, seconds: float) -> float:
        """When so many seconds will have gone by: of `time.perf_counter`; later when more is compiled."""
        return self.started + seconds + _compiled() - self.before

    @property
    def worked(self) -> float:
        """Seconds that this thread has computed since, less those: the same however busy the host is."""
        return time.thread_time() - self.working - (_compiled() - self.before)


@cache
def _listener() -> TimingListener:
    from numba.core import event

    listener = event.TimingListener()
    event.register("numba:compile", listener)
    return listener


def _compiled() -> float:
    """Seconds that this process has compiled since the first clock was asked with Numba loaded."""
    if "numba" not in sys.modules:
        return 0.0
    listener = _listener()
    return float(listener.duration) if listener.done else 0.0
