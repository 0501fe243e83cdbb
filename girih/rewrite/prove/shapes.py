"""The most general shapes that the operators of a rule take, for inputs whose shapes are not declared.

Every dimension is a symbol of its own at first; each time two sizes have to be the same, one takes the other's place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count, product

from girih.rewrite.prove.expand import expanded, extents_in
from girih.rewrite.prove.refute import misfits
from girih.rewrite.prove.symbolic import DifferentShapesError, MismatchError, UnprovableError
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
        taken, fresh = extents_in(rule), count()
        shapes = dict(rule.shapes)
        for name, rank in zip(missing, ranks, strict=True):
            sizes: list[Extent] = []
            while len(sizes) < rank:
                symbol = (
                    f"{'mnkpqrstuvwabcdefgh'[number % 19]}{number // 19 or ''}" if (number := next(fresh)) >= 0 else ""
                )
                if symbol not in taken and symbol not in rule.inputs:
                    sizes.append(Extent.of(symbol))
            shapes[name] = tuple(sizes)
        candidate = replace(rule, shapes=tuple((name, shapes[name]) for name in rule.inputs))
        try:
            candidate = _unified(candidate, taken)
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


def _unified(rule: Rule, fixed: set[str]) -> Rule:
    for _ in range(MOST_EQUATIONS):
        try:
            expanded(rule)
        except MismatchError as error:
            rule = _with(rule, error, fixed)
            continue
        except DifferentShapesError:
            return rule
        return rule
    raise UnprovableError("too many sizes that have to be the same")


def _with(rule: Rule, error: MismatchError, fixed: set[str]) -> Rule:
    for one, other in ((error.one, error.other), (error.other, error.one)):
        (symbol, *more) = (*one.symbols, "")
        if not more[:-1] and one == Extent.of(symbol) and symbol not in other.symbols and symbol not in fixed:
            shapes = tuple((name, tuple(put(size, {symbol: other}) for size in shape)) for name, shape in rule.shapes)
            return replace(rule, shapes=shapes)
    raise UnprovableError(str(error))
