"""A program's steps and storages as arrays, from which the lifetimes in any other sequence follow at once.

Searches under a cap try many sequences of one program: other orders, and such in which steps come again
(`girih.memory.again`). What a step reads and makes, how long its results are and what scratch it takes does not depend
on the sequence; when storages are made, touched and freed does, and so which operand's memory a result takes over. All
of that is worked out on arrays here, to the byte as the walk of the accounts does it (`girih.memory.lifetimes`; a test
compares both). Programs of one device alone, without exchanges and moves.

Cost: linear in what the steps read and make.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from girih.lower.fusion.block_memory import LoopBytes
from girih.lower.liveness import lasting, reads_of, writes_of
from girih.lower.program import Program
from girih.lower.steps import BlockStep, ComputeStep, FreeStep
from girih.lower.strides import contiguous_strides
from girih.memory.compact.outline_kernels import Facts, sequenced
from girih.memory.compact.residency_kernels import NOBODY, Integers, Touches
from girih.memory.lifetimes import Lifetimes, Storage


@dataclass(frozen=True, eq=False)
class Sequenced:
    """A program in a sequence. sequence: of each position the step, as the outline numbers them. touches: of its
    storages, numbered as `lifetimes` of the sequenced program numbers them. original: of each storage the one of the
    outline that it is, for the first time or again. read_starts, reads, write_starts, writes: buffers of each position;
    a buffer that comes again is another one. lies_in: of each buffer its storage. looks_at, looked: of a buffer that is
    a view, the buffer that it looks at and the position that makes it, else NOBODY. main: of each storage, the buffer
    that is its own, NOBODY where it has none. results: the buffers that are read when the program has ended. taken: of
    each position the storage whose memory its result takes over. copy_of, made_at: of each buffer the one of the
    outline that it is, and the position that makes it."""

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
    taken: Integers
    copy_of: Integers
    made_at: Integers

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
    """What does not change with the sequence. lives: in the program's own. numbers: of the buffers, by name. facts:
    arrays of the steps. count: of the steps. bytes, movable: of each storage. state: pairs of storages, old and new.
    last_act: bytes of the worker's last act. outputs: buffers."""

    lives: Lifetimes
    numbers: Mapping[str, int]
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
            lives,
            numbers,
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
        return self._sequenced(self.facts, order)

    def blocked(self, loops: Sequence[tuple[BlockStep, LoopBytes]], order: Integers) -> Touches | None:
        """The touches of the program with loops over blocks in the place of some of its steps.

        Only the rows of the loops are new; whatever else the steps do stays as it is. None where it would not: a loop
        writes what is a view in the program, or lies in another order of elements, so that steps which read it take
        other memory than before. order: of the steps that are left and, numbered behind all steps, the loops.
        """
        facts, lives, numbers = self.facts, self.lives, self.numbers
        reads: list[list[int]] = []
        writes: list[list[int]] = []
        makes: list[list[int]] = []
        extra: list[int] = []
        for block, memory in loops:
            written = [numbers[name] for name in block.writes]
            for buffer in written:
                item = lives.storages[facts.lies_in[buffer]]
                if facts.main[facts.lies_in[buffer]] != buffer or item.strides != contiguous_strides(item.shape):
                    return None
            sums = [int(facts.lies_in[numbers[name]]) for name in block.writes if name in memory.sums]
            others = [int(facts.lies_in[numbers[name]]) for name in block.writes if name not in memory.sums]
            reads.append([numbers[name] for name in block.reads])
            writes.append(written)
            makes.append([*others, *sums])
            extra.append(max(memory.peak - int(self.bytes[sums].sum()), memory.after, 0))
        made = np.zeros(len(self.bytes), np.bool_)  # by a loop: no other step may take over its memory
        made[[storage for row in makes for storage in row]] = True
        left = ~made[facts.takes]
        counts = np.append(0, np.cumsum(left))[facts.take_starts]
        read = _behind(facts.read_starts, facts.reads, reads)
        write = _behind(facts.write_starts, facts.writes, writes)
        make = _behind(facts.make_starts, facts.makes, makes)
        rows = facts._replace(
            take_starts=np.append(counts, np.full(len(loops), counts[-1])),
            takes=facts.takes[left],
            scratch=np.append(facts.scratch, np.asarray(extra, np.int64)),
            read_starts=read[0], reads=read[1],
            write_starts=write[0], writes=write[1],
            make_starts=make[0], makes=make[1],
        )  # fmt: skip
        return self._sequenced(rows, order).touches

    def _sequenced(self, facts: Facts, order: Integers) -> Sequenced:
        (original, read_starts, reads, write_starts, writes, lies_in, looks_at, looked, main, final, owner, at, lasts,
         extra, taken, copy_of, made_at) = sequenced(facts, order)  # fmt: skip
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
            final[self.outputs], taken, copy_of, made_at,
        )  # fmt: skip

    def lifetimes(self, item: Sequenced, program: Program | None = None) -> Lifetimes:
        """The lifetimes of the sequenced program, as its own walk tells them. program: written in that sequence; None
        where nothing comes again, and the order alone matters."""
        lives = self.lives
        times = np.zeros(self.count, np.int64)  # that each step has come
        time: list[int] = []
        for step in item.sequence.tolist():
            time.append(int(times[step]))
            times[step] += 1
        names = [buffer for storage in lives.storages for buffer in storage.buffers]

        def name(base: str, position: int) -> str:
            return f"{base}~{time[position]}" if position >= 0 and time[position] else base

        buffers = [name(names[b], at) for b, at in zip(item.copy_of.tolist(), item.made_at.tolist(), strict=True)]
        inside: list[list[str]] = [[] for _ in item.original]
        for buffer, storage in zip(buffers, item.lies_in.tolist(), strict=True):
            inside[storage].append(buffer)
        touches, storages = item.touches, []
        spans = np.split(touches.steps, touches.starts[1:-1])
        flags = zip(item.original.tolist(), spans, inside, touches.lasts.tolist(), strict=True)
        for number, touched, own, lasts in flags:
            base = lives.storages[number]
            label = name(base.name, int(touched[0]))
            storages.append(
                Storage(label, base.bytes, base.shape, base.strides, touched.tolist(), own, lasts, base.movable)
            )
        steps = tuple(lives.steps[step] for step in item.sequence.tolist())
        if program is not None:
            steps = tuple(step for step in program.steps if not isinstance(step, FreeStep))
        seen = np.flatnonzero(item.looks_at >= 0).tolist()
        views = {buffers[at]: (int(item.looked[at]), buffers[item.looks_at[at]]) for at in seen}
        state = tuple((before, int(touches.new[before])) for before in self._in_order(item))
        takes = {
            at: row
            for at, step in enumerate(item.sequence.tolist())
            if step in lives.takers and (row := tuple(self._takers(item, at, step)))
        }
        taken = {at: int(item.taken[at]) for at in np.flatnonzero(item.taken >= 0).tolist()}
        return Lifetimes(
            program or lives.program, lives.device, steps, tuple(storages), touches.extra, views, state, takes, taken
        )

    def _in_order(self, item: Sequenced) -> list[int]:
        """The old state of the outline's pairs, in their order: inputs, which are numbered alike."""
        place = np.zeros(len(self.bytes), np.int64)
        place[item.original] = np.arange(len(item.original))
        return [int(place[old]) for old in self.state[:, 0].tolist()]

    def _takers(self, item: Sequenced, at: int, step: int) -> Iterator[int]:
        read = item.lies_in[item.reads[item.read_starts[at] : item.read_starts[at + 1]]]
        for storage in self.lives.takers[step]:
            yield int(next(number for number in read.tolist() if item.original[number] == storage))


def _rows(lists: Iterable[Sequence[int]]) -> tuple[Integers, Integers]:
    """Lists in compressed rows: (starts, items)."""
    rows = [np.asarray(items, np.int64) for items in lists]
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return starts, np.concatenate([np.zeros(0, np.int64), *rows])


def _behind(starts: Integers, items: Integers, lists: Iterable[Sequence[int]]) -> tuple[Integers, Integers]:
    """Compressed rows with further ones behind them."""
    more_starts, more = _rows(lists)
    return np.concatenate([starts, starts[-1] + more_starts[1:]]), np.concatenate([items, more])
