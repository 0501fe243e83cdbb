"""NumPy's comparisons, logic and bits, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import apply, elementwise
from girih.array.core.universal import UniversalFunction, mapped

# ------------------------------------------------------------------------------------------- comparison and logic


def _comparison(ufunc: np.ufunc, operator: str) -> UniversalFunction:
    """Also with a whole Python number that the other's dtype cannot hold: all elements lie on one side of it."""

    def compare(x1: Any, x2: Any, /) -> Array:
        for number, (one, other) in enumerate(((x1, x2), (x2, x1))):
            side = outside(one, other)
            if side:
                every = bool(ufunc(*((side, 0) if number else (0, side))))
                return apply("aten.full", one.shape, "bool", size=one.shape, fill_value=every, dtype="bool")
        return elementwise(ufunc, operator, x1, x2)

    return UniversalFunction(ufunc, compare)


def outside(x: Any, number: Any) -> int:
    """1 of a whole number above all that x can hold, -1 below, else 0."""
    if not isinstance(number, int) or isinstance(number, bool) or not isinstance(x, Array) or x.dtype.kind not in "iu":
        return 0
    limits = np.iinfo(x.dtype)
    return int(number > limits.max) - int(number < limits.min)


equal = _comparison(np.equal, "aten.eq.Tensor")
not_equal = _comparison(np.not_equal, "aten.ne.Tensor")
less = _comparison(np.less, "aten.lt.Tensor")
less_equal = _comparison(np.less_equal, "aten.le.Tensor")
greater = _comparison(np.greater, "aten.gt.Tensor")
greater_equal = _comparison(np.greater_equal, "aten.ge.Tensor")
logical_and = mapped(np.logical_and, "aten.logical_and")
logical_or = mapped(np.logical_or, "aten.logical_or")
logical_xor = mapped(np.logical_xor, "aten.logical_xor")
logical_not = mapped(np.logical_not, "aten.logical_not")
isnan = mapped(np.isnan, "girih.isnan")
isinf = mapped(np.isinf, "girih.isinf")
isfinite = mapped(np.isfinite, "girih.isfinite")
# ------------------------------------------------------------------------------------------- bits


bitwise_and = mapped(np.bitwise_and, "aten.bitwise_and.Tensor")
bitwise_or = mapped(np.bitwise_or, "aten.bitwise_or.Tensor")
bitwise_xor = mapped(np.bitwise_xor, "aten.bitwise_xor.Tensor")
invert = bitwise_not = bitwise_invert = mapped(np.invert, "aten.bitwise_not")


left_shift = bitwise_left_shift = mapped(np.left_shift, "aten.bitwise_left_shift.Tensor")
right_shift = bitwise_right_shift = mapped(np.right_shift, "aten.bitwise_right_shift.Tensor")
