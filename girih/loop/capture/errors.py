"""What the analysis of a loop refuses, and how it says so."""

from __future__ import annotations

import ast

from girih.capture.errors import CaptureError


class LoopError(CaptureError):
    """A loop body that cannot be run in parallel without losing its meaning: the line, what is there, what to write."""


class LoopWarning(UserWarning):
    """A loop that runs in parallel less than it might, told once: why, and what to write."""


def refusal(file: str, node: ast.AST | int, what: str, instead: str) -> LoopError:
    """node: an AST node with its true line number, or that number."""
    line = node if isinstance(node, int) else getattr(node, "lineno", 0)
    text = "" if isinstance(node, int) else f"`{short(node)}`: "
    return LoopError(f"{file}:{line}: {text}{what}; {instead}")


def short(node: ast.AST) -> str:
    """The text of a node, on one line."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else f"{text[:57]}…"
