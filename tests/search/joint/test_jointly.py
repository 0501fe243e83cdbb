"""The joint search: never slower than the parts chosen in turn, within the limit, the same each time, and told."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import pytest
from graphs import perceptron

from girih.api import plan_graph
from girih.graph import Graph, parse_graph
from girih.layout.budget import Budget
from girih.machine import Device, Level, Machine
from girih.machine.machine import Tier
from girih.partition.search import nobody
from girih.partition.space.problem import Objective
from girih.plans.check import check
from girih.plans.plan import Plan, PlanError
from girih.plans.predict import predict
from girih.search.joint.jointly import jointly
from girih.search.joint.rounds import Rounds, Ways
from girih.search.joint.search import Joint
from girih.search.joint.told import worth
from girih.search.judge import Judge

PRODUCTS = """graph
  input %x: float32[64, 64]  batch  "0"
  input %q: float32[64, 64]  parameter  "q"
  input %k: float32[64, 64]  parameter  "k"
  %a: float32[64, 64] = aten.mm(self=%x, mat2=%q)  # forward
  %b: float32[64, 64] = aten.mm(self=%x, mat2=%k)  # forward
  %t: float32[64, 64] = aten.permute(self=%b, dims=[1, 0])  # forward
  %s: float32[64, 64] = aten.mm(self=%a, mat2=%t)  # forward
  return %s result"""
"""Scores of attention: two products of one input, and the product of both."""

LIMIT = 65_536
"""Bytes for each device, within which they are not computed as where there is room."""

SUM = """graph
  input %x: float32[32, 32]  batch  "0"
  input %w: float32[32, 32]  parameter  "w"
  %a: float32[32, 32] = aten.add.Tensor(self=%x, other=%w)  # forward
  %b: float32[32, 32] = aten.mul.Tensor(self=%a, other=%w)  # forward
  %c: float32[32, 32] = aten.add.Tensor(self=%b, other=%x)  # forward
  return %c result"""
"""A product within a sum, which is one kernel by a rule."""


CHAIN = """graph
  input %x: float32[32, 32]  batch  "0"
  input %y: float32[32, 32]  batch  "1"
  %a: float32[32, 32] = aten.mm(self=%x, mat2=%y)  # forward
  %b: float32[32, 32] = aten.mul.Tensor(self=%a, other=%a)  # forward
  %c: float32[32, 32] = aten.mm(self=%b, mat2=%a)  # forward
  %d: float32[32, 32] = aten.mm(self=%c, mat2=%b)  # forward
  return %d result"""
"""(b a) b, which is as much work as b (a b), but needs other divisions of all that is before."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only counted work ends a search, however busy the machine is."""
    monkeypatch.setattr("girih.layout.budget.PATIENCE", 1e6)


def two_devices(link: float = 1e9, host: float = 2e8) -> Machine:
    """Links of so many bytes/s, and a large memory behind each device that is as fast as said."""
    device = Device("small", 2e9, 10**9, 1e9, 1e-7)
    return Machine("small", device, (Level("links", (2,), link, 1e-7),), host=Tier("host", 10**9, host, host))


@cache
def graph_of(text: str) -> Graph:
    return parse_graph(text)


@cache
def planned(text: str, memory: int | None, search: str = "joint:seconds=0.6") -> Plan:
    return plan_graph(graph_of(text), machine=two_devices(), memory=memory, search=search)


def test_a_graph_that_is_no_cheaper_by_itself_is_divided_anew() -> None:
    turn, plan = planned(CHAIN, 9830, "portfolio"), planned(CHAIN, 9830, "joint:seconds=2")
    assert plan.choice.rewrites
    assert plan.certificate.cost < 0.99 * turn.certificate.cost
    assert plan.peak <= 9830


@pytest.mark.parametrize(("text", "share"), [(SUM, None), (SUM, 0.7), (PRODUCTS, 0.5)])
def test_never_slower_than_the_parts_in_turn_and_within_the_limit(text: str, share: float | None) -> None:
    free = planned(text, None, "portfolio")
    limit = None if share is None else int(share * free.peak)
    try:
        turn = planned(text, limit, "portfolio")
    except PlanError as error:
        with pytest.raises(PlanError, match=str(error)[:40]):
            planned(text, limit)
        return
    plan = planned(text, limit)
    check(plan)
    assert plan.search == "joint"
    assert 0 < plan.certificate.bound <= plan.certificate.cost <= turn.certificate.cost
    assert plan.certificate.cost == plan.predicted.simulated == predict(plan).seconds
    assert limit is None or plan.peak <= limit
    assert plan.certificate.statistics["seconds, sequential"] == turn.certificate.cost


def test_a_dearer_division_that_moves_less_is_found_and_told() -> None:
    """Under this limit what the tables find cheapest must move; another division need not, or hides it."""
    turn, plan = planned(PRODUCTS, LIMIT, "portfolio"), planned(PRODUCTS, LIMIT)
    check(plan)
    assert plan.certificate.cost < 0.97 * turn.certificate.cost
    assert plan.strategy != turn.strategy
    told = " ".join(plan.notes)
    assert "the best over time: " in told
    part = "rewrites" if plan.choice.rewrites else "strategy"
    assert f"{part} other than in the best sequential composition; set back alone: " in told
    assert plan.certificate.statistics[f"without its {part}"] == turn.certificate.cost


def test_the_same_work_finds_the_same() -> None:
    first, second = planned(PRODUCTS, LIMIT), planned.__wrapped__(PRODUCTS, LIMIT)
    assert first.choice == second.choice
    assert first.certificate.statistics == second.certificate.statistics


def test_without_work_it_is_the_sequential_composition() -> None:
    turn, plan = (planned(PRODUCTS, None, f"{search}:seconds=0") for search in ("portfolio", "joint"))
    assert plan.choice == turn.choice
    assert plan.certificate.cost == turn.certificate.cost
    assert plan.certificate.stopped == "time"


def test_the_rewritten_graph_is_composed_however_long_the_first_composition_takes() -> None:
    plan = planned(SUM, None, "joint:seconds=0.001")
    assert plan.certificate.statistics["graphs"] == 2


def test_rounds_come_however_long_the_compositions_take() -> None:
    turn = planned(PRODUCTS, LIMIT, "portfolio")
    statistics = {**turn.certificate.statistics, "seconds of work": 1000.0}
    late = turn.but(certificate=replace(turn.certificate, statistics=statistics))
    ways, aim = Ways("auto", "auto", None, nobody), Objective("time", two_devices())
    plan = jointly(graph_of(PRODUCTS), aim, LIMIT, Joint(seconds=0.6), lambda graph, seconds: late, ways)
    assert plan.certificate.work > 1000
    assert plan.certificate.cost < 0.97 * turn.certificate.cost


def test_what_is_slower_without_a_limit_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a limit can be kept at all may be known late, and then be in vain."""
    where = two_devices()
    rounds = Rounds(Ways("auto", "auto", None, nobody), Budget(10.0), where, LIMIT)
    fast = planned(PRODUCTS, LIMIT)
    rounds.write(graph_of(PRODUCTS), ())
    rounds.take(fast, fast.certificate.cost, "first")
    slow = plan_graph(graph_of(PRODUCTS), machine=where, search="single", objective="time", compare=())
    assert slow.peak > LIMIT
    monkeypatch.setattr("girih.search.joint.rounds.held", None)
    found = rounds.quick(slow.but(memory=LIMIT))
    assert found is not None
    assert found[0] > fast.certificate.cost
    assert rounds.consider([("single", slow.but(memory=LIMIT))], 1) == found[0]
    assert rounds.best is fast


def test_rules_are_a_part_of_it() -> None:
    turn, plan = planned(SUM, None, "portfolio"), planned(SUM, None)
    check(plan)
    assert plan.choice.rewrites
    assert plan.graph != graph_of(SUM)
    assert plan.certificate.cost < turn.certificate.cost
    assert plan.certificate.statistics["graphs"] == 2


def test_what_counts_the_steps_of_other_choices_is_not_set_back_alone() -> None:
    """Stays of tensors are numbers of steps: among the steps of another order compiled loops would write anywhere."""
    graph = perceptron(6, 128, 256)

    def within(share: float) -> Plan:
        return plan_graph(graph, machine="p3.2xlarge", memory=int(share * free.peak), compare=())

    free = plan_graph(graph, machine="p3.2xlarge", memory="unlimited", compare=())
    half, most = within(0.5), within(0.8)
    assert half.choice.residency
    assert half.choice.sequence
    assert half.choice != most.choice
    for best, before in ((half, most), (most, half), (half, free), (free, half)):
        judge = SimpleNamespace(judge=Judge(best))
        rounds = SimpleNamespace(compositions=[before], kept=judge, ways=SimpleNamespace(store=None))
        found = dict(worth(rounds, best))
        assert "sequence" not in found
        for part, seconds in found.items():
            assert part in ("overlap", "residency")
            assert seconds >= best.certificate.bound
