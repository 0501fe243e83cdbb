"""`exact`: the least cost over all strategies on the mesh, with a proof (Tofu §5, without its restrictions).

Tofu restricts itself to recursive plans because its dynamic program over all divisions takes hours. Here the graph
becomes a weighted constraint problem (`girih.partition.space.problem`) that exact reductions, dual bounds and
elimination solve (`girih.partition.solver.elimination`); repeated layers are priced and eliminated once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from girih.graph import Graph
from girih.layout.budget import Clock
from girih.partition.search import Search
from girih.partition.solver.elimination import Problem, Solution, minimise
from girih.partition.space.options import SECONDS, TOFU, Rules
from girih.partition.space.problem import EVERYTHING, SPACES, Candidates, Objective, build, rules_of
from girih.partition.strategy import SearchError, SearchResult
from girih.rewrite.certificate import Certificate

SPACE = "every assignment of mesh axes to index variables of every node and to dimensions of every value"

TOFUS = f"{SPACE}, every sum added where it is made"

NANOSECONDS = 1e9


def solve(problem: Problem, objective: Objective, seconds: float, *, enough: float = 0.0) -> Solution:
    """The cheapest labels; seconds are solved as nanoseconds, where the solver's tolerance of 1e-6 is nothing."""
    if objective.unit != "seconds":
        return minimise(problem, seconds=seconds, enough=enough)
    scaled = replace(problem, tables=tuple(table * NANOSECONDS for table in problem.tables))
    labelling = minimise(scaled, seconds=seconds, enough=enough)
    return replace(labelling, cost=labelling.cost / NANOSECONDS, bound=labelling.bound / NANOSECONDS)


@dataclass(frozen=True)
class Exact(Search):
    """The least cost over all strategies, with a proof (Tofu §5, without its restrictions).

    space: `whole`, or `tofu` for Tofu's own space by `bytes`, in which every sum is added where it is made. rules: what
    may be chosen, in the place of the space. By `time`, `girih.search.fastest` goes on from what it finds by `seconds`.
    enough: the gap, as a share of the cost, with which it may end.

    Raises:
        SearchError: there is no such space.
    """

    rules: Rules | None = None
    enough: float = field(default=0.0, repr=False)
    space: str = "whole"

    name: ClassVar[str] = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.space not in SPACES:
            raise SearchError(f"no space {self.space!r}: expected one of {', '.join(SPACES)}")

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        rules = self.rules_of(objective)
        told = TOFUS if rules == TOFU else SPACE
        return exact(graph, objective, rules=rules, seconds=self.seconds, enough=self.enough, space=told)

    def rules_of(self, objective: Objective) -> Rules:
        """What may be chosen under an objective."""
        return self.rules or rules_of(objective, self.space)


def exact(
    graph: Graph,
    objective: Objective,
    *,
    rules: Rules | None = None,
    candidates: Candidates = EVERYTHING,
    seconds: float = 60.0,
    enough: float = 0.0,
    space: str = SPACE,
) -> SearchResult:
    """The cheapest strategy among candidates, and its certificate: what most searches narrow.

    rules: what may be chosen; by default Tofu's rule for `bytes`, and everything for `seconds`.
    seconds: of work, after which the best strategy so far is returned with its gap (`Budget`); pricing, which has to be
    done, does not count, but by `time`, where a search has its part of seconds that are given. enough: the gap, as a
    share of the cost, with which it may end.

    Raises:
        OutOfTimeError: the objective has a budget, and it is too small for the tables.
    """
    clock = Clock()
    chosen = rules if rules is not None else (SECONDS if objective.unit == "seconds" else TOFU)
    problem = build(graph, objective, chosen, candidates)
    built = clock.passed
    left = max(seconds - problem.seconds, 0.0) if objective.name == "time" else seconds
    solution = solve(problem.problem, objective, left, enough=enough)
    searching = float(solution.statistics["seconds of work"])
    if objective.budget is not None:
        objective.budget.spend(searching * NANOSECONDS)
    statistics: dict[str, float | int | str] = {
        "seconds to price": round(built, 3),
        "seconds to search": round(clock.passed - built, 3),
        "variables": len(problem.problem.domains),
        "tables": len(problem.problem.tables),
        **solution.statistics,
        "seconds of work": round(problem.seconds + searching, 3),
        "seconds of work to price": round(problem.seconds, 3),
    }
    certificate = Certificate(
        solution.cost, solution.bound, objective.unit, solution.how, solution.stopped, space, statistics
    )
    return SearchResult(problem.strategy(solution.labels), certificate)
