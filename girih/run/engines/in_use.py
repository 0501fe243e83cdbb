"""The clusters that were put in use and not closed yet; whoever has work for workers asks for the last.

A face that begins clusters says so here, so that others find its workers without importing it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from girih.run.engines.crew import Crew
from girih.run.engines.engine import Engine
from girih.run.engines.loop_blocks import LoopBlocks


class Workers(Protocol):
    """A number of workers that an engine starts when they are first needed."""

    engine: Engine
    workers: int

    def crew(self) -> Crew:
        """The workers, started now if need be."""

    def watched(self, program: LoopBlocks) -> AbstractContextManager[None]:
        """In which people see how far the workers are in a loop."""


class _InUse:
    def __init__(self) -> None:
        self.clusters: list[Workers] = []


_in_use = _InUse()


def begin(cluster: Workers) -> None:
    """From now on; until it ends, or another one begins."""
    if cluster not in _in_use.clusters:
        _in_use.clusters.append(cluster)


def end(cluster: Workers) -> None:
    """The one of before is in use again."""
    if cluster in _in_use.clusters:
        _in_use.clusters.remove(cluster)


def current() -> Workers | None:
    """The last that began."""
    return _in_use.clusters[-1] if _in_use.clusters else None
