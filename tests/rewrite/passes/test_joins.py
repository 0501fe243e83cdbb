"""Joins in twos and back, what is computed once, and rules that leave less."""

from __future__ import annotations

from dataclasses import replace

import torch

from girih.capture import Inference, capture
from girih.graph import Graph, check
from girih.kernels.evaluate import interpret
from girih.rewrite.passes.binary_joins import BinaryJoins, FlatJoins
from girih.rewrite.passes.by_rules import ByRules
from girih.rewrite.passes.computed_once import ComputeOnce
from girih.rewrite.rules.further import arrays


def graph_of(module: torch.nn.Module, *inputs: torch.Tensor) -> Graph:
    return capture(Inference(module), inputs).graph


def same(before: Graph, after: Graph) -> None:
    check(after)
    values = {item.name: torch.randn(before.values[item.name].shape) for item in before.inputs}
    expected, found = interpret(before, values), interpret(after, values)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name])


class Branches(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = x.split((1, 2, 3, 1, 1), dim=1)
        return torch.cat([torch.relu(part) for part in parts], 1)


def counted(graph: Graph) -> dict[str, int]:
    names = [node.operator for node in graph.nodes]
    return {name: names.count(name) for name in ("aten.cat", "aten.slice.Tensor", "aten.relu")}


def test_joins_and_splits_of_many_are_of_two_and_come_back() -> None:
    graph = graph_of(Branches(), torch.randn(2, 8))
    two = BinaryJoins().apply(graph)
    same(graph, two)
    assert counted(graph) == {"aten.cat": 1, "aten.slice.Tensor": 5, "aten.relu": 5}
    assert counted(two) == {"aten.cat": 4, "aten.slice.Tensor": 8, "aten.relu": 5}
    assert all(len(node.inputs) <= 2 for node in two.nodes)
    back = FlatJoins().apply(two)
    same(graph, back)
    assert counted(back) == counted(graph)
    assert BinaryJoins().apply(two) is two
    assert FlatJoins().apply(graph) is graph


def test_slices_that_overlap_or_leave_gaps_stay() -> None:
    class Overlaps(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, :3] + x[:, 2:5] + x[:, 5:8] + x[:, 1:7:2]

    graph = graph_of(Overlaps(), torch.randn(2, 8))
    assert BinaryJoins().apply(graph) is graph


def test_what_is_written_twice_is_computed_once() -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.tanh(torch.relu(x)) + torch.tanh(torch.relu(x)), torch.tanh(x)

    graph = graph_of(Twice(), torch.randn(3))
    once = ComputeOnce().apply(graph)
    same(graph, once)
    assert [node.operator for node in once.nodes].count("aten.relu") == 1
    assert len(once.nodes) == 4
    assert ComputeOnce().apply(once) is once


def test_a_logistic_function_is_one_kernel_where_its_number_is_one() -> None:
    class Logistic(torch.nn.Module):
        def forward(self, x: torch.Tensor, one: torch.Tensor) -> torch.Tensor:
            return one / (one + torch.exp(-x))

    graph = graph_of(Logistic(), torch.randn(3), torch.ones(()))
    nodes = [replace(node, operator=node.operator.replace("aten.exp", "girih.exp")) for node in graph.nodes]
    graph = replace(graph, nodes=tuple(nodes))  # as arrays write it
    known = ByRules(arrays(), frozenset({"x.1"})).apply(graph)
    check(known)
    assert [node.operator for node in known.nodes] == ["aten.sigmoid"]
    assert ByRules(arrays()).apply(graph) is graph
    values = {"x.0": torch.randn(3), "x.1": torch.ones(())}
    torch.testing.assert_close(list(interpret(known, values).values()), list(interpret(graph, values).values()))
