"""A lower bound on the seconds of a step within a memory cap, whatever is moved, or dropped and computed again.

For a given order of steps. Between two touches of a storage by steps lies a *gap*: there it may be off the device. In
each step what is in use less what is off the device has to be within the cap. Relaxed, any part of a storage may be off
the device in any gap, and copies run at any time; then the least time is a linear program:

    minimise T  such that   used[t] - sum of what is off the device in gaps around t <= cap    for each step t
                            T >= computing + computing again,   T >= copying out,   T >= copying in

- A gap of a storage that is needed again costs a copy in.
- A storage is copied out once at most: after that it has a copy in the large memory, and leaves without copying. Of
  state nothing replaces there is a copy from the beginning.
- State wraps around: from the last touch of the new state to the first touch of the old state in the next application
  is one gap, and both share one copy.
- Dropped and computed again costs the step that made it, shared by its results in proportion to their bytes, because
  one run makes all of them. What a group of fused steps made is taken to cost nothing: a part of it may be enough.
- A step that only makes a view of a storage is not counted as a touch: views can be made anew where they are read.

Solved by HiGHS. Constraints are written for a sample of the steps (any subset is a valid relaxation), refined by those
that the solution violates. Rows are differences between one sampled step and the next, so that a gap has two entries
however long it is; gaps between the same sampled steps with the same prices are one column. A few seconds for 50,000
touches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_array, coo_array, eye_array

from girih.lower.steps import ComputeStep
from girih.machine.machine import Tier
from girih.memory.lifetimes import Lifetimes
from girih.memory.residency import TooSmallError, floor

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

SAMPLE = 256  # steps at first
ROUNDS = 5  # of refinement
MOST_ADDED = 64  # steps in each
BYTES_MATTER = 1e-5  # of copying in the objective, so that of the fastest solutions one with few bytes is taken
TOLERANCE = 1e-6  # of the solver, relative


class BoundError(RuntimeError):
    """The solver has failed; the message is its own."""


@dataclass(frozen=True)
class MemoryBound:
    """No step is shorter than `seconds`, under the same prices. compute: seconds of computing, nothing computed again.

    out_bytes, in_bytes: what is copied in the relaxed optimum. busiest: what the bound consists of, one of `compute`,
    `copy out`, `copy in`.
    """

    seconds: float
    compute: float
    out_bytes: int
    in_bytes: int
    busiest: str


def memory_bound(
    lives: Lifetimes, cap: int, seconds: Sequence[float] | Floats, host: Tier, *, recompute: bool = False
) -> MemoryBound:
    """The bound for the steps in their order. seconds: of each step. recompute: may storages be dropped and computed
    again?

    Raises:
        TooSmallError: a step alone needs more.
        BoundError: the solver fails.
    """
    needed, worst = floor(lives)
    if needed > cap:
        raise TooSmallError(worst, needed)
    prices, used = np.asarray(seconds, np.float64), lives.used
    compute = float(prices.sum())
    over = np.flatnonzero(used > cap)
    bound = MemoryBound(compute, compute, 0, 0, "compute")
    if not len(over):
        return bound
    gaps = _Gaps(lives, prices, host, recompute)
    sampled = np.unique([part[used[part].argmax()] for part in np.array_split(over, min(SAMPLE, len(over)))])
    for _ in range(1 + ROUNDS):
        columns = gaps.columns(sampled)
        bound, share = _solved(columns, (used[sampled] - cap).astype(np.float64), compute)
        left = used - gaps.away(columns, share) - cap
        violated = np.flatnonzero(left > TOLERANCE * cap)
        runs = np.split(violated, np.flatnonzero(np.diff(violated) > 1) + 1)
        fullest = np.asarray([run[left[run].argmax()] for run in runs if len(run)], np.int64)
        added = np.setdiff1d(fullest[np.argsort(-left[fullest], kind="stable")[:MOST_ADDED]], sampled)
        if not len(added):
            break
        sampled = np.union1d(sampled, added)
    return bound


# ------------------------------------------------------------------------------------------------------ gaps


class _Gap(NamedTuple):
    """storage: its number. spans: of steps (first, last) in which it may be away. value: the number of the storage
    whose copy in the large memory it shares. back: is it needed again? again: may it be computed again?"""

    storage: int
    spans: tuple[tuple[int, int], ...]
    value: int
    back: bool
    again: bool


def _gaps(lives: Lifetimes) -> Iterator[_Gap]:
    """The gaps of all storages that may be moved."""
    end = len(lives.steps)
    partner = dict(lives.state)
    old_of = {new: old for old, new in lives.state}
    looks = {position for position, _ in lives.views.values()}
    uses: list[list[int]] = []  # of each storage, the steps that touch it and do not only look
    for item in lives.storages:
        inner = [step for step in item.touched[1:-1] if step not in looks]
        uses.append([item.born, *inner, *([item.last] if len(item.touched) > 1 else [])])
    for number, item in enumerate(lives.storages):
        if not item.movable:
            continue
        touched, value = uses[number], old_of.get(number, number)
        if number in partner:
            touched = touched[1:]  # what is before the first use belongs to the gap around the end
        elif item.lasts and number not in old_of:
            touched = [*touched, end]
        for before, after in pairwise(touched):
            if after - before > 1:
                yield _Gap(number, ((before + 1, after - 1),), value, True, item.born >= 0)
        if number in partner and partner[number] != number and item.lasts:
            yield _Gap(number, ((touched[-1] + 1 if touched else 0, end),), value, False, False)
        if number in old_of:
            last = touched[-1] if touched else -1
            first = next(iter(uses[value][1:]), None)
            spans = [(last + 1, end)] if first is None or first == 0 else [(last + 1, end), (0, first - 1)]
            yield _Gap(number, tuple(spans), value, first is not None, False)


@dataclass(frozen=True, eq=False)
class _Columns:
    """Gaps that are away in the same sampled steps at the same prices, as one.

    cover: [sampled steps, columns] 1 where a gap begins to be away, -1 where it ends. bytes: [columns]. out, back,
    again: seconds for each byte of copying out and in, and of computing again; infinite where that cannot be. value: of
    gaps that share a copy out with others, its number among these values, else -1; shared: seconds for each byte of
    copying these values out. column: of each gap its column, -1 where it is away in no sampled step.
    """

    cover: coo_array
    bytes: Floats
    out: Floats
    back: Floats
    again: Floats
    value: Whole
    shared: Floats
    column: Whole


class _Gaps:
    """All gaps as arrays: storage, bytes, seconds of a copy in and of computing again (infinite: it cannot be), and
    value. out: for each value, seconds of a copy out. spans: [spans, 3] of gap, first and last step."""

    def __init__(self, lives: Lifetimes, seconds: Floats, host: Tier, recompute: bool) -> None:
        gaps = list(_gaps(lives))
        nothing_replaces = {old for old, new in lives.state if old == new}
        sizes = np.asarray([item.bytes for item in lives.storages], np.float64)
        out = [host.copy_seconds(item.bytes, out=True) for item in lives.storages]
        back = np.asarray([host.copy_seconds(item.bytes, out=False) for item in lives.storages])
        made = np.zeros(len(lives.steps))  # bytes that each step makes
        for item in lives.storages:
            if item.born >= 0:
                made[item.born] += item.bytes
        again = np.zeros(len(lives.storages))
        for number, item in enumerate(lives.storages):
            if item.born >= 0 and isinstance(lives.steps[item.born], ComputeStep):
                again[number] = seconds[item.born] * item.bytes / max(made[item.born], 1.0)
        self.steps = len(lives.steps)
        self.storage = np.asarray([gap.storage for gap in gaps], np.int64)
        self.value = np.asarray([gap.value for gap in gaps], np.int64)
        self.bytes = sizes[self.storage]
        self.out = np.asarray([0.0 if number in nothing_replaces else price for number, price in enumerate(out)])
        self.back = np.where([gap.back for gap in gaps], back[self.storage], 0.0)
        self.again = np.where([recompute and gap.again for gap in gaps], again[self.storage], np.inf)
        spans = [(number, *span) for number, gap in enumerate(gaps) for span in gap.spans]
        self.spans = np.asarray(spans, np.int64).reshape(-1, 3)

    def columns(self, sampled: Whole) -> _Columns:
        """What of the gaps matters in these steps."""
        rows = np.full((len(self.storage), 2, 2), len(sampled), np.int64)  # of each gap and span: from, to before
        begins = np.searchsorted(sampled, self.spans[:, 1])
        ends = np.searchsorted(sampled, self.spans[:, 2], side="right")
        second = np.append(False, self.spans[1:, 0] == self.spans[:-1, 0]).astype(np.int64)
        some = begins < ends
        rows[self.spans[some, 0], second[some]] = np.stack([begins, ends], axis=1)[some]
        held = np.flatnonzero((rows[:, :, 0] < len(sampled)).any(axis=1))
        bytes_, values = self.bytes[held], self.value[held]
        out, back, again = self.out[values] / bytes_, self.back[held] / bytes_, self.again[held] / bytes_
        shared = (np.bincount(values, minlength=len(self.out))[values] > 1) & (out > 0)
        alone = np.where(shared, 0.0, out)
        keys = np.column_stack([rows[held].reshape(-1, 4), np.where(shared, held, -1), alone, back, again])
        _, which, number = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        number = number.reshape(-1)
        column = np.full(len(self.storage), -1, np.int64)
        column[held] = number
        distinct, place = np.unique(values[which][shared[which]], return_inverse=True)
        value = np.full(len(which), -1, np.int64)
        value[shared[which]] = place
        price = np.zeros(len(distinct))
        price[place] = out[which][shared[which]]
        return _Columns(
            _differences(rows[held][which], len(sampled)),
            np.bincount(number, weights=bytes_, minlength=len(which)).astype(np.float64),
            alone[which],
            back[which],
            again[which],
            value,
            price,
            column,
        )

    def away(self, columns: _Columns, share: Floats) -> Floats:
        """Bytes that are away in each step, [steps + 1], where this share of each column is away."""
        part = np.append(share, 0.0)[columns.column] * self.bytes
        change = np.zeros(self.steps + 2)
        np.add.at(change, self.spans[:, 1], part[self.spans[:, 0]])
        np.add.at(change, self.spans[:, 2] + 1, -part[self.spans[:, 0]])
        total: Floats = np.cumsum(change)[:-1]
        return total


def _differences(rows: Whole, count: int) -> coo_array:
    """[count, columns] from the rows [columns, 2, 2] of two spans; `count`: there is none, or it has no end."""
    numbers = np.arange(len(rows))
    entries = [(rows[:, span, side], numbers, np.full(len(rows), 1.0 - 2 * side)) for span in (0, 1) for side in (0, 1)]
    row, column, sign = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    real = row < count
    return coo_array((sign[real], (row[real], column[real])), shape=(count, len(rows)))


# --------------------------------------------------------------------------------------------------- program


def _solved(columns: _Columns, need: Floats, compute: float) -> tuple[MemoryBound, Floats]:
    """The bound where so many bytes have to be away in the sampled steps, and of each column the share that is away.

    Variables, in units of the largest need and of the longest price: T; of each column what is copied, and (of those
    that can be) what is computed again; of each shared value what is copied out; in each sampled step what is away.
    """
    from scipy.optimize import linprog

    unit = float(need.max())
    able = np.flatnonzero(np.isfinite(columns.again))
    sharing = np.flatnonzero(columns.value >= 0)
    count, total, values = len(need), len(columns.bytes), len(columns.shared)
    most = columns.bytes / unit
    out, back, again, shared = (
        price * unit for price in (columns.out, columns.back, columns.again[able], columns.shared)
    )
    clock = max([compute, *(float(price.max(initial=0.0)) for price in (out, back, again, shared))])
    out, back, again, shared = (price / clock for price in (out, back, again, shared))
    pick_able = eye_array(total, format="csr")[able]
    pick_sharing = eye_array(total, format="csr")[sharing]
    pick_value = eye_array(values, format="csr")[columns.value[sharing]]
    one = -np.ones((1, 1))
    upper = block_array(
        [
            [one, out[None], None, shared[None], np.zeros((1, count))],
            [one, back[None], None, None, None],
            [one, None, again[None], None, None],
            [None, pick_sharing, None, -pick_value, None],
            [None, pick_able, eye_array(len(able)), None, None],
        ],
        format="csr",
    )
    limits = np.concatenate([[0.0, 0.0, -compute / clock], np.zeros(len(sharing)), most[able]])
    away = eye_array(count) - eye_array(count, k=-1)
    cover = columns.cover.tocsc()
    nothing = [np.zeros((count, size)) for size in (1, values)]
    equal = block_array([[nothing[0], -cover, -cover[:, able], nothing[1], away]], format="csr")
    bounds = np.zeros((1 + total + len(able) + values + count, 2))
    bounds[:, 1] = np.inf
    bounds[1 : 1 + total + len(able), 1] = np.concatenate([most, most[able]])
    bounds[len(bounds) - count :, 0] = need / unit
    goal = np.zeros(len(bounds))
    goal[0] = 1.0
    goal[1 : 1 + total] = BYTES_MATTER * (out + back)
    goal[len(goal) - count - values : len(goal) - count] = BYTES_MATTER * shared
    solution = linprog(goal, upper, limits, equal, np.zeros(count), bounds, method="highs")
    if solution.x is None:
        raise BoundError(f"the bound within a memory cap was not found: {solution.message}")
    _, moved, computed, written, _ = np.split(solution.x, np.cumsum([1, total, len(able), values]))
    times = {
        "compute": compute + float(again @ computed) * clock,
        "copy out": float(out @ moved + shared @ written) * clock,
        "copy in": float(back @ moved) * clock,
    }
    # Of every solution, copying is at most 2 T of the objective beside T.
    least = solution.fun / (1 + 2 * BYTES_MATTER) * clock * (1 - TOLERANCE)
    share = moved / most
    share[able] += computed / most[able]
    return (
        MemoryBound(
            max(compute, least),
            compute,
            round(unit * float((moved[columns.out > 0]).sum() + written.sum())),
            round(unit * float(moved[columns.back > 0].sum())),
            max(times, key=lambda name: round(times[name] / clock, 4)),
        ),
        share,
    )
