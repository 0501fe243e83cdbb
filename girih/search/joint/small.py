"""Branch and bound of a small graph: the ways to write it, its divisions, the orders of its nodes, and what leaves.

What the rounds propose one after the other (`girih.search.joint.rounds`) is here one space. The strategies of all ways
to write the graph (`girih.search.joint.writings`) are drawn together in the order of their cost by tables; each has, in
each order of its nodes, a bound: the step with unlimited memory, and the whole values that must be copied or computed
again while a node computes that holds more than the limit. Those whose bound is below the best are held, the least
bound first, in the fastest way that there is (`girih.search.joint.stays`), until no bound is below the best. Of those
that take as long and hold as many bytes in every node one is held first, and the others when nothing else is left. What
differs in one node or value from the best sequential composition is held before all, as is quickly found.

Cost: counted against the seconds of the search; for each strategy a bound and a simulation in each order, and for each
that is left the ways to hold it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappop, heappush, merge
from itertools import accumulate, count, islice
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from girih.machine.machine import Tier
from girih.ops.derive.in_place import writes_over
from girih.ops.known import descriptions
from girih.partition.solver.held import last_uses
from girih.plans.plan import Plan
from girih.rewrite.backtracking import fingerprint
from girih.search.composed import nodes_of
from girih.search.joint.divisions import Labels
from girih.search.joint.rounds import NEIGHBOURS, Rounds, Written
from girih.search.joint.stays import Copy, able, fastest_stays, in_turn
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
DRAWN, CROWDED, MOVED, SIMULATED = 130_000.0, 10_000.0, 25_000.0, 100_000.0
"""Nanoseconds of a strategy that is drawn, and in each order of the bounds of what it moves, and of its simulation,
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
    waiting = Waiting()
    begun, holding = budget.spent, 0.0
    for candidates in _drawn(rounds):
        for candidate in candidates:
            heappush(waiting.first, candidate)
        # What is drawn tells what is worth holding, and what is held what is worth drawing: both get as much work.
        while waiting.first and 2 * holding < budget.spent - begun:
            before = budget.spent
            waiting.offer(rounds)
            holding += budget.spent - before
        if budget.spent >= ends:
            return
    while (waiting.first or waiting.behind) and budget.spent < ends and not budget.late:
        waiting.offer(rounds)


def _hold_neighbours(rounds: Rounds) -> None:
    """Hold what is near the best, as is quickly found: what is faster leaves fewer to draw."""
    ends = rounds.budget.spent + NEAR * rounds.budget.seconds * 1e9
    for written in tuple(rounds.graphs):
        for name, plan in islice(rounds.beside(written), NEIGHBOURS):
            if rounds.budget.spent >= ends:
                return
            if (held := rounds.quick(plan)) is not None:
                rounds.take(held[1], held[0], name)


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
    """A strategy of one way to write the graph, its nodes in an order. seconds: it is not below them. like: equal for
    candidates that are as long and hold as many bytes in every node, which are mostly held alike."""

    seconds: float
    number: int
    like: Hashable = field(compare=False)
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


@dataclass
class Waiting:
    """Candidates that are to be held, the least bound first; behind them those that are like one that was."""

    first: list[Candidate] = field(default_factory=list)
    behind: list[Candidate] = field(default_factory=list)
    known: set[Hashable] = field(default_factory=set)

    def offer(self, rounds: Rounds) -> None:
        """Hold the next, unless it cannot be faster than the best."""
        own = self.first or self.behind
        candidate = heappop(own)
        if candidate.seconds >= rounds.seconds:
            own.clear()
        elif own is self.first and candidate.like in self.known:
            heappush(self.behind, candidate)
        else:
            self.known.add(candidate.like)
            candidate.offer(rounds)


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
            Candidate(seconds, next(number), like, item.written, labels, order)
            for seconds, like, order in item.ordered(rounds, labels)
        ]


@dataclass(frozen=True, eq=False)
class Order:
    """The nodes of a small graph in an order. nodes: what the judge has to know of them. staying: in each turn, the
    values that are there before it and behind it. born: the turn that makes a value. readers: the turns that read it.
    """

    turns: tuple[int, ...]
    nodes: Nodes
    staying: tuple[frozenset[str], ...]
    born: dict[str, int]
    readers: dict[str, tuple[int, ...]]

    @staticmethod
    def of(graph: Graph, turns: tuple[int, ...]) -> Order:
        ordered = in_order(graph, turns)
        producer, last = ordered.producer, last_uses(ordered)
        staying = (
            frozenset(name for name in graph.values if producer.get(name, -1) < at < last[name])
            for at in range(len(turns))
        )
        return Order(turns, nodes_of(ordered), tuple(staying), producer, ordered.consumers)


class Leaving(NamedTuple):
    """A value that may be away while a node computes. ready: seconds before which it cannot go out; tail: seconds in
    which a device computes behind its coming back; again: in which it is computed again instead, infinite for an
    input."""

    bytes: float
    ready: float
    tail: float
    again: float

    @staticmethod
    def away(over: float, able: Sequence[Leaving], before: float, after: float, host: Tier) -> float:
        """Seconds of work around a node, at least, in which so many bytes are away while it computes; infinite where
        there are not as many. before, after: seconds in which a device computes before the node and behind it."""
        least = float("inf")

        def leave(at: int, over: float, outs: list[Copy], ins: list[Copy], again: float) -> None:
            nonlocal least
            seconds = max(before, in_turn(outs)) + max(after + again, in_turn(ins))
            if seconds >= least:
                return
            if over <= 0:
                least = seconds
            elif at < len(able):
                item = able[at]
                out = (item.ready, host.copy_seconds(item.bytes, True), 0.0)
                back = (0.0, host.copy_seconds(item.bytes, False), item.tail)
                leave(at + 1, over - item.bytes, [*outs, out], [*ins, back], again)
                leave(at + 1, over - item.bytes, outs, ins, again + item.again)
                leave(at + 1, over, outs, ins, again)

        leave(0, over, [], [], 0.0)
        return least


@dataclass(frozen=True)
class Sized:
    """What a strategy holds, whatever the order. seconds: a device computes each node so long. parts: bytes of each
    value; the fewest of any layout where a transfer brings it to its own, which it may do again. reads: of each node by
    what it reads, bytes of the piece if the value stays, and if it does not. makes: bytes that each node makes where no
    operand lay; made: bytes of all that it makes, on all devices. least: bytes of each value as a node makes or reads
    it, if they are fewer than those of its part."""

    seconds: list[float]
    parts: dict[str, float]
    reads: list[list[tuple[str, float, float]]]
    makes: list[float]
    made: list[float]
    least: dict[str, float]

    def used(self, number: int, staying: frozenset[str]) -> float:
        """Bytes that a node surely uses beside the parts of the values that stay."""
        pieces: dict[str, float] = {}
        for name, beside, alone in self.reads[number]:
            pieces[name] = max(pieces.get(name, 0.0), beside if name in staying else alone)
        return self.makes[number] + sum(pieces.values())

    def crowded(self, order: Order, limit: int, host: Tier) -> float:
        """Seconds that no way to hold it is below, the nodes in an order.

        What is held beyond the limit while a node computes went out before, and comes back behind; or it was dropped,
        and is computed again behind. What takes the least time is a mixture of the two, which is looked for.
        """
        again = min(took / max(size, 1.0) for took, size in zip(self.seconds, self.made, strict=True))
        out, back = 1 / host.out_bytes_per_second, 1 / host.in_bytes_per_second
        longest, before, total = 0.0, 0.0, sum(self.seconds)
        for number, staying in zip(order.turns, order.staying, strict=True):
            own, held = self.seconds[number], sum(self.parts[name] for name in staying)
            over = self.used(number, staying) + held - limit
            after = total - before - own
            if over > 0:
                ways = (0.0, over, min(before / out, over), min((after + over * again) / (back + again), over))
                each = (max(before, x * out) + max(after + (over - x) * again, x * back) for x in ways)
                longest = max(longest, own + min(each))
            before += own
        return longest

    def moved(self, order: Order, limit: int, host: Tier) -> float:
        """As `crowded`, of whole values: what is away while a node computes went out behind the node that makes it, and
        comes back before the next that reads it; or it is computed again."""
        computing = [self.seconds[number] for number in order.turns]
        done = [0.0, *accumulate(computing)]  # seconds of what is computed before each turn
        longest = 0.0
        for at, (number, staying) in enumerate(zip(order.turns, order.staying, strict=True)):
            sizes = {name: self.least[name] for name in staying}
            over = self.used(number, staying) + sum(sizes.values()) - limit
            in_place = {name for name, beside, _ in self.reads[number] if beside == 0}
            able = []
            for name in staying - in_place if over > 0 else ():
                maker = order.born.get(name, -1)
                later = next((turn for turn in order.readers[name] if turn > at), len(computing))
                again = computing[maker] if maker >= 0 else float("inf")
                able.append(Leaving(sizes[name], done[maker + 1], done[-1] - done[later], again))
            if over > 0:
                after = done[-1] - done[at + 1]
                longest = max(longest, computing[at] + Leaving.away(over, able, done[at], after, host))
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

    def ordered(self, rounds: Rounds, labels: Labels) -> Iterator[tuple[float, Hashable, tuple[int, ...]]]:
        """Orders of the nodes in which a strategy may be faster than the best, behind seconds that it is not below, and
        what it has in common with others that are like it."""
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
                if 0.0 < seconds < rounds.seconds:
                    rounds.budget.spend(MOVED)
                    seconds = max(seconds, sized.moved(order, rounds.limit, host))
            if seconds < rounds.seconds:
                rounds.budget.spend(SIMULATED + judge.work * 1e9)
                alone = judge.composer.makespan([variants[at] for at in order.turns], order.nodes)
                if (seconds := max(seconds, alone)) < rounds.seconds:
                    like = labels.tobytes() if sized is None else (repr(sized), alone)
                    yield seconds, (id(self), order.turns, like), order.turns

    @cached_property
    def simple(self) -> bool:
        """Is there no state, of which there may be a copy, and no view, which shares what it shows?"""
        bases = self.written.divisions.space.liveness.bases
        return not self.written.graph.state_inputs and all(base == name for name, base in bases.items())

    def sized(self, labels: Labels) -> Sized:
        space, graph = self.written.divisions.space, self.written.graph
        problem, values = space.plain.problem, len(space.plain.layouts)
        parts = {name: float(space.part(name)[labels[space.plain.variable[name]]]) for name in graph.values}
        seconds, reads, makes, made, least = [], [], [], [], dict(parts)
        for number, (pieces, result, taking) in enumerate(self.pieces):
            label, own = labels[values + number], problem.unary[values + number]
            seconds.append(float(problem.tables[own][label]) if own >= 0 else 0.0)
            each = []
            for operand, (name, piece) in enumerate(zip(graph.nodes[number].inputs, pieces, strict=True)):
                a, b, table = problem.pairs[space.pair(number, operand)]
                moved = problem.tables[table][labels[a], labels[b]] > 0
                each.append((name, piece[label] if moved else 0.0, piece[label]))
                least[name] = min(least[name], piece[label])
            reads.append(each)
            makes.append(0.0 if taking else result[label])
            name = graph.nodes[number].outputs[0]
            made.append(float(graph.values[name].bytes))
            a, b, table = problem.pairs[space.pair(number, ~0)]
            if problem.tables[table][labels[a], labels[b]] > 0:  # it may be held elsewhere, and brought there again
                parts[name] = least[name] = min(least[name], float(space.part(name).min()))
            least[name] = min(least[name], result[label])
        return Sized(seconds, parts, reads, makes, made, least)

    @cached_property
    def pieces(self) -> list[tuple[list[list[float]], list[float], bool]]:
        """For each node: the bytes of the pieces that it reads and makes, by division, and whether its result may be
        written over an operand, which must have been made by a node: inputs are the caller's."""
        space, graph = self.written.divisions.space, self.written.graph
        found = []
        for number, (node, known) in enumerate(zip(graph.nodes, descriptions(graph), strict=True)):
            operands = range(len(node.inputs))
            read: list[list[float]] = [space.piece(number, operand).tolist() for operand in operands]
            made_here = [operand for operand in operands if node.inputs[operand] in graph.producer]
            taking = known is None or any(writes_over(known.operator, operand) for operand in made_here)
            made: list[float] = space.piece(number, ~0).tolist()
            found.append((read, made, taking))
        return found
