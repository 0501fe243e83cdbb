"""The further shipped rules are proved, those that split inputs as rules of inputs in two parts."""

from __future__ import annotations

import pytest

from girih.rewrite.prove import Proved, check, prove
from girih.rewrite.rules.further import arrays, inference, training
from girih.rewrite.rules.parts import with_parts
from girih.rewrite.rules.rule import Rule


@pytest.mark.parametrize("rule", [*inference(), *training(), *arrays()], ids=lambda rule: rule.name)
def test_a_further_rule_is_proved(rule: Rule) -> None:
    verdict = prove(with_parts(rule))
    assert isinstance(verdict, Proved), verdict.text
    assert check(verdict.proof) == verdict.forms
