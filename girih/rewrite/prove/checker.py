"""Replays proofs: the only code that must be right for "proved" to be true, beside the descriptions of operators.

A proof is a list of steps. `normalised` goes through the terms of both sides in a fixed order and asks for the next
step; what each step needs to be sound is checked here, so it does not matter who thought of it: the prover
(`strategy`) the first time, a recorded list the second. At the end both sides must be the same up to the names of
bound indices and the order of sums, products and branches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from girih.rewrite.prove import signs
from girih.rewrite.prove.arithmetic import nonnegative
from girih.rewrite.prove.canonical import ProofError, canonical
from girih.rewrite.prove.expand import expanded
from girih.rewrite.prove.terms import (
    VALUE,
    Factor,
    Facts,
    Fold,
    Function,
    Guard,
    Proof,
    ProofStep,
    Term,
    Terms,
    collected,
    free_of,
    linear,
    substituted,
    sum_text,
    times,
    value_in,
    value_of,
)
from girih.rewrite.rules.extent import Extent
from girih.rewrite.rules.rule import Rule

Advise = Callable[[Term, Facts], "ProofStep | None"]
ONE = Extent.of(1)


def check(proof: Proof) -> tuple[str, ...]:
    """Replays a proof from the descriptions of the operators. Returns the one normal form of each output's two sides.

    Raises:
        ProofError: a step does not follow, or the two sides are not the same in the end.
    """
    pairs = forms(proof.rule, proof.radix, recorded(proof.steps))
    for first, second in pairs:
        if first != second:
            raise ProofError(f"the sides differ: {sum_text(first)} and {sum_text(second)}")
    return tuple(sum_text(first) for first, _ in pairs)


def forms(rule: Rule, radix: Extent | None, advise: Advise) -> list[tuple[Terms, Terms]]:
    """The normal forms of both sides of each output, by the steps that are advised."""
    sides = expanded(rule, radix)
    pairs = zip(sides.source, sides.target, strict=True)
    return [(normalised(one, sides.facts, advise), normalised(other, sides.facts, advise)) for one, other in pairs]


def recorded(steps: tuple[ProofStep | None, ...]) -> Advise:
    """Gives the steps of a proof in turn."""
    left = iter(steps)

    def advise(term: Term, facts: Facts) -> ProofStep | None:
        try:
            return next(left)
        except StopIteration:
            raise ProofError(f"the proof ends before {term.text} is done") from None

    return advise


# ------------------------------------------------------------------------------------------------ normal form


def normalised(terms: Terms, facts: Facts, advise: Advise, depth: int = 0, reducer: str = "sum") -> Terms:
    """Terms with all steps applied, inside of functions too, in canonical order; equal ones are one."""
    done: list[Term] = []
    waiting = list(reversed(terms))
    while waiting:
        term = waiting.pop()
        if term.coefficient:
            step = advise(term, facts)
            results: Terms = (term,)
            if step is None:
                inner = _inside(term, facts.under(term), advise, depth + 1)
                results = _resolved(inner, reducer)
                if results == (inner,) and inner != term:
                    step = advise(inner, facts)
                term = inner
            if step is not None:
                waiting.extend(reversed(applied(step, term, facts, reducer)))
            elif results != (term,):
                waiting.extend(reversed(results))
            else:
                done.append(canonical(term, depth))
        if not waiting:
            done = list(collected(done, reducer))
            waiting = _united(done) if reducer == "sum" else []
    return collected(done, reducer)


def _united(terms: list[Term]) -> list[Term]:
    """Takes two terms away that differ by a condition and its opposite: where one holds or the other, it always does.
    Returns the term without it."""
    known: dict[tuple[Term, Extent], Term] = {}
    for term in terms:
        for guard in term.guards:
            sign, extent = guard
            united = replace(term, guards=tuple(item for item in term.guards if item != guard))
            other = known.get((united, -1 - extent))
            if sign == ">=" and other is not None:
                terms.remove(term)
                terms.remove(other)
                return [united]
            known[united, extent if sign == ">=" else Extent()] = term
    return []


def _inside(term: Term, facts: Facts, advise: Advise, depth: int) -> Term:
    factors: list[Factor] = []
    for factor in term.factors:
        if isinstance(factor, Function):
            arguments = tuple(normalised(item, facts, advise, depth) for item in factor.arguments)
            factors.append(Function(factor.name, arguments))
        elif isinstance(factor, Fold):
            factors.append(Fold(factor.reducer, normalised(factor.branches, facts, advise, depth, factor.reducer)))
        else:
            factors.append(factor)
    return replace(term, factors=tuple(factors))


def _resolved(term: Term, reducer: str) -> Terms:
    """A branch that is a fold itself is that fold's branches; a fold of one value is that value."""
    for place, factor in enumerate(term.factors):
        rest = term.factors[:place] + term.factors[place + 1 :]
        if isinstance(factor, Fold) and len(factor.branches) == 1:
            (only,) = factor.branches
            if not only.bound and not only.guards:
                return times((replace(term, factors=rest),), value_in(only))
        if isinstance(factor, Function) and factor.name == VALUE and len(factor.arguments[0]) == 1:
            (value,) = factor.arguments[0]
            if value.coefficient == 1 and not value.bound and not value.guards and len(value.factors) == 1:
                (fold,) = value.factors
                if isinstance(fold, Fold) and fold.reducer == reducer:
                    outer = replace(term, factors=())
                    return tuple(item for inner in fold.branches for item in times((outer,), (inner,)))
    return (term,)


# ------------------------------------------------------------------------------------------------ steps


def applied(step: ProofStep, term: Term, facts: Facts, reducer: str = "sum") -> list[Term]:
    """The terms whose sum (or fold) the term is, by this step.

    Raises:
        ProofError: the step does not follow.
    """

    def need(holds: bool) -> None:
        if not holds:
            raise ProofError(f"{step} does not follow for {term.text}")

    inside = facts.under(term)
    sizes = dict(term.bound)
    if step.kind in signs.KINDS:  # of values, not of indices
        results = signs.signed(step.kind, term, step.guard, inside) if reducer == "sum" else None
        need(results is not None)
        return list(results or ())
    if step.kind == "split":  # 1 = [e >= 0] + [-1 - e >= 0]
        (extent,) = step.extents
        return [replace(term, guards=(*term.guards, (">=", one))) for one in (extent, -1 - extent)]
    if step.kind == "unused":  # Σ k<K of what does not depend on k is K times it, and a maximum over it is it
        size = sizes[step.variable]
        rest = replace(term, bound=tuple(item for item in term.bound if item[0] != step.variable))
        need(free_of(rest, step.variable) and reducer != "prod")
        if reducer == "sum":
            return list(times(value_of(size), (rest,)))
        need(nonnegative(size - 1, inside))
        return [rest]
    if step.kind == "witness":  # the maximum over k of what does not depend on k, where some k is shown
        need(reducer in ("max", "min") and len(step.extents) == len(sizes) > 0)
        need(not any(size.symbols & sizes.keys() for size in sizes.values()))
        value = replace(
            term, bound=(), guards=tuple(item for item in term.guards if not item[1].symbols & sizes.keys())
        )
        need(all(free_of(value, name) for name in sizes))
        at = dict(zip(sizes, step.extents, strict=True))
        outer = facts.under(value)
        need(all(nonnegative(at[name], outer) and nonnegative(sizes[name] - 1 - at[name], outer) for name in sizes))
        shown = substituted(replace(term, bound=()), at).guards
        need(all(item in value.guards or (item[0] == ">=" and nonnegative(item[1], outer)) for item in shown))
        return [value]
    if step.kind == "single":  # Σ k<1
        need(sizes[step.variable] == ONE)
        rest = replace(term, bound=tuple(item for item in term.bound if item[0] != step.variable))
        return [substituted(rest, {step.variable: Extent()})]
    if step.kind == "tighten":  # lower <= v < lower + size instead of 0 <= v < size
        lower, size = step.extents
        name, new = step.variable, Extent.of(step.variable)
        need(name not in lower.symbols | size.symbols)
        need(all(other not in lower.symbols | size.symbols for other in sizes))
        guards: list[Guard] = []
        for guard in term.guards:
            if guard not in ((">=", new - lower), (">=", lower + size - 1 - new)):
                guards.append(guard)
        removed = len(term.guards) - len(guards)
        need(removed > 0 and nonnegative(size, inside))
        need(nonnegative(lower, inside) and (not lower.terms or (">=", new - lower) in term.guards))
        upper = (">=", lower + size - 1 - new) in term.guards
        need(nonnegative(sizes[name] - lower - size, inside) if upper else lower + size == sizes[name])
        rest = replace(term, guards=tuple(guards), bound=())
        moved = substituted(rest, {name: new + lower})
        return [replace(moved, bound=tuple((one, size if one == name else has) for one, has in term.bound))]
    (sign, extent), others = term.guards[step.guard], term.guards[: step.guard] + term.guards[step.guard + 1 :]
    inside = facts.under(replace(term, guards=others))
    left = extent
    if step.kind == "kill":
        left = step.extents[0]
        need(left == -1 - extent or (sign == "==" and left == extent - 1))
    for by, known in step.because:
        need((">=", known) in inside.guards and nonnegative(by, inside))
        left = left - by * known
    if step.kind == "drop":  # it always holds
        need(nonnegative(left, inside) if sign == ">=" else not extent.terms)
        return [replace(term, guards=others)]
    if step.kind == "kill":  # it never holds
        need(nonnegative(left, inside))
        return []
    if step.kind == "divide":  # a·d + r, where r is too small to matter
        quotient, divisor, rest_ = step.extents
        need(quotient * divisor + rest_ == extent and nonnegative(divisor - 1, inside))
        need(nonnegative(divisor - 1 - rest_, inside))
        if sign == ">=":
            need(nonnegative(rest_, inside))
            return [replace(term, guards=(*others, (">=", quotient)))]
        need(nonnegative(divisor - 1 + rest_, inside))
        return [replace(term, guards=(*others, ("==", quotient), ("==", rest_)))]
    need(step.kind == "solve" and sign == "==" and step.variable in sizes)  # a sum over the one v for which e = 0
    parts = linear(extent, step.variable)
    need(parts is not None and parts[0].number in (1, -1))
    assert parts is not None
    place = -parts[1] if parts[0].number == 1 else parts[1]
    need(all(step.variable not in size.symbols for size in sizes.values()))
    bounds = ((">=", place), (">=", sizes[step.variable] - 1 - place))
    rest = replace(term, bound=tuple(item for item in term.bound if item[0] != step.variable), guards=others)
    rest = substituted(rest, {step.variable: place})
    return [replace(rest, guards=(*rest.guards, *bounds))]
