"""The live view: shown for evaluations that last, on terminals; what the workers hold, by the driver's account."""

from __future__ import annotations

import io
import time

import numpy as np
import pytest
from rich.console import Console

import girih.array as gnp
from girih.array.session import monitor as live
from girih.report import live as report_live
from girih.report.live import LiveView


def console(terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=120)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_live, "DELAY_SECONDS", 0.05)
    monkeypatch.setattr(report_live, "REFRESH_SECONDS", 0.01)


def shown(view: LiveView, seconds: float) -> str:
    """What an evaluation of so many seconds shows."""
    with gnp.cluster(workers=2, backend="threads", timeout=60.0) as cluster:
        kept = (gnp.array(np.ones((6, 4))) + 1).persist()
        assert kept.shape == (6, 4)
        run = cluster.run
        cluster.view.close()
        with view(lambda began: live.table(run, run.crew.program, began)):
            time.sleep(seconds)
        view.close()
    return view.console.file.getvalue()


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(("terminal", "given"), [(True, None), (False, True)])
def test_shown(terminal, given):
    text = shown(LiveView(given, console(terminal)), 0.4)
    assert "2 workers, 2 arrays, 384 B" in text
    assert "worker" in text
    assert "memory" in text


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(("terminal", "given"), [(False, None), (True, False)])
def test_quiet(terminal, given):
    assert shown(LiveView(given, console(terminal)), 0.1) == ""


def test_short_evaluations_show_nothing():
    assert shown(LiveView(None, console(True)), 0.05) == ""


def test_where_the_workers_are():
    with gnp.cluster(workers=2, backend="threads", timeout=60.0) as cluster:
        x = gnp.array(np.ones((8, 4)))
        (x * 2).persist()
        program = cluster.run.crew.program
        out = console(False)
        cluster.run.crew.progress[1][1] = 0  # as in the middle of the first instruction
        out.print(live.table(cluster.run, program, time.monotonic()))
        text = out.file.getvalue()
    assert "test_monitor.py" in text
    assert "2 workers, 2 arrays, 512 B, 0 s" in text or "2 workers, 1 arrays, 256 B, 0 s" in text


def test_arrays_and_repr():
    with gnp.cluster(workers=2, backend="threads", timeout=60.0) as cluster:
        assert cluster.arrays() == []
        x = (gnp.array(np.ones((5, 4))) + 1).persist()
        found = cluster.arrays()
        assert [item.shape for item in found] == [(5, 4), (5, 4)] or [item.shape for item in found] == [(5, 4)]
        assert {(item.dtype, item.bytes) for item in found} == {("float64", 160)}
        # The account is what the workers say.
        assert [sum(own.values()) for own in cluster.run.tiles()] == [
            sum(item.tiles[rank] for item in found) for rank in range(2)
        ]
        assert repr(cluster).startswith("<girih cluster: 2 workers (threads), ")
        assert x.shape == (5, 4)


def test_how_much_of_a_loop_is_done():
    def drawn(thousandths: int) -> str:
        out = console(False)
        with gnp.cluster(workers=2, backend="threads", timeout=60.0) as cluster:
            (gnp.array(np.ones((8, 4))) * 2).persist()
            cells = cluster.run.crew.progress[1]
            cells[1:] = [0, thousandths]
            out.print(live.table(cluster.run, cluster.run.crew.program, time.monotonic()))
        return out.file.getvalue()

    before, later = drawn(0), drawn(370)
    assert "%" not in before
    assert "(37 %)" in later
    assert later.count("━") >= before.count("━")
