"""The fastest way to hold a program of few steps within its limit, by branch and bound.

What leaves a device and when it comes back, the planner of movements says by rules (`girih.search.memory.belady`),
which are good for programs of thousands of steps. Of a few steps every way can be looked at: each storage leaves, or
does not, in each gap between two steps that touch it with others between, and comes back before any step behind; and a
step may come again. Not followed are ways in which a step holds more than the limit whatever else leaves, and those of
which the copiers alone take as long as the best: copies of one direction are made one after the other, each begins
behind the last step that touches its storage, and the steps from its next reader on follow it. Those that are left are
simulated, the least bound first.

Cost: counted, and bounded by `VISITED` and `SIMULATED` for each program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from girih.layout.budget import Budget
from girih.machine.machine import Tier
from girih.plans.plan import Plan
from girih.program import ProgramError
from girih.program.life.lifetimes import Lifetimes
from girih.program.moves.residency import Residency, Stay, floor
from girih.search.memory.held_steps import HeldRows
from girih.search.memory.limit import WINDOWS
from girih.search.memory.step_seconds import StepSeconds, step_seconds

MOST_STEPS = 16
"""Steps of the largest program whose ways are all looked at."""
VISITED, SIMULATED = 4000, 200
"""Partial ways that are looked at, and ways that are simulated, for each sequence of steps at most."""
VISIT, SIMULATION, SEQUENCE, PROGRAM = 10_000.0, 300_000.0, 700_000.0, 3_000_000.0
"""Nanoseconds of one of these, of a sequence's lifetimes, and of a program with its prices."""

Copy = tuple[float, float, float]
"""(seconds before which it cannot begin, that it takes, in which a device computes behind it)."""
Cut = tuple[int, int, int, int]
"""(storage, the step behind which it leaves, the step before which its copy in begins, the step that reads it next)."""


def able(plan: Plan) -> bool:
    """Is the plan's program small enough, without state that is replaced, and without views, which share what they
    show?"""
    lives = plan.but(overlap=WINDOWS[0]).lifetimes
    return len(lives.steps) <= MOST_STEPS and not lives.views and not lives.state


def fastest_stays(plan: Plan, below: Callable[[], float], store: str | Path | None, budget: Budget) -> Iterator[Plan]:
    """Ways to hold a plan that is `able`, in every window of overlap; each takes less than `below` says in its turn.

    budget: of work, which it spends.
    """
    known: list[object] = []
    for window in WINDOWS:
        own = plan.but(overlap=window)
        if own.lowered.steps in known or budget.late:
            continue
        known.append(own.lowered.steps)
        budget.spend(PROGRAM)
        assert plan.memory is not None
        seconds = step_seconds(own, store)
        rows = HeldRows(own.lifetimes, seconds.prices, seconds.machine, plan.memory)
        if not rows.able or seconds.machine.host is None:
            continue
        least = rows.simulated(range(len(rows.row))).seconds  # nor is one with steps that come again below it
        for sequence in _sequences(own):
            if budget.late or least >= below():
                break
            yield from _held(own, sequence, rows, seconds, below, budget)


def _sequences(plan: Plan) -> Iterator[tuple[int, ...]]:
    """The steps as they are, and with one that computes, or a transfer, coming again before a later reader."""
    lives = plan.lifetimes
    steps, begun = lives.steps, lives.begun
    yield tuple(range(len(steps)))
    for maker in np.flatnonzero(lives.repeats).tolist():
        again = (begun[maker], maker) if maker in begun else (maker,)
        for reader in range(maker + 2, len(steps)):
            if reader not in begun and not set(steps[maker].targets).isdisjoint(steps[reader].sources):
                yield (*range(reader), *again, *range(reader, len(steps)))


def _held(
    plan: Plan,
    sequence: tuple[int, ...],
    rows: HeldRows,
    seconds: StepSeconds,
    below: Callable[[], float],
    budget: Budget,
) -> Iterator[Plan]:
    """Ways to hold one sequence of the steps."""
    budget.spend(SEQUENCE)
    free = rows.simulated(sequence)
    if free.seconds >= below():
        return
    if sequence != tuple(range(len(sequence))):
        plan = plan.but(sequence=sequence)
    with suppress(ProgramError):  # what stays when the program has ended comes once
        lives, limit, host = plan.lifetimes, plan.memory, seconds.machine.host
        assert limit is not None
        assert host is not None
        if floor(lives)[0] > limit:
            return
        over = [int(used) - limit for used in lives.used]
        if max(over) <= 0:
            yield plan.but(simulated=free.seconds)
            return
        tails = np.append(np.cumsum(seconds.of(sequence, computing=True)[::-1])[::-1], 0.0).tolist()
        search = _Ways(lives, over, free.clock.tolist(), tails, host, below)
        ways = sorted(search.ways(), key=lambda way: way[0])
        budget.spend(VISIT * search.visited)
        for bound, cuts in ways[:SIMULATED]:
            if bound >= below() or budget.late:
                return
            budget.spend(SIMULATION)
            residency = _residency(lives, cuts)
            took = rows.simulated(sequence, lives, residency).seconds
            if took < below():
                yield plan.but(residency=(residency,), room=limit, simulated=took)


@dataclass
class _Ways:
    """What may leave in one sequence. over: bytes beyond the limit in each step, with everything on the device. begins:
    of each step, without movements. tails: seconds that a device computes from each step on."""

    lives: Lifetimes
    over: list[int]
    begins: list[float]
    tails: list[float]
    host: Tier
    below: Callable[[], float]
    visited: int = 0

    def ways(self) -> list[tuple[float, tuple[Cut, ...]]]:
        """(a bound of the step, what leaves) of every way that keeps the limit and whose bound is below the best."""
        gaps = [
            (number, left, right)
            for number, item in enumerate(self.lives.storages)
            if item.movable
            for left, right in pairwise(item.touched)
            if any(more > 0 for more in self.over[left + 1 : right])
        ]
        able = [[0] * len(self.over)]  # bytes that the gaps from one on free in each step at most
        for number, left, right in reversed(gaps):
            size = self.lives.storages[number].bytes
            able.append([most + size * (left < at < right) for at, most in enumerate(able[-1])])
        able.reverse()
        found: list[tuple[float, tuple[Cut, ...]]] = []

        def below(at: int, over: list[int], cuts: tuple[Cut, ...]) -> None:
            self.visited += 1
            if self.visited > VISITED or any(more > most for more, most in zip(over, able[at], strict=True)):
                return
            bound = self.bound(cuts)
            if bound >= self.below():
                return
            if all(more <= 0 for more in over):  # nothing else has to leave
                found.append((bound, cuts))
                return
            number, left, right = gaps[at]
            size = self.lives.storages[number].bytes
            for start in range(right, left + 1, -1):
                if any(more > 0 for more in over[left + 1 : start]):
                    away = [more - size * (left < step < start) for step, more in enumerate(over)]
                    below(at + 1, away, (*cuts, (number, left, start, right)))
            below(at + 1, over, cuts)

        below(0, self.over, ())
        return found

    def bound(self, cuts: Sequence[Cut]) -> float:
        """Seconds that no step with these movements is below."""
        outs: dict[int, tuple[float, float, float]] = {}
        ins: list[tuple[float, float, float]] = []
        for number, left, start, right in cuts:
            size, ready = self.lives.storages[number].bytes, self.begins[left + 1]
            back = self.host.copy_seconds(size, False)
            gone = 0.0
            if number not in outs:  # there is a copy from then on
                gone = self.host.copy_seconds(size, True)
                outs[number] = ready, gone, back + self.tails[right]
            ins.append((max(self.begins[start], ready + gone), back, self.tails[right]))
        return max(in_turn(list(outs.values())), in_turn(ins))


def in_turn(copies: Sequence[Copy]) -> float:
    """One copier makes these one after the other: each begins at the earliest, takes, and has something behind it."""
    longest = 0.0
    for begin, _, _ in copies:
        for _, _, behind in copies:
            took = [seconds for first, seconds, tail in copies if first >= begin and tail >= behind]
            longest = max(longest, begin + sum(took) + behind if took else 0.0)
    return longest


def _residency(lives: Lifetimes, cuts: Sequence[Cut]) -> Residency:
    """The stays of all storages between what leaves."""
    stays: list[Stay] = []
    for number, storage in enumerate(lives.storages):
        mine = [cut for cut in cuts if cut[0] == number]
        lasts = [*(left for _, left, _, _ in mine), storage.last]
        born, stays_on = storage.born, storage.lasts and not mine
        first = Stay(number, born, born, lasts[0], fresh=True, copied=bool(mine), lasts=stays_on)
        stays.append(first)
        for (_, _, start, right), last in zip(mine, lasts[1:], strict=True):
            stays.append(Stay(number, start, right, last, fresh=False, lasts=storage.lasts and last == storage.last))
    stays.sort(key=lambda stay: (stay.start, stay.first, stay.storage))
    return Residency.of(stays)
