"""Measure links between workers, and what a transfer does besides: packing, placing, combining.

Patterns: `send`, one message at a time between the first two workers, there and back, the others idle; `ring`, every
worker to the next at once; `all-to-all`, every worker to every other at once. Seconds are those of one message with all
others under way, so that what processes share (cores that copy, the loopback) is in them.

In a run workers come to an exchange from computing: what the exchange needs, code and data, has left the near caches by
then, and one comes later than the other. Where all clocks are one (workers of one host), a turn of the latter two
patterns is therefore computing and then an exchange, whose seconds count from when the last worker has come. Between
hosts each has a clock of its own: there an exchange takes what turns of computing and exchanging take longer than turns
of computing alone. That has in it, too, what waiting for a core takes where workers share cores.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, Literal

import numpy as np
import torch

from girih.cost.profile import ALL_TO_ALL, RING, SEND
from girih.run.calibrate.measure_operators import Sample, barrier, wait_for
from girih.run.transport.transport import Messages, Transport, exchange
from girih.run.worker.parts import Tensor

SIZES = tuple(4 << (10 + 2 * step) for step in range(8))
"""Bytes of messages: 4 KiB, 16 KiB, …, 64 MiB."""
MOST_AT_ONCE = 128 << 20
"""Bytes that one worker sends at once: larger all-to-alls are left out."""
SPREAD_BYTES = 16 << 20
"""What is copied is repeated until it has so many bytes: more than a core's own caches hold."""
LEAST_TURNS = 3
LEAST_MEETINGS = 15
LEAST_BATCHES = 3
LEAST_SECONDS = 1e-6  # that an exchange adds to computing, whatever two clock readings say
BETWEEN_SECONDS = 5e-4
"""About how long workers compute between two exchanges: in the programs that we looked at it is 0.3 to 2 ms."""
COMPUTING_SECONDS = 5e-3
"""That workers compute between having a batch and giving their answer."""
WIDTH, ROWS = 512, 64  # of the matrix that they multiply, and of that by which: a fraction of the time
BATCHES = 8  # that the time is divided into
ROW = 64
"""Elements in a run of what is packed: the rows of a tensor that is cut along its last dimension."""


def patterns(workers: int) -> tuple[str, ...]:
    """Those that differ from each other for so many workers."""
    return () if workers < 2 else (SEND, RING) if workers == 2 else (SEND, RING, ALL_TO_ALL)


def sizes_of(pattern: str, workers: int, largest: int = SIZES[-1]) -> tuple[int, ...]:
    messages = workers - 1 if pattern == ALL_TO_ALL else 1
    return tuple(size for size in SIZES if size <= largest and size * messages <= MOST_AT_ONCE) or SIZES[:1]


Between = Literal["nothing", "one clock", "own clocks"]
"""What workers do between exchanges: nothing, or compute, with one clock for all or each with its own."""


@dataclass(frozen=True)
class LinkTask:
    """Exchange messages of one size in a pattern, for about `seconds`. Replies with a Sample, or None where idle.

    between: compute between exchanges, and reply with when each began and ended (perf_counter), for `meetings`, where
    workers have one clock, or with what exchanges add to computing.
    """

    pattern: str
    size: int
    seconds: float
    between: Between = "nothing"

    def __call__(self, transport: Transport, rank: int, device: Any) -> Sample | list[tuple[float, float]] | None:
        workers = len(transport.sent)
        peers = _peers(self.pattern, rank, workers)
        # What is sent was made some time ago, what is received into is new: as in a run, both are in no near cache.
        kept = max(1, min(16, SPREAD_BYTES // self.size))
        buffers = [torch.ones(self.size, dtype=torch.uint8, device=device) for _ in range(kept)]
        held: deque[Messages] = deque(maxlen=kept)

        def out() -> Messages:
            buffers.append(buffers.pop(0))
            return [(peer, buffers[0]) for peer, _ in peers]

        def into() -> Messages:
            held.append([(peer, torch.empty(self.size, dtype=torch.uint8, device=device)) for _, peer in peers])
            return held[-1]

        barrier(transport, rank, device)
        turn = _turn(self.pattern, transport, rank, out, into)
        # All workers do equally many turns and batches: the first one says how many.
        once = []
        for _ in range(3):
            began = perf_counter()
            turn()
            wait_for(device)
            once.append(perf_counter() - began)
        if self.between == "one clock":
            each = BETWEEN_SECONDS + float(np.median(once))
            turns = _agreed(transport, rank, device, max(LEAST_MEETINGS, int(self.seconds / each)))
            return [_meeting(compute, turn) for compute in [_computing()] for _ in range(turns)]
        compute, each = None, float(np.median(once))
        if self.between == "own clocks":
            compute, each = (
                _computing(lambda count: _agreed(transport, rank, device, count)),
                each + 3 * BETWEEN_SECONDS,
            )
        turns = _agreed(transport, rank, device, max(LEAST_TURNS, int(self.seconds / BATCHES / each)))

        def batch(*actions: Callable[[], None]) -> float:
            barrier(transport, rank, device)
            began = perf_counter()
            for _ in range(turns):
                for action in actions:
                    action()
            wait_for(device)
            return (perf_counter() - began) / turns

        took: list[float] = []
        deadline = perf_counter() + self.seconds
        while len(took) < LEAST_BATCHES or _agreed(transport, rank, device, int(perf_counter() < deadline)):
            seconds = batch(turn) if compute is None else max(batch(compute, turn) - batch(compute), LEAST_SECONDS)
            took.append(seconds / self.messages(workers))
        if not peers:
            return None
        low, middle, high = np.quantile(took, [0.25, 0.5, 0.75]).tolist()
        return Sample(middle, (high - low) / middle, turns * len(took))

    def messages(self, workers: int) -> int:
        """How many one worker sends one after another in a turn."""
        return 2 if self.pattern == SEND else workers - 1 if self.pattern == ALL_TO_ALL else 1


def meetings(replies: Sequence[Sequence[tuple[float, float]]], messages: int) -> Sample:
    """Seconds of one message, from when the last worker has come until all have done. replies: each worker's times of
    each turn."""
    times = np.asarray(replies)  # [workers, turns, 2]
    took = (times[..., 1].max(axis=0) - times[..., 0].max(axis=0)) / messages
    low, middle, high = np.quantile(took, [0.25, 0.5, 0.75]).tolist()
    return Sample(middle, (high - low) / middle, len(took))


def _meeting(compute: Callable[[], None], turn: Callable[[], None]) -> tuple[float, float]:
    compute()
    began = perf_counter()
    turn()
    return began, perf_counter()


def _computing(agreed: Callable[[int], int] = int) -> Callable[[], None]:
    """What a worker computes between two exchanges. agreed: how often, where all are to do equally much."""
    matrix, rows, into = torch.ones(WIDTH, WIDTH), torch.ones(ROWS, WIDTH), torch.empty(ROWS, WIDTH)
    multiply = partial(torch.mm, rows, matrix, out=into)
    took = []
    for _ in range(5):
        began = perf_counter()
        multiply()
        took.append(perf_counter() - began)
    count = agreed(max(1, round(BETWEEN_SECONDS / min(took))))

    def compute() -> None:
        for _ in range(count):
            multiply()

    return compute


def _peers(pattern: str, rank: int, workers: int) -> list[tuple[int, int]]:
    """(to whom, from whom) a worker's messages go."""
    if pattern == SEND:
        return [(1 - rank, 1 - rank)] if rank < 2 else []
    if pattern == RING:
        return [((rank + 1) % workers, (rank - 1) % workers)]
    return [((rank + step) % workers, (rank - step) % workers) for step in range(1, workers)]


def _turn(
    pattern: str, transport: Transport, rank: int, out: Callable[[], Messages], into: Callable[[], Messages]
) -> Callable[[], None]:
    if pattern != SEND:
        return lambda: exchange(transport, out(), into())
    if rank > 1:
        return lambda: None

    def send() -> None:
        exchange(transport, out(), ())

    def receive() -> None:
        exchange(transport, (), into())

    first, second = (send, receive) if rank == 0 else (receive, send)

    def there_and_back() -> None:
        first()
        second()

    return there_and_back


def _agreed(transport: Transport, rank: int, device: Any, count: int) -> int:
    """The first worker's number."""
    box = torch.tensor([count], device=device)
    if rank == 0:
        exchange(transport, [(peer, box) for peer in range(1, len(transport.sent))], ())
    else:
        exchange(transport, (), [(0, box)])
    return int(box)


@dataclass(frozen=True)
class HandTask:
    """Take a part of a batch from the driver, compute for a while, in which the driver sleeps and its caches are
    others', and answer with one number, as a step does with its loss. And with how long it computed."""

    part: Tensor

    def __call__(self, transport: Transport, rank: int, device: Any) -> dict[str, Any]:
        self.part.to(device)
        began = perf_counter()
        busy = torch.ones(WIDTH, WIDTH)
        while (took := perf_counter() - began) < COMPUTING_SECONDS:
            torch.mm(busy, busy)
        return {"loss": torch.zeros(()), "computed": took}


@dataclass(frozen=True)
class CopyTask:
    """Pack (copy what does not lie in one run) and combine (add to what is there), for each size `seconds` each, in
    step with the other workers. Replies with two Samples for each size."""

    sizes: tuple[int, ...]
    seconds: float

    def __call__(self, transport: Transport, rank: int, device: Any) -> list[tuple[Sample, Sample]]:
        seconds = []
        for size in self.sizes:
            elements = max(1, size // 4)
            rows = max(1, elements // ROW)
            row = elements // rows
            copies = max(1, min(16, SPREAD_BYTES // size))
            wide = [torch.ones(rows, 2 * row, device=device) for _ in range(copies)]
            into = [torch.ones(rows, row, device=device) for _ in range(copies)]
            barrier(transport, rank, device)
            packing = self._time([partial(_pack, part, row) for part in wide], device)
            barrier(transport, rank, device)
            other = torch.ones(rows, row, device=device)
            adding = self._time([partial(part.add_, other) for part in into], device)
            seconds.append((packing, adding))
        barrier(transport, rank, device)
        return seconds

    def _time(self, actions: list[Callable[[], Tensor]], device: Any) -> Sample:
        began = perf_counter()
        for action in actions:
            action()
        wait_for(device)
        rounds = max(1, int(self.seconds / BATCHES / max(perf_counter() - began, 1e-6)))
        took = []
        for _ in range(BATCHES):
            began = perf_counter()
            for _ in range(rounds):
                for action in actions:
                    action()
            wait_for(device)
            took.append((perf_counter() - began) / rounds / len(actions))
        low, middle, high = np.quantile(took, [0.25, 0.5, 0.75]).tolist()
        return Sample(middle, (high - low) / middle, rounds * BATCHES * len(actions))


def _pack(wide: Tensor, row: int) -> Tensor:
    return wide.narrow(1, 0, row).contiguous()
