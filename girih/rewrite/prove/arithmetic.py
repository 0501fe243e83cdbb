"""Polynomials that are never negative, and their division: all the arithmetic that proofs need.

`nonnegative` puts the least and the greatest value of each index variable in its place, then the least value of each
size; what then has no negative coefficient is not negative. It may miss some that are.
"""

from __future__ import annotations

from functools import lru_cache

from girih.rewrite.prove.terms import Facts, linear
from girih.rewrite.rules.extent import Extent

ONE = Extent.of(1)


def nonnegative(extent: Extent, facts: Facts) -> bool:
    """Is it >= 0 for all values of the symbols? False: perhaps not."""
    for name in sorted(extent.symbols, reverse=True):
        if name in facts.ranges:
            parts = linear(extent, name)
            if parts is None:
                return False
            coefficient, rest = parts
            if nonnegative(coefficient, facts):
                return nonnegative(rest, facts)
            if nonnegative(-coefficient, facts):
                return nonnegative(rest + coefficient * (facts.ranges[name] - 1), facts)
            return False
    if any(name.startswith("$") for name in extent.symbols):
        return False
    for name in sorted(extent.symbols & facts.floors.keys()):  # n - d + 1 <= d·floor(n/d) <= n
        parts = linear(extent, name)
        if parts is not None:
            (coefficient, rest), (numerator, divisor) = parts, facts.floors[name]
            times_, over = divided(coefficient, divisor)
            if not over.terms and nonnegative(-times_, facts) and nonnegative(rest + times_ * numerator, facts):
                return True
            low = numerator - divisor + 1
            if not over.terms and nonnegative(times_, facts) and nonnegative(rest + times_ * low, facts):
                return True
    if all(by >= 0 for _, by in extent.terms):
        return True
    if all(by <= 0 for _, by in extent.terms):
        return False
    least = {name: Extent.of(name) + facts.least.get(name, 1) for name in extent.symbols}
    return all(by >= 0 for _, by in _shifted(extent, least).terms)


def _shifted(extent: Extent, least: dict[str, Extent]) -> Extent:
    total = Extent()
    for monomial, by in extent.terms:
        factor = Extent.of(by)
        for name in monomial:
            factor = factor * least[name]
        total = total + factor
    return total


@lru_cache(maxsize=65536)
def divided(extent: Extent, divisor: Extent) -> tuple[Extent, Extent]:
    """(quotient, rest) by a monomial: the quotient of what it divides; a sum divides only its own multiples."""
    if len(divisor.terms) != 1:
        return (ONE, Extent()) if extent == divisor else (-ONE, Extent()) if extent == -divisor else (Extent(), extent)
    ((monomial, by),) = divisor.terms
    quotient, rest = Extent(), Extent()
    for item, times_ in extent.terms:
        left = list(item)
        fits = times_ % by == 0
        for name in monomial:
            if name in left:
                left.remove(name)
            else:
                fits = False
        if fits:
            quotient = quotient + Extent(((tuple(left), times_ // by),))
        else:
            rest = rest + Extent(((item, times_),))
    return quotient, rest
