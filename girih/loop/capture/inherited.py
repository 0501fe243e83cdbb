"""What a loop body knows of values that it inherits: numbers, arrays, modules, functions, and containers of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from enum import Enum
from types import EllipsisType, ModuleType, NoneType
from typing import Any

import numpy as np

from girih.loop.capture.arithmetic import fits
from girih.loop.capture.values import (
    UNKNOWN,
    WEAK_FLOAT,
    WEAK_INT,
    Foreign,
    Function,
    Interval,
    Object,
    Outside,
    Scalar,
    Value,
    Vector,
    joined,
)

UNCHANGING = (str, bytes, complex, range, slice, EllipsisType, NoneType, Enum, np.dtype)
"""Other values that nobody can change."""
FUNCTIONS_OF = {"builtins", "numpy", "numba", "ctypes"}
"""Whose callable objects change nothing of themselves when they are called."""
ANY_DIMS = 64
"""Dimensions of a view of an inherited array where their number is not followed: more than subscripts can take away."""


def inherited(value: Any) -> Value:
    """What is known of it; of integers their value, of arrays and containers nothing that another time may differ."""
    if isinstance(value, bool | np.bool_):
        return Scalar("bool")
    if isinstance(value, np.uint64):
        return Scalar("uint64")
    if isinstance(value, int | np.integer):
        return Interval(int(value), int(value) + 1)
    if isinstance(value, float):
        return Scalar(WEAK_FLOAT)
    if isinstance(value, np.generic):
        return Scalar(str(value.dtype))
    if isinstance(value, np.ndarray):
        return Vector(None, str(value.dtype)) if value.ndim == 1 else UNKNOWN
    if isinstance(value, ModuleType):
        return Object(value)
    if is_container(value):
        return container(value)
    if callable(value) and is_function(value):
        return Function(value)
    return UNKNOWN if isinstance(value, UNCHANGING) else Foreign(type(value))


def is_function(value: Any) -> bool:
    """Is it a function or a class, and no object of the user's that remembers something when it is called?"""
    module = type(value).__module__
    known = module.partition(".")[0] in FUNCTIONS_OF and not module.startswith("numba.experimental")
    return known or isinstance(value, type)


def is_container(value: Any) -> bool:
    """Lists, tuples, sets, dictionaries, and Numba's own; not what nobody can change and may be endless, as ranges."""
    return isinstance(value, Mapping | Sequence | Set) and not isinstance(value, str | bytes | range)


def container(value: Any) -> Outside:
    """What is known of a container, by the kinds of its items."""
    kinds: dict[Any, Value] = {}
    for item in _items(value):
        if isinstance(item, np.ndarray):
            kinds[item.dtype, item.ndim] = Outside(Scalar(str(item.dtype)), item.ndim or ANY_DIMS)
        elif is_container(item):
            kinds[id(item)] = container(item)
        elif callable(item):
            kinds[id(item)] = inherited(item)
        elif type(item) not in kinds:
            known = inherited(item)
            kinds[type(item)] = Scalar(WEAK_INT) if isinstance(known, Interval) else known
    return Outside(joined(list(kinds.values())) if kinds else UNKNOWN)


def beyond(value: Any) -> int | None:
    """A whole number in it, at any depth, that compiled code does not have; None: there is none."""
    if isinstance(value, int):
        return None if fits(value, value + 1) else value
    if not is_container(value):
        return None
    return next((number for item in _items(value) if (number := beyond(item)) is not None), None)


def arrays_in(value: Any) -> Iterator[np.ndarray]:
    """NumPy's arrays in a value, at any depth."""
    if isinstance(value, np.ndarray):
        yield value
    elif is_container(value):
        for item in _items(value):
            if isinstance(item, np.ndarray) or is_container(item):
                yield from arrays_in(item)


def _items(value: Any) -> Any:
    return value.values() if isinstance(value, Mapping) else value
