"""A plan of a step and data: a step takes no batch, its numbers are plain PyTorch's, and a changed file is named."""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import girih
from girih import gnn
from girih.gnn.data.data import Data
from girih.gnn.geometric import edge_index
from girih.gnn.models import NETWORKS
from girih.gnn.partitioner.orders import reordered
from girih.gnn.training import accuracy, loss, predict
from girih.run.training.checkpoint import read_manifest

STEPS = 4


@pytest.fixture(scope="module")
def data() -> Data:
    return gnn.community(60, features=6, classes=3, seed=2)


def step_of(network: torch.nn.Module, **options: Any) -> girih.TrainingStep:
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    return girih.TrainingStep(network, optimizer=optimizer, **({"loss": cross_entropy} | options))


def plain(network: torch.nn.Module, data: Data, steps: int) -> list[float]:
    """The losses of a plain loop; the network learns."""
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    x = torch.from_numpy(data.x).to(next(network.parameters()).dtype)
    target, losses = torch.from_numpy(data.target()), []
    for _ in range(steps):
        optimizer.zero_grad()
        own = cross_entropy(network(x, data.graph), target)
        own.backward()
        optimizer.step()
        losses.append(own.item())
    return losses


@pytest.mark.parametrize("name", NETWORKS)
def test_a_planned_network_learns_as_a_plain_one(data: Data, name: str) -> None:
    network = NETWORKS[name](6, 8, 3).double()
    begin = {key: item.clone() for key, item in network.state_dict().items()}
    plan = girih.plan(step_of(network), data, machine="local:1", compare=())
    with plan.start(backend="threads") as run:
        losses = [run.step() for _ in range(STEPS)]
        state = run.state_dict()
    assert state.keys() == begin.keys()  # the data is no part of it
    other = NETWORKS[name](6, 8, 3).double()
    other.load_state_dict(begin)
    np.testing.assert_allclose(losses, plain(other, data, STEPS), rtol=1e-10)
    for key, item in other.state_dict().items():
        torch.testing.assert_close(state[key], item, rtol=1e-9, atol=1e-9)
    network.load_state_dict(state)
    torch.testing.assert_close(predict(network, data), predict(other, data), rtol=1e-9, atol=1e-9)


def test_two_workers_have_the_same_numbers(data: Data, tmp_path: Path) -> None:
    """And go on from one worker's checkpoint."""
    network = NETWORKS["gcn"](6, 8, 3).double()
    alone = girih.plan(step_of(network), data, machine="local:1", compare=())
    with alone.start(backend="threads") as run:
        losses = [run.step() for _ in range(2)]
        run.save(tmp_path / "checkpoint")
    plan = girih.plan(step_of(network), data, machine="local:2", compare=())
    with plan.start(backend="threads", resume=tmp_path / "checkpoint") as run:
        losses += [run.step() for _ in range(2)]
    np.testing.assert_allclose(losses, plain(network, data, 4), rtol=1e-10)


@pytest.mark.parametrize("kind", ["own", "torch_geometric"])
def test_a_plan_of_a_file_starts_with_the_users_network_and_data(data: Data, tmp_path: Path, kind: str) -> None:
    """The file and the checkpoint hold no data: it is given again, and told from other data by its checksums."""
    from torch_geometric.nn import GraphSAGE

    network = (GraphSAGE(6, 8, 2, 3) if kind == "torch_geometric" else NETWORKS["sage"](6, 8, 3)).double()
    girih.plan(step_of(network), data, machine="local:1", compare=()).save(tmp_path / "plan.json")
    plan = girih.load(tmp_path / "plan.json")
    with pytest.raises(girih.PlanError, match=r"start it with plan\.start\(model=network, data=data\)"):
        plan.start(backend="threads")
    with pytest.raises(girih.PlanError, match="data= needs model="):
        plan.start(backend="threads", data=data)
    with plan.start(backend="threads", model=network, data=data) as run:
        losses = [run.step() for _ in range(2)]
        run.save(tmp_path / "kept")
    assert not {"x", "target"} & read_manifest(tmp_path / "kept").entries.keys()
    with plan.start(backend="threads", model=network, data=data, resume=tmp_path / "kept") as run:
        losses += [run.step() for _ in range(2)]
    other = data.but(x=data.x + 1)
    with pytest.raises(girih.PlanError, match="was trained on other data: x differ"):
        plan.start(backend="threads", model=network, data=other, resume=tmp_path / "kept")
    own = NETWORKS["sage"](6, 8, 3).double()
    own.load_state_dict(network.state_dict())
    np.testing.assert_allclose(losses, plain(own, data, 4), rtol=1e-10)


def test_a_checkpoint_that_holds_the_data_is_resumed_and_so_is_another_order(data: Data, tmp_path: Path) -> None:
    """As girih wrote checkpoints before; and vertices in another order are the same data."""
    network = NETWORKS["sage"](6, 8, 3).double()
    plan = girih.plan(step_of(network), data, machine="local:1", compare=())
    held = tuple(replace(item, role="buffer") if item.role == "data" else item for item in plan.graph.inputs)
    before = plan.but(graph=replace(plan.graph, inputs=held))
    with before.start(backend="threads") as run:
        losses = [run.step()]
        run.save(tmp_path / "old")
    assert "x" in read_manifest(tmp_path / "old").entries
    with plan.start(backend="threads", resume=tmp_path / "old") as run:
        losses += [run.step()]
        run.save(tmp_path / "new")
    turned = reordered(data, np.arange(60)[::-1])
    again = girih.plan(step_of(network), turned, machine="local:1", compare=())
    with again.start(backend="threads", resume=tmp_path / "new") as run:
        losses += [run.step()]
    np.testing.assert_allclose(losses, plain(network, data, 3), rtol=1e-10)


def test_a_step_of_ones_own_gets_all(data: Data) -> None:
    class Own(torch.nn.Module):
        """Any module that calls gnn.aggregate."""

        def __init__(self) -> None:
            super().__init__()
            self.lin = torch.nn.Linear(6, 3)

        def forward(self, x: torch.Tensor, graph: Any) -> torch.Tensor:
            return gnn.aggregate(self.lin(x), graph, "mean")

    def step(network: Any, whole: Any) -> torch.Tensor:
        return cross_entropy(network(whole.x, whole.graph), whole.target) + network.lin.weight.square().sum()

    network = Own()
    plan = girih.plan(step_of(network, loss=None, step=step), data, machine="local:1", compare=())
    x, target = torch.from_numpy(data.x), torch.from_numpy(data.target())
    expected = cross_entropy(network(x, data.graph), target) + network.lin.weight.square().sum()
    with plan.start(backend="threads") as run:
        assert run.step() == pytest.approx(expected.item(), rel=1e-6)


def test_a_loop_of_ones_own(data: Data) -> None:
    """`girih.fit` gives weights back into the network."""
    network = NETWORKS["gcn"](6, 8, 3).double()
    begin = {key: item.clone() for key, item in network.state_dict().items()}
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    with girih.fit(network, loss, optimizer, data) as train:
        losses = [train() for _ in range(STEPS)]
        assert accuracy(predict(train.module.network, data), data)["train"] > 0
    other = NETWORKS["gcn"](6, 8, 3).double()
    other.load_state_dict(begin)
    np.testing.assert_allclose(losses, plain(other, data, STEPS), rtol=1e-10)
    for key, item in other.state_dict().items():
        torch.testing.assert_close(network.state_dict()[key], item, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["gcn", "sage", "gin", "gat"])
def test_networks_of_torch_geometric(data: Data, name: str) -> None:
    from torch_geometric import nn

    kinds = {"gcn": nn.GCN, "sage": nn.GraphSAGE, "gin": nn.GIN, "gat": nn.GAT}
    network = kinds[name](6, 8, 2, 3).double()
    own = NETWORKS[name](6, 8, 3).double()
    own.load_state_dict(network.state_dict())
    plan = girih.plan(step_of(network), data, machine="local:1", compare=())
    operators = {node.operator for node in plan.graph.nodes}
    assert operators & {"girih.neighbour_sum", "girih.attention_sum"}  # the graph is read as by girih's own
    with plan.start(backend="threads") as run:
        losses = [run.step() for _ in range(STEPS)]
    np.testing.assert_allclose(losses, plain(own, data, STEPS), rtol=1e-10)


def test_layers_of_torch_geometric_that_are_not_known_run_as_they_come(data: Data) -> None:
    from torch_geometric.nn import GraphConv

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GraphConv(6, 3)

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return self.conv(x, edge_index)

    network = Network()
    plan = girih.plan(step_of(network), data, machine="local:1", compare=())
    output = network(torch.from_numpy(data.x), edge_index(data.graph))
    expected = cross_entropy(output, torch.from_numpy(data.target()))
    with plan.start(backend="threads") as run:
        assert run.step() == pytest.approx(expected.item(), rel=1e-5)


def test_inference(data: Data) -> None:
    network = NETWORKS["sage"](6, 8, 3)
    with girih.infer(network.eval(), data, compare=()) as answer:
        torch.testing.assert_close(answer(), predict(network, data))


def test_a_file_that_changes_stops_the_run_and_nothing_is_lost(data: Data, tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    gnn.save(data, path)
    network = NETWORKS["gcn"](6, 8, 3)
    plan = girih.plan(step_of(network), gnn.load(path), machine="local:1", compare=())
    with plan.start(backend="threads") as run:
        run.step()
        before = run.state_dict()
        os.utime(path, (1, 1))
        with pytest.raises(gnn.DataError, match=r"data.npz was written while it is used"):
            run.step()
        assert run.steps == 1
        run.save(tmp_path / "checkpoint")
    again = girih.plan(step_of(network), gnn.load(path), machine="local:1", compare=())
    with again.start(backend="threads", resume=tmp_path / "checkpoint") as run:
        for key, item in run.state_dict().items():
            assert torch.equal(item, before[key])
        run.step()


def test_data_without_features_or_labels_is_refused(data: Data) -> None:
    step = step_of(NETWORKS["gcn"](6, 8, 3))
    with pytest.raises(gnn.DataError, match="has no features for the network to read"):
        girih.plan(step, data.but(x=None))
    with pytest.raises(gnn.DataError, match="has no labels to learn"):
        girih.plan(step, data.but(labels=None))


def test_several_labels_of_a_vertex(data: Data) -> None:
    labels = (np.random.default_rng(0).random((60, 3)) < 0.4).astype(np.float32)
    several = data.but(labels=labels)
    assert several.classes == 3
    output = torch.randn(60, 3)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        output[data.train], torch.from_numpy(labels)[data.train]
    )
    torch.testing.assert_close(loss(output, torch.from_numpy(several.target())), expected)
    plan = girih.plan(step_of(NETWORKS["gcn"](6, 8, 3), loss=loss), several, machine="local:1", compare=())
    with plan.start(backend="threads") as run:
        assert run.step() > run.step()
    perfect = torch.from_numpy(labels) * 2 - 1
    assert accuracy(perfect, several) == {"train": 1.0, "validation": 1.0, "test": 1.0}
    assert 0 < accuracy(torch.ones(60, 3), several)["test"] < 1


def test_accuracy_is_a_share_of_the_split(data: Data) -> None:
    output = torch.zeros(60, 3)
    output[:, 1] = 1
    expected = {split: float((data.labels[getattr(data, split)] == 1).mean()) for split in ("train", "test")}
    found = accuracy(output, data.but(validation=None))
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("name", ["x", "labels", "train", "graph.neighbours"])
def test_data_that_is_written_or_exchanged_between_steps_is_refused(name: str) -> None:
    data = gnn.load("karate")
    network = gnn.GCN(data.features, 4, data.classes, layers=2)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    array = attrgetter(name)(data)
    before = array.copy()
    with girih.fit(network, gnn.loss, optimizer, data) as train:
        train()
        array[1] = not array[1] if name == "train" else array[1] + 1
        with pytest.raises(gnn.DataError, match=f"the data's {name} changed"):
            train()
        array[:] = before
        train()
        with pytest.raises(girih.PlanError, match="without a batch"):
            train(gnn.load("karate"))
        train()


def test_data_that_is_written_between_inferences_is_refused() -> None:
    data = gnn.load("karate")
    with girih.infer(gnn.GCN(data.features, 4, data.classes, layers=2).eval(), data) as outputs:
        outputs()
        data.x[0] = 5
        with pytest.raises(gnn.DataError, match="the data's x changed"):
            outputs()


@pytest.mark.parametrize("devices", [1, 2])
def test_a_network_that_takes_an_edge_index_is_called_with_one(data: Data, devices: int) -> None:
    """Layers of its own, which gather by the edges and add up, are read by compressed rows, and divided by vertices."""

    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = torch.nn.Linear(6, 8), torch.nn.Linear(8, 3)

        def forward(self, x: Any, edge_index: Any) -> Any:
            read, reading = edge_index
            for layer in (self.one, self.two):
                x = layer(x).tanh()
                x = torch.zeros_like(x).index_add(0, reading, x[read])
            return x

    network = Own().double()
    plan = girih.plan(step_of(network), data, machine=f"local:{devices}", compare=())
    assert not any(node.operator.startswith("aten.index_") and devices == 1 for node in plan.graph.nodes)
    with plan.start(backend="threads") as run:
        losses = [run.step() for _ in range(3)]
        assert (devices == 1) or len(run.partition().ranges) == 2
    edges = edge_index(data.graph)
    other = copy.deepcopy(network)
    optimizer = step_of(other).optimizer
    for planned in losses:
        optimizer.zero_grad()
        own = cross_entropy(other(torch.from_numpy(data.x).double(), edges), torch.from_numpy(data.target()))
        own.backward()
        optimizer.step()
        assert planned == pytest.approx(own.item(), rel=1e-10)
    weighted = data.but(graph=replace(data.graph, weights=np.ones(data.edges)))
    with pytest.raises(gnn.DataError, match="has weights of edges, which Own"):
        girih.plan(step_of(network), weighted, machine="local:1", compare=())
