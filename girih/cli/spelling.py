"""What a misspelt name may have meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str], limit: int = 3, cutoff: float = 0.6) -> str:
    """`: did you mean a or b?` for the known names that are near to a word; "" if none is."""
    lower = {name.lower(): name for name in known}
    near = [lower[match] for match in get_close_matches(word.lower(), list(lower), limit, cutoff)]
    return f": did you mean {' or '.join(near)}?" if near else ""
