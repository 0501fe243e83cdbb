"""The noun Data: a graph, what is known of its vertices, and which of them are for training, validation and test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from girih.gnn.adjacency import Adjacency
from girih.gnn.data.errors import DataError
from girih.gnn.data.watch import Watch, checksums

Array = NDArray[Any]
SPLITS = ("train", "validation", "test")
ROWS = 1 << 14
"""Rows of features that are looked at together."""
UNLABELLED = -100
"""What a vertex outside of training has as its target: torch's losses ignore it."""


PLANS = "girih.gnn.plans"
"""What makes plans of data, by its name: it needs data itself."""


@dataclass(frozen=True, eq=False)
class Data:
    """A graph to learn on. Arrays may be mapped files; nothing writes to them.

    graph: each vertex with the neighbours that it reads. x: float[vertices, features], or None. labels:
    int64[vertices] from 0, -1 where there is none; or float32[vertices, classes] of zeros and ones, where a vertex may
    have several. train, validation, test: bool[vertices], or None. edge_features: float[edges, …], in the order of the
    graph's edges. names: of the classes. notes: what was mended while it was read, as sentences. name: for messages.
    watch: notices that the file whose arrays are mapped has changed. ordered_from: where the vertices have been put in
    another order, the checksums of the data as it was before.

    Raises:
        DataError: the parts do not fit together.
    """

    graph: Adjacency
    x: Array | None = None
    labels: Array | None = None
    train: Array | None = None
    validation: Array | None = None
    test: Array | None = None
    edge_features: Array | None = None
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    name: str = "the graph"
    watch: Watch | None = field(default=None, repr=False)
    ordered_from: Mapping[str, int] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_graph(self.graph, self.name)
        if self.x is not None:
            check_features(self.x, self.vertices, self.name)
        if self.labels is not None:
            _check_labels(self.labels, self.vertices, self.names, self.name)
        if self.edge_features is not None and len(self.edge_features) != self.edges:
            _refuse(self.name, f"has {len(self.edge_features)} rows of edge features for {self.edges} edges")
        _check_splits(self)

    @property
    def vertices(self) -> int:
        return self.graph.vertices

    @property
    def edges(self) -> int:
        return self.graph.edges

    @property
    def features(self) -> int:
        """How many numbers each vertex has: what a network's first layer takes."""
        return 0 if self.x is None else int(self.x.shape[1])

    @cached_property
    def classes(self) -> int:
        """How many classes there are: what a network's last layer gives."""
        if self.labels is None:
            return len(self.names)
        if self.labels.ndim == 2:
            return int(self.labels.shape[1])
        return max(len(self.names), int(self.labels.max(initial=-1)) + 1)

    @cached_property
    def directed(self) -> bool:
        """Is there an edge without its reverse?"""
        from scipy import sparse

        graph = self.graph
        one = np.ones(graph.edges, np.int8)
        rows = sparse.csr_array((one, graph.neighbours, graph.offsets), (graph.vertices, graph.sources), copy=False)
        if graph.vertices != graph.sources:
            return True
        columns = rows.tocsc()
        return not (np.array_equal(columns.indptr, graph.offsets) and np.array_equal(columns.indices, graph.neighbours))

    @cached_property
    def components(self) -> int:
        """How many parts the graph has between which there is no edge, whichever way edges point."""
        from scipy import sparse

        graph, size = self.graph, max(self.graph.vertices, self.graph.sources)
        offsets = np.concatenate([graph.offsets, np.full(size - graph.vertices, graph.edges)])
        rows = sparse.csr_array((np.ones(graph.edges, np.int8), graph.neighbours, offsets), (size, size), copy=False)
        return int(sparse.csgraph.connected_components(rows, directed=False, return_labels=False))

    def with_step(self, step: Any) -> tuple[Any, Any]:
        """What `girih.plan(step, data)` plans: the step with this data as a part of its program, and an empty batch."""
        from girih.gnn.data.resident import with_data

        return with_data(step, self)

    def prepared(self, step: Any, machine: Any, search: Any) -> tuple[Data, Any, Any]:
        """This data cut for a machine's devices, the machine, and the search of a plan; `girih.plan` asks."""
        return import_module(PLANS).prepared(step, self, machine, search)  # type: ignore[no-any-return]

    def planned(self, plan: Any, step: Any, machine: Any, options: Any) -> Any:
        """The plan that was made of a step with this data, as one that learns; `girih.plan` asks."""
        return import_module(PLANS).planned(plan, step, self, machine, options)

    def with_model(self, model: Any, learns: bool, graph: Any) -> Any:
        """The network together with this data, as it is in the program of a plan, whose graph of operators is given;
        learns: with the labels."""
        from girih.gnn.data.resident import resident_of

        return resident_of(model, import_module(PLANS).cut_as(self, graph), learns, graph)

    @property
    def arrays(self) -> dict[str, Array]:
        """What a program has of it, by the names under which a user may write into it."""
        graph = self.graph
        named = {
            "x": self.x, "labels": self.labels, "train": self.train, "graph.offsets": graph.offsets,
            "graph.neighbours": graph.neighbours, "graph.weights": graph.weights,
        }  # fmt: skip
        return {name: array for name, array in named.items() if array is not None}

    def checksums(self) -> dict[str, int]:
        """A checksum for each array by name, computed from what it holds now."""
        return checksums(self.arrays)

    def but(self, **changes: Any) -> Self:
        """The same data with other parts; all is checked again."""
        return replace(self, **({"ordered_from": None} | changes))

    def split(self, train: float = 0.6, validation: float = 0.2, *, seed: int = 0) -> Self:
        """The same data with a random split of its labelled vertices; the rest of them is the test's.

        train, validation: shares of the labelled vertices.

        Raises:
            DataError: there are no labels, or the shares are none.
        """
        if self.labels is None:
            _refuse(self.name, "has no labels to split: give labels=")
        if not (train > 0 and validation >= 0 and train + validation <= 1):
            _refuse(self.name, f"cannot be split in shares of {train} and {validation}: expected at most 1 together")
        labelled = np.arange(self.vertices) if self.labels.ndim == 2 else np.flatnonzero(self.labels >= 0)
        order = np.random.default_rng(seed).permutation(labelled)
        edges = [0, round(train * len(order)), round((train + validation) * len(order)), len(order)]
        masks = {name: np.zeros(self.vertices, bool) for name in SPLITS}
        for number, name in enumerate(SPLITS):
            masks[name][order[edges[number] : edges[number + 1]]] = True
        return self.but(**masks)

    def target(self) -> Array:
        """The labels of the training vertices; others have -100, or rows of NaN where a vertex may have several labels.

        Raises:
            DataError: there are no labels.
        """
        if self.labels is None:
            _refuse(self.name, "has no labels to learn: give labels=")
        chosen = np.ones(self.vertices, bool) if self.train is None else self.train
        if self.labels.ndim == 2:
            return np.where(chosen[:, None], self.labels, np.float32(np.nan)).astype(np.float32)
        return np.where(chosen & (self.labels >= 0), self.labels, UNLABELLED)


def _refuse(name: str, why: str) -> NoReturn:
    raise DataError(f"{name} {why}")


def check_graph(graph: Adjacency, name: str) -> None:
    """Raises DataError where compressed rows are none: offsets that descend, neighbours that are no vertices."""
    offsets, neighbours = graph.offsets, graph.neighbours
    if not graph.vertices or not graph.edges:
        what = "no vertices" if not graph.vertices else f"{graph.vertices} vertices and no edges"
        _refuse(name, f"has {what}: a graph network has nothing to read there")
    if offsets[0] != 0 or offsets[-1] != graph.edges or (np.diff(offsets) < 0).any():
        wrong = int(np.argmax(np.diff(offsets) < 0))
        _refuse(
            name,
            f"has offsets from {offsets[0]} to {offsets[-1]} for {graph.edges} neighbours"
            + (f", which descend at vertex {wrong}" if (np.diff(offsets) < 0).any() else "")
            + ": expected them to ascend from 0 to the number of neighbours",
        )
    for first in range(0, graph.edges, ROWS << 6):
        part = neighbours[first : first + (ROWS << 6)]
        if (out := (part < 0) | (part >= graph.sources)).any():
            edge = first + int(np.argmax(out))
            vertex = int(np.searchsorted(offsets, edge, side="right")) - 1
            _refuse(
                name,
                f"has {neighbours[edge]} as a neighbour of vertex {vertex}: neighbours are numbers from 0 to "
                f"{graph.sources - 1}",
            )
    weights = graph.weights
    if weights is not None:
        if weights.shape != neighbours.shape:
            _refuse(name, f"has {len(weights)} weights for {graph.edges} edges")
        if not np.isfinite(weights).all():
            edge = int(np.argmin(np.isfinite(weights)))
            vertex = int(np.searchsorted(offsets, edge, side="right")) - 1
            _refuse(name, f"has the weight {weights[edge]} at the edge from {neighbours[edge]} to {vertex}")


def blocks_of_rows(array: Array) -> Iterator[tuple[int, Array]]:
    """(first row, rows) of an array, so many at once that a mapped file of any size can be gone through."""
    step = max(1, ROWS * 64 // max(1, array[:1].size))
    for first in range(0, len(array), step):
        yield first, array[first : first + step]


def check_features(x: Array, vertices: int, name: str) -> None:
    """Raises DataError where features are no finite numbers, a row for each vertex."""
    if x.ndim != 2 or len(x) != vertices:
        _refuse(name, f"has features of shape {list(x.shape)}: expected a row for each of {vertices} vertices")
    if not np.issubdtype(x.dtype, np.floating):
        _refuse(name, f"has features of type {x.dtype}: expected floating-point numbers")
    for first, rows in blocks_of_rows(x):
        if not (finite := np.isfinite(rows)).all():
            row, column = np.argwhere(~finite)[0]
            _refuse(
                name,
                f"has {rows[row, column]} as feature {column} of vertex {first + row}: features must be finite; "
                "mend them, for example with numpy.nan_to_num",
            )


def _check_labels(labels: Array, vertices: int, names: tuple[str, ...], name: str) -> None:
    if len(labels) != vertices:
        _refuse(name, f"has {len(labels)} labels for {vertices} vertices")
    if labels.ndim == 2:
        if ((labels != 0) & (labels != 1)).any():
            vertex = int(np.argmax(((labels != 0) & (labels != 1)).any(1)))
            _refuse(name, f"has labels of vertex {vertex} that are neither 0 nor 1, in columns of classes")
        return
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        _refuse(name, f"has labels of type {labels.dtype}{list(labels.shape)}: expected a whole number for each vertex")
    if (wrong := labels < -1).any():
        vertex = int(np.argmax(wrong))
        _refuse(name, f"has the label {labels[vertex]} at vertex {vertex}: labels are from 0, or -1 for none")
    if names and int(labels.max(initial=-1)) >= len(names):
        vertex = int(np.argmax(labels >= len(names)))
        _refuse(name, f"has the label {labels[vertex]} at vertex {vertex}: there are {len(names)} classes")
    if not (labels >= 0).any():
        _refuse(name, "has no label but -1")


def _check_splits(data: Data) -> None:
    seen: dict[str, Array] = {}
    for split in SPLITS:
        mask = getattr(data, split)
        if mask is None:
            continue
        if mask.dtype != bool or mask.shape != (data.vertices,):
            _refuse(
                data.name,
                f"has a mask {split!r} of {mask.dtype}{list(mask.shape)}: expected bool[{data.vertices}]; where there "
                "are several splits in columns, choose one",
            )
        for other, known in seen.items():
            if (both := mask & known).any():
                vertex = int(np.argmax(both))
                _refuse(
                    data.name,
                    f"has vertex {vertex} for {split} and for {other}, with {int(both.sum()) - 1} more: what one "
                    "learns from cannot test what was learned",
                )
        seen[split] = mask
    if data.train is not None and not data.train.any():
        _refuse(data.name, "has no vertex for training")
    if data.train is None or data.labels is None or data.labels.ndim == 2:
        return
    if (missing := data.train & (data.labels < 0)).any():
        _refuse(data.name, f"has vertex {int(np.argmax(missing))} for training, which has no label")
