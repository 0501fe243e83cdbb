"""A network over two workers by ranges of vertices: the stated cut is the plan's, and the numbers are one device's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import girih
from girih import gnn
from girih.capture import capture
from girih.gnn.partitioner.search import Vertices
from girih.graph import Graph
from girih.machine import machine
from girih.partition.space.problem import Objective
from girih.partition.strategy import SearchError


def network() -> tuple[girih.TrainingStep, gnn.Data]:
    torch.manual_seed(0)
    data = gnn.community(60, features=6)
    model = gnn.GCN(data.features, 8, data.classes)
    return girih.TrainingStep(model, loss=gnn.loss, optimizer=torch.optim.SGD(model.parameters(), lr=0.1)), data


@pytest.fixture(scope="module")
def graph() -> Graph:
    return girih.plan(*network(), machine="local:1", compare=()).graph


def test_what_carries_vertices_is_cut_as_stated(graph: Graph) -> None:
    cut = gnn.partition(network()[1], 2, gnn.CostModel((gnn.Layer(6, 8), gnn.Layer(4, 8, back=True))))
    found = Vertices(shares=cut.vertices).search(graph, Objective("seconds", machine("local:2")))
    starts = np.cumsum([0, *cut.vertices])
    for name, layout in found.strategy.layouts.items():
        if 60 in graph.values[name].shape:
            (split,) = layout.axes
            assert graph.values[name].shape[split.dimension] == 60
            assert [60 * int(start) // sum(split.shares) for start in np.cumsum([0, *split.shares])] == starts.tolist()
    sums = [
        str(one)
        for node, one in zip(graph.nodes, found.strategy.divisions, strict=True)
        if "neighbour" in node.operator
    ]
    assert len(sums) == 2  # of the second layer, and its gradient: the first sums the features up, before any step
    assert all(one.startswith("S0[") for one in sums)
    assert found.certificate.cost >= found.certificate.bound


def test_the_same_losses_under_any_cut() -> None:
    losses = []
    for shares, devices in (((), "local:2"), ((45, 15), "local:2"), ((30, 5, 15, 10), "local:4:4")):
        step, data = network()
        plan = girih.plan(step, data, machine=devices, search=Vertices(shares=shares), compare=())
        with plan.start(backend="threads") as run:
            losses.append([float(run.step()) for _ in range(3)])
    step, data = network()
    with girih.plan(step, data, machine="local:1", compare=()).start(backend="threads") as run:
        losses.append([float(run.step()) for _ in range(3)])
    for divided in losses[:-1]:
        assert divided == pytest.approx(losses[-1], rel=1e-5)


@pytest.mark.parametrize(
    ("shares", "devices", "words"),
    [
        ((40, 30), "local:2", "2 shares of 70 vertices, for 60 vertices"),
        ((20, 20, 20), "local:2", "3 shares of 60 vertices"),
        ((15, 15, 15, 15), "local:4", "for each device of one mesh axis"),
    ],
)
def test_shares_that_do_not_fit_are_refused(graph: Graph, shares: tuple[int, ...], devices: str, words: str) -> None:
    with pytest.raises(SearchError, match=words):
        Vertices(shares=shares).search(graph, Objective("seconds", machine(devices)))


def test_what_is_no_cut_is_refused() -> None:
    with pytest.raises(SearchError, match="at least one vertex for each device"):
        Vertices(shares=(60, 0))
    model = torch.nn.Linear(4, 4)
    step = girih.TrainingStep(
        model, loss=torch.nn.functional.mse_loss, optimizer=torch.optim.SGD(model.parameters(), 0.1)
    )
    plain = capture(step, (torch.ones(4, 4), torch.ones(4, 4))).graph
    with pytest.raises(SearchError, match="expected a graph network"):
        Vertices().search(plain, Objective("seconds", machine("local:2")))
