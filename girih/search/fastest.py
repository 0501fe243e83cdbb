"""The search for the fastest plan by the simulated step: the objective `time`.

First data parallelism, whose tables are small; then, as far as the time allows, what experts do, the optimum where each
node is divided along one dimension, and the optimum over all tables (`exact`); then layers are exchanged between these,
and chains sampled from the best. The simulator judges all of them. Under a memory limit the search begins with the
cheapest plan that meets it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from girih.cost.pricing import PRESET, Pricing
from girih.cost.profile import load_profile
from girih.graph import Graph
from girih.machine import Machine
from girih.partition import Certificate, SearchResult, Strategy
from girih.partition.searches.sampled import sampled
from girih.partition.solver.clock import Clock
from girih.partition.space.options import MOST_PLACES, SECONDS, SOAP, Rules
from girih.partition.space.pricing import OutOfTimeError
from girih.partition.strategy import SearchError
from girih.partition.table import Data, Search, search_of
from girih.plans.plan import Observe, Plan, PlanError, goal_of
from girih.plans.predict import opened, predict, priced_on
from girih.search.composed import Composer
from girih.search.crossover import crossed
from girih.search.optimum import proved
from girih.simulate.bounds import WORK, Bound, bound_of

KEPT = 0.93
"""Of the seconds that are given: the rest is for what a search does behind its last look at the clock."""
CROSSING = 0.3
"""Of the time that is left, for exchanging layers between the first candidates, where chains come behind."""
SPACE = "SOAP: divisions and places of every node"
LEAST = 0.2
"""Seconds that a search over tables is given, however few are left."""
LONGER = 8.0
"""How much longer than a search over data parallelism's or an expert's tables one over those of all divisions takes, at
least: what it cannot be stopped in included, the last tables and the solver's first answer."""
CONVOLUTIONAL = ("one-weird-trick", "equal", "exact", "model", "rnn-expert", "hybrid")
RECURRENT = ("model", "rnn-expert", "exact", "hybrid", "one-weird-trick", "equal")
"""The order in which candidates are searched beside data parallelism, for networks with convolutions and others."""
EXPERTS = ("one-weird-trick", "rnn-expert", "hybrid", "model")
"""The sampled search begins with the best of their plans, too (FlexFlow §3.5.2)."""
NAMES = {"data parallel": "data"}
"""Of searches, where a candidate has another one."""


class Judge:
    """The simulated seconds of strategies, each simulated once; infinite above the memory limit.

    took: the seconds that each simulation took, for planning the time.
    """

    def __init__(self, made: Plan, store: str | Path | None) -> None:
        self.made = made
        where = made.machine
        with opened(store) as known:
            profile = None if known is None else load_profile(known, where.name)
            pricing = Pricing(where if profile is None else profile.applied(where), store=known, profile=profile)
        transfers = goal_of(made.objective, where).transfers
        simulated = where if profile is None else profile.simulated(where)
        self.composer = Composer(made.graph, where, transfers, made.overlap, pricing, simulated)
        self.known: dict[int, tuple[Strategy, float]] = {}  # by identity, with the strategy to keep it alive
        self.took: list[float] = []

    @property
    def slowest(self) -> float:
        """Seconds of the simulation that took longest: mostly the first, for which all pieces are new."""
        return max(self.took, default=0.0)

    @property
    def likely(self) -> float:
        """Seconds that the next simulation takes if it shares pieces with those before, as all behind the first do: the
        longest of these. Before there are any, the first's: it may share nothing."""
        return max(self.took[1:], default=self.slowest)

    def __call__(self, strategy: Strategy) -> float:
        if id(strategy) not in self.known:
            started = time.perf_counter()
            self.known[id(strategy)] = strategy, self.simulated(strategy)
            self.took.append(time.perf_counter() - started)
        return self.known[id(strategy)][1]

    def simulated(self, strategy: Strategy) -> float:
        seconds = self.composer.seconds(strategy)
        if self.made.memory is None or seconds == float("inf"):
            return seconds
        return seconds if self.plan(strategy).peak <= self.made.memory else float("inf")

    def plan(self, strategy: Strategy) -> Plan:
        return self.made if strategy is self.made.strategy else replace(self.made, strategy=strategy)

    def in_full(self, strategy: Strategy) -> float:
        """The same by lowering and pricing the whole program, for data sheets: a proof should not rest on pieces."""
        tried = self.plan(strategy)
        if tried.memory is not None and tried.peak > tried.memory:
            return float("inf")
        return predict(tried, memory=False).seconds


def fastest(made: Plan, *, first: str, seconds: float, clock: Clock, store: str | Path | None, note: Observe) -> Plan:
    """The plan of the objective `time`: the given one, or a faster one.

    made: what the search `first` found. Only the exact search goes on; what another search found is priced as it is.
    seconds: for all of the search, that over tables included, since the clock was started.
    What is not begun for want of time is estimated from what was measured before it.

    Raises:
        PlanError: the store is none, or the search `optimum` cannot prove its answer.
    """
    told = made.certificate
    judge = Judge(made, store)
    best = bound_of(made.graph, made.machine)
    note("simulate", 0.0)
    if made.search == "optimum":
        _by_data_sheet(made, store)
        return proved(made, judge.in_full, clock.end(seconds) - time.perf_counter(), note)
    simulated = judge(made.strategy)
    if made.search != "exact":
        stopped = f"{told.stopped} without overlap, then simulated"
        if any(division.shares for division in made.strategy.divisions):
            # On a path through small parts work ends earlier than on any through equal ones; all of it must be done.
            best = Bound.largest((WORK, dict(best.parts)[WORK]))
        told = replace(told, cost=simulated, bound=best.seconds, how=best.how, stopped=stopped)
        return replace(made, certificate=told)
    found = _Candidates(made, judge, clock, KEPT * seconds, first)
    found.gather(dict(best.parts)[WORK] * made.machine.devices, note)
    rules = found.affordable()
    found.cross(1.0 if rules is None else CROSSING, note)
    if rules is not None:
        note("search sampled", 0.0)
        result = found.sampled(rules, best.seconds, best.how)
        if result is not None:
            return replace(made, strategy=result.strategy, certificate=result.certificate, search="sampled")
    name, strategy = min(found.made.items(), key=lambda one: judge(one[1]))
    statistics = told.statistics | {"found by": name, "proposals": 0}
    statistics |= {f"seconds, {name}": judge(strategy) for name, strategy in found.made.items()}
    certificate = Certificate(judge(strategy), best.seconds, "seconds", best.how, "time", SPACE, statistics)
    return replace(made, strategy=strategy, certificate=certificate, search=NAMES.get(name, name))


@dataclass
class _Candidates:
    """Strategies by name, judged.

    first: the search that made the plan. took: seconds that searches over tables took so far, the longest. tables:
    seconds that the tables of all divisions took, None where they were not made. named: the search of a name that ends
    after so many seconds.
    """

    plan: Plan
    judge: Judge
    clock: Clock
    seconds: float
    first: str
    took: float = 0.0
    tables: float | None = None
    made: dict[str, Strategy] = field(default_factory=dict)
    named: Callable[[str, float], Search] = search_of

    @property
    def deadline(self) -> float:
        return self.clock.end(self.seconds)

    @property
    def left(self) -> float:
        """Seconds, without those that judging what is found takes."""
        return self.deadline - time.perf_counter() - self.judge.likely

    def add(self, name: str, strategy: Strategy) -> None:
        self.made["data parallel" if name == "data" else name] = strategy
        self.judge(strategy)

    def gather(self, work: float, note: Observe) -> None:
        """The plan that was made first; then, of several devices, what other searches find.

        work: seconds in which one device does all of it, at least.
        """
        made, told = self.plan, self.plan.certificate.statistics
        alone = made.machine.devices == 1
        whole = alone or self.first != Data.name
        if whole:
            self.tables = float(told.get("seconds to price", 0.0))
        self.add("exact" if whole else "data", made.strategy)
        if alone:
            return
        self.took = sum(float(told.get(f"seconds to {what}", 0.0)) for what in ("price", "search"))
        note("search experts", 0.0)
        if whole:
            self.search("data", 0.5, needed=True)
        if work < self.judge(made.strategy):  # less than sending takes: a small model
            self.search("single", 0.25)
        for name in _order(made.graph):
            if name != "exact":
                self.search(name, 0.25)
            elif not whole:
                self.search(name, 0.5)

    def cross(self, share: float, note: Observe) -> None:
        """Layers exchanged between the candidates, in a share of the time that is left."""
        if len(self.made) < 2:
            return
        note("cross", 0.0)
        joined = crossed(self.plan.graph, list(self.made.values()), self.judge, time.perf_counter() + share * self.left)
        if joined.seconds < min(map(self.judge, self.made.values())):
            self.made["crossed"] = joined.strategy

    def search(self, name: str, share: float, needed: bool = False) -> None:
        """What a search over tables finds in a share of the time that is left, if it is likely to find something, or
        is needed. Experts have at least as long as such a search took: what is begun should be likely to end."""
        started, left = time.perf_counter(), self.left
        if not needed and left < self.took * (LONGER if name == "exact" else 1):
            return
        given = max(share * left, min(self.took, left) if name in EXPERTS else 0.0)
        goal = goal_of(self.plan.objective, self.plan.machine)
        if not needed:
            goal = replace(goal, deadline=started + given)
        try:
            found: SearchResult = self.named(name, max(given, LEAST)).search(self.plan.graph, goal)
        except (OutOfTimeError, SearchError):
            return
        if name == "exact":
            self.tables = float(found.certificate.statistics["seconds to price"])
        elif name in EXPERTS:
            self.took = max(self.took, time.perf_counter() - started)
        self.add(name, found.strategy)

    def affordable(self) -> Rules | None:
        """The widest space whose tables can be priced in the time that chains have."""
        if self.tables is None:
            return None
        return _affordable(self.plan.machine, self.tables, (1 - CROSSING) * self.left - 2 * self.judge.slowest)

    def sampled(self, rules: Rules, bound: float, how: str) -> SearchResult | None:
        """What chains find from the best expert's plan and the others; None where the tables take too long."""
        judge = self.judge
        experts = [name for name in self.made if name in EXPERTS]
        chosen = min(experts, key=lambda name: judge(self.made[name]), default="")
        kept = {name: strategy for name, strategy in self.made.items() if name not in EXPERTS or name == chosen}
        goal = goal_of(self.plan.objective, self.plan.machine)
        try:
            return sampled(
                self.plan.graph,
                replace(goal, deadline=self.deadline),
                seconds=self.deadline - time.perf_counter(),
                judge=judge,
                judging=judge.slowest,
                initial=kept,
                bound=bound,
                how=how,
                rules=rules,
            )
        except OutOfTimeError:
            return None


def _order(graph: Graph) -> Sequence[str]:
    """The searches beside data parallelism, the most promising for such a network first."""
    return CONVOLUTIONAL if any("convolution" in node.operator for node in graph.nodes) else RECURRENT


def _by_data_sheet(made: Plan, store: str | Path | None) -> None:
    """The bounds of the search `optimum` know the data sheet alone."""
    found = priced_on(made, made.machine, store, "processes")
    if other := {name: count for name, count in found.priced.sources.items() if count and name != PRESET}:
        raise PlanError(
            f"search 'optimum' proves by the prices of data sheets; of {made.machine.name} the store {store} has "
            f"others ({', '.join(f'{count} operators {name}' for name, count in other.items())}): plan without it"
        )


def _affordable(machine: Machine, pricing: float, left: float) -> Rules | None:
    """The widest space whose tables can be priced in most of the time that is left; None: not even without places.

    pricing: seconds that the tables without places took. With places it takes more by an estimate: a tensor of two
    dimensions has four codes for a mesh axis; places add one for each coordinate, and tables are between pairs, some
    of which are equal (AlexNet on meshes of 4×2×2 and 16×2×2: 12 and 4 times).
    """
    more = float(np.prod([(4 + size) / 4 for size in machine.mesh.sizes if size <= MOST_PLACES])) ** 1.7
    return SOAP if pricing * more <= 0.8 * left else SECONDS if pricing <= 0.8 * left else None
