"""What layers gather is seen in the network itself."""

from __future__ import annotations

import pytest
import torch

from girih import gnn
from girih.gnn.partitioner.layers import layers_of


@pytest.mark.parametrize(
    ("network", "features", "gathers", "products"),
    [
        # What is narrower is summed up: the input, which needs no gradient, or what a product makes of it.
        (gnn.GCN(100, 256, 40), 100, [(100, False), (40, True)], [100 * 256, 256 * 40]),
        (gnn.GCN(16, 8, 4), 16, [(8, True), (4, True)], [16 * 8, 8 * 4]),
        (gnn.GraphSAGE(12, 20, 3, how="max"), 12, [(12, False), (20, True)], None),
    ],
)
def test_sums_and_products_of_each_layer(
    network: torch.nn.Module, features: int, gathers: list[tuple[int, bool]], products: list[int] | None
) -> None:
    layers = layers_of(network, features)
    assert [layer.reading for layer in layers] == gathers
    if products is not None:
        assert [layer.gathers * layer.makes for layer in layers] == products


def test_a_network_without_neighbours_is_refused() -> None:
    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)

        def forward(self, x: torch.Tensor, graph: object) -> torch.Tensor:
            return self.linear(x)  # type: ignore[no-any-return]

    with pytest.raises(ValueError, match="Plain sums over no neighbours"):
        layers_of(Plain(), 3)
