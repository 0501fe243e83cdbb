"""A program's steps and storages as arrays, from which the lifetimes in any other sequence follow at once.

Searches under a cap try many sequences of one program: other orders, and such in which steps come again
(`girih.program.again`). What a step reads and makes, how long its results are and what scratch it takes does not depend
on the sequence; when storages are made, touched and freed does, and so which operand's memory a result takes over. All
of that is worked out on arrays here, to the byte as the walk of the accounts does it (`girih.program.life.lifetimes`; a
test compares both). Programs in which all devices take the same steps, without moves; what exchanges hold is what they
hold on the device of these lifetimes.

Cost: linear in what the steps read and make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import overload

import numpy as np
from numpy.typing import NDArray

from girih.program.fusion.block_memory import LoopBytes
from girih.program.life.accounts import MESSAGES
from girih.program.life.lifetimes import Lifetimes, Storage
from girih.program.life.sequence_kernels import Facts, compressed
from girih.program.life.sequence_kernels import sequenced as kernel
from girih.program.life.strides import contiguous_strides
from girih.program.life.touches import Touches
from girih.program.program import Program
from girih.program.steps import BlockStep, ComputeStep, FreeStep
from girih.program.table import BLOCKS, NOBODY, Integers, Table


@dataclass(frozen=True, eq=False)
class Sequenced:
    """A program in a sequence, as columns.

    sequence: of each position the step, by its number in the program's own sequence. table: of the steps in this
    sequence; a buffer that comes again is another one. touches: of its storages, numbered as `lifetimes` of the
    sequenced program numbers them. original: of each storage its number in the program's own sequence; what comes again
    has the same. lies_in: of each buffer its storage. looks_at: of a buffer that is a view, the buffer that it looks
    at, else NOBODY. main: of each storage, the buffer that is its own, NOBODY where it has none. results: the buffers
    that are read when the program has ended. taken: of each position the storage whose memory its result takes over.
    copy_of: of each buffer its number in the program's own sequence. sent: do peers look at it?
    """

    sequence: Integers
    table: Table
    touches: Touches
    original: Integers
    lies_in: Integers
    looks_at: Integers
    main: Integers
    results: Integers
    taken: Integers
    copy_of: Integers
    sent: NDArray[np.bool_]


def able(lives: Lifetimes) -> bool:
    """Do lifetimes in other sequences follow from these: one device, which computes and nothing else?"""
    program = lives.program
    plain = all(isinstance(step, ComputeStep | BlockStep) for step in lives.steps)
    return plain and program.mesh.devices == 1 and not program.orders and not program.host


def follow(lives: Lifetimes) -> bool:
    """Do lifetimes in other sequences follow from these, on their device: all take the same steps, nothing moves, and
    all that they touch lies there? Of several devices they have to be of one, not the largest of unlike ones."""
    program = lives.program
    alone = not program.orders and not program.host and not program.stealing
    return alone and lives.use is not None and lives.table.buffers == len(lives.numbers)


def sequenced(lives: Lifetimes, sequence: Sequence[int] | None) -> Sequenced:
    """The program in a sequence in which every step comes before what reads its results; None: in its own."""
    order = np.arange(len(lives.steps)) if sequence is None else np.asarray(sequence, np.int64)
    return _sequenced(lives, lives.facts, order)


def blocked(lives: Lifetimes, loops: Sequence[tuple[BlockStep, LoopBytes]], order: Integers) -> Touches | None:
    """The touches of the program with loops over blocks in the place of some of its steps.

    Only the rows of the loops are new; whatever else the steps do stays as it is. None where it would not: a loop
    writes what is a view in the program, or lies in another order of elements, so that steps which read it take
    other memory than before. order: of the steps that are left and, numbered behind all steps, the loops.
    """
    facts, numbers, sizes = lives.facts, lives.numbers, lives.touches.bytes
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
        extra.append(max(memory.peak - int(sizes[sums].sum()), memory.after, 0))
    made = np.zeros(len(sizes), np.bool_)  # by a loop: no other step may take over its memory
    made[[storage for row in makes for storage in row]] = True
    left = ~made[facts.takes]
    counts = np.append(0, np.cumsum(left))[facts.take_starts]
    table = facts.table
    read = _behind(table.read_starts, table.reads, reads)
    write = _behind(table.write_starts, table.writes, writes)
    make = _behind(facts.make_starts, facts.makes, makes)
    rows = facts._replace(
        table=Table(
            np.append(table.kind, np.full(len(loops), BLOCKS, np.uint8)),
            np.append(table.node, [block.node for block, _ in loops]),
            *read,
            *write,
            table.buffers,
        ),
        take_starts=np.append(counts, np.full(len(loops), counts[-1])),
        takes=facts.takes[left],
        scratch=np.append(facts.scratch, np.asarray(extra, np.int64)),
        make_starts=make[0], makes=make[1],
        begun=np.append(facts.begun, np.full(len(loops), NOBODY)),
    )  # fmt: skip
    return _sequenced(lives, rows, order).touches


def _sequenced(lives: Lifetimes, facts: Facts, order: Integers) -> Sequenced:
    plain = lives.touches
    (original, read_starts, reads, write_starts, writes, lies_in, looks_at, main, final, owner, at, lasts, extra, taken,
     copy_of, sent) = kernel(facts, order)  # fmt: skip
    steps = facts.table
    table = Table(steps.kind[order], steps.node[order], read_starts, reads, write_starts, writes, len(lies_in))
    count = len(original)
    ranked = np.argsort(owner, kind="stable")
    old, new = np.full((2, count), NOBODY, np.int64)
    current = np.zeros(len(plain.bytes), np.int64)
    current[original] = np.arange(count)  # of what comes again the last; of new state there is one
    before, after = current[np.asarray(lives.state, np.int64).reshape(-1, 2)].T
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
        plain.bytes[original],
        plain.movable[original],
        lasts,
        old,
        new,
        np.append(extra, lives.extra[-1]),
    )
    results = final[lives.outputs]
    return Sequenced(order, table, touches, original, lies_in, looks_at, main, results, taken, copy_of, sent)


class _Views(Sequence[Storage]):
    """Storages of a sequenced program, which are made of its columns when they are asked for: searches look at many
    sequences by their columns alone."""

    def __init__(self, lives: Lifetimes, item: Sequenced, buffers: Sequence[str], name: Callable[[str, int], str]):
        self.parts = lives, item, buffers, name

    @cached_property
    def storages(self) -> tuple[Storage, ...]:
        lives, item, buffers, name = self.parts
        inside: list[list[str]] = [[] for _ in item.original]
        for buffer, storage in zip(buffers, item.lies_in.tolist(), strict=True):
            inside[storage].append(buffer)
        touched, spans = item.touches.steps.tolist(), pairwise(item.touches.starts.tolist())
        bases = map(lives.storages.__getitem__, item.original.tolist())
        return tuple(
            Storage(name(base.name, touched[low]), base.bytes, base.shape, base.strides, touched[low:high], own, lasts,
                    base.movable)
            for base, (low, high), own, lasts in zip(bases, spans, inside, item.touches.lasts.tolist(), strict=True)
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.parts[1].original)

    @overload
    def __getitem__(self, at: int) -> Storage: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Storage]: ...
    def __getitem__(self, at: int | slice) -> Storage | Sequence[Storage]:
        return self.storages[at]

    def __iter__(self) -> Iterator[Storage]:
        return iter(self.storages)


def lifetimes_in(lives: Lifetimes, item: Sequenced, program: Program | None = None) -> Lifetimes:
    """The lifetimes of the sequenced program, as its own walk tells them. program: written in that sequence; None
    where nothing comes again, and the order alone matters."""
    times = np.zeros(len(lives.steps), np.int64)  # that each step has come
    time: list[int] = []
    for step in item.sequence.tolist():
        time.append(int(times[step]))
        times[step] += 1
    names = list(lives.numbers)

    def name(base: str, position: int) -> str:
        if position < 0 or not time[position]:
            return base
        target = base.removesuffix(MESSAGES)
        return f"{target}~{time[position]}{base[len(target) :]}"

    maker = item.table.maker.tolist()
    buffers = [names[buffer] for buffer in item.copy_of.tolist()]
    if len(time) > len(lives.steps):  # some come again
        buffers = list(map(name, buffers, maker))
    steps = tuple(lives.steps[step] for step in item.sequence.tolist())
    if program is not None:
        steps = tuple(step for step in program.steps if not isinstance(step, FreeStep))
    seen = np.flatnonzero(item.looks_at >= 0).tolist()
    views = {buffers[at]: (maker[at], buffers[item.looks_at[at]]) for at in seen}
    touches = item.touches
    state = tuple((before, int(touches.new[before])) for before in _in_order(lives, item))
    takes, sent_takes = _takers(lives, item)
    taken = {at: int(item.taken[at]) for at in np.flatnonzero(item.taken >= 0).tolist()}
    return Lifetimes(
        program or lives.program, lives.device, steps, _Views(lives, item, buffers, name), touches.extra, views, state,
        takes, taken, sent_takes, known=touches,
    )  # fmt: skip


def _takers(lives: Lifetimes, item: Sequenced) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]:
    """`Lifetimes.takers` and `Lifetimes.sent_takers` of the sequenced program."""
    reads, starts, writes = item.table.reads.tolist(), item.table.read_starts.tolist(), item.table.write_starts
    lies, origin, sent = item.lies_in.tolist(), item.original.tolist(), item.sent.tolist()
    target = item.table.writes[np.minimum(writes[:-1], len(item.table.writes) - 1)].tolist()
    takes: dict[int, tuple[int, ...]] = {}
    every: dict[int, tuple[int, ...]] = {}
    for at, step in enumerate(item.sequence.tolist()):
        if not (wanted := lives.all_takers(step)):
            continue
        found = [
            next(buffer for buffer in reads[starts[at] : starts[at + 1]] if origin[lies[buffer]] == storage)
            for storage in wanted
        ]
        here = tuple(lies[buffer] for buffer in found if not (sent[buffer] or sent[target[at]]))
        if here:
            takes[at] = here
        if len(here) < len(found):
            every[at] = tuple(lies[buffer] for buffer in found)
    return takes, every


def _in_order(lives: Lifetimes, item: Sequenced) -> list[int]:
    """The old state of the pairs of the program's own sequence, in their order: inputs, which are numbered alike."""
    place = np.zeros(len(lives.storages), np.int64)
    place[item.original] = np.arange(len(item.original))
    return [int(place[old]) for old, _ in lives.state]


def _behind(starts: Integers, items: Integers, lists: Iterable[Sequence[int]]) -> tuple[Integers, Integers]:
    """Compressed rows with further ones behind them."""
    more_starts, more = compressed(lists)
    return np.concatenate([starts, starts[-1] + more_starts[1:]]), np.concatenate([items, more])
