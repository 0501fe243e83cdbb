"""Running sums as those of tiles: which lengths are divided, and that the tiles' sums are those of the whole."""

from __future__ import annotations

import pytest
import torch

from girih.capture import Inference, capture
from girih.graph import check
from girih.kernels.evaluate import interpret
from girih.rewrite.passes.running_sums import DivideRunningSums, tile_length


@pytest.mark.parametrize(
    ("length", "wanted", "most", "size"),
    [(4096, 64, 4096, 64), (4096, 50, 4096, 64), (10_007, 64, 10_007, 0), (3 * 10_007, 64, 10_006, 0), (96, 8, 96, 32)],
)
def test_tiles_are_a_divisor_of_the_length(length, wanted, most, size):
    assert tile_length(length, wanted, most) == size


class Running(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, 1)


WHOLE = torch.randint(-3, 3, (2, 96, 3))


@pytest.mark.parametrize(
    ("function", "x", "divided"),
    [
        (torch.cumsum, torch.randn(2, 96, 3), True),
        (torch.cumsum, WHOLE, True),
        (torch.cumprod, WHOLE | 1, True),
        (torch.cumprod, torch.randn(2, 96, 3), False),  # which may overflow in a tile alone
        (torch.cumsum, torch.randn(2, 89, 3), False),
    ],
)
def test_sums_of_tiles_are_those_of_the_whole(function, x, divided):
    graph = capture(Inference(Running(function)), (x,)).graph
    written = DivideRunningSums(x.nbytes / 2).apply(graph)
    assert (written is not graph) == divided
    check(written)
    names = [item.name for item in graph.inputs]
    expected, found = (list(interpret(one, dict.fromkeys(names, x)).values()) for one in (graph, written))
    torch.testing.assert_close(found, expected)
    assert DivideRunningSums(x.nbytes).apply(graph) is graph  # it is held whole
