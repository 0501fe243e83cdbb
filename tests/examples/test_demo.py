"""`make demo`, which a new user runs first: its refusals on the models that it shows, and all of it on a small one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from counts import but_long
from rich.console import Console

import girih
from examples import demo


@pytest.mark.parametrize("make", but_long(demo.CASES, {demo.wide_resnet_case}))
def test_nothing_that_the_demo_shows_fits_without_dividing(make) -> None:
    console = Console(width=120, record=True, quiet=True)
    demo.show_refusals(make(), console)


def small_case(memory: str = "100KB") -> demo.Case:
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = girih.TrainingStep(model, loss=torch.nn.functional.cross_entropy, optimizer=optimizer)

    def batch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(number)
        return torch.randn(8, 64, generator=generator), torch.randint(8, (8,), generator=generator)

    return demo.Case("A small perceptron", "momentum", "small.json", memory, step, batch)


def test_the_demo_of_a_small_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "CASES", (small_case,))
    assert demo.main() == 0
    said = capsys.readouterr().out
    assert "data parallelism does not fit" in " ".join(said.split())
    assert said.count("same") == demo.STEPS
    assert "every loss and tensor agrees" in said
    assert "equal on every device" in said
    assert girih.load(tmp_path / demo.PLANS / "small.json").memory == 100_000


def test_the_demo_stops_where_it_has_nothing_to_show(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "CASES", (lambda: small_case("10MB"),))
    assert demo.main() == 2
    assert "one device fits 10MB: the demo expects that it does not" in " ".join(capsys.readouterr().out.split())
