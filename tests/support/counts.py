"""Which cases the tests try: in `make test` a tenth of the random ones, and not all that take long."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from typing import TypeVar

Case = TypeVar("Case")
LONG = bool(os.environ.get("GIRIH_LONG_TESTS"))


def random_cases(count: int) -> int:
    """So many cases in `make test-long`; in `make test` a tenth, and ten at least where there are as many."""
    return count if LONG else max(count // 10, min(count, 10))


def but_long(cases: Iterable[Case], long: Container[Case]) -> list[Case]:
    """The cases of a parameter, in `make test` without those that take long."""
    return [case for case in cases if LONG or case not in long]
