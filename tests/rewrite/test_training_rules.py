"""Training steps: gradients of several weights in one product, and chains of the update in one kernel."""

from __future__ import annotations

from collections import Counter

import torch

from benchmarks.data_sheet import DataSheetCosts
from girih.capture import TrainingStep, capture
from girih.graph import Graph
from girih.machine.presets import V100
from girih.rewrite import check
from girih.rewrite.backtracking import Backtracking
from girih.rewrite.results import check_results
from girih.rewrite.rules.further import training
from girih.rewrite.rules.shipped import shipped
from girih.rewrite.saturation import Saturation


class Gates(torch.nn.Module):
    """A cell: two gates, each of an input and a state."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (torch.nn.Parameter(torch.randn(8, 6) / 3) for _ in range(4))

    def forward(self, both: torch.Tensor) -> torch.Tensor:
        x, state = both[0], both[1]
        return torch.sigmoid(x @ self.a + state @ self.b) * torch.tanh(x @ self.c + state @ self.d)


def step_graph() -> Graph:
    model = Gates()
    step = TrainingStep(
        model, loss=lambda y, target: ((y - target) ** 2).mean(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1)
    )
    return capture(step, (torch.randn(2, 4, 8), torch.randn(4, 6))).graph


def test_gradients_are_merged_and_the_step_stays_the_same() -> None:
    graph = step_graph()
    costs = DataSheetCosts(V100)
    found = Backtracking(seconds=20).search(graph, (*training(), *shipped()), costs)
    check(graph, found.graph)
    check_results(graph, found.graph, rtol=1e-4)
    used = Counter(step.rule.name for step in found.sequence)
    assert used["gradient_of_both"] + used["one_product"] >= 2
    products = [[node.operator for node in item.nodes].count("aten.mm") for item in (graph, found.graph)]
    assert products[1] < products[0]
    assert found.cost < 0.9 * found.before
    bounded = Saturation(nodes=800, seconds=4).bounded(found, graph, (*training(), *shipped()), costs)
    assert bounded.certificate is not None
    assert bounded.certificate.bound <= bounded.cost <= found.cost
    check(graph, bounded.graph)
