"""Z3, which knows nothing of normal forms, agrees with them; where a rule is false it finds tensors that show it."""

from __future__ import annotations

import json

import pytest
import torch

from girih.cli.main import main
from girih.rewrite.prove.refutation.instances import Instance, difference
from girih.rewrite.prove.shapes import shaped
from girih.rewrite.rules.further import arrays, inference, training
from girih.rewrite.rules.parts import with_parts
from girih.rewrite.rules.rule import Rule, RuleError
from girih.rewrite.rules.shipped import shipped
from girih.workshop.files import PROPERTIES, read_rule, read_rules
from girih.workshop.solver import second_verdict

USED = (*inference(), *training(), *arrays(), *shipped())
FALSE = {rule.name: rule for rule in read_rules(PROPERTIES / "false.txt")}


@pytest.mark.parametrize(
    "rules", [USED, read_rules(PROPERTIES / "taso.txt")], ids=["rules that are used", "published properties"]
)
def test_z3_agrees_with_every_proof(rules: tuple[Rule, ...]) -> None:
    found = [second_verdict(shaped(with_parts(rule)), seconds=60) for rule in rules]
    assert len(found) > 30
    assert not [str(item.rule) + item.text for item in found if item.word != "agrees"]
    assert {item.agreed for item in found} == {3}


@pytest.mark.parametrize("name", sorted(set(FALSE) - {"conv_of_pooling_constant_without_padding"}))
def test_what_is_false_is_shown_by_tensors(name: str) -> None:
    rule = shaped(FALSE[name])
    found = second_verdict(rule)
    assert found.word == "differs"
    assert found.refuted is not None
    tensors = {key: torch.tensor(value, dtype=torch.float64) for key, value in found.refuted.tensors.items()}
    assert difference(rule, Instance(found.refuted.symbols, tensors)) is not None
    assert "tensors for which the sides differ" in found.text


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("x[m, n], y[m, n]: relu(maximum(x, y)) == maximum(relu(x), relu(y))", "agrees"),
        ("x[m, n]: amax(cat(x, x, dim=1), dim=(1,)) == amax(x, dim=(1,))", "agrees"),
        ("x[m, n], y[m, n], z[m, n]: div(div(x, y), z) == div(x, mul(y, z))", "agrees"),
        ("x[m, n]: sigmoid(x) == reciprocal(add(exp(neg(x)), ones(size=(m, n))))", "agrees"),
        ("x[n, c, h, w]: max_pool(relu(x), kernel_size=(3, 3), stride=(s, s), padding=(1, 1), dilation=(1, 1)) "
         "== relu(max_pool(x, kernel_size=(3, 3), stride=(s, s), padding=(1, 1), dilation=(1, 1)))", "agrees"),
        ("x[m, n], y[m, n]: maximum(x, y) == x", "differs"),
        ("x[m, n], y[m, n]: mul(x, y) == add(x, y)", "differs"),
        ("x[m, n]: exp(x) == sqrt(x)", "differs"),  # PyTorch computes the numbers that Z3 finds
        ("x[m, n], y[m, n]: exp(add(x, y)) == mul(exp(x), exp(y))", "undecided"),  # what exp does is not known
    ],
)  # fmt: skip
def test_judgements(text: str, word: str) -> None:
    found = second_verdict(shaped(read_rule(text)))
    assert found.word == word, found.text


def test_what_is_opaque_is_undecided_and_says_so() -> None:
    found = second_verdict(shaped(FALSE["conv_of_pooling_constant_without_padding"]))
    assert found.word == "undecided"
    assert "avg_pool2d" in found.text


def test_what_fits_no_sizes_is_no_rule() -> None:
    with pytest.raises(RuleError, match="no sizes and attributes"):
        second_verdict(read_rule("x[m, n, p], y[m, k]: mm(x, y) == mm(y, x)"))


def test_the_command_asks_z3_too(capsys: pytest.CaptureFixture[str]) -> None:
    true, false = "mm(a, mm(b, c)) == mm(mm(a, b), c)", "a[m, n], b[m, n]: sub(a, b) == sub(b, a)"
    assert main(["rewrite", "prove", true, "--z3"]) == 0
    assert "Z3 agrees" in capsys.readouterr().out
    assert main(["rewrite", "prove", true, false, "--z3", "--json"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0]["z3"] == "agrees"
    assert rows[1]["verdict"] == "refuted"
    assert "z3" not in rows[1]
    for other in (["rules", "--operators", "mm"], ["explain", "plan.json"]):
        assert main(["rewrite", *other, "--z3"]) == 2
        assert "prove" in capsys.readouterr().err


def test_without_z3_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "z3", None)
    assert main(["rewrite", "prove", "mm(a, mm(b, c)) == mm(mm(a, b), c)", "--z3"]) == 2
    assert "girih[proofs]" in capsys.readouterr().err


def test_numbers_of_descriptions_are_fractions() -> None:
    """A ninth is no binary fraction: the mean of nine numbers is their sum by 9 to the last bit."""
    found = second_verdict(
        shaped(read_rule("x[m, 9]: mean.dim(x, dim=(1,)) == sum.dim_IntList(div(x, other=9), dim=(1,))"))
    )
    assert found.word == "agrees"
