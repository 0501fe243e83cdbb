"""Numbering of equal texts, so that each is in the page once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class TextNumbers(Generic[Item]):
    """Items in the order in which they were first seen; `number` finds or adds one."""

    def __init__(self) -> None:
        self._numbers: dict[Item, int] = {}

    def number(self, item: Item) -> int:
        return self._numbers.setdefault(item, len(self._numbers))

    @property
    def items(self) -> list[Item]:
        return list(self._numbers)
