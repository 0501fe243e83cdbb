"""The judge of what is proposed: the simulated step of a plan; and `Best`, the one rule by which a plan is accepted.

Searches propose strategies and ask the objective's score what they take; here this score is made of a plan, and what a
scored search finds becomes the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from pathlib import Path

from girih.cost.pricing import PRESET, Pricing
from girih.cost.profile import load_profile
from girih.graph import Graph
from girih.layout.budget import Budget
from girih.machine import Machine
from girih.partition import SearchResult, Strategy
from girih.partition.search import ScoredSearch, Search
from girih.partition.searches.data_parallel import DataParallel
from girih.partition.searches.exact import Exact
from girih.partition.space.problem import Objective
from girih.partition.strategy import SearchError
from girih.plans.choice import Choice
from girih.plans.plan import Observe, Plan, PlanError
from girih.plans.predict import opened, predict, priced_on
from girih.program import Overlap
from girih.program.life.accounts import host_bytes
from girih.search.composed import Composer
from girih.search.fastest import Fastest
from girih.search.memory.limit import WINDOWS
from girih.search.portfolio import Portfolio
from girih.simulate.bounds import WORK, Bound, bound_of

NODE, MEMBER, PEAK = 5e-6, 0.7e-6, 250e-6
"""Seconds of work for each node of a strategy that is judged; for each of its devices; and where peaks count, too."""
FAILED = 1e6
"""Seconds for each byte of a limit that would have to be higher: more than any step takes."""
DEVICE = "a device"


def judging_seconds(graph: Graph, machine: Machine, *, peaks: bool = False) -> float:
    """Seconds of work of judging a strategy of the graph, counted as a `Budget` does. peaks: its memory, too."""
    return len(graph.nodes) * (NODE + MEMBER * machine.devices + PEAK * peaks)


@dataclass(frozen=True)
class ProvingSearch(ScoredSearch):
    """A scored search that proves its answer, or refuses. Its score has to be the simulator's, by the prices of data
    sheets, with this overlap, and without movements of tensors."""

    overlap: Overlap = WINDOWS[0]


class Judge:
    """Simulated seconds of plans that have the graph and the machine of one plan, and of strategies of its graph: above
    its memory limit with a price for each byte that is too many, or infinite.

    per_byte: that price, in seconds: of copying a byte out of the device and back. An estimate: what is proposed so is
    simulated with its movements afterwards (`girih.search.memory.together`). fitting: (seconds, strategy) of the
    fastest that was seen within the limit. needed: by whose memory it is, bytes of the smallest limit that a plan was
    seen to need which did not keep it. done: seconds of work of the last judgement.
    """

    def __init__(self, plan: Plan, store: str | Path | None = None, per_byte: float = float("inf")) -> None:
        self.plan, self.store, self.per_byte = plan, store, per_byte
        self.fitting: tuple[float, Strategy] | None = None
        self.needed: dict[str, float] = {}
        self.done = 0.0

    @property
    def goal(self) -> Objective:
        return Objective(self.plan.objective, self.plan.machine, score=self, judging=self.work)

    @cached_property
    def composer(self) -> Composer:
        """Simulates strategies by difference: only pieces that no other strategy had are lowered and priced."""
        where = self.plan.machine
        with opened(self.store) as known:
            profile = None if known is None else load_profile(known, where.name)
            pricing = Pricing(where if profile is None else profile.applied(where), store=known, profile=profile)
        simulated = where if profile is None else profile.simulated(where)
        return Composer(self.plan.graph, where, self.goal.transfers, self.plan.choice.overlap, pricing, simulated)

    def __call__(self, strategy: Strategy) -> float:
        return self.within(strategy, float("inf"))

    def within(self, strategy: Strategy, limit: float) -> float:
        """The same where it is less than a limit; else at least the limit. The memory of what is slower in any case is
        not followed, which takes most of a judgement."""
        seconds = self.composer.seconds(strategy)
        self.done = judging_seconds(self.plan.graph, self.plan.machine)
        if seconds == float("inf") or self.plan.memory is None:
            return seconds
        if seconds >= limit and self.fitting is not None and seconds >= self.fitting[0]:
            return seconds
        self.done = self.work
        if (over := self.planned(strategy).peak - self.plan.memory) > 0:
            return seconds + over * self.per_byte
        if self.fitting is None or seconds < self.fitting[0]:
            self.fitting = seconds, strategy
        return seconds

    def seconds(self, plan: Plan) -> float:
        """What a plan's step takes, whatever its choice: composed of pieces where it divides the judge's graph and
        nothing else was chosen, else of its whole Program; to the last bit the same."""
        own = self.plan.choice
        divided = Choice(plan.strategy, plan.choice.rewrites, own.routes, overlap=own.overlap)
        if plan.graph is self.plan.graph and plan.choice == divided:
            return self.composer.seconds(plan.strategy)
        return predict(plan, store=self.store, memory=False).seconds

    @property
    def work(self) -> float:
        """The seconds of work that a judgement takes, at most."""
        return judging_seconds(self.plan.graph, self.plan.machine, peaks=self.plan.memory is not None)

    def planned(self, strategy: Strategy) -> Plan:
        return self.plan if strategy is self.plan.strategy else self.plan.but(strategy=strategy)

    def refused(self, plan: Plan) -> float:
        """What a plan counts for that needs more than a device may hold, or than the large memory behind it has; 0
        where it keeps both."""
        if plan.memory is not None and plan.peak > plan.memory:
            return self.refuse(plan.peak)
        host = plan.machine.host if plan.choice.residency else None
        if host is None:
            return 0.0
        there = max(host_bytes(plan.program, order.devices.first) for order in plan.program.classes)
        return self.refuse(there, host.name) if there > host.memory_bytes else 0.0

    def refuse(self, needed: float, where: str = DEVICE) -> float:
        """What counts for what would need so many bytes, which is noted."""
        self.needed[where] = min(self.needed.get(where, float("inf")), needed)
        return FAILED * needed

    @property
    def smallest(self) -> tuple[str, float]:
        """Whose memory would be enough first, and with how many bytes."""
        return min(self.needed.items(), key=itemgetter(1))

    def in_full(self, strategy: Strategy) -> float:
        """The same by lowering and pricing the whole program, for data sheets: a proof should not rest on pieces."""
        plan = self.planned(strategy)
        return float("inf") if self.refused(plan) else predict(plan, memory=False).seconds


@dataclass
class Best:
    """The fastest of the plans that were offered, and the seconds of its step; None as long as none kept its limits."""

    judge: Judge
    plan: Plan | None = None
    seconds: float = float("inf")

    def offer(self, plan: Plan, seconds: float | None = None) -> float:
        """Seconds of a plan's step; what counts in their place where it does not keep its limits (`Judge.refused`). It
        is the best if it keeps them and takes less than all before it. seconds: where they are known; whether it keeps
        its limits is asked only if it would be the best."""
        if seconds is not None and seconds >= self.seconds:
            return seconds
        if refused := self.judge.refused(plan):
            return refused
        if seconds is None:
            seconds = predict(plan, store=self.judge.store, memory=False).seconds
        if seconds < self.seconds:
            self.plan, self.seconds = plan, seconds
        return seconds


def beginning(search: Search, objective: Objective, limit: int | None) -> Search:
    """The search over tables that comes first: the one that is asked for, in half of its seconds where the simulated
    step is judged behind it. For the fastest step data parallelism begins, whose tables are small, and which is
    simulated in any case; for a proof, and where a memory limit has to be kept, the exact search."""
    if objective.name != "time":
        return search
    if not isinstance(search, Exact | ScoredSearch):
        return replace(search, seconds=search.seconds / 2)
    if isinstance(search, ProvingSearch) or limit is not None or objective.machine.devices == 1:
        return Exact(search.seconds / 2)
    return DataParallel(search.seconds)


def judged(plan: Plan, search: Search, first: str, judge: Judge, *, budget: Budget, note: Observe) -> Plan:
    """The plan of the objective `time`: the given one, or a faster one.

    plan: what the first search, by its name `first`, found. judge: of its strategies. `exact` goes on as
    `girih.search.fastest`, and a scored search from this plan; what another search found is simulated as it is.
    budget: of the search's seconds, of which the first search has spent its part.

    Raises:
        PlanError: the store is none, or the search `optimum` cannot prove its answer.
    """
    told, least = plan.certificate, bound_of(plan.graph, plan.machine)
    note("simulate", 0.0)
    objective, known = judge.goal, (SearchResult(plan.strategy, told, search=first),)
    if isinstance(search, Exact):
        search = Fastest(search.seconds)
    if isinstance(search, ScoredSearch):
        search = replace(search, known=known, observe=note)
    if isinstance(search, Portfolio):
        search = replace(search, peaks=plan.memory is not None)
    if isinstance(search, Fastest | Portfolio):
        objective = replace(objective, budget=budget)
    elif isinstance(search, ScoredSearch):
        search = replace(search, seconds=budget.seconds)
    else:
        if any(division.shares for division in plan.strategy.divisions):
            # On a path through small parts work ends earlier than on any through equal ones; all of it must be done.
            least = Bound.largest((WORK, dict(least.parts)[WORK]))
        stopped = f"{told.stopped} without overlap, then simulated"
        if plan.choice.schedule == "graph":
            seconds = judge(plan.strategy)
        else:  # pieces are composed in the order of the graph
            seconds = judge.seconds(plan)
        certificate = replace(told, cost=seconds, bound=least.seconds, how=least.how, stopped=stopped)
        return plan.but(certificate=certificate)
    if isinstance(search, ProvingSearch):
        _by_data_sheet(plan, judge.store)
        objective = replace(objective, score=judge.in_full)
        search = replace(search, overlap=plan.choice.overlap)
    try:
        result = search.search(plan.graph, objective)
    except SearchError as error:
        raise PlanError(str(error)) from error
    certificate = result.certificate
    if certificate.bound < (bound := min(least.seconds, certificate.cost)):  # costs are of whole ticks
        certificate = replace(certificate, bound=bound, how=least.how)
    return plan.but(strategy=result.strategy, certificate=certificate, search=result.search or search.name)


def _by_data_sheet(plan: Plan, store: str | Path | None) -> None:
    """The bounds of the search `optimum` know the data sheet alone."""
    priced = priced_on(plan, plan.machine, store, "processes")
    if other := {name: count for name, count in priced.priced.sources.items() if count and name != PRESET}:
        raise PlanError(
            f"search 'optimum' proves by the prices of data sheets; of {plan.machine.name} the store {store} has "
            f"others ({', '.join(f'{count} operators {name}' for name, count in other.items())}): plan without it"
        )
