"""The search for the objective `time` where none is named: what others would do, judged by the simulated step.

What is quick and tells most comes first: data parallelism, one device alone, the optimum over all tables (`exact`, by
`seconds`). Where none of these is faster than one device, the step is too small to be divided, and the search ends.
Else sharded data parallelism and what experts do follow, and layers are exchanged between all of them
(`girih.search.crossover`). The work is counted: of the tables, of the searches over them, and of judging what they
find; exchanges are so many. So the answer is the same however busy the host is. If the seconds of work are over it
ends, and says so.
Chains of random proposals, which take as long as they are given, are left to `exact` and `sampled`
(`girih.search.fastest`).

Cost: that of the searches, and a call of the score for each candidate and each exchange.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from girih.graph import Graph
from girih.layout.budget import Budget
from girih.partition import SearchResult
from girih.partition.search import ScoredSearch
from girih.partition.searches.exact import exact
from girih.partition.space.pricing import OutOfTimeError
from girih.partition.space.problem import Objective
from girih.partition.strategy import SearchError
from girih.rewrite.certificate import Certificate
from girih.search.crossover import Crossing
from girih.search.fastest import Counted
from girih.search.table import search_of
from girih.simulate.bounds import bound_of

CANDIDATES = ("data", "single", "exact", "sharded", "equal", "one-weird-trick", "hybrid", "model", "rnn-expert")
ALONE = "no division is faster than one device"
SPACE = "divisions and places of every node"
ENOUGH = 0.01
"""The gap with which `exact` may end here: its tables, in which nothing overlaps, are no truer than that."""
EXCHANGES = 10_000_000
"""Nodes × devices of the strategies that are judged for exchanges, at most: a few seconds."""
NODE = 50
"""Devices whose simulation takes as long as what is done once for each node of a strategy."""
PEAKS = 10
"""How much longer a strategy takes to judge where its peak of memory counts, too."""


@dataclass(frozen=True)
class Portfolio(ScoredSearch):
    """The fastest simulated step of what experts, data parallelism and `exact` do, layers exchanged between them.

    known: what was found already. peaks: does the score look at peaks of memory, too? budget: of work; by default one
    of its seconds.
    """

    peaks: bool = field(default=False, repr=False)
    budget: Budget | None = field(default=None, repr=False, compare=False)

    name: ClassVar[str] = "portfolio"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        budget = self.budget or Budget(self.seconds)
        score = Counted(self.score(objective), budget, objective.judging)
        least = bound_of(graph, objective.machine)
        found = {result.search: result for result in self.known}
        stopped = "every candidate"
        for name in CANDIDATES if objective.machine.devices > 1 else ():
            if name in found:
                continue
            self.observe(f"search {name}", 0.0)
            try:
                found[name] = _searched(name, graph, replace(objective, budget=budget))
            except OutOfTimeError:
                stopped = budget.why
                break
            except SearchError:  # it can make nothing of this graph, or of this machine
                continue
            if name == "exact" and min(found, key=lambda name: score(found[name].strategy)) == "single":
                stopped = ALONE
                break
        if not found:
            raise SearchError("search portfolio needs a machine of several devices, or a known answer: got neither")
        seconds = {name: score(result.strategy) for name, result in found.items()}
        best = min(seconds, key=seconds.__getitem__)
        strategy = found[best].strategy
        known = tuple(replace(result, search=name) for name, result in found.items() if seconds[name] < float("inf"))
        if len(known) > 1 and stopped == "every candidate":
            self.observe("exchange layers", 0.0)
            work = len(graph.nodes) * (objective.machine.devices + NODE) * (PEAKS if self.peaks else 1)
            crossing = Crossing(budget.seconds, known, tries=max(EXCHANGES // max(work, 1), 1))
            crossed = crossing.search(graph, replace(objective, score=score))
            stopped = "every candidate, layers exchanged"
            if crossed.certificate.stopped in ("time", "clock"):
                stopped = crossed.certificate.stopped
            if crossed.certificate.cost < seconds[best] * (1 - 1e-9):
                best, strategy = Crossing.name, crossed.strategy
                seconds[best] = crossed.certificate.cost
        bound, how = least.seconds, least.how
        if objective.machine.devices == 1 and not self.peaks:  # else movements are chosen, too
            bound, how, stopped = seconds[best], "one device divides nothing", "optimal"
        statistics: dict[str, float | int | str] = {"found by": best}
        statistics |= {f"seconds, {name}": value for name, value in seconds.items()}
        statistics["seconds of work"] = round(budget.spent / 1e9, 3)
        certificate = Certificate(seconds[best], bound, "seconds", how, stopped, SPACE, statistics)
        return SearchResult(strategy, certificate, search=best)


def _searched(name: str, graph: Graph, objective: Objective) -> SearchResult:
    """What a search over tables finds by seconds.

    Raises:
        OutOfTimeError: the objective's budget is too small for its tables.
        SearchError: it can make nothing of the graph.
    """
    assert objective.budget is not None
    if objective.budget.late:
        raise OutOfTimeError
    left = objective.budget.seconds
    if name == "exact":
        return exact(graph, objective, seconds=left, enough=ENOUGH)
    search = search_of(name, left)
    if not (support := search.supports(objective)):
        raise SearchError(support.why_not)
    return search.search(graph, objective)
