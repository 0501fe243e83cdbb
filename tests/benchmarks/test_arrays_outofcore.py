"""Some of the ten programs are chosen by their numbers in the table."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from benchmarks.arrays_outofcore import PROGRAMS, chosen_programs


@pytest.mark.parametrize(
    ("text", "places"), [("1", [0]), ("1-3", [0, 1, 2]), ("9,2-3,3", [1, 2, 8]), ("1-10", list(range(10)))]
)
def test_numbers_and_ranges(text: str, places: list[int]) -> None:
    assert chosen_programs(text) == tuple(PROGRAMS[place] for place in places)


@pytest.mark.parametrize("text", ["", "0", "11", "3-1", "1-", "-2", "1-2-3", "a", "1,,2", "²"])
def test_others_are_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="expected numbers from 1 to 10"):
        chosen_programs(text)
