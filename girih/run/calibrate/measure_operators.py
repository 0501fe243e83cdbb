"""Measure calls as a worker would execute them: the same function, arguments, regions and memory order.

A worker executes hundreds of different calls one after another. A call that is repeated alone finds its code and its
inputs in the nearest caches and takes a third of the time; among calls of another program it finds less than in its
own. So the calls of one program are measured in rounds, each executed once in a round, in the program's order, with
results that live until the next. What is written over an operand finds that as it was: it is copied there before, and
lies near then, as in a step that has just made it. All processes of a run compute at once on the same cores, caches and
memory: `OperatorTask` is therefore done by all of them together.

A worker is also stopped now and then for longer than most calls take, by others on its cores or by the machine's host.
The median of a call does not see that, a round does: it is about as long as a step. So each median is multiplied with
how much longer rounds took than their calls' medians: the median round, or where processes share cores, and wait for
turns that are longer than a round, all rounds together.

On CUDA, calls are queued as in a run: a call takes what its kernels or what starting them takes, whichever is longer.
The first is timed by events between calls, in a round that is queued while the GPU sleeps, the second by the clock. As
kernels are started while others run, a round takes less than the sum of both: a third time, a round without events and
sleep, says how much all of its calls take together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from time import perf_counter
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from girih.cost.calls import Call, Operand
from girih.graph import Argument, Ref
from girih.program.life.strides import contiguous_strides
from girih.run.transport.transport import Transport, exchange
from girih.run.worker.compute import Compute, Hole, Slots, bind, over_operand
from girih.run.worker.parts import Cuts, Tensor

LEAST_ROUNDS = 3
COLD_ROUNDS = 2
"""That are not counted: until a result and the one before it have had memory, it is new from the kernel, which clears
it; a run's steps get what earlier steps have freed. It doubles what a matrix product of 100 MB takes."""
SLEEP_CYCLES = 3e9
"""That a GPU sleeps for each second of a round: about twice as long, so that the next is queued meanwhile."""
TURNS = 4
"""Rounds that a GPU does without a break, as it does the calls of a step, of which a round may have only one."""
RANDOM = 1 << 20
"""So many values are random; longer tensors repeat them, because drawing is slow."""
UPPER_HALF = 0.24
"""Of neighbours that are in the upper half of the vertices, and of each half again: R-MAT's usual parameters."""


@dataclass(frozen=True)
class Sample:
    """Seconds of one execution: the median of rounds; spread: interquartile range / median."""

    seconds: float
    spread: float
    repeats: int


@dataclass(frozen=True)
class OperatorTask:
    """Measure calls in rounds for `seconds`, together with the other workers.

    crowded: the workers share cores. data: tensors that operands are (`Operand.source`), by path. Replies with a Sample
    for each call, or the text of its error.
    """

    calls: tuple[Call, ...]
    seconds: float
    crowded: bool
    data: Mapping[str, Tensor] = field(default_factory=dict)

    def __call__(self, transport: Transport, rank: int, device: Any) -> list[Sample | str]:
        meet = partial(barrier, transport, rank, device)
        return measure(self.calls, self.seconds, device, self.crowded, meet, self.data)


Task = Callable[[Transport, int, Any], Any]
"""What a worker can be asked to do with its transport, its rank and its device."""


def barrier(transport: Transport, rank: int, device: Any) -> None:
    """Return when all workers have come here."""
    peers = [peer for peer in range(len(transport.sent)) if peer != rank]
    sends = [(peer, torch.zeros(1, device=device)) for peer in peers]
    exchange(transport, sends, [(peer, torch.zeros(1, device=device)) for peer in peers])
    wait_for(device)


def wait_for(device: Any) -> None:
    """Until the device has done what was queued."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def measure(
    calls: Sequence[Call],
    seconds: float,
    device: Any = "cpu",
    crowded: bool = False,
    ready: Callable[[], None] = lambda: None,
    data: Mapping[str, Tensor] = MappingProxyType({}),
) -> list[Sample | str]:
    """Execute calls in rounds for about `seconds`, at least three rounds, behind two that do not count.

    A call that cannot be executed on random inputs (a matrix that is not positive definite) gives its error's text.
    ready: called before the first round, when everything has been executed once, and after the last. data: tensors that
    operands are, by path.
    """
    device = torch.device(device)
    prepared: list[Prepared | str] = []
    with torch.no_grad():
        for call in calls:
            try:
                instruction, slots = prepare(call, device, data)
                before = None if call.over is None else (slots[call.over], slots[call.over].clone())
                instruction.run(slots, [0.0, 0.0])
                wait_for(device)
                prepared.append((instruction, slots, before))
            except Exception as error:
                prepared.append(f"{type(error).__name__}: {error}")
        able = [item for item in prepared if not isinstance(item, str)]
        for _ in range(COLD_ROUNDS):
            _executed(able)
        wait_for(device)
        ready()
        rounds: list[list[float]] = []
        deadline = perf_counter() + seconds
        while able and (len(rounds) < LEAST_ROUNDS or perf_counter() < deadline):
            rounds.append(_queued(able) if device.type == "cuda" else _executed(able))
    ready()
    samples = iter(samples_of(np.asarray(rounds), crowded)) if able else iter(())
    return [item if isinstance(item, str) else next(samples) for item in prepared]


Prepared = tuple[Compute, Slots, "tuple[Tensor, Tensor] | None"]
"""An instruction, its slots, and the operand that it writes over with what is there before."""


def _executed(able: Sequence[Prepared]) -> list[float]:
    """Seconds of each, one after another."""
    took, work = [], [0.0, 0.0]
    for instruction, slots, before in able:
        if before is not None:
            before[0].copy_(before[1])
        began = perf_counter()
        instruction.run(slots, work)
        took.append(perf_counter() - began)
    return took


def _queued(able: Sequence[Prepared]) -> list[float]:
    """Seconds of each on the current CUDA stream, all queued at once."""
    work = [0.0, 0.0]
    torch.cuda.synchronize()
    began = perf_counter()
    for instruction, slots, _ in [*able] * TURNS:
        instruction.run(slots, work)
    torch.cuda.synchronize()
    together = (perf_counter() - began) / TURNS
    events = [torch.cuda.Event(enable_timing=True) for _ in range(len(able) + 1)]
    torch.cuda._sleep(int(SLEEP_CYCLES * together))
    starting = []
    events[0].record()
    for (instruction, slots, _), event in zip(able, events[1:], strict=True):
        began = perf_counter()
        instruction.run(slots, work)
        starting.append(perf_counter() - began)
        event.record()
    events[-1].synchronize()
    kernels = [first.elapsed_time(second) / 1e3 for first, second in pairwise(events)]
    return shared_out(together, starting, kernels)


def shared_out(together: float, starting: Sequence[float], kernels: Sequence[float]) -> list[float]:
    """What each call takes of the seconds that all take together, by what starting it and its kernels take alone."""
    longer = [max(own, other) for own, other in zip(starting, kernels, strict=True)]
    return [together * own / sum(longer) for own in longer]


def samples_of(took: np.ndarray, crowded: bool) -> list[Sample]:
    """What each call takes, of how long it took in each round. took: seconds [rounds, calls]. crowded: the workers
    share cores."""
    low, middle, high = np.quantile(took, [0.25, 0.5, 0.75], axis=0)
    rounds = took.sum(axis=1)
    stopped = max(1.0, float((rounds.mean() if crowded else np.median(rounds)) / middle.sum()))
    return [
        Sample(float(seconds) * stopped, float(spread), len(took))
        for seconds, spread in zip(middle, (high - low) / middle, strict=True)
    ]


def prepare(call: Call, device: Any, data: Mapping[str, Tensor] = MappingProxyType({})) -> tuple[Compute, Slots]:
    """The instruction of a call, and slots with its inputs: drawn, but for those that are in data."""
    holes = [Hole(number) for number in range(len(call.operands))]
    named = {name: _with_holes(value, holes) for name, value in call.arguments}
    function, arguments, options = bind(call.operator, named, device)
    over = None
    if call.over is not None:
        function, keyword = over_operand(call.operator, call.over)
        at = next(at for at, item in enumerate(arguments) if isinstance(item, Hole) and item.number == call.over)
        over = (at, keyword)
    # Operand n is in slot n, the results follow.
    reads = [(number, _cuts(operand), _flat_pads(operand)) for number, operand in enumerate(call.operands)]
    writes = tuple(range(len(reads), len(reads) + len(call.shapes)))
    instruction = Compute(function, arguments, options, reads, writes, call.shapes, call.padding, call.result, over)
    generator = torch.Generator().manual_seed(0)
    inputs = [
        data[operand.source].to(device) if operand.source in data else tensor_of(operand, generator, device)
        for operand in call.operands
    ]
    return instruction, [*inputs, *([None] * len(writes))]


def tensor_of(operand: Operand, generator: Any, device: Any) -> Tensor:
    """The buffer that an operand is cut from, with values that most operators take: numbers from 0.1 to 1."""
    held = operand.held or operand.shape
    strides = contiguous_strides(held) if operand.strides is None else operand.strides
    count = 0 if 0 in held else 1 + sum((size - 1) * stride for size, stride in zip(held, strides, strict=True))
    values = _random(operand, count if operand.ascending else min(count, RANDOM), generator)
    flat = values.repeat(-(-count // max(len(values), 1)))[:count].clone().to(device)
    return flat.as_strided(held, strides)


def _random(operand: Operand, count: int, generator: Any) -> Tensor:
    dtype = getattr(torch, operand.dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, [count], generator=generator).bool()
    if dtype.is_floating_point or dtype.is_complex:
        return torch.rand(count, generator=generator).mul_(0.9).add_(0.1).to(dtype)
    if operand.ascending:
        return torch.linspace(0, max(0, operand.high - 1), count, dtype=torch.float64).to(dtype)
    if operand.skewed:
        levels = max(1, operand.high - 1).bit_length()
        halves = torch.rand((levels, count), generator=generator) < UPPER_HALF
        drawn = (halves.long() << torch.arange(levels)[:, None]).sum(0)
        return (drawn * max(1, operand.high) >> levels).to(dtype)
    return torch.randint(0, max(1, operand.high), [count], generator=generator).to(dtype)


def _cuts(operand: Operand) -> Cuts:
    if operand.held is None:
        return ()
    pairs = zip(operand.shape, operand.held, strict=True)
    return tuple((dim, 0, size) for dim, (size, held) in enumerate(pairs) if size != held)


def _flat_pads(operand: Operand) -> list[int] | None:
    """In PyTorch's order, the last dimension first."""
    return [amount for pair in reversed(operand.pads) for amount in pair] if operand.pads else None


def _with_holes(argument: Argument, holes: list[Hole]) -> Any:
    if isinstance(argument, Ref):
        return holes[int(argument.name)]
    return tuple(_with_holes(item, holes) for item in argument) if isinstance(argument, tuple) else argument
