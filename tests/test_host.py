"""What this process may use of its host: the cores that it is bound to, and what its container has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from girih.host import cores_here
from girih.machine.names import cores_for_copies, threads_here


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes are bound to cores on Linux")
def test_cores_are_those_that_a_process_is_bound_to() -> None:
    one = min(os.sched_getaffinity(0))
    text = (
        f"import os; os.sched_setaffinity(0, [{one}]); from girih.host import cores_here; "
        "from girih.loop.parallel import workers; print(cores_here(), workers())"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["1", "1"], done.stderr


def test_a_container_has_no_more_cores_than_its_share_of_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limit = tmp_path / "cpu.max"
    monkeypatch.setattr("girih.host.CPU_LIMIT", str(limit))
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(8)), raising=False)
    assert cores_here() == 8
    for text, expected in (("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1), ("1600000 100000", 8)):
        limit.write_text(f"{text}\n")
        assert cores_here() == expected
    limit.write_text("400000 100000\n")
    assert cores_for_copies(2, 1)
    assert not cores_for_copies(2, 2)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert threads_here(2) == 2
