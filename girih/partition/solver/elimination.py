"""Exact minimum of a sum of costs over single variables and pairs of variables, with a certificate.

The layouts of all values and the strategies of all operators of a training step are such a problem. Tofu (Wang et
al., EuroSys 2019, §5) coarsens the graph until it is a chain, and solves it one mesh axis at a time. Here nothing is
merged and all mesh axes are solved at once: what makes the step solvable is that its layers repeat.

1. `factors.py`: bucket elimination (Dechter 1999), with every operation on tables remembered (`tables.py`), so that
   36 identical blocks cost as one.
2. `bounds.py`: while tables would grow too large, a dual bound by message passing (TRW-S, Kolmogorov 2006, extended
   to larger tables, 2015), and with a known solution the labels that it rules out.
3. Here: solutions early, by elimination on the most promising labels, other variables held at the best known labels
   where it would grow too large; then growing limits; at last branch and bound, best bound first.

Not done: dead-end elimination (Goldstein 1994), since every division is the best beside some layouts; and messages
over pairs of variables, which did not raise the bound where it is loose. Weak: the wide residual network on three
equal axes, where five values of 64 layouts cross each cut and the dual bound stays 1.5 % below (two axes: exact).

Exact when it ends before the time does: `cost - bound` is then within 1e-9 of the cost. Otherwise both still hold.
Cost: variables × degree in Python (about 20 microseconds each), and for each *distinct* elimination the entries of
its result × labels. Where many variables cross every cut and the dual bound is loose, time runs out first.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from girih.layout.budget import Budget, without_collection
from girih.partition.solver.bounds import DualBound
from girih.partition.solver.factors import Factors
from girih.partition.solver.tables import Tables

Observer = Callable[[str, float], None]

COPIED = 5_000.0
"""Nanoseconds for each variable of a problem that is copied, and looked at again."""


@dataclass(frozen=True)
class Problem:
    """Minimise Σ unary + Σ pairs over one label for each variable."""

    domains: tuple[int, ...]
    """Number of labels of each variable."""
    unary: tuple[int, ...]
    """For each variable the index of a 1-D table, or -1."""
    pairs: tuple[tuple[int, int, int], ...]
    """(variable a, variable b, index of a table of shape [labels of a, labels of b]); a pair may come again."""
    tables: tuple[np.ndarray, ...]
    """float64, at least 0, inf where forbidden; repeated layers name the same table."""

    def __post_init__(self) -> None:
        if len(self.unary) != len(self.domains):
            raise ValueError(f"{len(self.domains)} domains, but {len(self.unary)} unary tables: give -1 for none")
        if min(self.domains, default=1) < 1:
            raise ValueError(f"variable {self.domains.index(min(self.domains))} has no label")
        domains, shapes = self.domains, [table.shape for table in self.tables]
        for v, t in enumerate(self.unary):
            if t >= 0 and shapes[t] != (domains[v],):
                raise _misfit(t, shapes[t], (v,), domains)
        for a, b, t in self.pairs:
            if shapes[t] != (domains[a], domains[b]) or a == b:
                raise _misfit(t, shapes[t], (a, b), domains)
        for t, table in enumerate(self.tables):
            if table.size and not table.min() >= 0:  # of nan the least is nan
                raise ValueError(f"table {t} has an entry below 0 or nan: costs must be at least 0")


def _misfit(table: int, shape: tuple[int, ...], scope: tuple[int, ...], domains: tuple[int, ...]) -> ValueError:
    wanted = tuple([domains[v] for v in scope])
    return ValueError(f"table {table} over the variables {scope} is {shape}, not {wanted}")


@dataclass(frozen=True)
class Solution:
    """Labels with their cost, and a bound below which no labels cost."""

    labels: np.ndarray
    cost: float
    bound: float
    how: str
    """How the bound was found: "elimination", "dual" or "branch and bound"."""
    stopped: str
    """Why the search stopped: "optimal", or what has ended it (`Budget.why`)."""
    statistics: dict[str, float | int | str] = field(default_factory=dict)


def cost_of(problem: Problem, labels: np.ndarray) -> float:
    """The cost of the labels, in the units of the tables."""
    tables = problem.tables
    total = sum(float(tables[t][labels[v]]) for v, t in enumerate(problem.unary) if t >= 0)
    return total + sum(float(tables[t][labels[a], labels[b]]) for a, b, t in problem.pairs)


def restricted(problem: Problem, kept: Sequence[np.ndarray]) -> Problem:
    """The problem with these labels only, of each variable some, in their order."""
    names = [labels.tobytes() for labels in kept]
    tables: list[np.ndarray] = []
    known: dict[tuple[int, bytes, bytes | None], int] = {}

    def cut(t: int, a: int, b: int | None) -> int:
        key = (t, names[a], None if b is None else names[b])
        if key not in known:
            known[key] = len(tables)
            table = problem.tables[t]
            tables.append(table[kept[a]] if b is None else table[np.ix_(kept[a], kept[b])])
        return known[key]

    unary = tuple([-1 if t < 0 else cut(t, v, None) for v, t in enumerate(problem.unary)])
    pairs = tuple([(a, b, cut(t, a, b)) for a, b, t in problem.pairs])
    return Problem(tuple(map(len, kept)), unary, pairs, tuple(tables))


def minimise(
    problem: Problem,
    *,
    table_limit: int = 2**24,
    seconds: float = 60.0,
    upper: np.ndarray | None = None,
    enough: float = 0.0,
    closing: float = 0.0,
    observe: Observer | None = None,
) -> Solution:
    """Labels of least cost. `seconds`: of work, as a `Budget` has them; `upper`: labels already known;
    `table_limit`: entries of the largest table made; `enough`: the gap, as a share of the cost, with which it may stop
    once `closing` seconds of work were not enough to close it.

    Raises ValueError where no labels avoid all forbidden entries."""
    search = _Search(problem, table_limit, Budget(seconds), observe or (lambda what, value: None), enough, closing)
    if upper is not None:
        search.offer(np.asarray(upper, np.int64))
    with without_collection():
        return search.run()


def load(problem: Problem, store: Tables) -> Factors:
    """The problem as tables over sets of variables, equal ones recognised."""
    factors = Factors(problem.domains, store)
    kept = [store.keep(np.asarray(table, np.float64)) for table in problem.tables]
    for v, t in enumerate(problem.unary):
        if t >= 0:
            factors.put((v,), *kept[t])
    for a, b, t in problem.pairs:
        if a < b:
            factors.put((a, b), *kept[t])
        else:
            table, constant = store.transpose(kept[t][0])
            factors.put((b, a), table, kept[t][1] + constant)
    return factors


def _tolerance(cost: float) -> float:
    return 1e-9 * max(1.0, cost) + 1e-6 if cost < math.inf else 0.0


class _Search:
    """The best labels so far and the bound so far, while the limits grow."""

    def __init__(
        self,
        problem: Problem,
        table_limit: int,
        budget: Budget,
        observe: Observer,
        enough: float = 0.0,
        closing: float = 0.0,
    ) -> None:
        self.problem, self.table_limit, self.budget, self.observe = problem, table_limit, budget, observe
        self.enough, self.closing, self.store = enough, closing * 1e9, Tables()
        self.cost, self.bound, self.how = math.inf, 0.0, "elimination"
        self.best: np.ndarray | None = None
        self.sweeps = self.branches = self.tries = 0

    @property
    def cut(self) -> float:
        """Only solutions cheaper than this are of interest."""
        return self.cost - _tolerance(self.cost) / 2

    def late(self) -> bool:
        return self.budget.late

    def offer(self, labels: np.ndarray) -> bool:
        cost = cost_of(self.problem, labels)
        if not cost < self.cost:
            return False
        self.cost, self.best = cost, labels
        self.observe("cost", cost)
        return True

    def raise_bound(self, bound: float, how: str) -> None:
        bound = min(bound, self.cost)
        if bound > self.bound:
            self.bound, self.how = bound, how
            self.observe("bound", bound)

    def closed(self) -> bool:
        enough = self.enough if self.budget.spent >= self.closing else 0.0
        return self.best is not None and self.bound >= min(self.cut, self.cost * (1 - enough))

    def run(self) -> Solution:
        """Limits grow; between them the dual bound is tightened, unless all that is left can be eliminated soon."""
        factors = load(self.problem, self.store)
        stopped = "optimal"
        entries = 2**14
        while True:
            entries = min(entries, self.table_limit)
            factors.eliminate(entries, entries * 128, self.budget)
            if factors.left and not self.late():
                largest, work = factors.forecast(min(2**20, self.table_limit))
                if largest <= min(2**20, self.table_limit) and work <= 2**25:
                    factors.eliminate(largest, work, self.budget)
            if not factors.left:
                self.solved(factors, "elimination")
                break
            self.raise_bound(factors.constant, "elimination")
            if not self.tighten(factors) or self.closed():
                break
            if self.late():
                stopped = self.budget.why
                break
            target = min(self.cut, self.bound * (1 + 1e-6) + 1e-6)
            if self.dive(factors, target, 8) == "refuted":
                self.raise_bound(self.cost if target >= self.cut else target, "branch and bound")
            if self.closed():
                break
            if entries >= self.table_limit:
                stopped = self.branch(factors)
                break
            entries *= 16
        return self.answer(stopped)

    def solved(self, factors: Factors, how: str) -> None:
        """All variables are gone: the constant is exact, or the best labels known are optimal."""
        exact = factors.constant
        if exact < self.cut:
            self.offer(factors.labels())
        self.raise_bound(min(exact, self.cost), how)

    def tighten(self, factors: Factors, most: int = 64, how: str = "dual") -> bool:
        """Sweeps, solutions and labels ruled out; False where nothing better than the best labels remains."""
        bound = DualBound(factors)
        earlier = [bound.value]
        # A sweep costs about a nanosecond per unit of `work`: at most some seconds, and at least so long before slow
        # progress ends them.
        most = min(most, max(4, int(1e10 / bound.work)))
        least = min(40, int(2e9 / bound.work))
        for sweep in range(most):
            if self.late() and self.best is not None:
                break
            value = bound.sweep(self.cut)
            self.sweeps += 1
            self.budget.spend(bound.work)
            if value == math.inf:
                self.raise_bound(self.cost, how)
                return False
            self.raise_bound(value, how)
            if how == "dual" and sweep in (1, 5, 15, 31):
                self.try_promising(factors, bound)
            if self.closed():
                return False
            earlier.append(value)
            gap = self.cost - value
            if sweep >= max(6, least) and earlier[-1] - earlier[-5] < 0.02 * min(gap, value):
                break
        if how == "dual":
            self.try_promising(factors, bound)
        factors.restrict(bound.alive())
        return True

    def try_promising(self, factors: Factors, bound: DualBound) -> None:
        """Elimination on the labels of least reduced cost; where it grows too large, the busiest variables are held
        at the best labels known."""
        for most in (1, 2, 4, 8):
            self.tries += 1
            trial = factors.copy()
            self.budget.spend(factors.left * COPIED)
            trial.restrict(bound.promising(most))
            whole = trial.eliminate(2**16, 2**22, self.budget, lambda v: trial.current(v, self.best))  # noqa: B023
            if trial.constant < self.cut:
                self.offer(trial.labels())
            if not whole or self.late() or self.closed():
                return

    def dive(self, factors: Factors, target: float, nodes: int, entries: int = 2**12) -> str:
        """Depth first among the solutions cheaper than the target: "found", "refuted" or "gave up".

        A target just above the bound leaves few labels, and each label that is fixed rules out most others."""
        stack: list[tuple[Factors, int, int]] = [(factors, -1, 0)]
        while stack:
            if nodes <= 0 or self.late():
                return "gave up"
            nodes -= 1
            self.branches += 1
            above, v, label = stack.pop()
            node = above.copy()
            self.budget.spend(above.left * COPIED)
            if v >= 0:
                node.fix(v, label)
            node.eliminate(entries, entries * 64, self.budget)
            if not node.left:
                if node.constant < target and self.offer(node.labels()):
                    return "found"
                continue
            below, alive, before = DualBound(node), 0, -1
            while alive != before and below.sweep(target) < target:
                before, alive = alive, int(np.isfinite(below.rest).sum())
                self.budget.spend(below.work)
            if not below.value < target:
                continue
            v = max(node.variables(), key=lambda v: (len(node.around[v]), -v))
            costs = below.costs(v)
            node.restrict(below.alive())
            costs = costs[np.isfinite(costs)]
            stack += [(node, v, label) for label in np.argsort(-costs, kind="stable").tolist()]
        return "refuted"

    def branch(self, factors: Factors) -> str:
        """Best bound first; each branch fixes one variable."""
        count = itertools.count()
        queue = [(self.bound, next(count), factors)]
        while queue:
            if queue[0][0] >= self.cut:
                break
            if self.late():
                self.raise_bound(queue[0][0], "branch and bound")
                return self.budget.why
            value, _, node = heapq.heappop(queue)
            self.raise_bound(value, "branch and bound")
            v = max(node.variables(), key=lambda v: (len(node.around[v]), -v))
            for label in range(node.sizes[v]):
                self.branches += 1
                child = node.copy()
                self.budget.spend(node.left * COPIED)
                child.fix(v, label)
                child.eliminate(self.table_limit, self.table_limit * 64, self.budget)
                if not child.left:
                    if child.constant < self.cut:
                        self.offer(child.labels())
                    continue
                below = DualBound(child)
                for _ in range(8):
                    if below.value < self.cut and not self.late():
                        below.sweep(self.cut)
                        self.budget.spend(below.work)
                if below.value < self.cut:
                    if self.branches % 16 == 1:
                        self.try_promising(child, below)
                    child.restrict(below.alive())
                    heapq.heappush(queue, (max(below.value, value), next(count), child))
        self.raise_bound(self.cost, "branch and bound")
        return "optimal"

    def answer(self, stopped: str) -> Solution:
        if self.best is None:
            if stopped == "optimal":
                raise ValueError("infeasible: every combination of labels has a forbidden entry")
            self.best = np.zeros(len(self.problem.domains), np.int64)
            self.cost = cost_of(self.problem, self.best)
        closed = self.cost - self.bound <= _tolerance(self.cost)
        statistics: dict[str, float | int | str] = {
            "variables": len(self.problem.domains),
            "eliminations": self.store.operations,
            "entries": self.store.entries,
            "sweeps": self.sweeps,
            "tries": self.tries,
            "branches": self.branches,
            "seconds of work": round(self.budget.spent / 1e9, 3),
        }
        bound = self.cost if closed else self.bound
        return Solution(self.best, self.cost, bound, self.how, "optimal" if closed else stopped, statistics)
