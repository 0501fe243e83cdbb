"""The plan's alternatives in simulated seconds, whatever its objective was.

Where a plan was searched for by another objective than time, its alternatives were priced without overlap: beside a
simulated step that is another measure. Their searches are quick; here they are made again, lowered and simulated.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from girih.machine import Machine
from girih.plan_memory import searched
from girih.plan_predict import predict
from girih.plans import Costs, PlanError, goal_of

if TYPE_CHECKING:
    from girih.plans import Plan

SECONDS = 10.0  # that each search may take


def simulated_alternatives(
    plan: Plan, *, machine: str | Machine | None = None, store: str | Path | None = None, backend: str = "processes"
) -> tuple[Costs, ...]:
    """The plan's baselines, their seconds simulated; what cannot be made again is left out. See `predict`."""
    if plan.objective == "time" and machine is None:
        return plan.baselines
    made = []
    for item in plan.baselines:
        try:
            found = searched(item.name, plan.graph, goal_of(plan.objective, plan.machine), SECONDS)
        except PlanError:
            continue
        other = replace(
            plan, strategy=found.strategy, certificate=found.certificate, search=item.name, memory=None, baselines=()
        )
        seconds = predict(other, machine=machine, store=store, backend=backend, memory=False).seconds
        made.append(replace(item, seconds=seconds))
    return tuple(made)
