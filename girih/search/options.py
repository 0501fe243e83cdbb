"""Options as text: `sampled:seed=3,proposals=500` stands for what is called `sampled`, with other options than its own.

Searches, orders of steps, and published ways to keep a memory limit are written so, on the command line and in calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Pairs = tuple[tuple[str, str], ...]


def named(text: str) -> tuple[str, Pairs]:
    """A name, and the options behind its colon as (option, value) pairs of text."""
    name, colon, options = text.partition(":")
    pairs = [part.partition("=") for part in options.split(",")] if colon else []
    return name, tuple((option, value) for option, _, value in pairs)


def read(pairs: Pairs, what: str, readers: Mapping[str, tuple[str, Callable[[str], Any]]]) -> dict[str, Any]:
    """The values of options by name. what: has them, for errors. readers: by option what its value is, in words, and
    what makes the value of a text.

    Raises:
        ValueError: there is no such option, or its reader refuses the text with a ValueError.
    """
    values = {}
    for option, value in pairs:
        if option not in readers:
            expected = f"expected one of {', '.join(readers)}" if readers else "it has none"
            raise ValueError(f"{what} has no option {option!r}: {expected}")
        words, reader = readers[option]
        try:
            values[option] = reader(value)
        except ValueError:
            raise ValueError(f"{what}: option {option} is {words}, got {value!r}") from None
    return values
