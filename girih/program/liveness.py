"""When each buffer can be freed, and which are kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from girih.graph import Graph
from girih.program.steps import FreeStep, MoveStep, StartStep, Step


def lasting(graph: Graph) -> set[str]:
    """Buffers that are never freed: outputs, and state that nothing replaces (frozen parameters, tables)."""
    constant = {item.name for item in graph.state_inputs if item.name not in graph.updates}
    return {output.name for output in graph.outputs} | constant


def overwritten(graph: Graph, steps: Sequence[Step], host: Collection[str]) -> dict[str, str]:
    """New state in the large memory by the old one that it may overwrite: nothing comes in from there any more when the
    new one begins to go out."""
    read: dict[str, int] = {}  # the position of the last copy from a buffer in the large memory
    begins: dict[str, int] = {}
    for position, step in enumerate(steps):
        move = step.transfer if isinstance(step, StartStep) else step
        if isinstance(move, MoveStep) and move.out:
            begins.setdefault(move.target, position)
        elif isinstance(move, MoveStep):
            read[move.source] = position
    return {
        old: new
        for old, new in graph.updates.items()
        if old in host and new in begins and read.get(old, -1) < begins[new] and read.get(new, -1) < 0
    }


def last_touched(steps: Iterable[tuple[int, Step]], kept: set[str]) -> dict[int, list[str]]:
    """By position of a step, the buffers that no later one reads or makes, but for those that are kept."""
    last: dict[str, int] = {}
    begun: set[str] = set()  # targets of copies out that have begun, which free their sources themselves
    for position, step in steps:
        if isinstance(step, StartStep) and isinstance(step.transfer, MoveStep):
            begun.add(step.transfer.target)
        leaves = isinstance(step, MoveStep) and step.out and step.target in begun
        read = () if leaves else step.sources
        for buffer in (*read, *step.targets):
            last[buffer] = position
    ending: dict[int, list[str]] = {}
    for buffer, position in last.items():
        if buffer not in kept:
            ending.setdefault(position, []).append(buffer)
    return ending


def free_early(steps: Iterable[Step], kept: set[str]) -> list[Step]:
    """Insert after each step the frees of the buffers that it reads last, or that nobody reads."""
    ordered = list(steps)
    ending = last_touched(enumerate(ordered), kept)
    result: list[Step] = []
    for position, step in enumerate(ordered):
        result.append(step)
        if position in ending:
            result.append(FreeStep(tuple(ending[position])))
    return result
