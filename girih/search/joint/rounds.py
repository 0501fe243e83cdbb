"""The rounds of the joint search: what is proposed, in which order, and how it is judged.

It begins with the best sequential composition: the graph as it is, and as proved rules make it cheapest for one device,
each divided, ordered and held as `portfolio` does. So it is never worse than that. A training step is cut into
micro-batches, which go forward and backward one after the other, twice as many each time as long as that is faster.
Small graphs are searched by branch and bound (`girih.search.joint.small`). Then, what has the fastest plan first:

1. Divisions that others choose (`girih.search.joint.divisions.NAMES`) are held within the limit. The portfolio compares
   them by an estimate of what their movements cost; here they are moved, computed again, reordered, and simulated.
2. The division is solved anew under prices. These begin with what computing, links and bytes cost, and follow what the
   simulated step was short of: where ports are busy longer than devices compute, links become dearer, and where memory
   was exceeded, the bytes held then.
3. Of small graphs the strategies beside the best are held, one after another.
4. The layers of the best plans are exchanged, each exchange held within the limit.
5. Rules are applied to one layer, or to all that are alike, and what they make is divided as is cheapest beside the
   rest of the best (`girih.search.joint.regions`). What is faster is one more way to write the graph.
6. Other orders of the steps are tried where nothing moves.

What begins with the best comes again as long as a step got faster. What is proposed is held in a quick way first; what
is among the fastest then is held in the best way that is found, and `girih.search.judge.Best` accepts it or does not.
All work is counted against the seconds of the search.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from girih.graph import Graph
from girih.graph.graph import Same
from girih.layout.budget import Budget
from girih.machine import Machine
from girih.partition import SearchResult, Strategy
from girih.partition.search import nobody
from girih.partition.searches.stages import micro_batches
from girih.partition.space.problem import Objective
from girih.plans.choice import Choice
from girih.plans.plan import Goal, Observe, Plan, PlanError
from girih.plans.predict import predict, priced_on
from girih.plans.rewritten import Rewrite
from girih.program.moves.residency import floor
from girih.rewrite.certificate import Certificate
from girih.search.crossover import Crossing
from girih.search.joint.divisions import STAGES, Busy, Divisions, Prices
from girih.search.joint.regions import regions
from girih.search.judge import Best, Judge
from girih.search.memory.holding import held
from girih.search.memory.holds import Baseline
from girih.search.memory.limit import WINDOWS, exchanges, widest_overlap
from girih.search.memory.orders.order import StepOrder
from girih.search.memory.step_seconds import copy_rates, simulated_seconds
from girih.search.memory.together import seconds_per_byte, together
from girih.search.moves import proposals
from girih.search.table import ORDERS, order_of, search_of
from girih.simulate.bounds import bound_of
from girih.simulate.incremental import Simulator
from girih.simulate.spans import busy_devices, busy_ports
from girih.simulate.ticks import TICKS_PER_SECOND

TURNS = 6
"""How often the prices move in a round."""
FULLY = 3
"""How many proposals of one kind, the fastest when they are held quickly, are then held in the best way."""
NEAR = 1.1
"""Times the seconds of the best: what takes longer when it is held quickly is not held in full."""
NEIGHBOURS = 200
"""Strategies of a small graph beside the best that are held quickly."""
JUDGED, HELD = 300_000.0, 300_000.0
"""Nanoseconds of judging a strategy, beside those of its nodes; and for each node of one that is to be held within the
limit."""
REGIONS = 12
"""Groups of layers that are written otherwise, each by itself, at most."""
FULL = 0.25
"""The share of the seconds that are left in which a proposal is held in the best way."""


@dataclass(frozen=True)
class Ways:
    """What the caller asked for beside the search, as `girih.search.choose.choose` takes it."""

    hold: str | Baseline
    order: str | StepOrder
    store: str | Path | None
    note: Observe


@dataclass(frozen=True)
class Step:
    """One plan that was the fastest. work: seconds of work until then. by: who proposed it."""

    work: float
    seconds: float
    by: str


@dataclass(frozen=True, eq=False)
class Written:
    """One way to write the graph. rewrites: by which rules. plain: a plan of it, everything on the devices; judge: of
    its strategies without a limit."""

    graph: Graph
    rewrites: tuple[Rewrite, ...]
    plain: Plan
    judge: Judge
    divisions: Divisions


@dataclass
class Rounds:
    """The state of a joint search on a machine, under a limit of bytes or None.

    graphs: the ways to write the graph, the given one first; compositions: their sequential ones. steps: the plans that
    were the fastest, one after the other. seen: what was proposed already, with what it took when it was held quickly,
    None where it could not be; as it is, with the least that it would take, where that is no less than the best. full:
    what was held in the best way, or need not be. parts: by counts of micro-batches that were tried,
    the seconds of the fastest of a few divisions. limited: how many proposals that do not keep the limit
    would be faster than the best without it.
    """

    ways: Ways
    budget: Budget
    machine: Machine
    limit: int | None
    graphs: list[Written] = field(default_factory=list)
    compositions: list[Plan] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    seen: dict[object, tuple[float, Plan] | None] = field(default_factory=dict)
    full: set[object] = field(default_factory=set)
    parts: dict[int, float] = field(default_factory=dict)
    limited: int = 0

    def compose(self, graph: Graph, rewrites: tuple[Rewrite, ...], sequential: Callable[[], Plan]) -> PlanError | None:
        """Begin with one way to write the graph, and its sequential composition. Why there is none, if so."""
        self.write(graph, rewrites)
        try:
            plan = sequential().but(rewrites=rewrites)
        except PlanError as error:
            return error
        self.budget.spend(plan.certificate.work * 1e9)
        self.compositions.append(plan)
        self.take(plan, plan.certificate.cost, "sequential, rewritten" if rewrites else "sequential")
        return None

    def write(self, graph: Graph, rewrites: tuple[Rewrite, ...]) -> Written:
        """One more way to write the graph, of which divisions are proposed."""
        objective = Objective("seconds", self.machine)
        choice = Choice(search_of("single").search(graph, objective).strategy, rewrites)
        certificate = Certificate(float("inf"), 0.0, "seconds", "none", "", "")
        plain = Plan(graph, self.machine, choice, certificate, Goal("joint", "time", self.limit))
        judge = Judge(plain.but(memory=None, overlap=WINDOWS[0]), self.ways.store)
        divisions = Divisions(graph, objective, exchanges(objective), self.budget, self.left_out(graph))
        self.graphs.append(Written(graph, rewrites, plain, judge, divisions))
        return self.graphs[-1]

    def left_out(self, graph: Graph) -> frozenset[str]:
        """Searches that need not be asked how a graph is divided: stages are in the composition, unless they are to be
        moved within the limit, and have their own counts of micro-batches; GPipe wants these in its own order."""
        cut = bool(self.graphs) and micro_batches(graph) != micro_batches(self.graphs[0].graph)
        if cut:
            return frozenset((STAGES, "model", "pipeline"))
        return frozenset() if self.limit is not None else frozenset((STAGES,))

    def open(self, graph: Graph) -> bool:
        """May a plan of the graph be faster than the best?"""
        return self.least(graph) < self.seconds

    def least(self, graph: Graph) -> float:
        """Seconds that no plan of the graph is below, as far as the ticks tell to which each step is rounded."""
        return bound_of(graph, self.machine).seconds + len(graph.nodes) / TICKS_PER_SECOND

    def promise(self, written: Written) -> float:
        """Seconds of the fastest plan that is known of a way to write the graph; infinite where none is."""
        own = [item[0] for item in self.seen.values() if item is not None and item[1].graph is written.graph]
        if self.best is not None and self.best.graph is written.graph:
            own.append(self.seconds)
        return min(own, default=float("inf"))

    # -------------------------------------------------------------------------------------------- what is taken

    @cached_property
    def kept(self) -> Best:
        return Best(Judge(self.graphs[0].plain, self.ways.store))

    @property
    def best(self) -> Plan | None:
        return self.kept.plan

    @property
    def seconds(self) -> float:
        return self.kept.seconds

    def take(self, plan: Plan, seconds: float, by: str) -> None:
        """Make a plan, which takes so long, the best if it is faster than all before and keeps its limits."""
        before = self.best
        self.kept.offer(plan, seconds)
        if self.best is not before:
            self.steps.append(Step(self.budget.spent / 1e9, seconds, by))

    def quick(self, plan: Plan) -> tuple[float, Plan] | None:
        """What a plan without movements takes, held as is quickly found; None where it cannot be held."""
        key = _key(plan)
        if key not in self.seen:
            self.seen[key] = None
            with suppress(PlanError):
                self.seen[key] = self._quick(plan)
        return self.seen[key]

    def _quick(self, plan: Plan) -> tuple[float, Plan] | None:
        ways = self.ways
        if self.fits(plan):
            plan = plan.but(overlap=widest_overlap(plan))
            self.spend(plan)
            return predict(plan, store=ways.store, memory=False).seconds, plan
        if ways.hold == "none":
            return None
        hold = "swap" if ways.hold == "auto" and plan.machine.host is not None else ways.hold
        if (least := self.at_least(plan, hold)) >= self.seconds:
            self.full.add(_key(plan))
            return least, plan
        self.budget.spend(HELD * len(plan.graph.nodes))
        if self.best is not None and floor(plan.lifetimes)[0] > (plan.memory or 0):
            return None  # a step alone needs more
        order = "captured" if ways.order == "auto" else ways.order
        work = Budget(0.0)
        try:
            own = held(plan, hold, order=order, store=ways.store, note=nobody, work=work)
        finally:
            self.budget.spend(work.spent)
        return simulated_seconds(own, ways.store), own

    def at_least(self, plan: Plan, hold: str | Baseline) -> float:
        """Seconds of a plan's step without a limit, or of copying once all that is too much where tensors are moved:
        what no way to hold it is likely to be below. It is known long before one is found, or none."""
        self.spend(plan)
        wide = plan.but(memory=None, overlap=WINDOWS[0]) if plan.choice.schedule == "graph" else plan.but(memory=None)
        seconds = predict(wide, store=self.ways.store, memory=False).seconds
        self.limited += seconds < self.seconds
        if hold != "swap" or plan.machine.host is None:
            return seconds
        return max(seconds, (plan.peak - (plan.memory or 0)) / max(copy_rates(plan.machine)))

    def fits(self, plan: Plan) -> bool:
        """Does it keep its limit with the widest overlap, so that there is nothing to hold? Where tensors are not to be
        held otherwise, with any."""
        if plan.memory is None:
            return True
        widest = WINDOWS[0] if plan.choice.schedule == "graph" else plan.choice.overlap
        if plan.but(overlap=widest).peak <= plan.memory:
            return True
        return self.ways.hold == "none" and plan.peak <= plan.memory

    def spend(self, plan: Plan) -> None:
        self.budget.spend(Judge(plan).work * 1e9)

    def consider(self, plans: Iterable[tuple[str, Plan]], most: int) -> float:
        """Hold these quickly, at most so many, and the fastest of them in full. The least seconds when held quickly."""
        tried: list[tuple[float, str, Plan]] = []
        for number, (name, plan) in enumerate(plans):
            if self.budget.late or number >= most:
                break
            if (found := self.quick(plan)) is None:
                continue
            tried.append((found[0], name, plan))
            self.take(found[1], found[0], name)
        tried.sort(key=lambda item: item[0])
        for seconds, name, plan in tried[:FULLY]:
            if self.budget.late or seconds > NEAR * self.seconds or self.ways.hold == "none":
                break
            if self.fits(plan) or (key := _key(plan)) in self.full:
                continue
            self.full.add(key)
            with suppress(PlanError):
                whole = self.fully(plan)
                self.take(whole, simulated_seconds(whole, self.ways.store), name)
        return min((seconds for seconds, *_ in tried), default=float("inf"))

    def fully(self, plan: Plan) -> Plan:
        """Held in the best way that is found."""
        ways = self.ways
        widest = plan.but(overlap=WINDOWS[0]) if plan.choice.schedule == "graph" else plan
        work = self.budget.part(FULL * self.budget.seconds)
        try:
            return together((widest,), ways.hold, order=ways.order, store=ways.store, note=nobody, work=work)
        finally:
            self.budget.spend(work.spent)

    # -------------------------------------------------------------------------------------------- what is proposed

    def round(self, written: Written) -> None:
        """Consider everything that is proposed for one way to write the graph."""
        for number, (what, proposed, most) in enumerate(self.kinds(written)):
            if self.budget.late:
                break
            self.ways.note(f"joint: {what}", number / 7)
            self.consider(proposed, most)
        best = self.best
        if (
            best is not None
            and best.choice.rewrites
            and all(best.choice.rewrites != item.rewrites for item in self.graphs)
        ):
            self.write(best.graph, best.choice.rewrites)
        if best is not None and written.plain.machine.devices > 1 and not self.budget.late:
            self.ways.note("joint: other orders", 1.0)
            self.reorder(best)

    def kinds(self, written: Written) -> Iterator[tuple[str, Iterator[tuple[str, Plan]], int]]:
        many = written.plain.machine.devices > 1
        yield "divisions of others", self.known(written), 2**62
        if not many:
            yield "rewrites of layers", self.regions(written), REGIONS
            return
        yield "divisions by prices", self.by_prices(written), 2**62
        if self.best is None:  # what follows begins with plans that keep the limit
            return
        if written.divisions.small:
            yield "strategies beside the best", self.beside(written), NEIGHBOURS
        yield "exchange layers", self.crossed(written), 2**62
        yield "rewrites of layers", self.regions(written), REGIONS

    def divided(self, written: Written, strategy: Strategy) -> Plan:
        return written.plain.but(strategy=strategy)

    def promising(self, written: Written, strategy: Strategy) -> bool:
        """Without a limit, does it take less than the best?"""
        self.budget.spend(JUDGED + written.judge.work * 1e9)
        return written.judge(strategy) < self.seconds

    def known(self, written: Written, among: Collection[str] = ()) -> Iterator[tuple[str, Plan]]:
        """What other searches divide, each in its own way. among: only these, where any are named."""
        for name, found in written.divisions.known(self.seconds, among):
            graph = found.graph or written.graph
            yield (
                f"division {name}{_in_parts(graph, self.graphs[0].graph)}",
                written.plain.but(graph=graph, strategy=found.strategy, schedule=found.schedule),
            )

    def by_prices(self, written: Written) -> Iterator[tuple[str, Plan]]:
        """Divisions under prices that follow what the last one was short of."""
        prices, divisions = Prices(), written.divisions
        best = self.best
        plan = written.plain if best is None or best.graph is not written.graph else best
        worth = min(seconds_per_byte(plan.machine), self.seconds / max(plan.peak, 1))
        plan = plan.whole
        for turn in range(TURNS):
            if self.budget.late:
                return
            busy = self.busy(plan)
            prices.follow(busy, divisions.moment(plan.strategy, busy.at), worth, turn)
            plan = self.divided(written, divisions.priced(prices))
            if self.promising(written, plan.strategy):
                yield "prices", plan

    def busy(self, plan: Plan) -> Busy:
        """What a plan's step is short of, with everything on the devices."""
        self.spend(plan)
        wide = plan.but(overlap=WINDOWS[0], memory=None)
        priced = priced_on(wide, wide.machine, self.ways.store, "processes")
        simulator = Simulator(wide.program, priced.simulated, priced.priced.prices)
        schedule, seconds = simulator.schedule(), max(simulator.seconds, 1e-12)
        worst = max(plan.memory_by_device, key=lambda use: use.peak)
        return Busy(
            float(busy_devices(schedule).max(initial=0.0)) / seconds,
            float(busy_ports(schedule).max(initial=0.0)) / seconds,
            0.0 if plan.memory is None else float(worst.peak - plan.memory),
            worst.at,
        )

    def beside(self, written: Written) -> Iterator[tuple[str, Plan]]:
        """What differs in one node or value from the best."""
        best = self.best
        if best is None or best.graph is not written.graph:
            return
        for strategy in written.divisions.near(best.strategy):
            if self.budget.late:
                return
            if self.promising(written, strategy):
                yield "one node otherwise", self.divided(written, strategy)

    def crossed(self, written: Written) -> Iterator[tuple[str, Plan]]:
        """Layers exchanged between the plans of this graph that are fastest, each exchange held within the limit."""
        found = [item for item in self.seen.values() if item is not None and item[1].graph is written.graph]
        own = sorted(found, key=lambda item: item[0])[:FULLY]
        if len(own) < 2:
            return
        made: list[Plan] = []

        def score(strategy: Strategy) -> float:
            if not self.promising(written, strategy):
                return float("inf")
            plan = self.divided(written, strategy)
            held_so = self.quick(plan)
            if held_so is None:
                return float("inf")
            if held_so[0] < self.seconds:
                made.append(plan)
            self.take(held_so[1], held_so[0], "layers exchanged")
            return held_so[0]

        known = {id(plan.strategy): seconds for seconds, plan in own}
        results = tuple(
            SearchResult(plan.strategy, plan.certificate, search=str(number)) for number, (_, plan) in enumerate(own)
        )
        objective = Objective(
            "time",
            written.plain.machine,
            score=lambda strategy: known[id(strategy)] if id(strategy) in known else score(strategy),
            judging=written.judge.work,
        )
        Crossing(self.budget.seconds / 4, results).search(written.graph, objective)
        for plan in made[-1:]:  # the last that was kept is among the fastest
            yield "layers exchanged", plan

    def regions(self, written: Written) -> Iterator[tuple[str, Plan]]:
        """Groups of layers that are alike written otherwise, the rest of the best as it is."""
        best = self.best
        if best is None or best.graph is not written.graph or best.choice.schedule != "graph":
            return
        objective = replace(written.divisions.objective, budget=None)
        for graph, rewrites, strategy in regions(written.graph, best.strategy, objective, self.budget):
            every = (*written.rewrites, *rewrites)
            yield "layers rewritten", written.plain.but(graph=graph, strategy=strategy, rewrites=every)

    def reorder(self, best: Plan) -> None:
        """Try the best in other orders, where nothing moves."""
        if best.choice.residency or best.choice.sequence is not None or best.choice.pieces:
            return
        if best.lowered.orders or self.ways.order != "auto":
            return
        judge = Judge(best, self.ways.store)
        for name in ORDERS:
            if self.budget.late:
                return
            with suppress(PlanError):
                for plan in proposals(order_of(name), best, judge):
                    self.spend(plan)
                    self.take(plan, judge.seconds(plan), f"order {name}")


def _in_parts(graph: Graph, given: Graph) -> str:
    """Words for the micro-batches of a graph where it was given in others."""
    count = micro_batches(graph)
    return f" in {count} micro-batches" if count != micro_batches(given) else ""


def _key(plan: Plan) -> object:
    """Equal for plans of the same graph and division."""
    strategy = plan.strategy
    return Same(plan.graph), strategy.divisions, tuple(strategy.layouts.items()), plan.choice.schedule
