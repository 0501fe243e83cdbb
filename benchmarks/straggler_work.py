"""What the workers of `benchmarks.arrays_straggler` are told: which core is theirs, and whether they may help."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Any


def bound(_: Any, rank: int, __: Any) -> None:
    """A worker stays on its core: a thread, or all threads of a process."""
    core = {sorted(os.sched_getaffinity(0))[rank]}
    process = threading.current_thread() is threading.main_thread()
    for thread in [int(name) for name in os.listdir("/proc/self/task")] if process else [0]:
        os.sched_setaffinity(thread, core)


@dataclass(frozen=True)
class Least:
    """So many chunks must be left for one to be taken."""

    chunks: int

    def __call__(self, _: Any, __: int, ___: Any) -> None:
        from girih.run.transport import stealing

        stealing.LEAST_LEFT = self.chunks
