"""The array programs in examples/arrays/ give what NumPy gives."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "arrays"
TESTED = {"kmeans", "linear_regression"}


def load(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(f"array_example_{name}", EXAMPLES / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == TESTED


def test_kmeans(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("kmeans")
    found = module.main(count=3000, groups=4, iterations=3)
    printed = capsys.readouterr().out
    x = module.points(3000, groups=4)
    monkeypatch.setattr(module, "np", np)
    np.testing.assert_allclose(found, module.kmeans(x, 4, 3), rtol=1e-10)
    assert "gap 0 % (proved)" in printed
    moved = int(printed.split(" bytes between")[0].splitlines()[-1])
    assert 0 < moved <= 3 * 2 * (4 * 8 + 4) * 8  # of each iteration the other worker's sums and counts


def test_linear_regression(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("linear_regression")
    descended, solved = module.main(count=2000, steps=20)
    printed = capsys.readouterr().out
    x, y = module.measurements(2000)
    monkeypatch.setattr(module, "np", np)
    np.testing.assert_allclose(descended, module.descend(x, y, 20, 0.5)[0], rtol=1e-9)
    np.testing.assert_allclose(solved, np.linalg.lstsq(x, y)[0], rtol=1e-9)
    planned = int(printed.split(" graphs were planned")[0].split()[-1])
    assert planned <= 6  # not one for each step
