"""Rules applied to an e-graph, round by round, until nothing is new or a limit is met.

In each round all places of all rules are found first, and then all targets are added and joined with what they equal.
A rule with several outputs is matched once for all of them, and its outputs are joined each with its own (as in TENSAT,
Yang et al., MLSys 2021). Circles, as of TASO's Fig. 2.6, are in the e-graph; extraction leaves them out.

Such rules put tensors side by side, and what they make they find again: without end, where a tensor is put beside what
holds it already. No tensor is put beside itself, and where a rule takes its outputs in any order, tensors are put side
by side in one order, the older first. Of k products of one tensor 2ᵏ joins are kept then, not k! · 2ᵏ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from girih.graph import Ref
from girih.layout.budget import Budget
from girih.rewrite.rules.apply import Match, NodeIndex, built, matches
from girih.rewrite.rules.rule import Expression, Rule, Term, Variable, walk
from girih.rewrite.rules.vocabulary import Call
from girih.rewrite.saturation.egraph import CAT, EGraph

MATCHED, APPLIED = 1_000.0, 500_000.0
"""Nanoseconds of looking for one rule, for each node of the e-graph, and of adding one replacement to it."""


@dataclass(frozen=True)
class Explored:
    """stopped: `saturated` where no rule makes anything new; else the limit that was met. applied: replacements.
    seconds: by the clock, and `work`: as they were counted."""

    stopped: str
    rounds: int
    applied: int
    seconds: float
    work: float


def explore(egraph: EGraph, rules: Sequence[Rule], *, nodes: int, rounds: int, seconds: float) -> Explored:
    """Grow the e-graph. nodes: at most so many, and what one more replacement adds; rounds, seconds of counted work
    (`girih.layout.budget.Budget`): at most."""
    began, budget = time.monotonic(), Budget(seconds)
    done: list[set[tuple[object, ...]]] = [set() for _ in rules]
    applied = 0

    def why() -> str:
        if egraph.size >= nodes:
            return f"limit of {nodes} nodes"
        if not budget.late:
            return ""
        return f"limit of {seconds:g} seconds" + (" of work, by the clock" if budget.why == "clock" else "")

    def explored(stopped: str, rounds: int) -> Explored:
        return Explored(stopped, rounds, applied, time.monotonic() - began, budget.spent / 1e9)

    for number in range(rounds):
        index = NodeIndex({name: egraph.values[name] for name in egraph.nodes}, egraph.every())
        places: list[Match] = []
        budget.spend(MATCHED * len(rules) * egraph.size)
        for rule, seen in zip(rules, done, strict=True):
            for match in matches(rule, index, seen, _wanted(egraph, rule)):
                places.append(match)
                if len(places) % 64 == 63 and why():
                    break
        if not places:
            return explored("saturated", number)
        for match in places:
            if limit := why():
                egraph.rebuild()
                return explored(limit, number + 1)
            budget.spend(APPLIED)
            now = replace(match, names={item: egraph.find(name) for item, name in match.names.items()})
            targets = _targets(egraph, now)
            if targets is not None:
                applied += 1
                for old, new in zip(now.outputs, targets, strict=True):
                    egraph.join(old, new)
        egraph.rebuild()
    return explored(f"limit of {rounds} rounds", rounds)


class _UselessError(Exception):
    """A join that holds nothing new."""


def _wanted(egraph: EGraph, rule: Rule) -> Callable[[Mapping[Expression, str]], bool] | None:
    """Whether a rule with several outputs would put inputs side by side that are worth it, where that can be said
    before the target is written."""
    joined = _first_join(rule)
    if joined is None:
        return None
    dim, inputs, ordered = joined
    parts: dict[str, list[str]] = {}

    def wanted(names: Mapping[Expression, str]) -> bool:
        every: list[str] = []
        for item in inputs:
            name = names[item]
            if name not in parts:
                parts[name] = egraph.parts((("tensors", Ref(name)), ("dim", dim)))
            every.extend(parts[name])
        return egraph.in_order(every) if ordered else len(set(every)) == len(every)

    return wanted


@cache
def _first_join(rule: Rule) -> tuple[int, tuple[Expression, ...], bool] | None:
    """(dimension, inputs, are they to be in order?) of the first join in the target of a rule with several outputs, if
    it joins inputs."""
    if len(rule.source) < 2:
        return None
    for item in walk(rule.target):
        if isinstance(item, Term) and item.operator == "cat":
            inputs = all(isinstance(argument, Variable) for argument in item.arguments)
            dim = dict(item.attributes).get("dim", 0)
            return (dim, item.arguments, symmetric(rule.source)) if inputs and isinstance(dim, int) else None
    return None


def _targets(egraph: EGraph, match: Match) -> tuple[str, ...] | None:
    several = len(match.rule.source) > 1

    def name_of(call: Call, shape: tuple[int, ...], dtype: str) -> str:
        if several and call.operator == CAT:
            parts = egraph.parts(call.arguments)
            if len(set(parts)) < len(parts):
                raise _UselessError
        return egraph.add(call, shape, dtype)

    try:
        return built(match, egraph.values, name_of)
    except _UselessError:
        return None


@cache
def symmetric(source: tuple[Expression, ...]) -> bool:
    """Is the source the same with its outputs the other way round, but for the names of inputs?"""

    def numbered(side: tuple[Expression, ...]) -> tuple[object, ...]:
        names: dict[str, int] = {}

        def of(item: Expression) -> object:
            if isinstance(item, Variable):
                return names.setdefault(item.name, len(names))
            return (item.operator, tuple(map(of, item.arguments)), item.attributes, item.result)

        return tuple(map(of, side))

    return (
        len(source) == 2
        and all(isinstance(item, Term) for item in source)
        and numbered(source) == numbered(source[::-1])
    )
