"""The trees that descriptions are: index arithmetic, scalar expressions, and the few ways to look through them.

`language` says how they are written. All are immutable; a node never knows its parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

Reducer: TypeAlias = Literal["sum", "max", "min", "prod", "logsumexp"]


class DescriptionError(ValueError):
    """A description that does not fit the shapes it is applied to."""


# ------------------------------------------------------------------------------------------- index arithmetic


@dataclass(frozen=True)
class Affine:
    """Σ coefficient · index variable + constant. `terms` maps the number of an index variable to its coefficient."""

    terms: tuple[tuple[int, int], ...]
    constant: int = 0

    def _combine(self, other: Affine | int, sign: int) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.constant + sign * other)
        terms = dict(self.terms)
        for variable, coefficient in other.terms:
            terms[variable] = terms.get(variable, 0) + sign * coefficient
        kept = tuple(sorted((v, c) for v, c in terms.items() if c))
        return Affine(kept, self.constant + sign * other.constant)

    def __add__(self, other: Any) -> Any:
        return self._combine(other, 1) if isinstance(other, (Affine, int)) else value_of(self) + other

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._combine(other, -1) if isinstance(other, (Affine, int)) else value_of(self) - other

    def __rsub__(self, other: Any) -> Any:
        return (self * -1) + other

    def __mul__(self, factor: Any) -> Any:
        if isinstance(factor, bool) or not isinstance(factor, int):
            return value_of(self) * factor
        return Affine(tuple((v, c * factor) for v, c in self.terms if c * factor), self.constant * factor)

    __rmul__ = __mul__

    def __neg__(self) -> Affine:
        return Affine(tuple((v, -c) for v, c in self.terms), -self.constant)

    @cached_property
    def variable(self) -> int | None:
        """The index variable, if this is one bare variable."""
        if self.constant == 0 and len(self.terms) == 1 and self.terms[0][1] == 1:
            return self.terms[0][0]
        return None


def affine(item: Any) -> Affine:
    if isinstance(item, Affine):
        return item
    if isinstance(item, int) and not isinstance(item, bool):
        return Affine((), item)
    raise DescriptionError(f"{item!r} cannot index a tensor: indices are affine in index variables")


# ------------------------------------------------------------------------------------------- expressions


_Operator: TypeAlias = Callable[["Expression", Any], "Expression"]


def _operator(function: str) -> tuple[_Operator, _Operator]:
    """A scalar function of two arguments as methods of the first and of the second."""
    return (
        lambda self, other: Applied(function, (self, value_of(other))),
        lambda self, other: Applied(function, (value_of(other), self)),
    )


class Expression:
    """A scalar expression over index variables and tensor elements."""

    __add__, __radd__ = _operator("add")
    __sub__, __rsub__ = _operator("sub")
    __mul__, __rmul__ = _operator("mul")
    __truediv__, __rtruediv__ = _operator("div")
    __pow__, __rpow__ = _operator("pow")
    __lt__, __gt__ = _operator("lt")[0], _operator("gt")[0]
    __le__, __ge__ = _operator("le")[0], _operator("ge")[0]
    __and__, __or__ = _operator("and")[0], _operator("or")[0]

    def __neg__(self) -> Expression:
        return Applied("neg", (self,))

    def __bool__(self) -> bool:
        raise DescriptionError("an index expression has no truth value: use Select(condition, yes, no) and equal(a, b)")


@dataclass(frozen=True)
class Constant(Expression):
    value: float | int | bool


@dataclass(frozen=True)
class Position(Expression):
    """An index used as a number: `lambda i: i` is arange. Its pieces must be told where they begin."""

    index: Affine


@dataclass(frozen=True)
class Read(Expression):
    """One element of tensor number `tensor`; a dimension read whole (`:`) has index None."""

    tensor: int
    index: tuple[Affine | None, ...]


@dataclass(frozen=True)
class Applied(Expression):
    """A scalar function applied to scalars, by name: add, mul, exp, erf, …"""

    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Choice(Expression):
    """`yes` where `condition` holds, else `no`."""

    condition: Expression
    yes: Expression
    no: Expression


@dataclass(frozen=True)
class Reduce(Expression):
    """`reducer` over the index variables numbered `variables`."""

    reducer: Reducer
    variables: tuple[int, ...]
    body: Expression


@dataclass(frozen=True)
class OpaqueRead(Expression):
    """Element `index` of an opaque function of whole slices. Index variables in `index` cannot be divided.

    linear: the numbers of the arguments in which the function is linear, each with the others held fixed.
    """

    arguments: tuple[Read, ...]
    index: tuple[Affine, ...]
    linear: tuple[int, ...] = ()


@dataclass(frozen=True)
class Piecewise(Expression):
    """A concatenation along one index: `parts[p]` holds where `bounds[p] <= index < bounds[p+1]`.

    Each part reads with an index shifted to its own start; the index cannot be divided, all others can.
    """

    index: Affine
    bounds: tuple[int, ...]
    parts: tuple[Expression, ...]


def value_of(item: Any) -> Expression:
    if isinstance(item, Expression):
        return item
    if isinstance(item, Affine):
        return Position(item)
    if isinstance(item, (bool, int, float)):
        return Constant(item)
    raise DescriptionError(f"{item!r} is no index expression: expected a tensor element, an index or a number")


def children(expression: Expression) -> tuple[Expression, ...]:
    if isinstance(expression, Applied):
        return expression.arguments
    if isinstance(expression, Choice):
        return (expression.condition, expression.yes, expression.no)
    if isinstance(expression, Reduce):
        return (expression.body,)
    if isinstance(expression, OpaqueRead):
        return expression.arguments
    if isinstance(expression, Piecewise):
        return expression.parts
    return ()


def walk(expression: Expression) -> Iterator[Expression]:
    yield expression
    for child in children(expression):
        yield from walk(child)
