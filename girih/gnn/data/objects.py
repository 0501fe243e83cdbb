"""Graphs of other libraries: torch_geometric's Data, networkx, SciPy's sparse matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from girih.gnn.adjacency import Adjacency
from girih.gnn.data.data import SPLITS
from girih.gnn.data.edges import Edges, Mending, compress
from girih.gnn.data.errors import DataError

Array = NDArray[Any]
Parts = dict[str, Any]
"""Fields of a Data by name; features and labels as they come."""
NAMES = {"train": "train_mask", "validation": "val_mask", "test": "test_mask"}
"""What torch_geometric calls the splits."""


def as_array(item: Any) -> Array:
    """An array of a tensor, list or array."""
    return item.detach().cpu().numpy() if hasattr(item, "detach") else np.asarray(item)


def from_geometric(data: Any, mending: Mending) -> Parts:
    """torch_geometric's Data, or a mapping with its names: edge_index, x, y, edge_attr, edge_weight, train_mask, ….

    Edges stay as they are, self loops and duplicates too, where nothing else is asked for.

    Raises:
        DataError: there is no edge_index; or parts do not fit.
    """
    own = dict(data) if isinstance(data, Mapping) else data.to_dict()
    if own.get("edge_index") is None:
        known = ", ".join(sorted(own))
        raise DataError(f"{_name(data)} has no edge_index, only {known or 'nothing'}: girih reads edges as edge_index")
    index = as_array(own["edge_index"])
    if index.ndim != 2 or len(index) != 2 or not np.issubdtype(index.dtype, np.integer):
        raise DataError(f"{_name(data)} has an edge_index of {index.dtype}{list(index.shape)}: expected integers[2, E]")
    sizes = [len(as_array(own[key])) for key in ("x", "y") if own.get(key) is not None]
    vertices = int(own.get("num_nodes") or 0) or (sizes[0] if sizes else None)
    named = own.get("edge_weight") if own.get("edge_weight") is not None else own.get("edge_attr")
    values = None if named is None else as_array(named).reshape(index.shape[1], -1)
    dtype = np.float64 if values is not None and values.dtype == np.float64 else np.float32
    edges = Edges(
        _name(data), [(index[0], index[1], values)], vertices, columns=0 if values is None else values.shape[1],
        dtype=dtype,
    )  # fmt: skip
    as_it_is = mending.duplicates is None and not mending.undirected
    chosen = replace(mending, duplicates="keep") if as_it_is else mending
    parts = _with_values(*compress(edges, chosen))
    parts |= {"x": own.get("x"), "labels": own.get("y")}
    return parts | {split: own.get(name) for split, name in NAMES.items()}


def _name(data: Any) -> str:
    return f"the {type(data).__name__}"


def _with_values(graph: Adjacency, values: Array | None, notes: tuple[str, ...]) -> Parts:
    """A value for each edge is its weight; several are its features."""
    if values is not None and values.shape[1] == 1:
        graph, values = replace(graph, weights=values[:, 0]), None
    return {"graph": graph, "edge_features": values, "notes": notes}


def from_edges(edges: Edges, mending: Mending) -> Parts:
    return _with_values(*compress(edges, mending))


def from_networkx(graph: Any, mending: Mending) -> Parts:
    """networkx: vertices are numbered in the order in which the graph has them; an edge's `weight` is its weight, 1
    where only others have one, as in networkx itself.

    What all vertices have as `x` (or `features`), and as `y` (or `label`), are their features and labels.
    """
    number = {node: place for place, node in enumerate(graph)}
    rows = [(number[one], number[other], data) for one, other, data in graph.edges(data=True)]
    read = np.array([row[0] for row in rows], np.int64)
    reading = np.array([row[1] for row in rows], np.int64)
    plain = sum("weight" not in row[2] for row in rows)
    weighted = plain < len(rows)
    values = np.array([[row[2].get("weight", 1)] for row in rows], np.float32) if weighted else None
    chosen = mending if graph.is_directed() else replace(mending, undirected=True)
    edges = Edges("the networkx graph", [(read, reading, values)], len(number), columns=int(weighted))
    parts = from_edges(edges, chosen)
    if weighted and plain:
        parts["notes"] += (f"{plain} of {len(rows)} edges have no weight, and count as 1",)
    for field, keys in (("x", ("x", "features")), ("labels", ("y", "label"))):
        for key in keys:
            own = [data.get(key) for _, data in graph.nodes(data=True)]
            if own and all(item is not None for item in own):
                parts[field] = _numbered(own, parts) if field == "labels" else own
                break
    return parts


def _numbered(labels: list[Any], parts: Parts) -> list[Any]:
    """Labels that are words, as numbers of their names in order."""
    if not all(isinstance(label, str) for label in labels):
        return labels
    names = sorted(set(labels))
    parts["names"] = tuple(names)
    return [names.index(label) for label in labels]


def from_sparse(matrix: Any, mending: Mending) -> Parts:
    """A sparse matrix of SciPy: row v has the vertices that v reads, as in `Adjacency`; entries that are all one are no
    weights."""
    entries = matrix.tocoo()
    if entries.ndim != 2 or entries.shape[1] < 1:
        raise DataError(f"the matrix has the shape {list(matrix.shape)}: expected vertices × vertices")
    reading, read = entries.row, entries.col
    values = np.asarray(entries.data)
    if values.dtype.kind == "c":
        raise DataError("the matrix has complex entries: weights of edges are real numbers")
    if values.dtype == bool:
        reading, read, values = reading[values], read[values], values[values]
    plain = values.dtype == bool or not len(values) or bool((values == 1).all())
    dtype = np.float64 if values.dtype == np.float64 else np.float32
    rows, columns = entries.shape
    edges = Edges(
        "the matrix", [(read, reading, None if plain else values.astype(dtype)[:, None])], rows, columns,
        columns=int(not plain), dtype=dtype,
    )  # fmt: skip
    return from_edges(edges, mending)


def split_of(parts: Mapping[str, Any], vertices: int) -> Parts:
    """Splits as masks: of masks, or of vertices' numbers."""
    return {name: mask_of(parts[name], vertices, name) for name in SPLITS if parts.get(name) is not None}


def mask_of(given: Any, vertices: int, name: str) -> Array:
    """A mask of a mask, or of indices.

    Raises:
        DataError: an index is no vertex, or occurs twice.
    """
    array = as_array(given)
    if array.dtype == bool:
        return array
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise DataError(
            f"the split {name!r} is {array.dtype}{list(array.shape)}: expected a mask, or vertices' numbers"
        )
    if len(array) and (array.min() < 0 or array.max() >= vertices):
        wrong = array[(array < 0) | (array >= vertices)][0]
        raise DataError(f"the split {name!r} has vertex {wrong}: there are {vertices} vertices, from 0")
    mask = np.zeros(vertices, bool)
    mask[array] = True
    if mask.sum() != len(array):
        values, counts = np.unique(array, return_counts=True)
        raise DataError(f"the split {name!r} has vertex {values[counts > 1][0]} several times")
    return mask
