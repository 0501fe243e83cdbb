"""What a step takes in a sequence and with a residency, simulated without writing its Program.

The search for a way to hold a program within a limit (`girih.search.memory.holding`) judges many. A Program of each,
renamed, freed, accounted and priced, takes seconds where there are tens of thousands of steps; its rows for the
simulator follow from the columns of the first program (`girih.program.life.sequences`) in hundredths of that. The rows
are those that `girih.simulate.tasks.build` makes of the written Program, and so is the makespan, to the last bit (a
test compares them); what is chosen is written, accounted and simulated as a Program in the end.

`HeldSteps` is of one device alone, without exchanges; `HeldRows` of several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from girih.cost.prices import Prices
from girih.layout import Mesh
from girih.layout.compiled import compiled
from girih.machine import Machine
from girih.ops.known import descriptions
from girih.program import ComputeStep, FreeStep
from girih.program.life.lifetimes import Lifetimes
from girih.program.life.sequences import Sequenced
from girih.program.moves.residency import COPIED, LAST, LASTS, STORAGE, Residency
from girih.program.moves.script_kernels import END_IN, END_OUT, IN, OUT, STEP, Script, script
from girih.program.table import NOBODY, Integers
from girih.simulate.columns import Column
from girih.simulate.kernels.workspace import Workspace
from girih.simulate.ports import ports_of
from girih.simulate.tasks import NO_ROW, POSTS, WAITS, PatternStore, TaskGraph, build
from girih.simulate.ticks import TICKS_PER_SECOND, Ticks, ticks


class Simulated(NamedTuple):
    """seconds: of the step. host_bytes: the most in the large memory. clock: seconds when each step begins, and the
    end of the last, behind what the device waits for."""

    seconds: float
    host_bytes: int
    clock: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class HeldSteps:
    """Judges sequences of one program on one machine. lives: in its own. cap: bytes. seconds: of each step."""

    lives: Lifetimes
    machine: Machine
    cap: int
    seconds: NDArray[np.float64]

    @cached_property
    def ticks(self) -> Ticks:
        return ticks(self.seconds)

    @cached_property
    def store(self) -> PatternStore:
        """The patterns of all copies, which the sequences share."""
        return PatternStore(Mesh(()), ports_of(self.machine), "messages")

    def simulated(self, item: Sequenced, held: Residency | None = None) -> Simulated:
        """held: the residency; None where nothing moves."""
        if held is None:
            ends = np.append(0, np.cumsum(self.ticks[item.sequence])) / TICKS_PER_SECOND
            return Simulated(float(ends[-1]), 0, ends)
        plan = script(held.rows, item.touches.bytes, item.touches.extra, self.cap)
        rows, events = self._rows(item, held, plan)
        workspace = Workspace(rows)
        seconds = workspace.simulate_all() / TICKS_PER_SECOND
        before = np.searchsorted(events, np.flatnonzero(plan.events[:, 0] == STEP))  # rows before each step
        clock = np.append(0, workspace.work.done[: len(events), 0])[before] / TICKS_PER_SECOND
        return Simulated(seconds, _host_bytes(item, held, plan), clock)

    def _rows(self, item: Sequenced, held: Residency, plan: Script) -> tuple[TaskGraph, Integers]:
        """The rows, and the events of the script that they are."""
        what, number = plan.events.T
        stays = held.rows
        own = np.append(self.ticks[item.sequence], 0)
        looked = item.table.maker[item.looks_at != NOBODY]
        if own[looked].any():
            own = own + looked_again(item, held, plan, own)
        works = what == STEP
        kept = np.flatnonzero(~works | (own[np.where(works, number, 0)] > 0))
        what, number, works = what[kept], number[kept], works[kept]
        starts = (what == IN) | (what == OUT)
        kind = np.where(works, 0, np.where(starts, POSTS, WAITS)).astype(np.int8)
        store = self.store
        pattern = np.full(len(kept), NO_ROW, np.int32)
        waits = np.where(what == IN, (plan.after_to - plan.after_from)[np.where(starts, number, 0)], 0)
        sizes = item.touches.bytes[stays[np.where(works, 0, number), STORAGE]]
        moves = np.column_stack([sizes, what == OUT, waits])[starts]
        ranked = np.lexsort(moves.T[::-1])
        fresh = np.append(True, (moves[ranked[1:]] != moves[ranked[:-1]]).any(axis=1))[: len(ranked)]
        which = np.empty(len(ranked), np.int64)
        which[ranked] = np.cumsum(fresh) - 1
        numbers = np.asarray(
            [
                store.number_of_move(np.asarray([size]), bool(out), after)
                for size, out, after in moves[ranked[fresh]].tolist()
            ],
            np.int32,
        )
        pattern[starts] = numbers[which]
        before = np.where(works, own[np.where(works, number, 0)], self._lost(what, sizes))
        row_of = np.full((2, len(stays)), NO_ROW, np.int64)  # the start of each stay's copy, in and out
        partner = np.arange(len(kept), dtype=np.int32)
        for way, (begins, ends) in enumerate(((IN, END_IN), (OUT, END_OUT))):
            row_of[way, number[what == begins]] = np.flatnonzero(what == begins)
            ending = np.flatnonzero(what == ends)
            partner[ending] = row_of[way, number[ending]]
            partner[partner[ending]] = ending
        graph = TaskGraph.of(store, kind, pattern, partner, before[:, None], np.zeros((len(kept), 1), np.int64))
        incoming = np.flatnonzero(what == IN)
        counts = (plan.after_to - plan.after_from)[number[incoming]]
        if counts.sum():
            _release(graph, np.repeat(incoming, counts), row_of[1, _after(plan, number[incoming])])
        return graph, kept

    def _lost(self, what: Integers, sizes: Integers) -> Ticks:
        """What the device loses to each copy, where it comes to its end."""
        lost = np.zeros(len(what), np.int64)
        for ends, out in ((END_IN, False), (END_OUT, True)):
            ending = what == ends
            different, which = np.unique(sizes[ending], return_inverse=True)
            lost[ending] = ports_of(self.machine).own(different, out)[which.reshape(-1)]
        return lost


def _release(graph: TaskGraph, waiting: Integers, ending: Integers) -> None:
    """Rows that wait for the ends of others' copies; of one copy the last one first, as `TaskGraph.add` has it."""
    entries = np.arange(len(waiting))
    ranked = np.lexsort((entries, ending))
    following = np.full(len(waiting), NO_ROW, np.int64)
    same = ending[ranked[1:]] == ending[ranked[:-1]]
    following[ranked[1:][same]] = ranked[:-1][same]
    graph.releases = Column(np.int32, width=(2,))
    graph.releases.extend(np.column_stack([waiting, following]).astype(np.int32))
    graph.columns["release"].array[ending[ranked]] = ranked  # the last of each is written last


def _after(plan: Script, stays: Integers) -> Integers:
    """The stays for whose copies out those of some stays wait, one behind the other."""
    begins, ends = plan.after_from[stays], plan.after_to[stays]
    counts = ends - begins
    offsets = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    found: Integers = plan.after[np.repeat(begins, counts) + offsets]
    return found


def _host_bytes(item: Sequenced, held: Residency, plan: Script) -> int:
    """As `girih.program.life.accounts.host_bytes` counts them."""
    stays, touches = held.rows, item.touches
    what, number = plan.events.T
    storage, count = stays[:, STORAGE], len(touches.bytes)
    out, back = np.full(count, len(what)), np.full(count, -1)
    at_out, at_in = np.flatnonzero(what == OUT), np.flatnonzero(what == END_IN)
    out[storage[number[at_out]]] = at_out
    back[storage[number[at_in]]] = at_in  # the last
    home_of = held.at_home(count)
    old = np.flatnonzero(home_of & (touches.new >= 0))
    new = touches.new[old]
    over = (out[new] < len(what)) & (back[old] < out[new]) & (back[new] < 0)  # it may overwrite the old
    home = int(touches.bytes[old].sum() + touches.bytes[new[(new != old) & ~over]].sum())
    passing = np.flatnonzero((out < len(what)) & ~home_of)
    change = np.zeros(len(what) + 2, np.int64)
    np.add.at(change, out[passing], touches.bytes[passing])
    np.add.at(change, np.maximum(back[passing], out[passing]) + 1, -touches.bytes[passing])
    return home + int(np.cumsum(change).max(initial=0))


class HeldRows:
    """Judges sequences of one program of several devices, which all go through its steps in one order.

    The rows of its steps are built once; those of a sequence, and of a residency in it, consist of these, with those of
    the copies between them.

    lives: of the program with everything on the devices, in its own sequence. cap: bytes. plain: do
    all devices take the same steps? able: may tensors be moved, too? Not where a view takes time, which movements have
    looked at anew.
    """

    def __init__(self, lives: Lifetimes, prices: Prices, machine: Machine, cap: int) -> None:
        self.lives, self.cap = lives, cap
        program = self.program = lives.program
        graph = build(program, prices, machine)
        self.store, self.devices = graph.store, graph.devices
        places = [at for at, step in enumerate(program.steps) if not isinstance(step, FreeStep)]
        row_at = dict(zip(graph.step.array[graph.order].tolist(), graph.order.tolist(), strict=True))
        self.row = [row_at.get(at, NO_ROW) for at in places]
        kind, pattern, partner = (graph.columns[name].array.tolist() for name in ("kind", "pattern", "partner"))
        self.kind, self.pattern, self.partner = kind, pattern, partner
        self.before, self.after = graph.columns["before"].array, graph.columns["after"].array
        self.amounts: dict[str, Integers] = {}  # by storage, bytes of it on each device
        known = descriptions(program.graph)
        self.plain = not program.orders and not program.host
        self.able = self.plain and not any(
            isinstance(program.steps[at], ComputeStep)
            and row != NO_ROW
            and (description := known[program.steps[at].node]) is not None
            and description.operator.view
            for at, row in zip(places, self.row, strict=True)
        )

    def simulated(
        self, sequence: Sequence[int], where: Lifetimes | Sequenced | None = None, held: Residency | None = None
    ) -> Simulated:
        """where: the lifetimes in the sequence, or its columns. held: the residency there; None where nothing moves.
        Not `host_bytes`, which is 0."""
        walk: list[list[int]] = [[STEP, number] for number in range(len(sequence))]
        after: list[list[int]] = []
        storages: list[str] = []
        if held is not None:
            assert where is not None
            touches, names = where.touches, self._names(where)
            plan = script(held.rows, touches.bytes, touches.extra, self.cap)
            ends = zip(plan.after_from.tolist(), plan.after_to.tolist(), strict=True)
            walk, after = plan.events.tolist(), [plan.after[begin:end].tolist() for begin, end in ends]
            storages = [names[number] for number in held.rows[:, STORAGE].tolist()]
        nothing = np.zeros(self.devices, np.int64)
        kinds: list[int] = []
        patterns: list[int] = []
        partners: list[int] = []
        befores: list[Ticks] = []
        afters: list[Ticks] = []
        steps: list[int] = []  # rows before each step
        under_way: dict[tuple[int, int], int] = {}
        released: list[tuple[int, int]] = []
        for what, number in walk:
            at = begun = len(kinds)
            if what == STEP:
                steps.append(at)
                row = self.row[sequence[number]] if number < len(sequence) else NO_ROW
                if row == NO_ROW:
                    continue
                kind, pattern, before, last = self.kind[row], self.pattern[row], self.before[row], self.after[row]
                if kind == POSTS:
                    under_way[what, row] = at
                elif kind == WAITS:
                    begun = under_way[what, self.partner[row]]
            else:
                out, before, last = what in (OUT, END_OUT), nothing, nothing
                amounts = self._amounts(storages[number])
                if what in (IN, OUT):
                    waits = [] if out else after[number]
                    released += [(under_way[OUT, other], at) for other in waits]
                    kind, pattern = POSTS, self.store.number_of_move(amounts, out, len(waits))
                    under_way[what, number] = at
                else:
                    kind, pattern, before = WAITS, NO_ROW, self.store.ports.own(amounts, out)
                    begun = under_way[OUT if out else IN, number]
            kinds.append(kind)
            patterns.append(pattern)
            partners.append(begun)
            partners[begun] = at
            befores.append(before)
            afters.append(last)
        graph = TaskGraph.of(
            self.store,
            np.asarray(kinds, np.int8),
            np.asarray(patterns, np.int32),
            np.asarray(partners, np.int32),
            np.asarray(befores, np.int64).reshape(-1, self.devices),
            np.asarray(afters, np.int64).reshape(-1, self.devices),
        )
        if released:
            ending, waiting = np.asarray(released, np.int64).T
            _release(graph, waiting, ending)
        workspace = Workspace(graph)
        seconds = workspace.simulate_all() / TICKS_PER_SECOND
        done = np.append(0, workspace.work.done[: len(kinds)].min(axis=1)) / TICKS_PER_SECOND
        return Simulated(seconds, 0, np.append(done[steps], seconds)[: len(sequence) + 1])

    def _names(self, where: Lifetimes | Sequenced) -> list[str]:
        """For each storage the buffer of the plain program for which it was made. Where a step comes again, its result
        `x~1` counts as `x`."""
        if isinstance(where, Sequenced):
            names = [item.name for item in self.lives.storages]
            return [names[number] for number in where.original.tolist()]
        places = self.program.places
        return [item.name if item.name in places else item.name.rpartition("~")[0] for item in where.storages]

    def _amounts(self, storage: str) -> Integers:
        """Bytes of a storage on each device."""
        if storage not in self.amounts:
            program = self.program
            regions, item = program.places[storage].regions, program.graph.values[program.value_of[storage]].item_bytes
            self.amounts[storage] = np.maximum(regions[..., 1] - regions[..., 0], 0).prod(axis=-1) * item
        return self.amounts[storage]


def looked_again(item: Sequenced, held: Residency, script: Script, costs: Integers) -> Integers:
    """What the views cost that are made anew for each step, and at the end: [steps + 1]. costs: of each step."""
    stays = held.rows
    plain = np.flatnonzero((stays[:, LASTS] == 0) & (stays[:, COPIED] == 0) & (stays[:, LAST] >= 0))
    plain = plain[np.argsort(stays[plain, LAST], kind="stable")]
    steps = len(item.sequence)
    ends = np.concatenate([[0], np.cumsum(np.bincount(stays[plain, LAST], minlength=steps))])
    by_storage = np.argsort(item.lies_in, kind="stable")
    starts = np.searchsorted(item.lies_in[by_storage], np.arange(len(item.main) + 1))
    results = item.results[~held.at_home(len(item.main))[item.lies_in[item.results]]]
    again: Integers = _again(
        script.events, stays, ends, plain, starts, by_storage, item.table, item.looks_at, item.table.maker, item.main,
        results, costs,
    )  # fmt: skip
    return again


@compiled(lambda events, *_: 5.0 * len(events))
def _again(  # type: ignore[no-untyped-def]
    events, stays, ends, ending, starts, inside, table, looks_at, maker, main, results, costs
):  # fmt: skip
    """ends, ending: the stays that end with each step without a copy; starts, inside: the buffers of each storage."""
    count = len(table.kind)
    total = np.zeros(count + 1, np.int64)
    known = np.zeros(len(looks_at), np.bool_)  # can it be read?
    known[main[main >= 0]] = True  # of inputs; others are written before they are read
    for at in range(len(events)):
        what, number = events[at, 0], events[at, 1]
        if what == STEP:
            begin, end = (
                (table.read_starts[number], table.read_starts[number + 1]) if number < count else (0, len(results))
            )
            for place in range(begin, end):
                buffer = table.reads[place] if number < count else results[place]
                while not known[buffer]:
                    known[buffer] = True
                    total[number] += costs[maker[buffer]]
                    buffer = looks_at[buffer]
            if number == count:
                continue
            for place in range(table.write_starts[number], table.write_starts[number + 1]):
                known[table.writes[place]] = True
            for place in range(ends[number], ends[number + 1]):
                storage = stays[ending[place], STORAGE]
                for entry in range(starts[storage], starts[storage + 1]):
                    known[inside[entry]] = False
        elif what == OUT:
            storage = stays[number, STORAGE]
            for entry in range(starts[storage], starts[storage + 1]):
                known[inside[entry]] = False
        elif what == END_IN:
            known[main[stays[number, STORAGE]]] = True
    return total
