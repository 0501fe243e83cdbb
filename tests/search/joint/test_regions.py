"""Rewrites of layers that are alike: together, beside a division that stays as it is."""

from __future__ import annotations

from collections import Counter

from girih.graph import parse_graph
from girih.layout.budget import Budget
from girih.machine import Device, Level, Machine
from girih.partition.space.problem import Objective
from girih.plans.check import check
from girih.plans.choice import Choice
from girih.plans.plan import Goal, Plan
from girih.search.joint.regions import regions
from girih.search.table import search_of

LAYERS = """graph
  input %x: float32[32, 32]  batch  "0"
  input %y: float32[64, 64]  batch  "1"
  input %w: float32[32, 32]  parameter  "w"
  %a: float32[32, 32] = aten.mul.Tensor(self=%x, other=%w)  # forward
  %b: float32[32, 32] = aten.add.Tensor(self=%a, other=%x)  # forward
  %c: float32[32, 32] = aten.mul.Tensor(self=%b, other=%w)  # forward
  %d: float32[32, 32] = aten.add.Tensor(self=%c, other=%x)  # forward
  %e: float32[64, 64] = aten.mul.Tensor(self=%y, other=%y)  # forward
  %f: float32[64, 64] = aten.add.Tensor(self=%e, other=%y)  # forward
  %g: float32[32, 32] = aten.tanh(self=%d)  # forward
  return %g result
  return %f result"""
"""A product within a sum, which is one kernel by a rule: twice of one shape, once of another."""


def test_what_is_alike_is_rewritten_together_and_the_rest_stays_divided_as_it_was() -> None:
    graph = parse_graph(LAYERS)
    at = Machine("small", Device("small", 2e9, 10**9, 1e9, 1e-7), (Level("links", (2,), 1e9, 1e-7),))
    objective = Objective("seconds", at)
    before = search_of("data").search(graph, objective)
    found = []
    for other, rewrites, strategy in regions(graph, before.strategy, objective, Budget(20.0)):
        counts = Counter(node.operator for node in other.nodes)
        found.append((counts["aten.addcmul"], len(rewrites)))
        plan = Plan(other, at, Choice(strategy, rewrites), before.certificate, Goal("joint", "time"))
        check(plan)
        for name in other.values.keys() & graph.values.keys():
            assert strategy.layouts[name] == before.strategy.layouts[name]
        kept = {node.name: division for node, division in zip(graph.nodes, before.strategy.divisions, strict=True)}
        assert strategy.divisions[[node.name for node in other.nodes].index("g")] == kept["g"]
    assert (2, 2) in found
    assert (1, 1) in found
