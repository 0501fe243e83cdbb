"""One way to write a term: names of bound indices, and orders, that follow from the term alone.

The names are those of the order, among all orders of indices that look alike, whose text comes first.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import permutations, product
from math import factorial, prod

from girih.rewrite.prove.terms import Factor, Fold, Function, Term, Terms, substituted, written
from girih.rewrite.rules.extent import Extent

MOST_ORDERS = 5040


class ProofError(ValueError):
    """What does not follow, with the step and the term."""


@lru_cache(maxsize=65536)
def canonical(term: Term, depth: int) -> Term:
    """With names for bound indices, and an order of guards and factors, that follow from the term alone."""
    marks: dict[str, list[str]] = {}
    for name, size in term.bound:
        blind = {other: Extent.of("$?") for other, _ in term.bound} | {name: Extent.of("$!")}
        seen = replace(term, bound=())
        marks.setdefault(f"{written(size)} {_ordered(substituted(seen, blind)).text}", []).append(name)
    groups = [marks[mark] for mark in sorted(marks)]
    if prod(factorial(len(group)) for group in groups) > MOST_ORDERS:
        raise ProofError("a sum has too many indices that look alike")
    sizes = dict(term.bound)
    best: Term | None = None
    for order in product(*(permutations(group) for group in groups)):
        names = [name for group in order for name in group]
        values = {name: Extent.of(f"${depth}.{place}") for place, name in enumerate(names)}
        listed = replace(term, bound=tuple((name, sizes[name]) for name in names))
        candidate = _ordered(substituted(listed, values))
        if best is None or candidate.text < best.text:
            best = candidate
    assert best is not None
    return best


def _ordered(term: Term) -> Term:
    guards = []
    for sign, extent in term.guards:
        if sign == "==" and extent.terms and extent.terms[0][1] < 0:
            extent = -extent
        guards.append((sign, extent))
    guards = sorted(set(guards), key=lambda guard: (guard[0], written(guard[1])))
    factors = tuple(sorted((_sorted(factor) for factor in term.factors), key=lambda factor: factor.text))
    return replace(term, guards=tuple(guards), factors=factors)


def _sorted(factor: Factor) -> Factor:
    if isinstance(factor, Function):
        return Function(factor.name, tuple(map(_in_order, factor.arguments)))
    return Fold(factor.reducer, _in_order(factor.branches)) if isinstance(factor, Fold) else factor


def _in_order(terms: Terms) -> Terms:
    return tuple(sorted(map(_ordered, terms), key=lambda term: term.text))
