"""Index notation as sums of products: what descriptions say about tensors of symbolic shapes, as terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from math import inf
from typing import Any, TypeAlias

from girih.ops import expressions
from girih.ops.expressions import Applied, Choice, Constant, Expression, Piecewise
from girih.ops.language import PendingReduce, parameter_names
from girih.ops.operator import Operator
from girih.rewrite.prove.arithmetic import nonnegative
from girih.rewrite.prove.symbolic import FLOORS, MismatchError, Symbolic, UnprovableError, extent_of, plain
from girih.rewrite.prove.terms import (
    Facts,
    Fold,
    Function,
    Guard,
    Power,
    Term,
    Terms,
    branch,
    guarded,
    number,
    summed,
    times,
    value_of,
    written,
)
from girih.rewrite.rules.extent import Extent

Tree: TypeAlias = "Extent | tuple[Tree, Tree]"
At: TypeAlias = "Callable[[tuple[Extent, ...]], Terms]"


@dataclass(frozen=True, eq=False)
class Tensor:
    """An input or an intermediate result. at: its element at an index, which lies in its shape. trees: how each
    dimension was concatenated."""

    shape: tuple[Extent, ...]
    at: At
    trees: tuple[Tree, ...]


@dataclass(frozen=True)
class Element(Expression):
    tensor: Tensor
    index: tuple[Extent, ...]


@dataclass
class Scope:
    """What is shared while one rule is expanded. sizes: of index variables that were made."""

    facts: Facts
    sizes: dict[str, Extent] = field(default_factory=dict)
    made: int = 0

    def variable(self) -> str:
        self.made += 1
        return f"${self.made}"


@dataclass(frozen=True, eq=False)
class Symbol:
    """A tensor as descriptions see it. log: of what is read."""

    tensor: Tensor
    name: str
    log: list[Element]
    dtype: str = "float32"

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(map(plain, self.tensor.shape))

    @property
    def rank(self) -> int:
        return len(self.tensor.shape)

    def __getitem__(self, index: Any) -> Element:
        items = index if isinstance(index, tuple) else (index,)
        if len(items) != self.rank or any(isinstance(item, slice) for item in items):
            raise UnprovableError("its description reads whole slices")
        element = Element(self.tensor, tuple(map(extent_of, items)))
        self.log.append(element)
        return element

    def broadcast(self, indices: tuple[Any, ...]) -> Element:
        aligned = indices[len(indices) - self.rank :]
        return self[tuple(0 if size == 1 else index for size, index in zip(self.shape, aligned, strict=True))]


class Notation:
    """Index expressions of one operator as terms."""

    def __init__(self, operator: Operator, scope: Scope) -> None:
        self.operator = operator
        self.scope = scope

    def explore(self, item: Expression) -> dict[str, list[Extent]]:
        """Goes through all that is read, and gives the sizes of what is concatenated along an index."""
        joined: dict[str, list[Extent]] = {}

        def visit(item: Expression) -> None:
            if isinstance(item, PendingReduce):
                visit(self._opened(item)[1])
            elif isinstance(item, Applied):
                for one in item.arguments:
                    visit(one)
            elif isinstance(item, Choice):
                for one in (item.condition, item.yes, item.no):
                    visit(one)
            elif isinstance(item, Piecewise):
                (name,) = extent_of(item.index).symbols
                bounds = [extent_of(bound) for bound in item.bounds]
                joined[name] = [high - low for low, high in pairwise(bounds)]
                for one in item.parts:
                    visit(one)

        visit(item)
        return joined

    def _opened(self, item: PendingReduce) -> tuple[list[tuple[str, Extent]], Expression]:
        sizes = None if item.sizes is None else list(map(extent_of, item.sizes))
        count = len(sizes) if sizes is not None else item.count
        names = [self.scope.variable() for _ in parameter_names(item.body, count)]
        if sizes is not None:
            self.scope.sizes |= dict(zip(names, sizes, strict=True))
        body = expressions.value_of(item.body(*(Symbolic(Extent.of(name)) for name in names)))
        if sizes is None:
            sizes = [self._read_size(name, body) for name in names]
            self.scope.sizes |= dict(zip(names, sizes, strict=True))
        return list(zip(names, sizes, strict=True)), body

    def _read_size(self, name: str, body: Expression) -> Extent:
        found: list[Extent] = []

        def visit(item: Expression) -> None:
            if isinstance(item, Element):
                for index, size in zip(item.index, item.tensor.shape, strict=True):
                    if index == Extent.of(name):
                        found.append(size)
            elif isinstance(item, Applied):
                for one in item.arguments:
                    visit(one)
            elif isinstance(item, Choice):
                for one in (item.condition, item.yes, item.no):
                    visit(one)

        visit(body)
        if not found:
            raise UnprovableError("no size follows for an index of a sum")
        if len(set(found)) > 1:
            raise MismatchError(*sorted(set(found), key=written)[:2])
        return found[0]

    def terms(self, item: Any) -> Terms:
        item = expressions.value_of(item)
        if isinstance(item, Constant):
            if isinstance(item.value, float) and item.value in (inf, -inf):
                return (Term(factors=(Function(str(item.value), ()),)),)
            return number(Fraction(item.value))
        if isinstance(item, Symbolic):
            return value_of(item.extent)
        if isinstance(item, Element):
            return guarded(item.tensor.at(item.index), self._inside(item))
        if isinstance(item, Choice):
            condition = self._condition(item.condition)
            yes, no = self.terms(item.yes), self.terms(item.no)
            if condition is None:
                return (Term(factors=(Function("select", (self.terms(item.condition), yes, no)),)),)
            return (*guarded(yes, condition), *no, *times(number(-1), guarded(no, condition)))
        if isinstance(item, Piecewise):
            index = extent_of(item.index)
            every: list[Term] = []
            for part, low, high in zip(item.parts, item.bounds, item.bounds[1:], strict=False):
                between: list[Guard] = []
                if low != 0:
                    between.append((">=", index - extent_of(low)))
                if high is not item.bounds[-1]:
                    between.append((">=", extent_of(high) - 1 - index))
                every += guarded(self.terms(part), between)
            return tuple(every)
        if isinstance(item, PendingReduce):
            bound, body = self._opened(item)
            if item.reducer == "sum":
                return summed(self.terms(body), tuple(bound))
            if item.reducer == "logsumexp":
                return (Term(factors=(Function("log", (summed(_exponential(self.terms(body)), tuple(bound)),)),)),)
            guards: tuple[Guard, ...] = ()
            value: Terms
            if isinstance(body, Element) and item.reducer == "max" and self.operator.padding == -inf:
                guards, value = self._inside(body), body.tensor.at(body.index)
            else:
                value = self.terms(body)
            return (Term(factors=(Fold(item.reducer, (branch(value, tuple(bound), guards),)),)),)
        if isinstance(item, Applied):
            return self._function(item)
        raise UnprovableError(f"{type(item).__name__} has no normal form")

    def _inside(self, item: Element) -> tuple[Guard, ...]:
        """The conditions that a read is not outside of its tensor, where it may be."""
        guards: list[Guard] = []
        if self.operator.padding is None:
            return ()
        for index, size in zip(item.index, item.tensor.shape, strict=True):
            facts = Facts(self.scope.sizes, self.scope.facts.least, FLOORS)
            guards += [(">=", one) for one in (index, size - 1 - index) if not nonnegative(one, facts)]
        return tuple(guards)

    def _condition(self, item: Expression) -> list[Guard] | None:
        """A condition on indices alone, as guards that hold together; None if it is on values."""
        if not isinstance(item, Applied):
            return None
        if item.function == "and":
            parts = [self._condition(one) for one in item.arguments]
            return None if None in parts else [guard for part in parts for guard in part or ()]
        sides = [_position(one) for one in item.arguments]
        if len(sides) != 2:
            return None
        one, other = sides
        if one is None or other is None:
            return None
        guards: dict[str, Guard] = {
            "eq": ("==", one - other), "ge": (">=", one - other), "le": (">=", other - one),
            "gt": (">=", one - other - 1), "lt": (">=", other - one - 1),
        }  # fmt: skip
        return [guards[item.function]] if item.function in guards else None

    def _function(self, item: Applied) -> Terms:
        name = item.function
        arguments = [self.terms(one) for one in item.arguments]
        if name == "add":
            return (*arguments[0], *arguments[1])
        if name == "sub":
            return (*arguments[0], *times(number(-1), arguments[1]))
        if name == "neg":
            return times(number(-1), arguments[0])
        if name == "mul":
            return times(*arguments)
        if name == "div":
            return times(arguments[0], _reciprocal(arguments[1]))
        if name == "reciprocal":
            return _reciprocal(arguments[0])
        if name == "sigmoid":
            return _reciprocal((*number(1), *_exponential(times(number(-1), arguments[0]))))
        if name == "exp":
            return _exponential(arguments[0])
        if name in ("max", "min"):
            return (Term(factors=(Fold(name, tuple(map(branch, arguments))),)),)
        exponent = item.arguments[1] if name == "pow" else None
        if isinstance(exponent, Constant) and exponent.value in (2, 3):
            return reduce(times, [arguments[0]] * int(exponent.value))
        return (Term(factors=(Function(name, tuple(arguments)),)),)


def _position(item: Expression) -> Extent | None:
    """An index or a whole number; None for a value."""
    if isinstance(item, Symbolic):
        return item.extent
    return Extent.of(item.value) if isinstance(item, Constant) and isinstance(item.value, int) else None


def _exponential(terms: Terms) -> Terms:
    """The exponential of a sum: the product of its terms' exponentials, of which log(z) has z, and -log(z) has 1/z."""
    rest: list[Term] = []
    result = number(1)
    for term in terms:
        if term.bound or term.guards:
            rest.append(term)
            continue
        factor = term.factors[0] if len(term.factors) == 1 else None
        if isinstance(factor, Function) and factor.name == "log" and term.coefficient in (1, -1):
            value = factor.arguments[0]
            result = times(result, value if term.coefficient == 1 else _reciprocal(value))
        else:
            result = times(result, (Term(factors=(Function("exp", ((term,),)),)),))
    return times(result, (Term(factors=(Function("exp", (tuple(rest),)),)),)) if rest else result


def _reciprocal(terms: Terms) -> Terms:
    """The reciprocal: exact for a number and powers of sizes (which are not zero); else an unknown function."""
    if len(terms) == 1 and not terms[0].bound and not terms[0].guards:
        (term,) = terms
        if all(isinstance(factor, Power) and not factor.symbol.startswith("$") for factor in term.factors):
            powers = tuple(Power(factor.symbol, -factor.power) for factor in term.factors if isinstance(factor, Power))
            return (Term(1 / term.coefficient, (), (), powers),)
    return (Term(factors=(Function("reciprocal", (terms,)),)),)
