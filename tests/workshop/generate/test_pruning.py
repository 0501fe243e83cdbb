"""What pruning drops follows from what it keeps: each dropped rule is derived again, in a way of its own.

Both sides of a dropped rule are put into an e-graph of their own, as graphs of tensors with shapes. The kept rules, in
the general form that is proved, are applied there as to any program, with their side conditions, and have to make one
class of the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from counts import LONG

from girih.graph import Graph, Input, Value
from girih.rewrite.prove import Proved, prove
from girih.rewrite.rules.extent import Extent
from girih.rewrite.rules.rule import Attribute, Expression, Rule, Term, Variable, walk
from girih.rewrite.rules.vocabulary import Operand, call_of, made, trees_of
from girih.rewrite.saturation.egraph import EGraph
from girih.rewrite.saturation.explore import explore
from girih.workshop.generate.candidates import Candidate, Pruner
from girih.workshop.generate.general import renamed
from girih.workshop.generate.generation import LARGE, _Judges, _with_constants
from girih.workshop.generate.table import MOST_PARTS, NONE, Level, TermTable
from girih.workshop.generate.vocabulary import CONSTANTS, TABLE, inputs, templates, usual_inputs

SMALL = ("mm", "add", "t", "relu", "cat(dim=1)", "split(dim=1)")
INPUTS = "a[3, 3], b[3, 3], c[3, 3]"
IF_LONG = pytest.mark.skipif(not LONG, reason="its 200 candidates are tried by `make test-long`")


@dataclass(frozen=True)
class Pruned:
    """kept: with the proved rules. dropped: the other candidates of each size that are taken for true."""

    pruner: Pruner
    kept: tuple[tuple[Candidate, Rule], ...]
    dropped: tuple[tuple[Candidate, ...], ...]


@cache
def pruned(operators: tuple[str, ...], size: int) -> Pruned:
    ways = templates(operators)
    items = inputs(INPUTS if operators == SMALL else usual_inputs(ways), CONSTANTS)
    table = TermTable(items, ways)
    pruner = Pruner(table)
    with _Judges(pruner, {item.name: item for item in items}, 0) as judges:
        for number in range(1, size + 1):
            large = number >= LARGE
            few, parts = (3, 2) if large else (len(items), MOST_PARTS)
            list(pruner.prune(table.extend(None, number == size, few, few, parts), number, judges))
        kept = []
        for candidate in pruner.minimal(table.levels):
            verdict = judges.verdict(candidate)
            assert isinstance(verdict, Proved)
            kept.append((candidate, verdict.rule))
    known = {(item.source, item.target) for item, _ in kept}
    dropped = tuple(
        tuple(item for item in _candidates(pruner, level, number) if (item.source, item.target) not in known)
        for number, level in enumerate(table.levels, 1)
    )
    return Pruned(pruner, tuple(kept), dropped)


def _candidates(pruner: Pruner, level: Level, size: int) -> Iterator[Candidate]:
    """What is left after renaming and is taken for true: not what is false or open, or equal to such by kept rules."""
    true = pruner.terms.classes[pruner.starts[size] : pruner.starts[size] + len(level)] != NONE
    rows = np.flatnonzero(level.canonical & true)
    for row in rows[pruner._varies(level, rows)]:
        candidate = pruner._candidate(level, int(row), size)
        if candidate.source != candidate.target:
            yield candidate


# ------------------------------------------------------------------------------------------------ the rules


def _usable(found: Pruned) -> list[Rule]:
    """The kept rules in both directions. Those of operators that take any rank are proved for the other rank too; those
    whose attributes the matcher does not solve, such as padding = d·e + p, are used with numbers."""
    rules = []
    for candidate, rule in found.kept:
        rules.append(rule)
        if found.pruner._takes_any(candidate.source) and found.pruner._takes_any(candidate.target):
            ranks = {len(shape) for _, shape in rule.shapes} - {1}
            other = replace(rule, shapes=tuple((name, _of_other_rank(shape)) for name, shape in rule.shapes))
            assert ranks in ({2}, {4})
            assert isinstance(prove(other), Proved), other
            rules.append(other)
    return [one for rule in rules for number in _with_numbers(rule) for one in (number, number.reverse)]


def _of_other_rank(shape: tuple[Extent, ...]) -> tuple[Extent, ...]:
    return {1: shape, 2: (*shape, Extent.of("y1"), Extent.of("y2")), 4: shape[:2]}[len(shape)]


def _with_numbers(rule: Rule) -> Iterator[Rule]:
    terms = [item for item in walk((*rule.source, *rule.target)) if isinstance(item, Term)]
    if not any("e" in _symbols(value) for term in terms for _, value in term.attributes):
        yield rule
        return
    for padding in (0, 1):
        values = {"s": 1, "d": 1, "e": 1, "p": padding}
        source, target = (
            tuple(renamed(item, values) if isinstance(item, Term) else item for item in side)
            for side in (rule.source, rule.target)
        )
        yield replace(rule, source=source, target=target)


def _symbols(value: Attribute) -> frozenset[str]:
    if isinstance(value, tuple):
        return frozenset().union(*map(_symbols, value))
    return value.symbols if isinstance(value, Extent) else frozenset()


def _constants(pruner: Pruner) -> list[set[Expression]]:
    """Equal terms of constants alone: they are computed, not rewritten."""
    equal: dict[int, set[Expression]] = {}
    for level in pruner.table.levels[:2]:
        rows = np.flatnonzero(level.classes != NONE)
        for row in rows[~pruner._varies(level, rows)]:
            candidate = pruner._candidate(level, int(row), 1)
            sides = (pruner.expression(candidate.source), pruner.expression(candidate.target))
            equal.setdefault(int(level.classes[row]), set()).update(sides)
    return [group for group in equal.values() if len(group) > 1]


# ------------------------------------------------------------------------------------------------ deriving


def _follows(found: Pruned, candidate: Candidate, rules: Sequence[Rule], constants: Sequence[set[Expression]]) -> bool:
    named = {item.name: item for item in found.pruner.table.inputs}
    values = {name: Value(name, item.shape, "float32") for name, item in named.items() if not item.constant}
    egraph = EGraph(Graph(values, (), tuple(Input(name, "batch") for name in values), ()))
    operands: dict[Expression, Operand] = {
        Variable(name): Operand(name, value.shape, value.dtype, value.shape) for name, value in values.items()
    }

    def name_of(item: Expression) -> str:
        return _inserted(egraph, _with_constants(item, named), operands).name

    sides = found.pruner.expression(candidate.source), found.pruner.expression(candidate.target)
    read = {item for item in walk(sides) if isinstance(item, Variable) and named[item.name].constant}
    for group in constants:
        if not read.isdisjoint(walk(tuple(group))):
            first, *others = map(name_of, group)
            for other in others:
                egraph.join(first, other)
    source, target = map(name_of, sides)
    egraph.rebuild()
    for _ in range(8):
        if egraph.find(source) == egraph.find(target):
            return True
        explore(egraph, rules, nodes=3000, rounds=1, seconds=20)
    return egraph.find(source) == egraph.find(target)


def _inserted(egraph: EGraph, item: Expression, operands: dict[Expression, Operand]) -> Operand:
    if item not in operands:
        assert isinstance(item, Term)
        read = [_inserted(egraph, argument, operands) for argument in item.arguments]
        call = call_of(item, read, {})
        shape, dtype = made(call, tuple((operand.name, operand.shape, operand.dtype) for operand in read))
        operands[item] = Operand(egraph.add(call, shape, dtype), shape, dtype, trees_of(item, read, shape))
    return operands[item]


@pytest.mark.parametrize(
    ("operators", "size", "tried"),
    [
        (SMALL, 2, 0),
        (SMALL, 3, 0 if LONG else 40),
        pytest.param(SMALL, 4, 200, marks=IF_LONG),
        (TABLE, 2, 0 if LONG else 40),
        (TABLE, 3, 100 if LONG else 40),
    ],
    ids=["small-2", "small-3", "small-4", "table-2", "table-3"],
)
def test_what_is_dropped_follows_from_what_is_kept(operators: tuple[str, ...], size: int, tried: int) -> None:
    """tried: of the candidates of the last size so many, drawn at random; 0: all of every size."""
    found = pruned(operators, size)
    every = [item for level in found.dropped for item in level]
    if tried:
        chosen = np.random.default_rng(size).choice(
            len(found.dropped[-1]), min(tried, len(found.dropped[-1])), replace=False
        )
        every = [found.dropped[-1][number] for number in chosen]
    assert len(every) > 30
    rules, constants = _usable(found), _constants(found.pruner)
    wrong = [
        f"{found.pruner.expression(item.source)} == {found.pruner.expression(item.target)}"
        for item in every
        if not _follows(found, item, rules, constants)
    ]
    assert not wrong


def test_what_holds_for_all_sizes_is_not_dropped_for_what_holds_for_some() -> None:
    """Kernels of as many channels each: that follows from two rules of groups, which need as many."""
    found = pruned(TABLE, 3)
    shapes = [
        dict(rule.shapes)
        for _, rule in found.kept
        if str(rule.source[0]).startswith("cat(convolution(x, k, dilation=d, padding=p, stride=s), convolution(x, l,")
    ]
    assert len(shapes) == 1
    assert shapes[0]["k"][0] != shapes[0]["l"][0]


def test_without_a_kept_rule_it_no_longer_follows() -> None:
    """So that the test above can fail: but for two that e-graphs have built in, each rule is the only way to itself."""
    found = pruned(SMALL, 2)
    rules = _usable(found)
    alone = set()
    for candidate, rule in found.kept:
        assert _follows(found, candidate, rules, ())
        if _follows(found, candidate, [item for item in rules if item not in (rule, rule.reverse)], ()):
            alone.add(str(Rule(rule.source, rule.target)))
    assert alone == {
        "add(b, a) == add(a, b)",
        "cat(cat(a, b, dim=1), c, dim=1) == cat(a, cat(b, c, dim=1), dim=1)",
    }
