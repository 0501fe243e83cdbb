"""All choices of a plan in their order: a search over tables, the memory limit, the overlap, the simulated step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from girih.graph import Graph
from girih.machine import Machine
from girih.partition.search import Search
from girih.partition.searches.exact import Exact
from girih.partition.solver.clock import Clock
from girih.partition.space.problem import Objective
from girih.plans.plan import Observe, Plan, PlanError
from girih.plans.predict import by_measurements, calibrated
from girih.search.compare import compared, searched, simulated_step
from girih.search.judge import beginning, judged
from girih.search.memory_limit import fit, widest_overlap

HOLDS = ("auto", "swap", "recompute", "none")
"""What to do where a plan does not fit: the best of all that there is, move tensors out and back, drop them and compute
them again, or refuse the plan."""


def choose(
    graph: Graph,
    machine: Machine,
    search: Search,
    objective: str,
    *,
    limit: int | None,
    compare: Sequence[Search],
    store: str | Path | None,
    note: Observe,
    hold: str = "auto",
    order: str = "auto",
) -> Plan:
    """The plan that a search finds, with its costs beside those of others.

    limit: bytes of each device. hold: what to do where that is too little, one of HOLDS. order: of the steps in that
    case, `auto` or one of `girih.memory.orders.order.ORDERS`. store: measured costs, for the objective `time` and for
    simulated steps.

    Raises:
        PlanError: the search can make nothing of the graph, or the limit cannot be met.
    """
    notes: tuple[str, ...] = ()
    if objective not in search.objectives:
        goals = " or ".join(search.objectives)
        notes = (f"search {search.name} is of --objective {goals}; by {objective} search exact ran",)
        search = Exact(search.seconds)
    if objective == "time":
        machine = calibrated(machine, store)
    goal, clock, captured = Objective(objective, machine), Clock(), graph
    first = beginning(search, goal, limit)
    note(f"search {first.name}", 0.0)
    result = searched(first, graph, goal)
    graph = result.graph or graph
    refused: PlanError | None = None
    try:
        result = fit(graph, goal, result, search, limit, note)
    except PlanError as error:
        if hold == "none":
            raise
        refused = error
    plan = Plan(graph, machine, result.strategy, result.certificate, search.name, objective, limit, {})
    plan = replace(plan, schedule=result.schedule)
    if refused is None:
        plan = replace(plan, overlap=widest_overlap(plan))
    else:
        from girih.search.holding import held  # loads SciPy

        try:
            plan = held(plan, hold, order=order, store=store, note=note)
        except PlanError as error:
            if machine.host is not None:
                raise
            raise PlanError(f"{refused}; {error}") from error  # what divisions need says more
    if objective == "time":
        plan = judged(plan, search, first.name, clock=clock, store=store, note=note)
    notes = (*notes, *by_measurements(machine, store))
    plan = plan.told(simulated=simulated_step(plan, store), notes=notes)
    baselines, missing = compared(plan, captured, compare, store=store, note=note)
    return plan.told(baselines=baselines, notes=(*notes, *missing))
