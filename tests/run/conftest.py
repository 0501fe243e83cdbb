"""The program that most tests of `girih.run` divide; the benchmarks, which make hosts, are importable."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from run_programs import Example

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


@pytest.fixture(scope="session")
def example():
    return Example()
