"""The steps of a program as a graph on flat arrays, with the storages that each touches: what searches of orders walk.

Which step needs which follows from the buffers alone, since each is made once. A storage is alive from its maker to the
last step that touches it, whatever the order; so one scan of an order tells the bytes in use in each step, and the
peak, exactly as the accounts of memory do (`girih.program.life.accounts`).

Exchanges between devices keep their order, because peers match messages by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from girih.layout.compiled import compiled, inside
from girih.program.life.lifetimes import Lifetimes
from girih.program.liveness import reads_of, writes_of
from girih.program.steps import FreeStep, StartStep, Step, TransferStep

Integers = NDArray[np.int64]


class Links(NamedTuple):
    """Arrays of the steps (numbered as captured, without frees) and of the storages of one device.

    Lists are in compressed rows: those of x are `items[starts[x] : starts[x + 1]]`. after, before: steps that need a
    step, and that it needs. touched, touchers: storages of a step, and steps of a storage. bytes, uses: of a storage;
    uses is the number of its touchers. given: is it there before the first step? lasts: behind the last one? extra:
    bytes that a step holds beside its storages. takes: the storages of which a step's result takes over the first that
    ends with this step. backwards: is time reversed, so that ends are beginnings?
    """

    after_starts: Integers
    after: Integers
    before_starts: Integers
    before: Integers
    touched_starts: Integers
    touched: Integers
    toucher_starts: Integers
    touchers: Integers
    bytes: Integers
    uses: Integers
    given: NDArray[np.bool_]
    lasts: NDArray[np.bool_]
    extra: Integers
    takes_starts: Integers
    takes: Integers
    backwards: bool


@dataclass(frozen=True, eq=False)
class StepGraph:
    """A program's steps but for frees, and what one device holds in them.

    ends: the most bytes before the first step and behind the last one, which no order changes.
    """

    steps: tuple[Step, ...]
    links: Links
    ends: int

    @property
    def captured(self) -> Integers:
        """The order that the program has."""
        return np.arange(len(self.steps))

    def used(self, order: Integers) -> Integers:
        """Bytes in use in each step of an order: [steps]."""
        used: Integers = scanned(self.links, order)
        return used

    def peak(self, order: Integers) -> int:
        """The most bytes in use at any time, in bytes."""
        return max(self.ends, int(self.used(order).max(initial=0)))


def step_graph(lives: Lifetimes) -> StepGraph:
    """The graph of all steps of a program, with the bytes of the device of these lifetimes. Cost: linear."""
    program = lives.program
    steps = tuple(step for step in program.steps if not isinstance(step, FreeStep))
    ordered = set(program.order_of(lives.device)) if program.orders else None
    kept = [at for at, step in enumerate(program.steps) if not isinstance(step, FreeStep)]
    number_of = np.asarray([rank for rank, at in enumerate(kept) if ordered is None or at in ordered], np.int64)
    edges = _dependencies(steps)
    pairs = []
    for number, storage in enumerate(lives.storages):
        names = set(storage.buffers)
        mine = [at for at in storage.touched if 0 <= at < len(lives.steps)]
        first, last = (mine[0], mine[-1]) if mine else (-1, -1)
        for at in mine:  # while an exchange is under way, it touches its storages in steps that others do
            step = lives.steps[at]
            own = names.intersection((*reads_of(step), *writes_of(step))) if names else at in (first, last)
            if own or (at == first and storage.born >= 0):
                pairs.append((int(number_of[at]), number))
    touch = np.asarray(sorted(pairs), np.int64).reshape(-1, 2)
    extra = np.zeros(len(steps), np.int64)
    extra[number_of] = lives.extra[: len(lives.steps)]
    for at, ending in lives.taken.items():
        extra[number_of[at]] += lives.storages[ending].bytes
    takes = sorted(
        (int(number_of[at]), rank, item) for at, row in lives.takers.items() for rank, item in enumerate(row)
    )
    sizes = np.asarray([item.bytes for item in lives.storages], np.int64)
    given = np.asarray([item.born < 0 for item in lives.storages], np.bool_)
    lasts = np.asarray([item.lasts for item in lives.storages], np.bool_)
    links = Links(
        *_rows(edges[:, 0], edges[:, 1], len(steps)),
        *_rows(edges[:, 1], edges[:, 0], len(steps)),
        *_rows(touch[:, 0], touch[:, 1], len(steps)),
        *_rows(touch[:, 1], touch[:, 0], len(sizes)),
        sizes,
        np.bincount(touch[:, 1], minlength=len(sizes)).astype(np.int64),
        given,
        lasts,
        extra,
        np.searchsorted([at for at, _, _ in takes], np.arange(len(steps) + 1)),
        np.asarray([item for _, _, item in takes], np.int64),
        False,
    )
    ends = max(int(sizes[given].sum()), int(sizes[lasts].sum() + lives.extra[-1]))
    return StepGraph(steps, links, ends)


def _dependencies(steps: tuple[Step, ...]) -> Integers:
    """(needed, needing) pairs of steps, each once."""
    makers = {buffer: number for number, step in enumerate(steps) for buffer in writes_of(step)}
    edges = {(makers[name], number) for number, step in enumerate(steps) for name in reads_of(step) if name in makers}
    exchanges = [number for number, step in enumerate(steps) if isinstance(step, TransferStep | StartStep)]
    edges.update(pairwise(exchanges))
    return np.asarray(sorted(edges), np.int64).reshape(-1, 2)


def _rows(of: Integers, items: Integers, count: int) -> tuple[Integers, Integers]:
    """Compressed rows: (starts, items), in the order of the items within each row."""
    order = np.lexsort((items, of))
    starts = np.concatenate([[0], np.cumsum(np.bincount(of, minlength=count))]).astype(np.int64)
    return starts, items[order]


def reversed_links(links: Links) -> Links:
    """The same in reversed time: what a step needs and what needs it change places, and so do beginning and end. An
    order and its reverse use the same bytes."""
    return links._replace(
        after_starts=links.before_starts,
        after=links.before,
        before_starts=links.after_starts,
        before=links.after,
        given=links.lasts,
        lasts=links.given,
        backwards=not links.backwards,
    )


def is_topological(links: Links, order: Integers) -> bool:
    """Does the order have every step once, behind all that it needs?"""
    count = len(links.after_starts) - 1
    if not np.array_equal(np.sort(order), np.arange(count)):
        return False
    position = np.empty(count, np.int64)
    position[order] = np.arange(count)
    needing = np.repeat(np.arange(count), np.diff(links.before_starts))
    return bool((position[links.before] < position[needing]).all())


@compiled(lambda links, order: len(links.touched) + len(order))
def scanned(links, order):  # type: ignore[no-untyped-def]
    """Bytes in use in each step of an order: [steps]."""
    left = links.uses.copy()
    used = np.empty(len(order), np.int64)
    now = begun_bytes(links)
    for at in range(len(order)):
        step = order[at]
        now, most = done(links, left, now, step)
        used[at] = most
    return used


@inside()
def begun_bytes(links):  # type: ignore[no-untyped-def]
    """Bytes before the first step."""
    now = 0
    for storage in range(len(links.bytes)):
        if links.given[storage]:
            now += links.bytes[storage]
    return now


@inside()
def done(links, left, now, step):  # type: ignore[no-untyped-def]
    """A step is done: (bytes behind it, bytes during it). left: touches to come of each storage, which is updated."""
    low, high = links.touched_starts[step], links.touched_starts[step + 1]
    for at in range(low, high):
        storage = links.touched[at]
        if left[storage] == links.uses[storage] and not links.given[storage]:
            now += links.bytes[storage]
    most = now + links.extra[step] - taken_bytes(links, left, step)
    for at in range(low, high):
        storage = links.touched[at]
        left[storage] -= 1
        if left[storage] == 0 and not links.lasts[storage]:
            now -= links.bytes[storage]
    return now, most


@inside()
def taken_bytes(links, left, step):  # type: ignore[no-untyped-def]
    """Bytes that a step's result takes over. left: touches to come of each storage, before the step is done."""
    for at in range(links.takes_starts[step], links.takes_starts[step + 1]):
        storage = links.takes[at]
        if links.backwards:
            ends = left[storage] == links.uses[storage] and not links.given[storage]
        else:
            ends = left[storage] == 1 and not links.lasts[storage]
        if ends:
            return links.bytes[storage]
    return 0


@inside()
def undone(links, left, step):  # type: ignore[no-untyped-def]
    """The touches of the step that was done last are to come again."""
    for at in range(links.touched_starts[step], links.touched_starts[step + 1]):
        left[links.touched[at]] += 1
