"""A plan of a rewritten graph computes what the program does, and keeps rules that are proved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import girih
from girih.cli.main import main
from girih.machine import machine
from girih.plans.inputs import program_of
from girih.plans.rewritten import ProofError, Rewrite, Rewriting, prove_all, verdict
from girih.rewrite.rules.parts import with_parts
from girih.rewrite.rules.rule import parse


class Siamese(nn.Module):
    """The same layer on two inputs: the gradients of its weights are two products, whose sum is one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(64, 64, bias=False), nn.Linear(64, 4)

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.layer(one)) * torch.relu(self.layer(other)))


def training() -> tuple[girih.TrainingStep, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    model = Siamese()
    step = girih.TrainingStep(
        model, step=lambda net, batch: (net(*batch) ** 2).mean(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1)
    )
    return step, (torch.randn(2, 64), torch.randn(2, 64))


@pytest.fixture(scope="module")
def planned() -> girih.Plan:
    return girih.plan(*training(), machine="local:2", compare=(), rewrite=True, objective="bytes")


def test_gradients_are_merged_and_the_step_is_the_same(planned: girih.Plan) -> None:
    step, batch = training()
    assert any(item.rule.startswith("one_sum") for item in planned.choice.rewrites)
    assert all(item.cost < item.before for item in planned.choice.rewrites)
    plain = program_of(*training()).graph
    assert len([n for n in planned.graph.nodes if n.operator == "aten.mm"]) < len(
        [n for n in plain.nodes if n.operator == "aten.mm"]
    )
    loss = step.step(step.model, batch)
    loss.backward()
    step.optimizer.step()
    with planned.start(backend="threads") as run:
        assert run.step(*batch, lr=0.1) == pytest.approx(float(loss.detach()), rel=1e-5)
        for key, tensor in run.state_dict().items():
            torch.testing.assert_close(tensor, step.model.state_dict()[key], rtol=1e-4, atol=1e-6)


def test_the_file_keeps_the_rules(planned: girih.Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    planned.save(path)
    assert girih.load(path).choice.rewrites == planned.choice.rewrites
    assert main(["rewrite", "explain", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "one_sum" in printed
    assert "proved:" in printed
    assert "for all k >= 1" in printed
    assert main(["rewrite", "explain", str(path), "--json"]) == 0
    assert {item["verdict"] for item in json.loads(capsys.readouterr().out)["rewrites"]} == {"proved"}


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("a[m, k], b[k, n]: mm(a, b) == mm(b, a)", "by a rule that is refuted"),
        ("mm(a, b)", "by what is no rule"),
        ("frobnicate(a) == a", "by what is no rule"),
        (f"{'relu(' * 40}a{')' * 40} == a", "by what is no rule: a rule of more than 16 operators"),
        (f"{'a' * 5000} == b", "by what is no rule: a rule of 5005 letters"),
    ],
)
def test_a_file_with_a_false_rule_is_refused(
    planned: girih.Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str], rule: str, says: str
) -> None:
    path = tmp_path / "plan.json"
    planned.save(path)
    data = json.loads(path.read_text())
    data["rewrites"][0]["rule"] = rule
    path.write_text(json.dumps(data))
    with pytest.raises(girih.PlanError, match=says):
        girih.load(path)
    assert main(["rewrite", "explain", str(path)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_plan_has_few_rules() -> None:
    many = [Rewrite(f"r{number}: relu(relu(a)) == relu(a)", ("x",), 1.0, 0.5) for number in range(65)]
    with pytest.raises(ProofError, match="by 65 rules: expected at most 64"):
        prove_all(many)


def test_a_rule_about_parts_is_proved_of_a_concatenation() -> None:
    rule = parse(
        "(relu(split(x, dim=1)[0]), relu(split(x, dim=1)[1])) == (split(relu(x), dim=1)[0], split(relu(x), dim=1)[1])"
    )
    assert "cat(x1, x2, dim=1)" in str(with_parts(rule))
    assert verdict(str(rule)).word == "proved"
    plain = parse("relu(relu(a)) == relu(a)")
    assert with_parts(plain) is plain


def test_a_graph_that_no_rule_improves_stays_as_it_is() -> None:
    model = nn.Linear(4, 3)
    graph = program_of(girih.Inference(model.eval()), torch.randn(2, 4)).graph
    again, rewrites = Rewriting(seconds=5.0).apply(graph, machine("local:1"))
    assert again is graph
    assert rewrites == ()
