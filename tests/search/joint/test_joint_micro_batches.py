"""How many micro-batches is a choice of the joint search: within a limit fewer activations are there at once."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from graphs import perceptron
from torch.nn.functional import cross_entropy, mse_loss

import girih
from girih.api import load, plan_graph
from girih.graph import Graph
from girih.kernels.evaluate import interpret
from girih.layout.budget import Budget
from girih.machine import Device, Level, Machine
from girih.machine.machine import Tier
from girih.partition.search import nobody
from girih.partition.searches.stages import micro_batches
from girih.plans.check import check
from girih.plans.inputs import program_of
from girih.plans.plan import Plan, PlanError
from girih.plans.predict import predict
from girih.search.joint.divisions import BY_KEYS, STAGES, tensor_parallel
from girih.search.joint.jointly import _in_micro_batches as in_micro_batches
from girih.search.joint.rounds import Rounds, Ways
from girih.search.memory.limit import too_much_state
from girih.search.stages import counts_of, in_parts

GRAPH = perceptron(3, 256, 32)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only counted work ends a search, however busy the machine is."""
    monkeypatch.setattr("girih.layout.budget.PATIENCE", 1e6)


def small(devices: int, host: float = 1e7) -> Machine:
    """Devices with a large memory behind each that takes and gives so many bytes/s."""
    device = Device("small", 2e9, 10**9, 1e9, 1e-7)
    levels = (Level("links", (devices,), 1e9, 1e-7),) if devices > 1 else ()
    return Machine("small", device, levels, host=Tier("host", 10**9, host, host))


def within(search: str, limit: int) -> Plan:
    return plan_graph(GRAPH, machine=small(1), memory=limit, search=search, compare=())


def test_the_batch_is_cut_where_activations_exceed_the_limit(tmp_path: Path) -> None:
    free = plan_graph(GRAPH, machine=small(1), memory="unlimited", compare=())
    limit = int(0.65 * free.peak)
    turn, plan = within("portfolio", limit), within("joint:seconds=0.5", limit)
    count = plan.choice.micro_batches
    assert count == micro_batches(plan.graph) > 1
    assert plan.certificate.cost == predict(plan).seconds < 0.5 * turn.certificate.cost
    assert plan.peak <= limit
    check(plan)
    told = " ".join(plan.notes)
    assert f"chosen: {count} micro-batches; " in told
    assert "micro-batches other than in the best sequential composition; set back alone: " in told
    assert f"the batch is cut into {count} equal parts" in str(plan.choice)
    plan.save(tmp_path / "plan.json")
    assert load(tmp_path / "plan.json").choice == plan.choice
    with pytest.raises(PlanError, match=f"micro_batches: expected {count}, into which the graph cuts its batch"):
        check(plan.but(micro_batches=count + 1))
    random = np.random.default_rng(0)
    inputs = {item.name: torch.from_numpy(random.normal(0, 0.2, GRAPH.values[item.name].shape).astype(np.float32))
              for item in GRAPH.inputs}  # fmt: skip
    whole, parts = interpret(GRAPH, dict(inputs)), interpret(plan.graph, dict(inputs))
    for before, after in zip(GRAPH.outputs, plan.graph.outputs, strict=True):
        torch.testing.assert_close(whole[before.name], parts[after.name])


def test_micro_batches_that_were_asked_for_stay() -> None:
    linear = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)
    step = girih.TrainingStep(linear, loss=mse_loss, optimizer=optimizer, micro_batches=2)
    batch = torch.randn(16, 8), torch.randn(16, 8)
    assert counts_of(program_of(step, batch).graph) == [2]
    assert counts_of(program_of(replace(step, micro_batches=1), batch).graph) == [2, 4, 8, 16]
    plan = girih.plan(step, batch, machine="local:1", search="joint:seconds=0.2", compare=())
    assert micro_batches(plan.graph) == 2
    assert plan.choice.micro_batches == 1


def test_what_others_divide_depends_on_the_graph_the_machine_and_the_limit() -> None:
    def names(where: Machine, limit: int | None, graph: Graph) -> list[str]:
        rounds = Rounds(Ways("auto", "auto", None, nobody), Budget(1.0), where, limit)
        rounds.write(GRAPH, ())
        return rounds.write(graph, ()).divisions.names

    assert STAGES in names(small(2), 10**6, GRAPH)
    assert STAGES not in names(small(2), None, GRAPH)
    assert {STAGES, "pipeline"}.isdisjoint(names(small(2), 10**6, in_parts(GRAPH, 2)))
    assert BY_KEYS not in names(small(2), 10**6, GRAPH)
    assert names(small(1), 10**6, GRAPH) == ["exact"]
    wide = replace(small(2), levels=(Level("hosts", (2,), 1e8, 1e-7), Level("links", (2, 2), 1e9, 1e-7)))
    assert list(tensor_parallel(wide)) == [
        "megatron:tensor=2", "megatron:tensor=2,state=sharded", "megatron:tensor=4,state=sharded", "megatron:tensor=8"
    ]  # fmt: skip


def test_where_nothing_fits_yet_the_most_micro_batches_come_first() -> None:
    """They need least memory: from few on, a search may have no seconds left when it comes to those that fit."""
    told: list[str] = []
    ways = Ways("auto", "auto", None, lambda what, _: told.append(what))
    limit = int(0.65 * plan_graph(GRAPH, machine=small(1), memory="unlimited", compare=()).peak)
    rounds = Rounds(ways, Budget(10.0), small(1), limit)
    rounds.write(GRAPH, ())
    in_micro_batches(rounds)
    tried = [f"joint: {count} micro-batches" for count in reversed(counts_of(GRAPH))]
    found = [line for line in told if "micro-batches" in line]
    assert found == tried[: len(found)] != []
    assert rounds.best is not None
    assert rounds.best.peak <= limit


@pytest.mark.parametrize("search", ["portfolio", "joint"])
def test_more_state_than_all_devices_may_hold_is_refused_at_once(search: str) -> None:
    """Micro-batches and what is computed again leave it where it is; a large memory takes it."""
    told: list[str] = []
    state = sum(GRAPH.values[item.name].bytes for item in GRAPH.state_inputs)
    where = replace(small(2), host=None)
    assert too_much_state(GRAPH, where, state // 2) == ""
    assert too_much_state(GRAPH, small(2), 1) == ""
    with pytest.raises(PlanError, match=rf"{state // 2} bytes\) on each of 2 devices, which nothing computes again"):
        plan_graph(
            GRAPH, machine=where, memory=state // 2 - 1, search=search, observe=lambda what, _: told.append(what)
        )
    assert "fit memory" in told
    assert not any("micro-batches" in what or "hold" in what for what in told)


def test_divided_stages_that_do_not_fit_are_moved_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("girih.search.stages.COUNTS", (2,))
    layers = [torch.nn.Linear(64, 64) for _ in range(4)]
    model = torch.nn.Sequential(*layers)
    step = girih.TrainingStep(model, loss=mse_loss, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    graph = program_of(step, (torch.randn(64, 64), torch.randn(64, 64))).graph
    far = Level("hosts", (2,), 1e8, 1e-6), Level("links", (2,), 1e9, 1e-7)
    rounds = Rounds(Ways("auto", "auto", None, nobody), Budget(10.0), replace(small(1), levels=far), 10**6)
    written = rounds.write(graph, ())
    (name, plan), *_ = rounds.known(written, (STAGES,))
    assert name == "division stages in 2 micro-batches"
    assert plan.choice.schedule == "1f1b"
    assert {len(some) for submesh in plan.strategy.submeshes for some in submesh if some is not None} == {1}
    limit = int(0.9 * plan.peak)
    held = rounds.quick(plan.but(memory=limit))
    assert held is not None
    assert held[1].choice.residency
    assert held[1].peak <= limit
    check(held[1])


def test_training_has_the_losses_of_the_whole_batch() -> None:
    """The labels of all micro-batches say by what the loss is divided; a part of them is ignored."""
    torch.manual_seed(0)
    layers = [
        torch.nn.Linear(16, 64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, 64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, 4),
    ]
    model = torch.nn.Sequential(*layers).double()
    own = deepcopy(model)
    x, y = torch.randn(256, 16, dtype=torch.float64), torch.randint(0, 4, (256,))
    y[:100] = -100
    optimizer, alone = (torch.optim.SGD(item.parameters(), lr=0.1, momentum=0.9) for item in (model, own))
    free = girih.plan(girih.TrainingStep(model, loss=cross_entropy, optimizer=optimizer), (x, y), machine=small(1),
                      memory="unlimited", compare=())  # fmt: skip
    limit = int(0.6 * free.peak)
    with girih.fit(model, cross_entropy, optimizer, (x, y), machine=small(1), memory=limit, search="joint:seconds=0.5",
                   compare=()) as train:  # fmt: skip
        assert train.plan.choice.micro_batches > 1
        assert train.plan.peak <= limit
        for _ in range(3):
            alone.zero_grad()
            loss = cross_entropy(own(x), y)
            loss.backward()
            alone.step()
            assert train(x, y) == pytest.approx(loss.item(), rel=1e-12)
    for mine, other in zip(model.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-11, atol=1e-13)
