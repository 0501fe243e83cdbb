"""Arithmetic on what is known of numbers: constants, intervals, and the dtypes that NumPy would give."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from girih.loop.capture.values import UNKNOWN, WEAK_FLOAT, WEAK_INT, Interval, Scalar, Value


def constant(value: Any) -> Value:
    if isinstance(value, bool):
        return Scalar("bool")
    if isinstance(value, int):
        return Interval(value, value + 1)
    return Scalar(WEAK_FLOAT) if isinstance(value, float) else UNKNOWN


_EXACT: dict[type, Callable[[int, int], int]] = {
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip


LEAST, BEYOND = -(1 << 63), 1 << 63
"""The whole numbers that compiled code has: the least, and one more than the most."""
LONGEST = 4096
"""Bits of constants that are computed before the loop runs."""
_CONSTANT: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip


def literal(node: ast.AST) -> int | None:
    """The whole number that an expression of constants is in Python, of any size; None: it is no such expression."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int) and not isinstance(node.value, bool) else None
    if isinstance(node, ast.UnaryOp):
        value = literal(node.operand)
        if value is None or isinstance(node.op, ast.Not):
            return None
        return -value if isinstance(node.op, ast.USub) else ~value if isinstance(node.op, ast.Invert) else value
    if not isinstance(node, ast.BinOp) or type(node.op) not in _CONSTANT:
        return None
    left, right = literal(node.left), literal(node.right)
    if left is None or right is None:
        return None
    if isinstance(node.op, ast.Pow | ast.LShift | ast.RShift) and not 0 <= right <= LONGEST:
        return None
    if isinstance(node.op, ast.Pow) and left.bit_length() * right > LONGEST:
        return None
    if isinstance(node.op, ast.FloorDiv | ast.Mod) and right == 0:
        return None
    return _CONSTANT[type(node.op)](left, right)


def fits(low: int, high: int) -> bool:
    """Does compiled code have all whole numbers in [low, high)?"""
    return low >= LEAST and high <= BEYOND


def is_beyond(node: ast.AST) -> bool:
    """Is it a constant that compiled code does not have as a whole number?"""
    number = literal(node)
    return number is not None and not fits(number, number + 1)


def of_intervals(op: ast.operator, left: Interval, right: Interval) -> Value:
    if isinstance(op, ast.Add):
        return Interval(left.low + right.low, left.high + right.high - 1)
    if isinstance(op, ast.Sub):
        return Interval(left.low - right.high + 1, left.high - right.low)
    if isinstance(op, ast.Mult):
        ends = [a * b for a in (left.low, left.high - 1) for b in (right.low, right.high - 1)]
        return Interval(min(ends), max(ends) + 1)
    if isinstance(op, ast.Div):
        return Scalar(WEAK_FLOAT)
    if (
        type(op) in _EXACT
        and left.constant is not None
        and right.constant is not None
        and right.low > 0
        and right.low < 64
    ):
        value = _EXACT[type(op)](left.low, right.low)
        return Interval(value, value + 1)
    if isinstance(op, ast.Mod) and right.low > 0:
        return Interval(0, right.high - 1)
    if isinstance(op, ast.FloorDiv) and right.low > 0:
        ends = [a // b for a in (left.low, left.high - 1) for b in (right.low, right.high - 1)]
        return Interval(min(ends), max(ends) + 1)
    if isinstance(op, ast.Pow) and left.low >= 0 and right.low >= 0 and right.high <= 64:
        value = (left.high - 1) ** (right.high - 1)
        return Interval(0, max(value, 1) + 1)
    return Scalar(WEAK_INT)


_WEAK_TYPES: dict[str, Any] = {WEAK_INT: 0, WEAK_FLOAT: 0.0}


def result_type(*dtypes: str) -> str:
    """NumPy's rule; Python's own numbers stay weak among themselves."""
    if all(dtype in _WEAK_TYPES for dtype in dtypes):
        return WEAK_FLOAT if WEAK_FLOAT in dtypes else WEAK_INT
    return str(np.result_type(*(_WEAK_TYPES.get(dtype, dtype) for dtype in dtypes)))


def chosen_type(dtypes: Sequence[str], signed: Sequence[bool]) -> str:
    """The type of `min` and `max`: of an unsigned number of 64 bits and one with a sign int64, of whole numbers written
    out the other's. signed: where it is None of those, or is one below 0."""
    whole = all(dtype.startswith(("int", "uint", "bool")) for dtype in dtypes)
    others = [dtype for dtype, has in zip(dtypes, signed, strict=True) if has and not dtype.startswith("uint")]
    return "int64" if whole and "uint64" in dtypes and others else result_type(*dtypes)


def sums_of(dtype: str) -> str:
    """In which workers add up what goes to an array: whole numbers in 64 bits, so that their total is checked."""
    return "int64" if dtype.startswith(("int", "uint")) and dtype != "uint64" else dtype


def ufunc_result(function: np.ufunc, dtypes: Sequence[str]) -> str | None:
    """The dtype of an element-wise function's only result; None: it has none for these, or several."""
    if function.nout != 1 or function.nin != len(dtypes) or function.signature is not None:
        return None
    weak = all(dtype in _WEAK_TYPES for dtype in dtypes)
    given = (type(_WEAK_TYPES[dtype]) if dtype in _WEAK_TYPES else np.dtype(dtype) for dtype in dtypes)
    try:
        found = str(function.resolve_dtypes((*given, None))[-1])
        return WEAK_FLOAT if weak and found == "float64" else found
    except TypeError:
        return None
