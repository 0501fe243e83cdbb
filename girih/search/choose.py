"""All choices of a plan in their order: a search over tables, the memory limit, the overlap, the simulated step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

from girih.graph import Graph
from girih.machine import Machine
from girih.memory.baselines.baseline import Baseline
from girih.memory.baselines.table import BASELINES, HOLDS, baseline_of
from girih.partition.search import Search
from girih.partition.searches.exact import Exact
from girih.partition.solver.clock import Clock
from girih.partition.space.problem import Objective
from girih.plans.plan import Observe, Plan, PlanError
from girih.plans.predict import by_measurements, calibrated
from girih.search.compare import compared, searched, simulated_step
from girih.search.judge import Judge, beginning, judged
from girih.search.memory.limit import NothingFitsError, fit, refused_whole, widest_overlap
from girih.search.memory.step_seconds import simulated_seconds
from girih.search.memory.together import divided, seconds_per_byte, together
from girih.search.optimum import Optimum


def hold_of(hold: str | Baseline) -> str | Baseline:
    """One of HOLDS as it is, or the published way that a text names, with its options, as `chain:stages=32`.

    Raises:
        PlanError: there is no such way, or it has no such option.
    """
    if not isinstance(hold, str) or hold in HOLDS:
        return hold
    if hold.partition(":")[0] not in BASELINES:
        raise PlanError(f"no way {hold!r} to hold tensors: expected one of {', '.join((*HOLDS, *BASELINES))}")
    try:
        return baseline_of(hold)
    except ValueError as error:
        raise PlanError(str(error)) from error


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
    hold: str | Baseline = "auto",
    order: str = "auto",
) -> Plan:
    """The plan that a search finds, with its costs beside those of others.

    limit: bytes of each device. hold: what to do where that is too little, one of HOLDS, or a published way. order: of
    the steps in that case, `auto` or one of `girih.memory.orders.order.ORDERS`. store: measured costs, for the
    objective `time` and for simulated steps.

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
    plan = Plan(graph, machine, result.strategy, result.certificate, search.name, objective, limit, {})
    plan = replace(plan, schedule=result.schedule)
    refused: NothingFitsError | None = None
    if machine.devices == 1:
        if why := refused_whole(plan, search):
            refused = NothingFitsError(why)
    else:
        try:
            result = fit(graph, goal, result, search, limit, note)
            plan = replace(plan, strategy=result.strategy, certificate=result.certificate, schedule=result.schedule)
        except NothingFitsError as error:
            refused = error
    if refused and (hold == "none" or isinstance(search, Optimum)):  # whose proof is of plans without movements
        raise refused
    if not refused:
        plan = replace(plan, overlap=widest_overlap(plan))
    plans = divided(plan, refused.divisions if refused else ())
    if objective == "time":
        judge = Judge(plan, store, seconds_per_byte(machine) if limit is not None and hold != "none" else inf)
        best = judged(plan, search, first.name, judge, clock=clock, store=store, note=note)
        fitting = () if judge.fitting is None else (judge.fitting[1],)
        plans = divided(best, (), (*fitting, *(plan.strategy for plan in plans)))
    plan = plans[0]
    if limit is not None and (refused or plan.peak > limit):
        try:
            plan = together(plans, hold, order=order, store=store, note=note)
        except PlanError as error:
            if refused is None or machine.host is not None:
                raise
            raise PlanError(f"{refused}; {error}") from error  # what divisions need says more
        if objective == "time":
            cost = simulated_seconds(plan, store)
            plan = plan.told(certificate=replace(plan.certificate, cost=cost))
    notes = (*notes, *plan.notes, *by_measurements(machine, store))
    if plan.simulated is None:
        plan = plan.told(simulated=simulated_step(plan, store))
    plan = plan.told(notes=notes)
    baselines, missing = compared(plan, captured, compare, store=store, note=note)
    return plan.told(baselines=baselines, notes=(*notes, *missing))
