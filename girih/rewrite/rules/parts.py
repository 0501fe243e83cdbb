"""Rules about the parts of an input, with the input as what it was made of.

In a graph `split(x, dim=1)[0]` finds out where x was concatenated. A proof needs to know it: there x is
`cat(x1, x2, dim=1)`.
"""

from __future__ import annotations

from dataclasses import replace

from girih.rewrite.rules.rule import Expression, Rule, Term, Variable, walk
from girih.rewrite.rules.vocabulary import SPLIT


def with_parts(rule: Rule) -> Rule:
    """The rule with each input that is split written as a concatenation of two; itself where none is."""
    whole: dict[Expression, Term] = {}
    taken = set(rule.inputs)
    for side in (rule.source, rule.target):
        for item in walk(side):
            if isinstance(item, Term) and item.operator == SPLIT and isinstance(item.arguments[0], Variable):
                name = item.arguments[0].name
                while {f"{name}1", f"{name}2"} & taken:
                    name += "_"
                parts = (Variable(f"{name}1"), Variable(f"{name}2"))
                whole[item.arguments[0]] = Term("cat", parts, (("dim", dict(item.attributes)["dim"]),))
    if not whole:
        return rule

    def written(item: Expression) -> Expression:
        if isinstance(item, Variable):
            return whole.get(item, item)
        return replace(item, arguments=tuple(map(written, item.arguments)))

    kept = tuple((name, shape) for name, shape in rule.shapes if Variable(name) not in whole)
    return Rule(tuple(map(written, rule.source)), tuple(map(written, rule.target)), kept, rule.name)
