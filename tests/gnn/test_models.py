"""Networks have the numbers, gradients and initial weights of torch_geometric's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as geometric

from girih.gnn import Adjacency, Data, GraphBuffers, community
from girih.gnn.geometric import edge_index
from girih.gnn.models import NETWORKS, CommNet, GraphSAGE, ResidualGCN, read_graph

FEATURES, CLASSES = 12, 5
CASES: dict[str, tuple[str, dict[str, Any], Callable[..., Any], dict[str, Any]]] = {
    "gcn": ("gcn", {}, geometric.GCN, {}),
    "sage": ("sage", {}, geometric.GraphSAGE, {}),
    "sage, max": ("sage", {"how": "max"}, geometric.GraphSAGE, {"aggr": "max"}),
    "gin": ("gin", {}, geometric.GIN, {}),
    "gin, learned": ("gin", {"learned": True}, geometric.GIN, {"train_eps": True}),
    "gat": ("gat", {}, geometric.GAT, {}),
    "gat, heads": ("gat", {"heads": 2}, geometric.GAT, {"heads": 2}),
}


@pytest.fixture(scope="module")
def data() -> Data:
    """With vertices that have no neighbours, and some that read themselves."""
    made = community(90, features=FEATURES, classes=CLASSES, degree=3, seed=1)
    read = np.concatenate([made.graph.neighbours, [4, 7]])
    reading = np.concatenate([made.graph.readers, [4, 7]])
    kept = (read > 2) & (reading > 2)
    return made.but(graph=Adjacency.of_edges(read[kept], reading[kept], 90))


@pytest.mark.parametrize("hidden", [20, 4])  # what is aggregated is narrower before the weights, or behind them
@pytest.mark.parametrize("case", CASES)
def test_numbers_and_gradients_are_those_of_torch_geometric(data: Data, case: str, hidden: int) -> None:
    name, options, other_kind, other_options = CASES[case]
    torch.manual_seed(3)
    own = NETWORKS[name](FEATURES, hidden, CLASSES, 3, **options).double()
    other = other_kind(FEATURES, hidden, 3, CLASSES, **other_options).double()
    own.load_state_dict(other.state_dict())
    x = torch.from_numpy(data.x).double().requires_grad_()
    x_other = x.detach().clone().requires_grad_()
    output, expected = own(x, data.graph), other(x_other, edge_index(data.graph))
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)
    target = torch.from_numpy(data.labels)
    torch.nn.functional.cross_entropy(output, target).backward()
    torch.nn.functional.cross_entropy(expected, target).backward()
    torch.testing.assert_close(x.grad, x_other.grad, rtol=1e-10, atol=1e-10)
    others = dict(other.named_parameters())
    for key, parameter in own.named_parameters():
        torch.testing.assert_close(parameter.grad, others[key].grad, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("case", ["gcn", "sage", "gin", "gat, heads"])
def test_the_same_seed_gives_the_initial_weights_of_torch_geometric(case: str) -> None:
    name, options, other_kind, other_options = CASES[case]
    torch.manual_seed(5)
    other = other_kind(FEATURES, 16, 2, CLASSES, **other_options).state_dict()
    torch.manual_seed(5)
    own = NETWORKS[name](FEATURES, 16, CLASSES, 2, **options).state_dict()
    assert {key: item.shape for key, item in own.items()} == {key: item.shape for key, item in other.items()}
    for key, item in own.items():
        if item.numel() > 20:
            assert abs(item.std() / other[key].std() - 1) < 0.35, key
            assert item.abs().max() <= 1.35 * other[key].abs().max(), key
        elif not other[key].any():
            assert not item.any(), key


def test_weights_of_edges_count_in_a_gcn_alone(data: Data) -> None:
    random = np.random.default_rng(0)
    weights = random.random(data.edges)
    weighted = replace(data.graph, weights=weights)
    x = torch.from_numpy(data.x).double()
    other = geometric.GCN(FEATURES, 8, 2, CLASSES).double()
    own = NETWORKS["gcn"](FEATURES, 8, CLASSES).double()
    own.load_state_dict(other.state_dict())
    expected = other(x, edge_index(data.graph), torch.from_numpy(weights))
    torch.testing.assert_close(own(x, weighted), expected, rtol=1e-10, atol=1e-10)
    for name in ("sage", "gin", "gat"):
        network = NETWORKS[name](FEATURES, 8, CLASSES).double()
        torch.testing.assert_close(network(x, weighted), network(x, data.graph))


def dense_mean(graph: Adjacency) -> torch.Tensor:
    matrix = torch.zeros(graph.vertices, graph.vertices, dtype=torch.float64)
    matrix[torch.from_numpy(graph.readers).long(), torch.from_numpy(graph.neighbours).long()] = 1
    return matrix / matrix.sum(1, keepdim=True).clamp(min=1)


def test_commnet_is_its_formula(data: Data) -> None:
    network = CommNet(FEATURES, 8, CLASSES, 3).double()
    mean, x = dense_mean(data.graph), torch.from_numpy(data.x).double()
    expected = torch.tanh(network.encoder(x))
    for conv in network.convs:
        expected = torch.tanh(conv.own(expected) + mean @ expected @ conv.others.weight.T)
    torch.testing.assert_close(network(x, data.graph), network.decoder(expected))


def test_residual_gcn_is_its_formula(data: Data) -> None:
    network = ResidualGCN(FEATURES, 8, CLASSES, 3).double()
    x = torch.from_numpy(data.x).double()
    hidden = torch.relu(network.convs[0](x, data.graph)) + x @ network.residuals[0].weight.T
    hidden = torch.relu(network.convs[1](hidden, data.graph)) + hidden
    expected = network.convs[2](hidden, data.graph) + hidden @ network.residuals[2].weight.T
    torch.testing.assert_close(network(x, data.graph), expected)


@pytest.mark.parametrize("name", NETWORKS)
def test_dropout_is_for_training(data: Data, name: str) -> None:
    network = NETWORKS[name](FEATURES, 8, CLASSES, dropout=0.5)
    x = torch.from_numpy(data.x)
    assert not torch.equal(network(x, data.graph), network(x, data.graph))
    network.eval()
    assert torch.equal(network(x, data.graph), network(x, data.graph))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: GraphSAGE(0, 8, 3), r"GraphSAGE: features=0: .* the data has no features: give load\(…, x=…\)"),
        (lambda: GraphSAGE(3, 8, 3, layers=0), "layers=0: expected whole numbers of at least 1"),
        (lambda: GraphSAGE(3, 8, 3, dropout=1.0), r"dropout=1.0: expected a share"),
        (lambda: NETWORKS["gat"](3, 9, 3, heads=2), "hidden=9 does not divide into heads=2"),
    ],
)
def test_sizes_that_are_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()


def test_buffers_of_another_kind_are_refused(data: Data) -> None:
    x, network = torch.from_numpy(data.x), NETWORKS["gcn"](FEATURES, 8, CLASSES)
    assert network.graph_of(data.graph) is network.graph_of(data.graph)
    with pytest.raises(ValueError, match="reads a graph that is normalised, got a GraphBuffers: give the Adjacency"):
        network(x, GraphBuffers(data.graph))
    with pytest.raises(ValueError, match="got of a ReadGraph that is plain"):
        network(x, read_graph(data.graph, "plain"))
