"""NumPy's dtypes and the graph's names for them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from girih.graph.graph import ITEM_BYTES

SUPPORTED = tuple(name for name in ITEM_BYTES if name != "bfloat16")


@cache
def name_of(dtype: np.dtype) -> str:
    """The graph's name of a dtype.

    Raises:
        TypeError: girih has no such arrays.
    """
    if dtype.name not in SUPPORTED:
        raise TypeError(f"dtype {dtype} is not supported by girih.array: expected one of {', '.join(SUPPORTED)}")
    return dtype.name


@cache
def dtype_of(name: str) -> np.dtype:
    return np.dtype(name)


def dtype_or(asked: Any, default: Any) -> np.dtype:
    """The dtype that a user gave, or the default."""
    return np.dtype(default if asked is None else asked)


@cache
def loop_dtypes(ufunc: np.ufunc, operands: tuple[Any, ...], count: int) -> tuple[np.dtype, ...]:
    """The dtypes in which NumPy's ufunc computes: of each operand and each result, by NumPy's own promotion.

    operands: a dtype, or `int`, `float`, `complex` for a Python number, whose dtype is weak.

    Raises:
        TypeError: NumPy's, where the ufunc has no loop for them.
    """
    return ufunc.resolve_dtypes((*operands, *(None,) * count))
