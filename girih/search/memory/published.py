"""A published way to keep a memory limit (`girih.published.memory`), judged like girih's own: a plan beside ours.

What a baseline leaves open is chosen in its favour: of the captured order and the one in which parameters are updated
as soon as their gradients are there, and of the windows in which exchanges overlap, the fastest that keeps the limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from girih.machine.units import format_bytes
from girih.plans.plan import Observe, Plan, PlanError
from girih.program.life.lifetimes import Lifetimes
from girih.program.moves.residency import TooSmallError
from girih.search.judge import Best, Judge
from girih.search.memory.bound import memory_bound
from girih.search.memory.holds import Baseline, Setting
from girih.search.memory.orders.locality import updates_early
from girih.search.memory.orders.order import StepOrder
from girih.search.memory.step_seconds import StepSeconds, copy_rates, step_seconds
from girih.search.table import order_of
from girih.simulate.ticks import seconds_of, ticks

Steps = tuple[int, ...] | None


def held_as_published(
    plan: Plan,
    baseline: Baseline,
    windows: Sequence[Plan],
    *,
    order: str | StepOrder,
    store: str | Path | None,
    note: Observe,
) -> Plan:
    """The plan as a baseline holds it. windows: the plan with each overlap that is tried. order: `auto`, or one of
    `girih.search.table.ORDERS` for the steps, where the baseline does not order them itself.

    Raises:
        PlanError: the limit is not kept so; the message says what would be.
    """
    limit, host = plan.memory, plan.machine.host
    assert limit is not None
    if host is None and baseline.moves:
        raise PlanError(f"{plan.machine.name} has no large memory to move tensors to: give its file a `host`")
    best = Best(Judge(plan, store))
    order_of_best: tuple[Steps, StepSeconds] | None = None
    for number, window in enumerate(windows):
        note(f"hold {baseline.name}", number / len(windows))
        seconds = step_seconds(window, store)
        for sequence in _orders(window, baseline, order):
            try:
                other = _held(window, baseline, sequence, seconds)
            except TooSmallError as error:
                best.judge.refuse(error.needed)
                continue
            best.offer(other)
            if best.plan is other:
                order_of_best = sequence, seconds
    chosen = best.plan
    if chosen is None or order_of_best is None:
        where, bytes_needed = best.judge.smallest
        raise PlanError(
            f"{format_bytes(limit)} for each device cannot be met by hold {baseline.name}, which needs "
            f"{format_bytes(bytes_needed)} ({int(bytes_needed)} bytes) of {where}. Raise the limit, use more devices, "
            "make the batch smaller, or allow whatever is fastest (hold auto)"
        )
    sequence, seconds = order_of_best
    computing = seconds_of(ticks(seconds.of(sequence, computing=True)))  # by the simulator's clock
    large = host if baseline.moves else None
    lives = chosen.but(sequence=sequence, residency=()).lifetimes
    bound = memory_bound(lives, limit, computing, large, recompute=not baseline.moves).seconds
    return chosen.but(memory_bound=bound)


def _orders(plan: Plan, baseline: Baseline, order: str | StepOrder) -> Iterator[Steps]:
    if order in ("auto", "captured") or baseline.orders:
        yield None
    if order == "auto" and not baseline.orders:
        yield updates_early(plan.lifetimes)
    elif order != "captured" and not baseline.orders:
        yield tuple(order_of(order).order(plan.lifetimes.links).tolist())


def _held(plan: Plan, baseline: Baseline, sequence: Steps, seconds: StepSeconds) -> Plan:
    """The plan with the steps in this order, as the baseline holds it.

    Raises:
        TooSmallError: the limit is not kept so.
    """
    assert plan.memory is not None

    def whole(again: tuple[int, ...]) -> tuple[int, ...]:
        return again if sequence is None else tuple(sequence[number] for number in again)

    def look(again: tuple[int, ...]) -> Lifetimes:
        return plan.but(sequence=whole(again)).lifetimes

    rates = copy_rates(plan.machine) if baseline.moves else (float("inf"), float("inf"))
    lives = plan.but(sequence=sequence).lifetimes
    holding = baseline.hold(Setting(lives, plan.memory, seconds.of(sequence), rates, look))
    return plan.but(
        sequence=sequence if holding.sequence is None else whole(holding.sequence),
        residency=() if holding.residency is None else (holding.residency,),
        room=plan.memory,
    )
