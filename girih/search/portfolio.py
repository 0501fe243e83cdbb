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
from girih.partition.searches.exact import Exact
from girih.partition.space.pricing import OutOfTimeError
from girih.partition.space.problem import Objective
from girih.partition.strategy import SearchError
from girih.search.candidates import Candidates, Counted
from girih.search.table import search_of
from girih.simulate.bounds import bound_of

FIRST = ("data", "single", "exact")
ALWAYS = ("data", "single")
"""What is asked whatever is left of the seconds: their tables are small, and under a limit of memory one device alone
may be many times faster than what others find in little time."""
EXPERTS = ("sharded", "equal", "one-weird-trick", "hybrid", "pipeline", "model", "rnn-expert")
"""What is asked, in this order. Where none of the first is faster than one device, experts are not."""
ALONE = "no division is faster than one device"
SPACE = "divisions and places of every node"
ENOUGH = 0.01
CLOSING = 1.0
"""The gap with which `exact` may end here where so many seconds of work have not closed it; most are closed in half of
that. In its tables nothing overlaps: answers that are within a hundredth of the optimum by them may take several more
when they are simulated."""
EXCHANGES = 10_000_000
"""Nodes × devices of the strategies that are judged for exchanges, at most: a few seconds."""
NODE = 50
"""Devices whose simulation takes as long as what is done once for each node of a strategy."""
PEAKS = 10
"""How much longer a strategy takes to judge where its peak of memory counts, too."""


@dataclass(frozen=True)
class Portfolio(ScoredSearch):
    """The fastest simulated step of what experts, data parallelism and `exact` do, layers exchanged between them.

    known: what was found already. peaks: does the score look at peaks of memory, too? It spends the objective's budget
    of work, or one of its seconds.
    """

    peaks: bool = field(default=False, repr=False)

    name: ClassVar[str] = "portfolio"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        budget, one = objective.budget or Budget(self.seconds), objective.machine.devices == 1
        objective = replace(objective, budget=budget)
        score = Counted(self.score(objective), budget, objective.judging)
        found = {result.search: result for result in self.known}
        candidates, stopped = Candidates(graph, objective, score, budget, self.observe, found), "every candidate"
        for name in () if one else (*FIRST, *EXPERTS):
            if name in found:
                continue
            self.observe(f"search {name}", 0.0)
            try:
                own = replace(objective, budget=None) if name in ALWAYS else objective
                if budget.late and own is objective:
                    raise OutOfTimeError
                search = (
                    Exact(budget.seconds, enough=ENOUGH, closing=CLOSING)
                    if name == "exact"
                    else search_of(name, budget.seconds)
                )
                candidates.propose(search, own)
            except OutOfTimeError:
                stopped = budget.why
                break
            except SearchError:  # it can make nothing of this graph, or of this machine
                continue
            if name == "exact" and candidates.best == "single":
                stopped = ALONE
                break
        if not found:
            raise SearchError("search portfolio needs a machine of several devices, or a known answer: got neither")
        able = [name for name, seconds in candidates.seconds.items() if seconds < float("inf")]
        if stopped == "every candidate":
            work = len(graph.nodes) * (objective.machine.devices + NODE) * (PEAKS if self.peaks else 1)
            ended = candidates.cross(budget.seconds, able, max(EXCHANGES // max(work, 1), 1))
            stopped = ended if ended in ("time", "clock") else f"{stopped}, layers exchanged" if ended else stopped
        least = bound_of(graph, objective.machine)
        if one and not self.peaks:  # else movements are chosen, too
            return candidates.answer(
                score(found[candidates.best].strategy), "one device divides nothing", "optimal", SPACE
            )
        return candidates.answer(least.seconds, least.how, stopped, SPACE)
