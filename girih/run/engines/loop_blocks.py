"""How far workers are in a parallel loop, in the cells in which they tell how far they are in a program."""

from __future__ import annotations

from collections.abc import MutableSequence
from dataclasses import dataclass

IDLE = -1
"""The step of a worker that runs no loop, as of one that runs no program."""


@dataclass(frozen=True)
class LoopBlocks:
    """A loop as a program of steps: before each block a worker may wait for another's, so there are two for each.

    name: of the loop. source: its file and line. blocks: that each worker has.
    """

    name: str
    source: str
    blocks: int

    @property
    def steps(self) -> range:
        return range(2 * self.blocks)

    def at(self, step: int) -> str:
        """The block of a step, and whether the worker waits for it."""
        return f"{'block' if step % 2 else 'waiting for block'} {step // 2 + 1} of {self.blocks}"


def begin(cells: MutableSequence[int]) -> None:
    """Note in a worker's cells that it begins a loop."""
    cells[0] += 1
    cells[2] = 0


def wait(cells: MutableSequence[int], block: int) -> None:
    """Note that it waits until it may run a block."""
    cells[1] = 2 * block


def run(cells: MutableSequence[int], block: int) -> None:
    """Note that it runs the block."""
    cells[1] = 2 * block + 1


def end(cells: MutableSequence[int]) -> None:
    """Note that it has run all of its blocks."""
    cells[1] = IDLE
