"""Verdicts on rules: what is true is proved for all shapes, what is false is refuted by small tensors."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from girih.rewrite.prove import Open, ProofError, Proved, Refuted, check, checker, prove
from girih.rewrite.prove.canonical import canonical
from girih.rewrite.prove.refutation.instances import Instance, InvalidError, difference, instances
from girih.rewrite.prove.terms import Read, Term
from girih.rewrite.rules.extent import Extent
from girih.rewrite.rules.rule import Rule, RuleError
from girih.workshop.files import PROPERTIES, read_rule, read_rules

TRUE = [
    "x[m, n], y[k, n]: relu(cat(x, y)) == cat(relu(x), relu(y))",
    "x[m, n], y[k, n]: exp(cat(relu(x), y)) == cat(exp(relu(x)), exp(y))",
    "x[m, n]: add(x, x) == mul(x, other=2)",
    "x[m, n]: sub(x, x) == mul(x, other=0)",
    "x[m, n]: sum.dim_IntList(t(x), dim=(0,)) == sum.dim_IntList(x, dim=(1,))",
    "x[m, k], y[k, n]: sum.dim_IntList(mm(x, y), dim=(0,), keepdim=True) "
    "== mm(sum.dim_IntList(x, dim=(0,), keepdim=True), y)",
    "x[m, k], y[k, n]: mean.dim(mm(x, y), dim=(0,)) == sum.dim_IntList(mm(div(x, other=m), y), dim=(0,))",
    "x[m, n]: amax(relu(x), dim=1) == relu(amax(x, dim=1))",
    "x[n, c, h, w]: max_pool(relu(x), kernel_size=(3, 3), stride=(s, s), padding=(1, 1), dilation=(1, 1)) "
    "== relu(max_pool(x, kernel_size=(3, 3), stride=(s, s), padding=(1, 1), dilation=(1, 1)))",
    "x[n, c, h, w], k[o, c, 1, 1]: avg_pool2d(convolution(x, k), kernel_size=a, stride=s, padding=p) "
    "== convolution(avg_pool2d(x, kernel_size=a, stride=s, padding=p), k)",
    "x[n, g*c, h, w], z[n, g*c, h, w], k[g*o, c, a, b], l[g*o, c, a, b]: "
    "cat(convolution(x, k, groups=g), convolution(z, l, groups=g), dim=1) "
    "== convolution(cat(x, z, dim=1), cat(k, l, dim=0), groups=2*g)",
    "(mm(x, a), mm(x, b)) == (split(mm(x, cat(a, b, dim=1)), dim=1)[0], split(mm(x, cat(a, b, dim=1)), dim=1)[1])",
    "x[m, n]: sigmoid(x) == reciprocal(add(exp(neg(x)), ones(size=(m, n))))",
    "x[m, n]: _softmax(x, dim=1, half_to_float=False) == div(exp(x), sum.dim_IntList(exp(x), dim=(1,), keepdim=True))",
    "x[m, n], y[m, k]: amax(cat(x, y, dim=1), dim=(1,)) == maximum(amax(x, dim=(1,)), amax(y, dim=(1,)))",
    "x[m, n], y[n, n], z[n, r]: mm(x, mm(y, z)) == mm(mm(x, y), z)",
    "x[m, n], y[m, 1]: relu(cat(x, y, dim=1)) == cat(relu(x), relu(y), dim=1)",
    "relu(mul(a, a)) == mul(a, a)",
    "relu(softmax(a, dim=1)) == softmax(a, dim=1)",
    "relu(sigmoid(a)) == sigmoid(a)",
    "relu(sqrt(a)) == sqrt(a)",
    "relu(neg(mul(a, a))) == sub(a, a)",
    "mul(relu(b), add(a, relu(b))) == mul(add(a, b), relu(b))",
    "relu(mul(a, mul(a, relu(b)))) == mul(a, mul(a, relu(b)))",
    "relu(add(a, relu(a))) == add(relu(a), relu(a))",
    "relu(mul(a, mul(a, a))) == mul(relu(a), mul(a, a))",
    "a[n, n]: relu(mm(relu(a), relu(a))) == mm(relu(a), relu(a))",
    "x[n, c, h, w]: max_pool(add(x, relu(x)), kernel_size=(3, 3), stride=(s, s), padding=(1, 1), dilation=(1, 1)) "
    "== add(max_pool(x, kernel_size=(3, 3), stride=(s, s), padding=(1, 1), dilation=(1, 1)), "
    "relu(max_pool(x, kernel_size=(3, 3), stride=(s, s), padding=(1, 1), dilation=(1, 1))))",
    "x[m, u, q, r], k[2*t, u, v, w]: convolution(cat(x, x, dim=1), k, groups=2, padding=p) "
    "== convolution(x, k, padding=p)",
    "x[a, b, c]: view(x, size=(a*b, c)) == view(view(x, size=(a, b*c)), size=(a*b, c))",
]
WRONG = [
    "relu(mul(a, mul(b, b))) == mul(a, mul(b, b))",
    "relu(reciprocal(a)) == reciprocal(a)",
    "relu(mul(a, b)) == mul(relu(a), relu(b))",
    "relu(sub(relu(a), a)) == sub(relu(a), a, alpha=2)",
    "x[m, n]: amax(mul(x, x), dim=1) == mul(amax(x, dim=1), amax(x, dim=1))",
    "x[m, n]: amax(neg(x), dim=1) == neg(amax(x, dim=1))",
    "mm(a, b) == mm(b, a)",
    "relu(add(x, y)) == add(relu(x), relu(y))",
    "x[m, n], y[m, n]: cat(x, y) == cat(y, x)",
    "x[m, n]: amax(x, dim=1) == amax(relu(x), dim=1)",
    "x[n, c, h, w]: convolution(x, constant_pad_nd(ones(size=(c, 1, 1, 1)), pad=(p, p, p, p)), padding=p, groups=c) "
    "== relu(x)",
]


@pytest.mark.parametrize("text", TRUE)
def test_what_is_true_is_proved_and_the_proof_can_be_replayed(text: str) -> None:
    verdict = prove(read_rule(text))
    assert isinstance(verdict, Proved), verdict.text
    assert check(verdict.proof) == verdict.forms
    assert "both sides are" in verdict.text


@pytest.mark.parametrize("text", WRONG)
def test_what_is_false_is_refuted(text: str) -> None:
    verdict = prove(read_rule(text))
    assert isinstance(verdict, Refuted), verdict.text
    assert _differs(verdict)


def _differs(verdict: Refuted) -> bool:
    """Are the tensors whole numbers that show it?"""
    tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in verdict.tensors.items()}
    assert all(torch.equal(tensor, tensor.round()) for tensor in tensors.values())
    return difference(verdict.rule, Instance(verdict.symbols, tensors)) is not None


def test_all_published_properties_are_proved() -> None:
    rules = read_rules(PROPERTIES / "taso.txt")
    assert len(rules) == 43
    verdicts = [prove(rule) for rule in rules]
    assert [item.rule.name for item in verdicts if not isinstance(item, Proved)] == []


@pytest.mark.parametrize("rule", read_rules(PROPERTIES / "false.txt"), ids=lambda rule: rule.name)
def test_where_published_properties_are_false_tensors_are_printed(rule: Rule) -> None:
    """Grouped convolutions, enlarged kernels with stride 2 and padding at the end, averages without the padding."""
    verdict = prove(rule)
    assert isinstance(verdict, Refuted)
    assert _differs(verdict)
    assert max(verdict.symbols.values()) <= 2
    assert all(f"{name} = " in verdict.text for name in rule.inputs)


def test_a_proof_with_a_step_less_or_another_is_refused() -> None:
    verdict = prove(read_rule(TRUE[0]))
    assert isinstance(verdict, Proved)
    steps = verdict.proof.steps
    taken = [number for number, step in enumerate(steps) if step is not None]
    for number in taken[:20]:
        with pytest.raises(ProofError):
            check(replace(verdict.proof, steps=steps[:number] + steps[number + 1 :]))
    step = next(step for step in steps if step is not None and step.kind == "drop" and step.because)
    forged = tuple(replace(item, because=()) if item is step else item for item in steps)
    with pytest.raises(ProofError, match="does not follow"):
        check(replace(verdict.proof, steps=forged))
    with pytest.raises(ProofError):
        check(replace(verdict.proof, steps=steps[:-1]))


def test_a_proof_is_of_one_rule() -> None:
    verdict = prove(read_rule(TRUE[0]))
    assert isinstance(verdict, Proved)
    other = read_rule("x[m, n], y[k, n]: relu(cat(x, y)) == cat(relu(x), y)")
    with pytest.raises(ProofError):
        check(replace(verdict.proof, rule=other))


def test_the_checker_knows_nothing_of_the_prover() -> None:
    folder = Path(checker.__file__).parent
    waiting, seen = ["checker"], set()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        for item in ast.walk(ast.parse((folder / f"{name}.py").read_text())):
            if isinstance(item, ast.ImportFrom) and str(item.module).startswith("girih.rewrite.prove."):
                waiting += [used for used in [str(item.module).rpartition(".")[2]] if used not in seen]
    assert seen.isdisjoint({"strategy", "judge", "refute", "shapes", "instances", "verdict"})
    assert len((folder / "checker.py").read_text().splitlines()) < 300


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("mm(a, mm(b, c)) == mm(mm(a, b), c)", [2, 2, 2]),
        ("convolution(x, add(k, l), stride=s) == add(convolution(x, k, stride=s), convolution(x, l, stride=s))",
         [4, 4, 4]),
        ("bmm(a, add(b, c)) == add(bmm(a, b), bmm(a, c))", [3, 3, 3]),
    ],
)  # fmt: skip
def test_shapes_that_are_not_declared_are_the_most_general(text: str, shapes: list[int]) -> None:
    verdict = prove(read_rule(text))
    assert isinstance(verdict, Proved), verdict.text
    assert [len(shape) for _, shape in verdict.rule.shapes] == shapes


@pytest.mark.parametrize(
    "text", ["moon(a) == a", "a[m], b[n]: mm(a, b) == mm(b, a)", "relu(a, dim=1) == a", "split(a, dim=0)[0] == a"]
)
def test_what_is_no_rule_is_told(text: str) -> None:
    with pytest.raises(RuleError):
        prove(read_rule(text))


def test_what_cannot_be_said_is_open() -> None:
    verdict = prove(read_rule("x[m, n]: add(roll(x, shifts=(1,)), x) == add(x, roll(x, shifts=(1,)))"))
    assert isinstance(verdict, Open)
    assert "whole slices" in verdict.text


WINDOW = "kernel_size=(2, 2), stride=(1, 1), padding=(1, 1), dilation=(2, 2)"


@pytest.mark.parametrize(
    "text",
    [
        "relu(mul(mul(a, a), other=c)) == mul(mul(a, a), other=c)",
        "relu(mul(a, other=c)) == mul(relu(a), other=c)",  # a graph may multiply by what is below zero
        f"s[1], x[n, c, h, w]: max_pool(mul(s, mul(s, x)), {WINDOW}) == mul(s, mul(s, max_pool(x, {WINDOW})))",
    ],
)
def test_signs_that_are_not_known_prove_nothing(text: str) -> None:
    """In the second a window may lie outside of its tensor, and its maximum is minus infinity."""
    assert not isinstance(prove(read_rule(text)), Proved)


def test_proved_rules_hold_on_random_tensors() -> None:
    random = np.random.default_rng(7)
    tried = 0
    for text in TRUE[:8]:
        verdict = prove(read_rule(text))
        for item in instances(verdict.rule, random, 20):
            try:
                assert difference(verdict.rule, item) is None, text
            except InvalidError:
                continue
            tried += 1
    assert tried > 80


def test_files_name_the_line_of_what_is_no_rule(tmp_path: Path) -> None:
    file = tmp_path / "rules.txt"
    file.write_text("# two rules\nt(t(x)) ==\n    x\n\nmm(a, b == c\n")
    with pytest.raises(RuleError, match=r"rules.txt:5: "):
        read_rules(file)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RuleError, match="no text"):
        read_rules(file)


def test_a_sum_of_too_many_indices_that_look_alike_is_refused_before_their_orders_are_made() -> None:
    """Of twelve there are 479 million."""
    bound = tuple((f"i{number}", Extent.of("n")) for number in range(12))
    with pytest.raises(ProofError, match="too many indices that look alike"):
        canonical(Term(factors=(Read("x", (Extent.of("j"),)),), bound=bound), 0)
