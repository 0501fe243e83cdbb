"""Arrays held in two layouts at once (Spartan §3.4, "duplication"): what a search may choose, as cost tables.

A Strategy has one layout for each value, and each node that reads it otherwise fetches what it lacks again. Where a
value is read several times, a second copy in another layout is filled once and then read for nothing. Here a value's
label is one layout or two; a node reads from the nearer one. The first is written by the node that makes the value, the
second is filled from the first by a transfer. An input of the graph is loaded where it is wanted, once or twice, which
costs no transfer; an input that already lies in some layout (`held`) is copied from there; one that lies in two, since
an earlier graph made the copy, costs nothing more. A view takes no memory: in
two layouts it is taken twice, from the two copies of its base, where each gives its layout for nothing; so a copy of
the base serves the readers of all its views. Else its second copy is filled, and paid for, as any other. (A view that
lies otherwise than its base is moved once, copies or not, as in every Strategy.)

`girih.partition.space.choice` turns what is chosen into a Graph with the copies in it and an ordinary Strategy, whose
program moves the very bytes that are priced here. Three or more layouts of one value are not tried.

Cost: a value of n layouts that is read several times has n(n + 1)/2 labels, a view n²; beyond MOST_LAYOUTS it keeps to
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from girih.graph import Graph, Node, Value
from girih.layout import PARTIAL, Layout, Placements, Sharding, kind_of, sharding_of
from girih.ops import TensorType, description_of
from girih.ops.describe import describe_call
from girih.partition.solver.elimination import Problem
from girih.partition.space.options import Rules, placed_at
from girih.partition.space.problem import Objective, PartitionProblem, build
from girih.partition.strategy import FloatTable, SearchError

MOST_LAYOUTS = 24

Held = Mapping[str, tuple[Sharding, ...]]
"""By inputs that lie already, the layout, or the two layouts, in which each lies."""

Sets = tuple[tuple[int, ...], ...]
"""For each label of the wider problem the labels of the narrower one that it stands for: one, or two."""


@dataclass(frozen=True)
class CopyProblem:
    """The problem whose labels are one label or two of a narrower one.

    single: where each value has one layout. problem: the wider one, of the same variables and pairs. holds: the layouts
    of each value's labels; runs: the divisions of each node's labels, two where a view is taken twice. bytes: for each
    value and label, what the second copy takes on all devices together. A view's pair in ascending order is taken twice
    and takes nothing; in descending order it is filled.
    """

    single: PartitionProblem
    problem: Problem
    holds: tuple[Sets, ...]
    runs: tuple[Sets, ...]
    bytes: tuple[FloatTable, ...]

    def cost_of_copies(self, labels: np.ndarray) -> float:
        """Bytes of all second copies on all devices."""
        return float(sum(costs[labels[number]] for number, costs in enumerate(self.bytes)))


def widened(graph: Graph, objective: Objective, rules: Rules, held: Held, budget: float) -> CopyProblem:
    """The problem of dividing the graph where values may lie in two layouts.

    held: inputs that already lie in a layout, or in two. budget: bytes that second copies may take, on all devices
    together.
    Raises SearchError for a layout that an input cannot have.
    """
    single = build(graph, objective, rules)
    fixed = _fixed(graph, single, held)
    readers = [0] * len(single.layouts)
    for node in graph.nodes:
        for name in node.inputs:
            readers[single.variable[name]] += 1
    updated = {single.variable[name] for name in graph.updates}
    views = {single.variable[node.outputs[0]] for node in graph.nodes if budget > 0 and is_view(graph, node)}
    value_of = {number: graph.values[name] for name, number in reversed(single.variable.items())}
    holds: list[Sets] = []
    sizes: list[FloatTable] = []
    for number, layouts in enumerate(single.layouts):
        already = fixed.get(number)
        lone = [already] if already is not None else [(label,) for label in range(len(layouts))]
        pairs: list[tuple[int, ...]] = []
        able = readers[number] > 1 and number not in updated and len(lone[0]) == 1
        if budget > 0 and able and 1 < len(layouts) <= MOST_LAYOUTS:
            whole = [label for label, layout in enumerate(layouts) if all(kind_of(code) > PARTIAL for code in layout)]
            pairs = [pair for pair in combinations(whole, 2) if already is None or already[0] in pair]
        taken = [_bytes(layout, value_of[number], objective) for layout in layouts] if pairs else []
        filled = [pair for pair in pairs if max(taken[label] for label in pair) <= budget]
        sizes.append(np.asarray([0.0] * len(lone) + [max(taken[label] for label in pair) for pair in filled]))
        if number in views:
            filled = [(two, one) for one, two in filled]
            sizes[-1] = np.concatenate([np.zeros(len(pairs)), sizes[-1]])
        holds.append((*lone, *(pairs if number in views else ()), *filled))
    runs = [
        _runs(
            len(options.divisions),
            (variable := single.variable[node.outputs[0]]) in views and len(holds[variable][-1]) > 1,
        )
        for node, options in zip(graph.nodes, single.options, strict=True)
    ]
    problem = _Widening(graph, single, objective, holds, runs, views).problem(fixed)
    return CopyProblem(single, problem, tuple(holds), tuple(runs), tuple(sizes))


def _fixed(graph: Graph, single: PartitionProblem, held: Held) -> dict[int, tuple[int, ...]]:
    """The labels, one or two, of each value that lies already."""
    fixed = {}
    for name, lies in held.items():
        if graph.role_of(name) is None:
            raise SearchError(f"{name!r} is held in a layout, but it is no input of the graph: name one of its inputs")
        number = single.variable[name]
        able = [sharding_of(layout) for layout in single.layouts[number]]
        if not set(lies) <= set(able) or len(set(lies)) not in (1, 2):
            told, expected = (", ".join(map(str, layouts)) for layouts in (lies, able))
            raise SearchError(f"{name!r} is held in {told}: expected one or two of {expected}")
        fixed[number] = tuple(able.index(layout) for layout in lies)
    return fixed


def is_view(graph: Graph, node: Node) -> bool:
    """Does the node make a view of one value?"""
    description = description_of(graph, node)
    return description is not None and description.operator.view and len(node.inputs) == 1


def _bytes(layout: Layout, value: Value, objective: Objective) -> float:
    regions = Placements.of([layout], value.shape, objective.machine.mesh).regions[0]
    return float((regions[..., 1] - regions[..., 0]).prod(axis=-1).sum() * value.item_bytes)


def _runs(divisions: int, twice: bool) -> Sets:
    lone: Sets = tuple((label,) for label in range(divisions))
    return (*lone, *combinations(range(divisions), 2)) if twice and divisions <= MOST_LAYOUTS else lone


def copying(single: PartitionProblem, number: int, value: Value, objective: Objective) -> FloatTable:
    """[layouts, layouts]: what it costs to fill a copy of a value in one layout from another."""
    mesh, layouts = objective.machine.mesh, single.layouts[number]
    lies = Placements.of(layouts, value.shape, mesh)
    moved = objective.transfers.table(lies, lies, value.shape, value.item_bytes)
    if objective.unit == "bytes":
        return moved
    kind = TensorType(value.shape, value.dtype)
    clone = describe_call("aten.clone", {"self": kind}, {}, kind)
    if clone is None:
        raise SearchError("the catalogue of operators has no aten.clone, which fills second copies")
    return moved + objective.node_costs(placed_at(clone, layouts, (value.item_bytes,) * 2, mesh))


class _Widening:
    """Tables over the wider labels, equal ones made once."""

    def __init__(
        self,
        graph: Graph,
        single: PartitionProblem,
        objective: Objective,
        holds: list[Sets],
        runs: list[Sets],
        views: set[int],
    ) -> None:
        self.graph, self.single, self.holds, self.runs, self.views = graph, single, holds, runs, views
        self.tables = list(single.problem.tables)
        self.known: dict[object, int] = {}
        self.moves = {
            number: copying(single, number, graph.values[name], objective)
            for name, number in reversed(single.variable.items())
            if len(holds[number][-1]) > 1
        }

    def problem(self, fixed: Mapping[int, tuple[int, ...]]) -> Problem:
        base, first_node = self.single.problem, len(self.holds)
        domains = (*map(len, self.holds), *map(len, self.runs))
        if domains == base.domains and not fixed:
            return base
        pairs = list(base.pairs)
        place = 0
        for node in self.graph.nodes:
            for makes in (False,) * len(node.inputs) + (True,) * len(node.outputs):
                variable, number, table = pairs[place]
                pairs[place] = (variable, number, self.wide(table, variable - first_node, number, makes))
                place += 1
        unary = list(base.unary)
        for node_number, runs in enumerate(self.runs):
            table = unary[first_node + node_number]
            if table >= 0 and len(runs[-1]) > 1:
                unary[first_node + node_number] = self.add(
                    np.asarray([self.tables[table][list(r)].sum() for r in runs])
                )
        for number, lies in fixed.items():
            if number in self.moves and len(lies) == 1:
                moves = self.moves[number][lies[0]]
                filled = [moves[sum(s) - lies[0]] if len(s) > 1 else 0.0 for s in self.holds[number]]
                unary[number] = self.add(np.asarray(filled))
        return Problem(domains, tuple(unary), tuple(pairs), tuple(self.tables))

    def add(self, array: FloatTable) -> int:
        self.tables.append(array)
        return len(self.tables) - 1

    def wide(self, table: int, node: int, number: int, makes: bool) -> int:
        holds, runs = self.holds[number], self.runs[node]
        if (len(runs), len(holds)) == self.tables[table].shape and len(holds[-1]) == len(runs[-1]) == 1:
            return table
        key = (table, holds, len(runs), makes and number)
        if key not in self.known:
            self.known[key] = self.add(self._made(table, runs, number) if makes else self._read(table, runs, holds))
        return self.known[key]

    def _read(self, table: int, runs: Sets, holds: Sets) -> FloatTable:
        """Each run reads from the nearer copy; two find what they read."""
        lone, (one, two) = _parts(holds)
        array = self.tables[table]
        near = np.concatenate([array[:, lone], np.minimum(array[:, one], array[:, two])], axis=1)
        alone, (first, second) = _parts(runs)
        both = near[first] + near[second]
        return np.concatenate([near[alone], np.where(both > 0, np.inf, both)])

    def _made(self, table: int, runs: Sets, number: int) -> FloatTable:
        """One run makes one copy and the other is filled from it; two runs make two, and are there for nothing else."""
        lone, (one, two) = _parts(self.holds[number])
        alone, (first, second) = _parts(runs)
        array = self.tables[table]
        both = np.full((len(runs), len(one)), np.inf)
        if len(one):
            moves = self.moves[number]
            filled = np.minimum(array[:, one] + moves[one, two], array[:, two] + moves[two, one])
            twice = np.minimum(
                array[np.ix_(first, one)] + array[np.ix_(second, two)],
                array[np.ix_(first, two)] + array[np.ix_(second, one)],
            )
            if number in self.views:
                filled, twice = np.where(one < two, np.inf, filled), np.where(one < two, twice, np.inf)
            both = np.concatenate([filled[alone], twice])
        none = np.full((len(first), len(lone)), np.inf)
        return np.concatenate([np.concatenate([array[np.ix_(alone, lone)], none]), both], axis=1)


def _parts(sets: Sets) -> tuple[np.ndarray, np.ndarray]:
    """The lone labels, and the pairs as two rows."""
    lone = np.asarray([one[0] for one in sets if len(one) == 1], np.int64)
    pairs = np.asarray([two for two in sets if len(two) == 2], np.int64).reshape(-1, 2)
    return lone, pairs.T
