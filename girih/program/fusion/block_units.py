"""What `girih.program.fusion.blocks` works with: the units that it gathers steps into, and their order."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from girih.program.steps import ComputeStep, Step


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
    maker = {name: number for number, (_, steps) in enumerate(parts) for step in steps for name in step.targets}
    waiting: list[set[int]] = []
    readers: list[list[int]] = [[] for _ in parts]
    for number, (_, steps) in enumerate(parts):
        own = {name for step in steps for name in step.targets}
        needs = {maker[name] for step in steps for name in step.sources if name in maker and name not in own}
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
            written.update(step.targets)
            result.append(step)
        for reader in readers[number]:
            waiting[reader].discard(number)
            if not waiting[reader]:
                heapq.heappush(ready, (parts[reader][0].position, reader))
    return result
