"""The clock of a search runs on, but not while loops are compiled."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from girih.layout.jit import numba
from girih.partition.solver.clock import Clock

EARLY = """
from girih.partition.solver.clock import Clock
clock = Clock()
from girih.layout.jit import numba
numba.njit(lambda x: x + 1)(1)
print(clock.end(0.0) - clock.started > 0)
"""


def test_it_ends_after_the_seconds() -> None:
    clock = Clock()
    assert clock.end(2.0) == clock.started + 2.0
    assert clock.started <= time.perf_counter()


def test_what_is_compiled_does_not_count() -> None:
    clock = Clock()

    @numba.njit
    def total(count):  # type: ignore[no-untyped-def]
        found = 0.0
        for number in range(count):
            found += number * 0.5
        return found

    assert total(3) == 1.5
    compiled = clock.end(0.0) - clock.started
    assert 0 < compiled <= time.perf_counter() - clock.started
    assert total(4) == 3.0
    assert clock.end(0.0) - clock.started == compiled


def test_neither_does_it_where_numba_was_loaded_later() -> None:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", EARLY], cwd=root, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "True\n"
