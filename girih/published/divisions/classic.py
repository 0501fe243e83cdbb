"""What people do without a search, and what earlier systems searched (Tofu §7.3).

Each is a search in the same space and under the same cost as the exact one, so that figures compare. Most fix some
layouts and let the exact search choose the rest: they are the best of their kind.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from girih.graph import Graph
from girih.layout import REPLICATE
from girih.partition.search import Search
from girih.partition.searches.data_parallel import along
from girih.partition.searches.exact import exact
from girih.partition.solver.elimination import cost_of
from girih.partition.space.options import SECONDS, TOFU, Rules
from girih.partition.space.problem import Candidates, Objective, PartitionProblem, build
from girih.partition.strategy import SearchResult
from girih.rewrite.certificate import Certificate

FREE = Rules(repeat=True)


@dataclass(frozen=True)
class Rows(Search):
    """AllRow-Greedy: every tensor is split along its first dimension, every node divided as suits that best."""

    name: ClassVar[str] = "row"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        mesh = objective.machine.mesh
        layouts = {name: (along(value, 0, mesh),) for name, value in graph.values.items()}
        return exact(
            graph,
            objective,
            candidates=Candidates(layouts, {}),
            seconds=self.seconds,
            space="every tensor split by rows",
        )


@dataclass(frozen=True)
class EqualChop(Search):
    """EqualChop: the optimum among strategies that cut every tensor and node along one dimension only."""

    name: ClassVar[str] = "equal"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        base = SECONDS if objective.unit == "seconds" else TOFU
        rules = Rules(base.repeat, base.partial, base.small, one_dimension=True)
        return exact(graph, objective, rules=rules, seconds=self.seconds, space="one dimension of each tensor and node")


@dataclass(frozen=True)
class NoReduction(Search):
    """ICML18 (Jia et al.): the optimum among strategies that never divide a reduction."""

    name: ClassVar[str] = "no-reduction"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        base = SECONDS if objective.unit == "seconds" else TOFU
        rules = Rules(base.repeat, base.partial, base.small, reductions=False)
        return exact(graph, objective, rules=rules, seconds=self.seconds, space="no division along reductions")


@dataclass(frozen=True)
class Greedy(Search):
    """The largest tensor first takes its cheapest layout, then the next largest (Tofu §7.3, of Spartan).

    Spartan's own order is by connectivity: `girih.partition.searches.spartan`. A layout's cost is what its incident
    nodes then cost at least, given the layouts already taken.
    """

    name: ClassVar[str] = "greedy"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        started = time.perf_counter()
        problem = build(graph, objective, SECONDS if objective.unit == "seconds" else TOFU)
        labels = greedy_labels(problem)
        cost = cost_of(problem.problem, labels)
        certificate = Certificate(
            cost,
            0.0,
            objective.unit,
            "none",
            "every tensor has its layout",
            "greedy tiling, largest tensor first",
            {"seconds to search": round(time.perf_counter() - started, 3)},
        )
        return SearchResult(problem.strategy(labels), certificate)


def greedy_labels(item: PartitionProblem) -> np.ndarray:
    """Labels of the greedy tiling; nodes take their best division last."""
    problem = item.problem
    values = len(item.layouts)
    running = [
        problem.tables[table].astype(float, copy=True) if table >= 0 else np.zeros(size)
        for size, table in zip(problem.domains, problem.unary, strict=True)
    ]
    incident: list[list[tuple[int, int]]] = [[] for _ in range(values)]
    for node, value, table in problem.pairs:
        incident[value].append((node, table))
    size_of = [0] * values
    for name, number in item.variable.items():
        size_of[number] = max(size_of[number], item.graph.values[name].bytes)
    labels = np.zeros(len(problem.domains), np.int64)
    for value in sorted(range(values), key=lambda number: -size_of[number]):
        costs = running[value].copy()
        together: dict[int, np.ndarray] = {}
        for node, table in incident[value]:
            together[node] = together.get(node, 0.0) + problem.tables[table]  # type: ignore[assignment]
        for node, table_of_node in together.items():
            costs += (running[node][:, None] + table_of_node).min(axis=0)
        labels[value] = int(np.argmin(costs))
        for node, table_of_node in together.items():
            running[node] = running[node] + table_of_node[:, labels[value]]
    for node in range(values, len(problem.domains)):
        labels[node] = int(np.argmin(running[node]))
    return labels


@dataclass(frozen=True)
class Single(Search):
    """Everything on every device: what one device would do."""

    name: ClassVar[str] = "single"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        whole = (REPLICATE,) * objective.machine.mesh.axes
        layouts = dict.fromkeys(graph.values, (whole,))
        divisions = {number: np.asarray([whole], np.int64) for number in range(len(graph.nodes))}
        return exact(
            graph,
            objective,
            rules=FREE,
            candidates=Candidates(layouts, divisions),
            seconds=self.seconds,
            space="undivided",
        )
