"""What a device surely holds at each moment, as tables over the labels of a PartitionProblem.

The memory of a device at one moment is at least a sum of terms that are linear in single layouts (parts of values that
are alive), in single divisions (pieces that a node reads or makes), and in pairs of a division and a layout (pieces
that exist beside the value only if they are moved; what an exchange stages). Never more than lowering and `memory_use`
find; less by what a kernel takes for itself, and by copies that strides force. So a price on every byte of it is a
table that adds to the costs, and the least of a sum of prices is a bound.

A node's moments are: each operand is fetched, beside those that have been; it computes, with all its pieces in memory;
each result is stored, the operands gone, where what was made elsewhere stands beside the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from girih.graph import Graph, Value
from girih.layout import Layout, Placement, Placements, regions_of
from girih.ops import description_of
from girih.ops.derive.in_place import FLOATS, writes_over
from girih.partition.solver.elimination import Problem
from girih.partition.space.problem import PartitionProblem
from girih.partition.strategy import FloatTable

Moment = tuple[int, int]
"""(node, place): while the node's operand of this number is brought to where its pieces read it; (node, ~result): while
this result is brought to where it lies; (node, COMPUTE); (-1, COMPUTE) before the first node."""
COMPUTE = 1 << 16

Exchanged = Callable[[Value, Placement, Placement, bool, bool], int]
"""Bytes that the last device holds, the source apart, while a value goes from one placement to another; whether the
source surely lies in order, and whether it stays afterwards, is told."""


@dataclass(frozen=True)
class Held:
    """What a device surely holds at one moment.

    values: their parts under their layouts. pieces: by (node, operand) or (node, ~result) the part that the node
    reads or makes; True where it has a buffer of its own only if it is moved. exchange: what is being moved, which
    holds the buffers of its hops, and staged messages. views: of one storage with a value that is counted; they have
    their own where the view operator's operand or result was moved.
    """

    values: tuple[str, ...]
    pieces: dict[tuple[int, int], bool]
    exchange: tuple[int, int] | None = None
    views: tuple[str, ...] = ()


def moments(graph: Graph) -> list[Moment]:
    """All of them, in order."""
    every: list[Moment] = [(-1, COMPUTE)]
    for number in range(len(graph.nodes)):
        every += moments_of(graph, number)
    return every


def moments_of(graph: Graph, number: int) -> list[Moment]:
    """Those of a node (-1: the one before the first)."""
    if number < 0:
        return [(-1, COMPUTE)]
    node = graph.nodes[number]
    places = [*range(len(node.inputs)), COMPUTE, *(~result for result in range(len(node.outputs)))]
    return [(number, place) for place in places]


class Liveness:
    """Which values are alive when. last: the node that reads each value last; bases: the value in whose storage each
    value may lie; dense: values whose buffers surely lie in order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.last = last_uses(graph)
        self.bases = view_bases(graph)
        self.dense = dense_values(graph)
        self.maker = {
            name: (number, result)
            for number, node in enumerate(graph.nodes)
            for result, name in enumerate(node.outputs)
        }

    def held(self, moment: Moment) -> Held:
        """Views share a storage, so of each base at most one value is counted. An operand that is read for the last
        time may be freed once its copy is made: then its piece is counted, wherever it lies."""
        number, place = moment
        if number < 0:
            return Held(tuple(item.name for item in self.graph.inputs), {})
        node, alive = self.graph.nodes[number], self.alive(number)
        own = {(number, ~result): False for result in self.own(number)}
        if place < 0:
            counted, views = self.counted(alive)
            stored = [node.outputs[result] for result in self.own(number) if result < ~place]
            waiting = {end: moved for end, moved in own.items() if end[1] <= place}
            return Held((*counted.values(), *stored), waiting, moment, views)
        reading = len(node.inputs) if place == COMPUTE else place
        counted, views = self.counted(dict.fromkeys((*alive, *node.inputs[reading:])))
        seen: set[str | None] = {None, *counted}
        pieces = {}
        for operand, name in enumerate(node.inputs[:reading]):
            pieces[number, operand] = self.bases[name] in seen
            seen.add(self.bases[name])
        if place == COMPUTE:
            return Held(tuple(counted.values()), pieces if self.taking(number) else pieces | own, None, views)
        return Held(tuple(counted.values()), pieces, moment, views)

    def own(self, number: int) -> list[int]:
        """The results that have a storage of their own."""
        return [result for result, name in enumerate(self.graph.nodes[number].outputs) if self.bases[name] == name]

    def taking(self, number: int) -> bool:
        """May the node's result take over the memory of an operand that ends with it?"""
        graph = self.graph
        node = graph.nodes[number]
        description, dtype = description_of(graph, node), graph.values[node.outputs[0]].dtype
        if description is None or dtype not in FLOATS:
            return False
        return any(
            self.last[name] == number
            and graph.values[name].dtype == dtype
            and writes_over(description.operator, operand)
            for operand, name in enumerate(node.inputs)
        )

    def alive(self, number: int) -> list[str]:
        """The values that are there before the node and behind it."""
        producer = self.graph.producer
        return [name for name in self.graph.values if producer.get(name, -1) < number < self.last[name]]

    def counted(self, names: Iterable[str]) -> tuple[dict[str, str], tuple[str, ...]]:
        """One value for each base: itself if it is there, else its largest view; and the other values, all views."""
        counted: dict[str, str] = {}
        values, all_of_them = self.graph.values, list(names)
        for name in all_of_them:
            base = self.bases[name]
            if base is None:
                continue
            before = counted.get(base)
            if before is None or (before != base and (name == base or values[name].bytes > values[before].bytes)):
                counted[base] = name
        chosen = set(counted.values())
        views = [name for name in all_of_them if name not in chosen and self.bases[name] not in (None, name)]
        return counted, tuple(views)


def dense_values(graph: Graph) -> set[str]:
    """Values whose buffers lie in order wherever they lie: inputs, and what neither shows another one's storage nor
    takes over its order, as element-wise operators do."""
    names = {item.name for item in graph.inputs}
    for node in graph.nodes:
        description = description_of(graph, node)
        if description is not None and description.operator.view:
            continue
        if description is None or not description.operator.elementwise or not node.inputs or node.inputs[0] in names:
            names.update(node.outputs)
    return names


def last_uses(graph: Graph) -> dict[str, int]:
    """The node that reads each value last; the number of nodes for what stays until the end."""
    end = len(graph.nodes)
    staying = {output.name for output in graph.outputs}
    staying |= {item.name for item in graph.state_inputs if item.name not in graph.updates}
    staying |= {item.name for item in graph.inputs if not graph.consumers[item.name]}
    producer = graph.producer
    return {
        name: end if name in staying else (users[-1] if users else producer[name])
        for name, users in graph.consumers.items()
    }


def view_bases(graph: Graph) -> dict[str, str | None]:
    """The value in whose storage each value may lie: itself, unless a view operator makes it.

    None: behind an expand, whose storage is smaller than what it shows.
    """
    bases: dict[str, str | None] = {item.name: item.name for item in graph.inputs}
    for node in graph.nodes:
        description = description_of(graph, node)
        is_view = description is not None and description.operator.view and len(node.inputs) == 1
        for name in node.outputs:
            expands = is_view and graph.values[name].elements > graph.values[node.inputs[0]].elements
            bases[name] = (None if expands else bases[node.inputs[0]]) if is_view else name
    return bases


MOST_ASKED = 2_000
"""Pairs of placements of one table for which the exchange is asked what it holds."""


@dataclass(frozen=True)
class Terms:
    """The bytes of one moment. single: by variable, of each label. pairs: by number of the problem's pair [labels of a,
    labels of b]."""

    single: dict[int, FloatTable]
    pairs: dict[int, FloatTable]


class HeldTables:
    """The terms of the moments that are asked for, of one problem without prices. Of parts that differ by one element
    the last device has the largest: it is the one that is counted."""

    def __init__(self, plain: PartitionProblem, exchanged: Exchanged) -> None:
        self.plain = plain
        self.exchanged = exchanged
        self.known: dict[tuple[Moment, bool], Terms] = {}
        self.moved: dict[tuple[object, ...], FloatTable] = {}
        self.parts: dict[tuple[int, tuple[int, ...], int], FloatTable] = {}
        self.first: list[int] = []
        """The number of the first pair of each node: its inputs, then its outputs."""
        count = 0
        for node in plain.graph.nodes:
            self.first.append(count)
            count += len(node.inputs) + len(node.outputs)

    @cached_property
    def places(self) -> FloatTable:
        """Where in the step each variable is: from -1, the first, to 1."""
        problem = self.plain
        values, nodes = len(problem.layouts), len(problem.options)
        producer = {problem.variable[name]: at for name, at in problem.graph.producer.items()}
        at = [producer.get(number, -1) for number in range(values)] + list(range(nodes))
        return np.clip(np.asarray(at) / max(nodes, 1) * 2.0 - 1.0, -1.0, 1.0)

    @cached_property
    def liveness(self) -> Liveness:
        return Liveness(self.plain.graph)

    def terms(self, moment: Moment, likely: bool = False) -> Terms:
        """likely: about what is held, which may be more than what surely is: buffers that may not lie in order are
        packed, and a view whose operand was moved and whose result was moved, too, is counted twice."""
        if (moment, likely) not in self.known:
            self.known[moment, likely] = self._terms(self.liveness.held(moment), likely)
        return self.known[moment, likely]

    def _terms(self, held: Held, likely: bool) -> Terms:
        single: dict[int, FloatTable] = {}
        pairs: dict[int, FloatTable] = {}
        for name in held.values:
            variable = self.plain.variable[name]
            part = self.part(name)
            single[variable] = single[variable] + part if variable in single else part
        for (number, place), moved in held.pieces.items():
            variable = len(self.plain.layouts) + number
            piece = self.piece(number, place)
            if not moved:
                single[variable] = single[variable] + piece if variable in single else piece
                continue
            pair = self.pair(number, place)
            pairs[pair] = np.where(self.exchange(number, place, likely) > 0, piece[:, None], 0.0)
        for name in held.views:
            number, result = self.liveness.maker[name]
            pair = self.pair(number, ~result)
            apart = np.where(self.exchange(number, ~result, likely) > 0, self.part(name)[None, :], 0.0)
            pairs[pair] = pairs.get(pair, 0.0) + apart
            if likely:
                pair, bytes_made = self.pair(number, 0), self.piece(number, ~result)[:, None]
                pairs[pair] = pairs.get(pair, 0.0) + np.where(self.exchange(number, 0, likely) > 0, bytes_made, 0.0)
        if held.exchange is not None:
            number, place = held.exchange
            pair = self.pair(number, place)
            pairs[pair] = pairs.get(pair, 0.0) + self.exchange(number, place, likely)
        return Terms(single, pairs)

    def pair(self, number: int, place: int) -> int:
        """The problem's pair of a node and its operand or ~result."""
        return self.first[number] + (place if place >= 0 else len(self.plain.graph.nodes[number].inputs) + ~place)

    def exchange(self, number: int, place: int, likely: bool) -> FloatTable:
        """What moving an operand or ~result holds, its source apart: [divisions, layouts]. Where there are too many to
        ask for, the pieces that are moved."""
        node, options = self.plain.graph.nodes[number], self.plain.options[number]
        name = node.inputs[place] if place >= 0 else node.outputs[~place]
        value, variable = self.plain.graph.values[name], self.plain.variable[name]
        table = self.plain.problem.pairs[self.pair(number, place)][2]
        dense = likely or name in self.liveness.dense
        kept = place >= 0 and self.liveness.last[name] > number
        key = (table, value.shape, value.item_bytes, dense, kept, place < 0)
        if key not in self.moved:
            base = self.plain.problem.tables[table]
            pieces = options.needs[place] if place >= 0 else options.makes[~place]
            lying = Placements.of(self.plain.layouts[variable], value.shape, self.plain.mesh)
            first, kind = pieces.distinct()
            if len(first) * len(lying) > MOST_ASKED:
                moved = self.piece(number, place)[:, None] if place >= 0 else self.part(name)[None, :]
                self.moved[key] = np.where((base > 0) & np.isfinite(base), moved, 0.0)
            else:
                good = np.isfinite(base)
                asked = np.zeros((len(first), len(lying)))
                for row in range(len(first)):
                    for column in np.flatnonzero(good[kind == row].any(axis=0)).tolist():
                        ends = (lying[column], first[row]) if place >= 0 else (first[row], lying[column])
                        asked[row, column] = self.exchanged(value, *ends, dense, kept)
                        if place < 0 and not asked[row, column] and not ends[0].is_as(ends[1]):
                            asked[row, column] = self.part(name)[column]  # a copy of what is kept
                self.moved[key] = asked[kind] * good
        return self.moved[key]

    def part(self, name: str) -> FloatTable:
        """The bytes of a value's part on the last device under each layout."""
        value, layouts = self.plain.graph.values[name], self.plain.layouts[self.plain.variable[name]]
        key = (id(layouts), value.shape, value.item_bytes)
        if key not in self.parts:
            elements = np.asarray([_elements(item, value.shape, self.plain) for item in layouts])
            self.parts[key] = elements * float(value.item_bytes)
        return self.parts[key]

    def piece(self, number: int, place: int) -> FloatTable:
        """The bytes of what a node reads or makes on the last device under each division."""
        node, options = self.plain.graph.nodes[number], self.plain.options[number]
        name = node.inputs[place] if place >= 0 else node.outputs[~place]
        regions = (options.needs[place] if place >= 0 else options.makes[~place]).regions[:, -1]
        item = float(self.plain.graph.values[name].item_bytes)
        held: FloatTable = (regions[..., 1] - regions[..., 0]).prod(axis=-1) * item
        return held

    def bytes(self, moment: Moment, labels: NDArray[np.int64], likely: bool = False) -> float:
        """What the last device surely holds under these labels."""
        terms, pairs = self.terms(moment, likely), self.plain.problem.pairs
        total = sum(float(table[labels[variable]]) for variable, table in terms.single.items())
        return total + sum(float(t[labels[pairs[pair][0]], labels[pairs[pair][1]]]) for pair, t in terms.pairs.items())

    def priced(
        self, prices: Mapping[Moment, float], *, costs: bool = True, likely: bool = False, tilt: float = 0.0
    ) -> Problem:
        """The problem with a price on every byte at some moments; without the costs, but what is forbidden still is.

        tilt: by how much of its price the last value's bytes are dearer than the middle one's, and the first's cheaper:
        of layers that are alike some are then divided and others not.
        """
        problem = self.plain.problem
        tables = list(problem.tables if costs else (np.where(np.isinf(t), t, 0.0) for t in problem.tables))
        unary, pairs = list(problem.unary), list(problem.pairs)
        single: dict[int, FloatTable] = {}
        both: dict[int, FloatTable] = {}
        for moment, price in prices.items():
            terms = self.terms(moment, likely)
            for variable, table in terms.single.items():
                single[variable] = single.get(variable, 0.0) + price * table
            for pair, table in terms.pairs.items():
                both[pair] = both.get(pair, 0.0) + price * table
        factors = 1.0 + tilt * self.places
        for variable in single if tilt else ():
            single[variable] = single[variable] * factors[variable]
        for pair in both if tilt else ():
            both[pair] = both[pair] * factors[pairs[pair][1]]
        for variable, added in single.items():
            old = unary[variable]
            unary[variable] = len(tables)
            tables.append(added if old < 0 else tables[old] + added)
        for pair, added in both.items():
            a, b, old = pairs[pair]
            pairs[pair] = (a, b, len(tables))
            tables.append(tables[old] + added)
        return replace(problem, unary=tuple(unary), pairs=tuple(pairs), tables=tuple(tables))


def _elements(layout: Layout, shape: tuple[int, ...], plain: PartitionProblem) -> float:
    part = regions_of(layout, shape, plain.mesh)[-1]
    return float((part[:, 1] - part[:, 0]).prod())
