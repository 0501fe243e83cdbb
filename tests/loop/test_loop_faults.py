"""Workers of loops that are killed or stopped in the middle of a loop, and the view of those that work."""

from __future__ import annotations

import io
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from run_programs import stop

import girih
import girih.loop as gl
from girih.array.session.clusters import Cluster
from girih.loop import parallel
from girih.report import live
from girih.report.live import LiveView
from girih.run.errors import IDLE, WorkerError


def slow(i, a, b, rounds):
    x = a[i]
    for k in range(rounds):
        x = 0.5 * x + k % 3
    b[i] = x


LONG = 30_000_000
"""Rounds that take a worker some tenths of a second."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with girih.cluster(2, timeout=100.0) as made:
        yield made


def during(cluster: Cluster, strike: Callable[[int], None]) -> threading.Thread:
    """Strike worker 1 when it is in the middle of a block."""

    def wait() -> None:
        while cluster.run.crew.status()[1].step == IDLE:
            time.sleep(0.001)
        strike(cluster.run.crew.pids[1])  # type: ignore[attr-defined]

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def given() -> tuple[gl.ParallelLoop, gl.Array, gl.Array, np.ndarray]:
    loop = gl.parallel_for(gl.range(2))(slow)
    a, b = gl.array(np.array([1.0, 2.0])), gl.array(np.zeros(2))
    alone = gl.array(np.zeros(2))
    gl.parallel_for(gl.range(2), workers=1)(slow)(a, alone, rounds=LONG)
    loop(a, b, rounds=1)  # the workers have their shares
    return loop, a, b, alone.values


def test_a_worker_that_is_killed_is_started_anew(cluster: Cluster) -> None:
    loop, a, b, expected = given()
    killer = during(cluster, kill)
    loop(a, b, rounds=LONG)
    killer.join()
    assert np.array_equal(b.values, expected)
    (loss,) = loop.losses
    assert loss.startswith("worker 1 was killed by SIGKILL at instruction 1 of 2 (loop): node 'slow', block 1 of 1")
    assert f"{loss}: begun anew" in str(loop.explain())


def test_with_too_many_losses_the_arrays_are_as_they_were(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So they are those of the last checkpoint that was written between executions."""
    loop, a, b, expected = given()
    gl.save(tmp_path / "c.npz", a=a, b=b, loop=loop)
    before = b.numpy()
    monkeypatch.setattr(parallel, "LOSSES", 0)
    killer = during(cluster, kill)
    with pytest.raises(WorkerError, match=r"worker 1 was killed by SIGKILL .*block 1 of 1, test_loop_faults\.py:\d+"):
        loop(a, b, rounds=LONG)
    killer.join()
    assert np.array_equal(b.values, before)
    saved = gl.array(np.ones(2))
    gl.restore(tmp_path / "c.npz", b=saved, loop=loop)
    assert np.array_equal(b.values, saved.values)
    assert loop.executions == 1
    loop(a, b, rounds=LONG)  # on new workers
    assert np.array_equal(b.values, expected)


def test_a_worker_that_is_stopped_is_named(cluster: Cluster) -> None:
    loop, a, b, expected = given()
    crew = cluster.run.crew
    crew.timeout = 1.0  # type: ignore[attr-defined]  # of these workers; those that come have more time
    stopper = during(cluster, stop)
    loop(a, b, rounds=LONG)
    stopper.join()
    assert np.array_equal(b.values, expected)
    assert "worker 1 did not finish 'loop' within 1 s; it hangs: its process is stopped" in loop.losses[0]
    assert crew is not cluster.run.crew


@pytest.mark.parametrize("where", ["threads", "processes"])
def test_workers_are_seen_while_a_loop_lasts(where: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "DELAY_SECONDS", 0.02)
    monkeypatch.setattr(live, "REFRESH_SECONDS", 0.01)
    loop = gl.parallel_for(gl.range(2), workers=None if where == "processes" else 2)(slow)
    loop(gl.array(np.ones(2)), gl.array(np.zeros(2)), rounds=1)
    view = LiveView(True, Console(file=io.StringIO(), width=120))
    monkeypatch.setattr(cluster if where == "processes" else parallel._workers, "view", view)
    loop(gl.array(np.ones(2)), gl.array(np.zeros(2)), rounds=LONG)
    view.close()
    text = view.console.file.getvalue()  # type: ignore[union-attr]
    line = slow.__code__.co_firstlineno
    assert "block 1 of 1" in text
    assert ("2 workers, 0 arrays" if where == "processes" else f"slow (test_loop_faults.py:{line}): 2 workers") in text
