"""Keeping a memory limit where devices do different things: movements of each class, judged together.

Each class's residency is planned by itself, in its own order (`girih.program.moves.apart`); the simulator judges all of
them at once, since a stage that waits for copies keeps the others waiting. Steps are neither reordered nor computed
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from girih.layout.budget import Budget
from girih.machine.units import format_bytes
from girih.plans.plan import Observe, Plan, PlanError
from girih.plans.predict import priced_on
from girih.program import BlockStep, ComputeStep, FreeStep
from girih.program.life.lifetimes import Lifetimes
from girih.program.moves.residency import Residency, TooSmallError, floor
from girih.search.judge import Best, Judge
from girih.search.memory.belady import belady
from girih.search.memory.bound import memory_bound
from girih.search.memory.holds import Baseline, Setting
from girih.search.memory.step_seconds import copy_rates
from girih.simulate.ticks import seconds_of, ticks

SHARES = (0.0, 0.01, 0.1)
"""Shares of the step: what was touched so shortly before is not moved out, if anything else can be."""
PREPARED, WRITTEN = 400_000.0, 400_000.0
"""Nanoseconds that a core of 2023 takes about for each step of a program before the first rule, and for the movements
of a rule, which are written and simulated."""

Rule = Callable[[Lifetimes, NDArray[np.float64]], Residency]
"""The residency of a class's storages, by the seconds of its steps."""


def held_apart(plan: Plan, hold: str | Baseline, *, store: str | Path | None, note: Observe, work: Budget) -> Plan:
    """The plan with movements of each class of devices that keep its limit. work: after which no other way is tried, if
    one keeps it; what is done is spent there.

    Raises:
        PlanError: they cannot, or tensors are not to be moved.
    """
    limit, host = plan.memory, plan.machine.host
    assert limit is not None
    if hold == "recompute" or (isinstance(hold, Baseline) and (not hold.moves or hold.orders)):
        name = hold.name if isinstance(hold, Baseline) else hold
        raise PlanError(
            f"hold {name} is not for devices that do different things: move tensors (hold swap), or raise the limit"
        )
    if host is None:
        raise PlanError(f"{plan.machine.name} has no large memory to move tensors to: give its file a `host`")
    lives, steps = plan.lifetimes_by_class, len(plan.unmoved.steps)
    work.spend(PREPARED * steps)
    best = Best(Judge(plan, store))
    fullest = max(floor(own)[0] for own in lives)
    if fullest > limit:
        best.judge.refuse(fullest)
    rules = list(_rules(plan, hold)) if fullest <= limit else []
    seconds = _seconds(plan, store) if rules else []
    for number, rule in enumerate(rules):
        if best.plan is not None and work.late:
            break
        note("hold", number / len(rules))
        work.spend(WRITTEN * steps)
        try:
            residencies = tuple(rule(own, every) for own, (every, _) in zip(lives, seconds, strict=True))
        except TooSmallError as error:
            best.judge.refuse(error.needed)
            continue
        best.offer(plan.but(residency=residencies, room=limit))
    if best.plan is None:
        where, needed = best.judge.smallest
        raise PlanError(
            f"{format_bytes(limit)} for each device cannot be met, whatever is moved out: in the order of steps that "
            f"its class has, one needs {format_bytes(needed)} ({int(needed)} bytes) of {where}. Raise the limit, use "
            "more devices or micro-batches, or make the batch smaller"
        )
    bounds = [
        memory_bound(own, limit, seconds_of(ticks(computing)), host, recompute=False).seconds
        for own, (_, computing) in zip(lives, seconds, strict=True)
    ]
    return best.plan.but(memory_bound=max(bounds), simulated=best.seconds)


def _rules(plan: Plan, hold: str | Baseline) -> Iterator[Rule]:
    rates, cap = copy_rates(plan.machine), plan.memory
    assert cap is not None
    if isinstance(hold, Baseline):

        def published(lives: Lifetimes, seconds: NDArray[np.float64]) -> Residency:
            residency = hold.hold(Setting(lives, cap, seconds, rates, lambda sequence: lives)).residency
            assert residency is not None
            return residency

        yield published
        return

    def planned(share: float, lives: Lifetimes, seconds: NDArray[np.float64]) -> Residency:
        return belady(lives, cap, seconds, share * float(seconds.sum()), rates)

    yield from (partial(planned, share) for share in SHARES)


def _seconds(plan: Plan, store: str | Path | None) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """By class, the seconds of each of its steps that is not a free, and of those that compute alone."""
    prices = priced_on(plan, plan.machine, store, "processes").priced.prices
    steps, result = plan.unmoved.steps, []
    for order in plan.unmoved.classes:
        own = [at for at in order.steps if not isinstance(steps[at], FreeStep)]
        computing = np.asarray([isinstance(steps[at], ComputeStep | BlockStep) for at in own])
        device = order.devices.first
        every = (prices.before + prices.after)[own, device]
        result.append((every, prices.before[own, device] * computing))
    return result
