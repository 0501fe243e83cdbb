"""What several readers fetch, fetched once: the second layouts that values are brought to, as cost tables.

A Strategy has one layout for each value, and each node that reads it elsewhere fetches what it lacks. Where several
readers lack the same, or one lacks a part of what another does, the value is brought once to a second layout, from
which they read: it is held from its first reader to its last. A value's label is here its layout alone, or its layout
with such a second one, which may be any without partial sums: whole copies too, since it is gone after its last reader.
What it costs to bring the value there stands beside the label; each reader takes the nearer of both. A value that is a
partial sum is thus added once for several readers.

`FetchProblem.choice` says it free of names; `girih.partition.space.choice.applied` writes the second layouts into the
graph, as nodes `aten.clone` before their first readers. So lowering, memory, prediction and workers need not know.
One second layout of a value is tried, not several.

Cost: a value of n layouts, m of them without partial sums or with copies, has n·(1 + m) labels, less those by which the
readers together cannot save what the second layout costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from girih.graph import Graph
from girih.layout import Layout, Placements, full_layouts
from girih.partition.solver.elimination import Problem
from girih.partition.space.choice import TilingByNumber, value_order
from girih.partition.space.pricing import WantedTable, priced
from girih.partition.space.problem import Objective, PartitionProblem
from girih.partition.strategy import FloatTable

MOST_ENTRIES = 4_000_000
"""Entries of all different tables together; with more, each reader fetches for itself."""


@dataclass(frozen=True)
class FetchProblem:
    """The problem whose labels are a layout of a narrower one, or such a layout and a second one.

    single: where each value has one layout. problem: the wider one, of the same variables and pairs. brought: by
    variable the name of the value that may be brought to a second layout. seconds: by variable these second layouts.
    labels: of each variable [labels, 2]: the number of the layout, and of the second one, -1 where there is none. near:
    by the place of its pair what a reader of such a value lacks of each second layout, [divisions, second layouts].
    """

    single: PartitionProblem
    problem: Problem
    brought: Mapping[int, str]
    seconds: Mapping[int, tuple[Layout, ...]]
    labels: tuple[NDArray[np.int64], ...]
    near: Mapping[int, FloatTable]

    def choice(self, chosen: NDArray[np.int64]) -> TilingByNumber:
        """What the labels mean. A second layout that fewer than two readers are nearer to is left out."""
        single, graph, first_node = self.single, self.single.graph, len(self.labels)
        nearer: dict[str, list[tuple[int, int]]] = {}  # by value the readers, as nodes and operands
        for place, (number, operand, name) in _readers(graph).items():
            _, value, table = single.problem.pairs[place]
            layout, second = self.labels[value][chosen[value]]
            if second < 0 or self.brought[value] != name:
                continue
            division = chosen[first_node + number]
            if self.near[place][division, second] < single.problem.tables[table][division, layout]:
                nearer.setdefault(name, []).append((number, operand))
        nearer = {name: readers for name, readers in nearer.items() if len(readers) > 1}
        layouts: list[tuple[Layout, ...]] = []
        for name in value_order(graph):
            value = single.variable[name]
            layout, second = self.labels[value][chosen[value]]
            own = single.layouts[value][layout]
            layouts.append((own, self.seconds[value][second]) if name in nearer else (own,))
        there = {reader for readers in nearer.values() for reader in readers}
        reads = tuple(
            (tuple(int((number, operand) in there) for operand in range(len(node.inputs))),)
            for number, node in enumerate(graph.nodes)
        )
        divisions = tuple(
            (tuple(options.divisions[label].tolist()),)
            for options, label in zip(single.options, chosen[first_node:], strict=True)
        )
        return TilingByNumber(single.mesh, tuple(layouts), divisions, reads, frozenset())


def fetched_once(single: PartitionProblem, objective: Objective) -> FetchProblem | None:
    """A problem by `bytes`, with second layouts to which what several readers fetch may be brought once.

    None: the tables would be too many.
    """
    return _Widening(single, objective).problem()


def _readers(graph: Graph) -> dict[int, tuple[int, int, str]]:
    """By the place of its pair in a problem of the graph each reader: the node, the operand, and what it reads."""
    readers, place = {}, 0
    for number, node in enumerate(graph.nodes):
        for operand, name in enumerate(node.inputs):
            readers[place + operand] = number, operand, name
        place += len(node.inputs) + len(node.outputs)
    return readers


class _Widening:
    """Tables over the wider labels, equal ones made once."""

    def __init__(self, single: PartitionProblem, objective: Objective) -> None:
        self.single, self.values, self.objective = single, single.graph.values, objective
        self.transfers = objective.transfers
        self.tables = list(single.problem.tables)
        self.known: dict[object, int] = {}
        self.entries = 0

    def problem(self) -> FetchProblem | None:
        single, pairs = self.single, self.single.problem.pairs
        places: dict[str, list[int]] = {}  # of the pairs that read a value
        for place, (_, _, name) in _readers(single.graph).items():
            places.setdefault(name, []).append(place)
        several: dict[int, str] = {}  # of values that replace one another the one that is read most
        for name, some in places.items():
            value = single.variable[name]
            if len(some) > 1 and (value not in several or len(some) > len(places[several[value]])):
                several[value] = name
        near = self.near([place for name in several.values() for place in places[name]])
        labels = [np.stack([np.arange(len(own)), np.full(len(own), -1)], axis=1) for own in single.layouts]
        brought, unary, wide = {}, list(single.problem.unary), list(pairs)
        serving: dict[int, FloatTable] = {}
        for value, name in several.items():
            moves = self.moves(value, name)
            more = self.paying(moves, [(pairs[place][2], near[place]) for place in places[name]])
            if not len(more):
                continue
            brought[value] = name
            labels[value] = np.concatenate([labels[value], more])
            unary[value] = self.add(np.concatenate([np.zeros(len(moves)), moves[more[:, 0], more[:, 1]]]))
            serving |= {place: near[place] for place in places[name]}
        for place, (node, value, table) in enumerate(pairs):
            if value in brought:
                wide[place] = node, value, self.wide(table, labels[value], serving.get(place))
            if self.entries > MOST_ENTRIES:
                return None
        domains = (*map(len, labels), *single.problem.domains[len(labels) :])
        problem = Problem(domains, tuple(unary), tuple(wide), tuple(self.tables))
        seconds = {value: self.layouts(name) for value, name in brought.items()}
        return FetchProblem(single, problem, brought, seconds, tuple(labels), serving)

    def layouts(self, name: str) -> tuple[Layout, ...]:
        """The second layouts that are tried."""
        return full_layouts(self.values[name].shape, self.single.mesh)

    def near(self, places: list[int]) -> dict[int, FloatTable]:
        """What readers lack of each second layout, by the place of their pairs: equal ones are one table."""
        readers = _readers(self.single.graph)
        numbers: dict[object, int] = {}
        wanted: list[WantedTable] = []
        at: dict[int, int] = {}
        for place in places:
            number, operand, name = readers[place]
            choice, layouts = self.single.options[number], self.layouts(name)
            key = (id(choice), operand, layouts, self.values[name].item_bytes)
            if key not in numbers:
                numbers[key] = len(wanted)
                wanted.append(WantedTable(self.values[name], layouts, choice.needs[operand], True))
            at[place] = numbers[key]
        tables = priced(wanted, self.transfers, self.objective.budget)
        return {place: tables[number] for place, number in at.items()}

    def moves(self, value: int, name: str) -> FloatTable:
        """[layouts, second layouts]: what it costs to bring a value from one to the other."""
        item, mesh = self.values[name], self.single.mesh
        lies = Placements.of(self.single.layouts[value], item.shape, mesh)
        goals = Placements.of(self.layouts(name), item.shape, mesh)
        return self.transfers.table(lies, goals, item.shape, item.item_bytes)

    def paying(self, moves: FloatTable, readers: list[tuple[int, FloatTable]]) -> NDArray[np.int64]:
        """[pairs, 2]: the layouts with second layouts by which the readers together can save what they cost."""
        saved = np.zeros_like(moves)
        for table, near in readers:
            with np.errstate(invalid="ignore"):
                less = self.tables[table][:, :, None] - near[:, None, :]
            saved += np.nan_to_num(less, nan=0.0, posinf=np.inf).max(axis=0).clip(0.0)
        return np.argwhere((moves > 0) & (saved > moves))

    def wide(self, table: int, labels: NDArray[np.int64], near: FloatTable | None) -> int:
        """The number of the table [divisions, labels] of one over layouts alone. near: where the second ones serve."""
        key = (table, labels.tobytes(), None if near is None else id(near))
        if key not in self.known:
            own, second = labels.T
            array = self.tables[table][:, own]
            if near is not None:
                array = np.where(second < 0, array, np.minimum(array, near[:, second]))
            self.known[key] = self.add(array)
        return self.known[key]

    def add(self, array: FloatTable) -> int:
        self.entries += array.size
        self.tables.append(array)
        return len(self.tables) - 1
