"""Numbers as people read them."""

from __future__ import annotations

import pytest

from girih.machine.units import format_seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0.0 µs"), (2e-10, "0.2 ns"), (3.7e-8, "37 ns"), (6e-8, "0.1 µs"), (2.5e-3, "2.50 ms"), (90, "1.5 min")],
)
def test_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
