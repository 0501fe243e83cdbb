"""Every proposer as one verb on plans, and the loop that keeps the fastest of what they propose.

`proposals` has a plan as a proposer would have it: divided by a search, in another order, held within its limit. What
wants to read a whole plan (its simulated timeline, the peak of its memory), or to change several parts of its Choice at
once, is a `Move`. It comes with the call: nothing here knows who wrote it. `improved` takes a plan through proposers,
one after the other; `girih.search.judge` says what each proposal takes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from girih.graph import Graph
from girih.layout.budget import Budget
from girih.partition import SearchResult
from girih.partition.search import Search, nobody
from girih.partition.space.pricing import OutOfTimeError
from girih.partition.space.problem import Objective
from girih.partition.strategy import SearchError
from girih.plans.plan import Observe, Plan, PlanError
from girih.rewrite.proposer import Proposer
from girih.search.judge import Best, Judge, judging_seconds
from girih.search.memory.holding import held
from girih.search.memory.holds import Baseline
from girih.search.memory.orders.order import StepOrder
from girih.simulate.bounds import bound_of


@dataclass(frozen=True)
class Move(Proposer):
    """A proposer that reads a whole plan, and may change any field of its Choice."""

    @abstractmethod
    def propose(self, plan: Plan, judge: Judge) -> Iterable[Plan]:
        """The plan with other choices (`Plan.but`), one after the other. judge: says what a plan takes.

        Raises:
            PlanError: it can make nothing of this plan.
        """


def searched(search: Search, graph: Graph, objective: Objective) -> SearchResult:
    """What a search finds.

    Raises:
        PlanError: it does not support the objective, or can make nothing of this graph.
    """
    try:
        if not (support := search.supports(objective)):
            raise SearchError(support.why_not)
        return search.search(graph, objective)
    except SearchError as error:
        raise PlanError(f"search {search.name}: {error}") from error


def proposals(proposer: Proposer, plan: Plan, judge: Judge, budget: Budget | None = None) -> Iterator[Plan]:
    """What a proposer makes of a plan. A search divides its graph anew, or one that it has written otherwise; an order,
    or a way to hold, begins with everything on the devices. budget: of work, which a search spends; None: it has its
    own seconds.

    Raises:
        OutOfTimeError: the budget is too small for the tables of a search.
        PlanError: it can make nothing of this plan.
        TypeError: it is of no kind that proposes plans.
    """
    if isinstance(proposer, Move):
        yield from proposer.propose(plan, judge)
    elif isinstance(proposer, Search):
        yield plan.divided_by(searched(proposer, plan.graph, replace(judge.goal, budget=budget)), proposer.name)
    elif isinstance(proposer, StepOrder):
        plain = plan.whole
        yield plain.but(sequence=tuple(proposer.order(plain.lifetimes.links).tolist()))
    elif isinstance(proposer, Baseline):
        if plan.memory is None:
            raise PlanError(f"hold {proposer.name} keeps a memory limit: expected a plan with one, got none")
        yield held(plan.whole, proposer, store=judge.store, note=nobody)
    else:
        expected = "a Move, a Search, a StepOrder or a Baseline"
        raise TypeError(f"{type(proposer).__name__} proposes no plans: expected {expected}")


def improved(plan: Plan, proposers: Sequence[Proposer], judge: Judge, budget: Budget, note: Observe = nobody) -> Plan:
    """The fastest of a plan and what proposers, one after the other, make of the best so far, within its memory limit;
    the plan itself if nothing is faster. What a proposer can make nothing of is passed over.

    plan: of the objective `time`, so that its certificate's cost is seconds of the simulated step. The certificate of
    the answer says who proposed it, and what each proposal takes that was the fastest for a while. budget: of work, of
    searches and of simulating what they propose, for each node of the graph as that writes it; of its memory where it
    would be the best. A proposer for which too little is left is passed over.

    Raises:
        PlanError: the plan is of another objective.
    """
    if plan.objective != "time":
        raise PlanError(f"plans are improved by their simulated step: expected objective time, got {plan.objective}")
    best, kept = plan, Best(judge, plan, plan.certificate.cost)
    for proposer in proposers:
        if not budget.affords(judging_seconds(best.graph, best.machine) * 1e9):
            break
        note(f"search {proposer.name}", 0.0)
        try:
            for other in proposals(proposer, best, judge, budget):
                own = judging_seconds(other.graph, other.machine) * 1e9
                if not budget.affords(own):
                    break
                budget.spend(own)
                told, seconds = best.certificate, judge.seconds(other)
                if seconds < kept.seconds and other.memory is not None:
                    budget.spend(judging_seconds(other.graph, other.machine, peaks=True) * 1e9 - own)
                kept.offer(other, seconds)
                if kept.plan is other:
                    statistics = {**told.statistics, "found by": proposer.name, f"seconds, {proposer.name}": seconds}
                    certificate = replace(told, cost=seconds, statistics=statistics)
                    if other.graph is not best.graph:
                        least = bound_of(other.graph, other.machine)
                        certificate = replace(certificate, bound=least.seconds, how=least.how)
                    best = other.but(certificate=certificate, search=proposer.name, simulated=None)
        except (OutOfTimeError, PlanError):
            continue
    return best
