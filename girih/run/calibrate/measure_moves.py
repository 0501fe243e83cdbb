"""Measure copies between memory and files, as a step that moves tensors does them.

Where a worker copies itself, between two calls (`girih.run.worker.moves`), it does so here between two turns of a loop
that computes: half of its time are matrix products within a core's cache, half is a pass over more than the cache
holds, as networks have both. Each copy then takes all of the device.

Where there are cores for copies, threads make them, and take bandwidth from computing: the loop is measured alone and
while a copier has copies to do without a break. What the loop does less of meanwhile is the copies' share of the
device's computing; the seconds of a copy are those beside the loop. The copier always has several more to do, and small
ones run beside products alone: the loop looks after it only between two calls, and what it waited for that would seem
to be the copies' own.

One size says the rate, a small one what a copy takes at least. Copies in have a place in memory already, as in a run's
arena: new memory for each would take longer to clear than to fill.

A GPU has engines of its own for copies to the host's pinned memory, and computes as fast meanwhile: there copies are
queued alone, and events say what they take.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import torch

from girih.run.transport.transport import Transport
from girih.run.worker.moves import Copiers, copiers_of, copy_alone

SMALL, LARGE = 1 << 12, 1 << 24  # bytes of a copy
AHEAD = {SMALL: 64, LARGE: 4}
"""Copies given to the copier that have not ended: more than it makes during one product."""
WIDTH = 192  # of the matrices of the loop
PASS = 1 << 22  # numbers that it passes over
ROUNDS = 5


@dataclass(frozen=True)
class Moved:
    """out, back: seconds for each byte. latency: seconds of a copy. share: of the device's computing."""

    out: float
    back: float
    latency: float
    share: float


@dataclass(frozen=True)
class MoveTask:
    """Copy to a file and back for about `seconds`."""

    seconds: float

    def __call__(self, transport: Transport, rank: int, device: Any) -> Moved:
        device = torch.device(device)
        if device.type == "cuda":
            return _on_streams(device)
        copiers = copiers_of(device, len(transport.sent))
        assert isinstance(copiers, Copiers)
        try:
            return (_between if copiers.when == "now" else _beside)(copiers, self.seconds)
        finally:
            copiers.close()


def _between(copiers: Copiers, seconds: float) -> Moved:
    """Copies of the thread that computes, one behind each turn of the loop."""
    turn = _Computing().both
    took: list[float] = []
    for tensor in _tensors():
        host = copiers.host.place("", tensor)
        for target, source in ((host, tensor), (tensor, host)):
            own: list[float] = []
            until = perf_counter() + seconds / 4
            while len(own) < ROUNDS or perf_counter() < until:
                list(turn())
                began = perf_counter()
                target.copy_(source)
                own.append(perf_counter() - began)
            took.append(median(own))
    return _moved(took, 1.0)


def _beside(copiers: Copiers, seconds: float) -> Moved:
    tensors = _tensors()
    host = {tensor: copiers.out(tensor, str(tensor.nbytes)).result() for tensor in tensors}
    turn = seconds / (5 * ROUNDS)
    loop = _Computing()
    places = {tensor: torch.ones_like(tensor) for tensor in tensors}
    ways: list[tuple[Turn, int, Callable[[], Any]]] = [
        (loop.both if tensor.nbytes == LARGE else loop.product, AHEAD[tensor.nbytes], work)
        for tensor in tensors
        for work in (
            lambda tensor=tensor: copiers.out(tensor, str(tensor.nbytes)),
            lambda tensor=tensor: copiers.threads[False].submit(copy_alone, places[tensor], host[tensor]),
        )
    ]
    alone: list[float] = []
    beside: list[list[tuple[float, float]]] = [[] for _ in ways]
    for _ in range(ROUNDS):  # in turn, so that all find the host as busy
        alone.append(_together(loop.both, turn)[0])
        for (calls, ahead, work), found in zip(ways, beside, strict=True):
            found.append(_together(calls, turn, work, ahead))
    rate = median(alone)
    slower = [1 - median(rate_of for rate_of, _ in found) / rate for found in beside[:2]]
    took = [median(seconds for _, seconds in found) for found in beside]
    return _moved(took, min(1.0, max(0.0, sum(slower) / 2)))


def _tensors() -> tuple[Any, Any]:
    return torch.ones(LARGE // 4), torch.ones(SMALL // 4)


def _moved(took: Sequence[float], share: float) -> Moved:
    """took: seconds of a large copy out and back, and of a small one out and back."""
    out, back, small_out, small_back = took
    latency = max(0.0, min(small_out, small_back))
    per_out, per_in = (max(seconds - latency, seconds / 2) / LARGE for seconds in (out, back))
    return Moved(per_out, per_in, latency, share)


def _on_streams(device: Any) -> Moved:
    took = {}
    for size in (SMALL, LARGE):
        near = torch.ones(size, dtype=torch.uint8, device=device)
        far = torch.ones(size, dtype=torch.uint8, pin_memory=True)
        for way, source, target in ((0, near, far), (1, far, near)):
            seconds = []
            for _ in range(ROUNDS + 1):
                began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                began.record(torch.cuda.current_stream(device))
                for _ in range(AHEAD[size]):
                    target.copy_(source, non_blocking=True)
                ended.record(torch.cuda.current_stream(device))
                ended.synchronize()
                seconds.append(began.elapsed_time(ended) / 1e3 / AHEAD[size])
            took[size, way] = median(seconds[1:])
    latency = min(took[SMALL, 0], took[SMALL, 1])
    out, back = (max(took[LARGE, way] - latency, took[LARGE, way] / 2) / LARGE for way in (0, 1))
    return Moved(out, back, latency, 0.0)


Turn = Callable[[], Iterator[None]]
"""The calls of one turn of a loop, each behind the one before."""


class _Computing:
    """both: so many products and one pass that either takes as long."""

    def __init__(self) -> None:
        self.matrix, self.rows = torch.ones(WIDTH, WIDTH), torch.ones(WIDTH, WIDTH)
        self.into = torch.empty(WIDTH, WIDTH)
        self.data, self.result = torch.ones(PASS), torch.ones(PASS)
        self.products = max(1, round(_seconds(self.over_memory) / _seconds(self.product)))

    def product(self) -> Iterator[None]:
        torch.mm(self.rows, self.matrix, out=self.into)
        yield

    def over_memory(self) -> Iterator[None]:
        torch.clamp_min(self.data, 0.5, out=self.result)
        yield

    def both(self) -> Iterator[None]:
        yield from self.over_memory()
        for _ in range(self.products):
            yield from self.product()


def _seconds(turn: Turn) -> float:
    took = []
    for _ in range(ROUNDS):
        began = perf_counter()
        list(turn())
        took.append(perf_counter() - began)
    return median(took)


def _together(turn: Turn, seconds: float, copy: Callable[[], Any] | None = None, ahead: int = 0) -> tuple[float, float]:
    """(turns each second, seconds of a copy) while the loop runs for so long, and copies beside it."""
    turns = copies = 0
    under_way: deque[Any] = deque()
    began = perf_counter()
    while perf_counter() - began < seconds:
        for _ in turn():
            while under_way and under_way[0].done():
                under_way.popleft()
                copies += 1
            if copy is not None:
                under_way.extend(copy() for _ in range(ahead - len(under_way)))
        turns += 1
    took = perf_counter() - began
    for each in under_way:
        each.result()
    whole = perf_counter() - began
    return turns / took, whole / (copies + len(under_way)) if under_way else 0.0
