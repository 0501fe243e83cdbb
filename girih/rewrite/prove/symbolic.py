"""Polynomials of symbols in place of numbers, for descriptions that are written for numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from girih.ops.expressions import DescriptionError, Expression
from girih.rewrite.prove.arithmetic import divided, nonnegative
from girih.rewrite.prove.terms import Facts, written
from girih.rewrite.rules.extent import Extent


class UnprovableError(ValueError):
    """What the notation cannot say of a rule, with the reason."""


class DifferentShapesError(UnprovableError):
    """The two sides make tensors of other shapes, for some sizes."""


class MismatchError(UnprovableError):
    """Two sizes that have to be the same, and are not for all values of their symbols."""

    def __init__(self, one: Extent, other: Extent) -> None:
        super().__init__(f"sizes {written(one)} and {written(other)} are not the same for all shapes")
        self.one = one
        self.other = other


def _arithmetic(name: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """An operator as methods of its first and of its second argument: of polynomials, else of expressions."""
    combine = getattr(operator, name)

    def first(self: Symbolic, other: Any) -> Any:
        if isinstance(other, (int, Symbolic)):
            return Symbolic(combine(self.extent, extent_of(other)))
        return getattr(Expression, f"__{name}__")(self, other)

    def second(self: Symbolic, other: Any) -> Any:
        if isinstance(other, (int, Symbolic)):
            return Symbolic(combine(extent_of(other), self.extent))
        return getattr(Expression, f"__r{name}__")(self, other)

    return first, second


@dataclass(frozen=True)
class Symbolic(Expression):
    """A polynomial that descriptions take for a size, an attribute, an index or a number.

    Descriptions ask for special sizes only to say the same more simply, so a symbol is no number in particular.
    """

    extent: Extent

    __add__, __radd__ = _arithmetic("add")
    __sub__, __rsub__ = _arithmetic("sub")
    __mul__, __rmul__ = _arithmetic("mul")

    def __neg__(self) -> Any:
        return Symbolic(-self.extent)

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        quotient, rest = divided(self.extent, extent_of(other))
        return plain(quotient), plain(rest)

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return divmod(Symbolic(Extent.of(other)), self)

    def __mod__(self, other: Any) -> Any:
        return divmod(self, other)[1]

    def __floordiv__(self, other: Any) -> Any:
        return plain(floor(self.extent, extent_of(other)))

    def __rmod__(self, other: Any) -> Any:
        return divmod(Symbolic(Extent.of(other)), self)[1]

    def __rfloordiv__(self, other: Any) -> Any:
        return Symbolic(Extent.of(other)) // self

    def __lt__(self, other: Any) -> Any:
        return super().__lt__(other) if self._open(other) else self._below(extent_of(other) - self.extent)

    def __gt__(self, other: Any) -> Any:
        return super().__gt__(other) if self._open(other) else self._below(self.extent - extent_of(other))

    def _open(self, other: Any) -> bool:
        """Is only known where the description is evaluated which of the two is the larger?"""
        known = isinstance(other, (int, Symbolic))
        return not known or any(name.startswith("$") for name in (extent_of(other) - self.extent).symbols)

    def _below(self, gap: Extent) -> bool:
        """Is the gap above zero, where sizes are not 1?"""
        least = Facts(least=dict.fromkeys(gap.symbols, 2))
        if nonnegative(gap - 1, least):
            return True
        if nonnegative(-gap, least):
            return False
        raise DescriptionError(f"the sign of {gap} is not known for all sizes")

    def __bool__(self) -> bool:
        return bool(self.extent.terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (int, Symbolic)) and self.extent == extent_of(other)

    def __hash__(self) -> int:
        return hash(self.extent)


FLOORS: dict[str, tuple[Extent, Extent]] = {}
"""What a symbol of a rounded quotient is, by its name, which says the same."""


def floor(numerator: Extent, divisor: Extent) -> Extent:
    """The quotient rounded down: a polynomial and, of what does not divide, a symbol."""
    quotient, rest = divided(numerator, divisor)
    if not rest.terms:
        return quotient
    if rest.number is not None and divisor.number is not None:
        return quotient + rest.number // divisor.number
    name = f"floor(({written(rest)})/({written(divisor)}))"
    FLOORS[name] = (rest, divisor)
    return quotient + Extent.of(name)


def extent_of(item: Any) -> Extent:
    if isinstance(item, Symbolic):
        return item.extent
    if isinstance(item, int):
        return Extent.of(int(item))
    raise UnprovableError(f"an index that is {item!r} is not affine")


def plain(extent: Extent) -> Any:
    """A number where it is one."""
    return extent.number if extent.number is not None else Symbolic(extent)
