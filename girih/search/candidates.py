"""What searches propose for one graph, judged within one budget of counted work: the loop that portfolios share.

A portfolio says which proposers are asked, in which order and with how much of the work; here their answers are kept by
name, each is judged once, layers are exchanged between them, and the best becomes the answer, whose certificate says
what each of the others would have taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from girih.graph import Graph
from girih.layout.budget import Budget
from girih.partition import SearchResult, Strategy
from girih.partition.search import Search
from girih.partition.space.problem import Objective
from girih.partition.strategy import SearchError
from girih.rewrite.certificate import Certificate
from girih.search.crossover import Crossing

SAME = {"model": "pipeline"}
"""By the name of a search one that finds the same where it can: the stages of a step in micro-batches."""


class Counted:
    """A score that is asked once for each strategy, and spends its work.

    seconds: of work that a call takes, where the score does not say what the last took (`Judge.done`).
    """

    def __init__(self, score: Callable[[Strategy], float], budget: Budget, seconds: float) -> None:
        self.score, self.budget, self.seconds = score, budget, seconds
        self.known: dict[int, tuple[Strategy, float]] = {}  # by identity, with the strategy to keep it alive

    def __call__(self, strategy: Strategy) -> float:
        if id(strategy) not in self.known:
            self.known[id(strategy)] = strategy, self.score(strategy)
            self.budget.spend(self.done * 1e9)
        return self.known[id(strategy)][1]

    @property
    def done(self) -> float:
        """Seconds of work of the last call of the score."""
        seconds: float = getattr(self.score, "done", self.seconds)
        return seconds

    def within(self, strategy: Strategy, limit: float) -> float:
        """The same where it is less than a limit; else at least the limit, for which a Judge has less to do."""
        within = getattr(self.score, "within", None)
        if within is None or id(strategy) in self.known:
            return self(strategy)
        took: float = within(strategy, limit)
        self.budget.spend(self.done * 1e9)
        if took < limit:
            self.known[id(strategy)] = strategy, took
        return took


@dataclass
class Candidates:
    """Answers by the name of who proposed them. score: seconds of a strategy. observe: is told what is done."""

    graph: Graph
    objective: Objective
    score: Counted
    budget: Budget
    observe: Callable[[str, float], None]
    results: dict[str, SearchResult] = field(default_factory=dict)

    @property
    def seconds(self) -> dict[str, float]:
        """What each answer takes."""
        return {name: self.score(result.strategy) for name, result in self.results.items()}

    @property
    def best(self) -> str:
        """The name of the fastest."""
        seconds = self.seconds
        return min(seconds, key=seconds.__getitem__)

    def propose(self, search: Search, objective: Objective) -> SearchResult:
        """What a search finds of the graph, kept under its name.

        Raises:
            OutOfTimeError: the objective has a budget, and it is too small for the tables.
            SearchError: it can make nothing of the graph, or of this machine.
        """
        if not (support := search.supports(objective)):
            raise SearchError(support.why_not)
        if SAME.get(search.name) in self.results:
            raise SearchError(f"search {search.name} would find what {SAME[search.name]} has found")
        self.results[search.name] = result = search.search(self.graph, objective)
        return result

    def cross(self, seconds: float, names: Iterable[str], tries: int = 2**62) -> str:
        """Exchange layers between these answers, and keep what is faster than all of them. seconds: of work. tries: of
        exchanges, at most. Why it ended; "" where there is nothing to exchange."""
        known = tuple(replace(self.results[name], search=name) for name in names)
        if len(known) < 2:
            return ""
        self.observe("exchange layers", 0.0)
        search = Crossing(seconds, known, tries=tries)
        result = search.search(self.graph, replace(self.objective, score=self.score))
        if result.certificate.cost < min(self.seconds.values()):
            self.results[search.name] = result
        return result.certificate.stopped

    def answer(
        self, bound: float, how: str, stopped: str, space: str, told: dict[str, float | int | str] | None = None
    ) -> SearchResult:
        """The fastest, with what is proved of it and what each of the others takes. told: other statistics."""
        name, seconds = self.best, self.seconds
        statistics = {**(told or {}), "found by": name} | {f"seconds, {other}": took for other, took in seconds.items()}
        statistics["seconds of work"] = round(self.budget.spent / 1e9, 3)
        certificate = Certificate(seconds[name], bound, "seconds", how, stopped, space, statistics)
        return SearchResult(self.results[name].strategy, certificate, search=name)
