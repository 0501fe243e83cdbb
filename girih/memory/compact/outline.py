"""A program's steps and storages as arrays, from which the lifetimes in any other sequence follow at once.

Searches under a cap try many sequences of one program: other orders, and such in which steps come again
(`girih.memory.again`). What a step reads and makes, how long its results are and what scratch it takes does not depend
on the sequence; when storages are made, touched and freed does, and so which operand's memory a result takes over. All
of that is worked out on arrays here, to the byte as the walk of the accounts does it (`girih.memory.lifetimes`; a test
compares both). Programs of one device alone, without exchanges and moves.

Cost: linear in what the steps read and make.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from girih.lower.liveness import lasting, reads_of, writes_of
from girih.lower.steps import BlockStep, ComputeStep
from girih.memory.compact.outline_kernels import Facts, sequenced
from girih.memory.compact.residency_kernels import NOBODY, Integers, Touches
from girih.memory.lifetimes import Lifetimes


@dataclass(frozen=True, eq=False)
class Sequenced:
    """A program in a sequence. sequence: of each position the step, as the outline numbers them. touches: of its
    storages, numbered as `lifetimes` of the sequenced program numbers them. original: of each storage the one of the
    outline that it is, for the first time or again. read_starts, reads, write_starts, writes: buffers of each position;
    a buffer that comes again is another one. lies_in: of each buffer its storage. looks_at, looked: of a buffer that is
    a view, the buffer that it looks at and the position that makes it, else NOBODY. main: of each storage, the buffer
    that is its own, NOBODY where it has none. results: the buffers that are read when the program has ended."""

    sequence: Integers
    touches: Touches
    original: Integers
    read_starts: Integers
    reads: Integers
    write_starts: Integers
    writes: Integers
    lies_in: Integers
    looks_at: Integers
    looked: Integers
    main: Integers
    results: Integers

    @property
    def used(self) -> Integers:
        """Bytes in use in each step if nothing is moved: [steps + 1]."""
        touches = self.touches
        end = len(touches.extra) - 1
        change = np.zeros(end + 2, np.int64)
        np.add.at(change, np.maximum(touches.born, 0), touches.bytes)
        np.add.at(change, np.where(touches.lasts, end, touches.last) + 1, -touches.bytes)
        used: Integers = np.cumsum(change)[:-1] + touches.extra
        return used


@dataclass(frozen=True, eq=False)
class Outline:
    """What does not change with the sequence. facts: arrays of the steps. count: of the steps. bytes, movable: of each
    storage. state: pairs of storages, old and new. last_act: bytes of the worker's last act. outputs: buffers."""

    facts: Facts
    count: int
    bytes: Integers
    movable: NDArray[np.bool_]
    state: Integers
    last_act: int
    outputs: Integers

    @staticmethod
    def able(lives: Lifetimes) -> bool:
        """Can these lifetimes be outlined: one device, which computes and nothing else?"""
        program = lives.program
        plain = all(isinstance(step, ComputeStep | BlockStep) for step in lives.steps)
        return plain and program.mesh.devices == 1 and not program.orders and not program.host

    @staticmethod
    def of(lives: Lifetimes) -> Outline:
        """Of the lifetimes of a program in its own order, each step once."""
        steps, storages = lives.steps, lives.storages
        lies: dict[str, int] = {buffer: number for number, item in enumerate(storages) for buffer in item.buffers}
        numbers = {buffer: number for number, buffer in enumerate(lies)}
        reads = [[numbers[buffer] for buffer in reads_of(step) if buffer in numbers] for step in steps]
        writes = [[numbers[buffer] for buffer in writes_of(step) if buffer in numbers] for step in steps]
        looks_at = np.full(len(numbers), NOBODY, np.int64)
        for buffer, (_, base) in lives.views.items():
            looks_at[numbers[buffer]] = numbers[base]
        kept = lasting(lives.program.graph)
        makes: list[list[int]] = [[] for _ in steps]
        for number, item in enumerate(storages):
            if item.born >= 0:
                makes[item.born].append(number)
        scratch = lives.extra[:-1].copy()
        for step, operand in lives.taken.items():
            scratch[step] += storages[operand].bytes
        main = np.asarray([numbers.get(item.name, NOBODY) for item in storages], np.int64)
        facts = Facts(
            *_rows(reads),
            *_rows(writes),
            *_rows(makes),
            *_rows([lives.takers.get(step, ()) for step in range(len(steps))]),
            np.asarray(list(lies.values()), np.int64),
            looks_at,
            np.asarray([buffer in kept for buffer in numbers], np.bool_),
            np.asarray([item.born == -1 for item in storages], np.bool_),
            main,
            np.asarray([item.bytes for item in storages], np.int64),
            scratch,
        )
        return Outline(
            facts,
            len(steps),
            facts.bytes,
            np.asarray([item.movable for item in storages], np.bool_),
            np.asarray(lives.state, np.int64).reshape(-1, 2),
            int(lives.extra[-1]),
            np.asarray([numbers[item.name] for item in lives.program.graph.outputs if item.name in numbers], np.int64),
        )

    def sequenced(self, sequence: Sequence[int] | None) -> Sequenced:
        """The program in a sequence in which every step comes before what reads its results; None: in its own."""
        order = np.arange(self.count) if sequence is None else np.asarray(sequence, np.int64)
        (original, read_starts, reads, write_starts, writes, lies_in, looks_at, looked, main, final, owner, at, lasts,
         extra) = sequenced(self.facts, order)  # fmt: skip
        count = len(original)
        ranked = np.argsort(owner, kind="stable")
        old, new = np.full((2, count), NOBODY, np.int64)
        current = np.zeros(len(self.bytes), np.int64)
        current[original] = np.arange(count)  # of what comes again the last; of new state there is one
        before, after = current[self.state].T
        old[after], new[before] = before, after
        step_starts = np.concatenate([[0], np.cumsum(np.bincount(at[at >= 0], minlength=len(order) + 1))])
        owner, at = owner[ranked], at[ranked]
        real = at >= 0
        of_step = owner[real][np.argsort(at[real], kind="stable")]
        starts = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=count))])
        touches = Touches(
            step_starts,
            of_step,
            starts,
            at,
            self.bytes[original],
            self.movable[original],
            lasts,
            old,
            new,
            np.append(extra, self.last_act),
        )
        return Sequenced(
            order, touches, original, read_starts, reads, write_starts, writes, lies_in, looks_at, looked, main,
            final[self.outputs],
        )  # fmt: skip


def _rows(lists: Iterable[Sequence[int]]) -> tuple[Integers, Integers]:
    """Lists in compressed rows: (starts, items)."""
    rows = [np.asarray(items, np.int64) for items in lists]
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return starts, np.concatenate([np.zeros(0, np.int64), *rows])
