"""Spartan's smart tiling (Huang et al., USENIX ATC 2015, §3.3 and Fig. 8): greedy, the most connected array first.

The tiling graph is girih's constraint problem: a node group is a value, its tiling nodes are the value's layouts, the
edges between two groups are an operator's tables of exact transfer costs, and the intermediate nodes of a join_update
are the operator's divisions. A group's connectivity is the number of groups beside it: what its operator reads, and
what operators make of it. For each tiling of the group in turn, an operator beside it counts with what it then costs at
least: values already decided stay as they are, others as suits best. A view follows its base: its tiling is
the one that the base's tiling gives for nothing, so the operators that read the view are counted too, and it is decided
with its base. Where a view is decided first, its base may lie otherwise and pay. A tiling that holds a second copy
(§3.4, "duplication tile") may be chosen while the memory budget has room for it.

The paper adjusts the cost of a join_update by what its last run updated; here the graph itself then says what moves
(`girih.array.session.profile`), and this search prices it like any other.

Where the paper differs: it charges an operator for each input by itself, the input's whole size where tilings differ;
here an operator is charged once, with the bytes that are moved. Ties go to the first tiling in the order of layouts,
and among groups of equal connectivity to the first in the program.

Not optimal: Fig. 11 is a program in which two views of one array conflict (`tests/partition/test_spartan.py`).
Cost: operators × labels × divisions for each value, its views included.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from girih.graph import Graph
from girih.ops import description_of
from girih.partition.search import Search
from girih.partition.solver.elimination import Problem, cost_of
from girih.partition.space.options import SECONDS, TOFU
from girih.partition.space.problem import Objective, PartitionProblem, build
from girih.partition.strategy import FloatTable, SearchResult
from girih.rewrite.certificate import Certificate

SPACE = "Spartan's greedy tiling"


@dataclass(frozen=True)
class Spartan(Search):
    """Spartan's smart tiling: greedy, the most connected array first (Spartan §3.3).

    Each value has one layout; `girih.partition.searches.tiled` has it with second copies.

    It ends by itself, whatever its `seconds` are.
    """

    name: ClassVar[str] = "spartan"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        started = time.perf_counter()
        item = build(graph, objective, SECONDS if objective.unit == "seconds" else TOFU)
        labels = spartan_labels(item, item.problem)
        spent = round(time.perf_counter() - started, 4)
        return SearchResult(item.strategy(labels), greedy_certificate(item.problem, labels, objective, spent))


def greedy_certificate(problem: Problem, labels: np.ndarray, objective: Objective, spent: float) -> Certificate:
    """The certificate of the greedy search, which proves nothing."""
    cost = cost_of(problem, labels)
    statistics: dict[str, float | int | str] = {"seconds to search": spent}
    return Certificate(cost, 0.0, objective.unit, "none", "every array has its tiling", SPACE, statistics)


def spartan_labels(
    item: PartitionProblem,
    problem: Problem,
    copies: tuple[FloatTable, ...] | None = None,
    budget: float = 0.0,
) -> np.ndarray:
    """The labels of values and nodes, in a problem of the item's variables and pairs (its own, or a wider one).

    copies: for each value and label the bytes of its second copy, of which all together may take `budget`.
    """
    search = TilingGraph(item, problem)
    left = budget
    for value in search.order():
        if search.labels[value] >= 0:
            continue
        costs = search.costs(value)
        if copies is not None:
            costs = np.where(copies[value] <= left, costs, np.inf)
        label = int(np.argmin(costs))
        if copies is not None:
            left -= copies[value][label]
        search.decide(value, label)
    return search.finished()


class TilingGraph:
    """The tiling graph, and what of it is decided: `labels` of the values, -1 where there is none yet."""

    def __init__(self, item: PartitionProblem, problem: Problem) -> None:
        self.problem = problem
        self.values = len(item.layouts)
        self.labels = np.full(len(problem.domains), -1, np.int64)
        self.tables: list[dict[int, FloatTable]] = [{} for _ in item.graph.nodes]
        """For each node, by value, the cost [divisions, labels of the value] of what it reads or makes of it."""
        self.own = [problem.tables[table] if table >= 0 else None for table in problem.unary]
        for variable, value, table in problem.pairs:
            here = self.tables[variable - self.values]
            cost = problem.tables[table]
            here[value] = here[value] + cost if value in here else cost
        self.around: list[list[int]] = [[] for _ in range(self.values)]
        self.views: list[list[tuple[int, int]]] = [[] for _ in range(self.values)]
        beside: list[set[int]] = [set() for _ in range(self.values)]
        for number, node in enumerate(item.graph.nodes):
            for value in self.tables[number]:
                self.around[value].append(number)
            written = {item.variable[name] for name in node.outputs}
            read = {item.variable[name] for name in node.inputs} - written
            for value in written:
                beside[value] |= read
            for value in read:
                beside[value] |= written
            description = description_of(item.graph, node)
            if description is not None and description.operator.view and len(read) == 1:
                self.views[next(iter(read))].append((number, next(iter(written))))
        self.connectivity = [len(groups) for groups in beside]

    def order(self) -> list[int]:
        """Values, the most connected first."""
        return sorted(range(self.values), key=lambda value: -self.connectivity[value])

    def costs(self, value: int, besides: int = -1) -> FloatTable:
        """What the node groups around cost at least, for each tiling of the value (Fig. 8, FindCost)."""
        own = self.own[value]
        total: FloatTable = own.copy() if own is not None else np.zeros(self.problem.domains[value])
        for number in self.around[value]:
            if number != besides:
                total += (self.rest(number, value)[:, None] + self.tables[number][value]).min(axis=0)
        for number, view in self.views[value]:
            if number != besides and self.labels[view] < 0:
                beyond = self.costs(view, number)
                total += beyond[[self.following(number, value, view, label, beyond) for label in range(len(total))]]
        return total

    def rest(self, number: int, besides: int) -> FloatTable:
        """[divisions]: what a node costs with all but one of its values, each as decided or at its best."""
        own = self.own[self.values + number]
        total: FloatTable = own.copy() if own is not None else np.zeros(self.problem.domains[self.values + number])
        for value, table in self.tables[number].items():
            if value != besides:
                total += table[:, self.labels[value]] if self.labels[value] >= 0 else table.min(axis=1)
        return total

    def following(self, number: int, value: int, view: int, label: int, beyond: FloatTable) -> int:
        """The tiling of a view that its base's tiling gives; of several (of a base with a second copy) the one that
        costs least `beyond`, at the view's readers."""
        reads, makes = self.tables[number][value][:, label], self.tables[number][view]
        costs = (reads[:, None] + makes).min(axis=0)
        return int(np.argmin(np.where(costs <= costs.min(), beyond, np.inf)))

    def decide(self, value: int, label: int) -> None:
        """Take a tiling; views that are still free follow."""
        self.labels[value] = label
        for number, view in self.views[value]:
            if self.labels[view] < 0:
                self.decide(view, self.following(number, value, view, label, self.costs(view, number)))

    def finished(self) -> np.ndarray:
        """All labels; each node has the division that suits its values best."""
        for number in range(len(self.tables)):
            self.labels[self.values + number] = int(np.argmin(self.rest(number, -1)))
        return self.labels
