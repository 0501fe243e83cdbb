"""Data parallelism: the batch is split over the devices, the state is copied, or split as well (ZeRO-3, FSDP).

What the batch does not decide (layouts of other values, divisions that do not carry it) the exact search chooses, so
that the answer is the best of its kind, in the same space and under the same cost as other searches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from girih.graph import Graph, Value
from girih.layout import REPLICATE, Layout, Mesh
from girih.ops import Description
from girih.ops.known import descriptions, several_descriptions
from girih.partition.search import Search
from girih.partition.searches.exact import exact
from girih.partition.space.options import SECONDS, divisions_along
from girih.partition.space.problem import Candidates, Objective
from girih.partition.strategy import SearchResult


def along(value: Value, dimension: int | None, mesh: Mesh) -> Layout:
    """All axes split one dimension, as far as it goes; the rest keeps copies."""
    layout, parts = [], 1
    for size in mesh.sizes:
        fits = dimension is not None and value.shape and value.shape[dimension] >= parts * size
        layout.append(dimension if fits and dimension is not None else REPLICATE)
        parts *= size if fits else 1
    return tuple(layout)


def batch_dimensions(graph: Graph, known: Mapping[str, int] | None = None) -> dict[str, int]:
    """The dimension of each value that carries the batch: the first of the batch's tensors, followed downstream.

    An index variable carries the batch if it leads (has the largest coefficient in) a read of a batch dimension.
    known: the values that carry something else, and their dimensions, to follow that.
    """
    batch = [item.name for item in graph.inputs if item.role == "batch" and graph.values[item.name].shape]
    dimensions = dict(dict.fromkeys(batch, 0) if known is None else known)
    for node, several in zip(graph.nodes, several_descriptions(graph), strict=True):
        if several and not dimensions.keys().isdisjoint(node.inputs):
            carried = tuple(map(dimensions.get, node.inputs))
            for name, description in zip(node.outputs, several, strict=True):
                dimension = _carried(description, carried)
                if dimension is not None:
                    dimensions.setdefault(name, dimension)
    return dimensions


@lru_cache(maxsize=65536)
def _carried(description: Description, dimensions: tuple[int | None, ...]) -> int | None:
    """The dimension of the result that carries the batch, by the inputs' ones."""
    variables = carrying(description, dimensions)
    for dimension, index in enumerate(description.place):
        leading = max(index.terms, key=lambda term: term[1], default=None)
        if leading is not None and leading[0] in variables:
            return dimension
    return None


def carrying(description: Description, dimensions: tuple[int | None, ...]) -> set[int]:
    """The index variables that go through the batch, by the dimensions of the inputs that carry it."""
    found: set[int] = set()
    for dimension, reads, kind in zip(dimensions, description.reads, description.inputs, strict=True):
        if dimension is None or kind.shape[dimension] <= 1:
            continue
        for read in reads:
            index = read[dimension]
            if index is not None and index.terms:
                found.add(max(index.terms, key=lambda term: term[1])[0])
    return found


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
    candidates = data_parallel_candidates(graph, objective.machine.mesh, sharded=sharded)
    space = f"data parallel, {'sharded' if sharded else 'replicated'} state; other layouts searched"
    # With partial sums: the gradient of a weight that is used several times is reduced once.
    return exact(graph, objective, rules=SECONDS, candidates=candidates, seconds=seconds, space=space)


def data_parallel_candidates(graph: Graph, mesh: Mesh, *, sharded: bool) -> Candidates:
    """What data parallelism fixes: values and nodes that carry the batch, and the state, in copies or sharded."""
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
    return Candidates(layouts, along_the_batch(graph, mesh, carriers))


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
    return divisions_along(description, carrying(description, dimensions), mesh)
