"""Tables of seconds by size."""

from __future__ import annotations

import numpy as np
import pytest

from girih.machine.sizes import SizeTable

TABLE = SizeTable.of([(65536, 4e-4), (4096, 1e-4), (1 << 20, 2e-3)])


def test_measured_sizes_are_kept() -> None:
    assert TABLE.points == ((4096, 1e-4), (65536, 4e-4), (1 << 20, 2e-3))
    for size, seconds in TABLE.points:
        assert TABLE.seconds(size) == pytest.approx(seconds)


def test_between_them_logarithms_are_linear() -> None:
    assert TABLE.seconds(16384) == pytest.approx(2e-4)


def test_below_and_beyond() -> None:
    assert TABLE.seconds(0) == 0
    assert TABLE.seconds(1) == pytest.approx(1e-4)
    rate = (2e-3 - 4e-4) / ((1 << 20) - 65536)
    assert TABLE.seconds(3 << 20) == pytest.approx(2e-3 + (2 << 20) * rate)
    assert SizeTable.of([(100, 1.0)]).seconds(200) == pytest.approx(2.0)


def test_many_at_once_ascend() -> None:
    amounts = np.arange(0, 1 << 22, 9999)
    made = TABLE.of_sizes(amounts)
    assert (np.diff(made) >= 0).all()
    assert made.shape == amounts.shape


def test_the_line_of_a_link() -> None:
    sizes = [4096 << (2 * step) for step in range(8)]
    latency, rate = SizeTable.of([(size, 1e-4 + size / 2e9) for size in sizes]).line()
    assert latency == pytest.approx(1e-4)
    assert rate == pytest.approx(2e9)


@pytest.mark.parametrize("points", [[(4096, 1e-3)], [(4096, 1e-3), (65536, 1e-3)], [(1, 1e-9), (10**6, 1e-2)]])
def test_the_line_is_never_backwards(points: list[tuple[int, float]]) -> None:
    latency, rate = SizeTable.of(points).line()
    assert latency > 0
    assert rate > 0
