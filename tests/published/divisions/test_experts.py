"""Experts' plans: layers lie where the expert puts them, and training is one device's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from graphs import machine_of, perceptron

import girih
from girih.api import Plan
from girih.layout import coordinates_of, kind_of
from girih.models import example
from girih.partition.space.problem import Objective
from girih.partition.strategy import SearchError
from girih.search.table import search_of


def planned(name: str, search: str, machine: str = "2x2") -> Plan:
    return trained(name, search, machine)[0]


def trained(name: str, search: str, machine: str = "2x2") -> tuple[Plan, tuple[Any, ...]]:
    """A plan, and what it is of: module, optimizer, loss and inputs."""
    made = example(name, device="cpu")
    module = made.module.double()
    inputs = {
        key: tensor.double() if hasattr(tensor, "dtype") and tensor.is_floating_point() else tensor
        for key, tensor in made.inputs.items()
    }
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    step = girih.TrainingStep(module, step=made.step, optimizer=optimizer)
    plan = girih.plan(step, inputs, machine=machine, search=search, objective="seconds", compare=())
    return plan, (module, optimizer, made.step, inputs)


def homes(plan: Plan, path: str) -> set[int]:
    """The devices that hold something of a parameter."""
    name = next(item.name for item in plan.graph.inputs if item.path == path)
    mesh, codes = plan.strategy.mesh, plan.strategy.layouts[name].codes
    able = [set(coordinates_of(code, size)) for code, size in zip(codes, mesh.sizes, strict=True)]
    return {d for d in range(mesh.devices) if all(int(mesh.coordinates[d, a]) in able[a] for a in range(mesh.axes))}


@pytest.mark.parametrize(
    ("name", "search"),
    [
        ("alexnet-tiny", "one-weird-trick"),
        ("alexnet-tiny", "model"),
        ("alexnet-tiny", "parameter-server"),
        ("rnnlm-tiny", "rnn-expert"),
        ("dlrm-criteo-tiny", "hybrid"),
        ("gpt-tiny", "model"),
    ],
)
def test_training_is_one_devices(name: str, search: str) -> None:
    plan, (module, optimizer, loss_of, inputs) = trained(name, search)
    with plan.start(backend="threads") as run:
        got = [run.step(inputs) for _ in range(2)]
    expected = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = loss_of(module, inputs)
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert got == pytest.approx(expected, rel=1e-10)


def test_a_parameter_server_updates_each_weight_on_one_device() -> None:
    plan = planned("alexnet-tiny", "parameter-server")
    owners = [homes(plan, item.path) for item in plan.graph.inputs if item.role == "state"]
    assert {len(owner) for owner in owners} == {1}
    assert len(set.union(*owners)) == 4
    for item in plan.graph.inputs:
        if item.role == "parameter":
            assert len(homes(plan, item.path)) == 4


def test_one_weird_trick_divides_matrices_and_copies_filters() -> None:
    plan = planned("alexnet-tiny", "one-weird-trick")
    for item in plan.graph.inputs:
        if item.role == "parameter":
            layout, shape = plan.strategy.layouts[item.name].codes, plan.graph.values[item.name].shape
            if len(shape) == 4:
                assert set(layout) == {-1}, item.path
            elif len(shape) == 2:
                assert 0 in layout, item.path


def test_model_parallelism_gives_each_layer_one_device() -> None:
    plan = planned("gpt-tiny", "model")
    where = {item.path: homes(plan, item.path) for item in plan.graph.inputs if item.role == "parameter"}
    shared = where.pop("token_embedding.weight")  # read by the first and by the last layer: it may have copies
    assert min(shared) == 0
    assert all(len(devices) == 1 for devices in where.values())
    assert {device for devices in where.values() for device in devices} == {0, 1, 2, 3}


def test_the_rnn_experts_replicas_and_layers() -> None:
    plan = planned("rnnlm-tiny", "rnn-expert")
    first, second = (homes(plan, f"cells.{layer}.from_input.weight") for layer in (0, 1))
    assert len(first) == len(second) == 2  # one on each host
    assert not first & second


def test_the_hybrid_spreads_tables_and_copies_networks() -> None:
    plan = planned("dlrm-criteo-tiny", "hybrid")
    tables = [homes(plan, item.path) for item in plan.graph.inputs
              if item.role == "parameter" and item.path.startswith("tables.")]  # fmt: skip
    assert all(len(devices) == 1 for devices in tables)
    assert len({min(devices) for devices in tables}) == min(len(tables), 4)
    assert homes(plan, "bottom.0.0.weight") == {0, 1, 2, 3}
    assert all(kind_of(code) == -1 for code in plan.strategy.layouts["p.bottom.0.0.weight"].codes)


class Mixture(torch.nn.Module):
    """Four experts, each of which answers every word, weighted by a router."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.router = torch.nn.Linear(width, 4)
        self.expand, self.contract = (torch.nn.Parameter(torch.randn(shape)) for shape in
                                      ((4, width, 2 * width), (4, 2 * width, width)))  # fmt: skip

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        gates = self.router(words).softmax(-1).t()
        hidden = torch.relu(torch.bmm(words.expand(4, *words.shape), self.expand))
        return words + (torch.bmm(hidden, self.contract) * gates[..., None]).sum(0)


def mixtures(search: str, count: int = 1) -> tuple[Plan, torch.nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(Mixture(6), Mixture(6)).double()
    batch = torch.randn(8, 6, dtype=torch.float64), torch.randn(8, 6, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step = girih.TrainingStep(model, loss=torch.nn.functional.mse_loss, optimizer=optimizer, micro_batches=count)
    return girih.plan(step, batch, machine="local:4", search=search, objective="seconds", compare=()), model, batch


def test_each_device_has_some_of_the_experts() -> None:
    plan, data = (mixtures(search)[0] for search in ("experts", "data"))
    for item in plan.graph.state_inputs:
        codes, shape = plan.strategy.layouts[item.name].codes, plan.graph.values[item.name].shape
        assert set(codes) == ({0} if len(shape) == 3 else {-1}), item.path
    assert plan.peak < data.peak
    assert "4 stacks of experts divided" in plan.certificate.space
    with pytest.raises(SearchError, match="this program has no experts"):
        search_of("experts").search(perceptron(1), Objective("bytes", machine_of((2,))))


@pytest.mark.parametrize(("search", "count"), [("experts", 1), ("pipeline-1f1b:stages=2,within=experts", 2)])
def test_training_with_divided_experts_is_one_devices(search: str, count: int) -> None:
    plan, model, batch = mixtures(search, count)
    for item in plan.graph.inputs:
        if item.role == "parameter" and len(plan.graph.values[item.name].shape) == 3:
            layer = int(item.path[0])
            assert homes(plan, item.path) == ({0, 1, 2, 3} if count == 1 else {2 * layer, 2 * layer + 1})
            assert 0 in map(kind_of, plan.strategy.layouts[item.name].codes)
    with plan.start(backend="threads") as run:
        got = [run.step(*batch) for _ in range(3)]
        measured = [item.bytes_received for item in run.statistics()]
    assert measured == (3 * plan.bytes_received).tolist()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    expected = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert got == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("search", ["data", "rnn-expert"])
def test_a_weight_that_is_used_at_every_step_is_reduced_once(search: str) -> None:
    def received(steps: int) -> float:
        made = example("rnnlm-tiny", batch=8, hidden=64, vocabulary=512, steps=steps)
        optimizer = torch.optim.SGD(made.module.parameters(), lr=0.01, momentum=0.9)
        step = girih.TrainingStep(made.module, step=made.step, optimizer=optimizer)
        plan = girih.plan(step, made.inputs, machine="2x2", search=search, objective="bytes", compare=())
        if search == "data":
            weights = sum(item.numel() for item in made.module.parameters()) * 4
            assert plan.bytes_received.max() == pytest.approx(2 * 3 / 4 * weights, rel=0.01)
        return float(plan.bytes_received.sum())

    assert received(6) < 1.3 * received(2)


@pytest.mark.parametrize("search", ["model", "hybrid", "parameter-server"])
def test_devices_of_a_long_axis_have_no_names(search: str) -> None:
    with pytest.raises(SearchError, match=r"axes of at most 48.*512 devices as 16x32"):
        search_of(search).search(perceptron(2), Objective("seconds", machine_of((64,))))
