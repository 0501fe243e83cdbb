"""What this process may use of its host: cores and memory, within its affinity and its container's limits."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
CPU_LIMIT = "/sys/fs/cgroup/cpu.max"


def memory_here() -> int:
    """Bytes of memory of this host, or of the container in which this process is, where that has less. Not what is free
    just now: plans should not depend on that."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for limit in MEMORY_LIMITS:
        with suppress(OSError, ValueError):  # there is none, or it is "max"
            memory = min(memory, int(Path(limit).read_text()))
    return memory


def cores_here() -> int:
    """On how many cores this process may run at once, at least 1: those that it is bound to (by `taskset`, by a batch
    system), and no more than its container may use whole."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # there is none, or it is "max"
        quota, period = map(int, Path(CPU_LIMIT).read_text().split())
        cores = min(cores, quota // period)
    return max(1, cores)
