"""What is computed twice is computed once, and chains of slices and concatenations are short."""

from __future__ import annotations

import torch
from torch import nn

from girih.capture import Inference, capture
from girih.graph import Graph
from girih.rewrite.passes.binary_joins import FlatJoins
from girih.rewrite.passes.computed_once import ComputeOnce
from girih.rewrite.results import check_results


def graph_of(function: object, *inputs: torch.Tensor) -> Graph:
    class Model(nn.Module):
        def forward(self, *x: torch.Tensor) -> object:
            return function(*x)  # type: ignore[operator]

    return capture(Inference(Model().eval()), inputs).graph


def operators(graph: Graph) -> list[str]:
    return [node.operator.split(".")[1] for node in graph.nodes]


def test_equal_nodes_become_one() -> None:
    x = torch.randn(40, 40)
    graph = graph_of(lambda x: (x.relu() + 1).tanh() * (x.relu() + 1).sigmoid(), x)
    shared = ComputeOnce().apply(graph)
    assert operators(graph).count("relu") == 2
    assert operators(shared).count("relu") == operators(shared).count("add") == 1
    check_results(graph, shared)


def test_what_differs_or_leaves_stays() -> None:
    x = torch.randn(40, 40)
    graph = graph_of(lambda x: (x.relu(), x.relu(), x.sum(0, True), x.sum(0, False), x + 1, x - 1), x)
    shared = ComputeOnce().apply(graph)
    assert len(shared.outputs) == 6
    check_results(graph, shared)
    assert ComputeOnce().apply(graph_of(lambda x: x.relu() + x.tanh(), x)).nodes


def test_chains_are_short() -> None:
    x = torch.randn(8, 6)
    graph = graph_of(lambda x: torch.cat([torch.cat([x[1:7][2:5], x[0:2]]), x.relu()[1:][1:]]), x)
    flat = FlatJoins(whole=True).apply(graph)
    assert operators(flat).count("slice") == 3
    assert operators(flat).count("cat") == 1
    check_results(graph, flat)


def test_all_parts_in_order_are_the_whole() -> None:
    x = torch.randn(8, 6)
    graph = graph_of(lambda x: torch.cat([x[:3], x[3:5], x[5:]]).relu(), x)
    assert operators(FlatJoins(whole=True).apply(graph)) == ["relu"]
    for other in (lambda x: torch.cat([x[3:], x[:3]]).relu(), lambda x: torch.cat([x[:3], x[3:6]]).relu()):
        kept = graph_of(other, x)
        assert "cat" in operators(FlatJoins(whole=True).apply(kept))
        check_results(kept, FlatJoins(whole=True).apply(kept))
