"""The program that most tests of `girih.run` divide."""

from __future__ import annotations

import pytest
from run_programs import Example


@pytest.fixture(scope="session")
def example():
    return Example()
