"""Gathers and scatters over edges that stay become sums over neighbours, in networks as they are written."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import girih
from girih import gnn
from girih.gnn.geometric import edge_index

VERTICES, EDGES, FEATURES, CLASSES = 40, 200, 5, 3
SCATTERS = ("aten.scatter", "aten.index_add", "aten.index_put", "aten.gather")


def edges_of() -> torch.Tensor:
    """Unsorted, with self loops, edges that are there twice, and a vertex that reads none."""
    random = np.random.default_rng(0)
    read, reading = random.integers(0, VERTICES, EDGES), random.integers(0, VERTICES - 1, EDGES)
    return torch.from_numpy(np.stack([np.append(read, [3, 3]), np.append(reading, [3, 3])]))


class Plain(torch.nn.Module):
    """A layer as it is written without a library. how: by which function rows are added up."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.last, self.how = torch.nn.Linear(FEATURES, CLASSES), how
        self.edges = torch.nn.Parameter(torch.rand(EDGES + 2))
        self.register_buffer("values", torch.rand(EDGES + 2), persistent=False)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        (read, reading), x = edges, self.last(x)
        if self.how == "sparse":
            return torch.sparse_coo_tensor(edges.flip(0), torch.ones(edges.shape[1], dtype=x.dtype), (len(x),) * 2) @ x
        if self.how in ("amax", "amin", "mean"):
            wide = reading.unsqueeze(1).expand(-1, CLASSES)
            return torch.zeros_like(x).scatter_reduce(0, wide, x[read], self.how, include_self=False)
        if self.how == "beside":  # what is added up is added to something
            out = x.clone()
            out.index_add_(0, reading, x[read])
            return out + x.scatter_add(0, reading[:, None].expand(-1, CLASSES), x.index_select(0, read) - 1)
        weights = {"learned": self.edges, "weighted": self.values, "normalised": self._of_degrees(reading, x)}[self.how]
        return x.new_zeros(x.shape).index_add_(0, reading, weights[:, None] * x[read])

    def _of_degrees(self, reading: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        degrees = torch.zeros(len(x), dtype=x.dtype).index_add_(0, reading, torch.ones(len(reading), dtype=x.dtype))
        return degrees.clamp(min=1).rsqrt()[reading]


def geometric(first: str, *options: object, last: str = "", **more: object) -> Callable[[], torch.nn.Module]:
    def made() -> torch.nn.Module:
        nn = pytest.importorskip("torch_geometric.nn")
        kinds = getattr(nn, first), getattr(nn, last or first)
        if first == "GINConv":
            return Two(kinds[0](torch.nn.Linear(FEATURES, 8)), kinds[1](torch.nn.Linear(8, CLASSES)))
        return Two(kinds[0](FEATURES, 8, *options, **more), kinds[1](8, CLASSES, **more))

    return made


class Two(torch.nn.Module):
    def __init__(self, first: torch.nn.Module, last: torch.nn.Module) -> None:
        super().__init__()
        self.first, self.last = first, last

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x, edges).relu(), edges)


class Holding(torch.nn.Module):
    """A network that has its edges itself."""

    def __init__(self, network: torch.nn.Module, edges: torch.Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("edges", edges)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.network(x, self.edges)


NETWORKS = {
    "GCN": geometric("GCNConv"),
    "SAGE, mean": geometric("SAGEConv"),
    "SAGE, max": geometric("SAGEConv", aggr="max"),
    "GIN": geometric("GINConv"),
    "GAT": geometric("GATConv"),
    "GraphConv": geometric("GraphConv"),
    "TransformerConv": geometric("TransformerConv"),
    **{how: lambda how=how: Plain(how) for how in ("sparse", "amax", "amin", "mean", "beside", "learned", "weighted")},
    "normalised": lambda: Plain("normalised"),
}
OWN = {"GAT": "girih.attention_sum", "SAGE, max": "girih.neighbour_max", "amax": "girih.neighbour_max"}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_computes_the_same_by_compressed_rows(name: str) -> None:
    torch.manual_seed(0)
    network, edges = NETWORKS[name]().double(), edges_of()
    x, labels = torch.randn(VERTICES, FEATURES).double(), torch.randint(0, CLASSES, (VERTICES,))
    expected = network(x, edges)
    folded = gnn.OnGraph(Holding(network, edges))
    made = folded(x)
    torch.testing.assert_close(made, expected, rtol=1e-10, atol=1e-10)
    parameters, weight = [*network.parameters()], torch.randn_like(made)
    gradients = [torch.autograd.grad((out * weight).sum(), parameters, allow_unused=True) for out in (made, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-10)
    step = girih.TrainingStep(folded, loss=cross_entropy, optimizer=torch.optim.SGD(network.parameters(), lr=0.1))
    plan = girih.plan(step, (x, labels), machine="local:2", objective="bytes", compare=())
    operators = [node.operator for node in plan.graph.nodes]
    assert OWN.get(name, "girih.neighbour_sum" if name != "amin" else "girih.neighbour_max") in operators
    assert not [item for item in operators if item.startswith(SCATTERS)]
    with plan.start(backend="threads") as run:
        assert run.verified_step(x, labels).ok
        folded.load_state_dict({**network.state_dict(), **run.state_dict(), "edges": edges}, strict=False)


@pytest.mark.parametrize("name", ["GCN", "SAGE, mean", "SAGE, max", "GIN", "GAT", "GraphConv", "TransformerConv"])
def test_a_network_of_data_is_cut_over_two_workers(name: str) -> None:
    """Losses are those of the network by itself; sums over neighbours are made piece by piece."""
    torch.manual_seed(0)
    data = gnn.community(VERTICES, classes=CLASSES, degree=5, features=FEATURES)
    network, losses = NETWORKS[name]().double(), []
    state = {key: item.clone() for key, item in network.state_dict().items()}
    x, edges, target = torch.from_numpy(data.x).double(), edge_index(data.graph), torch.from_numpy(data.target())
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss = cross_entropy(network(x, edges), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    network.load_state_dict(state)
    step = girih.TrainingStep(network, loss=gnn.loss, optimizer=torch.optim.SGD(network.parameters(), lr=0.1))
    plan = girih.plan(step, data, machine="local:2", compare=())
    operators = [node.operator for node in plan.graph.nodes]
    assert not [item for item in operators if item.startswith(SCATTERS)]
    assert "girih.pieces_joined" in operators
    with plan.start(backend="threads") as run:
        assert [run.step() for _ in range(2)] == pytest.approx(losses, rel=1e-10)


def test_what_is_random_is_no_constant_and_own_gradients_are_kept() -> None:
    class Dropping(torch.nn.Module):
        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            kept = torch.nn.functional.dropout(torch.ones(edges.shape[1], dtype=x.dtype), 0.5)
            return torch.zeros_like(x).index_add(0, edges[1], kept[:, None] * x[edges[0]])

    torch.manual_seed(0)
    x, edges, network = torch.randn(VERTICES, FEATURES), edges_of(), Dropping()
    folded = gnn.OnGraph(Holding(network, edges))
    for _ in range(2):
        state = torch.get_rng_state()
        expected = network(x, edges)
        torch.set_rng_state(state)
        torch.testing.assert_close(folded(x), expected)

    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, rows: torch.Tensor) -> torch.Tensor:
            return rows * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * 3

    class Past(torch.nn.Module):
        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            return torch.zeros_like(x).index_add(0, edges[1], Own.apply(x[edges[0]]))

    x.requires_grad_()
    both = gnn.OnGraph(Holding(Past(), edges))(x), Past()(x, edges)
    torch.testing.assert_close(*[(out, *torch.autograd.grad(out.square().sum(), x)) for out in both])
    with pytest.raises(ValueError, match="has no edges"):
        gnn.OnGraph(network)


@pytest.mark.parametrize("what", ["rows", "edges"])
def test_what_is_written_into_is_refused(what: str) -> None:
    class Writing(torch.nn.Module):
        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            x = x * 1
            rows = x[edges[0]]
            (x if what == "rows" else edges).add_(1)
            return torch.zeros_like(x).index_add(0, edges[1], rows)

    edges = edges_of()
    before = edges.clone()
    with pytest.raises(RuntimeError, match="the network writes into"):
        gnn.OnGraph(Holding(Writing(), edges))(torch.randn(VERTICES, FEATURES))
    assert torch.equal(edges, before)


def written_by_a_view(deg: torch.Tensor, h: torch.Tensor, to: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    deg[:3].mul_(2)
    return h * deg[:, None] + deg.sum() + h.sum(1, keepdim=True) * deg.reshape(-1, 1)


def written_by_data(deg: torch.Tensor, h: torch.Tensor, to: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    fixed = h.detach()  # PyTorch's gradients would be of what was written
    before = fixed.T * deg
    deg.data.add_(1)
    return (before + fixed.T * deg).T


def written_by_out(deg: torch.Tensor, h: torch.Tensor, to: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    torch.mul(deg, 3, out=deg)
    other = torch.ones_like(deg)
    torch.nn.init.constant_(other, 2.0)
    return (h.T * deg * other).T


def not_zero_any_more(deg: torch.Tensor, h: torch.Tensor, to: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(h)
    out[:2].fill_(1.0)
    return out.index_add(0, to, rows)


def added_to_a_constant(deg: torch.Tensor, h: torch.Tensor, to: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(h)
    out[0] = 1.0
    out.index_add_(0, to, rows)
    return out


def written_with_what_is_learned(
    deg: torch.Tensor, h: torch.Tensor, to: torch.Tensor, rows: torch.Tensor
) -> torch.Tensor:
    deg[0] = 5.0
    deg += h.sum(1)
    return (h.T * deg).T


def weights_and_indices_of_before(
    deg: torch.Tensor, h: torch.Tensor, to: torch.Tensor, rows: torch.Tensor
) -> torch.Tensor:
    weights, other, fixed = deg[to], to.clone(), h.detach()  # else PyTorch itself would refuse the writes
    weighted, plain = fixed[other] * weights[:, None], fixed[other]
    weights.mul_(5)
    other.fill_(0)
    return torch.zeros_like(h).index_add(0, to, weighted).index_add(0, to, plain)


@pytest.mark.parametrize(
    "use",
    [weights_and_indices_of_before, written_by_a_view, written_by_data, written_by_out, not_zero_any_more,
     added_to_a_constant, written_with_what_is_learned],
)  # fmt: skip
def test_constants_that_are_written_into_have_what_was_written(use: Callable[..., torch.Tensor]) -> None:
    """In each call: nothing is written into what the calls share."""

    class Writing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(FEATURES, FEATURES)

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            h, deg = self.first(x), torch.ones(len(x), dtype=x.dtype)
            return use(deg, h, edges[1], h[edges[0]]) + torch.zeros_like(h).index_add(0, edges[1], h[edges[0]])

    torch.manual_seed(0)
    network, x = Writing().double(), torch.randn(VERTICES, FEATURES).double()
    expected = network(x, edges_of())
    folded = gnn.OnGraph(Holding(network, edges_of()))
    for _ in range(2):
        made = folded(x)
        torch.testing.assert_close(made, expected, rtol=1e-10, atol=1e-10)
        both = [torch.autograd.grad(out.sum(), network.first.weight, retain_graph=True) for out in (made, expected)]
        torch.testing.assert_close(*both)


def test_what_would_be_written_past_constants_is_refused() -> None:
    class Past(torch.nn.Module):
        def __init__(self, what: str) -> None:
            super().__init__()
            self.what = what

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            kept = torch.ones(edges.shape[1], dtype=x.dtype).clone()
            if self.what == "drawn":
                torch.nn.functional.dropout(kept, 0.5, inplace=True)
            if self.what == "out":
                torch.mul(kept, x.sum(), out=kept)
            weights = kept * x.sum()
            made = weights[:, None] * x[edges[0]]
            weights.add_(1)
            return torch.zeros_like(x).index_add(0, edges[1], made)

    told = {"drawn": "draws numbers into a constant", "out": "writes into a constant tensor by mul",
            "weights": "writes into weights of edges"}  # fmt: skip
    for what, match in told.items():
        with pytest.raises(RuntimeError, match=match):
            gnn.OnGraph(Holding(Past(what), edges_of()))(torch.randn(VERTICES, FEATURES))


class Kept(torch.nn.Module):
    """Its edges are in its state."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
        self.register_buffer("edge_index", torch.tensor([[0, 1, 2, 2], [1, 2, 0, 3]]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        read, reading = self.edge_index
        y = self.layer(x)
        return torch.zeros_like(y).index_add(0, reading, y[read])


def test_what_a_run_has_learned_loads_into_a_network_that_keeps_its_edges() -> None:
    network, x = Kept(), torch.ones(4, 3)
    step = girih.TrainingStep(
        gnn.OnGraph(network), torch.nn.functional.mse_loss, torch.optim.SGD(network.parameters(), lr=0.1)
    )
    with girih.plan(step, (x, x[:, :2]), machine="local:1", compare=()).start(backend="threads") as run:
        run.step(x, x[:, :2])
        learned = run.state_dict()
    for model in (network, pickle.loads(pickle.dumps(network)), gnn.OnGraph(Kept())):
        model.load_state_dict(learned)
        assert torch.equal(model.state_dict()["layer.weight"], learned["layer.weight"])
        assert torch.equal(model.state_dict()["edge_index"], network.edge_index)
    other = network.edge_index.flip(0)
    network.load_state_dict({**learned, "edge_index": other})
    assert torch.equal(network.edge_index, other)
