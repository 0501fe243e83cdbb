"""Which step of a proof to take next: nothing here has to be right, as `checker` looks at every step.

Conditions that always hold are dropped, terms with one that never holds too; conditions of equality are divided by the
size of the inner index (g·o + c = g'·o + c' is two) and solved for a bound index; conditions on one bound index
become its range; and functions of sums with conditions are split into cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from girih.rewrite.prove import signs
from girih.rewrite.prove.arithmetic import ONE, divided, nonnegative
from girih.rewrite.prove.canonical import ProofError
from girih.rewrite.prove.checker import applied
from girih.rewrite.prove.samples import COUNT, Because, Sampled, Samples
from girih.rewrite.prove.terms import Facts, Fold, Function, Guard, ProofStep, Term, free_of, linear
from girih.rewrite.rules.extent import Extent


class Searcher:
    """Advises, and keeps what it advised. most: steps, after which it gives up."""

    def __init__(self, most: int = 2000) -> None:
        self.steps: list[ProofStep | None] = []
        self.most = most
        self.samples = Samples()

    def __call__(self, term: Term, facts: Facts) -> ProofStep | None:
        if len(self.steps) >= self.most:
            raise ProofError(f"more than {self.most} steps")
        step = next(candidates(term, facts, self.samples), None)
        self.steps.append(step)
        return step


def candidates(term: Term, facts: Facts, samples: Samples) -> Iterator[ProofStep]:
    for step in _candidates(term, facts, samples):
        try:
            applied(step, term, facts, "sum" if not _is_branch(term) else "max")
        except ProofError:
            continue
        yield step


def _is_branch(term: Term) -> bool:
    return len(term.factors) == 1 and isinstance(term.factors[0], Function) and term.factors[0].name == "value"


def _candidates(term: Term, facts: Facts, samples: Samples) -> Iterator[ProofStep]:
    if term.guards:
        yield from _decided(term, facts, samples)
    for number, (sign, extent) in enumerate(term.guards):
        if sign == "==":
            for name, _ in term.bound:
                parts = linear(extent, name)
                if parts is not None and parts[0].number in (1, -1):
                    yield ProofStep("solve", number, name)
    for name, size in term.bound:
        if size == ONE:
            yield ProofStep("single", 0, name)
    yield from _ranges(term)
    for name, _ in term.bound:
        if free_of(replace(term, bound=tuple(item for item in term.bound if item[0] != name)), name):
            yield ProofStep("unused", 0, name)
    for sign, extent in _hidden(term):
        inside = facts.under(term)
        sampled = samples.where(inside)
        for one in [extent] if sign == ">=" else [extent, -extent]:
            if _because(one, inside, sampled) is None and _because(-1 - one, inside, sampled) is None:
                yield ProofStep("split", 0, "", (one,))
                return
    if _is_branch(term):
        yield from _witnesses(term)
    for number, factor in enumerate(term.factors):
        if isinstance(factor, Fold):
            yield from (ProofStep(kind, number) for kind in signs.KINDS)


def _witnesses(term: Term) -> Iterator[ProofStep]:
    """Indices at which the conditions of a branch hold: where a window begins to be inside of its tensor."""
    choices = []
    for name, _ in term.bound:
        values = [Extent()]
        for sign, extent in term.guards:
            parts = linear(extent, name)
            if sign == ">=" and parts is not None and parts[0].number == 1:
                offset = Extent(tuple(item for item in parts[1].terms if not any("$" in one for one in item[0])))
                values.append(-offset)
        choices.append(values[::-1])
    for chosen in product(*choices):
        yield ProofStep("witness", 0, "", chosen)


def _decided(term: Term, facts: Facts, samples: Samples) -> Iterator[ProofStep]:
    """Conditions that always hold or never, or that can be divided."""
    sampled = samples.where(facts.under(term))
    outer = np.ones(COUNT, bool)
    for guard in facts.guards:
        outer &= sampled.holds(guard)
    own = [sampled.holds(guard) for guard in term.guards]
    possible = bool((np.logical_and.reduce([outer, *own]) & sampled.valid).any())
    for number, (sign, extent) in enumerate(term.guards):
        inside = facts.under(replace(term, guards=term.guards[:number] + term.guards[number + 1 :]))
        others = np.logical_and.reduce([outer, *own[:number], *own[number + 1 :]]) & sampled.valid
        if not (others & ~own[number]).any():
            if sign == "==" and not extent.terms:
                yield ProofStep("drop", number)
            elif sign == ">=" and (because := _because(extent, inside, sampled)) is not None:
                yield ProofStep("drop", number, "", (), because)
        for left in [] if possible else [-1 - extent] if sign == ">=" else [-1 - extent, extent - 1]:
            because = _because(left, inside, sampled)
            if because is not None:
                yield ProofStep("kill", number, "", (left,), because)
        yield from _divisions(number, sign, extent, inside, sampled)


def _because(left: Extent, facts: Facts, sampled: Sampled) -> Because | None:
    """What to take away for the rest to be >= 0: nothing, or one of the guards that hold, so often."""
    symbols = left.symbols
    guards = tuple([known for sign, known in facts.guards if sign == ">=" and not known.symbols.isdisjoint(symbols)])
    key = left, guards, _ranges_of(symbols.union(*(known.symbols for known in guards)), facts)
    reasons = sampled.samples.reasons
    if key not in reasons:
        reasons[key] = _reason(left, guards, facts, sampled)
    return reasons[key]


def _ranges_of(symbols: Iterable[str], facts: Facts) -> tuple[tuple[str, Extent], ...]:
    return tuple([(name, facts.ranges[name]) for name in symbols if name in facts.ranges])


def _reason(left: Extent, guards: Iterable[Extent], facts: Facts, sampled: Sampled) -> Because | None:
    below = sampled.of(left)
    if (below >= 0)[sampled.valid].all() and nonnegative(left, facts):
        return ()
    for known in guards:
        factors = [ONE]
        for name in known.symbols:
            first, second = linear(left, name), linear(known, name)
            if first and second and second[0].terms:
                by, over = divided(first[0], second[0])
                if not over.terms and by.terms and by not in factors:
                    factors.append(by)
        numbers = sampled.of(known)
        for by in factors:
            if (below < sampled.of(by) * numbers)[sampled.valid].any():
                continue
            if nonnegative(left - by * known, facts) and nonnegative(by, facts):
                return ((by, known),)
    return None


def _divisions(number: int, sign: str, extent: Extent, facts: Facts, sampled: Sampled) -> Iterator[ProofStep]:
    key = sign, extent, _ranges_of(extent.symbols, facts)
    parts = sampled.samples.parts
    if key not in parts:
        parts[key] = list(_parts(sign, extent, facts, sampled))
    for extents in parts[key]:
        yield ProofStep("divide", number, "", extents)


def _parts(sign: str, extent: Extent, facts: Facts, sampled: Sampled) -> Iterator[tuple[Extent, Extent, Extent]]:
    """(quotient, divisor, rest), where the rest is too small to matter."""
    indices = [name for name in extent.symbols if name in facts.ranges]
    divisors = {facts.ranges[name] for name in indices}
    for name in indices:
        parts = linear(extent, name)
        if parts is not None and len(parts[0].terms) == 1:
            divisors |= {parts[0], -parts[0]}
    for divisor in sorted(divisors, key=str):
        if divisor == ONE or (divisor.number is not None and divisor.number <= 1) or len(divisor.terms) != 1:
            continue
        quotient, rest = divided(extent, divisor)
        if not quotient.terms:
            continue
        size, numbers = sampled.of(divisor), sampled.of(rest)
        for shift in (0, 1, -1) if sign == ">=" else (0,):
            left = numbers + size * shift
            fits = (left < size) & ((left >= 0) if sign == ">=" else (left > -size))
            if fits[sampled.valid].all():
                yield quotient - shift, divisor, rest + divisor * shift


def _ranges(term: Term) -> Iterator[ProofStep]:
    """v >= lower, v <= upper: one or both become the range of v."""
    bound = {name for name, _ in term.bound}
    for name, size in term.bound:
        lowers, uppers = [Extent()], [size - 1]
        for sign, extent in term.guards:
            parts = linear(extent, name)
            if sign != ">=" or parts is None or not parts[1].symbols.isdisjoint(bound):
                continue
            if parts[0].number == 1:
                lowers.append(-parts[1])
            elif parts[0].number == -1:
                uppers.append(parts[1])
        for lower in reversed(lowers):
            for upper in reversed(uppers):
                yield ProofStep("tighten", 0, name, (lower, upper - lower + 1))


def _hidden(term: Term) -> Iterator[Guard]:
    """The conditions of sums inside of functions, and of the values of branches, that do not depend on those sums."""
    for factor in term.factors:
        if isinstance(factor, Function):
            for terms in factor.arguments:
                for item in terms:
                    yield from _outer_guards(item)
        elif isinstance(factor, Fold):
            for item in factor.branches:
                yield from _outer_guards(item)


def _outer_guards(item: Term) -> Iterator[Guard]:
    inner = {name for name, _ in item.bound}
    for guard in item.guards:
        if guard[1].symbols.isdisjoint(inner):
            yield guard
