"""The fastest plan of a small space, with a proof (FlexFlow §3.7.5).

FlexFlow compares what its search finds with the optimum of two small cases, found by depth-first search with A*. The
space here is `girih.published.optimum.configurations`: one configuration for each operator, chosen independently, or as
in the plan that the search `exact` finds, so that this plan is never faster. The search:

1. Everything that a lower bound needs is priced once: each node under each configuration of its operator, and each
   transfer between two operators under each pair of their configurations (`Pieces`).
2. A first answer: from several beginnings one operator after another is changed to what the bound likes best; the
   simulator judges the ends; of the best one operator after another is changed to what the simulator likes best.
3. Configurations, and pairs of them, whose bound is not below the answer are ruled out; then depth first over the
   operators, `girih.published.optimum.lower_bounds` bounding every choice of some.
4. All strategies that are left are simulated, those of the lowest bound first, until no bound lies below the best.

The bounds are a model of the step time of their own, because nothing less proves anything: of the 9.6 · 10¹⁰ strategies
of LeNet on four devices they leave 32 below the answer, after 2.9 million bounds; bounds by computing alone rule out no
configuration, and leave more than 200,000.

Strategies are simulated by their composed pieces (`girih.search.composed`), and the best ones as any plan is: if the
two differ, the search fails.

The answer is the optimum of the space for the simulator, prices by the machine's data sheet. Where time or room runs
out before the proof is complete, the search says so and refuses; the time is that of what it simulates, counted. Cost:
grows with the number of configurations to the power of the operators that the bound cannot tell apart; four devices and
seven operators are its measure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from girih.graph import Graph
from girih.layout.budget import Budget
from girih.partition import SearchResult, Strategy
from girih.partition.space.problem import Objective
from girih.partition.strategy import SearchError
from girih.program import Overlap
from girih.published.optimum import lower_bounds
from girih.published.optimum.configurations import JOINED, SPACE, Space, space_of
from girih.published.optimum.pieces import Pieces
from girih.rewrite.certificate import Certificate
from girih.search.composed import Composer
from girih.search.judge import ProvingSearch, judging_seconds
from girih.search.memory.limit import WINDOWS
from girih.simulate.ticks import TICKS_PER_SECOND

Judge = Callable[[Strategy], float]
MOST_BOUNDS = 20_000_000
MOST_LEFT = 200_000
STARTS = 24


class OptimumError(SearchError):
    """The space is too large to be searched to the end; the message says how large it is and how far it went."""


@dataclass(frozen=True)
class Optimum(ProvingSearch):
    """The fastest simulated step of a small space, proved by branch and bound.

    Cost and bound of the certificate are equal.

    The score has to be the simulator's, under prices of the machine's data sheet and with this overlap; infinite for a
    strategy that is not wanted. known: its strategies are joined to the space.

    Raises:
        OptimumError: the proof would take longer than its seconds.
    """

    name: ClassVar[str] = "optimum"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        score, note, also = self.score(objective), self.observe, [result.strategy for result in self.known]
        began = time.perf_counter()
        before = {f"seconds, {result.search}": score(result.strategy) for result in self.known}
        note("search optimum: configurations", 0.0)
        space = space_of(graph, objective, also)
        search = BranchAndBound(space, objective, score, Budget(self.seconds), self.overlap)
        note("search optimum: first answer", 0.0)
        search.begin([choice for strategy in also if (choice := space.choice(strategy)) is not None])
        note("search optimum: bounds", 0.0)
        search.enumerate()
        search.simulate_left(note)
        statistics: dict[str, float | int | str] = {
            "operators": len(space.operators),
            "configurations": " ".join(str(len(item.codes)) for item in space.operators),
            "strategies": space.size,
            "choice": " ".join(map(str, search.best)),
            "configurations left": int(search.able.sum()),
            "bounds": search.bounded,
            "strategies below the first answer": search.left,
            "simulated": len(search.judged),
            "first answer": search.first,
            "lowest bound": search.lowest,
            "seconds to search": round(time.perf_counter() - began, 3),
            **before,
        }
        how = "depth-first branch and bound; every strategy with a bound below the cost was simulated"
        certificate = Certificate(
            search.cost, search.cost, "seconds", how, "optimal", JOINED if also else SPACE, statistics
        )
        return SearchResult(space.strategy(search.best), certificate, search=self.name)


class BranchAndBound:
    """The state of one search. judged: seconds of what was simulated; cost, best: the least that the judge confirms."""

    def __init__(
        self, space: Space, objective: Objective, judge: Judge, budget: Budget, overlap: Overlap = WINDOWS[0]
    ) -> None:
        self.space = space
        self.judge = judge
        self.composer = Composer(space.graph, objective.machine, objective.transfers, overlap)
        self.budget = budget
        self.simulating = judging_seconds(space.graph, objective.machine) * 1e9
        self.tables = Pieces(space, objective).tables()
        self.sizes = self.tables.sizes
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)
        self.able = np.ones(int(self.sizes.sum()), np.uint8)
        self.judged: dict[tuple[int, ...], float] = {}
        self.cost, self.best, self.first = float("inf"), (0,) * len(self.sizes), float("inf")
        self.lowest = float("inf")
        self.bounded = self.left = 0
        self.found: NDArray[np.int64] = np.zeros((0, len(self.sizes)), np.int64)
        self.bounds: NDArray[np.int64] = np.zeros(0, np.int64)

    def bound(self, choice: Sequence[int]) -> int:
        """Ticks; -1 in the choice for what is undecided."""
        return int(lower_bounds.bound(self.tables, np.asarray(choice, np.int64)))

    @property
    def limit(self) -> int:
        """Ticks of the best answer."""
        return round(self.cost * TICKS_PER_SECOND)

    def simulate(self, choice: tuple[int, ...]) -> None:
        if choice in self.judged or (least := self.bound(choice)) >= lower_bounds.NEVER:
            return
        self.budget.spend(self.simulating)
        self.judged[choice] = cost = self.composer.seconds(self.space.strategy(choice))
        if least > round(cost * TICKS_PER_SECOND):
            least_seconds = least / TICKS_PER_SECOND
            raise AssertionError(f"the bound of {choice}, {least_seconds} s, is above its {cost} s: no proof holds")
        if cost < self.cost:
            judged = self.judge(self.space.strategy(choice))
            if judged == float("inf"):
                return
            if judged != cost:
                raise AssertionError(f"composed, {choice} takes {cost} s, simulated {judged} s: no proof holds")
            self.cost, self.best = cost, choice

    def begin(self, known: Sequence[tuple[int, ...]] = ()) -> None:
        """A first answer: from what is known, from configurations alike on all operators, and from some drawn."""
        drawn = np.random.default_rng(0)
        choices = [list(choice) for choice in known]
        for choice in known:
            self.simulate(choice)
        for code in sorted({code for item in self.space.operators for code in item.codes}):
            if all(code in item.codes for item in self.space.operators):
                choices.append([item.codes.index(code) for item in self.space.operators])
        choices += [[int(drawn.integers(size)) for size in self.sizes] for _ in range(STARTS)]
        ends = {tuple(self.descend(choice)) for choice in choices}
        for choice in sorted(ends, key=lambda one: (self.bound(one), one))[:STARTS]:
            self.simulate(choice)
        for beginning in choices if self.cost == float("inf") else ():
            self.simulate(tuple(beginning))
        if self.cost == float("inf"):
            raise OptimumError("the optimum cannot be proved: none of the first answers meets the memory limit")
        self.improve()
        self.first = self.cost

    def improve(self) -> None:
        """Change one operator of the best at a time, while it becomes faster."""
        before = float("inf")
        while self.cost < before:
            before = self.cost
            for operator, size in enumerate(self.sizes.tolist()):
                for number in range(size):
                    tried = (*self.best[:operator], number, *self.best[operator + 1 :])
                    if self.bound(tried) < self.limit:
                        self.simulate(tried)

    def descend(self, choice: list[int]) -> list[int]:
        """Change one operator at a time, while the bound falls."""
        least = self.bound(choice)
        while True:
            before = least
            for operator, size in enumerate(self.sizes.tolist()):
                for number in range(size):
                    tried = [*choice[:operator], number, *choice[operator + 1 :]]
                    if (bound := self.bound(tried)) < least:
                        least, choice = bound, tried
            if least == before:
                return choice

    def enumerate(self) -> None:
        """All choices whose bound is below the cost.

        Raises:
            OptimumError: there are too many.
        """
        open_choice = [-1] * len(self.sizes)
        self.lowest = self.bound(open_choice) / TICKS_PER_SECOND
        for operator, size in enumerate(self.sizes.tolist()):
            for number in range(size):
                tried = [*open_choice[:operator], number, *open_choice[operator + 1 :]]
                self.able[self.starts[operator] + number] = self.bound(tried) < self.limit
        good = lower_bounds.pairs(self.tables, self.able, self.starts, self.limit)
        # In the order of the program neighbours' transfers count as soon as both are decided; the fewest configurations
        # first are the fewest branches. LeNet on 4 devices takes 1.6 and 13 million bounds, RNNLM of two steps 3.1 and
        # 0.2 million: none is the better one, so each is tried for a while, and longer if neither ends.
        able = [self.able[start : start + size].sum() for start, size in zip(self.starts, self.sizes, strict=True)]
        orders = [np.argsort(able, kind="stable").astype(np.int64), np.arange(len(able), dtype=np.int64)]
        choices = np.zeros((MOST_LEFT, len(self.sizes)), np.int64)
        bounds = np.zeros(MOST_LEFT, np.int64)
        for most, order in product((MOST_BOUNDS // 64, MOST_BOUNDS // 8, MOST_BOUNDS), reversed(orders)):
            effort = np.zeros(2, np.int64)
            whole = lower_bounds.enumerate_below(
                self.tables, good, self.able, self.starts, order, self.limit, most, effort, choices, bounds
            )
            self.bounded, self.left = self.bounded + int(effort[0]), int(effort[1])
            if whole or self.left == MOST_LEFT:
                break
        if not whole:
            raise OptimumError(self.too_large("more than can be enumerated"))
        by_bound = np.argsort(bounds[: self.left], kind="stable")
        self.found, self.bounds = choices[by_bound], bounds[by_bound]

    def simulate_left(self, note: Callable[[str, float], None]) -> None:
        """Simulate what is left, the lowest bound first.

        Raises:
            OptimumError: the time is up.
        """
        for number, (choice, least) in enumerate(zip(self.found.tolist(), self.bounds.tolist(), strict=True)):
            if least >= self.limit:
                break
            if self.budget.late:
                self.lowest = least / TICKS_PER_SECOND
                raise OptimumError(self.too_large(f"{len(self.found) - number} of them not simulated when time was up"))
            note("search optimum: simulate", number / len(self.found))
            self.simulate(tuple(choice))

    def too_large(self, why: str) -> str:
        sizes = " × ".join(str(size) for size in self.sizes.tolist())
        return (
            f"the optimum of {self.space.size} strategies ({sizes} configurations of {len(self.sizes)} operators) "
            f"cannot be proved in this time: at least {self.left} may be faster than the best so far, "
            f"{self.cost:.4g} s, {why}. Give more time, fewer devices or a smaller model, or search with `exact`"
        )
