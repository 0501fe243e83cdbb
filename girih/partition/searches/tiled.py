"""Tilings of array programs, exact or greedy, with second copies of arrays within a budget of memory (Spartan §3.4).

`tiled` is what lazy arrays ask for. Without a budget it is the search by name. With one, arrays that are read several
times may lie in two layouts (`girih.partition.space.copies`), and the tiling comes with the Graph in which the copies
stand.

The budget couples all arrays, which tables over pairs cannot say. The exact search first leaves it out; where the best
copies do not fit, it branches on the largest of them (one child without it, one that has it), lowest bound first:
a child's optimum is the bound of its part of the space. With copies free, the answer is the optimum of all tilings;
proved like every other. Copies that save nothing are dropped.
"""

from __future__ import annotations

import heapq
import itertools
import time
from dataclasses import dataclass, field, replace

import numpy as np

from girih.graph import Graph
from girih.layout.budget import Budget
from girih.partition.search import Search
from girih.partition.searches.exact import Exact, solve
from girih.partition.searches.spartan import Spartan, TilingGraph, greedy_certificate, spartan_labels
from girih.partition.solver.elimination import Problem, cost_of
from girih.partition.space.choice import Tiling, TilingByNumber, applied, choice_of, value_order
from girih.partition.space.copies import CopyProblem, Held, widened
from girih.partition.space.options import Rules
from girih.partition.space.problem import Objective, rules_of, value_variables
from girih.partition.strategy import SearchError
from girih.rewrite.certificate import Certificate

SPACE = "every assignment of mesh axes to index variables of every node, every value in one layout or two"
ALONE = "every assignment of mesh axes to index variables of every node and to dimensions of every value"


TILING = (Exact, Spartan)
"""The searches that may hold arrays in a second layout."""


@dataclass(frozen=True)
class Wanted:
    """What to search for.

    search: one of TILING. copies: bytes that second copies may take on all devices together. held: layouts of inputs
    that lie already, one or two of each; others are loaded where they are wanted.
    """

    search: Search = field(default_factory=Exact)
    copies: int = 0
    held: Held | None = None
    rules: Rules | None = None


WANTED = Wanted()


def tiled(graph: Graph, objective: Objective, wanted: Wanted = WANTED) -> tuple[Tiling, Certificate]:
    """The tiling of a graph, and what is proved of it.

    Raises SearchError for a search, or a layout, that is not there.
    """
    choice, certificate = chosen(graph, objective, wanted)
    return applied(graph, choice), certificate


def chosen(graph: Graph, objective: Objective, wanted: Wanted) -> tuple[TilingByNumber, Certificate]:
    """`tiled`, free of names."""
    if not isinstance(wanted.search, TILING):
        names = " or ".join(search.name for search in TILING)
        raise SearchError(f"no search {wanted.search.name!r} with second copies: expected {names}")
    held = dict(wanted.held or {})
    rules = wanted.rules or rules_of(objective)
    started = time.perf_counter()
    whole = not objective.machine.mesh.sizes and not any(item.axes for lies in held.values() for item in lies)
    if whole and objective.unit == "bytes" and isinstance(wanted.search, Exact):
        return _undivided(graph, objective, wanted.copies, started)
    item = widened(graph, objective, rules, held, wanted.copies)
    if isinstance(wanted.search, Exact):
        labels, certificate = _optimum(item, objective, wanted, started)
    else:
        labels = spartan_labels(item.single, item.problem, item.bytes, wanted.copies)
        spent = round(time.perf_counter() - started, 4)
        certificate = greedy_certificate(item.problem, labels, objective, spent)
    return choice_of(item, labels, objective, frozenset(held)), certificate


def _undivided(graph: Graph, objective: Objective, copies: int, started: float) -> tuple[TilingByNumber, Certificate]:
    """One device: all that there is to choose from, and nothing moves."""
    variables = max(value_variables(graph).values(), default=-1) + 1 + len(graph.nodes)
    layouts = tuple([((),) for _ in value_order(graph)])
    reads = tuple([((0,) * len(node.inputs),) for node in graph.nodes])
    choice = TilingByNumber(objective.machine.mesh, layouts, (((),),) * len(graph.nodes), reads, frozenset())
    statistics: dict[str, float | int | str] = {
        "seconds to search": round(time.perf_counter() - started, 4),
        "variables": variables,
        "bytes of copies": 0.0,
        "parts": 1,
    }
    space = SPACE if copies else ALONE
    return choice, Certificate(0.0, 0.0, objective.unit, "elimination", "optimal", space, statistics)


def _optimum(item: CopyProblem, objective: Objective, wanted: Wanted, started: float) -> tuple[np.ndarray, Certificate]:
    """The cheapest labels whose copies fit the budget."""
    budget = Budget(wanted.search.seconds)
    count = itertools.count()
    everything = tuple(np.ones(len(costs), np.bool_) for costs in item.bytes)
    queue: list[tuple[float, int, np.ndarray, tuple[np.ndarray, ...]]] = []
    best: np.ndarray | None = None
    cost, how, left_out = np.inf, "elimination", np.inf

    def open_part(allowed: tuple[np.ndarray, ...]) -> None:
        nonlocal best, cost, how, left_out
        if sum(float(costs[able].min()) for costs, able in zip(item.bytes, allowed, strict=True)) > wanted.copies:
            return
        solution = solve(_restricted(item.problem, allowed), objective, budget.seconds)
        budget.spend(float(solution.statistics["seconds of work"]) * 1e9)
        labels = _without_idle_copies(item, solution.labels)
        if solution.how != "elimination":
            how = solution.how
        if item.cost_of_copies(labels) <= wanted.copies:
            left_out = min(left_out, solution.bound)
            if (met := cost_of(item.problem, labels)) < cost:
                best, cost = labels, met
        else:
            heapq.heappush(queue, (solution.bound, next(count), labels, allowed))

    open_part(everything)
    while queue and queue[0][0] < cost:
        if budget.late:
            break
        _, _, labels, allowed = heapq.heappop(queue)
        how = "branch and bound"
        for able in _split(item, labels, allowed):
            open_part(able)
    bound = min(left_out, cost, *(entry[0] for entry in queue))
    if best is None:  # out of time: no copies
        open_part(tuple(np.asarray([len(held) == 1 or len(holds) == 1 for held in holds]) for holds in item.holds))
    assert best is not None
    closed = cost - bound <= 1e-9 * cost + (1e-15 if objective.unit == "seconds" else 1e-6)
    statistics: dict[str, float | int | str] = {
        "seconds to search": round(time.perf_counter() - started, 4),
        "variables": len(item.problem.domains),
        "bytes of copies": item.cost_of_copies(best),
        "parts": next(count),
    }
    space = SPACE if wanted.copies else ALONE
    stopped = "optimal" if closed else budget.why
    return best, Certificate(cost, cost if closed else bound, objective.unit, how, stopped, space, statistics)


def _restricted(problem: Problem, allowed: tuple[np.ndarray, ...]) -> Problem:
    """The problem with some labels of values forbidden."""
    if all(able.all() for able in allowed):
        return problem
    unary, tables = list(problem.unary), list(problem.tables)
    for value, able in enumerate(allowed):
        if not able.all():
            own = tables[unary[value]] if unary[value] >= 0 else np.zeros(len(able))
            unary[value] = len(tables)
            tables.append(np.where(able, own, np.inf))
    return replace(problem, unary=tuple(unary), tables=tuple(tables))


def _split(
    item: CopyProblem, labels: np.ndarray, allowed: tuple[np.ndarray, ...]
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Two parts: the largest copy that need not be is not made, or takes at least so much."""
    spare = [
        float(costs[labels[value]] - costs[able].min())
        for value, (costs, able) in enumerate(zip(item.bytes, allowed, strict=True))
    ]
    value = int(np.argmax(spare))
    smaller = item.bytes[value] < item.bytes[value][labels[value]]
    without, within = list(allowed), list(allowed)
    without[value], within[value] = allowed[value] & smaller, allowed[value] & ~smaller
    return tuple(without), tuple(within)


def _without_idle_copies(item: CopyProblem, labels: np.ndarray) -> np.ndarray:
    """The labels without the second copies that save nothing."""
    idle = [value for value, holds in enumerate(item.holds) if len(holds[labels[value]]) > 1]
    if not idle:
        return labels
    graph = TilingGraph(item.single, item.problem)
    graph.labels[: len(item.bytes)] = labels[: len(item.bytes)]
    for value in reversed(idle):  # views before their bases, which serve them
        costs = graph.costs(value)
        lone = np.where([len(held) == 1 for held in item.holds[value]], costs, np.inf)
        if lone.min() <= costs[labels[value]] * (1 + 1e-12):
            graph.labels[value] = int(np.argmin(lone))
    return graph.finished()
