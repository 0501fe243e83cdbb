"""Sums of products over affine indices with symbolic extents: what both sides of a rule are brought to.

    Σ k<K  [k - m >= 0] · 1/3 · a[i, k] · exp(b[k - m, j])

A term is a number times guards (1 where the condition holds, else 0) times factors, summed over its bound indices. An
index is a polynomial: an `Extent` whose symbols are sizes, and index variables, which begin with "$".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TypeAlias

from girih.rewrite.rules.extent import Extent
from girih.rewrite.rules.rule import Rule

Guard: TypeAlias = tuple[str, Extent]
"""(">=", e): e >= 0. ("==", e): e = 0."""
Terms: TypeAlias = "tuple[Term, ...]"
"""Their sum; or, in a fold, its branches."""


@dataclass(frozen=True)
class Read:
    """An element of an input."""

    tensor: str
    index: tuple[Extent, ...]

    @cached_property
    def text(self) -> str:
        return f"{self.tensor}[{', '.join(map(written, self.index))}]"


@dataclass(frozen=True)
class Power:
    """A size, or another symbol that is a number, to a power; negative powers only of what is not zero."""

    symbol: str
    power: int = 1

    @property
    def text(self) -> str:
        return self.symbol if self.power == 1 else f"{self.symbol}^{self.power}"


@dataclass(frozen=True)
class Function:
    """A function of which nothing is known but its name and its arguments, each a sum."""

    name: str
    arguments: tuple[Terms, ...]

    @cached_property
    def text(self) -> str:
        return f"{self.name}({', '.join(map(sum_text, self.arguments))})"


@dataclass(frozen=True)
class Fold:
    """max, min or prod over branches: a branch is a term whose only factor is `VALUE` of a sum, taken over its bound
    indices where its guards hold."""

    reducer: str
    branches: Terms

    @cached_property
    def text(self) -> str:
        return f"{self.reducer}{{{'; '.join(item.text for item in self.branches)}}}"


Factor: TypeAlias = "Read | Power | Function | Fold"
VALUE = "value"


@dataclass(frozen=True)
class Term:
    coefficient: Fraction = Fraction(1)
    bound: tuple[tuple[str, Extent], ...] = ()
    guards: tuple[Guard, ...] = ()
    factors: tuple[Factor, ...] = ()

    @cached_property
    def text(self) -> str:
        parts = ["Σ " + ", ".join(f"{name}<{written(size)}" for name, size in self.bound)] if self.bound else []
        parts += [f"[{written(extent)} {sign} 0]" for sign, extent in self.guards]
        if self.coefficient != 1 or not self.factors:
            parts.append(str(self.coefficient))
        return " ".join([*parts, " · ".join(factor.text for factor in self.factors)]).strip()


@dataclass(frozen=True)
class Facts:
    """What holds where a term stands. ranges: index variables, each from 0 to below its extent. least: of symbols.
    floors: what a symbol rounds down: (numerator, divisor). guards: that hold. sizes: symbols that are whole numbers
    above zero, wherever the rule is used."""

    ranges: Mapping[str, Extent] = field(default_factory=dict)
    least: Mapping[str, int] = field(default_factory=dict)
    floors: Mapping[str, tuple[Extent, Extent]] = field(default_factory=dict)
    guards: tuple[Guard, ...] = ()
    sizes: frozenset[str] = frozenset()

    def under(self, term: Term) -> Facts:
        """Inside of a term."""
        if not term.bound and not term.guards:
            return self
        return replace(self, ranges={**self.ranges, **dict(term.bound)}, guards=(*self.guards, *term.guards))


@dataclass(frozen=True)
class ProofStep:
    """One step of a proof, on one term. guard: its number in the term. extents: as the kind of step needs them.
    because: (factor, guard) whose sum is taken away before the rest is seen to be >= 0."""

    kind: str
    guard: int = 0
    variable: str = ""
    extents: tuple[Extent, ...] = ()
    because: tuple[tuple[Extent, Extent], ...] = ()

    def __str__(self) -> str:
        parts = [self.kind, *([self.variable] if self.variable else []), *map(written, self.extents)]
        why = " + ".join(f"({written(by)})·({written(guard)})" for by, guard in self.because)
        return " ".join(parts) + (f" because of {why}" if why else "")


@dataclass(frozen=True)
class Proof:
    """Steps that bring both sides of a rule to one form; None: nothing more is to be done on a term. radix: by which
    output dimensions that are multiples of it are indexed in two parts. `checker.check` replays it."""

    rule: Rule
    steps: tuple[ProofStep | None, ...]
    radix: Extent | None = None


def sum_text(terms: Terms) -> str:
    return " + ".join(term.text for term in terms) or "0"


@lru_cache(maxsize=65536)
def written(extent: Extent) -> str:
    return str(extent)


# ------------------------------------------------------------------------------------------------ substitution


@lru_cache(maxsize=65536)
def linear(extent: Extent, name: str) -> tuple[Extent, Extent] | None:
    """(coefficient, rest) of a symbol; None where it is multiplied by itself."""
    coefficient, rest = [], []
    for monomial, by in extent.terms:
        if name not in monomial:
            rest.append((monomial, by))
        elif monomial.count(name) > 1:
            return None
        else:
            coefficient.append((tuple(item for item in monomial if item != name), by))
    return Extent(tuple(sorted(coefficient))), Extent(tuple(rest))


def put(extent: Extent, values: Mapping[str, Extent]) -> Extent:
    """The extent with these extents in the place of symbols."""
    if extent.symbols.isdisjoint(values):
        return extent
    total = Extent()
    for monomial, by in extent.terms:
        product = Extent.of(by)
        for name in monomial:
            product = product * (values[name] if name in values else Extent.of(name))
        total = total + product
    return total


def substituted(term: Term, values: Mapping[str, Extent]) -> Term:
    """With extents for index variables that are not bound in it. A name is bound once in all of a proof's terms, but
    for copies, so that nothing is captured; bound variables that are named anew are in `values` too."""
    bound = []
    for name, size in term.bound:
        new = values.get(name)
        bound.append((written(new) if new is not None else name, put(size, values)))
    guards = tuple((sign, put(extent, values)) for sign, extent in term.guards)
    return Term(term.coefficient, tuple(bound), guards, tuple(_put(item, values) for item in term.factors))


def _put(factor: Factor, values: Mapping[str, Extent]) -> Factor:
    if isinstance(factor, Read):
        return Read(factor.tensor, tuple(put(index, values) for index in factor.index))
    if isinstance(factor, Function):
        arguments = tuple(tuple(substituted(item, values) for item in terms) for terms in factor.arguments)
        return Function(factor.name, arguments)
    if isinstance(factor, Fold):
        return Fold(factor.reducer, tuple(substituted(item, values) for item in factor.branches))
    return factor


def free_of(term: Term, name: str) -> bool:
    """Is a variable nowhere in a term but in its list of bound ones?"""
    if any(name in size.symbols for _, size in term.bound) or any(name in item.symbols for _, item in term.guards):
        return False
    return all(_free_of(factor, name) for factor in term.factors)


def _free_of(factor: Factor, name: str) -> bool:
    if isinstance(factor, Read):
        return all(name not in index.symbols for index in factor.index)
    if isinstance(factor, Function):
        return all(free_of(item, name) for terms in factor.arguments for item in terms)
    if isinstance(factor, Fold):
        return all(free_of(item, name) for item in factor.branches)
    return factor.symbol != name


# ------------------------------------------------------------------------------------------------ arithmetic


def number(value: Fraction | int) -> Terms:
    return (Term(Fraction(value)),) if value else ()


def value_of(extent: Extent) -> Terms:
    """An extent as a number."""
    terms = []
    for monomial, by in extent.terms:
        terms.append(Term(Fraction(by), (), (), tuple(Power(name) for name in monomial)))
    return tuple(term_of(term) for term in terms)


def times(one: Terms, other: Terms) -> Terms:
    """The product of two sums, as one sum."""
    return tuple(_product(first, second) for first in one for second in other)


def _product(first: Term, second: Term) -> Term:
    taken = {name for name, _ in first.bound}
    values = {}
    for name, _ in second.bound:
        if name in taken:  # a copy of the same sum
            new = name
            while new in taken or any(new == other for other, _ in second.bound):
                new += "'"
            taken.add(new)
            values[name] = Extent.of(new)
    second = substituted(second, values) if values else second
    guards = tuple(dict.fromkeys((*first.guards, *second.guards)))
    factors = (*first.factors, *second.factors)
    return term_of(Term(first.coefficient * second.coefficient, (*first.bound, *second.bound), guards, factors))


def term_of(term: Term) -> Term:
    """Powers of one symbol as one factor."""
    powers: dict[str, int] = {}
    rest = []
    for factor in term.factors:
        if isinstance(factor, Power):
            powers[factor.symbol] = powers.get(factor.symbol, 0) + factor.power
        else:
            rest.append(factor)
    if not powers:
        return term
    kept = (Power(name, power) for name, power in sorted(powers.items()) if power)
    return replace(term, factors=(*kept, *rest))


def guarded(terms: Terms, guards: Iterable[Guard]) -> Terms:
    more = tuple(guards)
    return tuple(replace(term, guards=tuple(dict.fromkeys((*term.guards, *more)))) for term in terms)


def summed(terms: Terms, bound: tuple[tuple[str, Extent], ...]) -> Terms:
    return tuple(replace(term, bound=(*bound, *term.bound)) for term in terms)


def branch(value: Terms, bound: tuple[tuple[str, Extent], ...] = (), guards: tuple[Guard, ...] = ()) -> Term:
    return Term(Fraction(1), bound, guards, (Function(VALUE, (value,)),))


def value_in(item: Term) -> Terms:
    """The value of a branch."""
    (value,) = item.factors
    assert isinstance(value, Function)
    assert value.name == VALUE
    return value.arguments[0]


def collected(terms: Iterable[Term], reducer: str) -> Terms:
    """Equal terms as one, in order."""
    totals: dict[Term, Fraction] = {}
    for term in terms:
        key = replace(term, coefficient=Fraction(1))
        totals[key] = totals.get(key, Fraction(0)) + (term.coefficient if reducer == "sum" else 1)
    if reducer == "prod":
        kept = [key for key, count in totals.items() for _ in range(int(count))]
    elif reducer == "sum":
        kept = [replace(key, coefficient=total) for key, total in totals.items() if total]
    else:
        kept = list(totals)
    return tuple(sorted(kept, key=lambda term: term.text))
