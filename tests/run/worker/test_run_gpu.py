"""What workers do where there are GPUs, as far as it can be seen without one: which device each has, where every tensor
lies, that copies on streams wait for whom they must, and what the allocator's statistics say."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lowered_programs import alone
from run_programs import rates, training
from torch.utils._python_dispatch import TorchDispatchMode

import girih
from benchmarks.common import training_step
from girih.api import PlanError
from girih.cost import measure_scratch
from girih.cost.scratch import BOUND, MEASURED, Told
from girih.kernels import own as kernels
from girih.machine import MachineError, machine
from girih.ops.derive.temporaries import KernelCall, Operand
from girih.ops.scratch import ScratchCall, known_by
from girih.program.life.accounts import memory_use
from girih.program.life.lifetimes import lifetimes
from girih.program.moves.moves import moved
from girih.program.moves.residency import floor
from girih.run.calibrate.measure_operators import shared_out
from girih.run.engines.launcher import Rank, local_rank
from girih.run.transport.gloo import TRANSPORT
from girih.run.worker import measure, moves, worker
from girih.run.worker.devices import check_device, device_of
from girih.run.worker.worker import Worker
from girih.search.memory.belady import belady


@pytest.fixture
def two_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch says that there are two."""
    card = SimpleNamespace(name="NVIDIA H200", total_memory=140 << 30)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: card)
    monkeypatch.delenv(TRANSPORT, raising=False)


# Which device


@pytest.mark.parametrize(
    ("device", "number", "workers", "shares", "expected"),
    [
        ("cpu", 3, 4, False, "cpu"),
        ("cuda", 1, 2, False, "cuda:1"),
        ("cuda:1", 0, 1, False, "cuda:1"),
        ("cuda", 2, 3, True, "cuda:0"),
        ("cuda:1", 2, 3, True, "cuda:1"),
    ],
)
def test_each_worker_has_its_device(
    two_cards: None, device: str, number: int, workers: int, shares: bool, expected: str
) -> None:
    assert str(device_of(device, number, workers, shares)) == expected


@pytest.mark.parametrize(
    ("device", "workers", "words"),
    [
        ("cuda", 3, r"3 workers on this host.*2 GPUs: NCCL takes one for each"),
        ("cuda:0", 2, r"2 workers on this host.*1 GPU: NCCL"),
        ("cuda:2", 1, r"has 2 GPUs, counted from cuda:0"),
        ("mps", 1, r"cpu or cuda"),
        ("gpu", 1, r"no device 'gpu': expected cpu, cuda"),
    ],
)
def test_devices_that_cannot_be_are_refused(
    two_cards: None, monkeypatch: pytest.MonkeyPatch, device: str, workers: int, words: str
) -> None:
    with pytest.raises(MachineError, match=words):
        check_device(device, workers)
    if "NCCL" in words:  # through the host's memory they may share
        monkeypatch.setenv(TRANSPORT, "gloo")
        check_device(device, workers)


def test_local_rank_is_the_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert local_rank(Rank(5, 8)) == Rank(5, 8)
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert local_rank(Rank(5, 8)) == Rank(1, 4)


def test_gpus_of_this_host_are_a_machine(two_cards: None) -> None:
    both = machine("cuda:2")
    assert (both.devices, both.on_gpus, both.here) == (2, True, False)
    assert both.device.memory_bytes == 139 << 30
    assert both.device.memory_bytes_per_second == machine("dgx-h200").device.memory_bytes_per_second
    with pytest.raises(MachineError, match="has 2 GPUs: name cuda:1 to cuda:2"):
        machine("cuda:3")


def test_without_a_gpu_one_line_says_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(MachineError, match="PyTorch sees no GPU here: plan for processors"):
        machine("cuda:1")
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.zeros(2, 4), torch.zeros(2, 4)
    with pytest.raises(PlanError, match="PyTorch sees no GPU here"):
        girih.fit(model, torch.nn.functional.mse_loss, optimizer, batch, device="cuda")
    step = girih.TrainingStep(model, loss=torch.nn.functional.mse_loss, optimizer=optimizer)
    plan = girih.plan(step, batch, machine="local:1", compare=(), objective="bytes")
    for backend in ("threads", "processes"):
        with pytest.raises(PlanError, match=r"device 'cuda': PyTorch sees no GPU here: start with device='cpu'$"):
            plan.start(backend=backend, device="cuda")


# Where every tensor lies


@pytest.mark.parametrize("name", ["gpt-tiny", "wresnet-tiny"])
def test_all_that_a_step_makes_lies_on_the_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The meta device refuses, as a GPU does, tensors of the host among its own; it has no numbers to be looked at.
    monkeypatch.setattr(kernels, "in_table", lambda *numbers: None)
    plan = girih.plan(*training_step(name), machine="local:1", compare=(), objective="bytes")
    graph = plan.graph

    def empty(name: str, device: str) -> Any:
        value = graph.values[name]
        return torch.empty(value.shape, dtype=getattr(torch, value.dtype), device=device)

    own = Worker(plan.program, 0, device="meta")
    state = {item.name for item in graph.state_inputs}
    own.take_state({item: empty(item, "cpu") for item in state})
    results = own.step({item.name: empty(item.name, "meta") for item in graph.inputs if item.name not in state})
    assert {tensor.device.type for tensor in (*results.values(), *own.state.values())} == {"meta"}


# Copies on streams


class Event:
    """stamp: how much was computed when a computing stream recorded it."""

    def __init__(self, reach: Callable[[], None], stamp: int = 0) -> None:
        self.reach = reach
        self.stamp = stamp


class Stream:
    """Of the GPU that these tests make up. late: its work is done when somebody waits for it, else at once."""

    def __init__(self, late: bool) -> None:
        self.late = late
        self.work: list[Callable[[], object]] = []
        self.done = 0
        self.stamp = 0  # until when it has waited for computing

    def add(self, work: Callable[[], object]) -> None:
        self.work.append(work)
        if not self.late:
            self.reach(len(self.work))

    def reach(self, count: int) -> None:
        while self.done < count:
            self.done += 1
            self.work[self.done - 1]()

    def record_event(self) -> Event:
        return Event(partial(self.reach, len(self.work)))

    def wait_event(self, event: Event) -> None:
        self.stamp = max(self.stamp, event.stamp)
        self.add(event.reach)


class Card(TorchDispatchMode):
    """The computing stream is this thread, and does all at once; copies under another stream are that one's work."""

    def __init__(self, late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.late = late
        self.computing = self.current = Stream(late=False)
        self.streams: list[Stream] = []
        self.copies = self.computed = 0
        self.computing.record_event = lambda: Event(lambda: None, self.computed)  # type: ignore[method-assign]

        def stream(device: object) -> Stream:
            self.streams.append(Stream(late))
            return self.streams[-1]

        def copiers(device: object, workers: int, region: object = None) -> moves.StreamCopiers:
            return moves.StreamCopiers(Plain(device), device)

        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: self.current)
        monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: setattr(self, "current", stream))
        monkeypatch.setattr(torch.cuda, "Stream", stream)
        monkeypatch.setattr(torch.cuda, "synchronize", self.settle)
        monkeypatch.setattr(worker, "copiers_of", copiers)

    def settle(self, device: object) -> None:
        for stream in self.streams:
            stream.reach(len(stream.work))

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.current is self.computing:
            self.computed += 1
            return function(*args, **(kwargs or {}))
        assert function is torch.ops.aten.copy_.default
        assert self.current.stamp == self.computed, "a copy that may read what is not computed yet"
        self.copies += 1
        self.current.add(lambda: function(*args, **(kwargs or {})))
        return args[0]


class Plain(moves.HostMemory):
    """Not pinned."""

    def empty(self, like: Any) -> Any:
        return torch.full_like(like, torch.nan, device="cpu") if like.is_floating_point() else torch.empty_like(like)


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.6])
def test_copies_on_streams_wait_for_whom_they_must(late: bool, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    captured, state, batch = training((16, 24, 32, 8))
    program = alone(captured.graph)
    lives = lifetimes(program)
    least, most = floor(lives)[0], int(lives.used.max())
    cap = least + int(share * (most - least))
    held = moved(lives, belady(lives, cap, np.ones(len(lives.steps)), 0.0), cap)

    def trained(own: Worker) -> tuple[list[Any], dict[str, Any]]:
        own.take_state({item.name: state[item.path] for item in captured.graph.state_inputs})
        losses = [own.step(dict(batch) | rates(captured.graph)) for _ in range(4)]
        own.settle()
        return [{name: item.clone() for name, item in made.items()} for made in losses], own.state

    plain, expected = trained(Worker(program, 0))
    with Card(late, monkeypatch) as card:
        losses, found = trained(Worker(held, 0))
    assert card.copies > 8
    assert all(one[name].equal(other[name]) for one, other in zip(plain, losses, strict=True) for name in one)
    assert all(expected[name].equal(found[name]) for name in expected)


# What the allocator says


class Allocator:
    """Statistics of a GPU's allocator; `step` is what a step of training asks for beside what is there."""

    def __init__(self, there: int, step: int) -> None:
        self.now = self.peak = there
        self.step = step

    def stats(self, device: object = None) -> dict[str, int]:
        return {"requested_bytes.all.current": self.now, "requested_bytes.all.peak": self.peak}

    def reset(self, device: object = None) -> None:
        self.peak = self.now

    def run(self, *given: object) -> None:
        self.peak = max(self.peak, self.now + self.step)


def test_the_measured_peak_is_what_the_allocator_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Allocator(there=1000, step=700)
    card.peak = 99_000  # of something before
    monkeypatch.setattr(torch.cuda, "memory_stats", card.stats)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", card.reset)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(measure, "_run", card.run)

    def workspaces(device: object) -> None:
        card.now += 32  # what libraries keep is no step's

    monkeypatch.setattr(measure, "take_workspaces", workspaces)
    assert measure._cuda(SimpleNamespace(device="cuda:0"), {}, {}) == 700  # type: ignore[arg-type]


def test_on_a_gpu_the_scratch_of_every_call_is_asked_for() -> None:
    captured, _, _ = training((16, 24, 32, 8))
    program = alone(captured.graph)

    class Every:
        every = True

        def __init__(self) -> None:
            self.asked: list[Any] = []

        def __call__(self, call: Any) -> int:
            self.asked.append(call)
            return 1000

    source = Every()
    plain, own = memory_use(program), memory_use(program, scratch=source)
    assert plain.peak < own.peak <= plain.peak + 1000
    operators = {call.operator for call in source.asked}
    assert {"aten.mm", "aten.sum.dim_IntList"} & operators
    assert all(call.kept >= call.work.output.bytes for call in source.asked)


@pytest.mark.parametrize(("fails", "expected"), [(False, Told(700, MEASURED)), (True, Told(5000, BOUND))])
def test_the_scratch_of_a_call_is_what_it_asks_for_beside_its_results(
    fails: bool, expected: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = Allocator(there=1000, step=700 + 48)

    def called(operator: str, arguments: dict[str, Any]) -> Any:
        if fails:
            raise RuntimeError("no such kernel")
        assert arguments == {"dim": (0,), "self": "zeros"}
        card.run()

    monkeypatch.setattr(torch.cuda, "memory_stats", card.stats)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", card.reset)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(measure_scratch, "_zeros", lambda operand, device: "zeros")
    monkeypatch.setattr(measure_scratch, "apply", called)
    work = KernelCall({"dim": (0,)}, {"self": Operand((4, 12), 4)}, Operand((12,), 4))
    call = ScratchCall("aten.sum.dim_IntList", work, known_by(lambda work: 5000), kept=48)
    assert measure_scratch.measured_on_card(call) == expected


def test_a_round_of_calls_takes_what_it_took() -> None:
    assert shared_out(8.0, [1.0, 2.0, 1.0], [3.0, 1.0, 2.0]) == pytest.approx([24 / 7, 16 / 7, 16 / 7])


def test_what_comes_back_waits_for_what_goes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with Card(True, monkeypatch):
        copiers = moves.StreamCopiers(Plain(torch.device("cpu")), torch.device("cpu"))
        there, other = torch.arange(6.0), torch.arange(4.0)
        out = copiers.out(there, "there")
        back = copiers.into(out, "back", [])
        assert out.held is there
        assert back.result().equal(there)
        later = copiers.into(copiers.out(other, "other"), "later", [out])
        assert out.held is None, "its memory may be the target's"
        assert later.result().equal(other)
        assert copiers.copied == [there.nbytes + other.nbytes] * 2
