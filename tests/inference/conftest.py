"""What tests of optimised models share."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
from torch.onnx._internal.exporter._registration import ONNXRegistry

from girih.inference import costs, trial


@pytest.fixture(scope="session", autouse=True)
def operators_of_onnx_are_read_once() -> Iterator[None]:
    """PyTorch parses the source of each of its ONNX operators anew for each export, which is half of the work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(functools.cache(ONNXRegistry.from_torchlib)))
        yield


@pytest.fixture(autouse=True)
def models_are_run_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """To choose among ways to run a model it is run for seconds, and each kernel for some hundredths. What is chosen
    among is tested, not how fast it is."""
    for module in (costs, trial):
        monkeypatch.setattr(module, "SECONDS", 0.0)
    monkeypatch.setattr(trial, "WAKING", 0.0)
