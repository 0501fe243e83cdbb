"""What `girih.optimize` uses is proved."""

from __future__ import annotations

import pytest

from girih.rewrite.prove import Proved, check, prove
from girih.rewrite.rules.parts import with_parts
from girih.rewrite.rules.rule import Rule, Variable, operators, walk
from girih.rewrite.rules.shipped import generated, shipped


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
