"""Measure the calls of a program in steps of it, which all workers run together on numbers that are drawn.

What a call takes depends on what lies in the caches when it begins: on the calls before it, which of them made what it
reads, and on memory that has just been freed and is given again. Rounds in which each different call comes once
(`girih.run.calibrate.measure_operators`) know nothing of that, and small calls of a repeated layer take up to three
times as long there. So what a program computes is measured where it is computed: instruction by instruction, in steps
that exchange what they exchange in a run, and that the driver begins as it does in a run: it hands each worker its part
of a batch, one after the other, and hears from it. A call's time is the mean of all places at which it comes. Where
workers copy to files and back themselves, copies are measured there too.

Numbers are drawn so that they stay of one size from layer to layer: large ones would saturate a softmax, whose denormal
numbers take processors ten times as long. They are not negative, for states of optimizers have roots taken of them.
Where they do not do (a matrix that is not positive definite), all of the program's calls are measured apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

from girih.cost.device_calls import local_calls
from girih.graph import Input
from girih.machine import Machine
from girih.machine.names import cores_for_copies
from girih.program import BlockStep, ComputeStep, FreeStep, MoveStep, Program, StartStep, TransferStep
from girih.program.life.accounts import memory_uses
from girih.run.calibrate.measure_operators import COLD_ROUNDS, Sample, samples_of
from girih.run.errors import StepError
from girih.run.transport.transport import Transport
from girih.run.worker.parts import Tensor, box_of, reporters, shape_of
from girih.run.worker.worker import MeasuredInterval, Worker

LEARNING_RATE = 1e-3
"""What numbers of a step are: large ones would have weights grow without an end."""
SHARE_OF_MEMORY = 0.5
"""That steps may take of a device's: they are a user's, who has other programs, too."""


def can_be_stepped(program: Program, where: Machine, threads: int) -> bool:
    """Are its calls measured in steps? Not where copies run beside them, which have a price of their own; where a loop
    over blocks hides its members; where data, or weights, are more than a device has room for.

    threads: of each worker.
    """
    graph = program.graph
    if program.host and cores_for_copies(program.mesh.devices, threads):
        return False
    if program.files or program.stealing or graph.data_inputs:
        return False
    if any(isinstance(step, BlockStep) for step in program.steps):
        return False
    largest = max(use.peak for use in memory_uses(program, range(program.mesh.devices)))
    return largest <= SHARE_OF_MEMORY * where.device.memory_bytes


@dataclass(frozen=True)
class Copied:
    """A copy to a file, or back from it, by the worker that computes."""

    out: bool
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Stepped:
    """What was measured in steps. calls: a Sample of each compute step that the device has a share of, by its position
    in `program.steps`. steps: seconds that all instructions of a step take, of each step."""

    calls: dict[int, Sample]
    copies: tuple[Copied, ...]
    steps: tuple[float, ...]

    @property
    def seconds(self) -> float:
        return median(self.steps)


def exchanging(program: Program, replies: Sequence[Stepped], seconds: Mapping[int, float]) -> float:
    """Seconds of a step that exchanges take: what workers do besides computing and copying, but for waiting for one
    that has more to compute. Workers wait for one that takes longer for as much, too, which is counted.

    seconds: of each different call of `local_calls`, the mean of all workers.
    """
    numbers = local_calls(program, over=True).numbers
    computed, since = 0.0, [0.0] * len(replies)
    for at, step in enumerate(program.steps):
        if isinstance(step, ComputeStep):
            since = [own + seconds.get(int(number), 0.0) for own, number in zip(since, numbers[at], strict=True)]
        if isinstance(step, TransferStep):
            computed, since = computed + max(since), [0.0] * len(replies)
    besides = max(reply.seconds - sum(copy.seconds for copy in reply.copies) for reply in replies)
    return besides - computed - max(since)


@dataclass(frozen=True)
class StepTask:
    """Run steps of a program, as one of its workers, each when the driver hands in its part of what enters a step.

    crowded: the workers share cores. Replies first with the seconds that a step takes, or the text of an error, then
    with each step's results, as a run's worker does, and at the end, when it is handed nothing, with a Stepped, or the
    text of an error.
    """

    program: Program
    crowded: bool

    def __call__(self, transport: Transport, rank: int, device: Any) -> Iterator[Any]:
        worker = Worker(self.program, rank, transport, device=device, timeline=True)
        drawn = drawn_inputs(self.program, rank)
        worker.take_state({item.name: drawn.pop(item.name) for item in self.program.graph.state_inputs})
        flushed = flushes_denormal()  # the thread may be the user's own
        torch.set_flush_denormal(True)
        measured, failed = list[list[MeasuredInterval]](), ""
        try:
            for _ in range(COLD_ROUNDS):
                began = perf_counter()
                _stepped(worker, {name: tensor.clone() for name, tensor in drawn.items()})
            given = yield perf_counter() - began
            while given is not None:
                outputs, why = _stepped(worker, given)
                failed = failed or why
                measured.append(worker.intervals)  # and looked at in the end, for the driver waits
                given = yield {name: part for name, part in outputs.items() if rank in reporters(self.program, name)}
        except StepError as error:
            failed = str(error)
        finally:
            torch.set_flush_denormal(flushed)
            if worker.copiers is not None:
                worker.copiers.close()
        if failed or not measured:
            yield failed or "no step was made"
            return
        rounds = [_seconds(self.program, intervals) for intervals in measured]
        steps = tuple(sum(seconds.values()) for seconds in rounds)
        yield Stepped(self._calls(rank, rounds), tuple(self._copies(rank, rounds)), steps)

    def _calls(self, rank: int, rounds: Sequence[Mapping[int, float]]) -> dict[int, Sample]:
        computed = [at for at in self.program.order_of(rank) if isinstance(self.program.steps[at], ComputeStep)]
        if not computed:
            return {}
        took = np.asarray([[seconds[at] for at in computed] for seconds in rounds])
        return dict(zip(computed, samples_of(took, self.crowded), strict=True))

    def _copies(self, rank: int, rounds: Sequence[Mapping[int, float]]) -> Iterator[Copied]:
        """The copies of a step; each takes what its start and its end take together."""
        program = self.program
        parts: dict[MoveStep, list[int]] = {}
        for at in program.order_of(rank):
            step = program.steps[at]
            move = step.transfer if isinstance(step, StartStep) else step
            if isinstance(move, MoveStep):
                parts.setdefault(move, []).append(at)
        for move, own in parts.items():
            shape = program.part_shape(move.target, program.places[move.target], rank)
            size = prod(shape) * program.graph.values[move.value].item_bytes
            yield Copied(move.out, size, median(sum(seconds[at] for at in own) for seconds in rounds))


def flushes_denormal() -> bool:
    """Does this thread compute with 0 for denormal numbers? PyTorch sets it, and does not tell it."""
    denormal = torch.tensor(1e-310, dtype=torch.float64)
    return float(denormal * 1.0) == 0.0


def _stepped(worker: Worker, inputs: dict[str, Tensor]) -> tuple[dict[str, Tensor], str]:
    """Make one step: its results, and why they are worth nothing, where a call failed, which no other worker feels."""
    running = worker.begin(inputs)
    failed = worker.attempt(running)
    return worker.finish(running), "a call failed on drawn numbers" if failed else ""


def _seconds(program: Program, intervals: Sequence[MeasuredInterval]) -> dict[int, float]:
    """Seconds of a step's instructions, by position. Freeing counts to the instruction before it."""
    seconds: dict[int, float] = {}
    last = -1
    for item in intervals:
        last = last if isinstance(program.steps[item.step], FreeStep) else item.step
        seconds[last] = seconds.get(last, 0.0) + item.stop - item.start
    return seconds


def drawn_inputs(program: Program, rank: int) -> dict[str, Tensor]:
    """One device's part of everything that enters a program, by name."""
    generator = torch.Generator().manual_seed(0)
    bounds = _bounds(program, (rank,))
    return {
        item.name: _drawn(program, item, shape_of(box_of(program, item.name, rank)), bounds, generator)
        for item in program.graph.inputs
    }


def drawn_batch(program: Program) -> dict[str, Tensor]:
    """Everything that a driver hands in at each step, whole, by name."""
    generator = torch.Generator().manual_seed(0)
    bounds = _bounds(program, range(program.mesh.devices))
    return {
        item.name: _drawn(program, item, program.graph.values[item.name].shape, bounds, generator)
        for item in program.graph.inputs
        if item.role in ("batch", "scalar")
    }


def _bounds(program: Program, ranks: Iterable[int]) -> Mapping[str, int]:
    """Whole numbers in a buffer are less than this, by what its readers on these devices say."""
    calls = local_calls(program, over=True)
    found: dict[str, int] = {}
    for rank, at in ((device, at) for device in ranks for at in program.order_of(device)):
        step, number = program.steps[at], int(calls.numbers[at, rank])
        if isinstance(step, ComputeStep) and number >= 0:
            for part, operand in zip(step.reads, calls.calls[number].operands, strict=True):
                found[part.buffer] = min(operand.high, found.get(part.buffer, operand.high))
    return found


def _drawn(
    program: Program, item: Input, shape: tuple[int, ...], bounds: Mapping[str, int], generator: torch.Generator
) -> Tensor:
    dtype = getattr(torch, program.graph.values[item.name].dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.randint(0, max(1, bounds.get(item.name, 2)), shape, generator=generator).to(dtype)
    if not shape:
        return torch.full(shape, LEARNING_RATE, dtype=dtype)
    if item.role == "batch":
        return torch.randn(shape, generator=generator).to(dtype)
    return (2 * torch.rand(shape, generator=generator) / max(1, prod(shape[1:]))).to(dtype)
