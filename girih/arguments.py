"""What options of the command line may be: functions from text to a value, for argparse; each names its bounds."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable

MOST_COUNT = 10**9
MOST_SECONDS = 10**8  # three years
MOST_SEED = 2**63 - 1
_WHOLE = re.compile(r"[0-9]{1,30}")


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number in plain digits from `least` to `most`."""

    def read(text: str) -> int:
        number = int(text) if _WHOLE.fullmatch(text) else least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"expected a whole number of at least {least}, got {shortened(text)}")
        if number > most:
            raise argparse.ArgumentTypeError(f"expected a whole number of at most {most}, got {shortened(text)}")
        return number

    return read


count = whole(1, MOST_COUNT)
seed = whole(0, MOST_SEED)
number = whole(0, MOST_COUNT)


def seconds(text: str) -> float:
    """A finite time above 0."""
    amount = _float(text)
    if amount is None or not 0 < amount <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(
            f"expected a number of seconds above 0 and at most {MOST_SECONDS}, got {shortened(text)}"
        )
    return amount


def finite(text: str) -> float:
    amount = _float(text)
    if amount is None or not math.isfinite(amount):
        raise argparse.ArgumentTypeError(f"expected a finite number, got {shortened(text)}")
    return amount


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def shortened(text: str) -> str:
    """As Python writes it, cut where it is long."""
    return repr(text if len(text) <= 40 else f"{text[:37]}...")
