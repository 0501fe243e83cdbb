"""NumPy's comparisons, logic and bits, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from girih.array.array import Array
from girih.array.make import elementwise

# ------------------------------------------------------------------------------------------- comparison and logic


def equal(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.equal, "aten.eq.Tensor", x1, x2)


def not_equal(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.not_equal, "aten.ne.Tensor", x1, x2)


def less(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.less, "aten.lt.Tensor", x1, x2)


def less_equal(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.less_equal, "aten.le.Tensor", x1, x2)


def greater(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.greater, "aten.gt.Tensor", x1, x2)


def greater_equal(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.greater_equal, "aten.ge.Tensor", x1, x2)


def logical_and(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.logical_and, "aten.logical_and", x1, x2)


def logical_or(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.logical_or, "aten.logical_or", x1, x2)


def logical_xor(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.logical_xor, "aten.logical_xor", x1, x2)


def logical_not(x: Any, /) -> Array:
    return elementwise(np.logical_not, "aten.logical_not", x)


def isnan(x: Any, /) -> Array:
    return elementwise(np.isnan, "aten.isnan", x)


def isinf(x: Any, /) -> Array:
    return elementwise(np.isinf, "aten.isinf", x)


def isfinite(x: Any, /) -> Array:
    return elementwise(np.isfinite, "aten.isfinite", x)


# ------------------------------------------------------------------------------------------- bits


def bitwise_and(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.bitwise_and, "aten.bitwise_and.Tensor", x1, x2)


def bitwise_or(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.bitwise_or, "aten.bitwise_or.Tensor", x1, x2)


def bitwise_xor(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.bitwise_xor, "aten.bitwise_xor.Tensor", x1, x2)


def invert(x: Any, /) -> Array:
    return elementwise(np.invert, "aten.bitwise_not", x)


bitwise_not = bitwise_invert = invert


def left_shift(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.left_shift, "aten.bitwise_left_shift.Tensor", x1, x2)


def right_shift(x1: Any, x2: Any, /) -> Array:
    return elementwise(np.right_shift, "aten.bitwise_right_shift.Tensor", x1, x2)


bitwise_left_shift, bitwise_right_shift = left_shift, right_shift
