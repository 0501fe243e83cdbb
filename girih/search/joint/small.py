"""Branch and bound of a small graph: the ways to write it, its divisions, the orders of its nodes, and what leaves.

What the rounds propose one after the other (`girih.search.joint.rounds`) is here one space. The strategies of all ways
to write the graph (`girih.search.joint.writings`) are drawn together in the order of their cost by tables; each has, in
each order of its nodes, a bound: the step with unlimited memory, and what must be copied or computed again while a node
computes that holds more than the limit. Those whose bound is below the best are held, the least bound first, in the
fastest way that there is (`girih.search.joint.stays`), until no bound is below the best.

Cost: counted against the seconds of the search; for each strategy a bound and a simulation in each order, and for each
that is left the ways to hold it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappop, heappush, merge
from itertools import count, islice
from operator import itemgetter
from typing import TYPE_CHECKING

from girih.machine.machine import Tier
from girih.ops.derive.in_place import writes_over
from girih.ops.known import descriptions
from girih.plans.plan import Plan
from girih.rewrite.backtracking import fingerprint
from girih.search.composed import nodes_of
from girih.search.joint.divisions import Labels
from girih.search.joint.rounds import JUDGED, Rounds, Written
from girih.search.joint.stays import able, fastest_stays
from girih.search.joint.writings import in_order, orders_of, writings
from girih.search.memory.step_seconds import simulated_seconds

if TYPE_CHECKING:
    from girih.graph import Graph
    from girih.simulate.kernels.composed import Nodes

SHARE, WRITING = 0.75, 0.25
"""Shares of the seconds that are left for all of this, and for the ways to write the graph."""
WRITTEN = 24
"""Ways to write the graph of which divisions are drawn, at most, beside those that are composed sequentially."""
ORDERS = 24
"""Orders of the nodes that are tried: of graphs that have more only their own is."""
SCANNED = 1000
"""Strategies that are drawn, at most, for each way to write the graph."""
DRAWN, HELD = 20, 10
"""Behind so many strategies that are drawn so many are held: what is faster leaves fewer to look at."""
CROWDED = 100_000.0
"""Nanoseconds of the bound of what a strategy moves."""


def search_small(rounds: Rounds) -> None:
    """Find the fastest plan of a small graph, as far as its share of the seconds goes; of others nothing."""
    if rounds.machine.devices == 1 or not rounds.graphs[0].divisions.small:
        return
    rounds.ways.note("joint: small graphs", 0.0)
    budget = rounds.budget
    ends = budget.spent + SHARE * budget.seconds * 1e9
    _write_otherwise(rounds)
    waiting: list[Candidate] = []
    for scanned, candidates in enumerate(_drawn(rounds), start=1):
        for candidate in candidates:
            heappush(waiting, candidate)
        if scanned % DRAWN == 0:
            _offer(rounds, waiting, HELD)
        if budget.spent >= ends:
            return
    while waiting and budget.spent < ends and not budget.late:
        _offer(rounds, waiting, HELD)


def _offer(rounds: Rounds, waiting: list[Candidate], most: int) -> None:
    """Hold so many of those that wait, the least bounds first."""
    for _ in range(most):
        if not waiting or rounds.budget.late:
            return
        candidate = heappop(waiting)
        if candidate.seconds >= rounds.seconds:
            waiting.clear()
            return
        candidate.offer(rounds)


def _write_otherwise(rounds: Rounds) -> None:
    """All ways to write the graph of which a division may be faster than the best."""
    known = {fingerprint(written.graph) for written in rounds.graphs}

    def wanted(graph: Graph) -> bool:
        return rounds.open(graph) and fingerprint(graph) not in known

    own = rounds.budget.part(WRITING * rounds.budget.seconds)
    for graph, rewrites in islice(writings(rounds.graphs[0].graph, rounds.machine, wanted, own), WRITTEN):
        rounds.write(graph, rewrites)
    rounds.budget.spend(own.spent)


@dataclass(frozen=True, order=True)
class Candidate:
    """A strategy of one way to write the graph, its nodes in an order. seconds: it is not below them."""

    seconds: float
    number: int
    written: Written = field(compare=False)
    labels: Labels = field(compare=False)
    order: tuple[int, ...] = field(compare=False)

    @property
    def plan(self) -> Plan:
        plain, strategy = self.written.plain, self.written.divisions.strategy(self.labels)
        if self.captured:
            return plain.but(strategy=strategy)
        divisions = tuple(strategy.divisions[number] for number in self.order)
        return plain.but(graph=in_order(plain.graph, self.order), strategy=replace(strategy, divisions=divisions))

    @property
    def captured(self) -> bool:
        """Are the nodes in the order of the graph?"""
        return self.order == tuple(range(len(self.order)))

    def offer(self, rounds: Rounds) -> None:
        """Hold it within the limit, and take it if it is faster than the best."""
        plan, by = self.plan, "strategies by cost" if self.captured else "orders of nodes"
        if rounds.fits(plan) or rounds.ways.hold != "auto" or rounds.machine.host is None or not able(plan):
            if (held := rounds.quick(plan)) is not None:
                rounds.take(held[1], held[0], by)
            return
        for way in fastest_stays(plan, lambda: rounds.seconds, rounds.ways.store, rounds.budget):
            rounds.take(way, simulated_seconds(way, rounds.ways.store), by)


def _drawn(rounds: Rounds) -> Iterator[list[Candidate]]:
    """The cheapest strategies of all ways to write the graph, each in the orders of its nodes in which it may be faster
    than the best."""

    def drawn(item: Small) -> Iterator[tuple[float, Small, Labels]]:
        for cost, labels in item.written.divisions.in_order():
            yield cost, item, labels

    number = count()
    every = [Small(written, rounds.least(written.graph)) for written in rounds.graphs]
    streams = [drawn(item) for item in every if item.least < rounds.seconds]
    least = min((item.least for item in every), default=0.0)
    for cost, item, labels in islice(merge(*streams, key=itemgetter(0)), SCANNED * len(streams)):
        # A table's seconds are of what may at best overlap with as much again.
        if rounds.budget.late or cost > 2 * rounds.seconds or least >= rounds.seconds:
            return
        if item.least >= rounds.seconds:
            continue
        yield [
            Candidate(seconds, next(number), item.written, labels, order)
            for seconds, order in item.ordered(rounds, labels)
        ]


@dataclass(frozen=True, eq=False)
class Small:
    """One way to write a small graph. least: seconds that no plan of it is below."""

    written: Written
    least: float

    @cached_property
    def orders(self) -> tuple[tuple[tuple[int, ...], Nodes], ...]:
        """The orders of the nodes, their own first, and what the judge has to know of them; their own alone where there
        are many."""
        graph = self.written.graph
        own, every = tuple(range(len(graph.nodes))), tuple(islice(orders_of(graph), ORDERS + 1))
        chosen = (own, *(order for order in every if order != own)) if len(every) <= ORDERS else (own,)
        return tuple((order, nodes_of(in_order(graph, order))) for order in chosen)

    def ordered(self, rounds: Rounds, labels: Labels) -> Iterator[tuple[float, tuple[int, ...]]]:
        """Orders of the nodes in which a strategy may be faster than the best, with seconds that it is not below."""
        judge, host = self.written.judge, rounds.machine.host
        rounds.budget.spend(JUDGED)
        variants = judge.composer.variants(self.written.divisions.strategy(labels))
        for order, nodes in self.orders if variants is not None else ():
            assert variants is not None
            seconds = 0.0
            if rounds.limit is not None and host is not None:
                rounds.budget.spend(CROWDED)
                seconds = self.crowded(labels, order, rounds.limit, host)
            if seconds < rounds.seconds:
                rounds.budget.spend(judge.work * 1e9)
                seconds = max(seconds, judge.composer.makespan([variants[number] for number in order], nodes))
            if seconds < rounds.seconds:
                yield seconds, order

    def crowded(self, labels: Labels, order: Sequence[int], limit: int, host: Tier) -> float:
        """Seconds that no way to hold a strategy of a small graph is below, its nodes in an order.

        What is held beyond the limit while a node computes went out before, and comes back behind; or it was dropped,
        and is computed again behind. Of the ways to share it between the two, the fastest.
        """
        space, graph = self.written.divisions.space, self.written.graph
        if graph.state_inputs or any(base != name for name, base in space.liveness.bases.items()):
            return 0.0  # of state there may be a copy; views share what they show
        problem, values = space.plain.problem, len(space.plain.layouts)
        unary = problem.unary[values:]
        own = [
            float(problem.tables[at][label]) if at >= 0 else 0.0
            for at, label in zip(unary, labels[values:], strict=True)
        ]
        made = [graph.values[node.outputs[0]].bytes for node in graph.nodes]
        again = min(seconds / max(size, 1) for seconds, size in zip(own, made, strict=True))
        out, back = 1 / host.out_bytes_per_second, 1 / host.in_bytes_per_second
        longest, before = 0.0, 0.0
        for number, over in zip(order, self._held(labels, order, limit), strict=True):
            after = sum(own) - before - own[number]
            ways = (0.0, over, min(before / out, over), min((after + over * again) / (back + again), over))
            if over > 0:
                each = (max(before, x * out) + max(after + (over - x) * again, x * back) for x in ways)
                longest = max(longest, own[number] + min(each))
            before += own[number]
        return longest

    def _held(self, labels: Labels, order: Sequence[int], limit: int) -> Iterator[float]:
        """Bytes beyond the limit that a device surely holds while each node computes, the nodes in an order."""
        space, graph = self.written.divisions.space, self.written.graph
        problem, values = space.plain.problem, len(space.plain.layouts)
        turn = {number: at for at, number in enumerate(order)}
        staying = {output.name for output in graph.outputs}
        parts = {name: float(space.part(name)[labels[space.plain.variable[name]]]) for name in graph.values}
        last = {
            name: len(order) if name in staying else max((turn[user] for user in users), default=-1)
            for name, users in graph.consumers.items()
        }
        for at, number in enumerate(order):
            node, label = graph.nodes[number], labels[values + number]
            held = 0.0 if self.takes_over[number] else float(space.piece(number, -1)[label])
            pieces: dict[str, float] = {}
            for operand, name in enumerate(node.inputs):
                piece = float(space.piece(number, operand)[label])
                a, b, table = problem.pairs[space.pair(number, operand)]
                if last[name] > at:  # the value stays; its piece is beside it if it was moved
                    piece = piece if problem.tables[table][labels[a], labels[b]] > 0 else 0.0
                pieces[name] = max(pieces.get(name, 0.0), piece)
            held += sum(pieces.values())
            held += sum(
                part
                for name, part in parts.items()
                if (turn[graph.producer[name]] if name in graph.producer else -1) < at < last[name]
            )
            yield held - limit

    @cached_property
    def takes_over(self) -> list[bool]:
        """May the result of each node lie where one of its operands lay?"""
        known = descriptions(self.written.graph)
        return [
            item is None or any(writes_over(item.operator, at) for at in range(len(node.inputs)))
            for node, item in zip(self.written.graph.nodes, known, strict=True)
        ]
