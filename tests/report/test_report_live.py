"""The page that shows a run while it trains."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import girih
from girih.plans.plan import PlanError
from girih.report.page import live
from girih.run.engines.crew import resident_bytes

AGAIN = '<meta http-equiv="refresh"'


def test_a_run_is_shown_while_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Step, loss, seconds measured and predicted, memory and its limit; the last page asks to be read no more."""
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(live, "WRITE_SECONDS", 0.0)
    file, x = tmp_path / "training.html", torch.ones(8, 4)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = torch.nn.functional.mse_loss
    with girih.fit(model, loss, optimizer, (x, x), memory="2KB", progress=file) as train:
        assert AGAIN in file.read_text()
        losses = [train(x, x) for _ in range(3)]
        view, predicted = train._view, train.plan.costs.simulated
        assert isinstance(view, live.TrainingPage)
        assert view.last is not None
    text = file.read_text()
    assert AGAIN not in text
    assert f"Step 3: loss {losses[-1]:.5g}." in text
    assert live.format_seconds(view.last.seconds) in text
    assert predicted is not None
    assert f"{live.format_seconds(predicted)} predicted" in text
    assert "of 2.00 KB" in text
    assert live.format_bytes(view.last.resident) in text
    assert "steps 1 to 3, from 0 to" in text
    assert "steps 2 to 3, from 0.0 µs to" in text  # the first step starts the workers, and would hide all others
    assert text.count("<polyline") == 2
    assert not list(tmp_path.glob("*.part"))


def test_it_says_who_waits_and_keeps_names_from_breaking_out(tmp_path: Path) -> None:
    """One waits that exchanges, or is ready before the others; nobody waits between steps."""
    page = live.TrainingPage(tmp_path / "training.html")
    between = [(rank, 0, 1.0, "between steps", False) for rank in (0, 1)]
    exchanging = [(0, 1 << 20, 0.5, "fetch of <script>", True), (1, 1 << 20, 0.5, "aten.mm", False)]
    ready = [(0, 0, 1.0, "between steps", False), (1, 0, 0.9, "aten.mm", False)]
    other = [(0, 0, 0.2, "aten.mm", False), (1, 0, 1.0, "between steps", False)]
    for rows in (between, exchanging, ready, other):
        page.look = lambda rows=rows: rows  # type: ignore[misc]
        page.seen()
    page.look = lambda: exchanging
    text = page.html(page.seen(), ended=False)
    assert "<th scope=row>worker 0</th><td>1.05 MB</td><td>75%</td>" in text
    assert "<th scope=row>worker 1</th><td>1.05 MB</td><td>25%</td>" in text
    assert "fetch of &lt;script&gt;" in text


def test_a_long_run_is_thinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_STEPS", 8)
    model, x = torch.nn.Linear(4, 4), torch.ones(8, 4)
    step = girih.TrainingStep(model, torch.nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    plan = girih.plan(step, (x, x), machine="local:1", compare=())
    page = live.TrainingPage(tmp_path / "training.html")
    for number in range(1, 101):
        page(plan, number, float("nan") if number % 3 == 0 else 1.0 / number, 0.01, resident_bytes())
    assert [item.number for item in page.steps] == [16, 32, 48, 64, 80, 96]
    assert "steps 16 to 80, from 0 to 0.0625" in page.html((), ended=True)
    with pytest.raises(PlanError, match="there is no folder"):
        live.TrainingPage(tmp_path / "none" / "training.html")
