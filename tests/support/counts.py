"""How many random cases the tests try: a tenth in `make test`, all of them in `make test-long`."""

from __future__ import annotations

import os

LONG = bool(os.environ.get("GIRIH_LONG_TESTS"))


def random_cases(count: int) -> int:
    """So many cases in `make test-long`; in `make test` a tenth, and ten at least where there are as many."""
    return count if LONG else max(count // 10, min(count, 10))
