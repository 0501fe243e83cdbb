"""Networks of torch_geometric run on girih's operators as they come, and compute what they compute by themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import girih
from girih import gnn

nn = pytest.importorskip("torch_geometric.nn")

VERTICES = 30


def graph_of() -> gnn.Adjacency:
    """With self loops, one of them twice, and a vertex that reads none."""
    rng = np.random.default_rng(0)
    read, reading = rng.integers(0, VERTICES, 150), rng.integers(0, VERTICES - 1, 150)
    return gnn.Adjacency.of_edges(np.append(read, [3, 3]), np.append(reading, [3, 3]), VERTICES)


def edge_index(graph: gnn.Adjacency) -> torch.Tensor:
    return torch.from_numpy(np.stack([graph.neighbours, graph.readers]).astype(np.int64))


class Network(torch.nn.Module):
    def __init__(self, first: torch.nn.Module, last: torch.nn.Module) -> None:
        super().__init__()
        self.first, self.last = first, last

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x, edge_index).relu(), edge_index)


NETWORKS = {
    "gcn": lambda: Network(nn.GCNConv(5, 8), nn.GCNConv(8, 3, improved=True)),
    "gcn as it is": lambda: Network(nn.GCNConv(5, 8, normalize=False), nn.GCNConv(8, 3, add_self_loops=False)),
    "sage": lambda: Network(nn.SAGEConv(5, 8), nn.SAGEConv(8, 3, aggr="max")),
    "gin": lambda: Network(nn.GINConv(torch.nn.Linear(5, 8), train_eps=True), nn.GINConv(torch.nn.Linear(8, 3))),
    "gat": lambda: Network(nn.GATConv(5, 4, heads=2), nn.GATConv(8, 3, heads=2, concat=False)),
    "gatv2": lambda: Network(nn.GATv2Conv(5, 4, heads=2, share_weights=True), nn.GATv2Conv(8, 3, residual=True)),
    "gat, dropout": lambda: Network(
        nn.GATConv(5, 4, heads=2, add_self_loops=False, dropout=0.4),
        nn.GATv2Conv(8, 3, heads=2, add_self_loops=False, dropout=0.4),
    ),
    "backwards": lambda: Network(nn.SAGEConv(5, 8, flow="target_to_source"), nn.GCNConv(8, 3)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_computes_what_it_computes_by_itself(name: str) -> None:
    torch.manual_seed(0)
    graph, network = graph_of(), NETWORKS[name]().double()
    x = torch.randn(VERTICES, 5).double()
    torch.manual_seed(1)  # of dropout, whose numbers are by edge and head
    expected = network(x, edge_index(graph))
    torch.manual_seed(1)
    before = {key: dict(vars(layer)) for key, layer in network.named_modules()}
    made = gnn.OnGraph(network, graph, torch.float64)(x)
    assert {key: dict(vars(layer)) for key, layer in network.named_modules()} == before, "the layers are as they were"
    torch.testing.assert_close(made, expected, rtol=1e-10, atol=1e-10)
    parameters, weight = list(network.parameters()), torch.randn_like(made)
    gradients = [torch.autograd.grad((out * weight).sum(), parameters) for out in (made, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "operator", "times"), [("gcn", "neighbour_sum", 4), ("gat, dropout", "attention_logsumexp", 2)]
)
def test_a_network_is_planned_over_devices(name: str, operator: str, times: int) -> None:
    torch.manual_seed(0)
    network = NETWORKS[name]().double()
    step = girih.TrainingStep(
        gnn.OnGraph(network, graph_of(), torch.float64),
        loss=torch.nn.functional.cross_entropy,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.1),
    )
    batch = torch.randn(VERTICES, 5).double(), torch.randint(0, 3, (VERTICES,))
    plan = girih.plan(step, batch, machine="local:2", objective="bytes", compare=())
    assert [node.operator for node in plan.graph.nodes].count(f"girih.{operator}") == times
    with plan.start(backend="threads") as run:
        assert run.verified_step(*batch).ok


def test_other_edges_than_the_graphs_are_refused() -> None:
    graph = graph_of()
    network = gnn.OnGraph(nn.GCNConv(5, 4), graph)
    with pytest.raises(ValueError, match="on its graph already"):
        network(torch.randn(VERTICES, 5), edge_index(graph))
