"""The programs in examples/loops/ that share tables."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "loops" / "tables_mf.py"


@pytest.mark.parametrize("adaptive", [False, True])
def test_tables_mf(adaptive: bool, capsys: pytest.CaptureFixture[str]) -> None:
    specification = importlib.util.spec_from_file_location("tables_mf", EXAMPLE)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    errors = module.main(["--backend", "threads", "--ratings", "50000", "--passes", "10", *["--adaptive"] * adaptive])
    assert errors[-1] < 0.7 * errors[0]
    assert capsys.readouterr().out.startswith("pass  1: mean squared error ")
