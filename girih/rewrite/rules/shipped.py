"""The rules that `girih.optimize` uses where nobody gives others: those that save calls on a processor.

What a rule computes of weights alone is computed once, when a model is optimised. The first ones were written down; the
others were found by `girih rewrite rules --size 3`, which proves them, and are used in the direction in which they need
fewer operators, or make one operator of two that read the same tensor. The file is from a time when fewer rules were
pruned, and stays: t(mm(a, t(b))) = mm(b, t(a)) follows from what is left today, but only over terms of more operators,
which is a way that is never taken here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from girih.rewrite.rules.rule import Expression, Rule, Term, Variable, operators, parse, parse_all, walk

GENERATED = Path(__file__).parent / "generated.txt"

CONVOLUTION = "stride=s, padding=p, dilation=d, groups=g"
ALIKE = "stride=s, padding=p, dilation=d"

RULES = f"""
norm_into_convolution: x[n, g * i, y, z], w[g * q, i, h, k], m[1, g * q, 1, 1], r[1, g * q, 1, 1], c[1, g * q, 1, 1],
    b[1, g * q, 1, 1]:
    normalise(convolution(x, w, {CONVOLUTION}), m, r, c, b)
    == add(convolution(x, mul(w, reshape(mul(r, c), shape=(g * q, 1, 1, 1))), {CONVOLUTION}), sub(b, mul(m, mul(r, c))))

pool_first: x[n, i, y, z], w[o, i, 1, 1]: avg_pool2d(convolution(x, w), kernel_size=2, stride=2)
    == convolution(avg_pool2d(x, kernel_size=2, stride=2), w)

pool_of_fewer: x[n, i, y, z], w[o, i, 1, 1]: convolution(avg_pool2d(x, kernel_size=3, stride=1, padding=1), w)
    == avg_pool2d(convolution(x, w), kernel_size=3, stride=1, padding=1)

one_convolution: (convolution(x, a, {ALIKE}), convolution(x, b, {ALIKE}))
    == (split(convolution(x, cat(a, b, dim=0), {ALIKE}), dim=1)[0],
        split(convolution(x, cat(a, b, dim=0), {ALIKE}), dim=1)[1])

one_convolution_and_bias: a[o, i, h, k], b[q, i, h, k], c[1, o, 1, 1], e[1, q, 1, 1]:
    (add(convolution(x, a, {ALIKE}), c), add(convolution(x, b, {ALIKE}), e))
    == (split(add(convolution(x, cat(a, b, dim=0), {ALIKE}), cat(c, e, dim=1)), dim=1)[0],
        split(add(convolution(x, cat(a, b, dim=0), {ALIKE}), cat(c, e, dim=1)), dim=1)[1])

enlarged: a[o, i, 1, 1], b[q, i, 3, 3], c[1, o, 1, 1], e[1, q, 1, 1]:
    (add(convolution(x, a, stride=s, padding=0), c), add(convolution(x, b, stride=s, padding=1), e))
    == (split(add(convolution(x, cat(constant_pad_nd(a, pad=(1, 1, 1, 1)), b, dim=0), stride=s, padding=1),
                  cat(c, e, dim=1)), dim=1)[0],
        split(add(convolution(x, cat(constant_pad_nd(a, pad=(1, 1, 1, 1)), b, dim=0), stride=s, padding=1),
                  cat(c, e, dim=1)), dim=1)[1])

one_relu: (relu(split(x, dim=1)[0]), relu(split(x, dim=1)[1]))
    == (split(relu(x), dim=1)[0], split(relu(x), dim=1)[1])

together_again: cat(split(x, dim=1)[0], split(x, dim=1)[1], dim=1) == x

rows_of_one_product: x[m, k], y[n, k], a[k, p]: (mm(x, a), mm(y, a))
    == (split(mm(cat(x, y, dim=0), a), dim=0)[0], split(mm(cat(x, y, dim=0), a), dim=0)[1])

one_product: x[m, k], a[k, n], b[k, p]: (mm(x, a), mm(x, b))
    == (split(mm(x, cat(a, b, dim=1)), dim=1)[0], split(mm(x, cat(a, b, dim=1)), dim=1)[1])

one_sum: x[m, k], y[m, n], a[k, o], b[n, o]: add(mm(x, a), mm(y, b)) == mm(cat(x, y, dim=1), cat(a, b, dim=0))

weights_first: x[m, k], a[k, n], b[n, p]: mm(mm(x, a), b) == mm(x, mm(a, b))
"""


@cache
def shipped() -> tuple[Rule, ...]:
    """All of them, in the order in which they are tried; what was written down and found is there once."""
    written = parse_all(RULES)
    known = {_renamed(rule) for rule in written}
    return (*written, *(rule for rule in generated() if _renamed(rule) not in known))


@cache
def generated() -> tuple[Rule, ...]:
    """The useful ones of the generated rules, in the useful direction."""
    lines = GENERATED.read_text(encoding="utf-8").splitlines()
    rules = (parse(line) for line in lines if line.strip() and not line.startswith("#"))
    return tuple(useful for rule in rules for useful in directed(rule))


def directed(rule: Rule) -> Iterator[Rule]:
    """The rule from the side that needs more operators to the one that needs fewer, if all that it reads is in the
    first; and from two results that read one tensor alike to the two sides of one operator."""
    for one in (rule, rule.reverse):
        if _variables(one.target) - _variables(one.source) or any(isinstance(item, Variable) for item in one.source):
            continue
        if len(one.source) == 1:
            if operators(one.target) < operators(one.source) and not _splits_an_input(one.source):
                yield one
        elif _is_split(one.target) and _operands(one.source[0], one) & _operands(one.source[1], one):
            yield one


def _variables(side: tuple[Expression, ...]) -> frozenset[str]:
    return frozenset(item.name for item in walk(side) if isinstance(item, Variable))


def _operands(item: Expression, rule: Rule) -> frozenset[Expression]:
    """What a term reads, but for scalars."""
    scalars = {Variable(name) for name, shape in rule.shapes if len(shape) == 1}
    return frozenset(item.arguments) - scalars if isinstance(item, Term) else frozenset()


def _renamed(rule: Rule) -> tuple[tuple[Expression, ...], tuple[Expression, ...]]:
    """Both sides with names in the order in which they are read."""
    names = [item.name for item in walk((*rule.source, *rule.target)) if isinstance(item, Variable)]
    numbers = {name: Variable(f"v{number}") for number, name in enumerate(names)}

    def put(item: Expression) -> Expression:
        if isinstance(item, Variable):
            return numbers[item.name]
        return Term(item.operator, tuple(map(put, item.arguments)), item.attributes, item.result)

    return tuple(map(put, rule.source)), tuple(map(put, rule.target))


def _is_split(side: tuple[Expression, ...]) -> bool:
    return all(isinstance(item, Term) and item.operator == "split" for item in side)


def _splits_an_input(side: tuple[Expression, ...]) -> bool:
    return any(
        isinstance(item, Term) and item.operator == "split" and isinstance(item.arguments[0], Variable)
        for item in walk(side)
    )
