"""The memory of workers that evaluate arrays: predicted before anything starts, and kept below a limit.

What does not fit goes out of memory in this order: arrays that a live name shows, but nobody has asked for, are not
kept; large results of groups and large tiles that a program reads go to files, which groups read and write block by
block; tiles that the program does not need are moved to files. What then does not fit is refused. Sources that would
take more than a part of the limit are never held: groups read them block by block.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from girih.capture.lazy.sources import Source
from girih.host import memory_here
from girih.machine.units import format_bytes
from girih.plans.plan import Plan
from girih.program import BlockStep
from girih.program.life.accounts import MemoryUse

SHARE = 0.8
"""The part of a host's memory that all workers together may use where the user sets no limit."""
STREAMED_SHARE = 4
"""A source is held if each worker's tile takes at most one part in so many of the limit."""
LEAST_BLOCK = 1 << 14
"""Bytes of a block that are not divided any more."""
DISK_SHARE = 0.8
"""The part of the free disk space for temporary files that arrays may take."""


class MemoryLimitError(MemoryError):
    """A program that cannot be computed within the limit. Nothing was started."""


def default_limit(workers: int) -> int:
    """The memory in bytes that each worker of this host may take where nobody says."""
    return int(memory_here() * SHARE) // workers


@dataclass(frozen=True)
class Fitted:
    """A plan with what lies in files. peak: the most bytes on a worker (a bound), tiles that it does not use apart.
    refused: why it cannot run, or ""."""

    plan: Plan
    peak: int
    refused: str = ""


def fitted(
    plan: Plan, limit: int, streamed: frozenset[str], files: frozenset[str], more: bool, threads: bool = False
) -> Fitted:
    """Move to files what must not be in memory, the largest first, until the peak is below the limit.

    streamed, files: inputs that are out of memory already. more: whether anything else may go there. threads: are
    workers threads, which compute parts of each other's loops?
    """
    assert plan.choice.blocks is not None
    blocks = replace(plan.choice.blocks, streamed=streamed, stealing=threads and plan.machine.devices > 1)
    bound = 2 * sum(value.bytes for value in plan.graph.values.values())
    if bound <= limit // STREAMED_SHARE:  # as of nearly all programs: their memory need not be known exactly
        return Fitted(plan.but(blocks=replace(blocks, files=files)), bound)
    while True:
        plan = plan.but(blocks=replace(blocks, files=files, always=more))
        use = max(plan.memory_by_device, key=lambda item: item.peak)
        if use.peak <= limit:
            return Fitted(plan, use.peak)
        moved = _movable(plan, use, use.peak - limit) if more else frozenset()
        room = shutil.disk_usage(tempfile.gettempdir()).free if moved else 0
        if not moved or _bytes(plan, files | moved) > room * DISK_SHARE:
            smaller = blocks.cache // 4
            if smaller >= LEAST_BLOCK and any(isinstance(step, BlockStep) for step in plan.program.steps):
                blocks = replace(blocks, cache=smaller)
                continue
            return Fitted(plan, use.peak, _refusal(plan, use, limit))
        files |= moved


def _movable(plan: Plan, use: MemoryUse, excess: int) -> frozenset[str]:
    """The largest buffers at the peak that can lie in files, until they make up for `excess` bytes."""
    program = plan.program
    able = {item.name for item in plan.graph.state_inputs} - program.streamed
    able.update(name for step in program.steps if isinstance(step, BlockStep) for name in step.writes)
    names = set()
    for name, size in use.largest:
        if name in able and name not in program.files and size > 0 and excess > 0:
            names.add(name)
            excess -= size
    return frozenset(names)


def _bytes(plan: Plan, names: Iterable[str]) -> int:
    """Bytes that these buffers take on all workers together."""
    program, total = plan.program, 0
    for name in names:
        regions = program.places[name].regions
        elements = (regions[..., 1] - regions[..., 0]).prod(axis=-1).sum()
        total += int(elements) * plan.graph.values[program.value_of[name]].item_bytes
    return total


def _refusal(plan: Plan, use: MemoryUse, limit: int) -> str:
    node = plan.graph.nodes[use.at]
    value = plan.graph.values[node.outputs[0]]
    largest = ", ".join(f"{name} {format_bytes(size)}" for name, size in use.largest[:3] if size)
    return (
        f"{node.source or 'an evaluation'}: {node.operator} to {value.dtype}{list(value.shape)} takes "
        f"{format_bytes(use.peak)} on a worker, the limit is {format_bytes(limit)} (largest: {largest}): "
        "raise girih.cluster(memory=...), take more workers, or reduce the array before it is needed whole"
    )


class MemoryBudget:
    """The tiles that workers hold, as the driver knows them. limit: bytes for each worker. held: of the largest tiles
    of all arrays that are in memory."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.tiles: OrderedDict[int, int] = OrderedDict()  # of each key the largest tile's bytes, the latest used last
        self.files: set[int] = set()

    def streams(self, content: object, workers: int) -> bool:
        """Is this source too large to be held?"""
        return isinstance(content, Source) and content.nbytes // workers > self.limit // STREAMED_SHARE

    def keep(self, key: int, size: int, file: bool) -> None:
        self.tiles[key] = size
        if file:
            self.files.add(key)
        else:
            self.held += size

    def use(self, keys: Iterable[int]) -> None:
        for key in keys:
            if key in self.tiles:
                self.tiles.move_to_end(key)

    def free(self, keys: Iterable[int]) -> None:
        for key in keys:
            size = self.tiles.pop(key, 0)
            if key in self.files:
                self.files.discard(key)
            else:
                self.held -= size

    def to_files(self, peak: int, used: set[int], moved: Iterable[int]) -> list[int]:
        """The keys that must go to files before a program starts: `moved`, which it says itself, and tiles that it does
        not use, the longest unused first, until there is room for its peak."""
        result = [key for key in moved if key not in self.files]
        if not result and peak + self.held <= self.limit:
            return []
        idle = [key for key in self.tiles if key not in used and key not in self.files]
        excess = peak + sum(self.tiles[key] for key in idle) - self.limit
        for key in idle:
            if excess <= 0:
                break
            result.append(key)
            excess -= self.tiles[key]
        for key in result:
            if key not in self.files:  # a key that is moved may be idle, too
                self.held -= self.tiles.get(key, 0)
                self.files.add(key)
        return result
