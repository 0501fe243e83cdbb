"""A graph in pieces: each worker gets just the rows that its vertices read, each once, and the numbers stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import girih
from girih import gnn
from girih.gnn.data.data import Data
from girih.gnn.models import NETWORKS
from girih.layout import level_volumes
from girih.program import TransferStep
from girih.search import Vertices

FEATURES, HIDDEN, CLASSES, ITEM = 6, 8, 3, 8


@pytest.fixture(scope="module")
def data() -> Data:
    return gnn.community(120, features=FEATURES, classes=CLASSES, degree=6, seed=2)


def cut_of(data: Data, cuts: Sequence[int]) -> Data:
    return data.but(graph=replace(data.graph, cuts=tuple(cuts)))


def step_of(network: torch.nn.Module) -> girih.TrainingStep:
    return girih.TrainingStep(network, loss=cross_entropy, optimizer=torch.optim.SGD(network.parameters(), lr=0.1))


def rows_between(graph: gnn.Adjacency, cuts: Sequence[int]) -> int:
    """How many different rows of others all pieces read, counted vertex by vertex."""
    count = 0
    for start, stop in pairwise(cuts):
        read = {int(u) for v in range(start, stop) for u in graph.neighbours[graph.offsets[v] : graph.offsets[v + 1]]}
        count += sum(not start <= u < stop for u in read)
    return count


def bytes_of_rows(plan: girih.Plan) -> int:
    """What workers receive of the rows that others gathered for them."""
    graph, total = plan.graph, 0
    maker = {name: node.operator for node in graph.nodes for name in node.outputs}
    for step in plan.program.steps:
        if isinstance(step, TransferStep) and maker.get(step.value) == "aten.index_select":
            amount = level_volumes(plan.program.mesh, step.before, step.after).sum()
            total += int(amount) * graph.values[step.value].item_bytes
    return total


def plain(network: torch.nn.Module, data: Data, steps: int) -> list[float]:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    x, target, losses = torch.from_numpy(data.x).double(), torch.from_numpy(data.target()), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = cross_entropy(network(x, replace(data.graph, cuts=())), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# In each layer the narrower side is aggregated, but features once, before the first step; the gradient goes back
# through each layer but the first, whose rows are data. Attention sends a score with each head's row, and back the
# gradient with three numbers; CommNet aggregates `hidden`.
WIDTHS = {
    "gcn": (CLASSES, CLASSES),
    "sage": (CLASSES, CLASSES),
    "gin": (CLASSES, CLASSES),
    "gat": (HIDDEN + 1, CLASSES + 1, CLASSES + 3, HIDDEN + 3),
    "commnet": (HIDDEN,) * 4,
    "residual-gcn": (HIDDEN, HIDDEN, CLASSES, HIDDEN, HIDDEN, CLASSES),
}
CUTS = {
    "gcn": (0, 40, 50, 61, 120), "sage": (0, 31, 120), "gin": (0, 71, 120), "gat": (0, 91, 100, 120),
    "commnet": (0, 11, 20, 60, 80, 100, 105, 110, 120), "residual-gcn": (0, 61, 120),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_workers_get_the_rows_that_they_read_and_no_others(data: Data, name: str) -> None:
    torch.manual_seed(0)
    network, cuts = NETWORKS[name](FEATURES, HIDDEN, CLASSES).double(), CUTS[name]
    plan = girih.plan(step_of(network), cut_of(data, cuts), machine=f"local:{len(cuts) - 1}")
    graph, shares = plan.graph, ":".join(str(b - a) for a, b in pairwise(cuts))
    features = {item.path: item.name for item in graph.inputs if graph.values[item.name].shape == (120, FEATURES)}
    assert ("x" in features) == (name != "gcn")  # of whose features a step reads the first sum alone
    assert {str(plan.strategy.layouts[item]) for item in features.values()} == {f"S0[{shares}]"}
    assert bytes_of_rows(plan) == rows_between(data.graph, cuts) * sum(WIDTHS[name]) * ITEM
    with plan.start(backend="threads") as run:
        losses = [run.step() for _ in range(3)]
        received = [item.bytes_received for item in run.statistics()]
    assert received == [3 * int(amount) for amount in plan.bytes_received]
    assert losses == pytest.approx(plain(network, data, 3), rel=1e-10)


def test_inference_receives_nothing_but_rows(data: Data) -> None:
    cuts = (0, 50, 90, 120)
    network = gnn.GraphSAGE(FEATURES, HIDDEN, CLASSES, how="max").double().eval()
    plan = girih.plan(girih.Inference(network), cut_of(data, cuts), machine="local:3")
    expected = rows_between(data.graph, cuts) * (FEATURES + HIDDEN) * ITEM
    with plan.start(backend="threads") as run:
        output = run.step()[0]
        assert sum(item.bytes_received for item in run.statistics()) == sum(plan.bytes_received) == expected
    torch.testing.assert_close(output, gnn.predict(network, data), rtol=1e-12, atol=1e-12)


def test_fewer_bytes_than_gathering_whole() -> None:
    """Communities of vertices that stand together, cut between them."""
    data = gnn.community(200, classes=2, degree=6, mixing=0.05, features=FEATURES, seed=1)
    place = np.argsort(np.argsort(data.labels, kind="stable"))
    data = data.but(graph=gnn.Adjacency.of_edges(place[data.graph.neighbours], place[data.graph.readers], 200))
    cuts = (0, int((data.labels == 0).sum()), 200)
    search = Vertices(shares=tuple(np.diff(cuts).tolist()))
    options = {"machine": "local:2", "search": search, "objective": "bytes", "compare": ()}
    whole, pieces = (
        girih.plan(step_of(gnn.GIN(FEATURES, HIDDEN, 2)), item, **options) for item in (data, cut_of(data, cuts))
    )
    assert bytes_of_rows(pieces) == rows_between(data.graph, cuts) * (2 * 2) * 4  # two classes, there and back
    assert sum(pieces.bytes_received) < 0.5 * sum(whole.bytes_received)
    assert max(use.peak for use in pieces.memory_by_device) < max(use.peak for use in whole.memory_by_device)


def test_two_processes_use_the_memory_that_was_predicted(data: Data) -> None:
    network = NETWORKS["gcn"](FEATURES, HIDDEN, CLASSES).double()
    plan = girih.plan(step_of(network), cut_of(data, (0, 33, 120)), machine="local:2")
    with plan.start(backend="processes") as run:
        assert run.run.peak_bytes(*run.inputs((), None)) == [use.peak for use in plan.memory_by_device]
        losses = [run.step() for _ in range(2)]
    assert losses == pytest.approx(plain(network, data, 2), rel=1e-10)


def test_actors_of_ray_get_the_rows_that_they_read(data: Data, ray_nodes: Any) -> None:
    from girih.run.engines.engine import Ray

    cuts = CUTS["gin"]
    network = NETWORKS["gin"](FEATURES, HIDDEN, CLASSES).double()
    plan = girih.plan(step_of(network), cut_of(data, cuts), machine="local:2")
    assert bytes_of_rows(plan) == rows_between(data.graph, cuts) * sum(WIDTHS["gin"]) * ITEM
    with plan.start(backend=Ray(ray_nodes().address)) as run:
        losses = [run.step() for _ in range(2)]
        received = [item.bytes_received for item in run.statistics()]
        with pytest.raises(ValueError, match="expected 2"):
            run.cut((0, 10, 20, 120))
    assert received == [2 * int(amount) for amount in plan.bytes_received]
    assert losses == pytest.approx(plain(network, data, 2), rel=1e-10)


def every_operator(x: Any, source: Any, target: Any, weights: Any, scores: Any, graph: gnn.Adjacency) -> list[Any]:
    """What is computed over a graph, and all gradients."""
    outputs = [
        gnn.aggregate(x, graph), gnn.aggregate(x, graph, "mean"), gnn.aggregate(x, replace(graph, weights=None), "max"),
        gnn.aggregate(x, graph, "sum", weights), gnn.attend(x, graph, source, target, scores),
        gnn.to_edges(x, graph, "source"), gnn.to_edges(x, graph, "target"),
    ]  # fmt: skip
    leaves = [x, source, target, weights, scores]
    gradients = [torch.autograd.grad((item**2).sum(), leaves, allow_unused=True) for item in outputs]
    return [*outputs, *(own for several in gradients for own in several if own is not None)]


def test_pieces_change_no_bit() -> None:
    rng = np.random.default_rng(0)
    read, reading = rng.integers(0, 40, 200), rng.integers(0, 40, 200)
    graph = gnn.Adjacency.of_edges(read, reading, 40, weights=rng.random(200))
    shapes = [(40, 3, 2), (40, 3), (40, 3), (200,), (200, 3)]
    tensors = [torch.from_numpy(rng.standard_normal(shape)).requires_grad_() for shape in shapes]
    made = [every_operator(*tensors, graph=replace(graph, cuts=cuts)) for cuts in ((), (0, 7, 20, 40))]
    assert len(made[0]) == 7 + 11
    assert all(map(torch.equal, *made))


class Edges(torch.nn.Module):
    """A gate for each edge that both ends open, and attention with scores of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.gates, self.last = torch.nn.Linear(FEATURES, 2), torch.nn.Linear(FEATURES, CLASSES)

    def graph_of(self, graph: gnn.Adjacency, dtype: Any) -> gnn.GraphBuffers:
        return gnn.GraphBuffers(graph, dtype, of_edges=True)

    def forward(self, x: torch.Tensor, graph: Any) -> torch.Tensor:
        source, target = self.gates(x).unbind(1)
        gate = gnn.to_edges(source, graph, "source") + gnn.to_edges(target, graph, "target")
        hidden = gnn.attend(self.last(x).unsqueeze(1), graph, source[:, None], target[:, None], gate[:, None])
        hidden = gnn.attend(hidden, graph, source[:, None], target[:, None], gate[:, None], dropout=1e-12)
        return gnn.aggregate(hidden.squeeze(1), graph, "mean", weights=gate.sigmoid())


def test_values_of_edges_are_divided(data: Data) -> None:
    network = Edges().double()
    plan = girih.plan(step_of(network), cut_of(data, (0, 45, 80, 120)), machine="local:3")
    with plan.start(backend="threads") as run:
        losses = [run.step() for _ in range(3)]
        received = [item.bytes_received for item in run.statistics()]
    assert received == [3 * int(amount) for amount in plan.bytes_received]
    assert losses == pytest.approx(plain(network, data, 3), rel=1e-10)


@pytest.mark.parametrize("cuts", [(0, 50), (1, 50, 120), (0, 50, 50, 120), (0, 120, 50)])
def test_cuts_that_are_none_are_refused(data: Data, cuts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected places that ascend from 0 to the number of vertices"):
        gnn.GraphBuffers(replace(data.graph, cuts=cuts))


def test_a_cut_for_another_machine_is_refused(data: Data) -> None:
    with pytest.raises(girih.PlanError, match=r"pieces of \[50, 70\] vertices.*a device of one mesh axis for each"):
        girih.plan(step_of(gnn.GCN(6, 8, 3)), cut_of(data, (0, 50, 120)), machine="local:3", search=Vertices())


def test_a_saved_plan_starts_with_data_that_it_cuts(data: Data, tmp_path: Path) -> None:
    network = NETWORKS["gcn"](FEATURES, HIDDEN, CLASSES).double()
    plan = girih.plan(step_of(network), cut_of(data, (0, 33, 120)), machine="local:2")
    plan.save(tmp_path / "plan.json")
    with girih.load(tmp_path / "plan.json").start(backend="threads", model=network, data=data) as run:
        losses = [run.step() for _ in range(2)]
    assert losses == pytest.approx(plain(network, data, 2), rel=1e-10)
