"""A lower bound of the step that knows computing, links and what must leave under a limit, together.

`girih.simulate.bounds` knows the work alone. Under a limit most of a step may be copies, and between slow links most of
it may be messages. Here all three have a price, and the strategy that is cheapest under the prices bounds them all:

    T >= (computing of a device)                       its pieces of all nodes, and its own work for all transfers
    T >= (bytes that devices receive) / (all ports)    the ports of all levels together carry so much in a second
    T >= (copies of a device out and back)             what does not fit at the fullest moment left, and comes back

for each strategy. What a device computes is taken in the mean of some devices, since no step is shorter than what any
of them works in it: each piece at its own size, and for each transfer what the route on which that is least takes of a
device (`girih.search.joint.handling`). So for weights that add up to 1, T is at least the least weighted sum of the
right sides over all strategies (Everett 1963), which the solver of divisions bounds from below
(`girih.partition.solver.elimination`).

With a limit, divisions are left out under which a node alone holds more: what it reads and makes, and the scratch of
its kernel.

*The fullest moment* is a node for which many values surely are there while it computes, in whatever order: its
ancestors have made them, and its descendants read them. What a device holds of them beyond the limit was copied out
before the node and comes back behind it, or is dropped and computed again behind it. So the node divides the step:

    T >= max(computing of the ancestors, copies out) + computing of the node + max(that of the descendants, copies back)

where each maximum is at least a weighted sum, too; what else is computed is in one part or the other, and has the
smaller of both weights. State that is replaced goes out and comes in once in each step, in one of the parts; of state
that nothing replaces there is a copy already, so that it comes in only. Which of it leaves the bound chooses as is
cheapest: with y, the price of a byte of the limit, a byte of a value costs the smaller of y and of what moving or
dropping it costs.

The best weights are found by cutting planes (Kelley 1960): the strategies known so far give a linear program in the
weights and prices; at its optimum the solver finds the cheapest strategy, and its bound, which holds whatever else.

It speaks of divisions of every node over all devices, not of places; under a limit, of programs in which all devices go
through the steps in one order (not of pipelines), and of steps that are computed whole. Cost: a few solutions of the
tables.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from girih.graph import Graph
from girih.layout import bounds
from girih.layout.budget import Budget
from girih.layout.mesh import bounds_of_codes
from girih.machine import Machine
from girih.ops import Description
from girih.ops.derive.in_place import writes_over
from girih.ops.derive.kinds import LOOK_UP, kind_of
from girih.ops.derive.pieces import make_piece
from girih.ops.derive.temporaries import KernelCall, Measured, Operand
from girih.ops.known import descriptions
from girih.ops.scratch import at_most, held, rule_for
from girih.partition import Strategy
from girih.partition.solver.elimination import Problem, minimise
from girih.partition.solver.held import HeldTables, Liveness, view_bases
from girih.partition.space.options import SECONDS
from girih.partition.space.problem import Objective, PartitionProblem, build
from girih.plans.scratch import ELSEWHERE_THREADS
from girih.search.joint.handling import Handled, followed
from girih.simulate.bounds import Bound, Kinds, bound_of, least_read

ANY = "divisions of every node over all devices, orders, movements"
"""What the bound without a limit speaks of, in the sentence of a certificate behind the ways to write the graph."""
WHOLE = "divisions of every node over all devices, orders that all devices share, movements of what is computed whole"
"""What the bound under a limit speaks of."""
LEAST = 1e-4
"""Seconds for each variable that a solution has in any case: a solver that has a strategy to begin with ends at once
when its time is over, before its first sweep."""
TABLES = "computing, and bytes over all links, of any division"
MEMORY = "computing, links, and copies of what exceeds the limit"
ROUNDS = 8
"""Times that the weights are moved."""
SHARE = 0.7
"""The share of the seconds that are left which each solution has, at most: the known strategies give good weights, and
the solver's bound rises with its time."""
NEAR = 1e-3
"""Where the solver's bound is so near to that of the linear program, the weights are not moved further."""
MOST_NODES = 20_000
"""Nodes of graphs whose fullest moment is looked for: which node is behind which takes a bit for each pair."""
ALIKE = 20
"""Steps of a decade to which prices of computing again are rounded down, so that there are few kinds of values."""
SCALE = 1e9
"""The solver's tolerance is 1e-6: seconds are solved as nanoseconds."""

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


LINKS, COMPUTING, BEFORE, BEHIND, EITHER, OUT, BACK, LIMIT = range(8)
"""Places of the weights: of bytes over all ports; of what a device computes in the whole step, transfers included; of
what it computes before the fullest moment, behind it, and in either part; of copies out and back; and of the price of a
byte of the limit. The prices of bytes of each kind follow."""
FIXED = LIMIT + 1
PARTS = (LINKS, COMPUTING, BEFORE, OUT), (LINKS, COMPUTING, BEHIND, BACK)
"""The weights that add up to 1 before the moment, and behind it."""

Way = tuple[tuple[int, float], ...]
"""Seconds, each with the place of its weight."""


@dataclass(frozen=True)
class Kind:
    """What a byte of some values costs that is not held at the moment: the least that any of these ways takes."""

    ways: tuple[Way, ...] = ()

    def costs(self, weights: Floats) -> tuple[float, ...]:
        """What each way costs under these weights."""
        return tuple(sum(float(weights[place]) * seconds for place, seconds in way) for way in self.ways)


NOW = Kind()
"""What the node itself touches: it is held."""


@dataclass(frozen=True)
class Moment:
    """While a node computes. values: what is held of them under their layouts, by what it costs not to; least: those of
    which a device holds its share at least, whatever their layouts. before, behind: its ancestors and descendants, as
    bits."""

    node: int
    values: tuple[tuple[str, Kind], ...]
    least: tuple[tuple[str, Kind], ...]
    before: int = 0
    behind: int = 0

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(dict.fromkeys(kind for _, kind in (*self.values, *self.least)))


NEVER = Moment(-1, (), ())


def step_bound(relaxed: Relaxed, limit: int | None, budget: Budget, known: Sequence[Strategy]) -> Bound:
    """No step of the graph under a limit of bytes is shorter, in the space of `WHOLE`, or without one of `ANY`; with
    what each part gives.

    known: strategies, the nearer to the cheapest the sooner the weights are found. budget: of work, which it spends.
    """
    graph, machine = relaxed.graph, relaxed.machine
    parts = list(bound_of(graph, machine).parts)
    if machine.devices > 1 and not budget.late:
        own = budget if limit is None else budget.part(budget.seconds / 2)
        parts.append((TABLES, relaxed.solved(own, known)))
        if own is not budget:
            budget.spend(own.spent)
    if limit is not None and len(graph.nodes) <= MOST_NODES and not budget.late:
        moment = fullest(graph, machine)
        if moment is not NEVER:
            within = replace(relaxed, limit=limit, moment=moment)
            parts.append((f"{MEMORY} while {graph.nodes[moment.node].name} computes", within.solved(budget, known)))
    return Bound.largest(*parts)


@dataclass(frozen=True, eq=False)
class Relaxed:
    """The relaxed problem of one graph. tables: bytes by division and layout. handling: seconds that devices compute
    for transfers, of each pair of the problem; () where there was no time for that. limit: bytes of a device at the
    moment; without one memory has no price."""

    graph: Graph
    machine: Machine
    tables: PartitionProblem
    handling: tuple[Floats, ...] = ()
    limit: int = 0
    moment: Moment = NEVER

    @staticmethod
    def of(graph: Graph, machine: Machine, budget: Budget) -> Relaxed:
        tables = build(graph, Objective("bytes", machine), SECONDS)
        budget.spend(tables.seconds * 1e9)
        if machine.devices == 1 or not budget.affords(tables.seconds * 1e9):
            return Relaxed(graph, machine, tables)
        handled = build(graph, Handled.on(machine), SECONDS)
        budget.spend(handled.seconds * 1e9)
        handling = tuple(handled.problem.tables[table] for _, _, table in handled.problem.pairs)
        return Relaxed(graph, machine, tables, handling)

    @cached_property
    def ports(self) -> float:
        """Bytes/s that all ports together receive."""
        total = 0.0
        for number, level in enumerate(self.machine.levels):
            fastest = max((size / seconds for size, seconds in level.points if seconds > 0), default=0.0)
            count = self.machine.devices // (self.machine.devices_inside(number) if level.shared else 1)
            total += count * max(level.bytes_per_second, fastest) if level.axes else 0.0
        return total

    @cached_property
    def seconds(self) -> tuple[Floats, ...]:
        """What the followed devices compute, and the last one, for each node under each of its divisions: [divisions,
        devices]."""
        kinds, known = Kinds(self.machine), dict[int, Floats]()
        graph, mesh = self.graph, self.machine.mesh
        some = [*followed(mesh.devices).tolist(), mesh.devices - 1]
        for node, description, options in zip(graph.nodes, descriptions(graph), self.tables.options, strict=True):
            if id(options) in known:
                continue
            shape = len(options.divisions), len(some)
            if description is None:
                known[id(options)] = np.full(shape, kinds.undivided(graph, node).piece)
                continue
            starts, stops = bounds(options.divisions, description.sizes, mesh)
            touched = [*zip(node.outputs, options.makes, strict=True)]
            if kind_of(description) != LOOK_UP:
                touched += zip(node.inputs, options.needs, strict=True)
            sizes = np.zeros(shape)
            for name, places in touched:
                regions = places.regions[:, some]
                sizes += (regions[..., 1] - regions[..., 0]).prod(axis=-1) * graph.values[name].item_bytes
            points = (stops - starts)[:, some].prod(axis=-1, dtype=np.float64)
            known[id(options)] = kinds.own(description, points, sizes)
        return tuple(known[id(options)] for options in self.tables.options)

    @cached_property
    def computing(self) -> tuple[Floats, ...]:
        """What the followed devices compute in their mean, for each node under each of its divisions; infinite for
        divisions with which a node alone needs more than the limit."""
        return self.fitting(lambda seconds: seconds[:, :-1].mean(axis=1))

    @cached_property
    def last(self) -> tuple[Floats, ...]:
        """The same of the last device, of which it is known what it holds at the moment."""
        return self.fitting(lambda seconds: seconds[:, -1])

    def fitting(self, table: Callable[[Floats], Floats]) -> tuple[Floats, ...]:
        known: dict[tuple[int, int], Floats] = {}
        for number, (seconds, options) in enumerate(zip(self.seconds, self.tables.options, strict=True)):
            key = id(options), id(descriptions(self.graph)[number])
            if key not in known:
                fits = self.moment is NEVER or self.pieces.bytes(number) <= self.limit
                known[key] = np.where(fits, table(seconds), np.inf)
        every = zip(self.tables.options, descriptions(self.graph), strict=True)
        return tuple(known[id(options), id(description)] for options, description in every)

    @cached_property
    def pieces(self) -> Pieces:
        return Pieces(HeldTables(self.tables, lambda *_: 0), self.machine)

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(dict.fromkeys((*self.moment.kinds, NOW))) if self.moment is not NEVER else ()

    @cached_property
    def held(self) -> tuple[tuple[int, Kind, Floats], ...]:
        """(variable, kind, bytes that the last device holds under each layout) of the moment's values; and of what its
        node reads and makes, under each division."""
        if self.moment is NEVER:
            return ()
        counted = {name for name, _ in (*self.moment.values, *self.moment.least)}
        found = [(self.tables.variable[name], kind, self.fewest(name)) for name, kind in self.moment.values]
        if self.machine.devices > 1:
            own = self.pieces.bytes(self.moment.node, counted)
            found.append((len(self.tables.layouts) + self.moment.node, NOW, own))
        return tuple(found)

    def fewest(self, name: str) -> Floats:
        """Bytes that the last device holds of a value at least, while it is there, under each layout. What a node makes
        may be held as little as any layout has of it: a transfer brings it to its own again."""
        part = self.pieces.tables.part(name)
        brought = self.machine.devices > 1 and name in self.graph.producer
        return np.full_like(part, part.min()) if brought else part

    @property
    def least(self) -> tuple[tuple[float, Kind], ...]:
        """Bytes that a device holds at the moment at least, whatever the layouts, by their kind."""
        return tuple((self.graph.values[name].bytes / self.machine.devices, kind) for name, kind in self.moment.least)

    @cached_property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """The weights that the computing of each node has in the parts into which the moment divides the step; no copy
        of what exceeds the limit then is under way while its own node computes."""
        moment = self.moment
        return tuple(
            (BEFORE, OUT)
            if number == moment.node
            else (BEFORE if moment.before >> number & 1 else BEHIND if moment.behind >> number & 1 else EITHER,)
            for number in range(len(self.graph.nodes))
        )

    def line(self, labels: Labels) -> Floats:
        """What a strategy takes, as factors of the weights and prices."""
        problem, values = self.tables.problem, len(self.tables.layouts)
        line = np.zeros(FIXED + len(self.kinds))
        for number, (mean, last, places) in enumerate(zip(self.computing, self.last, self.parts, strict=True)):
            line[COMPUTING] += mean[labels[values + number]]
            line[list(places)] += last[labels[values + number]]
        pairs = zip(problem.pairs, self.handling, strict=False)
        line[COMPUTING] += sum(float(table[labels[a], labels[b]]) for (a, b, _), table in pairs)
        received = sum(float(problem.tables[table][labels[a], labels[b]]) for a, b, table in problem.pairs)
        line[LINKS] = received / self.ports if received else 0.0
        line[LIMIT] = -self.limit
        place = {kind: FIXED + number for number, kind in enumerate(self.kinds)}
        for least, kind in self.least:
            line[place[kind]] += least
        for variable, kind, part in self.held:
            line[place[kind]] += part[labels[variable]]
        return line

    def solved(self, budget: Budget, known: Sequence[Strategy]) -> float:
        """Seconds that no strategy is below."""
        found = [(labels, self.line(labels)) for labels in map(self.tables.labels, known) if labels is not None]
        found = [(labels, line) for labels, line in found if np.isfinite(line).all()]
        lines = [line for _, line in found]
        best, weights = 0.0, self.weights(lines)[1] if lines else self.first()
        for _ in range(ROUNDS):
            begin = min(found, key=lambda one: float(one[1] @ weights), default=None)
            try:
                least, labels = self.cheapest(weights, budget, begin[0] if begin else None)
            except ValueError:  # no strategy keeps the limit
                return np.inf
            best = max(best, least - self.limit * float(weights[LIMIT]))
            line = self.line(labels)
            if budget.late or not np.isfinite(line).all():  # the solver had no time
                break
            found.append((labels, line))
            lines.append(line)
            before, (hoped, weights) = weights, self.weights(lines)
            if hoped <= best * (1 + NEAR) or np.allclose(weights, before, rtol=NEAR):  # less time gives no more
                break
        return best

    def first(self) -> Floats:
        """Weights to begin with where no strategy is known."""
        weights = np.zeros(FIXED + len(self.kinds))
        weights[[LINKS, COMPUTING]] = 1 / (3 if self.kinds else 2)
        if self.kinds:
            weights[[OUT, BACK]] = 1 / 3
        costs = [min(kind.costs(weights), default=np.inf) for kind in self.kinds]
        weights[LIMIT] = max((cost for cost in costs if cost < np.inf), default=0.0)
        weights[FIXED:] = np.minimum(costs, weights[LIMIT])
        return weights

    def weights(self, lines: Sequence[Floats]) -> tuple[float, Floats]:
        """(the most that any weights and prices give for these strategies, those weights). A linear program, scaled to
        the known."""
        from scipy.optimize import linprog  # slow to load

        count = FIXED + len(self.kinds)
        seconds = max(*(float(line[COMPUTING]) for line in lines), 1e-12, 1e-12)
        unit = np.ones(count)
        unit[LIMIT:] = seconds / max(float(self.limit), 1.0)  # prices of bytes

        def row(*entries: tuple[int, float], bounded: float = 0.0) -> Floats:
            """Entries of a row in which a sum is at most 0."""
            values = np.zeros(count + 1)
            for place, value in entries:
                values[place] += value
            values[count] = bounded
            return values

        # What is bounded is at most what each strategy takes.
        rows = [row(*enumerate(-line * unit / seconds), bounded=1.0) for line in lines]
        rows += [row((EITHER, 1.0), (part, -1.0)) for part in (BEFORE, BEHIND)]
        for number, kind in enumerate(self.kinds, start=FIXED):
            rows.append(row((number, 1.0), (LIMIT, -1.0)))
            rows += [row((number, 1.0), *((at, -took / unit[number]) for at, took in way)) for way in kind.ways]
        sums = [row(*((place, 1.0) for place in part)) for part in PARTS]
        bounds: list[tuple[float | None, float | None]] = [(0.0, 1.0)] * LIMIT + [(0.0, None)] * (count - LIMIT)
        if not self.kinds:
            bounds[OUT] = bounds[BACK] = (0.0, 0.0)
        found = linprog(
            row(bounded=-1.0), np.asarray(rows), np.zeros(len(rows)), np.asarray(sums), [1.0, 1.0],
            bounds=[*bounds, (None, None)], method="highs",
        )  # fmt: skip
        if found.x is None:  # the solver has failed; any weights give a bound
            return np.inf, self.first()
        given: Floats = np.maximum(found.x[:-1], 0.0) * unit
        # Whatever the solver's tolerance:
        given[:LIMIT] /= max(1.0, *(float(given[list(part)].sum()) for part in PARTS))
        given[EITHER] = given[[BEFORE, BEHIND, EITHER]].min()
        for number, kind in enumerate(self.kinds, start=FIXED):
            given[number] = min(given[number], given[LIMIT], *kind.costs(given))
        return float(found.x[-1]) * seconds, given

    def cheapest(self, weights: Floats, budget: Budget, begin: Labels | None) -> tuple[float, Labels]:
        """(a bound below what any strategy costs under the weights, what the limit is worth left out; labels of a cheap
        one). begin: labels with which the solver begins: what costs more is ruled out."""
        plain, values = self.tables.problem, len(self.tables.layouts)
        computing, links = float(weights[COMPUTING]) * SCALE, float(weights[LINKS]) * SCALE / (self.ports or 1.0)
        prices = dict(zip(self.kinds, (weights[FIXED:] * SCALE).tolist(), strict=True))
        tables, pairs = self.transfers(links, computing)
        unary, numbers, added = list(plain.unary), dict[tuple[int, float], int](), dict[int, Floats]()
        for number, (mean, last, places) in enumerate(zip(self.computing, self.last, self.parts, strict=True)):
            factor = float(weights[list(places)].sum()) * SCALE
            if (id(mean), factor) not in numbers:
                numbers[id(mean), factor] = len(tables)
                tables.append(_times(mean, computing) + _times(last, factor))
            unary[values + number] = numbers[id(mean), factor]
        for variable, kind, part in self.held:
            added[variable] = added.get(variable, 0.0) + prices[kind] * part
        for variable, table in added.items():
            tables.append(table if unary[variable] < 0 else table + tables[unary[variable]])
            unary[variable] = len(tables) - 1
        problem = Problem(plain.domains, tuple(unary), pairs, tuple(tables))
        seconds = max(budget.seconds * SHARE, len(problem.domains) * LEAST)
        solution = minimise(problem, seconds=seconds, upper=begin, enough=NEAR)
        budget.spend(float(solution.statistics["seconds of work"]) * 1e9)
        least = sum(amount * prices[kind] for amount, kind in self.least)
        return (solution.bound + least) / SCALE, solution.labels

    def transfers(self, links: float, computing: float) -> tuple[list[Floats], tuple[tuple[int, int, int], ...]]:
        """(tables, pairs) of the problem in which bytes and handling cost so much; equal ones are one table."""
        plain, numbers = self.tables.problem, dict[tuple[int, int], int]()
        tables, pairs = list[Floats](), list[tuple[int, int, int]]()
        for pair, (a, b, table) in enumerate(plain.pairs):
            handled = self.handling[pair] if self.handling else None
            key = table, id(handled)
            if key not in numbers:
                numbers[key] = len(tables)
                priced = _times(plain.tables[table], links)
                tables.append(priced if handled is None else priced + _times(handled, computing))
            pairs.append((a, b, numbers[key]))
        return tables, tuple(pairs)


@dataclass(frozen=True, eq=False)
class Pieces:
    """What a node by itself makes the last device hold while it computes, whatever else is moved out of the way."""

    tables: HeldTables
    machine: Machine

    def bytes(self, number: int, counted: Collection[str] = ()) -> Floats:
        """Under each division: what it reads, of each storage once, what it makes, unless that may lie where an operand
        lay, and its kernel's scratch. counted: values of which nothing is to be counted."""
        plain = self.tables.plain
        graph, liveness = plain.graph, self.tables.liveness
        node, description = graph.nodes[number], descriptions(graph)[number]
        total: Floats = np.zeros(len(plain.options[number].divisions))
        if description is None or description.operator.view:
            return total
        reads: dict[str, Floats] = {}
        for operand, name in enumerate(node.inputs):
            base = liveness.bases[name]
            if base is not None and base not in counted:
                reads[base] = np.maximum(reads.get(base, 0.0), self.tables.piece(number, operand))
        total = total + sum(reads.values())
        if not any(writes_over(description.operator, operand) for operand in range(len(node.inputs))):
            total = total + sum(self.tables.piece(number, ~result) for result in liveness.own(number))
        return total + self.scratch(number, description)

    def scratch(self, number: int, description: Description) -> Floats:
        """What a library's kernel takes, as it is bounded for machines that are not here, with operands in order."""
        plain = self.tables.plain
        node, options, values = plain.graph.nodes[number], plain.options[number], plain.graph.values
        result = values[node.outputs[0]]
        temporary = rule_for(description.operator.temporary, result.item_bytes)
        if not isinstance(temporary, Measured) or self.machine.here or self.machine.on_gpus:
            return np.zeros(len(options.divisions))
        found = []
        for codes in options.divisions.tolist():
            starts, stops = bounds_of_codes(tuple(codes), description.sizes, plain.mesh)
            piece = make_piece(description, dict(node.attributes), starts[-1].tolist(), stops[-1].tolist())
            reads = zip(piece.names, piece.regions, piece.pads, node.inputs, strict=True)
            inputs = {
                name: Operand(
                    tuple(b - a + before + after for (a, b), (before, after) in zip(region, pads, strict=True)),
                    values[value].item_bytes,
                    dtype=values[value].dtype,
                )
                for name, region, pads, value in reads
                if name is not None
            }
            shape = tuple(b - a for a, b in piece.output)
            output = Operand(shape, result.item_bytes, dtype=result.dtype)
            work = KernelCall(piece.attributes, inputs, output, frozenset(), ELSEWHERE_THREADS)
            found.append(held(temporary, piece.operator, work, at_most))
        return np.asarray(found, np.float64)


def _times(table: Floats, factor: float) -> Floats:
    """What is forbidden stays so."""
    product: Floats = np.multiply(table, factor, out=np.full(table.shape, np.inf), where=np.isfinite(table))
    return product


# ------------------------------------------------------------------------------------------- the fullest moment


def fullest(graph: Graph, machine: Machine) -> Moment:
    """The node while which most bytes surely are there, and what these are; NEVER of a graph without nodes.

    A view is no moment: it is made where it is read.
    """
    order, known = _Order.of(graph), descriptions(graph)
    families = list(_families(graph, order, machine.devices == 1))
    there, bases = {family.base: family.there for family in families}, view_bases(graph)
    total = np.zeros(len(graph.nodes))
    for base, bits in there.items():
        total += order.nodes(bits) * float(graph.values[base].bytes)
    for number, (node, description) in enumerate(zip(graph.nodes, known, strict=True)):
        touched = {bases[name] for name in node.inputs} | set(node.outputs)
        total[number] += sum(
            graph.values[name].bytes for name in touched if name is not None and not there.get(name, 0) >> number & 1
        )
        if description is not None and description.operator.view:
            total[number] = 0.0
    if not total.any():
        return NEVER
    return _moment(graph, machine, int(total.argmax()), families, order)


@dataclass(frozen=True, eq=False)
class _Order:
    """What holds in every order of a graph's nodes, as a bit for each. before, behind: the nodes from which a path
    leads to each node, and those to which one leads from it."""

    before: tuple[int, ...]
    behind: tuple[int, ...]

    @staticmethod
    def of(graph: Graph) -> _Order:
        producer, count = graph.producer, len(graph.nodes)
        before, behind = [0] * count, [0] * count
        for number, node in enumerate(graph.nodes):
            for name in node.inputs:
                if (maker := producer.get(name)) is not None:
                    before[number] |= before[maker] | 1 << maker
        for number in reversed(range(count)):
            own = behind[number] | 1 << number
            for name in graph.nodes[number].inputs:
                if (maker := producer.get(name)) is not None:
                    behind[maker] |= own
        return _Order(tuple(before), tuple(behind))

    @property
    def every(self) -> int:
        return (1 << len(self.before)) - 1

    def nodes(self, bits: int) -> NDArray[np.bool_]:
        raw = np.frombuffer(bits.to_bytes((len(self.before) + 7) // 8, "little"), np.uint8)
        return np.unpackbits(raw, count=len(self.before), bitorder="little").astype(bool)


@dataclass(frozen=True)
class _Family:
    """A value with a storage of its own, and its views; or state, old and new. there: the nodes, as bits, while which
    some of them is there in every order, and its bytes with it; itself: those while which the value itself is. state:
    "" if it is none, else "replaced" or "kept"."""

    base: str
    there: int
    itself: int
    state: str = ""


def _families(graph: Graph, order: _Order, alone: bool) -> Iterator[_Family]:
    """What can be held, by storage.

    alone: on one device, where a storage is there until the last that reads anything of it. On several a value counts
    where one reader reads all of it, since each device frees its part by itself; and its views may lie otherwise.
    """
    bases, known, values = view_bases(graph), descriptions(graph), graph.values
    leaving, news = {item.name for item in graph.outputs}, set(graph.updates.values())
    state = {item.name for item in graph.state_inputs}
    later: dict[str, int] = {}  # by base, the nodes behind which one of the family is read
    own: dict[str, int] = {}  # or itself
    for name, users in graph.consumers.items():
        base = bases[name]
        if base is None or not (alone or values[name].bytes == values[base].bytes):
            continue
        bits = order.every if name in leaving else 0
        for reader in users:
            description = known[reader]
            looks = description is not None and description.operator.view
            if not looks and (alone or _reads_all(graph, reader, name)):
                bits |= order.before[reader]
        later[base] = later.get(base, 0) | bits
        if name == base or alone:
            own[base] = own.get(base, 0) | bits
    found: dict[str, _Family] = {}
    for name in values:
        if bases[name] != name or name in news or name in graph.updates:
            continue
        made = order.behind[graph.producer[name]] if name in graph.producer else order.every
        if there := later.get(name, 0) & made:
            found[name] = _Family(name, there, own.get(name, 0) & made, "kept" if name in state else "")
    yield from found.values()
    for name in graph.updates:
        if chain := _replaced(graph, name):
            # Where one of the chain counts by itself, it may be all that is there of the state.
            others = {base for made in chain[1:] if (base := bases[made]) not in (None, name)}
            counted = sum(1 << at for at, node in enumerate(graph.nodes)
                          if any(bases[item] in others for item in (*node.inputs, *node.outputs)))  # fmt: skip
            for other in others & found.keys():
                counted |= found[other].there
            there = order.every & ~counted
            yield _Family(name, there, there if len(chain) == 2 or alone else 0, "replaced")


def _replaced(graph: Graph, old: str) -> list[str]:
    """The shortest chain of values as large as this state that leads from it to the state that replaces it, each made
    of the one before: one of them is there at any time. Empty if there is none."""
    new, size = graph.updates[old], graph.values[old].bytes
    waiting, before = deque([old]), {old: ""}
    while waiting and new not in before:
        name = waiting.popleft()
        for reader in graph.consumers[name]:
            for made in graph.nodes[reader].outputs:
                if made not in before and graph.values[made].bytes >= size:
                    before[made] = name
                    waiting.append(made)
    chain = [new] if new in before and new != old else []
    while chain and chain[-1] != old:
        chain.append(before[chain[-1]])
    return chain[::-1]


def _reads_all(graph: Graph, number: int, name: str) -> bool:
    """Does a node read all of a value?"""
    node, description = graph.nodes[number], descriptions(graph)[number]
    if description is None:
        return True
    whole, value = np.asarray(description.sizes, np.int64), graph.values[name]
    for operand, reads in zip(node.inputs, description.reads, strict=False):
        elements = (least_read(read, whole[None], whole, value.shape)[0] for read in reads)
        if operand == name and any(count >= value.elements for count in elements):
            return True
    return False


def _moment(graph: Graph, machine: Machine, number: int, families: Sequence[_Family], order: _Order) -> Moment:
    """What is there while a node computes."""
    values: list[tuple[str, Kind]] = []
    least: list[tuple[str, Kind]] = []
    node, bases, here = graph.nodes[number], view_bases(graph), 1 << number
    touched = {bases[name] for name in node.inputs} if machine.devices == 1 else set[str | None]()
    for family in families:
        if not family.there & here:
            continue
        kind = NOW if family.base in touched else _kind(graph, machine, family)
        if family.itself & here:
            values.append((family.base, kind))
        else:  # it is there, or a value made of it that may lie otherwise
            least.append((family.base, kind))
    known = {name for name, _ in values}
    values += [(name, NOW) for name in dict.fromkeys(bases[item] for item in node.inputs)
               if name in touched and name is not None and name not in known]  # fmt: skip
    if machine.devices == 1 and not Liveness(graph).taking(number):
        values += [(name, NOW) for name in node.outputs if bases[name] == name and name not in graph.updates.values()]
    return Moment(number, tuple(values), tuple(least), order.before[number], order.behind[number])


def _kind(graph: Graph, machine: Machine, family: _Family) -> Kind:
    """What it costs not to hold a value."""
    host = machine.host
    again = _again(graph, machine, family.base) if not family.state else np.inf
    dropped: tuple[Way, ...] = (((COMPUTING, again), (BEHIND, again)),) if again < np.inf else ()
    if host is None:
        return Kind(dropped)
    out, back = (host.copy_seconds(1e15, way) / 1e15 - host.latency_seconds / 1e15 for way in (True, False))
    lost_out, lost_back = host.computing_share * out, host.computing_share * back
    if family.state == "kept":
        return Kind((((BACK, back), (COMPUTING, lost_back), (BEHIND, lost_back)),))
    lost = lost_out + lost_back
    if family.state == "replaced":
        return Kind(tuple((way, (COMPUTING, lost), (EITHER, lost)) for way in ((OUT, out), (BACK, back))))
    moved = (OUT, out), (BACK, back), (COMPUTING, lost), (BEFORE, lost_out), (BEHIND, lost_back)
    return Kind((moved, *dropped))


def _again(graph: Graph, machine: Machine, name: str) -> float:
    """Seconds of computing a byte of a value again, of which the devices may share the work."""
    if name not in graph.producer:
        return np.inf
    number = graph.producer[name]
    description, size = descriptions(graph)[number], graph.values[name].bytes
    if description is None:
        return 0.0
    price = Kinds(machine).again(description, float(size)) / max(size, 1) / machine.devices
    return 0.0 if price <= 0 else 10.0 ** (np.floor(np.log10(price) * ALIKE) / ALIKE)
