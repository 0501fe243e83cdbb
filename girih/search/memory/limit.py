"""Under a memory limit the cheapest strategy that meets it, the overlap that it leaves room for, or a refusal that says
what would be needed."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from girih.graph import Graph, Value
from girih.layout import Placement
from girih.machine.units import format_bytes
from girih.partition import SearchResult, Strategy
from girih.partition.search import ScoredSearch, Search
from girih.partition.searches.exact import Exact
from girih.partition.solver.held import Exchanged
from girih.partition.solver.memory_constrained import CannotFitError, Effort, Measured, memory_constrained
from girih.partition.space.problem import Objective
from girih.plans.choice import Choice
from girih.plans.plan import Goal, Observe, Plan, PlanError
from girih.plans.scratch import notes_of
from girih.program import Overlap, overlapped
from girih.program.life.accounts import memory_uses
from girih.program.life.staging import exchange_bytes
from girih.search.portfolio import Portfolio

# How far exchanges may overlap with computation: the first, or under a memory limit the first that meets it. The widest
# costs 0.5 % of peak memory for wresnet-50-2 on 8 devices, 3 % for a GPT, 4 % for lenet-tiny, 16 % for gpt-tiny.
WINDOWS = (Overlap(4, 16), Overlap(2, 4), Overlap(1, 1), Overlap())
FEW = Effort(least=4, coarse=1, fine=2, rounds=2)
"""Where others are simulated beside what is found, and layers exchanged: as good a plan in half the time. If nothing
that is found fits, all is tried before the limit is refused."""


class NothingFitsError(PlanError):
    """No division meets the limit. divisions: from those that communicate least to those that need least memory; empty
    where a search has one answer only."""

    def __init__(self, message: str, divisions: tuple[SearchResult, ...] = ()) -> None:
        super().__init__(message)
        self.divisions = divisions


def fit(
    graph: Graph,
    objective: Objective,
    result: SearchResult,
    search: Search,
    limit: int | None,
    note: Observe,
) -> SearchResult:
    """The result of a search over tables, or the cheapest one that meets the memory limit. What is proved by the tables
    of all divisions, and scored searches, which begin with them, go on under a limit; others have one answer.

    Raises:
        NothingFitsError: the limit cannot be met.
    """
    if limit is None:
        return result

    def trial(strategy: Strategy) -> Plan:
        choice = Choice(strategy, routes=objective.unit, schedule=result.schedule)
        goal = Goal(search.name, objective.name, limit)
        return Plan(graph, objective.machine, choice, result.certificate, goal)

    def measure(strategy: Strategy) -> Measured:
        worst = max(trial(strategy).memory_by_device, key=lambda use: use.peak)
        return Measured(worst.peak, worst.at)

    exchanged = exchanges(objective)
    first = measure(result.strategy)
    if first.peak <= limit:
        return result
    if not isinstance(search, Exact | ScoredSearch):
        raise NothingFitsError(_refused_division(trial(result.strategy), search))
    note("fit memory", 0.0)
    rules = search.rules_of(objective) if isinstance(search, Exact) else None
    fitted = partial(memory_constrained, graph, objective, limit, measure, exchanged, first=result, rules=rules)
    if isinstance(search, Portfolio):
        with suppress(CannotFitError):
            return fitted(effort=FEW, seconds=search.seconds)
    try:
        return fitted(seconds=search.seconds)
    except CannotFitError as error:
        needs = _needs(error.smallest, error.bound, limit)
        told = _refusal(trial(error.best.strategy), f"{objective.machine}", limit, needs, proved=error.bound > limit)
        raise NothingFitsError(told, error.divisions) from error


def exchanges(objective: Objective) -> Exchanged:
    """What the last device holds while a value goes from one placement to another."""

    def exchanged(value: Value, source: Placement, target: Placement, dense: bool, kept: bool) -> int:
        return exchange_bytes(objective.transfers, value, source, target, objective.machine.devices - 1, dense, kept)

    return exchanged


def refused_whole(plan: Plan, search: Search) -> str:
    """Why a plan of one device, of which all divisions are one, does not keep its limit; "" if it does."""
    if plan.memory is None or plan.peak <= plan.memory:
        return ""
    if not isinstance(search, Exact | ScoredSearch):
        return _refused_division(plan, search)
    return _refusal(plan, f"{plan.machine}", plan.memory, _needs(plan.peak, plan.peak, plan.memory))


def _refused_division(plan: Plan, search: Search) -> str:
    assert plan.memory is not None
    name = {"single": "one device", "data": "data parallelism"}.get(search.name, search.name)
    return _refusal(plan, name, plan.memory, f"this division needs {format_bytes(plan.peak)} ({plan.peak} bytes)")


def widest_overlap(plan: Plan) -> Overlap:
    """The first of the windows with which the plan, which meets its memory limit without, still does. A schedule of its
    own has its exchanges overlap already."""
    if plan.choice.schedule != "graph":
        return Overlap()
    if plan.memory is None:
        return WINDOWS[0]
    worst_first = [use.device for use in sorted(plan.memory_by_device, key=lambda use: -use.peak)]
    for window in WINDOWS:
        program = overlapped(plan.program, window)
        notes = notes_of(program, plan.machine, plan.scratch)
        if all(use.peak <= plan.memory for use in memory_uses(program, worst_first, notes.threads, notes)):
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
    return f"none needs less than {bound} bytes, which is proved; the smallest limit found that is met is {known},"


def _refusal(tried: Plan, what: str, limit: int, needs: str, proved: bool = True) -> str:
    """proved: that nothing fits; else only that nothing was found that does."""
    worst = max(tried.memory_by_device, key=lambda use: use.peak)
    tensors = ", ".join(f"{buffer} {format_bytes(size)}" for buffer, size in worst.largest[:5])
    during = "before the first operator" if worst.at < 0 else f"during {tried.graph.nodes[worst.at].name}"
    fails = f"{what} does not fit {format_bytes(limit)} for each device"
    if not proved:
        fails = f"no division of {what} was found that fits {format_bytes(limit)} for each device, though one may exist"
    return (
        f"{fails}: {needs} with its peak {during}; "
        f"largest there: {tensors}. Raise the limit, use more devices, or make the batch smaller"
    )
