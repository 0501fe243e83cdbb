"""Pages of memory: a worker that keeps what it frees asks the kernel for the same pages once."""

from __future__ import annotations

import ctypes
import resource
import sys

import pytest

from girih.run.calibrate.calibrate import idle_program
from girih.run.engines.processes import ProcessCrew
from girih.run.worker.service import Options

TIMES, MEGABYTES = 10, 48  # glibc itself keeps up to 32
PR_SET_THP_DISABLE = 41  # of linux/prctl.h: else the kernel may hand out 2 MB at once, where it has them


class Faults:
    """Pages that the kernel hands to a worker which makes a tensor and lets go of it, again and again."""

    def __call__(self, transport: object, rank: int, device: object) -> int:
        import torch

        ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)

        def touch() -> None:
            torch.ones(MEGABYTES << 18)

        touch()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(TIMES):
            touch()
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def faults(keeps: bool) -> int:
    crew = ProcessCrew(idle_program(1), Options(keeps=keeps))
    try:
        (found,) = crew.command("measure", [{"task": Faults()}])
        return int(found)
    finally:
        crew.close()


@pytest.mark.skipif(sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="not with glibc")
def test_workers_keep_what_they_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("THP_MEM_ALLOC_ENABLE", raising=False)  # pages of 2 MB, which arrays ask for, are few
    once = MEGABYTES << 20 >> 12
    plain, kept = faults(keeps=False), faults(keeps=True)
    assert kept < 2 * once
    assert kept < plain / 2
