"""What `girih.optimize` uses is proved."""

from __future__ import annotations

import pytest

from girih.rewrite.prove import Proved, check, prove
from girih.rewrite.rules.rule import Rule, Term, Variable, operators, parse, walk
from girih.rewrite.rules.shipped import generated, shipped

PARTS = "cat(x1, x2, dim=1)"


def with_parts(rule: Rule) -> Rule:
    """A rule that splits an input speaks of one that was concatenated: here it is, of two parts."""
    splits = any(
        isinstance(item, Term) and item.operator == "split" and item.arguments == (Variable("x"),)
        for side in (rule.source, rule.target)
        for item in _terms(side)
    )
    return parse(str(rule).replace("(x,", f"({PARTS},").replace("(x)", f"({PARTS})").replace("== x", f"== {PARTS}")
                 .replace(rule.name, f"of_parts_{rule.name}", 1)) if splits else rule  # fmt: skip


def _terms(side: tuple) -> list:
    return [term for item in side if isinstance(item, Term) for term in (item, *_terms(item.arguments))]


@pytest.mark.parametrize("rule", shipped(), ids=lambda rule: rule.name)
def test_a_shipped_rule_is_proved(rule: Rule) -> None:
    verdict = prove(with_parts(rule))
    assert isinstance(verdict, Proved), verdict.text
    assert check(verdict.proof) == verdict.forms


def test_generated_rules_are_used_in_the_useful_direction_and_once() -> None:
    rules = generated()
    assert len(rules) > 40
    for rule in rules:
        reads, source = (
            {item.name for item in walk(side) if isinstance(item, Variable)} for side in (rule.target, rule.source)
        )
        assert reads <= source
        assert len(rule.source) == 2 or operators(rule.target) < operators(rule.source)
    sides = {str((rule.source, rule.target)) for rule in shipped()}
    assert len(sides) == len(shipped())
    texts = {str(Rule(rule.source, rule.target)) for rule in rules}
    assert "t(t(a)) == a" in texts
    assert "add(mm(a, b), mm(a, c)) == mm(a, add(b, c))" in texts
