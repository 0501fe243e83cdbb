"""Steps of graph networks are divided by girih's ordinary plan, and compute what one device computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse
from torch.nn.functional import cross_entropy

import girih
from girih import gnn
from girih.search import Vertices

VERTICES, EDGES, FEATURES, CLASSES = 48, 300, 6, 4


class Network(torch.nn.Module):
    """Two layers of one kind on one graph."""

    def __init__(self, graph: gnn.GraphBuffers, kind: str) -> None:
        super().__init__()
        self.graph, self.kind = graph, kind
        self.first, self.last = torch.nn.Linear(FEATURES, 8), torch.nn.Linear(8, CLASSES)
        self.edges = torch.nn.Parameter(torch.rand(graph.edges))
        self.towards = torch.nn.Parameter(torch.randn(8, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "attend":
            source, target = (self.first(x) @ self.towards).split(1, 1)
            heads = self.first(x).unsqueeze(1)
            return self.last(gnn.attend(heads, self.graph, source, target, self.edges.unsqueeze(1)).squeeze(1))
        if self.kind == "learned":
            return self.last(gnn.aggregate(self.first(x), self.graph, "sum", self.edges).relu())
        hidden = gnn.aggregate(self.first(x), self.graph, self.kind)
        return gnn.aggregate(self.last(hidden.relu()), self.graph, self.kind)


def training(kind: str) -> tuple[girih.TrainingStep, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    graph = gnn.Adjacency.of_edges(rng.integers(0, VERTICES, EDGES), rng.integers(0, VERTICES, EDGES), VERTICES)
    if kind == "sum":
        graph = graph.with_self_loops().normalised()
    buffers = gnn.GraphBuffers(graph, torch.float64, of_edges=kind in ("learned", "attend"))
    model = Network(buffers, kind).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    batch = torch.randn(VERTICES, FEATURES).double(), torch.randint(0, CLASSES, (VERTICES,))
    return girih.TrainingStep(model, loss=cross_entropy, optimizer=optimizer), batch


@pytest.mark.parametrize("kind", ["sum", "mean", "max", "learned", "attend"])
def test_training_over_devices_is_that_of_one(kind: str) -> None:
    step, batch = training(kind)
    plan = girih.plan(step, batch, machine="local:3", objective="bytes", compare=())
    own = {
        str(division)
        for node, division in zip(plan.graph.nodes, plan.strategy.divisions, strict=True)
        if node.operator in ("girih.neighbour_sum", "girih.neighbour_max", "girih.attention_sum")
    }
    assert own, "aggregations are nodes of the graph"
    assert "R" not in own, "every aggregation is divided"
    with plan.start(backend="threads") as run:
        losses = [run.step(*batch) for _ in range(3)]
        received = [item.bytes_received for item in run.statistics()]
    assert received == [3 * int(amount) for amount in plan.bytes_received]
    assert losses == pytest.approx(eager_losses(kind), rel=1e-10)


def eager_losses(kind: str) -> list[float]:
    step, (x, y) = training(kind)
    losses = []
    for _ in range(3):
        step.optimizer.zero_grad()
        loss = cross_entropy(step.model(x), y)
        loss.backward()
        step.optimizer.step()
        losses.append(loss.item())
    return losses


def test_two_processes_compute_the_same_in_the_memory_that_was_predicted() -> None:
    step, batch = training("learned")
    plan = girih.plan(step, batch, machine="local:2", objective="bytes", compare=())
    with plan.start(backend="processes") as run:
        assert run.run.peak_bytes(*run.inputs(batch, None)) == [use.peak for use in plan.memory_by_device]
        losses = [run.step(*batch) for _ in range(3)]
    assert losses == pytest.approx(eager_losses("learned"), rel=1e-10)


def test_attention_takes_the_memory_that_was_predicted() -> None:
    """With the room for shares of edges, of which few edges take that of one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        data = gnn.rmat(300, 2000, features=FEATURES, classes=CLASSES)
        network = gnn.GAT(FEATURES, 8, CLASSES).double()
        step = girih.TrainingStep(network, loss=gnn.loss, optimizer=torch.optim.SGD(network.parameters(), lr=0.1))
        plan = girih.plan(step, data, machine="local:1", search="single", compare=())
        with plan.start(backend="threads") as run:
            assert run.run.peak_bytes(*run.inputs((), None)) == [run.plan.peak]
    finally:
        torch.set_num_threads(threads)


def test_rocs_memory_manager_copies_least_and_keeps_the_limit() -> None:
    """The sum of the features lies in the large memory, and is copied in; losses are those of all on the device."""
    data = gnn.rmat(500, 4000, features=40, classes=CLASSES)
    network = gnn.GCN(40, 32, CLASSES).double()
    step = girih.TrainingStep(network, loss=gnn.loss, optimizer=torch.optim.SGD(network.parameters(), lr=0.1))
    whole = girih.plan(step, data, machine="local:1", memory="unlimited", compare=())
    copied = {}
    for hold in ("roc", "odswap"):
        plan = girih.plan(step, data, machine="local:1", memory=whole.peak * 4 // 5, hold=hold, compare=())
        lives = plan.but(residency=()).lifetimes
        planned = plan.choice.residency[0].copied_bytes(lives.touches)
        copied[hold] = sum(planned)
        assert plan.peak <= plan.memory
        with plan.start(backend="threads") as run:
            if hold == "roc":
                assert {item.name for item in plan.graph.inputs if item.path.startswith("once_")} <= plan.program.host
                assert run.run.peak_bytes(*run.inputs((), None)) == [plan.peak]
            before = run.statistics()[0].copied
            losses = [run.step() for _ in range(2)]
            counted = run.statistics()[0].copied
        assert [after - then for then, after in zip(before, counted, strict=True)] == [2 * amount for amount in planned]
    assert 0 < copied["roc"] <= copied["odswap"]
    with whole.start(backend="threads") as run:
        assert [run.step() for _ in range(2)] == losses


def test_a_cut_of_vertices_is_kept() -> None:
    """Seven to three, as a partitioner states it: each aggregation is done where its vertices are."""
    step, batch = training("mean")
    plan = girih.plan(step, batch, machine="local:2", search=Vertices(shares=(34, 14)), compare=())
    pairs = zip(plan.graph.nodes, plan.strategy.divisions, strict=True)
    assert {str(division) for node, division in pairs if node.operator == "girih.neighbour_sum"} == {"S0[17:7]"}
    with plan.start(backend="threads") as run:
        losses = [run.step(*batch) for _ in range(3)]
        received = [item.bytes_received for item in run.statistics()]
    assert losses == pytest.approx(eager_losses("mean"), rel=1e-10)
    assert received == [3 * int(amount) for amount in plan.bytes_received]


class Sparse(torch.nn.Module):
    """A layer as it is written with a sparse matrix."""

    def __init__(self, matrix: object, how: str) -> None:
        super().__init__()
        self.last, self.how = torch.nn.Linear(FEATURES, CLASSES), how
        if isinstance(matrix, torch.Tensor):
            self.register_buffer("matrix", matrix)
        else:
            self.matrix = matrix

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.last(x)
        return torch.sparse.mm(self.matrix, hidden) if self.how == "mm" else self.matrix @ hidden


@pytest.mark.filterwarnings("ignore:Sparse")  # PyTorch says that these tensors are in beta state
@pytest.mark.parametrize(("layout", "how"), [("coo", "mm"), ("csr", "@"), ("scipy", "mm")])
def test_a_sparse_matrix_is_a_graph(layout: str, how: str) -> None:
    """One line differs: the matrix is a graph. It is read in compressed rows, priced by its edges, and divided."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    places = torch.from_numpy(rng.integers(0, VERTICES, (2, EDGES)))
    values = torch.from_numpy(rng.standard_normal(EDGES))
    matrix = torch.sparse_coo_tensor(places, values, (VERTICES, VERTICES)).coalesce()
    given = {"coo": matrix, "csr": matrix.to_sparse_csr(), "scipy": sparse.coo_array(matrix.to_dense().numpy())}[layout]
    model = Sparse(gnn.GraphBuffers(gnn.Adjacency.of(given)), how).double()
    plain = Sparse(matrix, "mm").double()
    plain.load_state_dict({**model.state_dict(), "matrix": matrix})
    batch = torch.randn(VERTICES, FEATURES).double(), torch.randint(0, CLASSES, (VERTICES,))
    losses = []
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss = cross_entropy(plain(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    step = girih.TrainingStep(model, loss=cross_entropy, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    plan = girih.plan(step, batch, machine="local:2", objective="bytes", compare=())
    assert sum(node.operator == "girih.neighbour_sum" for node in plan.graph.nodes) == 2
    with plan.start(backend="threads") as run:
        assert [run.step(*batch) for _ in range(2)] == pytest.approx(losses, rel=1e-10)


def test_a_sparse_buffer_is_refused_with_what_to_do() -> None:
    matrix = torch.eye(VERTICES, dtype=torch.float64).to_sparse()
    with pytest.raises(girih.CaptureError, match=r"'matrix' is a sparse matrix.*GraphBuffers\(girih.gnn.Adjacency.of"):
        girih.plan(girih.Inference(Sparse(matrix, "mm").double()), (torch.randn(VERTICES, FEATURES).double(),))
    with pytest.raises(TypeError, match="expected a real sparse matrix"):
        gnn.Adjacency.of(matrix.to_dense())
    with pytest.raises(TypeError, match="got list: expected a sparse matrix"):
        gnn.Adjacency.of([1])
