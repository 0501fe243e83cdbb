"""A plan beside its alternatives: what other searches find, and what their steps take by the simulator.

A plan and its alternatives are simulated as they are planned, whatever the objective was, unless they are so large that
it would be felt. For another machine, or by other measurements, the alternatives' searches, which are quick, are made
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from girih.graph import Graph
from girih.machine import Machine
from girih.partition.search import ScoredSearch, Search
from girih.partition.searches.exact import Exact
from girih.partition.space.problem import Objective
from girih.partition.strategy import SearchError
from girih.plans.plan import Costs, Observe, Plan, PlanError
from girih.plans.predict import predict
from girih.search.moves import searched
from girih.search.table import search_of

SECONDS = 10.0  # that each search may take
MOST_SIMULATED = 100_000
"""Nodes times devices of a plan that is simulated as it is planned: that many take about 0.4 seconds."""


BESIDE = ("single", "data", "sharded", "megatron")
"""What a plan is put beside where nobody says it: of these, what can make nothing of the graph is left out silently."""


def beside(machine: Machine) -> tuple[str, ...]:
    """The names of searches to compare with where nobody says them; one device is its own comparison."""
    return BESIDE if machine.devices > 1 else BESIDE[:1]


def _over_tables(search: Search) -> Search:
    """The search whose answer is put beside others: a scored one begins with that of `exact`."""
    return Exact(search.seconds) if isinstance(search, ScoredSearch) else search


def simulated_step(plan: Plan, store: str | Path | None) -> float | None:
    """Seconds of a plan's step by the simulator, or None where that takes long."""
    if plan.objective == "time":
        return plan.certificate.cost
    if len(plan.graph.nodes) * plan.machine.devices > MOST_SIMULATED:
        return None
    return predict(plan, store=store, memory=False).seconds


def compared(
    plan: Plan,
    graph: Graph,
    searches: Sequence[Search],
    *,
    named: bool = True,
    store: str | Path | None,
    note: Observe,
) -> tuple[tuple[Costs, ...], tuple[str, ...]]:
    """What other searches' plans of the graph cost, and why there is none of some.

    graph: as it was given; the plan's search may have written it otherwise. named: did somebody ask for these searches,
    so that it is told which of them can make nothing of the graph?
    """
    objective, begun = Objective(plan.objective, plan.machine), plan.but(graph=graph, memory=None)
    others, missing = [], []
    for name, search in {search.name: search for search in map(_over_tables, searches)}.items():
        if name == plan.search:
            continue
        note(f"compare {name}", 0.0)
        try:
            other = searched(search, graph, objective)
        except PlanError as error:
            if named:
                missing.append(f"not compared with {name}: {str(error).removeprefix(f'search {name}: ')}")
            continue
        alternative = begun.divided_by(other, name)
        if plan.objective == "time":
            took = plan.certificate.tried.get(name)  # judged by the search, and as it is priced here
            if plan.memory is not None or took is None:
                took = predict(alternative, store=store, memory=False).seconds
            alternative = alternative.but(certificate=replace(alternative.certificate, cost=took))
        others.append(alternative.but(simulated=simulated_step(alternative, store)).costs)
    return tuple(others), tuple(missing)


def simulated_alternatives(
    plan: Plan, *, machine: str | Machine | None = None, store: str | Path | None = None, backend: str = "processes"
) -> tuple[Costs, ...]:
    """The plan's baselines, their seconds simulated; what cannot be made again, as of a search that is
    not in the table, is left out. See `predict`."""
    if plan.objective == "time" and machine is None:
        return plan.baselines
    costs = []
    for item in plan.baselines:
        try:
            search = search_of(item.name, SECONDS)
            outcome = searched(search, plan.graph, Objective(plan.objective, plan.machine))
        except (PlanError, SearchError):
            continue
        other = plan.but(memory=None).divided_by(outcome, item.name)
        seconds = predict(other, machine=machine, store=store, backend=backend, memory=False).seconds
        costs.append(replace(item, seconds=seconds))
    return tuple(costs)
