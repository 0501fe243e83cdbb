"""A step on other buffers than those that it was written for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from girih.program.liveness import reads_of, writes_of
from girih.program.steps import BlockStep, ComputeStep, MoveStep, StartStep, Step, TransferStep

Renaming = Callable[[str], str]


def renamed(step: Step, read: Renaming, write: Renaming) -> Step:
    """The step with the names of what it reads, then of what it writes, replaced: each is asked for once, in order."""
    if isinstance(step, StartStep):
        transfer = renamed(step.transfer, read, write)
        assert isinstance(transfer, TransferStep | MoveStep)
        return StartStep(transfer, step.after)
    if isinstance(step, TransferStep | MoveStep):
        return replace(step, source=read(step.source), target=write(step.target))
    assert isinstance(step, ComputeStep | BlockStep)
    names = {buffer: read(buffer) for buffer in reads_of(step)}
    names |= {buffer: write(buffer) for buffer in writes_of(step)}
    if isinstance(step, ComputeStep):
        return _on(step, names)
    members = tuple(_on(member, names) for member in step.members)
    reads, writes = (tuple(names[name] for name in buffers) for buffers in (step.reads, step.writes))
    return replace(step, members=members, reads=reads, writes=writes)


def _on(step: ComputeStep, names: dict[str, str]) -> ComputeStep:
    reads = tuple(replace(part, buffer=names.get(part.buffer, part.buffer)) for part in step.reads)
    return ComputeStep(step.node, reads, tuple(names.get(name, name) for name in step.writes))
