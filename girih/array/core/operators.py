"""What Python's operators are on arrays; those that write in place are `girih.array.core.writing`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import girih.array as here

if TYPE_CHECKING:
    from girih.array.core.array import Array


def _leads(other: Any) -> bool:
    """Does the other operand decide what an operator means, as sparse matrices do?"""
    return getattr(other, "__array_ufunc__", other) is None


def _repeats(x: Any, other: Any) -> bool:
    """Is x a number, as an element or a sum, by which a sequence is repeated?"""
    return isinstance(other, (list, tuple, str, bytes)) and not x.shape and x.dtype.kind in "iu"


def _is_no_number(other: Any) -> bool:
    return other is None or isinstance(other, str)


def _scalar(x: Any, refusal: str) -> Any:
    if x.shape:
        raise TypeError(refusal)
    return x.compute()[()]


def _update(x: Any, function: Any, other: Any) -> Array:
    return here.core.writing.update(x, function, other)


def power(x: Any, exponent: Any) -> Array:
    """Of complex numbers NumPy's operator, unlike its function, knows exponents that have a simpler function."""
    if x.dtype.kind == "c" and not x.scalar and type(exponent) in (int, float):
        simpler = {-1: here.reciprocal, 0.5: here.sqrt, 2: here.square}.get(exponent)
        if simpler is not None:
            return simpler(x)
    return here.power(x, exponent)


class Operators:
    """The operators of `Array`."""

    __slots__ = ()
    __index__: Any

    def __hash__(self) -> int:
        """Of a number, so that it can be a key of a dictionary as NumPy's scalars are."""
        return hash(_scalar(self, "unhashable type: 'Array'; numbers are hashable, and what x.tolist() has in it"))

    def __trunc__(self) -> int:
        return int(self)  # type: ignore[call-overload, no-any-return]

    def __round__(self, digits: int | None = None) -> Any:
        return round(_scalar(self, "round() takes a number: np.round(x) rounds arrays"), digits)

    def __add__(self, other: Any) -> Array:
        return here.add(self, other)

    def __radd__(self, other: Any) -> Array:
        return here.add(other, self)

    def __sub__(self, other: Any) -> Array:
        return here.subtract(self, other)

    def __rsub__(self, other: Any) -> Array:
        return here.subtract(other, self)

    def __mul__(self, other: Any) -> Any:
        if _repeats(self, other):
            return other * self.__index__()
        return NotImplemented if _leads(other) else here.multiply(self, other)

    def __rmul__(self, other: Any) -> Any:
        return other * self.__index__() if _repeats(self, other) else here.multiply(other, self)

    def __truediv__(self, other: Any) -> Array:
        return here.divide(self, other)

    def __rtruediv__(self, other: Any) -> Array:
        return here.divide(other, self)

    def __floordiv__(self, other: Any) -> Array:
        return here.floor_divide(self, other)

    def __rfloordiv__(self, other: Any) -> Array:
        return here.floor_divide(other, self)

    def __mod__(self, other: Any) -> Array:
        return here.remainder(self, other)

    def __rmod__(self, other: Any) -> Array:
        return here.remainder(other, self)

    def __divmod__(self, other: Any) -> tuple[Array, Array]:
        return here.divmod(self, other)

    def __rdivmod__(self, other: Any) -> tuple[Array, Array]:
        return here.divmod(other, self)

    def __pow__(self, other: Any) -> Array:
        if type(other) is int and other == 2:
            return here.square(self)  # as NumPy, which makes int8 of truth values so
        return power(self, other)

    def __rpow__(self, other: Any) -> Array:
        return here.power(other, self)

    def __matmul__(self, other: Any) -> Array:
        return NotImplemented if _leads(other) else here.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Array:
        return here.matmul(other, self)

    def __neg__(self) -> Array:
        return here.negative(self)

    def __pos__(self) -> Array:
        return here.positive(self)

    def __abs__(self) -> Array:
        return here.absolute(self)

    def __invert__(self) -> Array:
        return here.invert(self)

    def __and__(self, other: Any) -> Array:
        return here.bitwise_and(self, other)

    def __rand__(self, other: Any) -> Array:
        return here.bitwise_and(other, self)

    def __or__(self, other: Any) -> Array:
        return here.bitwise_or(self, other)

    def __ror__(self, other: Any) -> Array:
        return here.bitwise_or(other, self)

    def __xor__(self, other: Any) -> Array:
        return here.bitwise_xor(self, other)

    def __rxor__(self, other: Any) -> Array:
        return here.bitwise_xor(other, self)

    def __lshift__(self, other: Any) -> Array:
        return here.left_shift(self, other)

    def __rlshift__(self, other: Any) -> Array:
        return here.left_shift(other, self)

    def __rshift__(self, other: Any) -> Array:
        return here.right_shift(self, other)

    def __rrshift__(self, other: Any) -> Array:
        return here.right_shift(other, self)

    def __iadd__(self, other: Any) -> Array:
        return _update(self, here.add, other)

    def __isub__(self, other: Any) -> Array:
        return _update(self, here.subtract, other)

    def __imul__(self, other: Any) -> Array:
        return _update(self, here.multiply, other)

    def __itruediv__(self, other: Any) -> Array:
        return _update(self, here.divide, other)

    def __ifloordiv__(self, other: Any) -> Array:
        return _update(self, here.floor_divide, other)

    def __imod__(self, other: Any) -> Array:
        return _update(self, here.remainder, other)

    def __ipow__(self, other: Any) -> Array:
        return _update(self, power, other)

    def __imatmul__(self, other: Any) -> Array:
        return _update(self, here.matmul, other)

    def __iand__(self, other: Any) -> Array:
        return _update(self, here.bitwise_and, other)

    def __ior__(self, other: Any) -> Array:
        return _update(self, here.bitwise_or, other)

    def __ixor__(self, other: Any) -> Array:
        return _update(self, here.bitwise_xor, other)

    def __ilshift__(self, other: Any) -> Array:
        return _update(self, here.left_shift, other)

    def __irshift__(self, other: Any) -> Array:
        return _update(self, here.right_shift, other)

    def __lt__(self, other: Any) -> Array:
        return here.less(self, other)

    def __le__(self, other: Any) -> Array:
        return here.less_equal(self, other)

    def __gt__(self, other: Any) -> Array:
        return here.greater(self, other)

    def __ge__(self, other: Any) -> Array:
        return here.greater_equal(self, other)

    def __eq__(self, other: Any) -> Array:  # type: ignore[override]
        return here.zeros_like(self, bool) if _is_no_number(other) else here.equal(self, other)

    def __ne__(self, other: Any) -> Array:  # type: ignore[override]
        return here.ones_like(self, bool) if _is_no_number(other) else here.not_equal(self, other)
