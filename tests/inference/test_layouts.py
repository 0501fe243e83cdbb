"""Kernels in layouts: what is chosen runs as it was chosen, gives the same results, and is measured once."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
import torch
from torch import nn

import girih
from girih.capture import Inference, capture
from girih.capture.torch.state import state_of
from girih.cost.calls import Call
from girih.graph import Graph
from girih.inference.costs import TURNED
from girih.inference.layouts import ENDS, LayoutCosts
from girih.inference.module import module_of
from girih.inference.searching import rewrite, search_of
from girih.inference.strided import CHANNELS_LAST, COLUMNS, laid, strides_of, turned_product
from girih.rewrite.backtracking import Backtracking
from girih.rewrite.constants import folded
from girih.rewrite.rules.further import inference
from girih.rewrite.rules.shipped import shipped
from girih.rewrite.saturation import Saturation
from girih.rewrite.ways import cheapest


class Cheap(LayoutCosts):
    """Seconds that are said, not measured: what is in `layout` is cheap, and operators that begin as in `favour`."""

    def __init__(self, weights: Collection[str], layout: str, favour: tuple[str, ...] = ()) -> None:
        super().__init__(weights, 1)
        self.layout, self.favour = layout, favour

    def seconds(self, call: Call) -> float:
        if call.operator == "laid":
            return 1e-6
        cheap = call.operator.startswith(self.favour) if self.favour else False
        rank = 4 if self.layout == CHANNELS_LAST else 2
        strided = any(
            len(item.shape) == rank and item.strides == strides_of(item.shape, self.layout) for item in call.operands
        )
        return 1e-6 if cheap else 1e-5 if strided else 1e-3


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=2, bias=False)
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = torch.relu(self.one(x))
        second = torch.relu(self.norm(self.two(first))) + first
        return self.head(torch.cat((second, first), 1)[:, :8].mean((2, 3)))


class Products(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 7), nn.Linear(7, 5, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.one(x))
        return hidden.t() @ self.two(hidden)


def folded_graph(model: nn.Module, x: torch.Tensor) -> tuple[Graph, dict[str, torch.Tensor]]:
    captured = capture(Inference(model.eval()), (x,))
    state = state_of(Inference(model), captured.graph)
    weights = {item.name: state[item.path] for item in captured.graph.inputs if item.path in state}
    return folded(captured.graph, weights)


CASES = [
    (Images, (2, 3, 6, 6), CHANNELS_LAST, ()),
    (Images, (2, 3, 6, 6), CHANNELS_LAST, ("onednn",)),
    (Products, (4, 6), COLUMNS, ()),
    (Products, (4, 6), COLUMNS, (TURNED,)),
    (Products, (4, 6), COLUMNS, ("onednn",)),
]


@pytest.mark.parametrize(("kind", "shape", "layout", "favour"), CASES)
def test_what_is_chosen_runs_and_gives_the_same(
    kind: type[nn.Module], shape: tuple[int, ...], layout: str, favour: tuple[str, ...]
) -> None:
    torch.manual_seed(0)
    model, x = kind(), torch.randn(shape)
    graph, weights = folded_graph(model, x)
    costs = Cheap(weights, layout, favour)
    choice = cheapest(graph, costs)
    plain = sum(1e-3 for way in choice.ways.values() if way.seconds > 0)
    assert choice.exact
    assert choice.cost < plain
    module = module_of(graph, weights, ways=choice.ways)
    with torch.no_grad():
        torch.testing.assert_close(module(x)[0], model(x), rtol=1e-4, atol=1e-5)
    targets = [str(node.target) for node in module.graph.nodes]
    if favour == (TURNED,):
        assert any("turned_product" in target for target in targets)
    elif favour == ("onednn",):
        assert any("mkldnn" in target for target in targets)
    else:
        assert layout in set(choice.layouts.values()) or any("columns" in way.kernel for way in choice.ways.values())
    converted = sum("laid" in target for target in targets)
    assert converted <= len(choice.conversions)


@pytest.mark.parametrize("search", [Backtracking(seconds=4, ends=ENDS), Saturation(seconds=4, ends=ENDS)])
def test_rewrites_and_layouts_together_keep_the_results(search: Backtracking | Saturation) -> None:
    torch.manual_seed(0)
    model, x = Images(), torch.randn(2, 3, 6, 6)
    graph, weights = folded_graph(model, x)
    found = rewrite(graph, weights, (*inference(), *shipped()), Cheap(weights, CHANNELS_LAST, ("onednn",)), search)
    assert found.choice.cost < found.before
    assert found.certificate.bound <= found.certificate.cost == found.choice.cost
    module = module_of(found.graph, found.weights, ways=found.choice.ways)
    with torch.no_grad():
        torch.testing.assert_close(module(x)[0], model(x), rtol=1e-4, atol=1e-5)


def test_kernels_are_measured_in_each_layout_and_kept(tmp_path: Path) -> None:
    from girih.cost.store import Store

    graph, weights = folded_graph(Products(), torch.randn(4, 6))
    store = Store(tmp_path / "costs.sqlite")
    first = LayoutCosts(weights, 1, store)
    choice = cheapest(graph, first)
    assert first.measured > 4
    second = LayoutCosts(weights, 1, store)
    assert cheapest(graph, second) == choice
    assert second.measured == 0


def test_layouts_are_what_they_are_called() -> None:
    image, matrix = torch.randn(2, 3, 4, 5), torch.randn(3, 4)
    assert laid(image, CHANNELS_LAST).stride() == strides_of((2, 3, 4, 5), CHANNELS_LAST)
    assert laid(matrix, COLUMNS).stride() == strides_of((3, 4), COLUMNS)
    assert laid(laid(image, CHANNELS_LAST), "rows").is_contiguous()
    torch.testing.assert_close(turned_product(matrix, matrix.t()), matrix @ matrix.t())
    assert turned_product(matrix, torch.randn(4, 2)).stride() == strides_of((3, 2), COLUMNS)


def test_a_user_says_which_search() -> None:
    torch.manual_seed(0)
    model, x = Images().eval(), torch.randn(2, 3, 6, 6)
    fast = girih.optimize(model, x, threads=1, search="saturation", seconds=3, backends=("eager", "onednn"))
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    certificate = fast.explain().certificate
    assert certificate.bound <= certificate.cost
    assert "of" in str(fast.explain())
    assert search_of(Saturation(nodes=9), 1.0, 1.05) == Saturation(nodes=9, ends=ENDS)
    with pytest.raises(ValueError, match="no search 'guess' for rewrites: there are backtracking and saturation"):
        girih.optimize(model, x, search="guess")
