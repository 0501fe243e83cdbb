"""Measure calls by themselves, as a worker would execute them: the same function, arguments, regions and memory order.

All processes of a run compute at once on the same cores, caches and memory: `OperatorTask` is therefore done by all of
them together, call by call, each for the same time. Inputs are made several times and taken in turn, so that they do
not all lie in the nearest cache; results are kept as long, so that memory is taken and given back as in a run.

Written for CUDA too (batches end with `synchronize`), tested on the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch

from girih.graph import Argument, Ref
from girih.machine.calls import Call, Operand
from girih.run.compute import Compute, Slots, _bind, _Hole
from girih.run.parts import Cuts, Tensor
from girih.run.transport import Transport, exchange

SPREAD_BYTES = 16 << 20
"""Inputs are repeated until they have so many bytes: more than a core's own caches hold."""
MOST_COPIES = 16
LEAST_BATCHES = 3
SLICE_SECONDS = 0.02
"""A batch takes at least so long where processes share cores: longer than the system lets one of them run."""


@dataclass(frozen=True)
class Sample:
    """Seconds of one execution: the median of batches; spread: interquartile range / median."""

    seconds: float
    spread: float
    repeats: int


@dataclass(frozen=True)
class OperatorTask:
    """Measure calls one after another, `seconds` each, in step with the other workers.

    crowded: the workers share cores. Replies with a Sample for each call, or the text of its error.
    """

    calls: tuple[Call, ...]
    seconds: float
    crowded: bool

    def __call__(self, transport: Transport, rank: int, device: Any) -> list[Sample | str]:
        made: list[Sample | str] = []
        for call in self.calls:
            barrier(transport, rank)
            try:
                made.append(measure(call, self.seconds, device, SLICE_SECONDS if self.crowded else 0.0))
            except Exception as error:  # a call that cannot be made from random numbers: it stays unmeasured
                made.append(f"{type(error).__name__}: {error}")
        barrier(transport, rank)
        return made


def barrier(transport: Transport, rank: int) -> None:
    """Return when all workers have come here."""
    peers = [peer for peer in range(len(transport.sent)) if peer != rank]
    sends = [(peer, torch.zeros(1)) for peer in peers]
    exchange(transport, sends, [(peer, torch.zeros(1)) for peer in peers])


def measure(call: Call, seconds: float, device: Any = "cpu", batch_seconds: float = 0.0) -> Sample:
    """Execute a call again and again for about `seconds`, at least three batches.

    Raises:
        Exception: what the operator raises on random inputs, such as a matrix that is not positive definite.
    """
    device = torch.device(device)
    instruction, copies = prepare(call, device)
    work = [0.0, 0.0]
    turn = 0

    def batch(count: int) -> float:
        nonlocal turn
        began = perf_counter()
        for _ in range(count):
            instruction.run(copies[turn], work)
            turn = (turn + 1) % len(copies)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return (perf_counter() - began) / count

    with torch.no_grad():
        first = batch(1)  # also compiles, and takes memory
        once = min(first, batch(1) if first < seconds else first)
        aim = max(batch_seconds, seconds / 20)
        count = max(1, min(math.ceil(aim / max(once, 1e-7)), 100_000))
        batches: list[float] = []
        deadline = perf_counter() + seconds
        while len(batches) < LEAST_BATCHES or perf_counter() < deadline:
            batches.append(batch(count))
    low, middle, high = np.quantile(batches, [0.25, 0.5, 0.75]).tolist()
    return Sample(middle, (high - low) / middle, count * len(batches))


def prepare(call: Call, device: Any) -> tuple[Compute, list[Slots]]:
    """The instruction of a call, and slots with fresh inputs, several times."""
    holes = [_Hole(number) for number in range(len(call.operands))]
    named = {name: _with_holes(value, holes) for name, value in call.arguments}
    function, arguments, options = _bind(call.operator, named, device)
    reads = [
        (number, _cuts(operand), _flat_pads(operand)) for number, operand in enumerate(call.operands)
    ]  # operand n is in slot n, results follow
    writes = tuple(range(len(reads), len(reads) + len(call.shapes)))
    instruction = Compute(function, arguments, options, reads, writes, call.shapes, call.padding, call.result)
    generator = torch.Generator().manual_seed(0)
    size = sum(math.prod(operand.held or operand.shape) * 4 for operand in call.operands)
    repeats = max(1, min(MOST_COPIES, SPREAD_BYTES // max(size, 1)))
    copies = [
        [*(tensor_of(operand, generator, device) for operand in call.operands), *([None] * len(writes))]
        for _ in range(repeats)
    ]
    return instruction, copies


def tensor_of(operand: Operand, generator: Any, device: Any) -> Tensor:
    """The buffer that an operand is cut from, with values that most operators take: numbers from 0.1 to 1."""
    held = operand.held or operand.shape
    order = range(len(held)) if operand.order is None else operand.order
    dtype = getattr(torch, operand.dtype)
    size = [held[dim] for dim in order]
    if dtype == torch.bool:
        dense = torch.randint(0, 2, size, generator=generator).bool()
    elif dtype.is_floating_point or dtype.is_complex:
        dense = torch.rand(size, generator=generator).mul_(0.9).add_(0.1).to(dtype)
    else:
        dense = torch.randint(0, max(1, operand.high), size, generator=generator).to(dtype)
    dense = dense.to(device)
    if operand.order is None:
        return dense
    repeated = [dim for dim in range(len(held)) if dim not in operand.order]
    whole = dense[(..., *(None for _ in repeated))]  # dimensions in the order of memory, then the repeated ones
    place = [*operand.order, *repeated]
    return whole.permute([place.index(dim) for dim in range(len(held))]).expand(held)


def _cuts(operand: Operand) -> Cuts:
    if operand.held is None:
        return ()
    pairs = zip(operand.shape, operand.held, strict=True)
    return tuple((dim, 0, size) for dim, (size, held) in enumerate(pairs) if size != held)


def _flat_pads(operand: Operand) -> list[int] | None:
    """In PyTorch's order, the last dimension first."""
    return [amount for pair in reversed(operand.pads) for amount in pair] if operand.pads else None


def _with_holes(argument: Argument, holes: list[_Hole]) -> Any:
    if isinstance(argument, Ref):
        return holes[int(argument.name)]
    return tuple(_with_holes(item, holes) for item in argument) if isinstance(argument, tuple) else argument


Task = Callable[[Transport, int, Any], Any]
"""What a worker can be asked to do with its transport, its rank and its device."""
