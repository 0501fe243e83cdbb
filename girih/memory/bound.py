"""A lower bound on the seconds of a step within a memory cap, for one order of steps.

Whatever is moved or computed again: what is alive beyond the cap is elsewhere while a step is computed. It was copied
out before, unless the large memory has it already, and it is copied in or computed again before it is touched next. The
least time that this takes is a linear programme, because a part of a storage may be elsewhere. All copies of one
direction follow each other, and so do all operators. And each of the fullest steps divides the time in two: what is
elsewhere there went out before it, and comes back behind it.

The bound holds for every plan with this order. It is a relaxation: it looks at few steps alone, counts of what is
computed again only the last operator, and lets copies begin in no time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from girih.lower.steps import BlockStep, ComputeStep
from girih.memory.lifetimes import Lifetimes

SAMPLES = 48  # steps whose memory is looked at
SPLITS = 3  # of them, those at which the time is divided


@dataclass(frozen=True)
class MemoryBound:
    """seconds: no step within the cap takes less. compute: of its operators alone. out_bytes, in_bytes: what the
    cheapest choice of the relaxation copies."""

    seconds: float
    compute: float
    out_bytes: float
    in_bytes: float


class _Gap(NamedTuple):
    """A time in which a storage is not touched: steps [begin, end).

    maker: the step that can make it again, or -1. changed: going out, it must be copied, unless the large memory has
    it. state: the old state that it is, or replaces, or -1. lasting: it is new state, until the next application.
    """

    storage: int
    begin: int
    end: int
    maker: int = -1
    changed: bool = True
    state: int = -1
    lasting: bool = False


def bound(
    lives: Lifetimes, cap: int, seconds: NDArray[np.float64], rates: tuple[float, float], recompute: bool = True
) -> MemoryBound:
    """seconds: of each step, on this device; 0 of exchanges. rates: bytes/s of copies out, and in; 0: there is no large
    memory. recompute: may what was dropped be computed again?

    Cost: a linear programme with a few variables for each storage that waits at one of the fullest steps.
    """
    compute = float(seconds.sum())
    used = lives.used[: len(lives.steps)]
    sampled = _fullest(used, cap)
    if not len(sampled):
        return MemoryBound(compute, compute, 0.0, 0.0)
    programme = _Programme(lives, cap, seconds, rates, recompute)
    waiting = [(gap, [step for step in sampled if gap.begin <= step < gap.end]) for gap in _gaps(lives)]
    programme.add([(gap, steps) for gap, steps in waiting if steps], sampled)
    return programme.solved(compute)


def _fullest(used: NDArray[np.int64], cap: int) -> list[int]:
    """The fullest step of each stretch of equal length, the fullest first; those that fit are left out."""
    edges = np.linspace(0, len(used), min(SAMPLES, len(used)) + 1).astype(int)
    tops = [int(low + used[low:high].argmax()) for low, high in pairwise(edges) if low < high]
    return sorted((step for step in tops if used[step] > cap), key=lambda step: -int(used[step]))


def _gaps(lives: Lifetimes) -> Iterator[_Gap]:
    """All times in which movable storages are not touched."""
    end = len(lives.steps)
    replaced, replaces = dict(lives.state), {new: old for old, new in lives.state}
    for number, item in enumerate(lives.storages):
        if not item.movable:
            continue
        old = number if number in replaced else -1
        computed = item.born >= 0 and isinstance(lives.steps[item.born], ComputeStep | BlockStep)
        maker = item.born if computed and not item.lasts else -1
        changed = replaced.get(number) != number  # tables and frozen parameters are read alone
        for before, after in pairwise([*item.touched, end] if item.lasts else item.touched):
            lasting = after == end and number in replaces
            state = replaces[number] if lasting else old
            if after > before + 1:
                yield _Gap(number, before + 1, after, maker, changed, state, lasting)


@dataclass
class _Programme:
    """A linear programme: minimise the variable 0, the seconds, under rows · variables ≤ limits.

    rows: (row, variable, factor). Variables are at least 0; parts, those from `first_part` on, at most 1.
    """

    lives: Lifetimes
    cap: int
    seconds: NDArray[np.float64]
    rates: tuple[float, float]
    recompute: bool
    cells: list[tuple[int, int, float]] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)
    uppers: list[float] = field(default_factory=lambda: [np.inf])
    costs: dict[int, tuple[float, float]] = field(default_factory=dict)  # by variable: bytes out, and in

    def variable(self, upper: float = 1.0) -> int:
        self.uppers.append(upper)
        return len(self.uppers) - 1

    def at_most(self, cells: list[tuple[int, float]], limit: float) -> None:
        """Sum of factor · variable ≤ limit."""
        self.cells += [(len(self.limits), variable, factor) for variable, factor in cells]
        self.limits.append(limit)

    def part_of(self, whole: int, upper: float = 1.0) -> int:
        """A new variable that is at most another."""
        part = self.variable(upper)
        self.at_most([(part, 1.0), (whole, -1.0)], 0.0)
        return part

    def add(self, waiting: list[tuple[_Gap, list[int]]], sampled: list[int]) -> None:
        able = 1.0 if min(self.rates) else 0.0
        sizes = [float(item.bytes) for item in self.lives.storages]
        elsewhere: dict[int, list[tuple[int, float]]] = {step: [] for step in sampled}
        moved, dropped = dict[_Gap, int](), dict[_Gap, int]()
        out, makers = dict[int, int](), dict[int, int]()  # variables by storage, and by step
        home: dict[int, int] = {}  # by old state, the part that lies in the large memory between applications
        coming: list[tuple[int, float]] = []
        for gap, steps in waiting:
            part = moved[gap] = self.variable(able)
            there: list[tuple[int, float]] = []  # less what the large memory has anyway
            if gap.state >= 0:
                if gap.state not in home:
                    home[gap.state] = self.variable(able)
                there = [(home[gap.state], -1.0)]
            if gap.changed:
                if gap.storage not in out:
                    out[gap.storage] = self.variable()
                self.at_most([(part, 1.0), (out[gap.storage], -1.0), *([] if gap.lasting else there)], 0.0)
            back = part
            if gap.lasting:
                back = self.variable()
                self.at_most([(part, 1.0), (back, -1.0), *there], 0.0)
            coming.append((back, sizes[gap.storage]))
            if self.recompute and gap.maker >= 0:
                if gap.maker not in makers:
                    makers[gap.maker] = self.variable()
                dropped[gap] = self.part_of(makers[gap.maker])
                self.at_most([(part, 1.0), (dropped[gap], 1.0)], 1.0)
            for step in steps:
                size = sizes[gap.storage]
                elsewhere[step] += [(part, -size)] + ([(dropped[gap], -size)] if gap in dropped else [])
        for step, cells in elsewhere.items():
            self.at_most(cells, float(self.cap - self.lives.used[step]))
        compute = float(self.seconds.sum())
        self.at_most([(0, -1.0), *((makers[maker], float(self.seconds[maker])) for maker in makers)], -compute)
        self.outgoing = [(variable, sizes[storage]) for storage, variable in out.items()]
        self.incoming = coming
        new = dict(self.lives.state)
        for old, part in home.items():  # what lies there comes in, and its new state goes out
            here = [variable for gap, variable in moved.items() if gap.storage == old and gap.begin == 0]
            self.at_most([(part, 1.0), *((variable, -1.0) for variable in here[:1])], 0.0 if here else 1.0)
            if new[old] != old and new[old] in out:
                self.at_most([(part, 1.0), (out[new[old]], -1.0)], 0.0)
        if able:
            for rate, cells in zip(self.rates, (self.outgoing, self.incoming), strict=True):
                self.at_most([(0, -1.0), *((variable, size / rate) for variable, size in cells)], 0.0)
        for step in sampled[:SPLITS]:
            self.split(step, {gap: part for gap, part in moved.items() if gap.begin <= step < gap.end}, dropped, sizes)

    def split(self, step: int, moved: dict[_Gap, int], dropped: dict[_Gap, int], sizes: list[float]) -> None:
        """The time before a step and that from it on: what is elsewhere there has gone, and has to come back."""
        before, behind = self.variable(np.inf), self.variable(np.inf)
        self.at_most([(before, 1.0), (behind, 1.0), (0, -1.0)], 0.0)
        self.at_most([(before, -1.0)], -float(self.seconds[:step].sum()))
        missing: list[tuple[int, float]] = []
        going, coming = [(before, -1.0)], [(behind, -1.0)]
        again: dict[int, int] = {}
        computing = [(behind, -1.0)]
        for gap, whole in moved.items():
            size = sizes[gap.storage]
            part = self.part_of(whole)
            missing.append((part, -size))
            if gap.changed and (gap.state < 0 or gap.lasting) and self.rates[0]:
                going.append((part, size / self.rates[0]))
            if not gap.lasting and self.rates[1]:
                coming.append((part, size / self.rates[1]))
            if gap in dropped:
                there = self.part_of(dropped[gap])
                missing.append((there, -size))
                if gap.maker not in again:
                    again[gap.maker] = self.variable()
                    computing.append((again[gap.maker], float(self.seconds[gap.maker])))
                self.at_most([(there, 1.0), (again[gap.maker], -1.0)], 0.0)
        self.at_most(missing, float(self.cap - self.lives.used[step]))
        self.at_most(going, 0.0)
        self.at_most(coming, 0.0)
        self.at_most(computing, -float(self.seconds[step:].sum()))

    def solved(self, compute: float) -> MemoryBound:
        rows, columns, factors = (np.asarray(column) for column in zip(*self.cells, strict=True))
        scale = max(float(self.lives.used.max()), 1.0)  # rows in bytes are divided, so that all factors are alike
        large = np.zeros(len(self.limits))
        np.maximum.at(large, rows, np.abs(factors))
        unit = np.where(large > 1e3, scale, 1.0)
        matrix = csr_array((factors / unit[rows], (rows, columns)), shape=(len(self.limits), len(self.uppers)))
        goal = np.zeros(len(self.uppers))
        goal[0] = 1.0
        found = linprog(goal, A_ub=matrix, b_ub=np.asarray(self.limits) / unit, method="highs",
                        bounds=np.stack([np.zeros(len(self.uppers)), self.uppers], axis=1))  # fmt: skip
        if found.x is None:  # no relaxed choice keeps the cap: then no plan does
            return MemoryBound(np.inf, compute, 0.0, 0.0)
        out, back = (
            sum(size * found.x[variable] for variable, size in cells) for cells in (self.outgoing, self.incoming)
        )
        return MemoryBound(max(float(found.fun), compute), compute, float(out), float(back))
