"""Published ways to keep a memory limit, from the facade and the command line to runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from graphs import perceptron

import girih
from girih.api import plan_graph
from girih.cli.main import main
from girih.machine import machine
from girih.plans.check import check
from girih.published.memory.checkpointing import OptimalChain
from girih.search.table import BASELINES, HOLDS, class_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "command-line.md"


@pytest.fixture(scope="module")
def step() -> tuple[girih.TrainingStep, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.Tanh())]
    model = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(128, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batch = (torch.randn(64, 8, 4, 4), torch.randint(4, (64,)))
    return girih.TrainingStep(model, loss=torch.nn.functional.cross_entropy, optimizer=optimizer), batch


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """Of this process's kernels. The plan is made for those of a worker process, and kernels' scratch depends on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_each_keeps_the_limit_with_the_same_numbers(step, threads: int) -> None:
    """All of them run in tests/published/memory; here with kernels whose scratch memory is measured."""
    training, batch = step
    free = girih.plan(training, batch, machine="local:1", compare=(), objective="bytes")
    losses = {}
    with free.start(backend="threads") as run:
        losses["free"] = [run.step(*batch) for _ in range(2)]
    for hold in ("vdnn-conv", "chain"):
        plan = girih.plan(
            training, batch, machine="local:1", memory=int(free.peak * 0.8), hold=hold, compare=(), objective="bytes"
        )
        check(plan)
        assert plan.peak <= free.peak * 0.8
        assert bool(plan.choice.residency) == class_of("baseline", hold).moves
        assert plan.predicted.simulated is not None
        assert plan.predicted.memory_bound is not None
        assert plan.predicted.memory_bound <= plan.predicted.simulated * (1 + 1e-9)
        with plan.start(backend="threads", arena="off") as run:  # in which scratch may lie where it is free
            losses[hold] = [run.step(*batch) for _ in range(2)]
            assert run.plan.told_scratch.threads == threads
            assert run.plan.peak <= plan.memory
            assert run.run.peak_bytes(*run.inputs(batch, None)) == [run.plan.peak]
    assert set(map(tuple, losses.values())) == {tuple(losses["free"])}


def test_ours_is_never_slower() -> None:
    graph = perceptron(6, 256, 64)
    free = plan_graph(graph, machine="p3.2xlarge", objective="bytes")
    for share in (0.8, 0.6):
        limit = int(free.peak * share)
        ours = plan_graph(graph, machine="p3.2xlarge", memory=limit, objective="bytes").predicted.simulated
        assert ours is not None
        for hold in ("odswap", "chain"):
            try:
                other = plan_graph(graph, machine="p3.2xlarge", memory=limit, hold=hold, objective="bytes")
            except girih.PlanError:
                continue
            theirs = other.predicted.simulated
            assert theirs is not None
            assert ours <= theirs * (1 + 1e-9)


def test_what_cannot_be_kept_so_is_refused_with_what_would_be() -> None:
    graph = perceptron(6, 128, 256)
    host = machine("p3.2xlarge")
    with pytest.raises(girih.PlanError, match="cannot be met by hold sqrt, which needs") as refused:
        plan_graph(graph, machine=host, memory=100_000, hold="sqrt", objective="bytes")
    (needed,) = map(int, re.findall(r"\((\d+) bytes\)", str(refused.value)))
    plan = plan_graph(graph, machine=host, memory=needed, hold="sqrt", objective="bytes")
    assert plan.peak == needed
    with pytest.raises(girih.PlanError, match="has no large memory to move tensors to"):
        plan_graph(graph, machine=replace(host, host=None), memory=needed, hold="vdnn", objective="bytes")
    assert (
        plan_graph(graph, machine=replace(host, host=None), memory=needed, hold="sqrt", objective="bytes").peak
        == needed
    )
    for hold, message in [
        ("vdn", "no way 'vdn' to hold tensors: expected one of auto, swap, recompute, none, odswap, lms"),
        ("chain:stages=0", "chain: option stages is a whole number of at least 1, got 0"),
    ]:
        with pytest.raises(girih.PlanError, match=message):
            plan_graph(graph, machine=host, memory=needed, hold=hold, objective="bytes")


def test_a_value_of_ones_own_and_a_named_order() -> None:
    graph = perceptron(6, 128, 256)
    limit = int(plan_graph(graph, machine="p3.2xlarge", objective="bytes").peak * 0.9)
    plans = [
        plan_graph(graph, machine="p3.2xlarge", memory=limit, hold=hold, order=order, objective="bytes")
        for hold, order in [("chain:stages=4", "auto"), (OptimalChain(stages=4), "auto"), ("chain:stages=4", "early")]
    ]
    assert plans[0].program == plans[1].program
    assert all(plan.peak <= limit for plan in plans)


def test_more_is_computed_again_than_each_step_once() -> None:
    """The optimum for chains is among what `recompute` tries: the smallest limit is below that of cuts alone."""
    graph = perceptron(12, 64, 256)
    with pytest.raises(girih.PlanError, match=r"where results are computed again, the leanest") as refused:
        plan_graph(graph, machine="local:1", memory=100_000, hold="recompute", objective="bytes")
    (needed,) = map(int, re.findall(r"\((\d+) bytes\)", str(refused.value)))
    plan = plan_graph(graph, machine="local:1", memory=needed, hold="recompute", objective="bytes")
    assert plan.choice.sequence is not None
    assert max(plan.choice.sequence.count(number) for number in set(plan.choice.sequence)) > 2


def test_two_devices_keep_the_limit_too() -> None:
    graph = perceptron(6, 128, 256)
    free = plan_graph(graph, machine="local:2", compare=(), objective="bytes")
    for hold in ("odswap", "vdnn", "sqrt"):
        plan = plan_graph(
            graph, machine="local:2", memory=int(free.peak * 0.9), hold=hold, compare=(), objective="bytes"
        )
        check(plan)
        assert plan.peak <= free.peak * 0.9


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["holds", "--json"]) == 0
    assert [item["name"] for item in json.loads(capsys.readouterr().out)] == [*HOLDS, *BASELINES]
    assert main(["holds"]) == 0
    assert "size=20, running=2, ahead=2" in capsys.readouterr().out
    plan = ["plan", "mlp-tiny", "--batch", "512", "--machine", "local:1", "--memory", "540KB", "--no-compare"]
    assert main([*plan, "--hold", "chain:stages=9", "-o", "plan.json", "--json"]) == 0
    assert max(json.loads(capsys.readouterr().out)["peak"]) <= 540_000
    assert main(["run", "plan.json", "--steps", "1", "--backend", "threads", "--verify"]) == 0
    wrong = [("vdn", "did you mean vdnn?"), ("lms:size=3", "lms has no option 'size'"), ("5", "no '5': expected")]
    for hold, message in wrong:
        with pytest.raises(SystemExit):
            main(["plan", "mlp-tiny", "--hold", hold])
        assert message in capsys.readouterr().err


def test_the_page_lists_every_way() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in BASELINES:
        assert f"| `{name}` |" in text
        assert class_of("baseline", name).summary() in text
