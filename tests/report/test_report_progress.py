"""`progress=` tells what is being planned: where it was asked for, and by itself on a terminal alone."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

import girih
from girih.report import progress
from girih.run.worker.compute import Compute


@pytest.mark.parametrize("asked", [None, False, True])
def test_planning_tells_what_it_does_where_it_was_asked(
    asked: bool | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    model, x = torch.nn.Linear(4, 4), torch.ones(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with girih.fit(model, torch.nn.functional.mse_loss, optimizer, (x, x), memory="2KB", progress=asked) as train:
        assert train(x, x) > 0
    told = capsys.readouterr().err
    assert told.startswith("girih: capture\n") if asked else not told
    assert ("girih: step 1  loss " in told and "of 2.00 KB, this process" in told) == bool(asked)
    lines: list[str] = []
    step = girih.TrainingStep(model, loss=torch.nn.functional.mse_loss, optimizer=optimizer)
    girih.plan(step, (x, x), compare=(), progress=asked, observe=lambda what, share: lines.append(what))
    assert lines[0] == "capture"
    assert not capsys.readouterr().err


def test_it_shows_on_a_terminal_and_stands_back_where_another_does(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    monkeypatch.setattr(progress, "Console", lambda **options: Console(force_terminal=True, **options))
    assert progress.shows(None)
    with progress.Progress() as outer, progress.Progress() as inner:
        outer("search", 0.5)
        inner("search", 0.5)
        assert outer.status is not None
    with Console(stderr=True, force_terminal=True).status("mine"), progress.Progress() as own:
        own("search", 0.5)


def test_a_step_that_lasts_shows_where_its_worker_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal: the step before with its loss, time and memory, and how far the worker is in this one."""
    from rich.console import Console

    screen, seen = io.StringIO(), []
    console = Console(file=screen, force_terminal=True, width=180)
    monkeypatch.setattr(progress, "Console", lambda **_: console)
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()), torch.ones(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with girih.fit(model, torch.nn.functional.mse_loss, optimizer, (x, x), progress=True) as train:
        view, run = train._view, Compute.run
        assert isinstance(view, progress.TrainingView)
        loss = train(x, x)
        assert train.run is not None
        ((rank, memory, done, at, waits),) = train.run.workers()
        assert (rank, done, at, waits) == (0, 1.0, "between steps", False)
        assert memory > 1 << 20

        def looking(*arguments: Any) -> None:
            console.print(view.table(0.0))
            seen.append(train.run.workers())  # type: ignore[union-attr]
            run(*arguments)

        monkeypatch.setattr(Compute, "run", looking)
        train(x, x)
    text = screen.getvalue()
    assert f"step 1  loss {loss:.5g}" in text
    assert "predicted)  plan's peak" in text
    assert any("aten.mm" in at and 0 <= done < 1 for ((_, _, done, at, _),) in seen)
