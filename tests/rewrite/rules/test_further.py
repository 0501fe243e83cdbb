"""The further shipped rules are proved, those that split inputs as rules of inputs in two parts."""

from __future__ import annotations

import pytest

from girih.rewrite.prove import Proved, check, prove
from girih.rewrite.rules.further import arrays, inference, training
from girih.rewrite.rules.rule import Expression, Rule, Term, Variable, walk


def of_parts(rule: Rule) -> Rule:
    """The rule with each input that it splits as two that are joined there."""
    split = {
        item.arguments[0]: dict(item.attributes)["dim"]
        for side in (rule.source, rule.target)
        for item in walk(side)
        if isinstance(item, Term) and item.operator == "split" and isinstance(item.arguments[0], Variable)
    }

    def of(item: Expression) -> Expression:
        if item in split:
            assert isinstance(item, Variable)
            parts = (Variable(f"{item.name}1"), Variable(f"{item.name}2"))
            return Term("cat", parts, (("dim", split[item]),))
        if isinstance(item, Variable):
            return item
        return Term(item.operator, tuple(map(of, item.arguments)), item.attributes, item.result)

    shapes = rule.shapes
    if len(split) == 2:  # inputs of one operator: with equal sizes
        from girih.rewrite.rules.extent import Extent

        sizes = (("m", "a"), ("m", "b"))
        shapes = tuple((f"{item.name}{part + 1}", tuple(map(Extent.of, sizes[part])))
                       for item in split if isinstance(item, Variable) for part in (0, 1))  # fmt: skip
    return Rule(tuple(map(of, rule.source)), tuple(map(of, rule.target)), shapes, rule.name)


@pytest.mark.parametrize("rule", [*inference(), *training(), *arrays()], ids=lambda rule: rule.name)
def test_a_further_rule_is_proved(rule: Rule) -> None:
    verdict = prove(of_parts(rule))
    assert isinstance(verdict, Proved), verdict.text
    assert check(verdict.proof) == verdict.forms
