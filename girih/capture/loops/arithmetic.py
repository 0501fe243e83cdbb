"""Arithmetic on what is known of numbers: constants, intervals, and the dtypes that NumPy would give."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from girih.capture.loops.values import UNKNOWN, WEAK_FLOAT, WEAK_INT, Interval, Scalar, Value


def constant(value: Any) -> Value:
    if isinstance(value, bool):
        return Scalar("bool")
    if isinstance(value, int):
        return Interval(value, value + 1)
    return Scalar(WEAK_FLOAT) if isinstance(value, float) else UNKNOWN


_EXACT: dict[type, Callable[[int, int], int]] = {
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip


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
    if isinstance(op, ast.Mod) and right.constant is not None and right.low > 0:
        return Interval(0, right.low)
    return Scalar(WEAK_INT)


_WEAK_TYPES: dict[str, Any] = {WEAK_INT: 0, WEAK_FLOAT: 0.0}


def result_type(*dtypes: str) -> str:
    """NumPy's rule; Python's own numbers stay weak among themselves."""
    if all(dtype in _WEAK_TYPES for dtype in dtypes):
        return WEAK_FLOAT if WEAK_FLOAT in dtypes else WEAK_INT
    return str(np.result_type(*(_WEAK_TYPES.get(dtype, dtype) for dtype in dtypes)))


def ufunc_result(function: np.ufunc, dtypes: Sequence[str]) -> str | None:
    """The dtype of an element-wise function's only result; None: it has none for these, or several."""
    if function.nout != 1 or function.nin != len(dtypes) or function.signature is not None:
        return None
    if all(dtype in _WEAK_TYPES for dtype in dtypes):
        return WEAK_FLOAT
    given = (type(_WEAK_TYPES[dtype]) if dtype in _WEAK_TYPES else np.dtype(dtype) for dtype in dtypes)
    try:
        return str(function.resolve_dtypes((*given, None))[-1])
    except TypeError:
        return None
