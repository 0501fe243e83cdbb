"""Divisions and movements chosen together, by what each costs on the machine at hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from counts import LONG
from graphs import perceptron

import girih
from girih.api import plan_graph
from girih.layout.budget import Budget
from girih.machine import Machine, machine
from girih.partition.searches.exact import Exact
from girih.partition.space.problem import Objective
from girih.plans.check import check
from girih.plans.predict import predict
from girih.search.memory.holding import TooLittleError, held
from girih.search.memory.limit import NothingFitsError, fit
from girih.search.memory.together import divided, together
from girih.search.moves import searched


def with_host(rate: float) -> Machine:
    where = machine("titanx-40g:2")
    assert where.host is not None
    return replace(where, host=replace(where.host, out_bytes_per_second=rate, in_bytes_per_second=rate))


def nobody(what: str, share: float) -> None:
    pass


def test_a_fast_large_memory_is_used_where_a_slow_one_makes_devices_exchange() -> None:
    graph = perceptron(3, 256, 1024)
    limit = plan_graph(graph, machine=with_host(1e12), objective="time", search="exact:seconds=5").peak // 2
    slow, fast = (
        plan_graph(graph, machine=with_host(rate), objective="time", search="exact:seconds=5", memory=limit)
        for rate in (1e9, 1e12)
    )
    for plan in (slow, fast):
        check(plan)
        assert plan.peak <= limit
        assert plan.certificate.cost == plan.predicted.simulated == predict(plan).seconds
        assert plan.certificate.bound <= plan.certificate.cost
    assert slow.bytes_received.sum() > fast.bytes_received.sum()
    assert not slow.choice.residency
    assert fast.choice.residency
    # Each is faster on its machine than the other's division is, held as well as may be.
    for own, other in ((slow, fast), (fast, slow)):
        swapped = own.but(strategy=other.strategy, residency=(), sequence=None, pieces=())
        if swapped.peak > limit:
            swapped = held(swapped, "auto", store=None, note=nobody)
        assert own.predicted.simulated is not None
        assert own.predicted.simulated <= predict(swapped).seconds


def test_what_is_divided_by_seconds_and_moved_trains_the_same() -> None:
    torch.manual_seed(0)
    layers = [layer for _ in range(4 if LONG else 2) for layer in (torch.nn.Linear(64, 64), torch.nn.Tanh())]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    batch = (torch.randn(128, 64), torch.randint(8, (128,)))
    step = girih.TrainingStep(model, loss=torch.nn.functional.cross_entropy, optimizer=optimizer)
    options = {
        "machine": "local:2",
        "objective": "time",
        "search": f"exact:seconds={2 if LONG else 0.5}",
        "compare": (),
    }
    free = girih.plan(step, batch, **options)
    limit = free.peak // 3
    plan = girih.plan(step, batch, memory=limit, **options)
    check(plan)
    assert plan.peak <= limit
    assert plan.choice.residency or plan.choice.sequence is not None
    with plan.start() as run:
        assert all(run.verified_step(*batch).ok for _ in range(2))
        assert run.run.peak_bytes(*run.inputs(batch, None)) == [use.peak for use in plan.memory_by_device]


def test_the_fastest_of_several_divisions_is_taken_and_told() -> None:
    where = with_host(1e9)
    graph = perceptron(3, 256, 1024)
    cut, whole = (plan_graph(graph, machine=where, search=search, objective="bytes") for search in ("exact", "single"))
    limit = min(cut.peak, whole.peak) * 9 // 10
    plans = divided(whole.but(memory=limit), (), (cut.strategy, whole.strategy))
    assert [plan.strategy for plan in plans] == [whole.strategy, cut.strategy]
    best = together(plans, "auto", order="auto", store=None, note=nobody)
    alone = [held(plan, "auto", store=None, note=nobody) for plan in plans]
    seconds = [predict(plan).seconds for plan in alone]
    assert predict(best).seconds <= min(seconds) * (1 + 1e-9)
    told = "of 2 divisions within the memory limit this one is fastest"
    assert (told in " ".join(best.notes)) == (best.strategy != whole.strategy)
    assert best.strategy == cut.strategy  # the whole step moves far more over this slow link


def test_a_division_that_moves_is_not_said_to_be_proved_under_a_cap_that_it_does_not_have() -> None:
    """Of the front that a refusal gives, only the cheapest has no gap: the others exchange more than is needed."""
    graph = perceptron(3, 256, 1024)
    where = with_host(1e9)
    search = Exact(5.0, space="apart")
    free = plan_graph(graph, machine=where, objective="bytes", search=search)
    goal = Objective("bytes", where)
    with pytest.raises(NothingFitsError) as refused:
        fit(graph, goal, searched(search, graph, goal), search, free.peak // 100, nobody)
    first, *others = refused.value.divisions
    assert first.certificate.cost == free.certificate.cost
    for other in (first, *others):
        assert other.certificate.bound <= first.certificate.cost
        assert (other.certificate.gap == 0) == (other.certificate.cost == first.certificate.cost)


def test_the_refusal_is_of_the_division_that_needs_least() -> None:
    graph = perceptron(3, 64, 256)
    plans = [plan_graph(graph, machine="local:2", search=search, objective="bytes") for search in ("single", "row")]
    few, spent = [plan.but(memory=20_000) for plan in plans], Budget(10.0)
    with pytest.raises(TooLittleError, match="cannot be met, whatever is moved out") as refused:
        together(few, "auto", order="auto", store=None, note=nobody, work=spent)
    smallest, work = [], Budget(0.0)
    for plan in few:
        with pytest.raises(TooLittleError) as alone:
            held(plan, "swap", order="captured", store=None, note=nobody, work=work)
        smallest.append(alone.value.smallest)
    assert 0 < work.spent <= spent.spent  # what is refused has taken its time, too
    assert refused.value.smallest == min(smallest)


def test_a_proof_of_the_fastest_plan_is_of_plans_without_movements() -> None:
    graph = perceptron(2, 16, 16)
    with pytest.raises(girih.PlanError, match="does not fit"):
        plan_graph(graph, machine="titanx-40g:2", objective="time", search="optimum", memory="2KB")
