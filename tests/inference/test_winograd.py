"""Convolutions by tiles: PyTorch's results, at edges too; chosen where they are cheap, and run as they were chosen."""

from __future__ import annotations

from collections.abc import Collection

import pytest
import torch
from torch import nn

from girih.capture import Inference, capture
from girih.capture.torch.state import state_of
from girih.cost.calls import Call
from girih.inference import winograd
from girih.inference.costs import WINOGRAD
from girih.inference.layouts import LayoutCosts
from girih.inference.module import BY_TILES, module_of
from girih.inference.winograd import Winograd, takes
from girih.rewrite.constants import folded
from girih.rewrite.ways import cheapest

SINGLE = {"stride": (1, 1), "dilation": (1, 1), "groups": 1}


@pytest.mark.parametrize(
    ("data", "outputs", "padding"),
    [((2, 33, 9, 14), 40, (1, 1)), ((1, 32, 13, 8), 32, (0, 2)), ((1, 64, 24, 24), 32, (1, 1))],
)
@pytest.mark.parametrize("relu", [True, False])
def test_it_is_the_convolution(
    data: tuple[int, ...], outputs: int, padding: tuple[int, int], relu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one part and in several, with what lies beside the image and with tiles that are not whole."""
    torch.manual_seed(0)
    x, weight, bias = torch.randn(data), torch.randn(outputs, data[1], 3, 3), torch.randn(outputs)
    expected = nn.functional.conv2d(x.double(), weight.double(), bias.double(), padding=padding).float()
    expected = expected.relu() if relu else expected
    for cached in (winograd.CACHED, 1):
        monkeypatch.setattr(winograd, "CACHED", cached)
        module = Winograd({**SINGLE, "padding": padding}, weight, data, bias, relu)
        with torch.no_grad():
            bound = 1e-4 * float(expected.abs().max())
            torch.testing.assert_close(module(x), expected, rtol=0, atol=bound)


def test_what_is_no_number_stays_none() -> None:
    x = torch.zeros(1, 32, 12, 12)
    x[0, 0, 0, 0] = torch.nan
    module = Winograd({**SINGLE, "padding": (1, 1)}, torch.ones(32, 32, 3, 3), tuple(x.shape), None, True)
    with torch.no_grad():
        assert module(x)[0, :, 0, 0].isnan().all()


@pytest.mark.parametrize(
    "other", [{"stride": (2, 2)}, {"dilation": (2, 2)}, {"groups": 2}, {"transposed": True}, {"padding": (0, 0)}]
)
def test_others_are_not_taken(other: dict[str, object]) -> None:
    at = {**SINGLE, "padding": (1, 1)}
    assert takes("aten.convolution", at, (1, 32, 12, 12), (32, 32, 3, 3))
    assert not takes("aten.convolution", at | other, (1, 32, 10, 10), (32, 32, 3, 3))
    assert not takes("aten.convolution", at, (1, 32, 12, 12), (32, 32, 5, 5))


class Cheap(LayoutCosts):
    """Seconds that are said, not measured."""

    def __init__(self, weights: Collection[str]) -> None:
        super().__init__(weights, 1)

    def seconds(self, call: Call) -> float:
        return 1e-6 if call.operator.startswith((WINOGRAD, "laid")) else 1e-3


def test_a_search_takes_it_with_what_is_behind() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(32, 48, 3, padding=1), nn.ReLU(), nn.Conv2d(48, 32, 3), nn.Sigmoid()).eval()
    x = torch.randn(1, 32, 12, 12)
    graph = capture(Inference(model), (x,)).graph
    state = state_of(Inference(model), graph)
    graph, weights = folded(graph, {item.name: state[item.path] for item in graph.inputs if item.path in state})
    ways = cheapest(graph, Cheap(weights)).ways
    assert [way.kernel for way in ways.values()].count(BY_TILES) == 2
    module = module_of(graph, weights, ways=ways)
    first, second = (item for item in module.children() if isinstance(item, Winograd))
    assert first.relu
    assert not second.relu
    with torch.no_grad():
        torch.testing.assert_close(module(x)[0], model(x), rtol=1e-4, atol=1e-4)
