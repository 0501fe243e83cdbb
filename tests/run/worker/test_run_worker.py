"""Threads: many strategies over many meshes compute what one device computes, and move the bytes that were promised."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from counts import LONG
from run_programs import cholesky_program, program_of, random_strategy, transfers

import girih
from girih.graph import Graph, Input, Node, Output, Ref, Value
from girih.layout import PARTIAL, Links, Mesh, Transfers, parse_sharding
from girih.partition.space.options import TOFU
from girih.partition.strategy import Strategy
from girih.program import FreeStep, lower
from girih.run.errors import StepError
from girih.run.training.session import start
from girih.run.worker.worker import Worker


@pytest.mark.parametrize("sizes", [(1,), (2,), (3,), (4,), (2, 2), (3, 2)], ids=str)
@pytest.mark.parametrize("seed", range(8 if LONG else 2))
def test_random_strategies(example, sizes, seed):
    program = program_of(example.graph, Mesh(sizes), seed)
    with start(program, backend="threads", state=example.state) as run:
        example.compare(run, 3)
        measured = run.statistics()
    expected = 3 * program.bytes_received()
    assert [item.bytes_received for item in measured] == expected.tolist()
    assert sum(sum(item.sent) for item in measured) == expected.sum()
    for item in measured:
        assert item.received[item.rank] == 0
        assert all(item.received[peer] == measured[peer].sent[item.rank] for peer in range(len(measured)))


@pytest.mark.parametrize("sizes", [(2, 2), (2, 3)], ids=str)
def test_routes_over_links_of_different_speed(example, sizes):
    """Sums are combined inside of a host, then between hosts, and spread inside."""
    mesh = Mesh(sizes)
    work = Transfers(mesh, Links((1e-6, 1e-9), (1e-8, 1e-8)), "seconds")
    program = lower(example.graph, random_strategy(example.graph, mesh, 3), work)
    before = {step.target: step.before for step in program.transfers}
    partly = [step for step in program.transfers if step.source in before and any(step.before.partial)]
    assert any(not step.before.partial[1] for step in partly)
    with start(program, backend="threads", state=example.state) as run:
        example.compare(run, 2)
        assert [item.bytes_received for item in run.statistics()] == (2 * program.bytes_received()).tolist()


def test_tensors_that_an_operator_takes_by_name_only():
    """segment_reduce takes its lengths so, and its gradient too; searchsorted the order of its table."""
    lengths, table, order = torch.tensor([2, 0, 3, 1]), torch.tensor([3.0, 1.0, 2.0]).double(), torch.tensor([1, 2, 0])

    def step(net, x):
        y = net(x)
        sums = torch.segment_reduce(y, "sum", lengths=lengths, axis=0)
        return sums.square().sum() + (y * torch.searchsorted(table, x, sorter=order)).sum()

    torch.manual_seed(0)
    model, x = torch.nn.Linear(2, 2).double(), 4 * torch.rand(6, 2).double()
    expected, twin = [], copy.deepcopy(model)
    for _ in range(2):
        twin.zero_grad()
        expected.append(loss := step(twin, x))
        loss.backward()
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter -= 0.1 * parameter.grad
    training = girih.TrainingStep(model, step=step, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    plan = girih.plan(training, x, machine="local:2", search="data", compare=())
    with plan.start(backend="threads") as run:
        assert [run.step(x) for _ in range(2)] == pytest.approx([loss.item() for loss in expected], rel=1e-12)


def test_the_strategies_cover_partial_sums(example):
    """The random strategies are no weak test: partial sums lie, pass and are reduced in them."""
    strategies = [random_strategy(example.graph, Mesh((2, 2)), seed) for seed in range(8)]
    assert any(layout.partial_axes for strategy in strategies for layout in strategy.layouts.values())
    assert any(division.partial_axes for strategy in strategies for division in strategy.divisions)
    kinds = {
        kind for strategy in strategies for kind in lower(example.graph, strategy, transfers(Mesh((2, 2)))).kinds()
    }
    assert {"all-reduce", "reduce-scatter", "all-gather"} <= kinds


def test_without_copies(example):
    """Tofu's rules: everything divided."""
    program = program_of(example.graph, Mesh((2, 2)), 5, TOFU)
    with start(program, backend="threads", state=example.state) as run:
        example.compare(run, 2)


def test_replicas_stay_equal(example):
    """Reductions run in one order everywhere: copies of a parameter have the same bits."""
    strategy = random_strategy(example.graph, Mesh((3,)), 1)
    state = {name for item in example.graph.state_inputs for name in (item.name, example.graph.updates[item.name])}
    layouts = {name: parse_sharding("R") if name in state else layout for name, layout in strategy.layouts.items()}
    program = lower(example.graph, replace(strategy, layouts=layouts), transfers(Mesh((3,))))
    with start(program, backend="threads", state=example.state) as run:
        example.compare(run, 3)
        services = run.crew.services
        for name, tensor in services[0].worker.state.items():
            assert all(torch.equal(tensor, other.worker.state[name]) for other in services[1:])


def test_state_that_nothing_replaces_stays(example):
    """A frozen parameter is read in every step, and is freed in none."""
    values = {name: Value(name, (4, 4), "float64") for name in ("w", "x", "y")}
    node = Node("y", "aten.mm", (("self", Ref("x")), ("mat2", Ref("w"))), ("y",))
    graph = Graph(values, (node,), (Input("w", "parameter", "w"), Input("x", "batch", "0")), (Output("y", "result"),))
    strategy = Strategy.of_codes(Mesh((2,)), ((0,),), {"w": (-1,), "x": (0,), "y": (1,)})
    program = lower(graph, strategy, transfers(Mesh((2,))))
    assert not any("w" in step.buffers for step in program.steps if isinstance(step, FreeStep))
    w, x = torch.randn(4, 4, dtype=torch.float64), torch.randn(4, 4, dtype=torch.float64)
    with start(program, backend="threads", state={"w": w}) as run:
        for _ in range(2):
            torch.testing.assert_close(run.step({"x": x})["y"], x @ w)
        assert torch.equal(run.state()["w"], w)


def test_partial_results_are_summed():
    """A result that the strategy leaves as partial sums is whole when it is returned."""
    values = {name: Value(name, (4, 4), "float64") for name in ("w", "x", "y")}
    node = Node("y", "aten.mm", (("self", Ref("x")), ("mat2", Ref("w"))), ("y",))
    graph = Graph(values, (node,), (Input("w", "parameter", "w"), Input("x", "batch", "0")), (Output("y", "result"),))
    strategy = Strategy.of_codes(Mesh((2,)), ((2,),), {"w": (0,), "x": (1,), "y": (PARTIAL,)})
    program = lower(graph, strategy, transfers(Mesh((2,))))
    assert program.bytes_received().sum() == 0
    w, x = torch.randn(4, 4, dtype=torch.float64), torch.randn(4, 4, dtype=torch.float64)
    with start(program, backend="threads", state={"w": w}) as run:
        torch.testing.assert_close(run.step({"0": x})["y"], x @ w)


def test_inputs_are_freed_and_state_is_compact(example):
    """The worker keeps its state, contiguous and no larger than it shows, and nothing else."""
    worker = Worker(program_of(example.graph, Mesh((1,)), 0), 0)
    worker.take_state({item.name: example.state[item.path] for item in example.graph.state_inputs})
    inputs = {**example.batch, **{name: torch.tensor(rate).double() for name, rate in example.scalars.items()}}
    worker.step(inputs)
    assert inputs == {}
    for tensor in worker.state.values():
        assert tensor.is_contiguous()
        assert tensor.untyped_storage().nbytes() == tensor.nbytes


def test_a_failure_names_the_instruction():
    """Rank, node, operator and the user's line."""
    worker = Worker(cholesky_program(1), 0)
    with pytest.raises(
        StepError, match=r"worker 0 failed at instruction .*'y', aten.linalg_cholesky, model.py:7"
    ) as got:
        worker.step({"x": -torch.eye(3, dtype=torch.float64).expand(4, 3, 3).contiguous()})
    assert got.value.place.operator == "aten.linalg_cholesky"
    assert not got.value.in_transfer


def test_timeline(example):
    """Every instruction is measured, in order."""
    program = program_of(example.graph, Mesh((2,)), 0)
    with start(program, backend="threads", state=example.state, timeline=True) as run:
        run.step(example.batch, example.scalars)
        for intervals in run.timeline():
            assert [item.step for item in intervals] == list(range(len(program.steps)))
            assert all(item.start <= item.stop for item in intervals)


def test_times_add_up(example):
    with start(program_of(example.graph, Mesh((2,)), 0), backend="threads", state=example.state) as run:
        run.step(example.batch, example.scalars)
        for item in run.statistics():
            assert item.times.steps == 1
            assert 0 < item.times.kernels + item.times.transfers < item.times.total
