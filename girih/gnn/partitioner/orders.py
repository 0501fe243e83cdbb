"""Orders of vertices in which contiguous ranges make good pieces: neighbours close together, or alike in degree.

An order is an array: at place i stands vertex order[i]. A graph partitioner (METIS, KaHIP) gives an order too: its
parts one after another, each in the order that was given; where they begin are cuts of its own, with which others
compare.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from girih.gnn.adjacency import Adjacency
from girih.gnn.data.data import Data
from girih.layout.compiled import compiled

ORDERS = {
    "given": "as the vertices are numbered",
    "degree": "those with most neighbours first",
    "dealt": "those with most neighbours first, dealt to the pieces in turn: all alike in vertices and in edges",
    "bfs": "as a breadth-first search from the vertex of least degree reaches them",
    "rcm": "reverse Cuthill–McKee: neighbours within a narrow band",
    "metis": "the parts of METIS, balanced by degree, with few edges between",
    "kahip": "the parts of KaHIP, balanced by degree, with few edges between",
}
"""The orders by name, and what they are."""

Order = NDArray[np.int64]
AnyGraph = TypeVar("AnyGraph", Adjacency, Data)


def ordered(graph: Adjacency, order: str, pieces: int = 2) -> tuple[Order, tuple[int, ...] | None]:
    """(The order of this name; where the parts begin, of those that have parts: pieces + 1 cuts).

    Raises:
        ValueError: there is no such order, or the graph is bipartite.
        ImportError: it needs a library that is not installed.
    """
    if order not in ORDERS:
        raise ValueError(f"no order {order!r}: expected one of {', '.join(ORDERS)}")
    if order == "given" or not graph.vertices:
        return np.arange(graph.vertices), None
    if graph.vertices != graph.sources:
        raise ValueError(
            f"order {order!r} of a bipartite graph ({graph.vertices} vertices read {graph.sources} others): its "
            "vertices have no neighbours among themselves; cut it in the order 'given'"
        )
    if order == "degree":
        return np.argsort(-graph.degrees, kind="stable"), None
    if order == "dealt":
        most_first = np.argsort(-graph.degrees, kind="stable")
        hands = [most_first[piece::pieces] for piece in range(pieces)]
        return np.concatenate(hands), tuple(np.cumsum([0, *map(len, hands)]).tolist())
    if order in ("metis", "kahip"):
        parts = (_metis if order == "metis" else _kahip)(graph, pieces)
        cuts = np.concatenate([[0], np.cumsum(np.bincount(parts, minlength=pieces))])
        return np.argsort(parts, kind="stable"), tuple(map(int, cuts))
    both = _symmetric(graph)
    if order == "rcm":
        from scipy.sparse.csgraph import reverse_cuthill_mckee

        return reverse_cuthill_mckee(both, symmetric_mode=True).astype(np.int64), None
    roots = np.argsort(np.diff(both.indptr), kind="stable")
    return _breadth_first(both.indptr, both.indices, roots), None


def reordered(graph: AnyGraph, order: ArrayLike) -> AnyGraph:
    """The same graph with its vertices renumbered: number i is what vertex order[i] was. Neighbours ascend in each row.
    Of data, also what vertices and edges have.

    Raises:
        ValueError: the order does not have each vertex once.
    """
    if isinstance(graph, Data):
        renumbered, edges = _renumbered(graph.graph, order)
        rows = {name: getattr(graph, name) for name in ("x", "labels", "train", "validation", "test")}
        changes = {name: None if array is None else array[order] for name, array in rows.items()}
        features = None if graph.edge_features is None else graph.edge_features[edges]
        before = graph.checksums() if graph.ordered_from is None else graph.ordered_from
        return graph.but(graph=renumbered, edge_features=features, ordered_from=before, **changes)
    return _renumbered(graph, order)[0]


def _renumbered(graph: Adjacency, order: ArrayLike) -> tuple[Adjacency, NDArray[np.int64]]:
    """(The graph in an order; what number each of its edges had.)"""
    order = np.asarray(order)
    place = np.full(graph.vertices, -1, graph.neighbours.dtype)
    if len(order) == graph.vertices and (len(order) == 0 or 0 <= order.min() <= order.max() < graph.vertices):
        place[order] = np.arange(graph.vertices)
    if len(order) != graph.vertices or (place < 0).any():
        raise ValueError(f"an order of {len(order)} numbers: expected each of the {graph.vertices} vertices once")
    import scipy.sparse

    matrix = scipy.sparse.csr_array(
        (np.arange(graph.edges), graph.neighbours, graph.offsets), shape=(graph.vertices, graph.sources)
    )[order]
    read = place[matrix.indices] if graph.sources == graph.vertices else matrix.indices
    rows = np.repeat(np.arange(graph.vertices), np.diff(matrix.indptr))
    sorting = np.lexsort((read, rows))
    edges = matrix.data[sorting]
    weights = None if graph.weights is None else graph.weights[edges]
    offsets = np.asarray(matrix.indptr, np.int64)
    return Adjacency(offsets, read[sorting].astype(graph.neighbours.dtype, copy=False), graph.sources, weights), edges


def _symmetric(graph: Adjacency) -> Any:
    """SciPy's matrix of who is joined to whom, in either direction, without loops."""
    import scipy.sparse

    ones = np.ones(graph.edges, bool)
    matrix = scipy.sparse.csr_array((ones, graph.neighbours, graph.offsets), shape=(graph.vertices,) * 2)
    both = scipy.sparse.coo_array(matrix + matrix.T)
    apart = both.row != both.col
    places = both.row[apart], both.col[apart]
    return scipy.sparse.csr_array((np.ones(apart.sum(), bool), places), shape=both.shape)


@compiled(lambda offsets, neighbours, _: float(len(neighbours) + len(offsets)))
def _breadth_first(offsets, neighbours, roots):  # type: ignore[no-untyped-def]
    """The vertices as searches reach them, each search from the next root that none has reached."""
    reached = np.zeros(len(roots), np.bool_)
    order = np.empty(len(roots), np.int64)
    begun = known = 0
    for root in roots:
        if not reached[root]:
            reached[root] = True
            order[known] = root
            known += 1
        while begun < known:
            vertex = order[begun]
            begun += 1
            for edge in range(offsets[vertex], offsets[vertex + 1]):
                other = neighbours[edge]
                if not reached[other]:
                    reached[other] = True
                    order[known] = other
                    known += 1
    return order


def _library(name: str, order: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"the order {order!r} needs {name}: install it with `pip install 'girih[gnn]'`") from error


def _metis(graph: Adjacency, pieces: int) -> NDArray[np.int64]:
    pymetis = _library("pymetis", "metis")
    if pieces < 2:
        return np.zeros(graph.vertices, np.int64)
    both = _symmetric(graph)
    _, parts = pymetis.part_graph(
        pieces,
        adjacency=pymetis.CSRAdjacency(both.indptr, both.indices),
        vweights=np.maximum(graph.degrees, 1),
        warn_on_copies=False,
    )
    return np.asarray(parts, np.int64)


def _kahip(graph: Adjacency, pieces: int, imbalance: float = 0.03, seed: int = 0) -> NDArray[np.int64]:
    kahip = _library("kahip", "kahip")
    if pieces < 2:
        return np.zeros(graph.vertices, np.int64)
    both = _symmetric(graph)
    weights, ones = np.maximum(graph.degrees, 1).tolist(), [1] * both.nnz
    starts, neighbours = both.indptr.tolist(), both.indices.tolist()
    _, parts = kahip.kaffpa(weights, starts, ones, neighbours, pieces, imbalance, True, seed, kahip.FASTSOCIAL)
    return np.asarray(parts, np.int64)
