"""Exchanges that overlap with computation: the same bits, the same bytes, and who is to blame when one breaks."""

from __future__ import annotations

import os
import signal
import threading

import pytest
import torch
from counts import LONG
from run_programs import program_of, stop, transfers
from torch.utils._pytree import tree_map

import girih
from girih.capture import TrainingStep
from girih.graph import parse_graph
from girih.layout import Mesh
from girih.models import example as example_of
from girih.models import random_batch
from girih.partition.strategy import Strategy
from girih.program import Overlap, Program, StartStep, TransferStep, lower, overlapped
from girih.run.engines.crew import Status, culprit
from girih.run.errors import StepError, TransportError, WorkerError, where
from girih.run.training.session import start
from girih.run.transport.transport import ThreadHub, ThreadTransport
from girih.run.worker.worker import Worker

WINDOWS = [Overlap(1, 1), Overlap(4, 16), Overlap(100, 100)]


def states(program: Program, example, backend: str, steps: int = 2) -> tuple[list[float], dict, list[int]]:
    with start(program, backend=backend, state=example.state) as run:
        losses = [run.step(example.batch, example.scalars)["loss"] for _ in range(steps)]
        return losses, run.state(), [item.bytes_received for item in run.statistics()]


def same_bits(one: tuple, other: tuple) -> None:
    assert one[0] == other[0]
    assert one[2] == other[2]
    assert one[1].keys() == other[1].keys()
    for path, tensor in one[1].items():
        assert torch.equal(tensor, other[1][path]), path


@pytest.mark.parametrize("sizes", [(2,), (3,), (2, 2)], ids=str)
@pytest.mark.parametrize("seed", range(4 if LONG else 2))
def test_the_same_bits_in_threads(example, sizes, seed):
    plain = program_of(example.graph, Mesh(sizes), seed)
    expected = states(plain, example, "threads")
    assert expected[2] == (2 * plain.bytes_received()).tolist()
    split = 0
    for window in WINDOWS:
        program = overlapped(plain, window)
        split += sum(isinstance(step, StartStep) for step in program.steps)
        same_bits(states(program, example, "threads"), expected)
    assert split


@pytest.mark.parametrize("window", WINDOWS[1:], ids=str)
def test_the_same_bits_in_processes(example, window):
    plain = program_of(example.graph, Mesh((2,)), 3)
    program = overlapped(plain, window)
    assert sum(isinstance(step, StartStep) for step in program.steps) > 3
    same_bits(states(program, example, "processes"), states(plain, example, "threads"))


def double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


@pytest.mark.parametrize("name", ["lenet-tiny", "gpt-tiny"])
def test_the_same_bits_of_models(name):
    made = example_of(name)
    module = made.module.double()
    step = TrainingStep(module, step=made.step, optimizer=torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9))
    batch = tree_map(double, random_batch(name, made.batch))
    wide = girih.plan(step, batch, machine="local:2", compare=(), search="exact:seconds=5", objective="bytes")
    plain = wide.but(overlap=Overlap())
    assert sum(isinstance(step, StartStep) for step in wide.program.steps) > 5
    assert (wide.bytes_received == plain.bytes_received).all()
    found = []
    for plan in (plain, wide):
        with plan.start(backend="threads") as run:
            losses = [run.step(batch) for _ in range(2)]
            found.append((losses, run.run.state(), [item.bytes_received for item in run.statistics()]))
    assert found[0][1][next(iter(dict(module.named_parameters())))].dtype == torch.float64
    same_bits(*found)


def test_intervals_are_one_for_each_step(example):
    program = overlapped(program_of(example.graph, Mesh((2,)), 0), Overlap(4, 16))
    with start(program, backend="threads", state=example.state, timeline=True) as run:
        run.step(example.batch, example.scalars)
        for intervals in run.timeline():
            assert [item.step for item in intervals] == list(range(len(program.steps)))


# ------------------------------------------------------------------------------------------- failures


def split_transfer(program: Program) -> tuple[int, int]:
    """Positions of a start and its finish."""
    position = next(number for number, step in enumerate(program.steps) if isinstance(step, StartStep))
    return position, program.steps.index(program.steps[position].transfer)


def test_places_of_starts_and_finishes(example):
    program = overlapped(program_of(example.graph, Mesh((2,)), 0), Overlap(4, 16))
    begin, end = split_transfer(program)
    transfer = program.steps[end]
    assert isinstance(transfer, TransferStep)
    started, finished = where(program, begin), where(program, end)
    assert started.action == f"start of the {transfer.purpose} of {transfer.value!r}"
    assert finished.action == f"{transfer.purpose} of {transfer.value!r}"
    assert started.node == finished.node == program.graph.nodes[transfer.node].name
    assert culprit(program, [Status(0, 1, end), Status(1, 1, begin)]).rank == 1


def test_a_peer_that_is_gone_shows_at_the_finish(example):
    """Nobody answers: the start goes through, the finish names itself."""
    program = overlapped(program_of(example.graph, Mesh((2,)), 0), Overlap(4, 16))
    end = next(
        number
        for number, step in enumerate(program.steps)
        if isinstance(step, TransferStep) and any(m.target != m.source for m in program.messages_of(step, 0))
    )
    worker = Worker(program, 0, ThreadTransport(ThreadHub(2, 0.05), 0))
    with start(program, backend="threads", state=example.state) as run:
        worker.take_state(run.crew.services[0].worker.state)
        inputs = run._divide(run.whole_inputs(example.batch, example.scalars))[0]["inputs"]
    with pytest.raises(StepError, match=r"nothing (came from|was taken by) worker 1") as found:
        worker.step(inputs)
    assert found.value.rank == 0
    assert found.value.place == where(program, end)
    assert found.value.in_transfer
    assert isinstance(found.value.__cause__, TransportError)


def test_a_killed_worker(example):
    program = overlapped(program_of(example.graph, Mesh((2,)), 0), Overlap(4, 16))
    with start(program, state=example.state) as run:
        run.step(example.batch, example.scalars)
        os.kill(run.crew.pids[1], signal.SIGSTOP)
        threading.Timer(0.5, os.kill, (run.crew.pids[1], signal.SIGKILL)).start()
        with pytest.raises(WorkerError, match="worker 1 was killed by SIGKILL"):
            run.step(example.batch, example.scalars)


def test_a_hanging_worker(example, monkeypatch):
    program = overlapped(program_of(example.graph, Mesh((2,)), 0), Overlap(4, 16))
    with start(program, state=example.state) as run:
        run.step(example.batch, example.scalars)
        stop(run.crew.pids[1])
        monkeypatch.setattr(run.crew, "timeout", 2.0)  # the first step may take its time
        with pytest.raises(WorkerError, match="worker 1 did not finish 'step' within 2 s; it hangs"):
            run.step(example.batch, example.scalars)


FACTOR = """graph
  input %x: float64[4, 3, 3]  batch  "0"
  input %w: float64[6, 6]  batch  "1"
  %y: float64[4, 3, 3] = aten.linalg_cholesky(self=%x)  # forward, model.py:7
  %z: float64[6, 6] = aten.mm(self=%w, mat2=%w)  # forward
  return %y result, %z result"""


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_an_exception_while_an_exchange_is_under_way(backend):
    """Worker 1 cannot factor its matrices while the fetch of w is under way; worker 0 waits for the rest of y."""
    strategy = Strategy.of_codes(Mesh((2,)), ((0,), (0,)), {"x": (0,), "w": (0,), "y": (-1,), "z": (0,)})
    program = overlapped(lower(parse_graph(FACTOR), strategy, transfers(Mesh((2,)))), Overlap(4, 16))
    assert [type(step).__name__ for step in program.steps[:2]] == ["StartStep", "ComputeStep"]
    w, good = torch.randn(6, 6).double(), torch.eye(3, dtype=torch.float64).expand(4, 3, 3).contiguous()
    with start(program, backend=backend) as run:
        torch.testing.assert_close(run.step({"x": good, "w": w})["z"], w @ w)
        with pytest.raises(WorkerError, match=r"worker 1 failed .*'y', aten.linalg_cholesky, model.py:7"):
            run.step({"x": torch.cat([good[:2], -good[:2]]), "w": w})
