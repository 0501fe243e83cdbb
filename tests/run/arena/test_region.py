"""A worker's tensors lie at their planned addresses, with the bits and the peak that were planned."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from lowered_programs import alone

import girih
from girih.capture import TrainingStep
from girih.graph import Graph
from girih.machine.units import format_bytes
from girih.models import example
from girih.plans.inputs import flatten_batch, program_of
from girih.plans.scratch import host_notes
from girih.program import Program
from girih.program.life.lifetimes import lifetimes
from girih.program.moves.moves import moved
from girih.program.moves.residency import floor
from girih.program.places.addresses import Addresses
from girih.program.places.places import addresses_of, placed
from girih.report.memory import memory_numbers
from girih.run.arena import arena as module
from girih.run.arena.arena import ArenaError
from girih.run.errors import StepError
from girih.run.worker.measure import peak_bytes
from girih.run.worker.worker import Worker
from girih.search.memory.belady import belady

TURNS = 300_000
NAMES = ("resnet-tiny", "gpt-tiny", "rnn-tiny")


@pytest.fixture(scope="module", autouse=True)
def _possible() -> None:
    try:
        module.library()
    except ArenaError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def _threads_of_processes(_one_thread):
    before = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    yield
    torch.set_num_threads(before)


@cache
def training(name: str) -> tuple[Graph, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """A small model's graph, its state and a batch by the names of inputs."""
    torch.manual_seed(0)
    made = example(name, batch=2, device="cpu")
    optimizer = torch.optim.SGD(made.module.parameters(), lr=0.01, momentum=0.9)
    captured = program_of(TrainingStep(made.module, step=made.step, optimizer=optimizer), made.inputs)
    assert captured.origin.state is not None
    given, graph = captured.origin.state(), captured.graph
    state = {}
    for item in graph.state_inputs:
        value = graph.values[item.name]
        own = given.get(item.path)
        state[item.name] = torch.zeros(value.shape, dtype=getattr(torch, value.dtype)) if own is None else own.detach()
    batch = {item.name: flatten_batch(made.inputs)[item.path] for item in graph.inputs if item.role == "batch"}
    rates = {item.name: torch.tensor(0.01) for item in graph.inputs if item.role == "scalar"}
    return graph, state, batch | rates


@cache
def addressed(name: str, share: float) -> tuple[Program, Addresses]:
    """The step within a share between the least and the most that it can take, and its addresses."""
    program, notes = alone(training(name)[0]), host_notes(1)
    lives = lifetimes(program, 0, 1, notes)
    most, least = int(lives.used.max()), floor(lives)[0]
    cap = least + int(share * (most - least))
    if cap < most:
        program = moved(lives, belady(lives, cap, np.ones(len(lives.steps))), cap)
        lives = lifetimes(program, 0, 1, notes)
    return program, addresses_of(lives, placed(lives, TURNS))


def steps(worker: Worker, name: str, count: int, fill: bool = False) -> dict[str, torch.Tensor]:
    """The state after some steps. fill: what is free is overwritten before each."""
    _, state, batch = training(name)
    worker.take_state(state)
    for _ in range(count):
        if fill and worker.region is not None:
            worker.region.arena.fill(0xFF)  # not a number, of any float
        worker.step(dict(batch))
    return {name: tensor.clone() for name, tensor in worker.state.items()}


@cache
def expected(name: str, count: int) -> Mapping[str, torch.Tensor]:
    return steps(Worker(alone(training(name)[0]), 0), name, count)


def same(name: str, state: Mapping[str, torch.Tensor], count: int = 10) -> bool:
    return all(tensor.equal(state[item]) for item, tensor in expected(name, count).items())


@pytest.mark.parametrize("share", [1.0, 0.4])
@pytest.mark.parametrize("name", NAMES)
def test_ten_steps_have_the_same_bits_at_planned_addresses(name: str, share: float) -> None:
    program, addresses = addressed(name, share)
    assert bool(program.host) == (share < 1)
    worker = Worker(program, 0, addresses=addresses)
    assert worker.region is not None, worker.without
    assert same(name, steps(worker, name, 10, fill=True))
    use = worker.region.use()
    assert (use.bytes, use.bound) == (addresses.bytes, addresses.bound)
    assert use.peak <= addresses.peak <= addresses.bytes
    worker.region.restart()
    worker.step(dict(training(name)[2]))  # by now everything is known
    use = worker.region.use()
    assert (use.requests, use.outside) == (0, 0)
    assert use.strays == 0 or name == "resnet-tiny"  # one kernel's scratch lies in its result's place to the end
    # Copies in may come a little later than planned, and copies out earlier; scratch of convolutions may be a bound.
    measured = peak_bytes(worker, dict(training(name)[2]))
    assert measured <= addresses.peak
    assert measured == addresses.peak or name == "resnet-tiny"
    state = worker.state
    assert all(state[item].data_ptr() == worker.region.start_of(item) for item in state if item not in program.host)


@pytest.mark.parametrize("name", ["gpt-tiny", "rnn-tiny"])
def test_a_strict_arena_needs_nothing_else(name: str) -> None:
    program, addresses = addressed(name, 0.4)
    worker = Worker(program, 0, addresses=addresses, strict=True)
    assert same(name, steps(worker, name, 3), 3)


@pytest.mark.parametrize("name", ["gpt-tiny", "rnn-tiny"])
def test_other_requests_than_planned_are_served_counted_and_harmless(name: str) -> None:
    """As on a processor whose kernels take scratch of which nothing was known, and results in other places."""
    program, addresses = addressed(name, 0.4)
    moved_by = {buffer: (at, size + 64 * (number % 3 == 0)) for number, (buffer, (at, size)) in
                enumerate(addresses.places.items())}  # fmt: skip
    none = tuple(() for _ in addresses.scratch)
    wrong = replace(addresses, places=moved_by, scratch=none)
    worker = Worker(program, 0, addresses=wrong)
    assert worker.region is not None
    assert same(name, steps(worker, name, 3), 3)
    use = worker.region.use()
    assert use.requests > 0
    assert use.outside > 0
    refusing = Worker(program, 0, addresses=replace(addresses, scratch=none), strict=True)
    with pytest.raises((StepError, RuntimeError), match=r"have no place in the arena|can.t allocate memory"):
        steps(refusing, name, 1)


def test_addresses_that_overlap_are_harmless() -> None:
    """Two blocks never share memory, whatever was planned."""
    program, addresses = addressed("rnn-tiny", 0.4)
    shifted = {buffer: (at // 2 // 64 * 64, size) for buffer, (at, size) in addresses.places.items()}
    worker = Worker(program, 0, addresses=replace(addresses, places=shifted))
    assert worker.region is not None
    assert same("rnn-tiny", steps(worker, "rnn-tiny", 3), 3)
    assert worker.region.use().requests > 0


def small() -> tuple[TrainingStep, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(64, 64), torch.nn.Tanh())]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 8))
    batch = (torch.randn(128, 64), torch.randint(8, (128,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return TrainingStep(model, loss=torch.nn.functional.cross_entropy, optimizer=optimizer), batch


@pytest.mark.usefixtures("_threads_of_processes")
def test_a_plan_with_a_limit_runs_in_an_arena_within_it() -> None:
    step, batch = small()
    free = girih.plan(step, batch, machine="local:1", compare=(), objective="bytes")
    plan = girih.plan(step, batch, machine="local:1", memory=free.peak // 2, compare=(), hold="swap", objective="bytes")
    again = girih.plan(
        step, batch, machine="local:1", memory=int(free.peak * 0.97), compare=(), hold="recompute", objective="bytes"
    )
    (addresses,) = plan.arenas
    assert addresses.bytes <= plan.memory
    assert f"an arena of {format_bytes(addresses.bytes)}" in str(plan)
    assert memory_numbers(plan)["arena"] == addresses.bytes
    weights, uses = [], []
    for own, backend, arena in (
        (free, "threads", "auto"),
        (plan, "threads", "auto"),
        (plan, "processes", "strict"),
        (plan, "threads", "off"),
        (free, "threads", "on"),
        (again, "threads", "strict"),
    ):
        with own.start(backend=backend, arena=arena) as run:
            for _ in range(3):
                run.step(*batch)
            weights.append(run.state_dict())
            (statistics,) = run.statistics()
            uses.append(statistics.arena)
    assert all(first.equal(other[name]) for other in weights[1:] for name, first in weights[0].items())
    assert [use is None for use in uses] == [True, False, False, True, False, False]
    assert all(use.bytes == addresses.bytes and use.outside == 0 for use in uses[1:3])
    with pytest.raises(girih.PlanError, match="no arena 'perhaps': expected one of auto, on, strict, off"):
        plan.start(arena="perhaps")


def test_two_workers_have_an_arena_each() -> None:
    step, batch = small()
    free = girih.plan(step, batch, machine="local:2", compare=(), objective="bytes")
    plan = girih.plan(step, batch, machine="local:2", memory=int(free.peak * 0.8), compare=(), objective="bytes")
    losses = []
    for own, backend in ((free, "threads"), (plan, "threads"), (plan, "processes")):
        with own.start(backend=backend) as run:
            losses.append([run.step(*batch) for _ in range(3)])
            uses = [item.arena for item in run.statistics()]
        if own is plan:
            assert [use.outside for use in uses] == [0, 0]
            assert all(use.peak <= use.bytes <= plan.memory for use in uses)
    assert losses[0] == losses[1] == losses[2]


def test_a_run_goes_without_an_arena_rather_than_beyond_its_limit() -> None:
    """Every tensor begins at a multiple of 64 bytes, so that a limit of exactly what is alive leaves no room for it."""
    step, batch = small()
    free = girih.plan(step, batch, machine="local:1", compare=(), objective="bytes")
    plan = free.but(memory=free.peak)
    assert plan.arena is not None
    assert plan.arena.bytes > plan.memory
    assert f"no arena: addresses leave gaps, so that it would need {format_bytes(plan.arena.bytes)}" in str(plan)
    assert memory_numbers(plan)["arena"] is None
    for backend in ("threads", "processes"):
        with plan.start(backend=backend) as run:
            run.step(*batch)
            (worker,) = run.statistics()
            assert worker.arena is None
            assert worker.without == plan.no_arena
            assert run.run.peak_bytes(*run.inputs(batch, None)) == [plan.peak]
    for arena in ("on", "strict"):
        with pytest.raises(girih.PlanError, match=rf"no arena: .*\({plan.arena.bytes} bytes\), more than the limit"):
            plan.start(arena=arena)
