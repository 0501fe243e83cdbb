"""What a search finds; under a memory limit the cheapest that meets it, the overlap that it leaves room for, or a
refusal that says what would be needed."""

from __future__ import annotations

from girih.graph import Graph, Value
from girih.layout import Placement
from girih.lower import Overlap, overlapped
from girih.machine import Machine
from girih.machine.units import format_bytes
from girih.memory.accounts import memory_use
from girih.memory.staging import exchange_bytes
from girih.partition import SearchResult, Strategy
from girih.partition.solver.memory_constrained import CannotFitError, Measured, capped
from girih.partition.space.problem import Objective
from girih.partition.strategy import SearchError
from girih.partition.table import SEARCHES
from girih.plans.plan import Observe, Plan, PlanError
from girih.plans.scratch import notes_of

# How far exchanges may overlap with computation: the first, or under a memory limit the first that meets it. The widest
# costs 0.5 % of peak memory for wresnet-50-2 on 8 devices, 3 % for a GPT, 4 % for lenet-tiny, 16 % for gpt-tiny.
WINDOWS = (Overlap(4, 16), Overlap(2, 4), Overlap(1, 1), Overlap())

TABLES = ("exact", "optimum")
"""Searches that go on under a memory limit: over the tables both are the same."""


def ran(search: str, objective: str) -> tuple[str, tuple[str, ...]]:
    """The search that runs, by its own name, and what to say where that is not the one that was asked for."""
    if search != "optimum" or objective == "time":
        return search, ()
    return "exact", (
        f"search optimum is of --objective time, whose simulated step it proves; by {objective} search exact ran",
    )


def begins_with(search: str, objective: str, where: Machine, limit: int | None) -> str:
    """The first search over tables: the one that is asked for, but for the fastest step data parallelism, whose tables
    are small, and which is simulated in any case (`girih.search.fastest` goes on with `exact`)."""
    first = objective == "time" and search == "exact" and limit is None and where.devices > 1
    return "data" if first else search


def searched(name: str, graph: Graph, goal: Objective, seconds: float) -> SearchResult:
    """What a search finds.

    Raises:
        PlanError: it can make nothing of this graph.
    """
    try:
        return SEARCHES[name](graph, goal, seconds=seconds)
    except SearchError as error:
        raise PlanError(f"search {name}: {error}") from error


def fit(
    graph: Graph,
    goal: Objective,
    found: SearchResult,
    search: str,
    limit: int | None,
    seconds: float,
    note: Observe,
) -> SearchResult:
    """The result, or the cheapest one that meets the memory limit."""
    if limit is None:
        return found

    def trial(strategy: Strategy) -> Plan:
        return Plan(graph, goal.machine, strategy, found.certificate, search, goal.name, limit, {})

    def measure(strategy: Strategy) -> Measured:
        worst = max(trial(strategy).memory_by_device, key=lambda use: use.peak)
        return Measured(worst.peak, worst.at)

    def exchanged(value: Value, source: Placement, target: Placement, dense: bool, kept: bool) -> int:
        return exchange_bytes(goal.transfers, value, source, target, goal.machine.devices - 1, dense, kept)

    first = measure(found.strategy)
    if first.peak <= limit:
        return found
    if search not in TABLES:
        name = {"single": "one device", "data": "data parallelism"}.get(search, search)
        needs = f"this division needs {format_bytes(first.peak)} ({first.peak} bytes)"
        raise PlanError(_refusal(trial(found.strategy), name, limit, needs))
    note("fit memory", 0.0)
    try:
        return capped(graph, goal, limit, measure, exchanged, first=found, seconds=seconds)
    except CannotFitError as error:
        needs = _needs(error.smallest, error.bound, limit)
        raise PlanError(_refusal(trial(error.best.strategy), f"{goal.machine}", limit, needs)) from error


def widest_overlap(made: Plan) -> Overlap:
    """The first of the windows with which the plan, which meets its memory limit without, still does."""
    if made.memory is None:
        return WINDOWS[0]
    worst_first = [use.device for use in sorted(made.memory_by_device, key=lambda use: -use.peak)]
    for window in WINDOWS:
        program = overlapped(made.program, window)
        notes = notes_of(program, made.machine, made.scratch)
        if all(memory_use(program, device, notes.threads, notes).peak <= made.memory for device in worst_first):
            return window
    return WINDOWS[-1]


def _needs(smallest: int, bound: int, limit: int) -> str:
    """What is known of the limits that can be met. smallest: one that is met, the same whatever limit was asked for;
    bound: bytes that every plan of this search needs."""
    known = f"{format_bytes(smallest)} ({smallest} bytes)"
    if bound >= smallest:
        return f"it needs {known}, which is proved to be the smallest limit that can be met,"
    if bound > limit:
        return f"it needs at least {bound} bytes, which is proved; the smallest limit found that is met is {known},"
    return (
        f"no plan was found, and none needs less than {bound} bytes; the smallest limit found that is met is {known},"
    )


def _refusal(tried: Plan, what: str, limit: int, needs: str) -> str:
    worst = max(tried.memory_by_device, key=lambda use: use.peak)
    tensors = ", ".join(f"{buffer} {format_bytes(size)}" for buffer, size in worst.largest[:5])
    during = "before the first operator" if worst.at < 0 else f"during {tried.graph.nodes[worst.at].name}"
    return (
        f"{what} does not fit {format_bytes(limit)} for each device: {needs} with its peak {during}; "
        f"largest there: {tensors}. Raise the limit, use more devices, or make the batch smaller"
    )
