"""The most general shapes that the operators of a rule take, for inputs whose shapes are not declared.

Every dimension is a symbol of its own at first; each time two sizes have to be the same, one takes the other's place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import count, product

from girih.rewrite.prove.expand import expanded, least_values
from girih.rewrite.prove.refutation.refute import misfits
from girih.rewrite.prove.symbolic import FLOORS, DifferentShapesError, MismatchError, UnprovableError
from girih.rewrite.prove.terms import put
from girih.rewrite.rules.extent import Extent
from girih.rewrite.rules.rule import Rule, RuleError

RANKS = (2, 4, 3, 1)
MOST_EQUATIONS = 40
TRIES = 60
LETTERS = "mnkpqrstuvwabcdefgh"


def shaped(rule: Rule) -> Rule:
    """The rule with a shape for every input.

    Raises:
        RuleError: no shapes of one to four dimensions fit.
    """
    missing = [name for name in rule.inputs if name not in dict(rule.shapes)]
    if not missing:
        return rule
    reason = ""
    for ranks in _ranks(len(missing)):
        taken = set(least_values(rule))
        fresh = (f"{letter}{number or ''}" for number in count() for letter in LETTERS)
        shapes = dict(rule.shapes)
        for name, rank in zip(missing, ranks, strict=True):
            sizes: list[Extent] = []
            while len(sizes) < rank:
                symbol = next(fresh)
                if symbol not in taken and symbol not in rule.inputs:
                    sizes.append(Extent.of(symbol))
            shapes[name] = tuple(sizes)
        candidate = replace(rule, shapes=tuple((name, shapes[name]) for name in rule.inputs))
        try:
            candidate = unified(candidate, taken)
            if not misfits(candidate, TRIES):
                return candidate
        except UnprovableError as error:
            reason = reason or str(error)
    raise RuleError(f"{rule}: no shapes of its inputs were found that fit ({reason}); declare them, as in 'x[m, n]: …'")


def _ranks(many: int) -> Iterator[tuple[int, ...]]:
    for rank in RANKS:
        yield (rank,) * many
    for ranks in product(RANKS, repeat=min(many, 4)):
        if len(set(ranks)) > 1:
            yield (*ranks, *(ranks[-1:] * (many - 4)))


def unified(rule: Rule, fixed: Collection[str]) -> Rule:
    """With the equations between sizes solved that the operators of both sides ask for. fixed: symbols of attributes.

    Raises:
        UnprovableError: they have no solution that is found.
    """
    for _ in range(MOST_EQUATIONS):
        try:
            expanded(rule)
        except MismatchError as error:
            changed = solution(rule, error.one, error.other, fixed)
            if not changed:
                raise UnprovableError(str(error)) from error
            shapes = tuple((name, tuple(put(size, changed) for size in shape)) for name, shape in rule.shapes)
            rule = replace(rule, shapes=shapes)
            continue
        except DifferentShapesError:
            return rule
        return rule
    raise UnprovableError("too many sizes that have to be the same")


def solution(rule: Rule, one: Extent, other: Extent, fixed: Collection[str]) -> dict[str, Extent]:
    """What symbols of sizes have to be for two sizes to be the same; {} if that is not found.

    m = anything is that. m + n = k + p is m = k and n = p, in the order of the inputs, as concatenations are of like
    parts. Of rounded quotients by the same number, what is divided is the same.
    """
    for first, second in ((one, other), (other, one)):
        symbol = next(iter(first.symbols), "")
        if first == Extent.of(symbol) and symbol not in second.symbols and symbol not in {*fixed, *FLOORS}:
            return {symbol: second}
    difference = one - other
    floors = [FLOORS[name] for name in sorted(difference.symbols) if name in FLOORS]
    if floors:
        same = len(floors) == 2 and floors[0][1] == floors[1][1]
        return solution(rule, floors[0][0], floors[1][0], fixed) if same else {}
    order = [symbol for _, shape in rule.shapes for size in shape for monomial, _ in size.terms for symbol in monomial]

    def place(monomial: tuple[str, ...]) -> int:
        return min((order.index(name) for name in monomial if name in order and name not in fixed), default=0)

    above = sorted((monomial for monomial, by in difference.terms if by > 0 and monomial), key=place)
    below = sorted((monomial for monomial, by in difference.terms if by < 0 and monomial), key=place)
    if len(above) == len(below) and not any(not monomial for monomial, _ in difference.terms):
        for first_, second_ in product(above, below):
            attributes = [sorted(name for name in item if name in fixed) for item in (first_, second_)]
            sizes = [[name for name in item if name not in fixed] for item in (first_, second_)]
            if attributes[0] == attributes[1] and len(sizes[0]) == len(sizes[1]) == 1:
                return {sizes[0][0]: Extent.of(sizes[1][0])}
    for monomial, by in difference.terms:
        if len(monomial) == 1 and by in (1, -1) and monomial[0] not in fixed:
            rest = difference - Extent(((monomial, by),))
            if monomial[0] not in rest.symbols:
                return {monomial[0]: -rest if by == 1 else rest}
    return {}
