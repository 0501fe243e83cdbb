"""Lines of text that become an iteration space, with the functions to be applied to each (Orion, thesis §5.2.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from girih.loop.spaces import Space, sparse


@dataclass(frozen=True)
class Text:
    """Lines of a file, and what is to be done with each: recorded, and done in one go when a space is made of it."""

    path: Path
    steps: tuple[Callable[[Any], Any], ...] = ()

    def map(self, function: Callable[[Any], Any]) -> Text:
        """Also apply a function to what each line has become; None leaves it out."""
        return Text(self.path, (*self.steps, function))

    def space(self, shape: Sequence[int] | None = None) -> Space:
        """The iteration space of the (key, value) pairs that lines have become.

        Raises:
            ValueError: a function failed; the line's number and text are named.
        """
        return sparse(self.path, parse=self._parsed, shape=shape)

    def _parsed(self, line: str) -> Any:
        found: Any = line
        for step in self.steps:
            if found is None:
                return None
            found = step(found)
        return found


def text(path: str | Path) -> Text:
    """The lines of a text file; nothing is read before `space()`."""
    return Text(Path(path))
