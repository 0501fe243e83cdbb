"""All choices of a plan in their order: a search over tables, the memory limit, the overlap, the simulated step."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from girih.graph import Graph
from girih.layout.budget import Budget, without_collection
from girih.machine import Machine
from girih.machine.units import format_bytes, format_seconds
from girih.partition import SearchResult
from girih.partition.search import Search
from girih.partition.searches.exact import ByKeys, Exact
from girih.partition.searches.stages import micro_batches
from girih.partition.space.problem import Objective
from girih.plans.choice import Choice
from girih.plans.plan import Goal, Observe, Plan, PlanError
from girih.plans.predict import by_measurements, calibrated
from girih.plans.scratch import followed
from girih.program.life.accounts import memory_uses
from girih.rewrite.passes.attention import has_key_blocks, key_blocks
from girih.search.compare import beside, compared, simulated_step
from girih.search.joint.jointly import jointly
from girih.search.joint.rounds import Ways
from girih.search.joint.search import Joint
from girih.search.judge import Judge, ProvingSearch, beginning, judged
from girih.search.memory.holds import Baseline
from girih.search.memory.limit import NothingFitsError, fit, refused_whole, too_much_state, widest_overlap
from girih.search.memory.orders.order import StepOrder
from girih.search.memory.step_seconds import simulated_seconds
from girih.search.memory.together import divided, seconds_per_byte, together
from girih.search.moves import improved, searched
from girih.search.portfolio import Portfolio
from girih.search.stages import ProposedStages
from girih.search.table import BASELINES, HOLDS, baseline_of, search_of
from girih.simulate.bounds import bound_of

APART = ("sharded", "megatron", "pipeline-1f1b")
"""What is judged beside the fastest plan that a search of the objective `time` finds, unless the search tried it. These
stand apart from its candidates, whose layers are exchanged: Megatron-LM splits the attention heads of the graph before
it divides it, and one forward, one backward is another order of the whole step."""
BESIDE = 0.5
"""The share of the search's seconds of work that they have. It comes on top of the seconds, so that what the search
itself finds is never worse. They take much less of it, mostly: their tables are small."""
CANDIDATES = 0.25
"""The share of the seconds of work that other candidates and their judging have where a limit of memory has taken more
than the rest: one device alone, or what experts do, may be far faster than what the tables find in little time."""
MOST_JUDGED = 100_000_000
"""Nodes × devices of a program whose step is simulated for each candidate: with so many, one takes half a minute."""


def hold_of(hold: str | Baseline) -> str | Baseline:
    """One of HOLDS as it is, or the published way that a text names, with its options, as `chain:stages=32`.

    Raises:
        PlanError: there is no such way, or it has no such option.
    """
    if not isinstance(hold, str) or hold in HOLDS:
        return hold
    if hold.partition(":")[0] not in BASELINES:
        raise PlanError(f"no way {hold!r} to hold tensors: expected one of {', '.join((*HOLDS, *BASELINES))}")
    try:
        return baseline_of(hold)
    except ValueError as error:
        raise PlanError(str(error)) from error


@without_collection()
def choose(
    graph: Graph,
    machine: Machine,
    search: Search,
    objective: str,
    *,
    limit: int | None,
    unlimited: bool = False,
    compare: Sequence[Search] | None,
    store: str | Path | None,
    note: Observe,
    hold: str | Baseline = "auto",
    order: str | StepOrder = "auto",
) -> Plan:
    """The plan that a search finds, with its costs beside those of others.

    compare: these; None: `girih.search.compare.beside`.
    limit: bytes of each device; None: what the machine's devices have, unless the plan is to be `unlimited`. hold: what
    to do where that is too little, one of HOLDS, or a published way. order: of the steps in that case, `auto` or one of
    `girih.search.table.ORDERS`. store: measured costs, for the objective `time` and for simulated steps.

    Raises:
        PlanError: the search can make nothing of the graph, or the limit cannot be met.
    """
    notes: tuple[str, ...] = ()
    if objective not in search.objectives:
        goals = " or ".join(search.objectives)
        notes = (f"search {search.name} is of --objective {goals}; by {objective} search exact ran",)
        search = Exact(search.seconds)
    if isinstance(search, Portfolio) and len(graph.nodes) * machine.devices > MOST_JUDGED:
        notes = (f"{len(graph.nodes)} nodes on {machine.devices} devices are too many to simulate: by seconds",)
        objective, search = "seconds", Exact(search.seconds)
    if objective == "time":
        machine = calibrated(machine, store)
    aim = Objective(objective, machine)

    def composed(graph: Graph, seconds: float) -> Plan:
        """Everything chosen in its order."""
        own = replace(search, seconds=seconds)
        planning = _Planning(aim, own, hold, order, store, note, Budget(seconds))
        plan = planning.plan(graph, limit)
        return plan if limit is not None or unlimited or fits_machine(plan) else planning.plan_in_machine(graph)

    if isinstance(search, Joint):
        room = limit if limit is not None or unlimited else machine.device.memory_bytes
        plan = jointly(graph, aim, room, search, composed, Ways(hold, order, store, note))
        if limit is None and plan.choice.room is None:  # nothing moves: the room is not what was asked for
            plan = plan.but(memory=None)
    else:
        plan = composed(graph, search.seconds)
    if (count := micro_batches(plan.graph)) != micro_batches(graph):  # a search has cut it
        plan = plan.but(micro_batches=count)
    notes = (*notes, *plan.notes, *one_device(plan), *by_measurements(machine, store))
    if plan.predicted.simulated is None:
        plan = plan.but(simulated=simulated_step(plan, store))
    plan = plan.but(notes=notes)
    others = [search_of(name, search.seconds) for name in beside(machine)] if compare is None else compare
    baselines, missing = compared(plan, graph, others, named=compare is not None, store=store, note=note)
    return plan.but(baselines=baselines, notes=(*notes, *missing))


@dataclass
class _Planning:
    """Makes plans of one graph under one limit of memory or another.

    The fields are what the caller asked for, all but the limit; `hold` and `order` as `choose` takes them. budget: of
    the search's seconds, which all plans share. first: the first search over tables and its answer, kept so that a
    second plan under another limit need not search again.
    """

    goal: Objective
    search: Search
    hold: str | Baseline
    order: str | StepOrder
    store: str | Path | None
    note: Observe
    budget: Budget
    first: tuple[Search, SearchResult] | None = None

    def plan(self, graph: Graph, limit: int | None) -> Plan:
        """The plan that keeps the limit, with its certificate. Where none is found with attention as it costs least,
        it is looked for with the other: blocks of keys hold less of keys and values, and more of rows and results.

        Raises:
            PlanError: the search can make nothing of the graph, or the limit cannot be met.
        """
        try:
            return self.as_costs_least(graph, limit)
        except PlanError:
            other = self.otherwise(graph)
            if other is None:
                raise
            with suppress(PlanError):
                return replace(self, search=other, first=None).as_costs_least(graph, limit)
            raise

    def otherwise(self, graph: Graph) -> Search | None:
        """The search with attention by blocks of keys where it was left whole, or the other way round; None where the
        search does not choose that."""
        search, first = self.search, self.first
        if not isinstance(search, Exact) or search.attention != "cheapest" or self.goal.name == "time":
            return None
        if first is None or not key_blocks(graph, self.goal.machine.devices):
            return None
        keys = first[1].graph is not None and has_key_blocks(first[1].graph)
        return replace(search, attention="whole" if keys else "keys")

    def as_costs_least(self, graph: Graph, limit: int | None) -> Plan:
        """The plan that keeps the limit, of the graph as the first search writes it; with attention written the other
        way where only the best plan of that keeps it.

        Raises:
            PlanError: as `plan`.
        """
        goal, search = self.goal, self.search
        first = beginning(search, goal, limit)
        if self.first is None or self.first[0] != first:
            self.note(f"search {first.name}", 0.0)
            self.first = first, searched(first, graph, goal)
            self.budget.spend(self.first[1].certificate.work * 1e9)
        result = self.first[1]
        plan = self.divided(graph, result, limit)
        if isinstance(first, Exact) and result.graph is not None and limit is not None and plan.peak > limit:
            # What is held for several readers leaves too little memory: each of them fetches for itself.
            each = replace(first, rules=replace(first.rules_of(goal), shared=False))
            result = searched(each, graph, goal)
            self.budget.spend(result.certificate.work * 1e9)
            plan = self.divided(graph, result, limit)
        if limit is not None and (other := self.otherwise(graph)) and plan.peak > limit:  # peaks take long
            fits = searched(other, graph, goal)
            self.budget.spend(fits.certificate.work * 1e9)
            if (written := self.divided(graph, fits, limit)).peak <= limit:
                result, plan = fits, written
        graph = plan.graph
        refused: NothingFitsError | None = None
        apart: Plan | None = None
        if goal.machine.devices == 1:
            if why := refused_whole(plan, search):
                refused = NothingFitsError(why)
        else:
            try:
                fitted = fit(graph, goal, result, search, limit, self.note)
                if fitted is not result:
                    self.budget.spend(fitted.certificate.work * 1e9)
                result = fitted
                plan = plan.but(strategy=result.strategy, certificate=result.certificate, schedule=result.schedule)
            except NothingFitsError as error:
                refused = error
        if refused and limit is not None and (why := too_much_state(graph, goal.machine, limit)):
            raise PlanError(f"{refused}; {why}") from refused
        # A proof of the fastest plan is of plans without movements.
        if refused and isinstance(search, ProvingSearch):
            raise refused
        if refused and self.hold == "none":
            apart = self.fitting_apart(plan) if goal.name == "time" else None
            if apart is None:
                raise refused
            return apart
        if not refused:
            plan = plan.but(overlap=widest_overlap(plan))
        plans = divided(plan, refused.divisions if refused else ())
        if goal.name == "time":
            moving = limit is not None and self.hold != "none"
            judge = Judge(plan, self.store, seconds_per_byte(goal.machine) if moving else inf)
            left = self.budget.part(max(self.budget.seconds, CANDIDATES * search.seconds))
            best = judged(plan, search, first.name, judge, budget=left, note=self.note)
            self.budget.spend(left.spent)
            apart = self.apart(best, judge)
            if apart is not None and (limit is None or best.peak <= limit):
                return apart
            fitting = () if judge.fitting is None else (judge.fitting[1],)
            plans = divided(best, (), (*fitting, *(plan.strategy for plan in plans)))
        plan = plans[0]
        if limit is not None and (refused or plan.peak > limit):
            try:
                work = Budget(search.seconds)
                plan = together(plans, self.hold, order=self.order, store=self.store, note=self.note, work=work)
            except PlanError as error:
                if apart is not None:
                    return apart
                if refused is None or goal.machine.host is not None:
                    raise
                raise PlanError(f"{refused}; {error}") from error  # what divisions need says more
            if goal.name == "time":
                cost = simulated_seconds(plan, self.store)
                bound = min(plan.certificate.bound, cost)  # costs are of whole ticks
                plan = plan.but(certificate=replace(plan.certificate, cost=cost, bound=bound))
                if apart is not None and apart.certificate.cost < cost:
                    return apart
        return plan

    def apart(self, best: Plan, judge: Judge) -> Plan | None:
        """What stands apart (`APART`), where its step is faster than that of the best plan and within the limit. What
        does not keep the limit counts with its price until it is moved, so that it is compared again afterwards."""
        search, alone = self.search, best.certificate.statistics.get("found by") == "single"
        if not isinstance(search, Exact | Portfolio) or best.machine.devices == 1:
            return None
        chosen = getattr(search, "attention", "cheapest") == "cheapest"
        keys = (ByKeys(search.seconds),) if chosen and key_blocks(best.graph, best.machine.devices) else ()
        if alone and not keys:
            return None
        names = () if alone else tuple(name for name in APART if name not in best.certificate.tried)
        budget = Budget(BESIDE * search.seconds)
        stages = () if alone else (ProposedStages(search.seconds, budget),)
        others = (*(search_of(name, search.seconds) for name in names), *stages)
        faster = improved(best, (*others, *keys), judge, budget, self.note)  # what comes last writes another graph
        return None if faster is best else faster

    def fitting_apart(self, plan: Plan) -> Plan | None:
        """What stands apart and keeps the limit, where the plan and all other divisions do not."""
        least = bound_of(plan.graph, plan.machine)
        certificate = replace(plan.certificate, cost=inf, bound=least.seconds, how=least.how)
        return self.apart(plan.but(certificate=certificate), Judge(plan, self.store))

    def divided(self, graph: Graph, result: SearchResult, limit: int | None) -> Plan:
        """The plan of what a search found, nothing else chosen."""
        choice = Choice(result.strategy, routes=self.goal.unit, schedule=result.schedule)
        goal = Goal(self.search.name, self.goal.name, limit)
        return Plan(result.graph or graph, self.goal.machine, choice, result.certificate, goal)

    def plan_in_machine(self, graph: Graph) -> Plan:
        """The plan within what each device has, where nobody said a limit.

        Raises:
            PlanError: there is none, and the message says where the limit comes from.
        """
        room = self.goal.machine.device.memory_bytes
        try:
            return self.plan(graph, room)
        except PlanError as error:
            raise PlanError(
                f"{error}. No limit was given, so it is what a device of {self.goal.machine.name} has, "
                f'{format_bytes(room)}: memory="unlimited" (--memory unlimited) plans as if it had more'
            ) from error


def one_device(plan: Plan) -> tuple[str, ...]:
    """A note where no division was found with which several devices are faster than one; else nothing."""
    alone = plan.certificate.tried.get("single")
    if plan.machine.devices == 1 or alone is None or alone > plan.certificate.cost * (1 + 1e-9):
        return ()
    return (
        f"one device is as fast: no division of this step over {plan.machine.devices} devices takes less than the "
        f"{format_seconds(alone)} of one, so that each does all of the work. Plan it for one device, or with a larger "
        "batch or faster links; `--objective bytes` divides the memory in any case",
    )


def fits_machine(plan: Plan) -> bool:
    """Does every device have the memory that the plan needs there? On this host no kernel is measured for it where
    bounds of their scratch fit as well."""
    if plan.machine.here:
        least = plan.machine.device.memory_bytes
        if all(use.peak <= least for use in memory_uses(plan.program, followed(plan.machine))):
            return True
    return plan.fits
