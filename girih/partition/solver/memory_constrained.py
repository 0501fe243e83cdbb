"""A hard cap on memory: the front of cost against peak memory, and the cheapest strategy on it that meets the cap.

Two ways, one after the other, neither of which knows the cap, so that a larger cap never gives a dearer strategy nor a
refusal where a smaller one gives a strategy. Both end by counts of work, which are the same on a busy machine; only
after ten times its seconds the clock ends the second one, and the certificate says so:

1. All strategies in the order of their cost (`in_order.py`), without those that surely hold no less than the leanest
   that was seen. Each is measured: lowering knows its peak exactly. What is leaner than all that are cheaper is on the
   front, with a proof: for every cap that it meets it is an optimum. If no strategy is left the front is whole, and a
   cap below its last peak is refused with a proof. For small graphs this is all; it ends after a count of steps.
2. Lagrangian relaxation (Fisher 1981) for a ladder of caps between the free peak and the least. What a device surely
   holds at a moment is linear in the labels (`held.py`); a price λ(t) >= 0 on every byte of it moves a cap into the
   objective, and the priced problem is solved exactly. Of every solve stays the line

       min over all strategies (cost + Σ λ(t)·bytes(t)) - cap·Σ λ(t),

   a lower bound on every strategy that meets a cap. Prices follow subgradients (Held and Karp 1971, with Polyak's
   step) on the moments at which some strategy has peaked; what is measured beyond what is surely held is added there.

Where nothing fits, prices alone (costs left out, Σ λ = 1) bound the peak of every strategy from below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from girih.graph import Graph
from girih.layout.budget import Budget
from girih.partition.searches.exact import solve
from girih.partition.solver.elimination import Problem, Solution, cost_of, restricted
from girih.partition.solver.held import Exchanged, HeldTables, Moment, moments_of
from girih.partition.solver.in_order import InOrder
from girih.partition.space.options import Rules
from girih.partition.space.problem import Objective, build, rules_of
from girih.partition.strategy import SearchResult, Strategy
from girih.rewrite.certificate import Certificate

SPACE = "strategies under a memory cap"
TILTS = (0.4, -0.4)
ENOUGH = 1e-3
"""The gap with which a priced problem counts as solved."""
MEASURED = 200_000.0
"""Nanoseconds for each operator of a strategy that is measured."""
DIVISIONS = 5
"""Points of the front that a refusal gives, for who goes on from them."""


@dataclass(frozen=True)
class Measured:
    """Peak bytes of the device that needs most, and the node during which it peaks (-1: before the first)."""

    peak: int
    at: int


class CannotFitError(ValueError):
    """No strategy that was found meets the cap.

    smallest: the least peak that was found, by `best`; the same for every cap. bound: no strategy peaks lower.
    divisions: some of the front, from the cheapest to the leanest, for who moves tensors out of the devices; their
    bounds are those of no cap.
    """

    def __init__(self, smallest: int, best: SearchResult, bound: int, divisions: tuple[SearchResult, ...] = ()) -> None:
        super().__init__(f"the least peak found is {smallest} bytes; at least {bound} bytes are needed")
        self.smallest = smallest
        self.best = best
        self.bound = bound
        self.divisions = divisions


@dataclass(frozen=True)
class Effort:
    """How much is tried, in counts.

    steps: of the search in the order of costs; measured: operators of the strategies that it may measure; small:
    variables of the largest problem that it is tried on. least: rounds of prices towards the least peak; coarse, fine:
    caps on the ladder among all labels, and among those that were chosen, as often as `again`; rounds: of each cap.
    dense: variables of the largest problem on which there are several times as many caps, and `lowered` goes on from
    what they find, so many times at most.
    """

    steps: int = 20_000
    measured: int = 16_000
    small: int = 250
    least: int = 8
    coarse: int = 3
    fine: int = 10
    again: int = 1
    rounds: int = 3
    dense: int = 120
    lowered: int = 400


@dataclass(frozen=True)
class Line:
    """A bound on the cost of every strategy that meets a cap: value - slope·cap."""

    value: float
    slope: float

    def at(self, cap: float) -> float:
        return self.value - self.slope * cap


@dataclass(frozen=True)
class Point:
    """A strategy that was measured. proved: no cheaper strategy has a peak as low."""

    labels: NDArray[np.int64]
    cost: float
    measured: Measured
    proved: bool = False


@dataclass
class Front:
    """What is known of cost against peak memory. points: measured strategies; lines: bounds on costs. reached: no
    strategy leaner than all of the proved points costs less. floor: no strategy has a lower peak."""

    space: HeldTables
    objective: Objective
    measure: Callable[[Strategy], Measured]
    points: list[Point] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    seen: dict[bytes, Point] = field(default_factory=dict)
    reached: float = 0.0
    floor: int = 0
    whole: bool = False
    solved: int = 0
    spent: float = 0.0
    """Nanoseconds of work, counted as a `Budget` does."""

    def strategy(self, labels: NDArray[np.int64]) -> Strategy:
        return self.space.plain.strategy(labels)

    def take(self, labels: NDArray[np.int64], *, proved: bool = False) -> Point:
        """Measure a strategy, once."""
        key = labels.tobytes()
        if key not in self.seen or proved:
            known = self.seen.get(key)
            if known is None:
                self.spent += len(self.space.plain.graph.nodes) * MEASURED
            measured = self.measure(self.strategy(labels)) if known is None else known.measured
            point = Point(labels, cost_of(self.space.plain.problem, labels), measured, proved)
            self.seen[key] = point
            self.points.append(point)
        return self.seen[key]

    def least(self) -> Point:
        return min(self.points, key=lambda point: (point.measured.peak, point.cost))

    def cheapest(self, cap: float) -> Point | None:
        """The cheapest that meets the cap; of equal ones a proved one, then the leanest."""
        fits = [point for point in self.points if point.measured.peak <= cap]
        return min(fits, key=lambda point: (point.cost, not point.proved, point.measured.peak), default=None)

    def lean(self) -> list[Point]:
        """The points that are leaner than all that cost less, from the cheapest."""
        lean: list[Point] = []
        for point in sorted(self.points, key=lambda point: (point.cost, point.measured.peak)):
            if not lean or point.measured.peak < lean[-1].measured.peak:
                lean.append(point)
        return lean

    def some(self, count: int) -> list[Point]:
        """At most so many of the lean points, the ends among them, the others about evenly between the two peaks."""
        lean = self.lean()
        most, least = lean[0].measured.peak, lean[-1].measured.peak
        aims = np.linspace(most, least, min(count, len(lean)))
        nearest = {min(range(len(lean)), key=lambda at: abs(lean[at].measured.peak - aim)) for aim in aims}
        return [lean[at] for at in sorted(nearest)]

    def bound(self, cap: float) -> float:
        """No strategy that meets the cap costs less."""
        proved = [point for point in self.points if point.proved]
        known = [point.cost for point in proved if point.measured.peak <= cap]
        if known:
            return min(known)
        lines = max((line.at(cap) for line in self.lines), default=0.0)
        return max(lines, self.reached, max((point.cost for point in proved), default=0.0))


def memory_constrained(
    graph: Graph,
    objective: Objective,
    cap: int,
    measure: Callable[[Strategy], Measured],
    exchanged: Exchanged,
    *,
    first: SearchResult | None = None,
    rules: Rules | None = None,
    effort: Effort = Effort(),
    more: Effort | None = None,
    seconds: float = 60.0,
) -> SearchResult:
    """The cheapest strategy found whose measured peak is at most `cap` bytes, with a bound for that cap.

    first: what the search without a cap has found. rules: what may be chosen; None: all. more: effort on top where
    nothing that was found meets the cap. seconds: of work (`Budget`), after which no further level of the ladder is
    begun; what comes on top has those that are left, and half of them at least; the bound of a refusal a quarter.

    Raises:
        CannotFitError: with the least peak that was found, and the least that any strategy can have.
    """
    front = front_of(graph, objective, measure, exchanged, first=first, rules=rules, effort=effort, seconds=seconds)
    if more is not None and not front.whole and front.cheapest(cap) is None:
        by_prices(front, more, max(seconds - front.spent / 1e9, seconds / 2))
    return answer(front, cap, max(seconds - front.spent / 1e9, seconds / 4))


def front_of(
    graph: Graph,
    objective: Objective,
    measure: Callable[[Strategy], Measured],
    exchanged: Exchanged,
    *,
    first: SearchResult | None = None,
    rules: Rules | None = None,
    effort: Effort = Effort(),
    seconds: float = 60.0,
) -> Front:
    """The front of cost against peak memory, as far as it is found; see `memory_constrained`."""
    rules = rules_of(objective) if rules is None else rules
    front = Front(HeldTables(build(graph, objective, rules), exchanged), objective, measure)
    front.spent += front.space.plain.seconds * 1e9
    begin = None if first is None else front.space.plain.labels(first.strategy)
    if first is not None and begin is not None:
        front.take(begin)
        front.lines.append(Line(first.certificate.bound, 0.0))
    in_order(front, effort)
    if not front.whole:
        by_prices(front, effort, seconds)
    return front


def by_prices(front: Front, effort: Effort, seconds: float) -> None:
    """The corners of the front by memory prices; of a small problem more of them, and what lies between them."""
    small = len(front.space.plain.problem.domains) <= effort.dense
    ladder(front, replace(effort, coarse=3 * effort.coarse, fine=2 * effort.fine) if small else effort, seconds)
    if small:
        lowered(front, effort)


def in_order(front: Front, effort: Effort) -> None:
    """The front by all strategies in the order of their cost, as far as the effort goes."""
    if len(front.space.plain.problem.domains) > effort.small:
        return
    search = InOrder(front.space, steps=effort.steps)
    for cost, point in drawn(front, search, effort):
        front.reached = cost
        if point is not None and point.measured.peak <= search.most_bytes:
            front.take(point.labels, proved=True)
            search.most_bytes = point.measured.peak - 1
    front.reached = max(front.reached, search.reached)
    front.whole = search.done
    if front.whole:
        front.floor = front.least().measured.peak


def lowered(front: Front, effort: Effort) -> None:
    """What prices leave out, since they find the corners of a front that is not convex: of each point that is leaner
    than all that cost less, the cheapest strategies in which one tensor that is held when it peaks is smaller there,
    first whatever the others are, then with none of them larger; and the same of these."""
    problem, space = front.space.plain.problem, front.space
    whole = [np.arange(size) for size in problem.domains]
    left, done = effort.lowered, set[bytes]()
    while left > 0 and (some := [point for point in front.lean() if point.labels.tobytes() not in done]):
        for point in some:
            done.add(point.labels.tobytes())
            moments = moments_of(space.plain.graph, point.measured.at)
            peak = max(moments, key=lambda moment: space.bytes(moment, point.labels, True))
            held = space.terms(peak).single
            bytes_now = {variable: table[point.labels[variable]] for variable, table in held.items()}
            kept = list(whole)
            for variable, table in held.items():
                kept[variable] = np.flatnonzero(table <= bytes_now[variable])
            for others, (variable, table) in product((whole, kept), held.items()):
                smaller = np.flatnonzero(table < bytes_now[variable])
                if len(smaller) == 0 or left <= 0:
                    continue
                left -= 1
                among = [*others[:variable], smaller, *others[variable + 1 :]]
                try:
                    solution = solve(restricted(problem, among), front.objective, 1.0, enough=ENOUGH)
                except ValueError:  # no strategy has such a tensor there
                    continue
                front.spent += float(solution.statistics["seconds of work"]) * 1e9
                front.take(np.asarray([labels[label] for labels, label in zip(among, solution.labels, strict=True)]))


def drawn(front: Front, search: InOrder, effort: Effort) -> Iterator[tuple[float, Point | None]]:
    """(cost, point) of the strategies that a search gives, and None behind the last that may be measured."""
    left = effort.measured // max(len(front.space.plain.graph.nodes), 1)
    for cost, labels in search:
        if left == 0:
            yield cost, None
            return
        left -= 1
        yield cost, front.take(labels)


def answer(front: Front, cap: int, seconds: float = 60.0) -> SearchResult:
    """The cheapest strategy of the front that meets the cap.

    Raises:
        CannotFitError: none does.
    """
    best = front.cheapest(cap)
    if best is None:
        least = front.least()
        floor = front.floor or least_peak(front, seconds)
        most = max(point.measured.peak for point in front.points)  # a cap that asks nothing
        some = tuple(_result(front, point, most) for point in front.some(DIVISIONS))
        raise CannotFitError(least.measured.peak, _result(front, least, least.measured.peak), floor, some)
    return _result(front, best, cap)


def _result(front: Front, point: Point, cap: int) -> SearchResult:
    bound = min(front.bound(cap), point.cost)
    proved = point.cost - bound <= 1e-9 * point.cost
    certificate = Certificate(
        point.cost,
        bound,
        front.objective.unit,
        "all strategies in the order of their cost" if proved and point.proved else "Lagrangian dual of the memory cap",
        "optimal" if proved else f"after {front.solved} rounds of memory prices",
        SPACE,
        {
            "strategies measured": len(front.seen),
            "rounds of memory prices": front.solved,
            "seconds of work": round(front.spent / 1e9, 3),
        },
    )
    return SearchResult(front.strategy(point.labels), certificate)


# ------------------------------------------------------------------------------------------------ prices


def ladder(front: Front, effort: Effort, seconds: float) -> None:
    """Points for caps between the free peak and the least one: few among all labels, then many among the labels that
    these have chosen, which takes a tenth of the time."""
    prices = MemoryPrices(front, seconds)
    free = prices.solve({}) if not front.points else front.points[0]
    prices.watch(free)
    prices.towards_least(effort.least)
    for cap in caps(front, effort.coarse):
        prices.level(cap, effort.rounds)
    for _ in range(effort.again):
        prices.keep_chosen()
        prices.towards_least(effort.least)
        for cap in caps(front, effort.fine):
            prices.level(cap, effort.rounds, TILTS)


def caps(front: Front, count: int) -> list[int]:
    """From just below the free peak to the least that was found, closer together as it becomes hard to meet them."""
    free, least = front.points[0].measured.peak, front.least().measured.peak
    shares = [(1 - number / count) ** 1.5 for number in range(1, count + 1)]
    limits = [free - 1, *(least + int((free - least) * share) for share in shares)]
    return [cap for cap in dict.fromkeys(limits) if cap >= least]


class MemoryPrices:
    """Rounds of prices on a front. active: moments at which some strategy has peaked, with the bytes that were
    measured there beyond those that are surely held."""

    def __init__(self, front: Front, seconds: float) -> None:
        self.front, self.budget = front, Budget(seconds)
        self.active: dict[Moment, float] = {}
        self.prices: dict[Moment, float] = {}
        self.kept: list[NDArray[np.int64]] | None = None
        self.line = Line(0.0, 0.0)

    @property
    def late(self) -> bool:
        return self.budget.late

    def solve(self, prices: Mapping[Moment, float], likely: bool = True, tilt: float = 0.0) -> Point:
        """The optimum under prices, measured. Where the bytes that are priced surely are held its line is kept."""
        front = self.front
        measured = len(front.seen)
        problem = front.space.priced(prices, likely=likely, tilt=tilt)
        if self.kept is not None:
            problem = restricted(problem, self.kept)
        solution = self.solved(problem, front.objective, ENOUGH)
        front.solved += 1
        self.line = Line(solution.bound, sum(prices.values()))
        if not likely and self.kept is None:
            front.lines.append(self.line)
        labels = solution.labels
        if self.kept is not None:
            labels = np.asarray([kept[label] for kept, label in zip(self.kept, labels, strict=True)])
        point = front.take(labels)
        self.budget.spend((len(front.seen) - measured) * len(front.space.plain.graph.nodes) * MEASURED)
        return point

    def solved(self, problem: Problem, objective: Objective, enough: float = 0.0) -> Solution:
        """The optimum, in what is left of the budget, and a second at least."""
        left = max(self.budget.left - self.budget.spent, 1e9) / 1e9
        solution = solve(problem, objective, left, enough=enough)
        work = float(solution.statistics["seconds of work"]) * 1e9
        self.budget.spend(work)
        self.front.spent += work
        return solution

    def keep_chosen(self) -> None:
        """From now on only labels that some point near the front has."""
        chosen = np.stack([point.labels for point in self.front.points])
        self.kept = [np.unique(column) for column in chosen.T]

    def watch(self, point: Point) -> Moment:
        """The moment at which it peaks is active from now on."""
        space, at = self.front.space, point.measured.at
        held = {moment: space.bytes(moment, point.labels, True) for moment in moments_of(space.plain.graph, at)}
        moment = max(held, key=lambda moment: held[moment])
        self.active[moment] = point.measured.peak - held[moment]
        return moment

    def over(self, point: Point, cap: float) -> dict[Moment, float]:
        """By how much it exceeds a cap at the active moments: about, but for the one at which it peaks."""
        return {
            moment: self.front.space.bytes(moment, point.labels, True) + extra - cap
            for moment, extra in self.active.items()
        }

    def towards_least(self, rounds: int) -> None:
        """Prices that grow, shared out among the active moments so that the highest pays most."""
        front = self.front
        base = per_byte(front)
        weights = dict.fromkeys(self.active, 1.0)
        for turn in range(rounds):
            if self.late:
                return
            scale = base * 4.0 ** min(turn, 5) / sum(weights.values())
            point = self.solve({moment: weight * scale for moment, weight in weights.items()})
            at = self.watch(point)
            weights.setdefault(at, max(weights.values()))
            peak = point.measured.peak
            for moment, over in self.over(point, peak).items():
                weights[moment] = max(weights.get(moment, 1.0) * math.exp(2.0 * over / peak), 1e-6)

    def level(self, cap: int, rounds: int, tilts: Sequence[float] = ()) -> None:
        """Prices for one cap, from those of the level before: subgradient steps as long as Polyak's rule says."""
        front = self.front
        for turn in range(rounds):
            if self.late:
                return
            point = self.solve(self.prices)
            value = self.line.at(cap) + sum(price * self.active.get(at, 0.0) for at, price in self.prices.items())
            self.watch(point)
            over = self.over(point, cap)
            best = front.cheapest(cap)
            assert best is not None  # the least peak is at most the cap
            norm = sum(amount * amount for amount in over.values())
            if best.cost - value <= 1e-4 * best.cost or norm == 0.0:
                break
            step = 0.8**turn * max(best.cost - value, 1e-2 * best.cost) / norm
            grown = {moment: self.prices.get(moment, 0.0) + step * amount for moment, amount in over.items()}
            self.prices = {moment: price for moment, price in grown.items() if price > 0.0}
        if self.kept is None:
            self.solve(self.prices, likely=False)
        for tilt in tilts if self.prices else ():
            if not self.late:
                self.watch(self.solve(self.prices, tilt=tilt))


def per_byte(front: Front) -> float:
    """The cost of the free strategy for each byte of its peak; or what it costs to fetch a byte."""
    free, objective = front.points[0], front.objective
    fetch = 1.0 if objective.unit == "bytes" else max(objective.machine.links.seconds_per_byte, default=1e-9)
    return max(free.cost / max(free.measured.peak, 1), 1e-3 * fetch)


def least_peak(front: Front, seconds: float, rounds: int = 8) -> int:
    """No strategy has a lower peak: the dual of the least of the largest of the active moments' bytes."""
    prices = MemoryPrices(front, seconds)
    weights: dict[Moment, float] = {}
    floor = 0.0
    for point in sorted(front.points, key=lambda point: point.measured.peak)[:8]:
        weights.setdefault(prices.watch(point), 1.0)
    for _ in range(rounds):
        total = sum(weights.values())
        shares = {moment: weight / total for moment, weight in weights.items()}
        solution = prices.solved(front.space.priced(shares, costs=False), replace(front.objective, name="bytes"))
        floor = max(floor, solution.bound)
        held = {moment: front.space.bytes(moment, solution.labels) for moment in weights}
        most = max(held.values(), default=1.0)
        for moment, amount in held.items():
            weights[moment] = max(weights[moment] * math.exp(4.0 * (amount / max(most, 1.0) - 1.0)), 1e-9)
        if prices.late:
            break
    return math.ceil(floor - 1e-6)
