"""All choices of a plan in their order: a search over tables, the memory limit, the overlap, the simulated step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from girih.graph import Graph
from girih.machine import Machine
from girih.partition.solver.clock import Clock
from girih.partition.table import Data, Exact, Search
from girih.plans.plan import Observe, Plan, goal_of
from girih.plans.predict import by_measurements, calibrated
from girih.search.compare import compared, searched, simulated_step
from girih.search.fastest import fastest
from girih.search.memory_limit import fit, widest_overlap


def choose(
    graph: Graph,
    machine: Machine,
    search: Search,
    objective: str,
    *,
    limit: int | None,
    compare: tuple[Search, ...],
    store: str | Path | None,
    note: Observe,
) -> Plan:
    """The plan that a search finds, with its costs beside those of others.

    limit: bytes of each device. store: measured costs, for the objective `time` and for simulated steps.

    Raises:
        PlanError: the search can make nothing of the graph, or the limit cannot be met.
    """
    notes: tuple[str, ...] = ()
    if not search.supports(objective):
        notes = (
            f"search {search.name} is of --objective {' or '.join(search.objectives)}; by {objective} search exact ran",
        )
        search = Exact(search.seconds)
    if objective == "time":
        machine = calibrated(machine, store)
    goal, clock, captured = goal_of(objective, machine), Clock(), graph
    first = _first(search, objective, machine, limit)
    note(f"search {first.name}", 0.0)
    result = searched(first, graph, goal)
    graph = result.graph or graph
    result = fit(graph, goal, result, search, limit, note)
    plan = Plan(graph, machine, result.strategy, result.certificate, search.name, objective, limit, {})
    plan = replace(plan, schedule=result.schedule)
    plan = replace(plan, overlap=widest_overlap(plan))
    if objective == "time":
        plan = fastest(plan, first=first.name, seconds=search.seconds, clock=clock, store=store, note=note)
    notes = (*notes, *by_measurements(machine, store))
    plan = replace(plan, simulated=simulated_step(plan, store), notes=notes)
    baselines, missing = compared(plan, captured, compare, store=store, note=note)
    return replace(plan, baselines=baselines, notes=(*notes, *missing))


def _first(search: Search, objective: str, machine: Machine, limit: int | None) -> Search:
    """The search over tables that comes first: the one that is asked for, in half of the time where the simulated step
    is judged behind it. For the fastest step, `exact` begins with data parallelism, whose tables are small, and which
    is simulated in any case (`girih.search.fastest` goes on with `exact`)."""
    if objective != "time":
        return search
    if search.name == Exact.name and limit is None and machine.devices > 1:
        return Data(search.seconds)
    return replace(search, seconds=search.seconds / 2)
