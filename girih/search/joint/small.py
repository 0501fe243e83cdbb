"""Branch and bound of a small graph: the ways to write it, its divisions, the orders of its nodes, and what leaves.

What the rounds propose one after the other (`girih.search.joint.rounds`) is here one space. The strategies of all ways
to write the graph (`girih.search.joint.writings`) are drawn together in the order of their cost by tables; each has, in
each order of its nodes, a bound: the step with unlimited memory, and what must be copied or computed again while a node
computes that holds more than the limit. Those whose bound is below the best are held, the least bound first, in the
fastest way that there is (`girih.search.joint.stays`), until no bound is below the best. What differs in one node or
value from the best sequential composition is held before, as is quickly found.

Cost: counted against the seconds of the search; for each strategy a bound and a simulation in each order, and for each
that is left the ways to hold it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappop, heappush, merge
from itertools import count, islice
from operator import itemgetter
from typing import TYPE_CHECKING

from girih.machine.machine import Tier
from girih.ops.derive.in_place import writes_over
from girih.ops.known import descriptions
from girih.partition.solver.held import last_uses
from girih.plans.plan import Plan
from girih.rewrite.backtracking import fingerprint
from girih.search.composed import nodes_of
from girih.search.joint.divisions import Labels
from girih.search.joint.rounds import NEIGHBOURS, Rounds, Written
from girih.search.joint.stays import able, fastest_stays
from girih.search.joint.writings import in_order, orders_of, writings
from girih.search.memory.step_seconds import simulated_seconds

if TYPE_CHECKING:
    from girih.graph import Graph
    from girih.simulate.kernels.composed import Nodes

NEAR, SHARE, WRITING = 0.2, 0.75, 0.25
"""Shares of the seconds that are left for what is near the best, for all behind it, and for the ways to write the
graph."""
WRITTEN = 24
"""Ways to write the graph of which divisions are drawn, at most, beside those that are composed sequentially."""
ORDERS = 24
"""Orders of the nodes that are tried: of graphs that have more only their own is."""
SCANNED = 1000
"""Strategies that are drawn, at most, for each way to write the graph."""
DRAWN, CROWDED, SIMULATED = 130_000.0, 10_000.0, 100_000.0
"""Nanoseconds of a strategy that is drawn, and in each order of the bound of what it moves, and of its simulation,
beside its nodes."""


def search_small(rounds: Rounds) -> None:
    """Find the fastest plan of a small graph, as far as its share of the seconds goes; of others nothing."""
    if rounds.machine.devices == 1 or not rounds.graphs[0].divisions.small:
        return
    rounds.ways.note("joint: small graphs", 0.0)
    budget = rounds.budget
    _hold_neighbours(rounds)
    ends = budget.spent + SHARE * budget.seconds * 1e9
    _write_otherwise(rounds)
    waiting: list[Candidate] = []
    begun, holding = budget.spent, 0.0
    for candidates in _drawn(rounds):
        for candidate in candidates:
            heappush(waiting, candidate)
        # What is drawn tells what is worth holding, and what is held what is worth drawing: both get as much work.
        while waiting and 2 * holding < budget.spent - begun:
            before = budget.spent
            _offer(rounds, waiting)
            holding += budget.spent - before
        if budget.spent >= ends:
            return
    while waiting and budget.spent < ends and not budget.late:
        _offer(rounds, waiting)


def _hold_neighbours(rounds: Rounds) -> None:
    """Hold what is near the best, as is quickly found: what is faster leaves fewer to draw."""
    ends = rounds.budget.spent + NEAR * rounds.budget.seconds * 1e9
    for written in tuple(rounds.graphs):
        for name, plan in islice(rounds.beside(written), NEIGHBOURS):
            if rounds.budget.spent >= ends:
                return
            if (held := rounds.quick(plan)) is not None:
                rounds.take(held[1], held[0], name)


def _offer(rounds: Rounds, waiting: list[Candidate]) -> None:
    """Hold one of those that wait, that with the least bound, unless none may be faster than the best."""
    candidate = heappop(waiting)
    if candidate.seconds >= rounds.seconds:
        waiting.clear()
    else:
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
    every = [Small(written, rounds.least(written.graph)) for written in rounds.graphs if written.divisions.small]
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
class Order:
    """The nodes of a small graph in an order. nodes: what the judge has to know of them. staying: in each turn, the
    values that are there before it and behind it."""

    turns: tuple[int, ...]
    nodes: Nodes
    staying: tuple[frozenset[str], ...]

    @staticmethod
    def of(graph: Graph, turns: tuple[int, ...]) -> Order:
        ordered = in_order(graph, turns)
        producer, last = ordered.producer, last_uses(ordered)
        staying = (
            frozenset(name for name in graph.values if producer.get(name, -1) < at < last[name])
            for at in range(len(turns))
        )
        return Order(turns, nodes_of(ordered), tuple(staying))


@dataclass(frozen=True)
class Sized:
    """What a strategy holds, whatever the order. seconds: a device computes each node so long. parts: bytes of each
    value. reads: of each node by what it reads, bytes of the piece if the value stays, and if it does not. makes: bytes
    that each node makes where no operand lay; made: bytes of all that it makes, on all devices."""

    seconds: list[float]
    parts: dict[str, float]
    reads: list[list[tuple[str, float, float]]]
    makes: list[float]
    made: list[float]

    def held(self, number: int, staying: frozenset[str]) -> float:
        """Bytes that a device surely holds while a node computes."""
        pieces: dict[str, float] = {}
        for name, beside, alone in self.reads[number]:
            pieces[name] = max(pieces.get(name, 0.0), beside if name in staying else alone)
        return self.makes[number] + sum(pieces.values()) + sum(self.parts[name] for name in staying)

    def crowded(self, order: Order, limit: int, host: Tier) -> float:
        """Seconds that no way to hold it is below, the nodes in an order.

        What is held beyond the limit while a node computes went out before, and comes back behind; or it was dropped,
        and is computed again behind. What takes the least time is a mixture of the two, which is looked for.
        """
        again = min(took / max(size, 1.0) for took, size in zip(self.seconds, self.made, strict=True))
        out, back = 1 / host.out_bytes_per_second, 1 / host.in_bytes_per_second
        longest, before, total = 0.0, 0.0, sum(self.seconds)
        for number, staying in zip(order.turns, order.staying, strict=True):
            own, over = self.seconds[number], self.held(number, staying) - limit
            after = total - before - own
            if over > 0:
                ways = (0.0, over, min(before / out, over), min((after + over * again) / (back + again), over))
                each = (max(before, x * out) + max(after + (over - x) * again, x * back) for x in ways)
                longest = max(longest, own + min(each))
            before += own
        return longest


@dataclass(frozen=True, eq=False)
class Small:
    """One way to write a small graph. least: seconds that no plan of it is below."""

    written: Written
    least: float

    @cached_property
    def orders(self) -> tuple[Order, ...]:
        """The orders of the nodes, their own first; their own alone where there are many."""
        graph = self.written.graph
        own, every = tuple(range(len(graph.nodes))), tuple(islice(orders_of(graph), ORDERS + 1))
        chosen = (own, *(turns for turns in every if turns != own)) if len(every) <= ORDERS else (own,)
        return tuple(Order.of(graph, turns) for turns in chosen)

    def ordered(self, rounds: Rounds, labels: Labels) -> Iterator[tuple[float, tuple[int, ...]]]:
        """Orders of the nodes in which a strategy may be faster than the best, with seconds that it is not below."""
        judge, host = self.written.judge, rounds.machine.host
        rounds.budget.spend(DRAWN)
        variants = judge.composer.variants(self.written.divisions.strategy(labels))
        if variants is None:
            return
        sized = self.sized(labels) if rounds.limit is not None and self.simple else None
        for order in self.orders:
            seconds = 0.0
            if sized is not None and rounds.limit is not None and host is not None:
                rounds.budget.spend(CROWDED)
                seconds = sized.crowded(order, rounds.limit, host)
            if seconds < rounds.seconds:
                rounds.budget.spend(SIMULATED + judge.work * 1e9)
                seconds = max(seconds, judge.composer.makespan([variants[at] for at in order.turns], order.nodes))
            if seconds < rounds.seconds:
                yield seconds, order.turns

    @cached_property
    def simple(self) -> bool:
        """Is there no state, of which there may be a copy, and no view, which shares what it shows?"""
        bases = self.written.divisions.space.liveness.bases
        return not self.written.graph.state_inputs and all(base == name for name, base in bases.items())

    def sized(self, labels: Labels) -> Sized:
        space, graph = self.written.divisions.space, self.written.graph
        problem, values = space.plain.problem, len(space.plain.layouts)
        seconds, reads, makes, made = [], [], [], []
        for number, (pieces, result, taking) in enumerate(self.pieces):
            label, own = labels[values + number], problem.unary[values + number]
            seconds.append(float(problem.tables[own][label]) if own >= 0 else 0.0)
            each = []
            for operand, (name, piece) in enumerate(zip(graph.nodes[number].inputs, pieces, strict=True)):
                a, b, table = problem.pairs[space.pair(number, operand)]
                moved = problem.tables[table][labels[a], labels[b]] > 0
                each.append((name, piece[label] if moved else 0.0, piece[label]))
            reads.append(each)
            makes.append(0.0 if taking else result[label])
            made.append(float(graph.values[graph.nodes[number].outputs[0]].bytes))
        parts = {name: float(space.part(name)[labels[space.plain.variable[name]]]) for name in graph.values}
        return Sized(seconds, parts, reads, makes, made)

    @cached_property
    def pieces(self) -> list[tuple[list[list[float]], list[float], bool]]:
        """For each node: the bytes of the pieces that it reads and makes, by division, and whether its result may be
        written over an operand."""
        space, graph = self.written.divisions.space, self.written.graph
        found = []
        for number, (node, known) in enumerate(zip(graph.nodes, descriptions(graph), strict=True)):
            operands = range(len(node.inputs))
            read: list[list[float]] = [space.piece(number, operand).tolist() for operand in operands]
            taking = known is None or any(writes_over(known.operator, operand) for operand in operands)
            made: list[float] = space.piece(number, ~0).tolist()
            found.append((read, made, taking))
        return found
