"""Predictions of plans, and plans by simulated time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import girih
from girih.api import Plan, plan_graph
from girih.cost.profile import RING, Profile, save_profile
from girih.cost.roofline import fit
from girih.cost.setting import setting_of
from girih.cost.store import Setting, Store
from girih.machine import machine
from girih.machine.sizes import SizeTable
from girih.machine.units import format_seconds
from girih.partition.strategy import Strategy
from girih.plans.check import check
from girih.plans.plan import PlanError
from girih.plans.predict import by_measurements, predict
from girih.program.life.accounts import memory_use
from girih.simulate.timeline import COMPUTE


class Branches(torch.nn.Module):
    """Two chains that meet at the end: room for the operator dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.left = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(3)))
        self.right = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(3)))

    def forward(self, x):
        return self.left(x) - self.right(x)


def training():
    torch.manual_seed(0)
    model = Branches().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss = torch.nn.functional.mse_loss
    batch = (torch.randn(8, 16, dtype=torch.float64), torch.randn(8, 16, dtype=torch.float64))
    return model, optimizer, girih.TrainingStep(model, loss=loss, optimizer=optimizer), batch


@pytest.fixture(scope="module")
def made() -> Plan:
    _, _, step, batch = training()
    return girih.plan(step, batch, machine="2x2", objective="time", search="exact")


def test_the_fastest_is_no_slower_than_what_it_started_from(made: Plan) -> None:
    _, _, step, batch = training()
    check(made)
    for search in ("data", "sharded", "single", "model"):
        other = girih.plan(step, batch, machine="2x2", objective="time", search=search, compare=())
        assert other.certificate.cost >= made.certificate.cost * (1 - 1e-12), search
        assert other.predict().seconds == pytest.approx(other.certificate.cost)
    slow = girih.plan(step, batch, machine="2x2", objective="seconds", compare=())
    assert slow.predict().seconds >= made.certificate.cost * (1 - 1e-12)


def test_the_certificate_is_the_prediction(made: Plan) -> None:
    assert made.predict().seconds == pytest.approx(made.certificate.cost)
    assert 0 < made.certificate.bound <= made.certificate.cost
    assert made.search == "sampled"


def test_a_prediction_has_the_programs_bytes_and_peak(made: Plan) -> None:
    timeline = made.predict().timeline
    received = np.bincount(timeline.device, timeline.amount, minlength=timeline.devices)
    assert received.astype(np.int64).tolist() == made.bytes_received.tolist()
    for device, memory in enumerate(timeline.memory):
        assert int(memory.bytes.max()) == memory_use(made.program, device).peak


def test_training_by_the_fastest_plan_is_one_devices(made: Plan) -> None:
    model, optimizer, _, batch = training()
    with made.start(backend="threads") as run:
        got = [run.step(*batch) for _ in range(3)]
    expected = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert got == pytest.approx(expected, rel=1e-10)


def test_a_saved_plan_predicts_the_same(made: Plan, tmp_path: Path) -> None:
    made.save(tmp_path / "plan.json")
    again = girih.load(tmp_path / "plan.json")
    assert again.predict().seconds == made.predict().seconds
    assert again.objective == "time"


def test_a_memory_limit_is_kept_by_the_fastest_plan(made: Plan) -> None:
    _, _, step, batch = training()
    limit = int(made.peak * 0.9)
    other = girih.plan(step, batch, machine="2x2", memory=limit, objective="time", compare=())
    assert other.peak <= limit
    check(other)


def test_another_machine_is_priced_otherwise(made: Plan) -> None:
    slow = replace(machine("2x2"), levels=tuple(
        replace(level, bytes_per_second=level.bytes_per_second / 1000) for level in machine("2x2").levels))  # fmt: skip
    assert predict(made, machine=slow).seconds >= made.predict().seconds
    with pytest.raises(PlanError, match="name a machine with that mesh"):
        made.predict(machine="2x4")
    with pytest.raises(PlanError, match="no machine"):
        made.predict(machine="no-such")


def test_an_older_profile_is_believed_and_told_of(tmp_path: Path) -> None:
    _, _, step, batch = training()
    store, here = tmp_path / "costs.sqlite", machine("local:2")
    sizes = SizeTable.of([(1, 1e-3), (1000, 1.0)])
    roofline = fit([], replace(here.device, flops_per_second=1e9))
    now = Profile("local:2", "processes", setting_of(1, 2), roofline, ((RING, sizes),), sizes, sizes, "2026-11-28")
    old = replace(now, setting=replace(now.setting, library="torch 2.13.0"), when="2026-11-20")
    with Store(store) as opened:
        save_profile(opened, old)
    plan = girih.plan(step, batch, machine="local:2", compare=(), store=store)
    told = plan.predict(store=store)
    assert told.machine.device.flops_per_second == 1e9
    assert told.caution == plan.notes[-1]
    assert told.caution.startswith("local:2 was calibrated on 2026-11-20 by an older girih, which measured operators, ")
    assert told.caution.endswith("`girih calibrate --again --machine local:2` renews it")
    assert str(told).endswith(told.caution)
    assert replace(old, backend="threads").caution.endswith("--machine local:2 --backend threads` renews it")
    with Store(store) as opened:
        save_profile(opened, now)
    assert plan.predict(store=store).caution == ""
    assert len(by_measurements(here, store)) == 1


def test_measurements_of_a_card_have_one_method(made: Plan) -> None:
    profile = Profile("cuda:1", "processes", Setting("H100", "torch 2.13.0", 1, 1), fit([], made.machine.device), (),
                      SizeTable.of([(1, 1.0)]), SizeTable.of([(1, 1.0)]), "2026-11-20")  # fmt: skip
    assert profile.caution == ""


def test_a_store_that_is_none(made: Plan, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no database")
    with pytest.raises(PlanError, match="store"):
        made.predict(store=tmp_path / "store")
    assert made.predict(store=tmp_path / "missing").seconds == made.predict().seconds


def test_a_measured_step_has_every_step_of_every_device(made: Plan) -> None:
    _, _, _, batch = training()
    with made.start(backend="threads", measure=True) as run:
        run.step(*batch)
        timeline = run.timeline()
    assert timeline.measured
    assert timeline.devices == 4
    work = {(d, s) for d, s in zip(timeline.device.tolist(), timeline.step.tolist(), strict=True)}
    steps = made.program.steps
    own = {(d, s) for d in range(4) for s in made.program.order_of(d) if type(steps[s]).__name__ != "FreeStep"}
    assert work == own
    assert {s for _, s in own} == {s for s, step in enumerate(steps) if type(step).__name__ != "FreeStep"}
    received = np.bincount(timeline.device, timeline.amount, minlength=4)
    assert received.astype(np.int64).tolist() == made.bytes_received.tolist()
    assert (timeline.end >= timeline.begin).all()
    assert timeline.busy(COMPUTE).shape == (4,)


def test_a_run_that_does_not_measure_says_so(made: Plan) -> None:
    with made.start(backend="threads") as run, pytest.raises(PlanError, match="measure=True"):
        run.timeline()


def test_a_plan_and_a_prediction_are_one_line_at_a_prompt(made: Plan) -> None:
    found = made.predict()
    assert repr(made).startswith("<Plan: program on 2x2 ")
    assert f"a step takes {format_seconds(found.seconds)}; busiest: device" in str(found)
    assert all(len(repr(item)) < 300 and "\n" not in repr(item) for item in (made, found))


def test_a_notebook_shows_the_plan(made: Plan) -> None:
    assert "<table" in made._repr_html_()


def test_an_objective_that_is_none() -> None:
    from graphs import perceptron

    with pytest.raises(PlanError, match="expected one of bytes, seconds, time"):
        plan_graph(perceptron(1), objective="speed")


def test_one_device_has_nothing_to_search() -> None:
    from graphs import perceptron

    plan = plan_graph(perceptron(1), machine="p3.2xlarge", objective="time")
    assert isinstance(plan.strategy, Strategy)
    assert plan.predict().seconds == pytest.approx(plan.certificate.cost)
