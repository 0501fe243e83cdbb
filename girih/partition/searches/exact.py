"""`exact`: the least cost over all strategies on the mesh, with a proof (Tofu §5, without its restrictions).

Tofu restricts itself to recursive plans because its dynamic program over all divisions takes hours. Here the graph
becomes a weighted constraint problem (`girih.partition.space.problem`) that exact reductions, dual bounds and
elimination solve (`girih.partition.solver.elimination`); repeated layers are priced and eliminated once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from girih.graph import Graph
from girih.layout.budget import Clock
from girih.partition.search import Search
from girih.partition.searches.by_keys import by_keys, whole_or_by_keys
from girih.partition.solver.elimination import Problem, Solution, minimise
from girih.partition.space.choice import applied
from girih.partition.space.fetches import FetchProblem, fetched_once
from girih.partition.space.options import SECONDS, TOFU, Rules
from girih.partition.space.problem import (
    EVERYTHING,
    SPACES,
    Candidates,
    Objective,
    PartitionProblem,
    build,
    rules_of,
)
from girih.partition.strategy import SearchError, SearchResult
from girih.rewrite.certificate import Certificate
from girih.rewrite.passes.attention import TakeAttentionApart, key_blocks

ATTENTION = ("cheapest", "whole", "keys", "apart")
SPACE = "every assignment of mesh axes to index variables of every node and to dimensions of every value"

TOFUS = f"{SPACE}, every sum added where it is made"
PARTLY = f"{SPACE}, partial sums included, and partial maxima and minima of what follows from one"
FOR_EACH = f"{PARTLY}, what is read elsewhere fetched for each reader"
SHARED = f"{PARTLY}, what several readers fetch brought once to one second layout where that pays"

NANOSECONDS = 1e9
WIDER = 0.05
"""The share of a search's seconds of work that the whole space by `bytes` may take."""


def solve(
    problem: Problem, objective: Objective, seconds: float, *, enough: float = 0.0, closing: float = 0.0
) -> Solution:
    """The cheapest labels; seconds are solved as nanoseconds, where the solver's tolerance of 1e-6 is nothing."""
    if objective.unit != "seconds":
        return minimise(problem, seconds=seconds, enough=enough, closing=closing)
    scaled = replace(problem, tables=tuple(table * NANOSECONDS for table in problem.tables))
    labelling = minimise(scaled, seconds=seconds, enough=enough, closing=closing)
    return replace(labelling, cost=labelling.cost / NANOSECONDS, bound=labelling.bound / NANOSECONDS)


@dataclass(frozen=True)
class Exact(Search):
    """The least cost over all strategies, with a proof (Tofu §5, without its restrictions).

    space: by `bytes` `whole`, `apart`, where each reader fetches for itself what it lacks, or `tofu`, Tofu's own, where
    every sum is added where it is made, too. rules: what may be chosen, in the place of the space. By `time`,
    `girih.search.fastest` goes on from what it finds by `seconds`. enough: the gap, as a share of the cost, with which
    it may end once `closing` seconds of work have not closed it. attention: `whole`; `keys`, by blocks of keys;
    `apart`, as products and a softmax, whose scores are values of the graph (`girih.rewrite.passes.attention`); or
    `cheapest`: whole, or by keys where it has fewer heads than there are devices and that costs less, by `bytes` and
    `seconds`.

    Raises:
        SearchError: there is no such space, or no such attention.
    """

    rules: Rules | None = None
    enough: float = field(default=0.0, repr=False)
    closing: float = field(default=0.0, repr=False)
    space: str = "whole"
    attention: str = "cheapest"

    name: ClassVar[str] = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.space not in SPACES:
            raise SearchError(f"no space {self.space!r}: expected one of {', '.join(SPACES)}")
        if self.attention not in ATTENTION:
            raise SearchError(f"no attention {self.attention!r}: expected one of {', '.join(ATTENTION)}")

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        if self.attention == "apart":
            apart = TakeAttentionApart().apply(graph)
            result = replace(self, attention="whole").search(apart, objective)
            return result if apart is graph or result.graph is not None else replace(result, graph=apart)
        devices, search = objective.machine.devices, partial(self._as_it_is, objective)
        if self.attention == "keys" and (blocks := key_blocks(graph, devices)):
            return by_keys(graph, blocks, self.seconds, search)
        if self.attention == "cheapest" and objective.name != "time" and self.space != "tofu":
            return whole_or_by_keys(graph, devices, self.seconds, search)
        return search(graph, self.seconds)

    def _as_it_is(self, objective: Objective, graph: Graph, seconds: float) -> SearchResult:
        """What is found of a graph that is not written otherwise."""
        rules = self.rules_of(objective)
        if rules.shared and objective.unit == "bytes":
            return whole_space(graph, objective, rules, seconds, self.candidates(graph, objective))
        told = TOFUS if rules == TOFU else FOR_EACH if objective.unit == "bytes" else SPACE
        return exact(
            graph, objective, rules=rules, candidates=self.candidates(graph, objective), seconds=seconds,
            enough=self.enough, closing=self.closing, space=told,
        )  # fmt: skip

    def rules_of(self, objective: Objective) -> Rules:
        """What may be chosen under an objective."""
        return self.rules or rules_of(objective, self.space)

    def candidates(self, graph: Graph, objective: Objective) -> Candidates:
        """What may be chosen from, where that is narrower than the rules."""
        return EVERYTHING


@dataclass(frozen=True)
class ByKeys(Exact):
    """`exact` where attention is by blocks of keys: what the fastest plan of a graph that has such is put beside."""

    attention: str = "keys"

    name: ClassVar[str] = "attention by keys"


def exact(
    graph: Graph,
    objective: Objective,
    *,
    rules: Rules | None = None,
    candidates: Candidates = EVERYTHING,
    seconds: float = 60.0,
    enough: float = 0.0,
    closing: float = 0.0,
    space: str = SPACE,
) -> SearchResult:
    """The cheapest strategy among candidates, and its certificate: what most searches narrow. Each reader fetches for
    itself what it lacks.

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
    return _solved(problem, objective, seconds, enough, space, clock, closing=closing)


def whole_space(
    graph: Graph, objective: Objective, rules: Rules, seconds: float, candidates: Candidates = EVERYTHING
) -> SearchResult:
    """The cheapest strategy by `bytes` where what several readers fetch may be brought once to a second layout, and its
    certificate. Where the tables are too many, each reader fetches for itself, and the certificate says so. Never
    dearer than the optimum of Tofu's space, as far as that is found in the same seconds.

    The whole space has a share of the seconds: the least that it ends with is found early, and what takes long is the
    proof (Llama of 6 layers on 2×2: the same bytes after 3 seconds of work as after 60).
    """
    clock = Clock()
    wider = WIDER * seconds
    single = build(graph, objective, rules, candidates)
    wide = fetched_once(single, objective)
    if wide is None:
        found = _solved(single, objective, wider, 0.0, FOR_EACH, clock)
    else:
        found = _solved(replace(single, problem=wide.problem), objective, wider, 0.0, SHARED, clock, wide)
    if found.certificate.stopped == "optimal":
        return found
    narrow = exact(
        graph, objective, rules=replace(rules, partial=False, shared=False), candidates=candidates, seconds=seconds
    )
    if narrow.certificate.cost >= found.certificate.cost:
        return found
    told = replace(narrow.certificate, bound=found.certificate.bound, stopped=found.certificate.stopped)
    return replace(narrow, certificate=replace(told, space=found.certificate.space))


def _solved(
    problem: PartitionProblem,
    objective: Objective,
    seconds: float,
    enough: float,
    space: str,
    clock: Clock,
    wide: FetchProblem | None = None,
    closing: float = 0.0,
) -> SearchResult:
    """The answer of a problem that is built. wide: what its labels mean where they are more than layouts."""
    built = clock.passed
    left = max(seconds - problem.seconds, 0.0) if objective.name == "time" else seconds
    solution = solve(problem.problem, objective, left, enough=enough, closing=closing)
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
    if wide is None:
        return SearchResult(problem.strategy(solution.labels), certificate)
    tiling = applied(problem.graph, wide.choice(solution.labels))
    return SearchResult(tiling.strategy, certificate, tiling.graph if tiling.copies else None)
