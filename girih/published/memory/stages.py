"""A program's forward pass as a chain of stages, and sequences in which stages come again.

Stages end where layers do (`girih.published.memory.layers`), at about equal numbers of layers, where the fewest bytes
cross. Whatever crosses, skip connections too, is the value of the chain there. A step of the backward pass belongs to
the latest stage of which it reads something, as far as that goes down from step to step, and comes in its place.

Cost: linear in steps and touches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from girih.program.life.lifetimes import Lifetimes
from girih.program.liveness import lasting
from girih.published.memory.chain import Chain, Operation
from girih.published.memory.layers import end_of_forward, layers_of

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Stages:
    """forward: the first step of each stage, and the one behind the last. backward: by stage, the steps that belong to
    its backward pass, in order. of: the stage of each step, [steps]."""

    lives: Lifetimes
    forward: tuple[int, ...]
    backward: tuple[tuple[int, ...], ...]
    of: Integers

    @property
    def count(self) -> int:
        return len(self.forward) - 1


def layers_forward(lives: Lifetimes) -> int:
    """How many layers the forward pass has."""
    end = end_of_forward(lives)
    return int(layers_of(lives)[end]) + 1 if end >= 0 else 0


def staged(lives: Lifetimes, count: int) -> Stages:
    """The forward pass in at most so many stages."""
    end = end_of_forward(lives)
    layers = layers_of(lives)[: end + 1]
    ends = [*np.flatnonzero(np.diff(layers)).tolist(), end]  # of each layer
    crossing = _crossing(lives, end)
    count = min(count, len(ends))
    last: list[int] = []
    for part in range(1, count):
        middle = part * len(ends) / count
        window = len(ends) / count / 4
        near = ends[max(int(np.ceil(middle - window)) - 1, 0) : max(int(middle + window), int(middle))]
        later = [at for at in near if not last or at > last[-1]]
        if later:
            last.append(min(later, key=lambda at: (crossing[at], abs(layers[at] + 1 - middle))))
    forward = (0, *(at + 1 for at in last if at < end), end + 1)
    of = np.searchsorted(np.asarray(forward[1:-1], np.int64), np.arange(len(lives.steps)), "right")
    made_in = _made_in(lives, of, end)
    latest = np.full(len(lives.steps), -1)
    for number, storage in enumerate(lives.storages):
        for at in storage.touched:
            if at > end and at < len(latest):
                latest[at] = max(latest[at], made_in[number])
    told = dict(_descending([(at, int(latest[at])) for at in range(end + 1, len(lives.steps)) if latest[at] >= 0]))
    now = len(forward) - 2
    backward: list[list[int]] = [[] for _ in range(now + 1)]
    for at in range(end + 1, len(lives.steps)):
        now = told.get(at, now)
        of[at] = now
        backward[now].append(at)
    return Stages(lives, forward, tuple(map(tuple, backward)), of)


def _descending(items: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The most of these (step, stage) pairs whose stages never rise: a step that reads something of an early stage
    alone, such as a mask, does not say how far the backward pass has come. Cost: O(n log n)."""
    ends: list[int] = []  # by length, the last pair of the best such row, and its stage with the sign changed
    keys: list[int] = []
    before: list[int] = []
    for number, (_, stage) in enumerate(items):
        length = bisect_right(keys, -stage)
        before.append(ends[length - 1] if length else -1)
        ends[length : length + 1] = [number]
        keys[length : length + 1] = [-stage]
    row: list[tuple[int, int]] = []
    at = ends[-1] if ends else -1
    while at >= 0:
        row.append(items[at])
        at = before[at]
    return row[::-1]


def _made_in(lives: Lifetimes, of: Integers, end: int) -> list[int]:
    """By storage, the stage of the forward pass that makes it; -1: none does."""
    return [int(of[item.born]) if 0 <= item.born <= end else -1 for item in lives.storages]


def _crossing(lives: Lifetimes, end: int) -> Integers:
    """Bytes that go from each step of the forward pass to later ones: [end + 1]."""
    change = np.zeros(end + 2, np.int64)
    for item in lives.storages:
        forward = [at for at in item.touched if at <= end]
        if item.born >= 0 and len(forward) > 1:
            change[forward[0]] += item.bytes
            change[forward[-1]] -= item.bytes
    crossing: Integers = np.cumsum(change)[: end + 1]
    return crossing


def chain_of(stages: Stages, seconds: NDArray[np.float64]) -> Chain:
    """The chain of the stages' seconds and bytes. What does not depend on what is computed again is not in it: inputs
    of the program, state, and gradients of parameters that wait for longer than a stage."""
    lives, count, of = stages.lives, stages.count, stages.of
    end = stages.forward[-1] - 1
    steps = len(lives.steps)
    value, gradient = (np.zeros(count + 1, np.int64) for _ in range(2))
    tape = np.zeros(count, np.int64)
    alive = np.zeros((2, steps + 1), np.int64)  # of what is made in a stage, without and with its tape
    state = {number for pair in lives.state for number in pair}
    made_in = _made_in(lives, of, end)
    for number, item in enumerate(lives.storages):
        if number in state or item.lasts or item.born < 0:
            continue
        touched = [at for at in item.touched if at < steps]
        first, final = touched[0], touched[-1]
        if first > end:  # of the backward pass
            low, high = int(of[final]), int(of[first])
            if high - low <= 1:
                alive[:, first] += item.bytes
                alive[:, final + 1] -= item.bytes
                gradient[high] += item.bytes * (high - low)
            continue
        made = made_in[number]
        crosses = max(int(of[at]) for at in touched)  # into the stages up to this one
        value[made + 1 : crosses + 1] += item.bytes
        if final > end or crosses > made:
            tape[made] += item.bytes
        own = max(at for at in touched if at <= end and of[at] == made)
        bound = stages.forward[made + 1]  # what is needed later is there until the stage ends
        alive[0, first] += item.bytes
        alive[0, bound if crosses > made else own + 1] -= item.bytes
        alive[1, first] += item.bytes
        alive[1, bound if final > end or crosses > made else own + 1] -= item.bytes
    used = np.cumsum(alive, axis=1)[:, :steps] + np.maximum(lives.extra[:steps], 0)
    most = np.zeros((3, count), np.int64)
    for stage in range(count):
        forward = slice(stages.forward[stage], stages.forward[stage + 1])
        most[:2, stage] = used[:, forward].max(axis=1, initial=0)
        if stages.backward[stage]:
            most[2, stage] = used[1, list(stages.backward[stage])].max()
    times = np.asarray([seconds[stages.forward[at] : stages.forward[at + 1]].sum() for at in range(count)])
    return Chain(times, value, gradient, tape, most)


def sequence_of(stages: Stages, operations: Iterable[Operation], fetching: bool = False) -> tuple[int, ...]:
    """The sequence of steps that operations on the stages are. Of a stage that comes again only those steps do that can
    and of which something is read. fetching: can transfers?"""
    lives = stages.lives
    kept, writes = lasting(lives.program.graph), [step.targets for step in lives.steps]
    repeats = (lives.repeats if fetching else lives.computes).tolist()
    again = [able and kept.isdisjoint(made) for able, made in zip(repeats, writes, strict=True)]
    sequence: list[int] = []
    done: set[int] = set()
    for operation in operations:
        if operation.backward:
            sequence += stages.backward[operation.stage]
            continue
        steps = range(stages.forward[operation.stage], stages.forward[operation.stage + 1])
        sequence += [at for at in steps if at not in done or again[at]]
        done.update(steps)
    times = np.bincount(np.asarray(sequence, np.int64), minlength=len(lives.steps)).tolist()
    wanted: set[str] = set()
    result: list[int] = []
    for at in reversed(sequence):
        times[at] -= 1
        if times[at] and wanted.isdisjoint(writes[at]):
            continue
        wanted.difference_update(writes[at])
        wanted.update(lives.steps[at].sources)
        result.append(at)
        if times[at] and at in lives.begun:
            result.append(lives.begun[at])
    return tuple(reversed(result))
