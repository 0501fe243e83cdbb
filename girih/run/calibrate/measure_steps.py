"""Measure the calls of a program in steps of it, which all workers run together on numbers that are drawn.

What a call takes depends on what lies in the caches when it begins: on the calls before it, which of them made what it
reads, and on memory that has just been freed and is given again. Rounds in which each different call comes once
(`girih.run.calibrate.measure_operators`) know nothing of that, and small calls of a repeated layer take up to three
times as long there. So what a program computes is measured where it is computed: instruction by instruction, in steps
that exchange what they exchange in a run. A call's time is the mean of all places at which it comes. Where workers copy
to files and back themselves, copies are measured there too.

Numbers are drawn as a layer's first weights are, small and not negative, for states of optimizers have roots taken of
them. Where they do not do (a matrix that is not positive definite), all of the program's calls are measured apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from girih.run.calibrate.measure_operators import COLD_ROUNDS, LEAST_ROUNDS, Sample, samples_of
from girih.run.errors import StepError
from girih.run.transport.transport import Transport, exchange
from girih.run.worker.parts import Tensor, box_of, shape_of
from girih.run.worker.worker import Worker

MOST_ROUNDS = 30
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
    in `program.steps`. seconds: of all instructions of a step. around: before the first, and behind the last one."""

    calls: dict[int, Sample]
    copies: tuple[Copied, ...]
    seconds: float
    around: float


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
    """Run steps of a program for about `seconds`, as one of its workers.

    crowded: the workers share cores. Replies with what was measured, or the text of an error.
    """

    program: Program
    seconds: float
    crowded: bool

    def __call__(self, transport: Transport, rank: int, device: Any) -> Stepped | str:
        worker = Worker(self.program, rank, transport, device=device, timeline=True)
        drawn = drawn_inputs(self.program, rank)
        worker.take_state({item.name: drawn.pop(item.name) for item in self.program.graph.state_inputs})
        flushed = flushes_denormal()  # the thread may be the user's own
        torch.set_flush_denormal(True)  # of which a run has few, and drawn numbers may have many
        try:
            for _ in range(COLD_ROUNDS):
                began = perf_counter()
                _stepped(worker, drawn)
            count = _agreed(transport, rank, self.seconds / (perf_counter() - began))
            rounds, around = [], []
            for _ in range(count):
                around.append(_stepped(worker, drawn))
                rounds.append(_seconds(worker))
        except StepError as error:
            return str(error)
        finally:
            torch.set_flush_denormal(flushed)
            if worker.copiers is not None:
                worker.copiers.close()
        if None in around:
            return "a call failed on drawn numbers"
        whole = median(sum(seconds.values()) for seconds in rounds)
        return Stepped(
            self._calls(rank, rounds), tuple(self._copies(rank, rounds)), whole, median(filter(None, around))
        )

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


def _stepped(worker: Worker, inputs: Mapping[str, Tensor]) -> float | None:
    """Make one step; seconds before its first and behind its last instruction. None where one failed, which no other
    worker feels."""
    given = {name: tensor.clone() for name, tensor in inputs.items()}
    began = perf_counter()
    running = worker.begin(given)
    failed = worker.attempt(running)
    worker.finish(running)
    took = perf_counter() - began
    if failed:
        return None
    intervals = worker.intervals
    return took - (intervals[-1].stop - intervals[0].start if intervals else 0.0)


def _seconds(worker: Worker) -> dict[int, float]:
    """Seconds of the instructions of the last step, by position. Freeing counts to the instruction before it."""
    seconds: dict[int, float] = {}
    last = -1
    for item in worker.intervals:
        last = last if isinstance(worker.program.steps[item.step], FreeStep) else item.step
        seconds[last] = seconds.get(last, 0.0) + item.stop - item.start
    return seconds


def _agreed(transport: Transport, rank: int, wish: float) -> int:
    """How many steps all workers make: as many as the one that takes longest for one has time for."""
    own = torch.tensor([float(min(max(wish, LEAST_ROUNDS), MOST_ROUNDS))])
    others = [(peer, torch.empty(1)) for peer in range(len(transport.sent)) if peer != rank]
    exchange(transport, [(peer, own) for peer, _ in others], others)
    return int(min(float(each) for each in (own, *(tensor for _, tensor in others))))


def drawn_inputs(program: Program, rank: int) -> dict[str, Tensor]:
    """One device's part of everything that enters a program, by name."""
    generator = torch.Generator().manual_seed(0)
    bounds = _bounds(program, rank)
    return {
        item.name: _drawn(program, item, shape_of(box_of(program, item.name, rank)), bounds, generator)
        for item in program.graph.inputs
    }


def _bounds(program: Program, rank: int) -> Mapping[str, int]:
    """Whole numbers in a buffer are less than this, by what its readers say."""
    calls = local_calls(program, over=True)
    found: dict[str, int] = {}
    for at in program.order_of(rank):
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
    return (torch.rand(shape, generator=generator) / max(1, prod(shape[1:])) ** 0.5).to(dtype)
