"""Every program in examples/ runs, and says what its docstring promises."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TESTED = {"train_resnet", "train_transformer", "train_pipeline", "resume", "plan_for_a_cluster", "own_model", "demo",
          "parallelized"}  # fmt: skip


def load(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module  # dataclasses look their module up
    specification.loader.exec_module(module)
    return module


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == TESTED


def test_train_resnet(capsys: pytest.CaptureFixture[str]) -> None:
    losses = load("train_resnet").main(steps=3)
    printed = capsys.readouterr().out
    assert losses[-1] < losses[0]
    assert "gap 0 % (proved)" in printed
    assert "! does not fit 7.00 MB" in printed
    assert "trained tensors are back in the model" in printed


def test_train_transformer(capsys: pytest.CaptureFixture[str]) -> None:
    module = load("train_transformer")
    losses = module.main(steps=5)
    printed = capsys.readouterr().out
    assert losses[-1] < losses[0] - 0.1
    assert "step  5: learning rate" in printed
    rates = [module.learning_rate(step, 10) for step in range(10)]
    assert rates[0] < rates[1] == max(rates) > rates[-1] > 0


def test_train_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    losses = load("train_pipeline").main(steps=4)
    assert losses[-1] < losses[0] - 0.05
    printed = capsys.readouterr().out.splitlines()
    takes = [float(line.split("takes ")[1].split(" ms")[0]) for line in printed if "micro-batches" in line]
    assert takes == sorted(takes, reverse=True)
    assert takes[-1] < takes[0] / 2
    kept = [line.split("keeps")[1] for line in printed if line.startswith("device")]
    assert len(kept) == 2
    assert kept[0] == kept[1]


def test_resume(capsys: pytest.CaptureFixture[str]) -> None:
    straight, resumed = load("resume").main()
    assert "resumed after 3 steps on 2 workers" in capsys.readouterr().out
    assert straight == pytest.approx(resumed, rel=1e-5)


def test_plan_for_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    plan = load("plan_for_a_cluster").main(layers=1, machine="2x2")
    assert plan.machine.devices == 4
    assert plan.fits
    assert plan.certificate.cost <= min(item.seconds for item in plan.baselines)
    assert {item.name for item in plan.baselines} | {plan.search} >= {"data", "megatron"}
    assert "2x2 (4 × A100, mesh 2×2)" in capsys.readouterr().out


def test_own_model(capsys: pytest.CaptureFixture[str]) -> None:
    plan = load("own_model").main()
    assert plan.bytes_received.sum() < plan.baselines[-1].bytes
    assert "against" in capsys.readouterr().out
