"""What people do without a search, and what earlier systems searched (Tofu §7.3).

Each is a search in the same space and under the same cost as the exact one, so that figures compare. Most fix some
layouts and let the exact search choose the rest: they are the best of their kind.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from girih.graph import Graph, Value
from girih.layout import REPLICATE, Layout, Mesh
from girih.ops import Description
from girih.ops.known import descriptions
from girih.partition.search import Search
from girih.partition.searches.exact import exact
from girih.partition.solver.elimination import cost_of
from girih.partition.space.options import SECONDS, TOFU, Rules, divisions_along
from girih.partition.space.problem import Candidates, Objective, PartitionProblem, build
from girih.partition.strategy import Certificate, SearchResult

FREE = Rules(repeat=True)


def along(value: Value, dimension: int | None, mesh: Mesh) -> Layout:
    """All axes split one dimension, as far as it goes; the rest keeps copies."""
    layout, parts = [], 1
    for size in mesh.sizes:
        fits = dimension is not None and value.shape and value.shape[dimension] >= parts * size
        layout.append(dimension if fits and dimension is not None else REPLICATE)
        parts *= size if fits else 1
    return tuple(layout)


def batch_dimensions(graph: Graph) -> dict[str, int]:
    """The dimension of each value that carries the batch: the first of the batch's tensors, followed downstream.

    An index variable carries the batch if it leads (has the largest coefficient in) a read of a batch dimension.
    """
    dimensions = {item.name: 0 for item in graph.inputs if item.role == "batch" and graph.values[item.name].shape}
    for node, description in zip(graph.nodes, descriptions(graph), strict=True):
        if description is not None and not dimensions.keys().isdisjoint(node.inputs):
            dimension = _carried(description, tuple(map(dimensions.get, node.inputs)))
            if dimension is not None:
                dimensions.setdefault(node.outputs[0], dimension)
    return dimensions


@lru_cache(maxsize=65536)
def _carried(description: Description, dimensions: tuple[int | None, ...]) -> int | None:
    """The dimension of the result that carries the batch, by the inputs' ones."""
    carrying = _carrying(description, dimensions)
    for dimension, index in enumerate(description.place):
        leading = max(index.terms, key=lambda term: term[1], default=None)
        if leading is not None and leading[0] in carrying:
            return dimension
    return None


def _carrying(description: Description, dimensions: tuple[int | None, ...]) -> set[int]:
    carrying: set[int] = set()
    for dimension, reads, kind in zip(dimensions, description.reads, description.inputs, strict=True):
        if dimension is None or kind.shape[dimension] <= 1:
            continue
        for read in reads:
            index = read[dimension]
            if index is not None and index.terms:
                carrying.add(max(index.terms, key=lambda term: term[1])[0])
    return carrying


@dataclass(frozen=True)
class DataParallel(Search):
    """Data parallelism: the batch is split over all devices, weights and optimizer state are replicated."""

    name: ClassVar[str] = "data"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        return _data_parallel(graph, objective, self.seconds, sharded=False)


@dataclass(frozen=True)
class ShardedDataParallel(Search):
    """Data parallelism whose weights and optimizer state are split, and fetched where they are used (ZeRO-3, FSDP)."""

    name: ClassVar[str] = "sharded"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        return _data_parallel(graph, objective, self.seconds, sharded=True)


def _data_parallel(graph: Graph, objective: Objective, seconds: float, *, sharded: bool) -> SearchResult:
    mesh = objective.machine.mesh
    layouts: dict[str, tuple[Layout, ...]] = {}
    carriers = batch_dimensions(graph)
    for name, dimension in carriers.items():
        value = graph.values[name]
        if value.shape[dimension] >= mesh.devices:
            layouts[name] = (along(value, dimension, mesh),)
    for item in graph.state_inputs:
        value = graph.values[item.name]
        longest = int(np.argmax(value.shape)) if value.shape else None
        layouts[item.name] = (along(value, longest if sharded else None, mesh),)
    divisions = along_the_batch(graph, mesh, carriers)
    space = f"data parallel, {'sharded' if sharded else 'replicated'} state; other layouts searched"
    candidates = Candidates(layouts, divisions)
    # With partial sums: the gradient of a weight that is used several times is reduced once.
    return exact(graph, objective, rules=SECONDS, candidates=candidates, seconds=seconds, space=space)


def along_the_batch(graph: Graph, mesh: Mesh, carriers: Mapping[str, int] | None = None) -> dict[int, np.ndarray]:
    """For the nodes that can be divided along the batch by all axes, these divisions alone.

    carriers: `batch_dimensions`, where they are known.

    Without this, weights' gradients would be computed whole on every device where activations are the smaller.
    """
    carriers = batch_dimensions(graph) if carriers is None else carriers
    layouts = {}
    for number, (node, description) in enumerate(zip(graph.nodes, descriptions(graph), strict=True)):
        if description is not None:
            codes = _along(description, tuple(map(carriers.get, node.inputs)), mesh)
            if len(codes):
                layouts[number] = codes
    return layouts


@lru_cache(maxsize=65536)
def _along(description: Description, dimensions: tuple[int | None, ...], mesh: Mesh) -> np.ndarray:
    """The divisions of a node by all axes along the batch, by the dimensions of its inputs that carry it."""
    return divisions_along(description, _carrying(description, dimensions), mesh)


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
