"""The program whose calls are priced."""

from __future__ import annotations

import pytest
from run_programs import Example


@pytest.fixture(scope="session")
def example():
    return Example()
