"""A table of rich as plain text; apart, because lists need nothing else of the report."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from rich.console import RenderableType


def render(item: RenderableType, width: int = 110) -> str:
    """The renderable as plain text."""
    out = io.StringIO()
    Console(file=out, width=width, no_color=True, highlight=False).print(item)
    return out.getvalue().rstrip()
