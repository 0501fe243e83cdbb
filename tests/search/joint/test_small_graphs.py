"""Small graphs: what takes two rewrites, another order, or another tensor moved, is found, within the limit."""

from __future__ import annotations

import numpy as np
import pytest

from girih.api import plan_graph
from girih.graph import Graph, parse_graph
from girih.layout.budget import Budget
from girih.machine import Device, Level, Machine
from girih.machine.machine import Tier
from girih.partition.search import nobody
from girih.plans.check import check
from girih.plans.plan import Plan
from girih.plans.predict import predict
from girih.rewrite.backtracking import fingerprint
from girih.search.joint.rounds import Rounds, Ways
from girih.search.joint.small import Candidate, Leaving, Small
from girih.search.joint.stays import fastest_stays
from girih.search.joint.writings import in_order, orders_of, writings
from girih.search.memory.step_seconds import simulated_seconds

PRODUCTS = """graph
  input %x: float32[16, 16]  batch  "0"
  input %y: float32[16, 16]  batch  "1"
  input %z: float32[16, 16]  batch  "2"
  %a: float32[16, 16] = aten.mm(self=%x, mat2=%z)  # forward
  %b: float32[16, 16] = aten.mm(self=%y, mat2=%a)  # forward
  %c: float32[16, 16] = aten.mm(self=%b, mat2=%y)  # forward
  %d: float32[16, 16] = aten.tanh(self=%c)  # forward
  return %d result"""
"""(y (x z)) y: columns need no message in y (x (z y)), which takes two rewrites that save nothing on one device."""

LATE = """graph
  input %x: float32[16, 16]  batch  "0"
  input %y: float32[16, 16]  batch  "1"
  %a: float32[16, 16] = aten.mm(self=%x, mat2=%y)  # forward
  %b: float32[16, 16] = aten.mm(self=%x, mat2=%a)  # forward
  %c: float32[16, 16] = aten.add.Tensor(self=%x, other=%y)  # forward
  %d: float32[16, 16] = aten.mm(self=%c, mat2=%b)  # forward
  return %d result"""
"""The sum is gathered beside the products where it is computed first."""

FULL = """graph
  input %x: float32[32, 32]  batch  "0"
  input %y: float32[32, 32]  batch  "1"
  input %z: float32[32, 32]  batch  "2"
  %a: float32[32, 32] = aten.add.Tensor(self=%z, other=%x)  # forward
  %b: float32[32, 32] = aten.mul.Tensor(self=%y, other=%y)  # forward
  %c: float32[32, 32] = aten.mul.Tensor(self=%b, other=%a)  # forward
  %d: float32[32, 32] = aten.mm(self=%z, mat2=%z)  # forward
  return %c result
  return %d result"""
"""With the product second, y and the sum leave while it is computed, and come back beside it."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only counted work ends a search, however busy the machine is."""
    monkeypatch.setattr("girih.layout.budget.PATIENCE", 1e6)


def two_devices(link: float, host: float) -> Machine:
    device = Device("small", 2e9, 10**9, 1e9, 1e-7)
    return Machine("small", device, (Level("links", (2,), link, 1e-7),), host=Tier("host", 10**9, host, host))


def planned(text: str, machine: Machine, memory: int | None, search: str) -> Plan:
    return plan_graph(parse_graph(text), machine=machine, memory=memory, search=search, compare=())


def values(graph: Graph) -> list[np.ndarray]:
    """What a graph of products, sums and tanh computes of fixed numbers."""
    random = np.random.default_rng(0)
    known = {item.name: random.standard_normal(graph.values[item.name].shape) for item in graph.inputs}
    operators = {"aten.mm": np.matmul, "aten.add.Tensor": np.add, "aten.mul.Tensor": np.multiply, "aten.tanh": np.tanh}
    for node in graph.nodes:
        known[node.outputs[0]] = operators[node.operator](*(known[name] for name in node.inputs))
    return [known[item.name] for item in graph.outputs]


@pytest.mark.parametrize(
    ("text", "machine", "memory", "times", "by"),
    [
        (PRODUCTS, two_devices(1e9, 2e8), None, 0.82, "strategies by cost"),
        (LATE, two_devices(2e8, 1e9), None, 0.99, "orders of nodes"),
        (FULL, two_devices(2e8, 1e9), 8192, 0.87, "orders of nodes"),
    ],
)
def test_what_single_steps_do_not_lead_to(
    text: str, machine: Machine, memory: int | None, times: float, by: str
) -> None:
    turn, plan = planned(text, machine, memory, "portfolio"), planned(text, machine, memory, "joint:seconds=0.2")
    check(plan)
    assert plan.certificate.cost < times * turn.certificate.cost
    assert plan.certificate.statistics["found by"] == by
    assert plan.certificate.bound <= plan.certificate.cost == predict(plan).seconds
    assert memory is None or plan.peak <= memory
    assert len(plan.choice.rewrites) == (2 if text == PRODUCTS else 0)
    for own, expected in zip(values(plan.graph), values(parse_graph(text)), strict=True):
        np.testing.assert_allclose(own, expected)


def test_every_way_to_write_a_graph_is_found_once() -> None:
    graph, machine = parse_graph(PRODUCTS), two_devices(1e9, 2e8)
    found = list(writings(graph, machine, lambda item: True, Budget(1.0)))
    prints = {fingerprint(item) for item, _ in found}
    assert len(found) == len(prints) == 2  # products are moved to the right alone
    for item, rewrites in found:
        assert rewrites
        np.testing.assert_allclose(values(item)[0], values(graph)[0])


def test_orders_are_all_and_only_those_that_can_be_computed() -> None:
    graph = parse_graph(FULL)
    orders = list(orders_of(graph))
    assert len(orders) == len(set(orders)) == 8
    for order in orders:
        for own, expected in zip(values(in_order(graph, order)), values(graph), strict=True):
            np.testing.assert_array_equal(own, expected)


def test_ways_to_hold_keep_the_limit_and_take_what_they_say() -> None:
    machine = two_devices(2e8, 1e9)
    plan = planned(FULL, machine, 8192, "portfolio")
    plain = plan.whole.but(memory=8192, simulated=None)
    seconds, spent = [float("inf")], Budget(5.0)
    for way in fastest_stays(plain, lambda: seconds[-1], None, spent):
        assert way.peak <= 8192
        assert way.predicted.simulated is not None
        assert predict(way).seconds == way.predicted.simulated < seconds[-1]
        seconds.append(way.predicted.simulated)
    assert seconds[-1] <= plan.certificate.cost
    assert spent.spent > 0


def test_what_leaves_is_whole_values_or_is_computed_again() -> None:
    host = Tier("host", 1000, 2.0, 1.0)  # bytes/s in, and out
    first, second = Leaving(10.0, 0.0, 0.0, float("inf")), Leaving(20.0, 3.0, 4.0, float("inf"))
    assert Leaving.away(5.0, [first, second], 1.0, 1.0, host) == 5 + 10
    assert Leaving.away(15.0, [first, second], 1.0, 1.0, host) == (3 + 10) + (20 + 4)  # not the half of it
    assert Leaving.away(25.0, [first, second], 1.0, 1.0, host) == (5 + 10) + (10 + 20)
    assert Leaving.away(15.0, [first, second._replace(again=6.0)], 1.0, 1.0, host) == 1 + (1 + 6)
    assert Leaving.away(31.0, [first, second], 1.0, 1.0, host) == float("inf")


def test_no_way_to_hold_is_below_its_bound() -> None:
    machine, memory = two_devices(2e8, 1e9), 8192
    plan = planned(FULL, machine, memory, "portfolio").whole.but(memory=memory, simulated=None)
    rounds = Rounds(Ways("auto", "auto", None, nobody), Budget(5.0), machine, memory)
    written = rounds.write(plan.graph, ())
    small = Small(written, 0.0)
    labels = written.divisions.space.plain.labels(plan.strategy)
    assert labels is not None
    sized, host, bounds = small.sized(labels), machine.host, []
    assert host is not None
    for order in small.orders[::3]:
        bounds.append(sized.moved(order, memory, host))
        candidate = Candidate(0.0, 0, None, written, labels, order.turns)
        ways = fastest_stays(candidate.plan, lambda: float("inf"), None, Budget(5.0))
        assert min((simulated_seconds(way, None) for way in ways), default=float("inf")) >= bounds[-1]
    assert max(bounds) > 3e-5
