"""Lifetimes of storages: when each is made, touched and freed on one device, with its bytes.

This is what searches under a memory cap work on. It follows from the same walk as the accounts of memory
(`girih.program.life.accounts`), so that what a search believes is what a run takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from girih.graph import Graph
from girih.ops.scratch import ScratchSource, at_most
from girih.program.life.accounts import MemoryUse, Tracker, begun
from girih.program.life.links import Links, rows
from girih.program.life.sequence_kernels import Facts, compressed
from girih.program.life.strides import Shape
from girih.program.life.touches import Touches
from girih.program.liveness import lasting
from girih.program.program import Program
from girih.program.steps import BlockStep, ComputeStep, FreeStep, MoveStep, StartStep, Step, TransferStep
from girih.program.table import BLOCKS, FETCH, FREE, NOBODY, START, STORE, Table, table_of


@dataclass(slots=True)
class Storage:
    """A run of memory, and the buffers that lie in it.

    name: of the buffer that was allocated with it. strides: of that buffer, in elements. touched: positions among the
    steps that are not frees, ascending; the first is where it is made, -1 for inputs of the program. buffers: all that
    ever lie in it. lasts: does it stay to the end of the program, as an output or as state? movable: may it leave the
    device and come back? Not what an exchange makes, and what has elements that the named buffer does not reach.
    """

    name: str
    bytes: int
    shape: Shape
    strides: Shape
    touched: list[int]
    buffers: list[str] = field(default_factory=list)
    lasts: bool = False
    movable: bool = False

    @property
    def born(self) -> int:
        return self.touched[0]

    @property
    def last(self) -> int:
        return self.touched[-1]


@dataclass(frozen=True, eq=False)
class Lifetimes:
    """All storages of one device, in the order in which they are made.

    steps: the device's steps but for frees. extra: bytes that each step holds beside the storages, such as scratch of
    kernels, [steps + 1]; the last entry is the worker's last act. Less than nothing where a result takes over the
    memory of an operand, since that ends, and the result begins, in this step. views: by buffer, the position of the
    step that makes it without memory of its own, and the buffer that it looks at. state: pairs of movable storages, old
    and new state; of state that nothing replaces twice the same. takers: by step, the storages of which its result may
    take over the first that ends there; taken: those that it does. sent_takers: where there are more of them, all that
    it might if neither they nor the result were sent to peers, as what is computed again is not. handed: storages that
    are copied in, and others whose memory they take once these are copied out, and how many bytes of it: (arriving,
    leaving, bytes). use: what the same walk tells of the device's memory; None where these lifetimes follow from
    others. known: their touches, where these were there before.
    """

    program: Program
    device: int
    steps: tuple[Step, ...]
    storages: Sequence[Storage]
    extra: NDArray[np.int64]
    views: dict[str, tuple[int, str]]
    state: tuple[tuple[int, int], ...] = ()
    takers: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    taken: Mapping[int, int] = field(default_factory=dict)
    sent_takers: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    handed: tuple[tuple[int, int, int], ...] = ()
    use: MemoryUse | None = None
    known: Touches | None = None

    @cached_property
    def touches(self) -> Touches:
        """Which step touches which storage, as columns. Cost: linear."""
        if self.known is not None:
            return self.known
        storages, steps = self.storages, len(self.steps)
        lengths = np.asarray([len(item.touched) for item in storages], np.int64)
        touched = np.concatenate([np.zeros(0, np.int64), *(np.asarray(item.touched, np.int64) for item in storages)])
        owner = np.repeat(np.arange(len(storages)), lengths)
        old, new = np.full((2, len(storages)), NOBODY, np.int64)
        for before, after in self.state:
            old[after], new[before] = before, after
        return Touches(
            *by_step(touched, owner, steps),
            np.concatenate([[0], np.cumsum(lengths)]),
            touched,
            np.asarray([item.bytes for item in storages], np.int64),
            np.asarray([item.movable for item in storages], np.bool_),
            np.asarray([item.lasts for item in storages], np.bool_),
            old,
            new,
            self.extra,
        )

    @cached_property
    def table(self) -> Table:
        """The steps as columns; buffers as `numbers` has them, then those that do not lie on this device."""
        return table_of(self.steps, self.numbers)[0]

    @cached_property
    def maker(self) -> Mapping[str, int]:
        """By buffer the step that makes it."""
        return {buffer: number for number, step in enumerate(self.steps) for buffer in step.targets}

    @cached_property
    def makers(self) -> tuple[tuple[int, ...], ...]:
        """The steps that make what each step reads, in the order of what it reads."""
        needing, needed = self.table.needs
        ends = np.cumsum(np.bincount(needing, minlength=len(self.steps))).tolist()
        made = needed.tolist()
        return tuple(tuple(made[begin:end]) for begin, end in pairwise([0, *ends]))

    @cached_property
    def begun(self) -> Mapping[int, int]:
        """By the step that ends a transfer, or a move, the one that starts it, where that is another."""
        starts = {step.transfer.target: number for number, step in enumerate(self.steps) if isinstance(step, StartStep)}
        return {
            number: starts[step.target]
            for number, step in enumerate(self.steps)
            if isinstance(step, TransferStep | MoveStep) and step.target in starts
        }

    @cached_property
    def needs(self) -> tuple[tuple[int, ...], ...]:
        """By step, ascending, the steps that make what it reads, and the start of its exchange."""
        return tuple(
            tuple(sorted({*makers, *([self.begun[number]] if number in self.begun else ())}))
            for number, makers in enumerate(self.makers)
        )

    @property
    def computes(self) -> NDArray[np.bool_]:
        """Does a step compute?"""
        return self.table.kind <= BLOCKS

    @property
    def repeats(self) -> NDArray[np.bool_]:
        """May a step come again, if what it makes does not stay: does it compute, or bring what other devices have? The
        start of a transfer comes with it."""
        return self.table.kind <= STORE

    @cached_property
    def remakes(self) -> NDArray[np.int64]:
        """By storage the step that makes it, and may make it again; NOBODY where none does."""
        born, table = self.touches.born, self.table
        remakes = np.where((born >= 0) & self.computes[np.maximum(born, 0)], born, NOBODY)
        ends = np.flatnonzero((table.kind == FETCH) | (table.kind == STORE))
        target = table.writes[table.write_starts[ends]]
        here = target < len(self.lies_in)
        brought = self.lies_in[target[here]]
        fresh = remakes[brought] == NOBODY
        remakes[brought[fresh]] = ends[here][fresh]
        return remakes

    @cached_property
    def operands(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(step, storage): the storages in which what each step reads lies, each once."""
        table, count = self.table, len(self.storages)
        here = table.reads < len(self.lies_in)
        step = np.repeat(np.arange(len(self.steps)), np.diff(table.read_starts))[here]
        pairs = np.unique(step * count + self.lies_in[table.reads[here]])
        return pairs // max(count, 1), pairs % max(count, 1)

    @cached_property
    def lies_in(self) -> NDArray[np.int64]:
        """The storage of each of the buffers that `numbers` has."""
        return np.repeat(np.arange(len(self.storages)), [len(item.buffers) for item in self.storages])

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The buffers, numbered storage by storage."""
        return {buffer: number for number, buffer in enumerate(name for item in self.storages for name in item.buffers)}

    @cached_property
    def outputs(self) -> NDArray[np.int64]:
        """The buffers that are read when the program has ended."""
        names = [item.name for item in self.program.graph.outputs]
        return np.asarray([self.numbers[name] for name in names if name in self.numbers], np.int64)

    @cached_property
    def facts(self) -> Facts:
        """What the steps do, whatever their sequence; of a program in its own order, in which each comes once."""
        steps, storages, numbers = self.steps, self.storages, self.numbers
        looks_at = np.full(len(numbers), NOBODY, np.int64)
        for buffer, (_, base) in self.views.items():
            looks_at[numbers[buffer]] = numbers[base]
        kept = lasting(self.program.graph)
        makes: list[list[int]] = [[] for _ in steps]
        for number, item in enumerate(storages):
            if item.born >= 0:
                makes[item.born].append(number)
        begun = [self.begun.get(number, NOBODY) for number in range(len(steps))]
        scratch = self.extra[:-1].copy()
        for step, operand in self.taken.items():
            scratch[step] += storages[operand].bytes
        return Facts(
            self.table,
            *compressed(makes),
            *compressed(map(self.all_takers, range(len(steps)))),
            self.lies_in,
            looks_at,
            np.asarray([buffer in kept for buffer in numbers], np.bool_),
            np.asarray([item.born == -1 for item in storages], np.bool_),
            np.asarray([numbers.get(item.name, NOBODY) for item in storages], np.int64),
            self.touches.bytes,
            scratch,
            np.asarray(begun, np.int64),
        )

    def all_takers(self, step: int) -> tuple[int, ...]:
        """The storages of which a step's result may take over the first that ends there, sent ones too."""
        return self.sent_takers.get(step) or self.takers.get(step, ())

    @cached_property
    def edges(self) -> NDArray[np.int64]:
        """[edges, 2]: (needed, needing) pairs of the program's steps but for frees, each once, ascending. An exchange
        needs the one before."""
        table = self.program.table
        number_of = np.cumsum(table.kind != FREE) - 1
        needing, needed = table.needs
        exchanges = np.flatnonzero((table.kind >= START) | (table.kind == FETCH) | (table.kind == STORE))
        pairs = np.stack([np.append(needed, exchanges[:-1]), np.append(needing, exchanges[1:])], axis=1)
        edges: NDArray[np.int64] = np.unique(number_of[pairs], axis=0)
        return edges

    @cached_property
    def links(self) -> Links:
        """Which step of the program needs which, and what it touches on this device, whatever their order; steps that
        other devices alone do touch nothing. Cost: linear."""
        program, storages, last = self.program, self.storages, len(self.steps)
        kept = [at for at, step in enumerate(program.steps) if not isinstance(step, FreeStep)]
        ordered = set(program.order_of(self.device)) if program.orders else None
        number_of = np.asarray([rank for rank, at in enumerate(kept) if ordered is None or at in ordered], np.int64)
        count, edges = len(kept), self.edges
        named = [{*step.sources, *step.targets} for step in self.steps]
        pairs = []
        for number, storage in enumerate(storages):
            names = set(storage.buffers)
            mine = [at for at in storage.touched if 0 <= at < last]
            for at in mine:  # while an exchange is under way, it touches its storages in steps that others do
                own = not names.isdisjoint(named[at]) if names else at in (mine[0], mine[-1])
                if own or (at == mine[0] and storage.born >= 0):
                    pairs.append((int(number_of[at]), number))
        touch = np.asarray(sorted(pairs), np.int64).reshape(-1, 2)
        extra = np.zeros(count, np.int64)
        extra[number_of] = self.extra[:last]
        for at, ending in self.taken.items():
            extra[number_of[at]] += storages[ending].bytes
        takes = [self.takers.get(at, ()) for at in range(last)]
        taking = np.zeros(count, np.int64)
        taking[number_of] = [len(row) for row in takes]
        sizes, given, lasts = self.touches.bytes, self.touches.born < 0, self.touches.lasts
        return Links(
            *rows(edges[:, 0], edges[:, 1], count),
            *rows(edges[:, 1], edges[:, 0], count),
            *rows(touch[:, 0], touch[:, 1], count),
            *rows(touch[:, 1], touch[:, 0], len(sizes)),
            sizes,
            np.bincount(touch[:, 1], minlength=len(sizes)).astype(np.int64),
            given,
            lasts,
            extra,
            np.append(0, np.cumsum(taking)),
            np.asarray([item for row in takes for item in row], np.int64),
            max(int(sizes[given].sum()), int(sizes[lasts].sum() + self.extra[-1])),
        )

    @property
    def used(self) -> NDArray[np.int64]:
        """Bytes in use in each step if nothing is moved: [steps + 1]."""
        return self.touches.used


def by_step(
    touched: NDArray[np.int64], owner: NDArray[np.int64], steps: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(starts, storages of each step) of touches in the order of their storages; the last act has none."""
    real = touched >= 0
    at, item = touched[real], owner[real]
    starts = np.concatenate([[0], np.cumsum(np.bincount(at, minlength=steps + 1))])
    return starts, item[np.argsort(at, kind="stable")]


class _Recorder(Tracker):
    """The walk of the accounts, which notes storages."""

    def begin(self) -> None:
        self.known: dict[int, Storage] = {}
        self.at_step = -1
        self.views: dict[str, tuple[int, str]] = {}
        self.takers: dict[int, list[int]] = {}
        self.all_takers: dict[int, list[int]] = {}
        self.handed: list[tuple[str, int, int]] = []
        self.exchanging: dict[str, list[int]] = {}  # storages between which an exchange is under way, by its target
        for buffer, held in self.buffers.items():
            self.known[held.storage] = Storage(
                buffer, self.sizes[held.storage], held.shape, held.strides, [-1], [buffer]
            )

    def storage(self, name: str, size: int) -> int:
        number = super().storage(name, size)
        if hasattr(self, "known"):
            self.known[number] = Storage(name, size, (), (), [self.at_step])
        return number

    def allocate(self, buffer: str, shape: Shape | None = None, strides: Shape | None = None) -> None:
        super().allocate(buffer, shape, strides)
        if hasattr(self, "known"):
            held = self.buffers[buffer]
            item = self.known[held.storage]
            item.shape, item.strides = held.shape, held.strides
            item.buffers.append(buffer)

    def alias(self, buffer: str, base: str, shape: Shape, strides: Shape) -> None:
        super().alias(buffer, base, shape, strides)
        self.known[self.buffers[buffer].storage].buffers.append(buffer)
        self.views[buffer] = (self.at_step, base)

    def may_take(self, target: str, storage: int, sent: bool) -> None:
        self.all_takers.setdefault(self.at_step, []).append(storage)
        if not sent:
            self.takers.setdefault(self.at_step, []).append(storage)

    def hand_over(self, storage: int, target: str, taken: int) -> None:
        self.handed.append((target, storage, taken))

    def touch(self, step: Step) -> None:
        for buffer in (*step.sources, *step.targets):
            if buffer in self.buffers:
                touched = self.known[self.buffers[buffer].storage].touched
                if touched[-1] != self.at_step:
                    touched.append(self.at_step)
        if isinstance(step, StartStep) and isinstance(step.transfer, TransferStep):
            transfer = step.transfer
            ends = [self.buffers[name].storage for name in (transfer.source, transfer.target) if name in self.buffers]
            self.exchanging[transfer.target] = ends
        pinned = [storage for storages in self.exchanging.values() for storage in storages]
        if isinstance(step, TransferStep):
            self.exchanging.pop(step.target, None)
        for storage in (*self.underway.values(), *self.moving.values(), *pinned):
            touched = self.known[storage].touched
            if touched[-1] != self.at_step:
                touched.append(self.at_step)


def lifetimes(program: Program, device: int = 0, threads: int = 0, scratch: ScratchSource = at_most) -> Lifetimes:
    """The storages of one device in one run of the program. threads, scratch: as of `memory_use`. Cost: linear."""
    recorder = begun(program, device, threads, scratch, _Recorder)
    recorder.begin()
    state_bytes = recorder.state_bytes
    steps: list[Step] = []
    extra: list[int] = []
    taken: dict[int, int] = {}
    for step in program.steps_of(device):
        if isinstance(step, FreeStep):
            recorder.step(step)
            continue
        recorder.at_step = len(steps)
        recorder.most = 0
        reading = [recorder.buffers[name].storage if name in recorder.buffers else 0 for name in step.sources]
        messages = recorder.underway.get(step.target, 0) if isinstance(step, TransferStep) else 0
        staged = recorder.sizes.get(messages, 0)
        recorder.step(step)
        recorder.touch(step)
        for storage in filter(None, (*reading, messages)):  # an exchange that ends has let them go
            touched = recorder.known[storage].touched
            if touched[-1] != recorder.at_step:
                touched.append(recorder.at_step)
        steps.append(step)
        extra.append(max(0, recorder.most - recorder.now - staged))
        if isinstance(step, ComputeStep) and step.writes[0] in recorder.taken:
            taken[recorder.at_step] = reading[recorder.taken[step.writes[0]]]
            extra[-1] -= recorder.sizes[recorder.buffers[step.writes[0]].storage]
    staying = {held.storage for held in recorder.buffers.values()}  # nobody frees inputs that nobody reads
    before = recorder.now
    recorder.at_step, recorder.most = len(steps), recorder.now
    recorder.settle()
    extra.append(max(0, recorder.most - before))
    storages = [item for item in recorder.known.values() if item.born < len(steps)]
    number_of = {id(item): number for number, item in enumerate(storages)}
    numbers = {buffer: number for number, item in enumerate(storages) for buffer in item.buffers}
    handed = [
        (numbers[target], number_of[id(recorder.known[storage])], amount) for target, storage, amount in recorder.handed
    ]
    makers = {buffer: step for step in steps for buffer in step.targets}
    inputs = {item.name for item in program.graph.inputs}
    for number, item in recorder.known.items():
        item.lasts = number in staying
        made_here = item.name in inputs or isinstance(makers.get(item.name), ComputeStep | BlockStep)
        full = prod(item.shape) * recorder.item_bytes(item.name) == item.bytes if item.buffers else False
        item.movable = made_here and full and item.bytes > 0
    state = _state(program.graph, storages)
    entering = {number for number, item in enumerate(storages) if item.born == -1 and item.lasts}
    for number in entering - {number for pair in state for number in pair}:
        storages[number].movable = False  # it would have to come back under its own name
    place = {number: index for index, number in enumerate(recorder.known)}  # those left out are the last
    return Lifetimes(
        program,
        device,
        tuple(steps),
        tuple(storages),
        np.asarray(extra, np.int64),
        recorder.views,
        state,
        {step: tuple(place[number] for number in numbers) for step, numbers in recorder.takers.items()},
        {step: place[number] for step, number in taken.items()},
        {
            step: tuple(place[number] for number in numbers)
            for step, numbers in recorder.all_takers.items()
            if len(numbers) > len(recorder.takers.get(step, ()))
        },
        tuple(handed),
        MemoryUse(device, state_bytes, recorder.peak, recorder.at, recorder.largest),
    )


def unlike(program: Program, devices: Sequence[int]) -> list[int]:
    """Those of the devices whose parts differ in shape, the first of each kind."""
    places = {id(place): place for place in program.places.values()}
    shapes = [np.diff(place.regions[list(devices)], axis=-1)[..., 0] for place in places.values()]
    _, first = np.unique(np.concatenate(shapes, axis=1), axis=0, return_index=True)
    return [devices[number] for number in sorted(first)]


def widest(lives: Sequence[Lifetimes]) -> Lifetimes:
    """The lifetimes of the first of several devices that do the same with parts of unlike sizes, with the largest part
    of each storage.

    What keeps a cap for these sizes keeps it on every device. Where one device has the largest part of every storage,
    they are its own. Where devices do not have the same storages, those of the fullest one. `use` is known of one
    device alone.
    """
    first = lives[0]
    alike = all(
        [(item.name, item.touched) for item in other.storages] == [(item.name, item.touched) for item in first.storages]
        for other in lives[1:]
    )
    if not alike:
        return replace(max(lives, key=lambda item: int(item.used.max())), use=None)
    storages = tuple(
        replace(items[0], bytes=max(item.bytes for item in items), movable=all(item.movable for item in items))
        for items in zip(*(item.storages for item in lives), strict=True)
    )
    pairs = tuple(pair for pair in first.state if all(storages[number].movable for number in pair))
    most, needed = np.max([item.touches.bytes for item in lives], axis=0), [item.touches.working for item in lives]
    for item, own in zip(lives, needed, strict=True):
        if item.state == pairs and (item.touches.bytes == most).all() and (own == np.max(needed, axis=0)).all():
            return item
    extra = np.max([item.extra for item in lives], axis=0)
    return replace(first, storages=storages, extra=extra, state=pairs, use=None, known=None)


def _state(graph: Graph, storages: Sequence[Storage]) -> tuple[tuple[int, int], ...]:
    """The pairs of old and new state. Left out is what cannot be moved, and what has more than one meaning, as new
    state that the step returns too."""
    number_of = {buffer: number for number, item in enumerate(storages) for buffer in item.buffers}
    named = [(item.name, graph.updates.get(item.name, item.name)) for item in graph.state_inputs]
    named = [pair for pair in named if all(name in number_of for name in pair)]
    pairs = [(number_of[old], number_of[new]) for old, new in named]
    uses = Counter(number for pair in pairs for number in set(pair))
    uses.update(number_of[item.name] for item in graph.outputs if item.replaces is None and item.name in number_of)
    good = {number for number, count in uses.items() if count == 1 and storages[number].movable}
    return tuple(
        pair
        for pair, names in zip(pairs, named, strict=True)
        if good.issuperset(pair) and names == tuple(storages[number].name for number in pair)
    )
