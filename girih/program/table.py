"""The steps of a program as columns of numbers: what compiled loops walk, whatever the steps say beside.

What every step says in the same words (`girih.program.steps`) is a number here: its kind, its node, the buffers that it
reads and those that it makes. The same columns stand for a program in another sequence
(`girih.program.life.sequences`) and for one that is composed of known pieces and never written down
(`girih.search.composed`), so that one set of loops serves all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from girih.program.steps import BlockStep, ComputeStep, MoveStep, StartStep, Step, TransferStep

Integers = NDArray[np.int64]
Kinds = NDArray[np.uint8]

NOBODY = -1

COMPUTE, BLOCKS, FETCH, STORE, OUT, IN, FREE = range(7)
"""Kinds of steps: those of transfers by their purpose, those of moves by their direction."""
START = 8
"""Added to the kind of a transfer or a move of which a step is the start alone."""


class Table(NamedTuple):
    """Columns of steps, a row for each; lists in compressed rows.

    kind, node: of each step. reads, writes: the buffers of step x are `reads[read_starts[x] : read_starts[x + 1]]`, by
    number, in the step's order. buffers: how many there are.
    """

    kind: Kinds
    node: Integers
    read_starts: Integers
    reads: Integers
    write_starts: Integers
    writes: Integers
    buffers: int

    @property
    def maker(self) -> Integers:
        """By buffer the step that makes it, the last of several; NOBODY where none does."""
        maker = np.full(self.buffers, NOBODY, np.int64)
        maker[self.writes] = np.repeat(np.arange(len(self.kind)), np.diff(self.write_starts))
        return maker

    @property
    def needs(self) -> tuple[Integers, Integers]:
        """(step, the step that makes what it reads): each pair once, in the order of what steps read."""
        needing, needed = np.repeat(np.arange(len(self.kind)), np.diff(self.read_starts)), self.maker[self.reads]
        needing, needed = needing[needed != NOBODY], needed[needed != NOBODY]
        _, first = np.unique(needing * len(self.kind) + needed, return_index=True)
        first.sort()
        return needing[first], needed[first]


def table_of(steps: Sequence[Step], known: Iterable[str] = ()) -> tuple[Table, dict[str, int]]:
    """(the columns of steps, the numbers of their buffers). known: buffers that come first, in this order."""
    numbers = {name: number for number, name in enumerate(known)}
    reads: list[int] = []
    writes: list[int] = []
    read_starts, write_starts = [0], [0]
    for step in steps:
        reads += [numbers.setdefault(name, len(numbers)) for name in step.sources]
        writes += [numbers.setdefault(name, len(numbers)) for name in step.targets]
        read_starts.append(len(reads))
        write_starts.append(len(writes))
    table = Table(
        np.asarray([kind_of(step) for step in steps], np.uint8),
        np.asarray([step.node for step in steps], np.int64),
        np.asarray(read_starts, np.int64),
        np.asarray(reads, np.int64),
        np.asarray(write_starts, np.int64),
        np.asarray(writes, np.int64),
        len(numbers),
    )
    return table, numbers


def kind_of(step: Step) -> int:
    """The kind of a step; of a start with `START` added."""
    if isinstance(step, StartStep):
        return START + kind_of(step.transfer)
    if isinstance(step, TransferStep):
        return STORE if step.purpose == "store" else FETCH
    if isinstance(step, MoveStep):
        return OUT if step.out else IN
    return COMPUTE if isinstance(step, ComputeStep) else BLOCKS if isinstance(step, BlockStep) else FREE
