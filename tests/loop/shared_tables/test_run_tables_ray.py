"""Tables whose servers and workers are actors of Ray, on two nodes of this host: the same bits, and deaths."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import girih.loop as gl
from girih.loop.shared_tables.options import TableError
from girih.loop.shared_tables.session import Restarted, TablesError
from girih.run.engines import ray_jobs
from girih.run.engines.ray_connect import connect

pytest.importorskip("ray", reason="the extra `ray` is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


@pytest.fixture(scope="module")
def nodes(ray_nodes: Any) -> Iterator[Any]:
    """Two nodes with a processor each, to which this process is connected."""
    made = ray_nodes()
    connection = connect(made.address)
    yield made
    connection.close()


def fractions(t: Any, rank: int, ends: int = -1, once: str = "") -> tuple[int, int]:
    """Sums that depend on their order. In one clock a worker ends its own process."""
    draw = np.random.default_rng(rank)
    steps = draw.standard_normal((8, 5, 4)).astype(np.float32)
    for clock in range(t.ticks, 8):
        t["W"].inc_rows(np.arange(5), steps[clock] + 0.1 * t["W"].get_rows(np.arange(5)))
        t["S"].inc(rank, clock, 1.0)
        if rank == 1 and clock == ends and not Path(once).exists():
            Path(once).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        t.clock(state={"clock": clock})
    return rank, os.getpid()


def result(backend: str, *arguments: Any, **options: Any) -> tuple[Any, Any]:
    with gl.tables(2, 0, servers=2, backend=backend, **options) as t:
        t.dense("W", 5, 4)
        t.sparse("S", 2, 8)
        replies = t.run(fractions, *arguments)
        assert [rank for rank, _ in replies] == [0, 1]
        if backend == "ray":
            assert len({os.getpid(), *t.server_pids, *(pid for _, pid in replies)}) == 5
        return t["W"].read(), t["S"].read().toarray()


def test_an_actor_that_dies_is_told_and_all_go_on_from_the_snapshot(nodes: Any, tmp_path: Path) -> None:
    """To the bits of threads."""
    told: list[Any] = []
    options: dict[str, Any] = {"snapshots": tmp_path / "run", "restarts": 1, "observer": told.append}
    dense, sparse = result("ray", 5, str(tmp_path / "once"), **options)
    restarts = [event for event in told if isinstance(event, Restarted)]
    assert len(restarts) == 1
    assert restarts[0].why.startswith("worker 1 died (ActorDiedError")
    expected, counts = result("threads")
    assert (dense == expected).all()
    assert (sparse == counts).all()


def test_a_server_that_dies_is_started_elsewhere(nodes: Any, tmp_path: Path) -> None:
    def work(t: Any, rank: int, server: int) -> float:
        for clock in range(t.ticks, 4):
            t["W"].inc(1, 0, 1.0)
            if clock == 2 and rank == 0 and not (tmp_path / "once").exists():
                (tmp_path / "once").touch()
                os.kill(server, signal.SIGKILL)
            t.clock()
        return float(t["W"].get(1, 0))

    with gl.tables(1, 0, servers=2, backend="ray", snapshots=tmp_path / "run", restarts=1) as t:
        table = t.dense("W", 4, 2)
        assert not table.read().any()
        before = t.server_pids
        t.run(work, before[1])
        assert table.read()[1, 0] == 4
        assert t.server_pids[0] == before[0]
        assert t.server_pids[1] != before[1]


def test_a_cluster_without_room_and_what_cannot_be(nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_jobs, "PLACE_SECONDS", 0.5)
    with gl.tables(2, backend="ray", threads=2) as t:
        t.dense("W", 1, 1)
        words = r"worker 0 was not started by Ray within 0\.5 s: it needs 2 processors, the cluster has 2,"
        with pytest.raises(TablesError, match=words):
            t.run(fractions)
    with pytest.raises(TableError, match="give it no rank, addresses or torchrun"):
        gl.tables(2, backend="ray", rank=0, addresses=["tcp://127.0.0.1:1"])
