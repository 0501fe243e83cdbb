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

    single: where each value has one layout. problem: the wider one, of the same variables and pairs. brought: for each
    variable the name of the value that is brought to a second layout, None where none is. labels: for each variable the
    layout of each label, and the second layout, -1 where there is none, as numbers [labels, 2]. seconds: the second
    layouts of each variable. near: for each pair of a reader the table [divisions, second layouts]; None of others.
    """

    single: PartitionProblem
    problem: Problem
    brought: tuple[str | None, ...]
    labels: tuple[np.ndarray, ...]
    seconds: tuple[tuple[Layout, ...], ...]
    near: tuple[FloatTable | None, ...]

    def choice(self, chosen: np.ndarray) -> TilingByNumber:
        """What the labels mean. A second layout that fewer than two readers are nearer to is left out."""
        single, graph, first_node = self.single, self.single.graph, len(self.labels)
        tables, pairs = single.problem.tables, single.problem.pairs
        place = 0
        reads: list[tuple[int, ...]] = []
        readers = [0] * first_node
        for number, node in enumerate(graph.nodes):
            division, nearer = chosen[first_node + number], []
            for _ in node.inputs:
                _, value, table = pairs[place]
                layout, second = self.labels[value][chosen[value]]
                near = self.near[place]
                there = near is not None and second >= 0
                nearer.append(int(there and near[division, second] < tables[table][division, layout]))  # type: ignore[index]
                readers[value] += nearer[-1]
                place += 1
            reads.append(tuple(nearer))
            place += len(node.outputs)
        layouts: list[tuple[Layout, ...]] = []
        for name in value_order(graph):
            value = single.variable[name]
            layout, second = self.labels[value][chosen[value]]
            own = single.layouts[value][layout]
            twice = second >= 0 and self.brought[value] == name and readers[value] > 1
            layouts.append((own, self.seconds[value][second]) if twice else (own,))
        kept = {name for name, lies in zip(value_order(graph), layouts, strict=True) if len(lies) > 1}
        reading = tuple(
            (tuple(one if name in kept else 0 for one, name in zip(nearer, node.inputs, strict=True)),)
            for nearer, node in zip(reads, graph.nodes, strict=True)
        )
        divisions = tuple(
            (tuple(options.divisions[chosen[first_node + number]].tolist()),)
            for number, options in enumerate(single.options)
        )
        return TilingByNumber(single.mesh, tuple(layouts), divisions, reading, frozenset())


def fetched_once(single: PartitionProblem, objective: Objective) -> FetchProblem | None:
    """A problem by `bytes`, with second layouts to which what several readers fetch may be brought once.

    None: the tables would be too many.
    """
    return _Widening(single.graph, objective, single).problem()


class _Widening:
    """Tables over the wider labels, equal ones made once."""

    def __init__(self, graph: Graph, objective: Objective, single: PartitionProblem) -> None:
        self.graph, self.objective, self.single = graph, objective, single
        self.transfers = objective.transfers
        self.tables = list(single.problem.tables)
        self.known: dict[object, int] = {}
        self.entries = 0

    def problem(self) -> FetchProblem | None:
        graph, single = self.graph, self.single
        count, pairs = len(single.layouts), single.problem.pairs
        readers: list[dict[str, list[int]]] = [{} for _ in range(count)]  # by value: places of the pairs that read it
        operands: dict[int, tuple[int, int]] = {}
        place = 0
        for number, node in enumerate(graph.nodes):
            for operand, name in enumerate(node.inputs):
                readers[single.variable[name]].setdefault(name, []).append(place)
                operands[place] = number, operand
                place += 1
            place += len(node.outputs)
        brought: list[str | None] = [None] * count
        for value, by_name in enumerate(readers):
            name = max(by_name, key=lambda name: len(by_name[name]), default=None)
            if name is not None and len(by_name[name]) > 1:
                brought[value] = name
        places = [place for value, name in enumerate(brought) if name is not None for place in readers[value][name]]
        near = self.near(brought, places, operands)
        lone = [np.stack([np.arange(len(own)), np.full(len(own), -1)], axis=1) for own in single.layouts]
        labels, moves = list(lone), {}
        seconds: list[tuple[Layout, ...]] = [()] * count
        for value, name in enumerate(brought):
            if name is None:
                continue
            seconds[value] = self.layouts(name)
            moves[value] = self.moves(value, name)
            pairs_of = self.paying(moves[value], [(pairs[at][2], near[at]) for at in readers[value][name]])
            if len(pairs_of):
                labels[value] = np.concatenate([lone[value], pairs_of])
            else:
                brought[value] = None
        unary = list(single.problem.unary)
        wide = list(pairs)
        for value, name in enumerate(brought):
            if name is not None:
                own, second = labels[value].T
                unary[value] = self.add((value,), np.where(second < 0, 0.0, moves[value][own, second]))
        for at, (node, value, table) in enumerate(pairs):
            name = brought[value]
            if name is not None:
                serving = near[at] if at in operands and at in set(readers[value][name]) else None
                wide[at] = (node, value, self.wide(table, labels[value], serving))
            if self.entries > MOST_ENTRIES:
                return None
        domains = (*(len(own) for own in labels), *single.problem.domains[count:])
        problem = Problem(domains, tuple(unary), tuple(wide), tuple(self.tables))
        return FetchProblem(
            single,
            problem,
            tuple(brought),
            tuple(labels),
            tuple(seconds),
            tuple(near.get(at) for at in range(len(pairs))),
        )

    def layouts(self, name: str) -> tuple[Layout, ...]:
        """The second layouts that are tried."""
        return full_layouts(self.graph.values[name].shape, self.single.mesh)

    def near(
        self, brought: list[str | None], places: list[int], operands: Mapping[int, tuple[int, int]]
    ) -> dict[int, FloatTable]:
        """What readers lack of each second layout, by the place of their pairs: equal ones are one table."""
        number_of: dict[object, int] = {}
        wanted: list[WantedTable] = []
        at: dict[int, int] = {}
        for place in places:
            number, operand = operands[place]
            name = self.graph.nodes[number].inputs[operand]
            choice, layouts = self.single.options[number], self.layouts(name)
            key = (id(choice), operand, layouts, self.graph.values[name].item_bytes)
            if key not in number_of:
                number_of[key] = len(wanted)
                wanted.append(WantedTable(self.graph.values[name], layouts, choice.needs[operand], True))
            at[place] = number_of[key]
        tables = priced(wanted, self.transfers, self.objective.budget)
        return {place: tables[number] for place, number in at.items()}

    def moves(self, value: int, name: str) -> FloatTable:
        """[layouts, second layouts]: what it costs to bring a value from one to the other."""
        item, mesh = self.graph.values[name], self.single.mesh
        lies = Placements.of(self.single.layouts[value], item.shape, mesh)
        goals = Placements.of(self.layouts(name), item.shape, mesh)
        return self.transfers.table(lies, goals, item.shape, item.item_bytes)

    def paying(self, moves: FloatTable, readers: list[tuple[int, FloatTable]]) -> np.ndarray:
        """[pairs, 2]: the layouts with second layouts by which the readers together can save what they cost."""
        saved = np.zeros_like(moves)
        for table, near in readers:
            far = self.tables[table]
            with np.errstate(invalid="ignore"):
                more = far[:, :, None] - near[:, None, :]
            saved += np.nan_to_num(more, nan=0.0, posinf=np.inf).max(axis=0).clip(0.0)
        return np.argwhere((moves > 0) & (saved > moves))

    def wide(self, table: int, labels: np.ndarray, near: FloatTable | None) -> int:
        key = (table, labels.tobytes(), None if near is None else id(near))
        if key not in self.known:
            own, second = labels.T
            array = self.tables[table][:, own]
            if near is not None:
                array = np.where(second < 0, array, np.minimum(array, near[:, second]))
            self.known[key] = self.add(key, array)
        return self.known[key]

    def add(self, key: object, array: FloatTable) -> int:
        self.entries += array.size
        self.tables.append(array)
        return len(self.tables) - 1
