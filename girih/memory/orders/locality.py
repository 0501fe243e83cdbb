"""Orders of a program's steps in which state is used together: sequences for `girih.memory.again.sequenced`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from heapq import heappop, heappush
from itertools import pairwise

from girih.lower.liveness import reads_of, writes_of
from girih.lower.steps import StartStep, TransferStep, node_of
from girih.memory.lifetimes import Lifetimes

LOOKED_AT = 1024  # steps that could come next


def staying(lives: Lifetimes, cap: int) -> tuple[int, ...]:
    """The sequence in which steps come together that touch the same storages, as those of one layer's parameters.

    Of the steps that can come next, the one does for which the least must be copied in and made, less what it frees, if
    `cap` bytes of what was touched last stay on the device; of several the first in the old order. Steps of updates
    come where they were: see `updates_early`. Exchanges keep their order, on all devices. (An unrolled network goes
    layer by layer so, as SwapAdvisor's search finds, thesis §5.2.) Cost: O(steps · LOOKED_AT · operands).
    """
    steps = lives.steps
    count = len(steps)
    needs = _needs(lives)
    exchanges = [number for number, step in enumerate(steps) if isinstance(step, TransferStep | StartStep)]
    for before, after in pairwise(exchanges):
        needs[after].append(before)
    needs = [sorted(set(before)) for before in needs]
    readers: list[list[int]] = [[] for _ in steps]
    for reader, makers in enumerate(needs):
        for maker in makers:
            readers[maker].append(reader)
    touching: list[list[int]] = [[] for _ in steps]
    left = Counter[int]()  # steps that still touch a storage
    for number, storage in enumerate(lives.storages):
        for step in storage.touched:
            if 0 <= step < count:
                touching[step].append(number)
                left[number] += 1
    sizes = [storage.bytes for storage in lives.storages]
    lasts = [storage.lasts for storage in lives.storages]
    hot: dict[int, None] = {}  # what was touched last, the oldest first
    held = 0
    missing = [len(before) for before in needs]
    update = [lives.program.graph.nodes[node_of(step)].phase == "update" for step in steps]
    first_steps = [number for number in range(count) if not missing[number]]
    ready = [number for number in first_steps if not update[number]]
    late = [number for number in first_steps if update[number]]
    sequence: list[int] = []

    def added(number: int, near: Collection[int] = ()) -> int:
        """Bytes that a step has copied in, and makes, less those that nobody needs behind it. near: what is there."""
        items = touching[number]
        coming = sum(sizes[item] for item in items if item not in hot and item not in near)
        return coming - sum(sizes[item] for item in items if left[item] <= 1 + (item in near) and not lasts[item])

    def rank(number: int) -> tuple[int, int, int]:
        """With what can come right behind it, if that frees more than it adds; then such steps first."""
        follows = (reader for reader in readers[number] if missing[reader] == 1 and not update[reader])
        least = min((added(reader, touching[number]) for reader in follows), default=1)
        return added(number) + min(least, 0), int(least > 0), number

    while ready or late:
        if not ready:
            ready, late = late, []
        first = min(ready[:LOOKED_AT], key=rank)
        ready.remove(first)
        sequence.append(first)
        for item in touching[first]:
            held += 0 if item in hot else sizes[item]
            hot.pop(item, None)
            hot[item] = None
            left[item] -= 1
            if not left[item] and not lasts[item]:
                del hot[item]
                held -= sizes[item]
        while held > cap and hot:
            oldest = next(iter(hot))
            del hot[oldest]
            held -= sizes[oldest]
        for reader in readers[first]:
            missing[reader] -= 1
            if not missing[reader]:
                (late if update[reader] else ready).append(reader)
        ready.sort()
    return tuple(sequence)


def updates_early(lives: Lifetimes) -> tuple[int, ...]:
    """The sequence in which parameters are updated as soon as their gradients are there, so that these need not wait.

    What an update reads beside gradients, and is computed from old state alone, comes right before it. Other steps stay
    in their order. Cost: linear.
    """
    steps = lives.steps
    update = [lives.program.graph.nodes[node_of(step)].phase == "update" for step in steps]
    needs = _needs(lives)
    early = [False] * len(steps)  # an update that waits for a gradient
    for number, before in enumerate(needs):
        early[number] = update[number] and any(not update[other] or early[other] for other in before)
    readers: list[list[int]] = [[] for _ in steps]
    missing = [0] * len(steps)
    for number, before in enumerate(needs):
        if early[number]:
            waits = [other for other in before if not update[other] or early[other]]
            missing[number] = len(waits)
            for other in waits:
                readers[other].append(number)
    sequence: dict[int, None] = {}

    def take(number: int) -> None:
        pending = [number]
        while pending:
            before = [other for other in needs[pending[-1]] if other not in sequence]
            if before:
                pending += before[::-1]
            else:
                sequence.setdefault(pending.pop())

    for number in range(len(steps)):
        ready = [] if update[number] else [number]
        while ready:
            take(first := heappop(ready))
            for reader in readers[first]:
                missing[reader] -= 1
                if not missing[reader]:
                    heappush(ready, reader)
    for number in range(len(steps)):
        take(number)
    return tuple(sequence)


def _needs(lives: Lifetimes) -> list[list[int]]:
    """By step, the steps that make what it reads, and the start of its exchange."""
    steps = lives.steps
    maker = {buffer: number for number, step in enumerate(steps) for buffer in writes_of(step)}
    begun = {step.transfer.target: number for number, step in enumerate(steps) if isinstance(step, StartStep)}
    return [
        sorted(
            {maker[buffer] for buffer in reads_of(step) if buffer in maker}
            | {begun[buffer] for buffer in writes_of(step) if buffer in begun}
        )
        for step in steps
    ]
