"""Attention that is taken apart gives the same numbers, and so does a plan whose search chose it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import girih
from girih.capture import TrainingStep, capture
from girih.graph import Graph
from girih.partition.searches.exact import Exact
from girih.partition.strategy import SearchError
from girih.rewrite import apply
from girih.rewrite.passes.attention import TakeAttentionApart
from girih.rewrite.results import check_results


class Attention(nn.Module):
    def __init__(self, shared: int, mask: Any, causal: bool) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(8, 16), nn.Linear(8, 4 * shared), nn.Linear(8, 4 * shared)
        self.shared, self.mask, self.causal = shared, mask, causal

    def forward(self, x: Any) -> Any:
        parts = ((self.query(x), 4), (self.key(x), self.shared), (self.value(x), self.shared))
        query, key, value = (item.unflatten(-1, (heads, 4)).transpose(1, 2) for item, heads in parts)
        return F.scaled_dot_product_attention(query, key, value, self.mask, 0.0, self.causal, enable_gqa=True)


def step_of(shared: int, mask: Any = None, causal: bool = False) -> tuple[TrainingStep, Any]:
    torch.manual_seed(0)
    model = Attention(shared, mask, causal).double()
    pair = torch.randn(2, 6, 8, dtype=torch.float64), torch.randn(2, 4, 6, 4, dtype=torch.float64)
    return TrainingStep(model, F.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1)), pair


def operators(graph: Graph) -> set[str]:
    return {node.operator for node in graph.nodes}


@pytest.mark.parametrize(
    ("shared", "mask", "causal"),
    [
        (4, None, False),
        (2, None, True),
        (1, torch.arange(6)[:, None] > torch.arange(6), False),
        (4, torch.linspace(-1.0, 1.0, 6, dtype=torch.float64).expand(4, 1, 6), False),
    ],
    ids=["plain", "shared, causal", "a row that sees nothing", "added"],
)
def test_parts_compute_the_same(shared: int, mask: Any, causal: bool) -> None:
    graph = capture(*step_of(shared, mask, causal)).graph
    assert "girih.attention_backward" in operators(graph)
    apart = apply(graph, [TakeAttentionApart()], prove=True)
    assert not any("attention" in name for name in operators(apart))
    check_results(graph, apart)


def test_a_search_chooses_it() -> None:
    step, pair = step_of(2, causal=True)
    plan = girih.plan(step, pair, machine="local:2", objective="bytes", search="exact:attention=apart", compare=())
    assert "girih.head_product" in operators(plan.graph)
    with plan.start(backend="threads") as running:
        found = running.verified_step(pair)
        assert found.ok, found
    with pytest.raises(SearchError, match="no attention 'half': expected one of cheapest, whole, keys, apart"):
        Exact(attention="half")
