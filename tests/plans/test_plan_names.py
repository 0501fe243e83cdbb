"""A plan says which search found it, and shows one time for its step: the simulated one, under its name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from graphs import perceptron

import girih
from girih.api import Plan, load, plan_graph
from girih.cli.main import main
from girih.machine.units import format_seconds
from girih.plans.check import check
from girih.search import compare as plan_compare


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_graph(perceptron(2), machine="2x2", compare=("single", "data"), objective="bytes")


@pytest.mark.parametrize("objective", ["bytes", "seconds"])
def test_the_optimum_is_of_the_simulated_time_alone(objective: str) -> None:
    asked = plan_graph(perceptron(2), machine="2x2", search="optimum", objective=objective, compare=("optimum", "data"))
    exact = plan_graph(perceptron(2), machine="2x2", search="exact", objective=objective)
    assert asked.search == asked.costs.name == "exact"
    assert asked.strategy == exact.strategy
    assert [item.name for item in asked.baselines] == ["data"]  # what would be beside is the plan itself
    note = f"search optimum is of --objective time; by {objective} search exact ran"
    assert asked.notes == (note,)
    assert note in " ".join(str(asked).split())
    assert exact.notes == ()


def test_a_comparison_with_the_optimum_is_one_with_exact() -> None:
    made = plan_graph(perceptron(2), machine="2x2", search="data", compare=("optimum", "exact"), objective="bytes")
    assert [item.name for item in made.baselines] == ["exact"]


def test_the_command_line_says_what_ran(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    where = str(tmp_path / "plan.json")
    asked = ["plan", "mlp-tiny", "--search", "optimum", "--objective", "bytes"]
    assert main([*asked, "-o", where, "--store", str(tmp_path / "none")]) == 0
    out = capsys.readouterr().out
    assert "search exact, objective bytes" in out
    assert "note: search optimum is of --objective time" in out
    assert main(["show", where, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["search"] == "exact"


def test_other_searches_are_simulated_once_by_the_objective_time() -> None:
    made = plan_graph(perceptron(2), machine="2x2", search="data:seconds=5", objective="time")
    assert made.search == "data"
    assert made.certificate.stopped == "optimal without overlap, then simulated"
    assert made.certificate.cost == made.costs.simulated == made.predict().seconds


def test_the_step_that_is_shown_is_the_simulated_one(plan: Plan) -> None:
    took = plan.predict().seconds
    assert plan.costs.simulated == took != plan.costs.seconds
    text = str(plan)
    assert f"a step takes {format_seconds(took)}, simulated" in text
    assert "time, simulated" in text
    assert "nothing overlapped" not in text
    assert format_seconds(plan.costs.seconds) not in text
    assert [item.simulated is not None for item in plan.baselines] == [True, True]
    data = plan_graph(perceptron(2), machine="2x2", search="data", objective="bytes")
    assert plan.baselines[1].simulated == pytest.approx(data.predict().seconds, rel=1e-9)


def test_it_is_kept_in_the_file(plan: Plan, tmp_path: Path) -> None:
    plan.save(tmp_path / "plan.json")
    again = load(tmp_path / "plan.json")
    assert (again.costs, again.baselines, again.notes) == (plan.costs, plan.baselines, plan.notes)
    data = json.loads((tmp_path / "plan.json").read_text())
    for key in ("simulated", "notes"):  # plans from before have none
        del data[key]
    for item in data["baselines"]:
        del item["simulated"]
    (tmp_path / "old.json").write_text(json.dumps(data))
    old = load(tmp_path / "old.json")
    check(old)
    assert old.costs.simulated is None
    assert "time, nothing overlapped" in str(old)


def test_what_simulate_prints_is_what_plan_shows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    where, store = str(tmp_path / "plan.json"), ("--store", str(tmp_path / "none"))
    assert main(["plan", "mlp-tiny", "-o", where, *store]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("a step takes "))
    assert main(["simulate", where, *store]) == 0
    assert f"{line.removesuffix(', simulated')}\n" in capsys.readouterr().out
    assert main(["compare", where, where]) == 0
    assert capsys.readouterr().out.count(line.split(" takes ")[1].removesuffix(", simulated")) == 2


def test_a_large_plan_is_not_simulated_as_it_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_compare, "MOST_SIMULATED", 0)
    made = plan_graph(perceptron(2), machine="2x2", compare=("data",), objective="bytes")
    assert made.costs.simulated is None
    text = str(made)
    assert "time, nothing overlapped" in text
    assert format_seconds(made.costs.seconds) in text
    assert "simulated" not in text


def test_the_objectives_cost_in_seconds_is_called_what_it_is() -> None:
    text = str(plan_graph(perceptron(2), machine="2x2", objective="seconds"))
    assert "this cost is the sum of the roofline's seconds of computing and of transfers, nothing overlapped" in text


def test_a_plan_says_how_much_of_the_devices_it_uses(tmp_path: Path) -> None:
    """Model FLOPs utilisation, by the rate of the dtype that is multiplied; what no device reaches is told."""
    layer, x = torch.nn.Linear(4096, 4096, bias=False, device="meta"), torch.empty(4096, 4096, device="meta")
    one = "device: {name: card, flops: 10 TFLOP/s, memory: 1 TB, memory_bandwidth: 9 TB/s, launch: 0 us,\n"
    for products, share in (("", "100%"), ("bfloat16: 40 TFLOP/s", "100%")):
        path = tmp_path / "one.yaml"
        path.write_text(f"{one}  products: {{{products}}}}}\n")
        dtype = torch.bfloat16 if products else torch.float32
        plan = girih.plan(girih.Inference(layer.to(dtype)), x.to(dtype), machine=str(path))
        assert plan.costs.simulated == pytest.approx(2 * 4096**3 / (40e12 if products else 10e12), rel=0.01)
        assert f"products at {share} of the devices' peak" in " ".join(str(plan).split())
        assert "note: no such device reaches that" in str(plan)
        plan.save(tmp_path / "plan.json")
        assert load(tmp_path / "plan.json").machine == plan.machine
