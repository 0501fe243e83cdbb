"""What a step takes in a sequence and with a residency, simulated without writing its Program.

The search for a way to hold a program within a limit (`girih.search.memory.holding`) judges many. A Program of each,
renamed, freed, accounted and priced, takes seconds where there are tens of thousands of steps; its rows for the
simulator follow from the columns of the first program (`girih.program.life.sequences`) in hundredths of that. The rows
are those that `girih.simulate.tasks.build` makes of the written Program, and so is the makespan, to the last bit (a
test compares them); what is chosen is written, accounted and simulated as a Program in the end.

One device alone, without exchanges.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from girih.layout import Mesh
from girih.machine import Machine
from girih.program.life.lifetimes import Lifetimes
from girih.program.life.sequences import Sequenced
from girih.program.moves.residency import STORAGE, Residency
from girih.program.moves.script_kernels import END_IN, END_OUT, IN, OUT, STEP, Script, script
from girih.program.table import NOBODY, Integers
from girih.search.memory.views_kernels import looked_again
from girih.simulate.columns import Column
from girih.simulate.kernels.workspace import Workspace
from girih.simulate.ports import ports_of
from girih.simulate.tasks import NO_ROW, POSTS, WAITS, PatternStore, TaskGraph
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
            self._releases(graph, np.repeat(incoming, counts), row_of[1, _after(plan, number[incoming])])
        return graph, kept

    def _lost(self, what: Integers, sizes: Integers) -> Ticks:
        """What the device loses to each copy, where it comes to its end."""
        lost = np.zeros(len(what), np.int64)
        for ends, out in ((END_IN, False), (END_OUT, True)):
            ending = what == ends
            different, which = np.unique(sizes[ending], return_inverse=True)
            lost[ending] = ports_of(self.machine).own(different, out)[which.reshape(-1)]
        return lost

    @staticmethod
    def _releases(graph: TaskGraph, waiting: Integers, ending: Integers) -> None:
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
