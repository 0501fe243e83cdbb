"""Runs of graph networks learn what pieces take, are cut anew, and leave a plan that infers on other graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import girih
from girih import gnn
from girih.gnn import plans
from girih.gnn.data.data import Data
from girih.search import Vertices

STEPS = 6


@pytest.fixture(scope="module")
def data() -> Data:
    return gnn.rmat(200, 1500, features=6, classes=3, seed=3)


def planned(data: Data, machine: str = "local:2", kind: Any = gnn.GCN) -> tuple[Any, torch.nn.Module]:
    torch.manual_seed(0)
    network = kind(6, 8, 3, dropout=0.3).double()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    return girih.plan(girih.TrainingStep(network, loss=gnn.loss, optimizer=optimizer), data, machine=machine), network


@pytest.fixture(scope="module")
def undivided(data: Data) -> tuple[list[float], dict[str, Any]]:
    """Losses, and weights, of one device."""
    plan, _ = planned(data, "local:1")
    with plan.start(backend="threads") as run:
        return [run.step() for _ in range(STEPS)], run.state_dict()


def test_a_run_is_cut_anew_and_goes_on_as_it_would_have(data: Data, undivided: Any) -> None:
    plan, _ = planned(data)
    with plan.start(backend="threads") as run:
        before = run.partition()
        assert before.ranges == ((0, plan.work.data.graph.cuts[1]), (plan.work.data.graph.cuts[1], 200))
        assert (before.measured, before.samples, before.moves) == (None, 0, 0)
        losses = [run.step() for _ in range(3)]
        learned = run.partition()
        assert learned.samples == 2 * 2  # steps, pieces; the first step compiles, and the first layer's sum is no part
        assert learned.measured is not None
        assert min(learned.measured) > 0
        assert min(learned.predicted) > 0
        assert learned.error >= 0
        run.cut((0, 150, 200))
        after = run.partition()
        assert after.ranges == ((0, 150), (150, 200))
        assert sum(after.edges) == sum(before.edges) == data.edges
        assert after.moves == 1 + learned.moves
        assert "150 to 199" in str(after)
        losses += [run.step() for _ in range(STEPS - 3)]
        assert run.steps == STEPS
        state = run.state_dict()
    assert losses == pytest.approx(undivided[0], rel=1e-10)
    for key, item in undivided[1].items():
        torch.testing.assert_close(state[key], item, rtol=1e-9, atol=1e-9)


def test_measured_times_move_the_cut_where_that_pays(
    data: Data, undivided: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second piece is told to take ten times as long for each of its vertices."""

    def told(plan: Any, *_: Any) -> np.ndarray:
        first, last = np.diff(plan.work.data.graph.cuts)
        return np.array([[first, 10.0 * last]]) * 1e-3

    monkeypatch.setattr(plans, "measured_seconds", told)
    plan, _ = planned(data)
    first = plan.work.data.graph.cuts[1]
    with plan.start(backend="threads") as run:
        run._starting = 1e9
        losses = [run.step() for _ in range(2)]
        assert run.partition().moves == 0, "not where starting anew takes longer than it can save"
        run._starting = 0.0
        losses += [run.step() for _ in range(STEPS - 2)]
        assert run.partition().moves >= 1
        assert run.partition().ranges[0][1] > first
    assert losses == pytest.approx(undivided[0], rel=1e-10)
    assert plan.cost.samples > 0


def test_a_run_with_stated_shares_is_cut_anew(data: Data, undivided: Any) -> None:
    torch.manual_seed(0)
    network = gnn.GCN(6, 8, 3, dropout=0.3).double()
    step = girih.TrainingStep(network, loss=gnn.loss, optimizer=torch.optim.Adam(network.parameters(), lr=0.05))
    cut = gnn.partition(data, 2, gnn.CostModel(gnn.layers_of(network, 6)))
    plan = girih.plan(step, cut.arranged(data), machine="local:2", search=Vertices(shares=cut.vertices), compare=())
    with plan.start(backend="threads") as run:
        losses = [run.step()]
        run.cut((0, 150, 200))
        assert run.partition().ranges == ((0, 150), (150, 200))
        losses += [run.step() for _ in range(STEPS - 1)]
    assert losses == pytest.approx(undivided[0], rel=1e-10)


@pytest.mark.parametrize("machine", ["local:1", "local:3"])
def test_a_plan_infers_on_a_graph_that_it_has_not_seen(data: Data, machine: str) -> None:
    plan, network = planned(data, machine)
    other = gnn.community(90, features=6, classes=3, seed=5)
    untrained = plan.infer(other, backend="threads")
    torch.testing.assert_close(untrained, gnn.predict(network, other), rtol=1e-10, atol=1e-10)
    with plan.start(backend="threads") as run:
        run.step()
        network.load_state_dict(run.state_dict())
    trained = plan.infer(other, backend="threads")
    torch.testing.assert_close(trained, gnn.predict(network, other), rtol=1e-10, atol=1e-10)
    assert not torch.equal(trained, untrained)


def test_a_graph_with_other_features_is_refused(data: Data) -> None:
    plan, _ = planned(data, "local:1")
    with pytest.raises(gnn.DataError, match="has 5 features of each vertex, the plan was made for 6"):
        plan.infer(gnn.community(50, features=5))


def test_planning_leaves_the_network_and_random_numbers(data: Data) -> None:
    """What a network gathers is found by running a copy of it."""

    class Network(gnn.GCN):
        def __init__(self, *sizes: int, **options: Any) -> None:
            super().__init__(*sizes, **options)
            self.norm = torch.nn.BatchNorm1d(8)

        def between(self, x: torch.Tensor) -> torch.Tensor:
            return super().between(self.norm(x))

    torch.manual_seed(7)
    network = Network(6, 8, 3, dropout=0.5)
    before, expected = network.norm.running_mean.clone(), torch.get_rng_state()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    girih.plan(girih.TrainingStep(network, loss=gnn.loss, optimizer=optimizer), data, machine="local:2")
    assert torch.equal(network.norm.running_mean, before)
    assert torch.equal(torch.get_rng_state(), expected)


def test_the_page_shows_the_pieces(data: Data, tmp_path: Path) -> None:
    pytest.importorskip("bokeh")
    plan, _ = planned(data)
    plan.report(tmp_path / "plan.html")
    with plan.start(backend="threads") as run:
        run.step()
        run.step()
        run.report(tmp_path / "run.html")
        start, stop = run.partition().ranges[1]
    for name, said in (("plan.html", "as predicted"), ("run.html", "as measured")):
        text = (tmp_path / name).read_text()
        assert f"1: vertices {start:,} to {stop - 1:,}" in text
        assert said in text
    alone, _ = planned(data, "local:1")
    with pytest.raises(girih.PlanError, match="the graph is in one piece"):
        alone.partition()
