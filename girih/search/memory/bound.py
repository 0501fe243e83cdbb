"""A lower bound on the seconds of a step within a memory cap, whatever is moved, or dropped and computed again.

For a given order of steps. Between two touches of a storage by steps lies a *gap*: there it may be off the device. In
each step what is in use less what is off the device has to be within the cap. Relaxed, any part of a storage may be off
the device in any gap; then the least time is a linear program:

    minimise T  such that   used[t] - sum of what is off the device in gaps around t <= cap    for each step t
                            T >= computing + computing again + s · copying,   T >= copying out,   T >= copying in

where s is the share of its computing that the device loses to a copy (0 where an engine of its own copies), and:

- A gap of a storage that is needed again costs a copy in.
- A storage is copied out once at most: after that it has a copy in the large memory, and leaves without copying. Of
  state that nothing replaces there is a copy from the beginning.
- State wraps around: from the last touch of the new state to the first touch of the old state in the next application
  is one gap, and both share one copy.
- Dropped and computed again costs the step that made it, shared by its results in proportion to their bytes, because
  one run makes all of them. What a transfer has brought costs nothing to bring again: links are not counted here.
- A step that only makes a view of a storage is not counted as a touch: views can be made anew where they are read.
- Some of the fullest steps divide the time in two, and T is the sum of both parts: what is away there went out before
  and comes back behind, what belongs to gaps that have ended came back before, and so on. What is away there lies in
  the large memory, or was dropped: no more than that holds.

Solved by HiGHS. Constraints are written for a sample of the steps (any subset is a valid relaxation), refined by those
that the solution violates. Rows are differences between one sampled step and the next, so that a gap has two entries
however long it is. What is alike is one variable, which changes no optimum: gaps between the same sampled steps with
the same prices, values whose gaps are alike, and, where a step divides the time, what is away there at the same prices.
Two seconds for 50,000 gaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from girih.machine.machine import Tier
from girih.program.life.lifetimes import Lifetimes

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]

SAMPLE = 256  # steps at first
ROUNDS = 5  # of refinement
MOST_ADDED = 64  # steps in each
SPLITS = 3  # steps that divide the time
BYTES_MATTER = 1e-5  # of copying in the objective, so that of the fastest solutions one with few bytes is taken
TOLERANCE = 1e-6  # of the solver, relative


class BoundError(RuntimeError):
    """The solver has failed; the message is its own."""


@dataclass(frozen=True)
class MemoryBound:
    """No step is shorter than `seconds`, under the same prices; infinite where nothing keeps the cap. compute: seconds
    of computing, nothing computed again.

    out_bytes, in_bytes: what is copied in the relaxed optimum. busiest: what takes longest there, one of `compute`,
    `copy out`, `copy in`.
    """

    seconds: float
    compute: float
    out_bytes: int
    in_bytes: int
    busiest: str


def memory_bound(
    lives: Lifetimes,
    cap: int,
    seconds: Sequence[float] | Floats,
    host: Tier | None,
    *,
    recompute: bool = False,
    splits: int = SPLITS,
) -> MemoryBound:
    """The bound for the steps in their order. seconds: of each step. host: None where nothing can be moved. recompute:
    may storages be dropped and computed again? splits: how many steps divide the time; with 0 it is as if all copies
    could run at any time.

    Raises:
        BoundError: the solver fails.
    """
    prices, used = np.asarray(seconds, np.float64), lives.used
    compute = float(prices.sum())
    bound = MemoryBound(compute, compute, 0, 0, "compute")
    own, room = (0.0, np.inf) if host is None else (host.computing_share, float(host.memory_bytes))
    over = np.flatnonzero(used > cap)
    if not len(over):
        return bound
    gaps = _Gaps(lives, prices, host, recompute)
    sampled = np.unique([part[used[part].argmax()] for part in np.array_split(over, min(SAMPLE, len(over)))])
    clock = np.append(0.0, np.cumsum(prices))

    def solved(splits: int) -> tuple[MemoryBound, Floats]:
        columns = gaps.columns(sampled)
        need = (used[sampled] - cap).astype(np.float64)
        bound, share = _solved(columns, need, clock[sampled], compute, own, splits, room)
        return bound, used - gaps.away(columns, share) - cap

    for _ in range(1 + ROUNDS):
        bound, left = solved(0)
        if bound.seconds == np.inf:
            return bound
        violated = np.flatnonzero(left > TOLERANCE * cap)
        runs = np.split(violated, np.flatnonzero(np.diff(violated) > 1) + 1)
        fullest = np.asarray([run[left[run].argmax()] for run in runs if len(run)], np.int64)
        added = np.setdiff1d(fullest[np.argsort(-left[fullest], kind="stable")[:MOST_ADDED]], sampled)
        if not len(added):
            break
        sampled = np.union1d(sampled, added)
    return solved(splits)[0] if splits else bound


# ------------------------------------------------------------------------------------------------------ gaps


class _Gap(NamedTuple):
    """storage: its number. spans: of steps (first, last) in which it may be away; of a gap around the end of the
    application both sides. value: the number of the storage whose copy in the large memory it shares. back: is it
    needed again? made: is the value made, or given, in the application in which the gap begins? around: is it around
    the end? moves: may it be copied? again: may it be computed again?"""

    storage: int
    spans: tuple[tuple[int, int], ...]
    value: int
    back: bool = True
    made: bool = True
    around: bool = False
    moves: bool = True
    again: bool = False


def _gaps(lives: Lifetimes) -> Iterator[_Gap]:
    """The gaps of all storages that may be moved or computed again."""
    end = len(lives.steps)
    partner = dict(lives.state)
    old_of = {new: old for old, new in lives.state}
    looks = {position for position, _ in lives.views.values()}
    uses: list[list[int]] = []  # of each storage, the steps that touch it and do not only look
    for item in lives.storages:
        inner = [step for step in item.touched[1:-1] if step not in looks]
        uses.append([item.born, *inner, *([item.last] if len(item.touched) > 1 else [])])
    for number, item in enumerate(lives.storages):
        again = lives.remakes[number] >= 0
        if not item.movable and not again:
            continue
        touched, value = uses[number], old_of.get(number, number)
        if number in partner:
            touched = touched[1:]  # what is before the first use belongs to the gap around the end
        elif item.lasts and number not in old_of:
            touched = [*touched, end]
        for before, after in pairwise(touched):
            if after - before > 1:
                span = before + 1, after - 1
                yield _Gap(number, (span,), value, made=number not in partner, moves=item.movable, again=again)
        if number in partner and partner[number] != number and item.lasts:  # it is replaced
            span = touched[-1] + 1 if touched else 0, end
            yield _Gap(number, (span,), len(lives.storages), back=False, made=False)
        if number in old_of:
            first = next(iter(uses[value][1:]), None)
            spans = ((touched[-1] + 1 if touched else 0, end), (0, (first or 0) - 1))
            yield _Gap(number, spans, value, back=first is not None, around=True)


@dataclass(frozen=True, eq=False)
class _Columns:
    """Gaps that are away in the same sampled steps at the same prices, as one, if those that they share a copy out with
    are alike too: [columns].

    rows: [columns, 2, 2] of two spans, the first sampled step and that behind the last. bytes: of all. out, back,
    again: seconds for each byte of copying out and in, and of computing again; infinite where that cannot be. made,
    around: as of `_Gap`. value: of gaps that share a copy out with others, its number among such values, else -1.
    shared: seconds for each byte of copying these values out. born: the first sampled step behind that which makes
    them. column: of each gap its column, -1 where it is away in no sampled step.
    """

    rows: Whole
    bytes: Floats
    out: Floats
    back: Floats
    again: Floats
    made: Flags
    around: Flags
    value: Whole
    shared: Floats
    born: Whole
    column: Whole

    @property
    def movable(self) -> Flags:
        return np.isfinite(self.back)

    @property
    def able(self) -> Flags:
        return np.isfinite(self.again)


class _Gaps:
    """All gaps as arrays: storage, bytes, seconds of a copy in and of computing again (infinite: it cannot be), value,
    and whether it is made in the application. out: for each value, seconds of a copy out. spans: [gaps, 2, 2] of first
    and last step; (0, -1) where there is no other."""

    def __init__(self, lives: Lifetimes, seconds: Floats, host: Tier | None, recompute: bool) -> None:
        gaps = list(_gaps(lives))
        nothing_replaces = {old for old, new in lives.state if old == new}
        made = np.zeros(len(lives.steps))  # bytes that each step makes
        for item in lives.storages:
            if item.born >= 0:
                made[item.born] += item.bytes
        again = np.asarray(
            [seconds[item.born] * item.bytes / max(made[item.born], 1) if item.born >= 0 else 0.0
             for item in lives.storages]
        )  # fmt: skip
        out, back = (
            np.asarray([np.inf if host is None else host.copy_seconds(item.bytes, way) for item in lives.storages])
            for way in (True, False)
        )
        out[list(nothing_replaces)] = 0.0
        self.steps = len(lives.steps)
        self.storage = np.asarray([gap.storage for gap in gaps], np.int64)
        self.value = np.asarray([gap.value for gap in gaps], np.int64)
        self.bytes = np.asarray([item.bytes for item in lives.storages], np.float64)[self.storage]
        self.out = np.append(out, 0.0)  # the last is no storage: what is replaced leaves for nothing
        new_of = dict(lives.state)
        self.born = np.asarray([lives.storages[new_of.get(number, number)].born for number in range(len(out))])
        moves = np.asarray([gap.moves and host is not None for gap in gaps], bool)
        needed = np.asarray([gap.back for gap in gaps], bool)
        self.back = np.where(moves, np.where(needed, back[self.storage], 0.0), np.inf)
        self.again = np.where([recompute and gap.again for gap in gaps], again[self.storage], np.inf)
        self.made = np.asarray([gap.made for gap in gaps], bool)
        self.around = np.asarray([gap.around for gap in gaps], bool)
        self.spans = np.asarray([(*gap.spans, (0, -1))[:2] for gap in gaps], np.int64).reshape(-1, 2, 2)

    def columns(self, sampled: Whole) -> _Columns:
        """What of the gaps matters in these steps."""
        begins = np.searchsorted(sampled, self.spans[:, :, 0])
        ends = np.searchsorted(sampled, self.spans[:, :, 1], side="right")
        rows = np.stack([begins, np.maximum(begins, ends)], axis=2)
        held = np.flatnonzero((begins < ends).any(axis=1) & (np.isfinite(self.back) | np.isfinite(self.again)))
        size, values, movable = self.bytes[held], self.value[held], np.isfinite(self.back[held])
        out = np.where(movable, self.out[values], 0.0) / size
        uses = np.bincount(values, weights=movable, minlength=len(self.out))[values]
        shared = movable & (uses > 1) & (out > 0)
        alone = np.where(shared, 0.0, out)
        back, again, made, around = self.back[held] / size, self.again[held] / size, self.made[held], self.around[held]
        born = np.searchsorted(sampled, np.append(self.born, 0), side="right")[values]
        _, kind = _alike(rows[held].reshape(-1, 4), out, back, again, made, around, born)
        pattern = np.full(len(held), -1, np.int64)
        pattern[shared] = _patterns(values[shared], kind[shared])
        which, number = _alike(rows[held].reshape(-1, 4), pattern, alone, back, again, made, around)
        column = np.full(len(self.storage), -1, np.int64)
        column[held] = number
        value = pattern[which]
        _, first = np.unique(pattern[shared], return_index=True)
        price, born = out[shared][first], born[shared][first]
        total = np.bincount(number, weights=size, minlength=len(which)).astype(np.float64)
        prices = alone[which], back[which], again[which]
        return _Columns(rows[held][which], total, *prices, made[which], around[which], value, price, born, column)

    def away(self, columns: _Columns, share: Floats) -> Floats:
        """Bytes that are away in each step, [steps + 1], where this share of each column is away."""
        part = np.append(share, 0.0)[columns.column] * self.bytes
        change = np.zeros(self.steps + 2)
        for span in (0, 1):
            np.add.at(change, self.spans[:, span, 0], part)
            np.add.at(change, self.spans[:, span, 1] + 1, -part)
        total: Floats = np.cumsum(change)[:-1]
        return total


def _alike(*columns: NDArray[Any]) -> tuple[Whole, Whole]:
    """(the first row of each kind, the kind of each row) of rows that have the same in all columns; prices that differ
    by rounding, which is far less than `TOLERANCE`, are the same."""
    rows = np.column_stack([item.astype(np.float32) if item.dtype == np.float64 else item for item in columns])
    _, first, kind = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first, kind.reshape(-1)


def _patterns(values: Whole, kinds: Whole) -> Whole:
    """Numbers for values whose gaps are of the same kinds, as those of the weights of one layer often are. What is best
    for one of them is best for all, so that together they are as one value: [gaps]."""
    distinct, place = np.unique(values, return_inverse=True)
    order = np.lexsort((kinds, place))
    rows = np.split(kinds[order], np.cumsum(np.bincount(place, minlength=len(distinct)))[:-1])
    numbers: dict[bytes, int] = {}
    of_value = np.asarray([numbers.setdefault(row.tobytes(), len(numbers)) for row in rows], np.int64)
    return of_value[place]


# --------------------------------------------------------------------------------------------------- program


@dataclass
class _Program:
    """A linear program in the making: minimise goal · variables, at least 0 and at most `upper`, such that each row is
    at most its limit. Entries are (row, variable, factor)."""

    upper: list[Floats] = field(default_factory=list)
    lower: list[Floats] = field(default_factory=list)
    limits: list[Floats] = field(default_factory=list)
    entries: list[tuple[Whole, Whole, Floats]] = field(default_factory=list)
    variables: int = 0
    rows: int = 0

    def variable(self, upper: Floats, lower: Floats | None = None) -> Whole:
        """Numbers of new variables."""
        self.upper.append(upper)
        self.lower.append(np.zeros(len(upper)) if lower is None else lower)
        self.variables += len(upper)
        return np.arange(self.variables - len(upper), self.variables)

    def each(self, limits: Floats, *terms: tuple[Whole, Any]) -> None:
        """A row for each limit: in each term (variables, factors) one entry of each row."""
        rows = np.arange(self.rows, self.rows + len(limits))
        for variables, factors in terms:
            self.entries.append((rows, variables, np.broadcast_to(np.asarray(factors, np.float64), len(limits))))
        self.limits.append(limits)
        self.rows += len(limits)

    def one(self, limit: float, *terms: tuple[Whole, Any]) -> None:
        """One row with all entries of the terms."""
        for variables, factors in terms:
            row = np.full(len(variables), self.rows)
            self.entries.append((row, variables, np.broadcast_to(np.asarray(factors, np.float64), len(variables))))
        self.limits.append(np.asarray([limit]))
        self.rows += 1

    def add(self, rows: Whole, variables: Whole, factors: Any) -> None:
        """More entries of rows that are there."""
        self.entries.append((rows, variables, np.broadcast_to(np.asarray(factors, np.float64), len(rows))))

    def solved(self, goal: Floats) -> tuple[float, Floats] | None:
        """The least value, and the variables; None where the limits cannot be met."""
        from scipy.optimize import linprog
        from scipy.sparse import coo_array

        row, variable, factor = (np.concatenate(parts) for parts in zip(*self.entries, strict=True))
        matrix = coo_array((factor, (row, variable)), shape=(self.rows, self.variables)).tocsr()
        bounds = np.stack([np.concatenate(self.lower), np.concatenate(self.upper)], axis=1)
        limits = np.concatenate(self.limits)
        solution = linprog(goal, matrix, limits, bounds=bounds, method="highs-ipm")
        if solution.status != 0:  # it has not converged, or says so of what cannot be met
            solution = linprog(goal, matrix, limits, bounds=bounds, method="highs")
        if solution.status == 2:
            return None
        if solution.x is None:
            raise BoundError(f"the bound within a memory cap was not found: {solution.message}")
        return float(solution.fun), np.asarray(solution.x)


class _Prices(NamedTuple):
    """What each column, and each shared value, costs for a unit of bytes. leaving: of a copy out, shared or not."""

    out: Floats
    back: Floats
    again: Floats
    shared: Floats
    leaving: Floats


class _Variables(NamedTuple):
    """Numbers of variables: the seconds of the step; of each column what is copied, and what is computed again; of each
    shared value what is copied out."""

    seconds: Whole
    moved: Whole
    dropped: Whole
    written: Whole


def _solved(
    columns: _Columns, need: Floats, clock: Floats, compute: float, own: float, splits: int, room: float
) -> tuple[MemoryBound, Floats]:
    """The bound where so many bytes have to be away in the sampled steps, and of each column the share that is away.
    clock: seconds of computing before each sampled step. own: the share of its seconds that the device loses to a copy.
    room: bytes of the large memory.

    Amounts are in units of the largest need, times in those of the longest.
    """
    unit = float(need.max())
    movable, able = columns.movable, columns.able
    out, back, again = (
        np.where(np.isfinite(price), price, 0.0) * unit for price in (columns.out, columns.back, columns.again)
    )
    shared = columns.shared * unit
    longest = max([compute, *(float(price.max(initial=0.0)) for price in (out, back, again, shared))]) or 1.0
    out, back, again, shared, clock = (price / longest for price in (out, back, again, shared, clock))
    most, count = columns.bytes / unit, len(need)

    program = _Program()
    (seconds,) = program.variable(np.asarray([np.inf]), np.asarray([compute / longest]))
    total = np.asarray([seconds])
    moved = program.variable(np.where(movable, most, 0.0))
    dropped = program.variable(np.where(able, most, 0.0))
    written = program.variable(np.full(len(shared), np.inf))
    away = program.variable(np.full(count, np.inf), need / unit)
    program.one(0.0, (moved, out), (written, shared), (total, -1.0))
    program.one(0.0, (moved, back), (total, -1.0))
    copying = ((moved, own * (out + back)), (written, own * shared)) if own else ()
    program.one(-compute / longest, (dropped, again), *copying, (total, -1.0))
    sharing, both = np.flatnonzero(columns.value >= 0), np.flatnonzero(movable & able)
    program.each(np.zeros(len(sharing)), (moved[sharing], 1.0), (written[columns.value[sharing]], -1.0))
    program.each(most[both], (moved[both], 1.0), (dropped[both], 1.0))
    # Away in a sampled step is at most what was away in the one before, and what begins, less what ends.
    first = program.rows
    program.each(np.zeros(count), (away, 1.0))
    program.add(np.arange(first + 1, program.rows), away[:-1], -1.0)
    for span in (0, 1):
        begin, end = columns.rows[:, span, 0], columns.rows[:, span, 1]
        some, ending = np.flatnonzero(begin < end), np.flatnonzero((begin < end) & (end < count))
        for parts in (moved, dropped):
            program.add(first + begin[some], parts[some], -1.0)
            program.add(first + end[ending], parts[ending], 1.0)
    leaving = out.copy()  # for each byte, whoever pays for it
    leaving[sharing] = shared[columns.value[sharing]]
    prices, variables = _Prices(out, back, again, shared, leaving), _Variables(total, moved, dropped, written)
    for row in _fullest(need, splits):
        needs = need[row] / unit, room / unit
        _split(program, columns, row, needs, (clock[row], compute / longest), prices, variables)

    goal = np.zeros(program.variables)
    goal[moved], goal[written], goal[seconds] = BYTES_MATTER * (out + back), BYTES_MATTER * shared, 1.0
    solution = program.solved(goal)
    if solution is None:
        return MemoryBound(np.inf, compute, 0, 0, "compute"), np.zeros(len(most))
    value, amounts = solution
    lost = own * float((out + back) @ amounts[moved] + shared @ amounts[written])
    times = {
        "compute": compute / longest + float(again @ amounts[dropped]) + lost,
        "copy out": float(out @ amounts[moved] + shared @ amounts[written]),
        "copy in": float(back @ amounts[moved]),
    }
    # In every solution copying is at most 2 T, of which the objective has counted its share.
    least = value / (1 + 2 * BYTES_MATTER) * (1 - TOLERANCE) * longest
    gone = unit * float(amounts[moved][columns.out > 0].sum() + amounts[written].sum())
    come = unit * float(amounts[moved][columns.back > 0].sum())
    busiest = max(times, key=lambda name: round(times[name], 4))
    bound = MemoryBound(max(compute, least), compute, round(gone), round(come), busiest)
    return bound, (amounts[moved] + amounts[dropped]) / most


def _fullest(need: Floats, count: int) -> list[int]:
    """The fullest sampled step of each of `count` stretches of equally many."""
    if count == 0:
        return []
    parts = np.array_split(np.arange(len(need)), min(count, len(need)))
    return [int(part[need[part].argmax()]) for part in parts]


def _split(
    program: _Program,
    columns: _Columns,
    row: int,
    needs: tuple[float, float],
    clock: tuple[float, float],
    prices: _Prices,
    variables: _Variables,
) -> None:
    """The time before a sampled step, and that from it on. needs: what has to be away then, and what of it the large
    memory holds. clock: seconds of computing before it, and of all."""
    need, room = needs
    moved, dropped = variables.moved, variables.dropped
    begin, end = columns.rows[:, :, 0], columns.rows[:, :, 1]
    here, there = ((begin <= row) & (row < end)).T  # away then: in the first span, and in the second
    inner = ~columns.around
    ended, coming = inner & (end[:, 0] <= row), inner & (begin[:, 0] > row)
    come = ended | (columns.around & (end[:, 1] <= row))
    alone = columns.made & (columns.value < 0)

    before = program.variable(np.asarray([np.inf]), np.asarray([clock[0]]))
    behind = program.variable(np.asarray([np.inf]), np.asarray([clock[1] - clock[0]]))
    program.one(0.0, (before, 1.0), (behind, 1.0), (variables.seconds, -1.0))
    # A gap around the end may be away on both sides at once: the new state, and the old.
    some, other = np.flatnonzero(here & columns.movable), np.flatnonzero(there & columns.movable)
    lost = np.flatnonzero(here & columns.able)
    first, gone = _part(program, moved[some], (prices.leaving * columns.made)[some],
                        prices.back[some], inner[some])  # fmt: skip
    some = some[first]
    first, yet = _part(program, moved[other], prices.back[other])  # to come
    other = other[first]
    first, left = _part(program, dropped[lost], prices.again[lost])
    lost = lost[first]
    program.one(-need, (gone, -1.0), (yet, -1.0), (left, -1.0))
    if room < need:  # what is not needed again lies nowhere
        program.one(room, (gone[prices.back[some] > 0], 1.0), (yet[prices.back[other] > 0], 1.0))

    program.one(0.0, (before, -1.0), (gone, (prices.leaving * columns.made)[some]),
                (moved, prices.out * (alone & ended)))  # fmt: skip
    program.one(0.0, (behind, -1.0), (moved, prices.out * (alone & (begin[:, 0] > row))),
                (variables.written, prices.shared * (columns.born > row)))  # fmt: skip
    program.one(0.0, (before, -1.0), (moved, prices.back * come))
    program.one(0.0, (behind, -1.0), (gone, (prices.back * inner)[some]), (yet, prices.back[other]),
                (moved, prices.back * coming))  # fmt: skip
    program.one(-clock[0], (before, -1.0), (dropped, prices.again * ended))
    program.one(clock[0] - clock[1], (behind, -1.0), (left, prices.again[lost]), (dropped, prices.again * coming))


def _part(program: _Program, wholes: Whole, *prices: NDArray[Any]) -> tuple[Whole, Whole]:
    """(the first of each kind, variables) of parts of what these variables are: one for all that have the same prices,
    and is at most their sum."""
    first, kind = _alike(*prices)
    parts = program.variable(np.full(len(first), np.inf))
    row = program.rows
    program.each(np.zeros(len(parts)), (parts, 1.0))
    program.add(row + kind, wholes, -1.0)
    return first, parts
