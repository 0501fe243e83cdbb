"""What a step computes of its data alone is computed once, and the step is the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import girih
from girih import gnn
from girih.gnn.data.data import Data
from girih.gnn.data.resident import Resident
from girih.gnn.models import NETWORKS


@pytest.fixture(scope="module")
def data() -> Data:
    return gnn.community(80, features=6, classes=3, degree=5, seed=3)


def step_of(network: torch.nn.Module, **options: Any) -> girih.TrainingStep:
    return girih.TrainingStep(network, gnn.loss, torch.optim.SGD(network.parameters(), lr=0.1), **options)


def planned(network: torch.nn.Module, data: Data, devices: int = 1) -> Any:
    return girih.plan(step_of(network), data, machine=f"local:{devices}", compare=())


def sums(plan: Any) -> int:
    """How many there are in the forward pass of a step."""
    names = ("girih.neighbour_sum", "girih.neighbour_max")
    return sum(node.operator in names and node.phase == "forward" for node in plan.graph.nodes)


def plain(network: torch.nn.Module, data: Data, steps: int) -> list[float]:
    optimizer, losses = torch.optim.SGD(network.parameters(), lr=0.1), []
    x, target = torch.from_numpy(data.x).double(), torch.from_numpy(data.target())
    for _ in range(steps):
        optimizer.zero_grad()
        loss = gnn.loss(network(x, replace(data.graph, cuts=())), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in ("gat", "commnet")])
def test_the_first_sum_is_in_no_step(data: Data, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And where it is computed in each step, losses have the same bits."""
    torch.manual_seed(0)
    network = NETWORKS[name](6, 8, 3).double()
    plan = planned(network, data)
    with monkeypatch.context() as patched:
        patched.setattr(Resident, "with_once", lambda _, graph: graph)
        each = planned(network, data)
    assert sums(plan) == sums(each) - 1
    losses = []
    for own in (plan, each):
        with own.start(backend="threads") as run:
            losses.append([run.step() for _ in range(3)])
    assert losses[0] == losses[1]
    assert losses[0] == pytest.approx(plain(network, data, 3), rel=1e-10)


@pytest.mark.parametrize("name", ["gcn", "sage", "gin"])
def test_features_wider_than_the_next_layer_are_summed_up_once_too(name: str) -> None:
    """Though elsewhere the narrower side is: of what is computed once the width does not count."""
    data = gnn.community(80, features=20, classes=3, degree=5, seed=3)
    network = NETWORKS[name](20, 8, 3).double()
    plan = planned(network, data, 2)
    assert sums(plan) == 2  # of the second layer, a piece on each worker
    with plan.start(backend="threads") as run:
        losses = [run.step() for _ in range(3)]
    assert losses == pytest.approx(plain(network, data, 3), rel=1e-10)
    with_gradient = torch.from_numpy(data.x).double().requires_grad_()
    assert network(with_gradient, data.graph).sum().backward() is None  # outside of plans as before
    assert with_gradient.grad is not None


class Own(torch.nn.Module):
    """Reads the features by a matrix first, as `before` says: what is learned or drawn is in the first sum too."""

    def __init__(self, before: torch.nn.Module) -> None:
        super().__init__()
        self.before, self.one, self.two = before, torch.nn.Linear(6, 8), torch.nn.Linear(8, 3)

    def forward(self, x: Any, graph: Any) -> Any:
        return self.two(gnn.aggregate(self.one(gnn.aggregate(self.before(x), graph)).relu(), graph))


class Counted(torch.nn.Module):
    """Scales by a buffer that each step writes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.float64))

    def forward(self, x: Any) -> Any:
        self.steps.add_(1)
        return x * self.steps


@pytest.mark.parametrize(
    ("before", "once"),
    [
        (torch.nn.Identity(), True),
        (torch.nn.LayerNorm(6, elementwise_affine=False), True),
        (torch.nn.LayerNorm(6), False),
        (torch.nn.Dropout(0.5), False),
        (torch.nn.BatchNorm1d(6, affine=False), True),
        (Counted(), False),
    ],
)
def test_what_is_learned_drawn_or_written_is_in_each_step(data: Data, before: torch.nn.Module, once: bool) -> None:
    network = Own(before).double()
    plan = planned(network, data)
    assert sums(plan) == (1 if once else 2)
    if isinstance(before, torch.nn.Dropout):
        return  # draws are the plan's own
    with plan.start(backend="threads") as run:
        losses = [run.step() for _ in range(3)]
    assert losses == pytest.approx(plain(network, data, 3), rel=1e-10)


def test_wider_results_and_a_network_of_one_sum_stay(data: Data) -> None:
    """Of which the first would take more memory than the features, and the second leave no graph network."""

    class Wider(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = torch.nn.Linear(18, 3)

        def forward(self, x: Any, graph: Any) -> Any:
            return gnn.aggregate(self.out(gnn.aggregate(torch.cat([x, x * x, x**3], 1), graph)), graph)

    assert sums(planned(Wider(), data)) == 2
    plan = planned(NETWORKS["gcn"](6, 8, 3, layers=1), data, 2)
    with plan.start(backend="threads") as run:
        assert run.step() > 0


@pytest.mark.parametrize("devices", [1, 2])
def test_a_plan_of_a_file_makes_it_of_the_data_that_it_is_given(data: Data, tmp_path: Path, devices: int) -> None:
    network = NETWORKS["gcn"](6, 8, 3).double()
    planned(network, data, devices).save(tmp_path / "plan.json")
    plan = girih.load(tmp_path / "plan.json")
    assert not {item.path for item in plan.graph.inputs} & {"x"}
    with plan.start(backend="threads", model=network, data=data) as run:
        losses = [run.step() for _ in range(2)]
    assert losses == pytest.approx(plain(network, data, 2), rel=1e-10)


@pytest.mark.parametrize("role", ["data", "buffer"])
def test_a_checkpoint_from_before_goes_on(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: Any
) -> None:
    """Of a program that has the features; as a buffer, they are in the checkpoint too."""
    network = NETWORKS["gcn"](6, 8, 3).double()
    with monkeypatch.context() as patched:
        patched.setattr(Resident, "with_once", lambda _, graph: graph)
        each = planned(network, data)
    held = tuple(replace(item, role=role) if item.role == "data" else item for item in each.graph.inputs)
    with each.but(graph=replace(each.graph, inputs=held)).start(backend="threads") as run:
        losses = [run.step()]
        run.save(tmp_path / "old")
    with planned(network, data, 2).start(backend="threads", resume=tmp_path / "old") as run:
        losses += [run.step() for _ in range(2)]
    assert losses == pytest.approx(plain(network, data, 3), rel=1e-10)


def test_features_that_are_written_are_still_seen(data: Data) -> None:
    """Though no step reads them."""
    own = data.but(x=data.x.copy())
    with planned(NETWORKS["gcn"](6, 8, 3), own).start(backend="threads") as run:
        run.step()
        own.x[3, 2] += 1
        with pytest.raises(gnn.DataError, match="the data's x changed"):
            run.step()


def test_new_graphs_are_cut_by_all_layers(data: Data) -> None:
    """Inference computes the first sum too, of which training has learned nothing."""
    network = NETWORKS["gcn"](6, 8, 3).double()
    plan = planned(network, data, 2)
    with plan.start(backend="threads") as run:
        for _ in range(3):
            run.step()
    assert len(plan.cost.layers) == 1
    assert len(plan._cost_of_all.layers) == 2
    assert plan._cost_of_all.sums[1] == plan.cost.sums[0]
    guess, weights = plan._cost_of_all.layers[0].guess(plan.cost.access), plan._cost_of_all.weights[0]
    np.testing.assert_allclose(weights, guess * (weights[0] / guess[0]))
    network.load_state_dict(plan.work.state)
    other = gnn.community(50, features=6, classes=3, degree=4, seed=9)
    torch.testing.assert_close(plan.infer(other, backend="threads"), gnn.predict(network, other), rtol=1e-9, atol=1e-9)
