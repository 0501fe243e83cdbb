"""What follows from signs and order: the steps of proofs that look at values, where others look at indices.

    a · a >= 0                    so  max(0, a · a) = a · a                        `dominated`
    max(0, t)² = t · max(0, t)                                                     `rectified`
    c >= 0                        so  max(0, c · t) = c · max(0, t)                `common`
    f grows, and f(0) = 0         so  max(0, f(t)) = f(max(0, t))                  `increasing`

A sum is seen to be >= 0 if all its terms are; a term, if its factors are, or come in pairs, or are t and max(0, t). An
increasing function is a sum of t, t³, … and products of max(0, t). The maximum over a window that lies outside of its
tensor is minus infinity, so that of such maxima only what is linear or of an odd power is taken out. Equal forms are
proved, others are not refuted: `never_negative` may miss some that are.

Cost: the size of the term, for each step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from math import gcd, lcm

from girih.rewrite.prove.terms import (
    Factor,
    Facts,
    Fold,
    Function,
    Power,
    Term,
    Terms,
    branch,
    collected,
    free_of,
    number,
    times,
    value_in,
)
from girih.rewrite.rules.extent import Extent

KINDS = ("dominated", "rectified", "common", "increasing")
POSITIVE = frozenset(("abs", "exp", "sqrt", "rsqrt"))


def signed(kind: str, term: Term, place: int, facts: Facts) -> Terms | None:
    """The sum that a term is, by a step on its factor at a place; None if it does not follow. facts: inside of it."""
    fold = term.factors[place] if place < len(term.factors) else None
    if not isinstance(fold, Fold) or fold.reducer not in ("max", "min"):
        return None
    rest = term.factors[:place] + term.factors[place + 1 :]
    if kind == "rectified":
        value = _rectified(fold)
        found = value if value is not None and fold in rest else None
    else:
        found = {"dominated": _dominated, "common": _common, "increasing": _increasing}[kind](fold, facts)
    return None if found is None else times((replace(term, factors=rest),), found)


# ------------------------------------------------------------------------------------------------ signs


def never_negative(terms: Terms, facts: Facts) -> bool:
    """Is the sum >= 0 for all tensors? False: perhaps not."""
    return all(term.coefficient > 0 and not _unsigned(term.factors, facts.under(term)) for term in terms)


def _unsigned(factors: tuple[Factor, ...], facts: Facts) -> Counter[Factor]:
    """The factors of a product by whose signs it is below zero, or not."""
    left = Counter(
        {item: 1 for item, count in Counter(factors).items() if count % 2 and not _is_never_negative(item, facts)}
    )
    for item in factors:
        value = _rectified(item)
        if value is not None and len(value) == 1 and _is_product(value[0]) and value[0].coefficient > 0:
            own = Counter(value[0].factors)
            if own <= left:  # where max(0, t) is not zero, t is above it
                left -= own
    return left


def _is_never_negative(factor: Factor, facts: Facts) -> bool:
    if isinstance(factor, Power):
        return factor.symbol in facts.sizes
    if isinstance(factor, Fold) and factor.reducer == "max":
        return any(
            _is_product(item) and never_negative(value_in(item), facts) for item in factor.branches
        )  # one of those that are always there
    if isinstance(factor, Function) and factor.name == "reciprocal":
        return never_negative(factor.arguments[0], facts)
    return isinstance(factor, Function) and factor.name in POSITIVE


def _is_product(term: Term) -> bool:
    """Nothing but factors: not summed, and under no condition."""
    return not term.bound and not term.guards


def _rectified(factor: Factor) -> Terms | None:
    """t, of max(0, t)."""
    if not isinstance(factor, Fold) or factor.reducer != "max" or len(factor.branches) != 2:
        return None
    if not all(map(_is_product, factor.branches)):
        return None
    values = sorted(map(value_in, factor.branches), key=len)
    return values[1] if not values[0] else None


# ------------------------------------------------------------------------------------------------ steps


def _dominated(fold: Fold, facts: Facts) -> Terms | None:
    """Without a branch that another, which is always there, is never below (of a minimum: never above)."""
    sign = 1 if fold.reducer == "max" else -1
    for number_, less in enumerate(fold.branches):
        for more in fold.branches[:number_] + fold.branches[number_ + 1 :]:
            if not _is_product(more):
                continue
            difference = (*times(number(sign), value_in(more)), *times(number(-sign), value_in(less)))
            if never_negative(collected(difference, "sum"), facts.under(less)):
                rest = fold.branches[:number_] + fold.branches[number_ + 1 :]
                return (Term(factors=(Fold(fold.reducer, rest),)),)
    return None


def _common(fold: Fold, facts: Facts) -> Terms | None:
    """A number above zero and factors that are never below it, in all terms of all branches, before the fold."""
    inner = [(item, term) for item in fold.branches for term in value_in(item)]
    if not inner:
        return None
    always = all(map(_is_product, fold.branches))
    shared = reduce(lambda one, other: one & other, (Counter(term.factors) for _, term in inner))
    kept: Counter[Factor] = Counter()
    for factor, count in shared.items():
        if isinstance(factor, Power):
            kept[factor] = count * (factor.symbol in facts.sizes)
        elif always and all(_is_free(factor, (*item.bound, *term.bound)) for item, term in inner):
            kept[factor] = count if _is_never_negative(factor, facts) else count - count % 2
    content = Fraction(
        gcd(*(term.coefficient.numerator for _, term in inner)),
        lcm(*(term.coefficient.denominator for _, term in inner)),
    )
    taken = tuple(kept.elements())
    if content == 1 and not taken:
        return None

    def divided(term: Term) -> Term:
        left = Counter(term.factors) - kept
        return replace(term, coefficient=term.coefficient / content, factors=tuple(left.elements()))

    branches = tuple(_with_value(item, map(divided, value_in(item))) for item in fold.branches)
    return (Term(content, (), (), (*taken, Fold(fold.reducer, branches))),)


def _is_free(factor: Factor, bound: Iterable[tuple[str, Extent]]) -> bool:
    return all(free_of(Term(factors=(factor,)), name) for name, _ in bound)


def _increasing(fold: Fold, facts: Facts) -> Terms | None:
    """An increasing function of one branch's t, where the others are 0, of the fold of t."""
    (item, *others) = sorted(fold.branches, key=lambda item: not value_in(item))
    terms = value_in(item)
    if any(map(value_in, others)) or not terms or not all(map(_is_product, terms)):
        return None
    always = all(map(_is_product, fold.branches))
    for t in dict.fromkeys(factor for term in terms for factor in term.factors):
        above = Fold("max", tuple(map(branch, ((), (Term(factors=(t,)),)))))
        above = replace(above, branches=tuple(sorted(above.branches, key=lambda one: one.text)))
        powers = [_powers(term, t, above) for term in terms]
        if powers == [(1, 0)] or not all(_grows(power, always) for power in powers):
            continue
        if not always and not any(q == 0 for p, q in powers):
            continue
        inner = Fold(fold.reducer, tuple(_with_value(one, (Term(factors=(t,)),) if one is item else ())
                                         for one in fold.branches))  # fmt: skip
        over = Fold("max", (branch(()), branch((Term(factors=(inner,)),))))
        return tuple(
            Term(term.coefficient, (), (), (*[inner] * p, *[over] * q))
            for term, (p, q) in zip(terms, powers, strict=True)
        )
    return None


def _powers(term: Term, t: Factor, above: Fold) -> tuple[int, int]:
    """How often it has t and max(0, t); (0, 0) if it has anything else, or less than nothing of it."""
    p, q = term.factors.count(t), term.factors.count(above)
    return (p, q) if p + q == len(term.factors) and term.coefficient > 0 else (0, 0)


def _grows(powers: tuple[int, int], always: bool) -> bool:
    """Does t^p · max(0, t)^q grow with t? always: t is never minus infinity."""
    p, q = powers
    return p % 2 == 1 if q == 0 else always or p == 0


def _with_value(item: Term, terms: Iterable[Term]) -> Term:
    """A branch with another value."""
    return branch(tuple(terms), item.bound, item.guards)
