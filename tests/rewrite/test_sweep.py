"""What is alike in distant parts of a graph becomes one, where that costs less."""

from __future__ import annotations

import torch
from torch import nn

from girih.capture import Inference, capture
from girih.graph import Graph, Node, check
from girih.rewrite.backtracking import Backtracking, total
from girih.rewrite.results import check_results
from girih.rewrite.rules.shipped import shipped
from girih.rewrite.segments import joined, segments
from girih.rewrite.sweep import Sweep, difference


class Unrolled(nn.Module):
    """The same weights in each of many steps, with much between."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.turn = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(1, 4)
        for step in range(x.shape[0]):
            state = torch.tanh(self.enter(x[step : step + 1]) + torch.sigmoid(self.turn(state)))
        return state


def products(graph: Graph, node: Node) -> float:
    return float(node.operator == "aten.mm")


def test_products_of_the_same_weights_become_one() -> None:
    graph = capture(Inference(Unrolled().eval()), (torch.randn(5, 4),)).graph
    found = Sweep(30.0).search(graph, shipped(), products)
    assert found.complete
    assert total(graph, products) == found.before == 10
    assert total(found.graph, products) == found.cost == 6  # the states come one after another
    assert len(found.sequence) == 4
    check_results(graph, found.graph)


def test_the_difference_of_two_graphs_is_that_of_their_costs() -> None:
    graph = capture(Inference(Unrolled().eval()), (torch.randn(3, 4),)).graph
    found = Sweep(30.0).search(graph, shipped(), products)
    saved, gone = difference(graph, found.graph, products)
    assert saved == total(graph, products) - total(found.graph, products)
    assert 0 < saved <= gone


def test_a_part_s_new_values_have_names_of_their_own() -> None:
    """Parts of a graph that was rewritten before may make values with names that other parts have."""
    graph = capture(Inference(Unrolled().eval()), (torch.randn(5, 4),)).graph
    once = Sweep(30.0).search(graph, shipped(), products).graph
    parts = segments(once, (), size=6)
    found = [Backtracking(alpha=2.0, graphs=4).search(part, shipped(), products).graph for part in parts]
    again = joined(once, found, parts)
    check(again)
    check_results(graph, again)


def test_nothing_is_done_without_time_or_gain() -> None:
    graph = capture(Inference(Unrolled().eval()), (torch.randn(3, 4),)).graph
    assert Sweep(0.0).search(graph, shipped(), products).graph is graph
    free = Sweep(30.0).search(graph, shipped(), lambda graph, node: 0.0)
    assert free.graph is graph
    assert free.sequence == ()
