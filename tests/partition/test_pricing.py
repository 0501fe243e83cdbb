"""Tables priced together are those priced one by one; equal pieces are found; a budget is kept."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from graphs import perceptron
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from girih.graph import parse_graph
from girih.layout import Placements
from girih.layout.budget import Budget
from girih.layout.kernels import distinct_rows
from girih.machine import machine
from girih.partition.space import pricing
from girih.partition.space.options import SECONDS
from girih.partition.space.pricing import OutOfTimeError
from girih.partition.space.problem import Objective, build


@given(arrays(np.int64, st.tuples(st.integers(0, 40), st.integers(1, 3)), elements=st.integers(-1, 1)))
def test_distinct_rows_are_those_of_numpy(rows: np.ndarray) -> None:
    numbers, firsts = distinct_rows(rows)
    assert np.array_equal(rows[firsts][numbers], rows)
    assert len(firsts) == len(np.unique(rows, axis=0)) if len(rows) else not len(firsts)


@pytest.mark.parametrize("objective", ["bytes", "seconds"])
@pytest.mark.parametrize(("alone", "threads"), [(True, False), (False, False), (False, True)])
def test_tables_are_those_of_each_node_by_itself(
    objective: str, alone: bool, threads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pricing, "LARGE", 0 if threads else float("inf"))
    monkeypatch.setattr(pricing, "SMALL", float("inf") if alone else 0)
    goal = Objective(objective, machine("p100-cluster:1"))
    graph = perceptron(3)
    made = build(graph, goal, SECONDS)
    pairs = iter(made.problem.pairs)
    transfers = goal.transfers
    for number, node in enumerate(graph.nodes):
        options = made.options[number]
        for side, names in (("in", node.inputs), ("out", node.outputs)):
            for place, name in enumerate(names):
                _, variable, table = next(pairs)
                value = graph.values[name]
                lies = Placements.of(made.layouts[variable], value.shape, goal.machine.mesh)
                pieces = (options.needs if side == "in" else options.makes)[place]
                ends = (lies, pieces) if side == "in" else (pieces, lies)
                alone = transfers.table(*ends, value.shape, value.item_bytes)
                if side == "out" and options.reducer not in (None, "sum"):
                    alone[:, lies.partial.any(axis=1)] = np.inf
                assert np.array_equal(made.problem.tables[table], alone.T if side == "in" else alone), node


def test_equal_tables_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["relu", "sigmoid", "tanh", "exp"]
    lines = ["graph", '  input %x0: float32[64, 32]  batch  "0"']
    for number, name in enumerate(names):
        lines.append(f"  %x{number + 1}: float32[64, 32] = aten.{name}(self=%x{number})  # forward")
    graph = parse_graph("\n".join([*lines, "  return %x4 result"]))
    goal = Objective("seconds", machine("p100-cluster:1"))
    made = build(graph, goal, SECONDS).problem
    monkeypatch.setattr(pricing, "BRIEF", 0)
    each = build(graph, goal, SECONDS).problem
    assert len({table for *_, table in each.pairs}) == 8
    assert len({table for *_, table in made.pairs}) == 4  # by the layouts of x0 and x4, and all others
    for (*ends, table), (*others, other) in zip(made.pairs, each.pairs, strict=True):
        assert ends == others
        assert np.array_equal(made.tables[table], each.tables[other])


def test_tables_that_a_budget_is_too_small_for_are_not_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("girih.layout.budget.time", SimpleNamespace(monotonic=lambda: 0.0))  # no clock ends it
    goal = Objective("seconds", machine("p100-cluster:1"))
    needed = build(perceptron(3), goal, SECONDS).seconds
    enough = Budget(1.01 * needed)
    assert build(perceptron(3), replace(goal, budget=enough), SECONDS).seconds == needed
    assert enough.spent == pytest.approx(needed * 1e9)
    with pytest.raises(OutOfTimeError, match="tables could not be priced in time"):
        build(perceptron(3), replace(goal, budget=Budget(0.99 * needed)), SECONDS)
