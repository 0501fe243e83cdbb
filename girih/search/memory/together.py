"""Divisions and movements chosen together: fewer bytes between devices against fewer bytes to the large memory.

What communicates least may hold so much that its movements take longer than what it saves, and what holds least
may communicate too much. So several divisions are held within the limit, and the simulator says which is fastest.

Each is held at first by the planner of movements alone, which takes as long as one simulation. The few that are
fastest then are held in the best way that is found (`girih.search.memory.holding`), with steps in pieces where that is
faster (`girih.search.memory.piecewise`), unless their lower bound says that they cannot win.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from pathlib import Path

from girih.layout.budget import Budget
from girih.machine import Machine
from girih.partition import SearchResult, Strategy
from girih.partition.search import nobody
from girih.plans.plan import Observe, Plan, PlanError
from girih.plans.predict import predict
from girih.search.judge import Best, Judge
from girih.search.memory.holding import TooLittleError, held
from girih.search.memory.holds import Baseline
from girih.search.memory.limit import WINDOWS
from girih.search.memory.orders.order import StepOrder
from girih.search.memory.piecewise import cheaper_in_pieces
from girih.search.memory.step_seconds import simulated_seconds

FULLY = 2
"""Divisions that are held in the best way that is found."""
SECONDS = 60.0
"""Seconds of work of all of them."""
WHOLE = 0.5
"""The share of it that has a division with its steps as they are; the rest is for steps in pieces."""


def divided(plan: Plan, results: Iterable[SearchResult], strategies: Iterable[Strategy] = ()) -> tuple[Plan, ...]:
    """The plan, and the same with other divisions: each once. results: with certificates of their own; strategies:
    under that of the plan."""
    others = [plan.but(strategy=result.strategy, certificate=result.certificate) for result in results]
    others += [plan.but(strategy=strategy) for strategy in strategies]
    plans = [plan]
    for other in others:
        if all(other.strategy != known.strategy for known in plans):
            plans.append(other)
    return tuple(plans)


def seconds_per_byte(machine: Machine) -> float:
    """How long it takes to copy a byte out to the large memory and back, nothing beside it; infinite where there is no
    such memory."""
    host = machine.host
    return float("inf") if host is None else 1 / host.out_bytes_per_second + 1 / host.in_bytes_per_second


def together(
    plans: Sequence[Plan],
    hold: str | Baseline,
    *,
    order: str | StepOrder,
    store: str | Path | None,
    note: Observe,
    work: Budget | None = None,
) -> Plan:
    """The fastest of plans of one graph with different divisions, each within its memory limit.

    hold, order: as `girih.search.memory.holding.held` takes them. What keeps the limit without movements takes part as
    it is. work: of all divisions together (None: `SECONDS`); what is done is spent there.

    Raises:
        PlanError: none can be kept within it; the message is of the division that needs least.
    """
    work = Budget(SECONDS) if work is None else work
    if len(plans) == 1 or isinstance(hold, Baseline):  # what was published divides first
        return _best(plans[0], hold, order=order, store=store, note=note, work=work)
    tried: list[tuple[float, Plan]] = []
    refused: list[tuple[float, Plan]] = []
    refusals: list[PlanError] = []
    quick = "swap" if hold == "auto" and plans[0].machine.host is not None else hold
    for number, plan in enumerate(plans):
        note("hold divisions", number / len(plans))
        first = Budget(0.0)
        try:
            own = _kept(plan, quick, order="captured" if order == "auto" else order, store=store, work=first)
            tried.append((simulated_seconds(own, store), plan))
        except PlanError as error:
            refusals.append(error)
            if not (isinstance(error, TooLittleError) and error.proved):
                refused.append((_smallest(error), plan))
        work.spend(first.spent)
    best = Best(Judge(plans[0], store))
    if hold == quick and work.late:  # what was refused would be tried in the same ways again
        refused = []
    promising = [plan for _, plan in sorted(tried or refused, key=itemgetter(0))]
    promising = promising[:FULLY] if tried else promising
    for number, plan in enumerate(promising):
        if best.plan is not None and _bound(plan, store) >= best.seconds:
            continue
        part = work.part(work.seconds / (len(promising) - number))
        try:
            own = _best(plan, hold, order=order, store=store, note=note, work=part)
            best.offer(own, simulated_seconds(own, store))
        except PlanError as error:
            refusals.append(error)
        work.spend(part.spent)
    if best.plan is None:
        raise min(refusals, key=_smallest)
    return _told(best.plan, plans)


def _smallest(error: PlanError) -> float:
    """Bytes of the smallest limit that a refused plan was seen to need; infinite where that is not known."""
    return error.smallest if isinstance(error, TooLittleError) else float("inf")


def _kept(
    plan: Plan,
    hold: str | Baseline,
    *,
    order: str | StepOrder,
    store: str | Path | None,
    note: Observe | None = None,
    work: Budget,
) -> Plan:
    assert plan.memory is not None
    if plan.peak <= plan.memory:
        return plan
    return held(plan, hold, order=order, store=store, note=note or nobody, work=work)


def _best(
    plan: Plan,
    hold: str | Baseline,
    *,
    order: str | StepOrder,
    store: str | Path | None,
    note: Observe,
    work: Budget,
) -> Plan:
    """The plan held in the best way that is found, with steps in pieces where that is faster."""
    part = work.part(work.seconds * (1 if hold != "auto" else WHOLE))
    try:
        kept = _kept(plan, hold, order=order, store=store, note=note, work=part)
    finally:  # a refusal has taken its time, too
        work.spend(part.spent)
    if kept is plan or hold != "auto":
        return kept
    return cheaper_in_pieces(plan, kept, hold, order=order, store=store, note=note, work=work)


def _bound(plan: Plan, store: str | Path | None) -> float:
    """No way to hold it takes less: the step with unlimited memory, by the widest window of overlap."""
    overlap = WINDOWS[0] if plan.choice.schedule == "graph" else plan.choice.overlap
    return predict(plan.but(memory=None, overlap=overlap), store=store, memory=False).seconds


def _told(plan: Plan, plans: Sequence[Plan]) -> Plan:
    """The plan, which says that it was chosen among several divisions, unless it was the first of them."""
    if plan.strategy == plans[0].strategy:
        return plan
    cost, least = int(plan.bytes_received.sum()), int(plans[0].bytes_received.sum())
    told = (
        f"of {len(plans)} divisions within the memory limit this one is fastest, movements included: it exchanges "
        f"{cost / max(least, 1):.2f} × the bytes of the first"
    )
    return plan.but(notes=(*plan.notes, told))
