"""Under a memory limit the cheapest strategy that meets it, the overlap that it leaves room for, or a refusal that says
what would be needed."""

from __future__ import annotations

from girih.graph import Graph, Value
from girih.layout import Placement
from girih.machine import Machine
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
from girih.program.life.accounts import MemoryUse, memory_uses
from girih.program.life.staging import exchange_bytes
from girih.search.portfolio import Portfolio

# How far exchanges may overlap with computation: the first, or under a memory limit the first that meets it. The widest
# costs 0.5 % of peak memory for wresnet-50-2 on 8 devices, 3 % for a GPT, 4 % for lenet-tiny, 16 % for gpt-tiny.
WINDOWS = (Overlap(4, 16), Overlap(2, 4), Overlap(1, 1), Overlap())
FEW = Effort(least=4, coarse=1, fine=2, rounds=2)
"""Where others are simulated beside what is found, and layers exchanged: as good a plan in half the time. If nothing
that is found fits, all is tried before the limit is refused, beside what was found."""


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

    uses: list[MemoryUse] = []  # of the device that needs most, for each strategy that was measured

    def measure(strategy: Strategy) -> Measured:
        uses.append(_worst(trial(strategy)))
        return Measured(uses[-1].peak, uses[-1].at)

    first = measure(result.strategy)
    if first.peak <= limit:
        return result
    if not isinstance(search, Exact | ScoredSearch):
        raise NothingFitsError(_refused_division(trial(result.strategy), search))
    note("fit memory", 0.0)
    rules = search.rules_of(objective) if isinstance(search, Exact) else None
    few = isinstance(search, Portfolio)
    try:
        return memory_constrained(
            graph,
            objective,
            limit,
            lambda strategy: first if strategy == result.strategy else measure(strategy),
            exchanges(objective),
            first=result,
            rules=rules,
            effort=FEW if few else Effort(),
            more=Effort() if few else None,
            seconds=search.seconds,
        )
    except CannotFitError as error:
        needs = _needs(error.smallest, error.bound, limit)
        least = min(uses, key=lambda use: use.peak)
        told = _refusal(least, graph, f"{objective.machine}", limit, needs, proved=error.bound > limit)
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
    needs = _needs(plan.peak, plan.peak, plan.memory)
    return _refusal(_worst(plan), plan.graph, f"{plan.machine}", plan.memory, needs)


def _refused_division(plan: Plan, search: Search) -> str:
    assert plan.memory is not None
    name = {"single": "one device", "data": "data parallelism"}.get(search.name, search.name)
    needs = f"this division needs {format_bytes(plan.peak)} ({plan.peak} bytes)"
    return _refusal(_worst(plan), plan.graph, name, plan.memory, needs)


def _worst(plan: Plan) -> MemoryUse:
    """What the device holds that needs most."""
    return max(plan.memory_by_device, key=lambda use: use.peak)


def too_much_state(graph: Graph, machine: Machine, limit: int) -> str:
    """Why no plan keeps a limit, whatever is divided or computed again: what lives from step to step is on the devices
    when a step begins, each byte on one of them at least. "" where it may fit, or may be moved away."""
    state = sum(graph.values[item.name].bytes for item in graph.state_inputs)
    if machine.host is not None or state <= limit * machine.devices:
        return ""
    each, devices = -(-state // machine.devices), machine.devices
    shared = f", {format_bytes(each)} ({each} bytes) on each of {devices} devices" if devices > 1 else ""
    return (
        f"parameters and what else lives from step to step are {format_bytes(state)}{shared}, which nothing computes "
        "again: give the machine's file a `host` to move them to"
    )


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


def _refusal(worst: MemoryUse, graph: Graph, what: str, limit: int, needs: str, proved: bool = True) -> str:
    """worst: what the device holds that needs most. proved: that nothing fits; else only that nothing was found that
    does."""
    tensors = ", ".join(f"{buffer} {format_bytes(size)}" for buffer, size in worst.largest[:5])
    during = "before the first operator" if worst.at < 0 else f"during {graph.nodes[worst.at].name}"
    fails = f"{what} does not fit {format_bytes(limit)} for each device"
    if not proved:
        fails = f"no division of {what} was found that fits {format_bytes(limit)} for each device, though one may exist"
    return (
        f"{fails}: {needs} with its peak {during}; "
        f"largest there: {tensors}. Raise the limit, use more devices, or make the batch smaller"
    )
