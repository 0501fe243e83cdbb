"""A schedule on workers that share no memory: parts of arrays travel from worker to worker, as the schedule says.

Each worker is given its entries and the code once. In each execution it gets its rows of the arrays that stay, the
parts of travelling arrays with which it begins, and copies of what all read; it hands each travelling part on when it
has run its block, and the last that has a part returns it. The messages go over the engine's transport (shared memory
between processes of a host, ZeroMQ between those of several), so the bytes are those that `explain()` counts. The same
blocks in the same order make the same bits as threads do. Nothing of the driver's arrays changes before all workers
have ended well.
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from girih.loop.code.kernel import arguments_of, built, read_only
from girih.loop.run.buffers import OPERATIONS, WorkerBuffer, add, applier, empty, flat
from girih.loop.schedules.schedule import Schedule, Task
from girih.ops.functions import pickled
from girih.run.engines import loop_blocks as progress
from girih.run.transport.transport import Transport


@dataclass(frozen=True)
class Travelling:
    """An array of which each time part has the rows [cuts[t], cuts[t + 1]) + shift along a dimension."""

    axis: int
    cuts: tuple[int, ...]
    shift: int

    def rows(self, part: int, size: int) -> tuple[slice, ...]:
        low, high = (min(max(self.cuts[at] + self.shift, 0), size) for at in (part, part + 1))
        return (*(slice(None),) * self.axis, slice(low, high))


@dataclass(frozen=True)
class LoopShare:
    """What a worker is told before it runs its share of a loop for the first time.

    recipe: the pickled code. columns: its entries' keys and values. ranges: of each task, what the code is to run; with
    buffers, of each piece. senders, receivers: of each task, the worker that the time part comes from and goes to, or
    -1. arrays: shape and dtype by name. accumulators: (operation, neutral element) by name. buffers: (target, pickled
    function or b"", the user's place and text) by name; pieces: how many rounds of pieces all workers have.
    """

    recipe: bytes
    arguments: tuple[tuple[str, str], ...]
    single: bool
    columns: tuple[np.ndarray, ...]
    tasks: tuple[Task, ...]
    ranges: tuple[tuple[int, ...], ...]
    senders: tuple[int, ...]
    receivers: tuple[int, ...]
    arrays: Mapping[str, tuple[tuple[int, ...], str]]
    travelling: Mapping[str, Travelling]
    accumulators: Mapping[str, tuple[str, Any]]
    buffers: Mapping[str, tuple[str, bytes, str]] = field(default_factory=dict)
    pieces: int = 0


@dataclass(frozen=True)
class ShareCall:
    """What a worker is told to run its share of a loop once.

    number: of the share; live: of all that may still be asked for. given: parts of arrays by name, each with where it
    belongs; those in zeroed begin with zeros. reported: where what the driver gets back lies. inherited: other values
    by name.
    """

    number: int
    live: tuple[int, ...]
    share: LoopShare | None
    given: Mapping[str, Sequence[tuple[tuple[slice, ...], np.ndarray]]]
    zeroed: tuple[str, ...]
    reported: Mapping[str, Sequence[tuple[slice, ...]]]
    inherited: Mapping[str, Any]
    seed: int

    def shares(self) -> LoopWorker:
        """A new object that runs such calls on a worker."""
        return LoopWorker()


@dataclass(frozen=True)
class Reply:
    """parts: of arrays, as was asked for. accumulated: by name, the value of each task (or of all pieces together).
    spans: when each task began and ended, in seconds since the execution's begin."""

    parts: Mapping[str, list[tuple[tuple[slice, ...], np.ndarray]]]
    accumulated: Mapping[str, list[Any]]
    spans: tuple[tuple[float, float], ...] = ()


def framed(reply: Reply) -> list[bytes | np.ndarray]:
    """A reply as text, and arrays as they lie: what reads it runs nothing."""
    arrays: list[np.ndarray] = []
    parts: dict[str, list[Any]] = {}
    for name, places in reply.parts.items():
        parts[name] = []
        for where, values in places:
            parts[name].append([[[cut.start, cut.stop] for cut in where], values.dtype.str, values.shape])
            arrays.append(values)
    return [json.dumps([parts, reply.accumulated, reply.spans]).encode(), *arrays]


def opened(frames: Sequence[Any]) -> Reply:
    """The reply that `framed` wrote."""
    text, *arrays = frames
    told, accumulated, spans = json.loads(bytes(text))
    left = iter(arrays)
    parts = {
        name: [
            (tuple(slice(*ends) for ends in where), np.frombuffer(next(left), dtype).reshape(shape))
            for where, dtype, shape in places
        ]
        for name, places in told.items()
    }
    return Reply(parts, accumulated, tuple(map(tuple, spans)))


class _PreparedShare:
    """A share with compiled code and memory for its arrays."""

    def __init__(self, share: LoopShare) -> None:
        self.share = share
        self.run = built(pickle.loads(share.recipe))
        self.columns = tuple(map(read_only, share.columns))
        self.arrays = {name: np.zeros(shape, dtype) for name, (shape, dtype) in share.arrays.items()}
        self.buffers = {name: WorkerBuffer.of(*share.arrays[target]) for name, (target, _, _) in share.buffers.items()}
        self.appliers = {
            name: applier(pickle.loads(function) if function else add, words)
            for name, (_, function, words) in share.buffers.items()
        }


class LoopWorker:
    """A worker's side: the shares that it was given, by number."""

    def __init__(self) -> None:
        self.shares: dict[int, _PreparedShare] = {}

    def run(self, call: ShareCall, transport: Transport, rank: int, cells: MutableSequence[int]) -> Reply:
        """One execution of a share. cells: in which it tells how far it is."""
        for number in self.shares.keys() - set(call.live):
            del self.shares[number]
        if call.share is not None:
            self.shares[call.number] = _PreparedShare(call.share)
        ready = self.shares[call.number]
        for name, parts in call.given.items():
            for where, values in parts:
                ready.arrays[name][where] = values
        for name in call.zeroed:
            ready.arrays[name][...] = 0
        sums = {name: np.array([neutral]) for name, (_, neutral) in ready.share.accumulators.items()}
        arguments = arguments_of(
            ready.share.arguments,
            ready.share.single,
            arrays=ready.arrays,
            buffers=ready.buffers,
            cells=sums,
            keys={name: call.inherited[name] for kind, name in ready.share.arguments if kind == "generator"},
            seed=call.seed,
            others=call.inherited,
        )
        spans: list[tuple[float, float]] = []
        progress.begin(cells)
        if ready.share.buffers:
            accumulated = _buffered(ready, arguments, sums, transport, rank, cells)
        else:
            accumulated = _tasks(ready, arguments, sums, transport, cells, spans)
        progress.end(cells)
        results = {
            name: [(where, np.ascontiguousarray(ready.arrays[name][where])) for where in places]
            for name, places in call.reported.items()
        }
        return Reply(results, accumulated, tuple(spans))


def _tasks(
    ready: _PreparedShare, arguments: Sequence[Any], sums: Mapping[str, np.ndarray], transport: Transport,
    cells: MutableSequence[int], spans: list[tuple[float, float]],
) -> dict[str, list[Any]]:  # fmt: skip
    """The worker's blocks in their order, with the messages between them."""
    share = ready.share
    accumulated: dict[str, list[Any]] = {name: [] for name in sums}
    waits = []
    start = time.perf_counter()
    each = zip(share.tasks, share.ranges, share.senders, share.receivers, strict=True)
    for block, (task, what, sender, receiver) in enumerate(each):
        progress.wait(cells, block)
        if sender >= 0:
            _receive(ready, task.time, sender, transport)
        progress.run(cells, block)
        for name, cell in sums.items():
            cell[0] = share.accumulators[name][1]
        began = time.perf_counter() - start
        ready.run(*what, *ready.columns, *arguments)
        spans.append((began, time.perf_counter() - start))
        for name, cell in sums.items():
            accumulated[name].append(cell[0].item())
        if receiver >= 0:
            waits.append(_send(ready, task.time, receiver, transport))
    for wait in waits:
        wait()
    return accumulated


def _send(ready: _PreparedShare, part: int, receiver: int, transport: Transport) -> Any:
    messages = []
    for name, how in ready.share.travelling.items():
        array = ready.arrays[name]
        values = array[how.rows(part, array.shape[how.axis])]
        messages.append((receiver, torch.from_numpy(values.copy())))
    return transport.begin(messages, [])


def _receive(ready: _PreparedShare, part: int, sender: int, transport: Transport) -> None:
    places = []
    for name, how in ready.share.travelling.items():
        array = ready.arrays[name]
        where = how.rows(part, array.shape[how.axis])
        places.append((array, where, torch.empty(array[where].shape, dtype=torch.from_numpy(array[:0]).dtype)))
    transport.begin([], [(sender, tensor) for _, _, tensor in places])()
    for array, where, tensor in places:
        array[where] = tensor.numpy()


def _buffered(
    ready: _PreparedShare, arguments: Sequence[Any], sums: Mapping[str, np.ndarray], transport: Transport, rank: int,
    cells: MutableSequence[int],
) -> dict[str, list[Any]]:  # fmt: skip
    """Pieces of the worker's entries; after each, all workers' sums are exchanged and applied by all alike."""
    share = ready.share
    totals: dict[str, Any] = {}
    for number in range(share.pieces):
        progress.run(cells, number)
        if number < len(share.ranges):
            for name, cell in sums.items():
                cell[0] = share.accumulators[name][1]
            ready.run(*share.ranges[number], *ready.columns, *arguments)
            for name, cell in sums.items():
                combine = OPERATIONS[share.accumulators[name][0]]
                value = cell[0].item()
                totals[name] = combine(totals[name], value) if name in totals else value
        progress.wait(cells, number)
        for name, own in ready.buffers.items():
            target = ready.arrays[share.buffers[name][0]]
            for one in _exchanged(own, transport, rank):
                ready.appliers[name](flat(target), flat(one.values), one.flags, one.touched, 0, len(target))
            empty(own)
    return {name: [totals[name]] if name in totals else [] for name in sums}


def _exchanged(own: WorkerBuffer, transport: Transport, rank: int) -> list[WorkerBuffer]:
    """All workers' buffers, in the order of their ranks: each sends its rows to all others."""
    peers = [peer for peer in range(len(transport.sent)) if peer != rank]
    rows = own.rows.copy()
    counts = {peer: torch.zeros(1, dtype=torch.int64) for peer in peers}
    mine = torch.tensor([len(rows)])
    transport.begin([(peer, mine) for peer in peers], list(counts.items()))()
    values = flat(own.values)
    send_rows, send_values = torch.from_numpy(rows), torch.from_numpy(np.ascontiguousarray(values[rows]))
    found: dict[int, tuple[Any, Any]] = {}
    sends, receives = [], []
    for peer in peers:
        count = int(counts[peer][0])
        if len(rows):
            sends += [(peer, send_rows), (peer, send_values)]
        if count:
            found[peer] = (
                torch.empty(count, dtype=torch.int64),
                torch.empty((count, values.shape[1]), dtype=send_values.dtype),
            )
            receives += [(peer, tensor) for tensor in found[peer]]
    transport.begin(sends, receives)()
    whole = []
    for worker in range(len(transport.sent)):
        if worker == rank:
            whole.append(own)
        elif worker in found:
            other_rows, other_values = (tensor.numpy() for tensor in found[worker])
            one = WorkerBuffer.of(own.values.shape, own.values.dtype)
            flat(one.values)[other_rows] = other_values
            one.touched[: len(other_rows)] = other_rows
            one.touched[-1] = len(other_rows)
            whole.append(one)
    return whole


def hand_overs(plan: Schedule) -> tuple[list[list[int]], list[list[int]]]:
    """(senders, receivers) of each worker's tasks: where the time part comes from and goes to, or -1."""
    senders = [[-1 if task.after is None else task.after[0] for task in tasks] for tasks in plan.tasks]
    receivers = [[-1] * len(tasks) for tasks in plan.tasks]
    for worker, tasks in enumerate(plan.tasks):
        for task in tasks:
            if task.after is not None:
                receivers[task.after[0]][task.after[1] - 1] = worker
    return senders, receivers


def packed(function: Any) -> bytes:
    """A function that workers can load; b"" for the sum."""
    return b"" if function is add else pickled(function)
