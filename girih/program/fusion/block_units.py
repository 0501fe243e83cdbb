"""What `girih.program.fusion.blocks` works with: its options, the units that it gathers steps into, and their order."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from girih.program.liveness import reads_of, writes_of
from girih.program.steps import ComputeStep, Step

CACHE_BYTES = 1 << 20
"""Bytes of a block's values together: half of the second-level cache of a core of today's servers (1 to 2 MiB), in
which element-wise kernels are three times as fast as on memory."""
CALL_SECONDS = 2e-6
"""What a call of a kernel takes beside its work."""
SMALL_BYTES = 1 << 16
"""A sixteenth of the cache of a block."""


@dataclass(frozen=True)
class Blocks:
    """How a program is cut into blocks.

    cache: bytes of a block's values together. call: seconds of a kernel's call. small: up to so many bytes a value is
    read whole by every block, which costs nothing. streamed: inputs that are not in memory: groups read them block by
    block. files: inputs, and results of groups, that lie in files. always: groups of one node too, which can then write
    to files. stealing: workers are threads that compute chunks of each other's groups.
    """

    cache: int = CACHE_BYTES
    call: float = CALL_SECONDS
    streamed: frozenset[str] = frozenset()
    small: int = SMALL_BYTES
    files: frozenset[str] = frozenset()
    always: bool = False
    stealing: bool = False


@dataclass(eq=False)
class Unit:
    """A step, or a group of compute steps that are cut along one range.

    level: higher than that of all units that it depends on. dims: of what is made inside, the dimension that is cut.
    complete: what is known only when all blocks are done. width: bytes of one value of the range, in the node that has
    most. taken: something outside reads from it already.
    """

    level: int
    position: int
    step: Step | None = None
    cut: bytes = b""
    length: int = 0
    members: list[tuple[ComputeStep, int]] = field(default_factory=list)
    dims: dict[str, int] = field(default_factory=dict)
    complete: set[str] = field(default_factory=set)
    outside: set[str] = field(default_factory=set)
    width: int = 0
    taken: bool = False

    def blocks(self, width: int, cache: int) -> int:
        """How many, if the widest node has so many bytes for each value of the range."""
        return -(-self.length * max(width, 1) // cache)


def ordered(parts: list[tuple[Unit, list[Step]]]) -> list[Step]:
    """Units behind those that they read from, else in the order of the program."""
    maker = {name: number for number, (_, steps) in enumerate(parts) for step in steps for name in writes_of(step)}
    waiting: list[set[int]] = []
    readers: list[list[int]] = [[] for _ in parts]
    for number, (_, steps) in enumerate(parts):
        own = {name for step in steps for name in writes_of(step)}
        needs = {maker[name] for step in steps for name in reads_of(step) if name in maker and name not in own}
        waiting.append(needs)
        for one in needs:
            readers[one].append(number)
    ready = [(unit.position, number) for number, (unit, _) in enumerate(parts) if not waiting[number]]
    heapq.heapify(ready)
    result: list[Step] = []
    written: set[str] = set()
    while ready:
        number = heapq.heappop(ready)[1]
        for step in parts[number][1]:
            if isinstance(step, ComputeStep) and written.issuperset(step.writes):
                continue  # a view that two groups have taken in
            written.update(writes_of(step))
            result.append(step)
        for reader in readers[number]:
            waiting[reader].discard(number)
            if not waiting[reader]:
                heapq.heappush(ready, (parts[reader][0].position, reader))
    return result
