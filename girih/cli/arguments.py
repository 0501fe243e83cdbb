"""What options of the command line may be: functions from an option's text to its value, for argparse's `type=`.

Each raises ArgumentTypeError with what was expected and what was given, so that nonsense is refused before any work.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Collection, Iterable
from difflib import SequenceMatcher, get_close_matches

MOST_COUNT = 10**9
MOST_SEED = 2**32 - 1  # a run's batches have seeds of a million times this, which PyTorch's 64 bits still hold
MOST_SECONDS = 366 * 86400.0
MOST_MEMORY = 2**62
MOST_RATE = 1e6
MOST_ALPHA = 100.0
ABOUT = 0.15
"""How much less like a word (by difflib's ratio) another name may be than the one most like it, to be named too."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`: did you mean a or b?` for the known names that are near to a word, about as near as the nearest; "" if none
    is."""
    lower = {name.lower(): name for name in known}
    nearness = {
        match: SequenceMatcher(None, word.lower(), match).ratio()
        for match in get_close_matches(word.lower(), list(lower))
    }
    near = [lower[match] for match, ratio in nearness.items() if ratio > max(nearness.values()) - ABOUT]
    return f": did you mean {' or '.join(near)}?" if near else ""


def unknown(name: str, known: Collection[str]) -> argparse.ArgumentTypeError:
    near = did_you_mean(name, known) or f": expected one of {', '.join(known)}"
    return argparse.ArgumentTypeError(f"no {name[:40]!r}{near}")


def refused(expected: str, text: str) -> argparse.ArgumentTypeError:
    shown = text if len(text) <= 40 else f"{text[:37]}..."
    return argparse.ArgumentTypeError(f"expected {expected}, got {shown!r}")


def whole(least: int, most: int, what: str) -> Callable[[str], int]:
    """Whole numbers of a range; `what` is for the message."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:  # also for more digits than Python reads
            raise refused(what, text) from None
        if not least <= number <= most:
            raise refused(what, text)
        return number

    return read


count = whole(1, MOST_COUNT, f"a whole number of at least 1 and at most {MOST_COUNT}")
seed = whole(0, MOST_SEED, f"a whole number from 0 to {MOST_SEED}")
steps_done = whole(0, 2**62, "a whole number from 0")
device_number = whole(0, MOST_COUNT, "the number of a device, from 0")


def number(accepts: Callable[[float], bool], what: str) -> Callable[[str], float]:
    """Finite numbers that are accepted; `what` is for the message."""

    def read(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            raise refused(what, text) from None
        if not math.isfinite(found) or not accepts(found):
            raise refused(what, text)
        return found

    return read


seconds = number(lambda found: 0 < found <= MOST_SECONDS, "seconds, more than 0 and at most a year")
alpha = number(lambda found: 1 <= found <= MOST_ALPHA, f"a number of at least 1 and at most {MOST_ALPHA:g}")
"""How many times as dear as the cheapest something may be."""
rate = number(lambda found: 0 <= found <= MOST_RATE, f"a number of at least 0 and at most {MOST_RATE:g}")
"""A learning rate."""
share = number(lambda found: 0 <= found < 1, "a share from 0, below 1")


def memory(text: str) -> str:
    """An amount of memory, or "unlimited", as girih.plan reads it."""
    if text == "unlimited":
        return text
    from girih.machine.units import MachineError, parse_bytes

    try:
        amount = parse_bytes(text)
    except (MachineError, ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is no amount of memory: expected a number above 0 with B, KB, MB, GB, KiB, MiB or GiB, or "
            "unlimited"
        ) from None
    if not 0 < amount <= MOST_MEMORY:
        raise refused("an amount of memory, more than 0 and below 4 EiB", text)
    return text


def name(text: str) -> str:
    """The name of a file, a model or a machine: not empty."""
    if not text.strip() or "\0" in text:
        raise refused("a name", text)
    return text


def proposer(kind: str, own: Collection[str] = ()) -> Callable[[str], str]:
    """A proposer of a kind of `girih.search.table` with its options, as girih.plan reads them, or one of the words that
    are girih's own."""

    def read(text: str) -> str:
        from girih.search.table import PROPOSERS, proposer_of

        known = PROPOSERS[kind].places
        if text in own or text in known:  # nothing to read: it is not loaded yet
            return text
        if text.partition(":")[0] not in known:
            raise unknown(text.partition(":")[0], [*own, *known])
        try:
            proposer_of(kind, text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        return text

    return read
