"""The loop that finds which views are looked at anew: those that are read behind a return of what they look at."""

from __future__ import annotations

import numpy as np

from girih.layout.compiled import compiled
from girih.program.life.sequences import Sequenced
from girih.program.moves.residency import COPIED, LAST, LASTS, STORAGE, Residency
from girih.program.moves.script_kernels import END_IN, OUT, STEP, Script
from girih.program.table import Integers


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
