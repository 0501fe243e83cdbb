"""Results that no name shows: the next operation of an expression is written over them, as NumPy does with its own.

Between `a`, `b` and `d = a * b + c` lies an array that nobody has but the interpreter: `a * b`. Writing the sum over it
saves memory that leaves the processor's caches, a fifth to a third of such an expression. An array is one of these if
it is referred to as often as an operand that has no name, and if the instruction that made the operand is an arithmetic
one: what a library holds, and hands to an operator by itself, may be referred to as rarely.
"""

from __future__ import annotations

import dis
from functools import lru_cache
from sys import getrefcount
from types import CodeType, FrameType
from typing import Any

import numpy as np

LEAST_BYTES = 1 << 18
"""Smaller arrays stay in the cache whether or not new memory is taken."""


class _Counted:
    """Counts how often operands, and what they hold, are referred to within an operator."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = object()

    def __add__(self, other: _Counted) -> tuple[int, int]:
        held = self.held
        return getrefcount(self), getrefcount(held)


def _counts() -> tuple[int, int]:
    """Of an operand without a name, and of what it holds; (0, 0) where that cannot be told from one with a name."""
    named = _Counted()
    alone = _Counted() + named
    return alone if alone[0] < (named + named)[0] else (0, 0)


OPERAND, HELD = _counts()


@lru_cache(maxsize=4096)
def _made_before(code: CodeType, at: int) -> tuple[bool, bool]:
    """Whether the left and the right operand of the operator at a place were made by operators just before."""
    before = [item for item in dis.get_instructions(code) if item.offset <= at]
    if len(before) < 2 or before[-1].opname != "BINARY_OP" or before[-1].is_jump_target:
        return False, False
    right = before[-2].opname == "BINARY_OP"
    place, missing = len(before) - 1, 1
    while missing and place > 1:  # back over the instructions that make the right operand
        place -= 1
        item = before[place]
        if item.is_jump_target or item.opcode in (*dis.hasjrel, *dis.hasjabs):
            return False, right
        missing -= dis.stack_effect(item.opcode, item.arg)
    return not missing and before[place - 1].opname == "BINARY_OP", right


def temporaries(frame: FrameType) -> tuple[bool, bool]:
    """Do the left and the right operand of the operator at which a frame is come from operators?"""
    return _made_before(frame.f_code, frame.f_lasti)


def takes(goal: np.ndarray, other: Any) -> bool:
    """Has the sum, the difference, the product of both the shape and the dtype of one of them?"""
    if not goal.flags.owndata or goal.dtype.kind not in "iufc":
        return False
    if type(other) is np.ndarray:
        return other.dtype == goal.dtype and (not other.ndim or goal.shape[-other.ndim :] == other.shape)
    return type(other) is int or (type(other) is float and goal.dtype.kind in "fc")
