"""Large immutable things as keys of memos by identity, where comparing them would take longer than what is kept."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Same(Generic[T]):
    """A thing as a dictionary's key, by identity. It is kept alive, so that its identity stays its own."""

    __slots__ = ("item",)

    def __init__(self, item: T) -> None:
        self.item = item

    def __hash__(self) -> int:
        return id(self.item)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.item is self.item
