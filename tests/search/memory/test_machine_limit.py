"""Where nobody says a limit, it is the machine's own memory."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from counts import but_long
from graphs import perceptron

from girih.api import plan_graph
from girih.cli.main import main
from girih.machine import Machine, machine
from girih.machine.machine import with_memory
from girih.plans.check import check
from girih.plans.plan import Plan, PlanError
from girih.report.tables import render, summary

GRAPH = perceptron(2, 64, 64)
OBJECTIVES = ["time", "bytes", "seconds"]


@cache
def free(objective: str) -> Plan:
    """Two devices with as much memory as they need."""
    return plan_graph(GRAPH, machine=machine("titanx-40g:2"), memory="unlimited", objective=objective)


def room(share: float, objective: str = "time") -> Machine:
    """Two devices with a share of what the plan without a limit needs."""
    return with_memory(machine("titanx-40g:2"), int(share * free(objective).peak))


@cache
def within(objective: str) -> Plan:
    """Devices that have less than they need."""
    return plan_graph(GRAPH, machine=room(0.9, objective), objective=objective)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_plan_that_does_not_fit_is_searched_within_the_machine(objective: str) -> None:
    plan = within(objective)
    check(plan)
    assert plan.memory == plan.machine.device.memory_bytes
    assert plan.peak <= plan.memory


@pytest.mark.parametrize("objective", but_long(OBJECTIVES, ["bytes", "seconds"]))
def test_what_is_searched_within_the_machine_is_what_that_limit_gives(objective: str) -> None:
    plan = within(objective)
    given = plan_graph(GRAPH, machine=plan.machine, objective=objective, memory=plan.memory)
    assert (given.strategy, given.peak) == (plan.strategy, plan.peak)


def test_a_plan_that_fits_is_the_one_without_a_limit() -> None:
    where = room(1.0)
    plan = plan_graph(GRAPH, machine=where)
    assert plan == plan_graph(GRAPH, machine=where, memory="unlimited")
    assert plan.memory is None


def test_unlimited_plans_and_comparisons_that_do_not_fit_are_marked() -> None:
    small = room(0.5, "bytes")
    plan = plan_graph(GRAPH, machine=small, memory="unlimited", compare=("single",), objective="bytes")
    assert plan.memory is None
    assert not plan.fits
    shown = render(summary(plan))
    assert shown.count(" !") == 2
    assert "! does not fit" in shown
    fits = plan_graph(GRAPH, machine=room(1.0, "bytes"), compare=("single",), objective="bytes")
    assert fits.memory is None
    assert render(summary(fits)).count(" !") == 1


def test_on_one_device_the_bound_is_of_a_step_without_movements() -> None:
    where = machine("titanx-40g:1")
    free = plan_graph(GRAPH, machine=where)
    held = plan_graph(GRAPH, machine=with_memory(where, int(0.8 * free.peak)))
    check(held)
    assert free.certificate.bound == free.certificate.cost == held.predicted.unlimited
    assert held.memory == int(0.8 * free.peak)
    assert held.certificate.bound <= free.certificate.cost <= held.certificate.cost


def test_each_device_has_its_own_memory() -> None:
    """Unequal devices: a plan that leaves the small one room is no plan under the small one's limit."""
    where = machine("titanx-40g:2")
    free = plan_graph(GRAPH, machine=where, search="data")
    large = replace(where.device, memory_bytes=free.peak)
    unequal = replace(where, device=replace(large, memory_bytes=free.peak - 1), groups=())
    assert plan_graph(GRAPH, machine=unequal, search="data").memory == free.peak - 1
    groups = ((large, 1), (replace(large, name="other", memory_bytes=free.peak), 1))
    assert plan_graph(GRAPH, machine=replace(unequal, groups=groups), search="data").memory is None


def test_what_cannot_fit_is_refused_with_where_the_limit_comes_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = with_memory(machine("2"), 1000)
    with pytest.raises(PlanError, match=r"smallest limit.*No limit was given.*1\.00 KB.*unlimited"):
        plan_graph(GRAPH, machine=small, objective="bytes")
    lab = tmp_path / "lab.yaml"
    lab.write_text("device: {name: card, flops: 1 TFLOP/s, memory: 10 KB, memory_bandwidth: 100 GB/s}\nlevels: []\n")
    plan = ["plan", "mlp-tiny", "--machine", str(lab), "--store", str(tmp_path / "none")]
    assert main(plan) == 2
    assert "No limit was given, so it is what a device of lab has, 10.00 KB" in capsys.readouterr().err
    assert main([*plan, "--memory", "unlimited"]) == 0
    assert "! does not fit 10.00 KB of a device" in capsys.readouterr().out
