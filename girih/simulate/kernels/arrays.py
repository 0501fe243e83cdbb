"""The flat arrays on which the compiled simulation works, and how it is compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from girih.layout.compiled import compiled, inside

# Nothing is allocated in the loops. Without counting references to arrays, which Numba does at each use of a tuple's
# field, they are five times as fast. Who changes one of the files of kernels: Numba's cache on disk knows a function by
# its own file alone, so that those who call it from another file stay as they were until that is saved anew too.
COMPILED = inside(_nrt=False)


def _turns(order: Numbers, *arguments: Any) -> float:
    work: Work = arguments[-1]
    return 20.0 * (len(order) * len(work.at) + len(work.start))


WHOLE = compiled(_turns, _nrt=False)
"""Compiles the functions that are called from outside."""

POSTS, WAITS = 1, 2  # bits of a row's kind
TASK_BITS = 24  # of the numbers that order lines: position of the row, then the task in its pattern

Ints = NDArray[np.int64]
Numbers = NDArray[np.int32]
Flags = NDArray[np.uint8]


class Pool(NamedTuple):
    """All patterns one behind the other; `*_at`: where each begins. Other arrays as in `girih.simulate.patterns`."""

    task_at: Ints
    gate_at: Ints
    first_at: Ints
    link_at: Ints
    egress: Numbers
    ingress: Numbers
    duration: Ints
    delay: Ints
    sender: Numbers
    receiver: Numbers
    first: Numbers
    members: Numbers
    gates: Numbers
    offsets: Numbers  # [patterns, devices + 1]
    waits: Numbers  # [patterns, devices]


class Rows(NamedTuple):
    """What devices do, by row; the order of rows is kept apart.

    kind: POSTS, WAITS, both or neither. partner: of a row that posts the one that waits, and the other way round; the
    row itself if it does both. task_at, gate_at: where the tasks and gates of a posting row begin. release: of a row
    whose copies others wait for, the first of its entries in `releases`, [row that waits, next entry or -1].
    before, after: ticks [rows, devices].
    """

    kind: NDArray[np.int8]
    pattern: Numbers
    partner: Numbers
    task_at: Ints
    gate_at: Ints
    release: Numbers
    before: Ints
    after: Ints
    releases: Numbers


class Past(NamedTuple):
    """A schedule. done: when each device has done with each row [rows, devices]; start: of each task. In ticks from
    the row's `base`."""

    done: Ints
    start: Ints
    base: Ints


class Work(NamedTuple):
    """Room for a simulation.

    By row: position: in the order. touched: the row's times are here; else they are the past's, moved by `shift`.
    fresh: the row has no past. completed: how many devices have done with it. By row and device: done; left: for how
    many tasks the device still waits; latest: when the last of those that have begun ends.

    By task: start; begun; follow: the next task of a run that is queued as one event. By gate: gate_left: how many
    have not posted; gate_latest: when the last of the others did.

    line: where tasks that wait stand: who is before and behind on both sides, at which port, and what the place depends
    on (see below). spare: stands that were left.

    By device: at: the position at which it waits, since `clock`; current: where it is at a moment. By position: shift.

    By port: free: from when on; first, last: the ends of its line; hint: who came last; seen: when last looked at;
    active: those to look at.
    outward: is it a port out? events: a heap of [time, number]; choices: one of [number, stand]. scalars: see below.
    """

    position: Numbers
    touched: Flags
    fresh: Flags
    completed: Numbers
    done: Ints
    left: Numbers
    latest: Ints
    start: Ints
    begun: Flags
    follow: Numbers
    gate_left: Numbers
    gate_latest: Ints
    at: Numbers
    clock: Ints
    current: Numbers
    shift: Ints
    line: Numbers
    spare: Numbers
    free: Ints
    first: Numbers
    last: Numbers
    hint: Numbers
    active: Numbers
    seen: Ints
    outward: Flags
    events: Ints
    choices: Ints
    scalars: Ints


# Of a stand in line: on the side OUT, and on the side IN, which is BEHIND it, which BEFORE, and the PORT; the POSITION
# of the task's row, and which TASK of its pattern it is.
OUT, IN = 0, 1
BEHIND, BEFORE, PORT = 0, 2, 4
POSITION, TASK = 6, 7
LINE = 8

# Scalars: lengths of the two heaps, of the list of active ports, and of the spare stands; how many stands there are;
# highest touched position; newest position that all devices have passed; statistics: tasks begun, rows run (on each
# device), restorations.
EVENTS, CHOICES, ACTIVE, SPARE, STANDS, HIGH, NEWEST, BEGUN, RAN, RESTORED = range(10)
SCALARS = 10
