"""Computing in pieces as a choice: also where every step alone would fit, because less is to be moved then.

A tensor that exists one block long only is neither moved nor kept: the logits of a large vocabulary, the scores of
attention, the hidden layer of a perceptron. The price is what is computed twice, and small kernels. So under a limit
steps are cut for several shares of it, each program is held in its best way, and the simulator judges. What is cut for
smaller shares contains more steps, so the first that is slower, or impossible, ends the search.
"""

from __future__ import annotations

from pathlib import Path

from girih.layout.budget import Budget
from girih.plans.cutting import Cutting
from girih.plans.plan import Observe, Plan, PlanError
from girih.program.pieces import OutOfWorkError
from girih.search.judge import Best, Judge
from girih.search.memory.holding import held
from girih.search.memory.orders.order import StepOrder
from girih.search.memory.step_seconds import simulated_seconds

SHARES = (0.5, 0.25, 0.125)
"""Shares of the limit: steps that alone need more are computed in pieces."""
WORTH = 1.01
"""Where the step takes at most so many times its time with unlimited memory nothing is cut that fits."""


def cheaper_in_pieces(
    plan: Plan,
    whole: Plan,
    hold: str,
    *,
    order: str | StepOrder,
    store: str | Path | None,
    note: Observe,
    work: Budget,
) -> Plan:
    """The faster of a plan that is held within its limit, and the same with more steps in pieces.

    plan: without movements. whole: the same, held. The bound of what is returned is of all ways to hold any of the
    programs that were tried. work: after which no other is tried; what is done is spent there.
    """
    assert plan.memory is not None
    if plan.choice.schedule != "graph" or whole.predicted.unlimited is None or plan.lowered.orders:
        return whole
    best = Best(Judge(plan, store), whole, simulated_seconds(whole, store))
    chosen = whole
    bounds = [whole.predicted.memory_bound]
    cutting: Cutting | None = None

    def measured(nanoseconds: float) -> None:
        work.spend(nanoseconds)
        if work.late:
            raise OutOfWorkError

    for number, share in enumerate(SHARES):
        if best.seconds <= WORTH * whole.predicted.unlimited or work.late:
            break
        note("hold in pieces", number / len(SHARES))
        cutting = cutting or Cutting.of(plan, measured)
        try:
            cut = cutting.within(int(plan.memory * share))
        except OutOfWorkError:  # loops for a share are not known in time
            break
        if not cut.choice.pieces or cut.choice.pieces == chosen.choice.pieces:
            continue
        try:
            part = work.part(work.seconds / 2)
            other = held(cut, hold, order=order, store=store, note=note, work=part)
        except PlanError:
            break
        finally:
            work.spend(part.spent)
        bounds.append(other.predicted.memory_bound)
        best.offer(other, simulated_seconds(other, store))
        if best.plan is not other:
            break
        chosen = other.but(unlimited=whole.predicted.unlimited)
    known = [bound for bound in bounds if bound is not None]
    return chosen.but(memory_bound=min(known)) if len(known) == len(bounds) else chosen
