"""The limit of a graph's size (Spartan §3.1): a program that never asks for a value is evaluated by itself.

The graph is cut where little crosses the cut: at an array of few bytes, such as a loop's weights or the length of its
step, once `LIMIT` expressions are needed for it; at any array after `FORCED` times as many. Evaluating it keeps what
live arrays show, so that the program goes on from there. A loop is cut at the same place of its body again and again:
after the first times its graphs are equal, and planned already.
"""

from __future__ import annotations

import math

from girih.capture.lazy.expressions import Expression
from girih.graph.graph import ITEM_BYTES

LIMIT = 512
"""Expressions. Planning takes one to two milliseconds for each that is new, so at most a second until a loop runs; and
the half millisecond that an evaluation begins with is little for so many."""
FORCED = 4
SMALL_BYTES = 1 << 16
"""What is smaller costs nothing to keep."""
MANY = 16
"""An expression with so many inputs (np.stack of what a loop's body made side by side) joins graphs that are small by
themselves: it is counted whenever it is made."""


class Growth:
    """Counts a growing graph, rarely: only as often as enough expressions were made to reach the limit."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._next = limit
        """No graph that grows by itself has as many expressions as the limit before the one with this number."""

    def reached(self, expression: Expression) -> bool:
        """Must it be evaluated now?"""
        joins = len(expression.inputs) >= MANY
        if expression.number < self._next and not joins:
            return False
        small = math.prod(expression.shape) * ITEM_BYTES[expression.dtype] <= SMALL_BYTES
        most = self.limit if small else FORCED * self.limit
        if expression.number < self._next + (most - self.limit) and not joins:
            return False
        size = unevaluated(expression, most)
        if size < most:
            self._next = max(self._next, expression.number + self.limit - size)
        return size >= most


def unevaluated(expression: Expression, most: int) -> int:
    """How many expressions must be evaluated for this one, counted up to `most`."""
    seen = {expression}
    stack = [expression]
    while stack and len(seen) < most:
        for operand in stack.pop().inputs:
            if operand not in seen and not operand.is_leaf:
                seen.add(operand)
                stack.append(operand)
    return 0 if expression.is_leaf else len(seen)
