"""The graph that a graph network reads: of each vertex, its neighbours, in compressed rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.signedinteger]
Weights = NDArray[np.float32] | NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Edges as compressed rows (CSR): vertex v reads `neighbours[offsets[v]:offsets[v + 1]]`.

    offsets: int64, one more than there are vertices that read. neighbours: of each edge, the vertex that is read, in
    range(sources), int32 where that is enough. sources: the number of vertices that can be read; it differs from
    `vertices` in bipartite graphs alone. weights: a number for each edge, or None where all edges count as one. cuts:
    where vertices are cut into pieces, from 0 to their number, of which each worker computes one and gets no other rows
    than its piece reads; (): they are not.
    Arrays may be mapped files; nothing writes to them.
    """

    offsets: NDArray[np.int64]
    neighbours: Indices
    sources: int
    weights: Weights | None = None
    cuts: tuple[int, ...] = ()

    @property
    def vertices(self) -> int:
        return len(self.offsets) - 1

    @property
    def edges(self) -> int:
        return len(self.neighbours)

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        """How many neighbours each vertex reads, int64[vertices]."""
        return np.diff(self.offsets)

    @cached_property
    def readers(self) -> Indices:
        """The vertex that reads, for each edge."""
        return np.repeat(np.arange(self.vertices, dtype=self.neighbours.dtype), self.degrees)

    @classmethod
    def of_edges(
        cls,
        read: Indices,
        reading: Indices,
        vertices: int,
        sources: int | None = None,
        weights: Weights | None = None,
    ) -> Adjacency:
        """A graph of edges: `reading[e]` reads `read[e]`. Neighbours of a vertex come in ascending order."""
        order = np.lexsort((read, reading))
        offsets = np.zeros(vertices + 1, np.int64)
        np.cumsum(np.bincount(reading, minlength=vertices), out=offsets[1:])
        sources = vertices if sources is None else sources
        neighbours = np.asarray(read)[order].astype(_index_type(vertices, sources), copy=False)
        return cls(offsets, neighbours, sources, None if weights is None else weights[order])

    @classmethod
    def of(cls, matrix: Any) -> Adjacency:
        """The graph of which `aggregate(x, graph)` is `matrix @ x`: each row reads the columns of its entries, with
        their values as weights; none, where all are 1.

        matrix: a sparse matrix of PyTorch (COO or CSR) or SciPy, real, of two dimensions.

        Raises:
            TypeError: it is none.
        """
        from scipy import sparse

        if type(matrix).__module__.partition(".")[0] == "torch":
            dense = str(getattr(matrix, "layout", "")) not in ("torch.sparse_coo", "torch.sparse_csr")
            if dense or matrix.dim() != 2 or matrix.is_complex():
                raise TypeError("expected a real sparse matrix, COO or CSR, of two dimensions")
            coordinates = matrix.detach().cpu().to_sparse_coo().coalesce()
            (rows, columns), values = coordinates.indices().numpy(), coordinates.values()
            values = values.numpy() if values.dtype.itemsize > 2 else values.float().numpy()
        elif sparse.issparse(matrix):
            coordinates = sparse.coo_array(matrix)
            coordinates.sum_duplicates()
            rows, columns, values = coordinates.row, coordinates.col, coordinates.data
            if values.dtype.kind == "c":
                raise TypeError("expected a real sparse matrix, got complex entries")
        else:
            raise TypeError(f"got {type(matrix).__name__}: expected a sparse matrix of PyTorch or SciPy")
        if not np.issubdtype(values.dtype, np.floating):
            values = values.astype(np.float32)
        weights = None if (values == 1).all() else values
        return cls.of_edges(columns, rows, matrix.shape[0], matrix.shape[1], weights)

    def check(self) -> None:
        """That the arrays are a graph.

        Raises:
            ValueError: offsets that are not ascending from 0 to the number of edges, a neighbour that is no vertex, or
                not a weight for each edge.
        """
        if not len(self.offsets) or self.offsets[0] != 0 or self.offsets[-1] != self.edges or (self.degrees < 0).any():
            raise ValueError(
                f"the offsets of a graph's rows must ascend from 0 to {self.edges}, the number of its edges: "
                "the arrays are damaged, or do not belong together"
            )
        if self.edges and not (self.neighbours.min() >= 0 and self.neighbours.max() < self.sources):
            wrong = int(np.flatnonzero((self.neighbours < 0) | (self.neighbours >= self.sources))[0])
            raise ValueError(
                f"edge {wrong} reads vertex {self.neighbours[wrong]}, but there are only the vertices 0 to "
                f"{self.sources - 1}: mend the edge, or give more vertices"
            )
        if self.weights is not None and self.weights.shape != (self.edges,):
            raise ValueError(f"expected a weight for each of {self.edges} edges, got {list(self.weights.shape)}")
        if self.cuts:
            ascending = all(start < stop for start, stop in pairwise(self.cuts))
            if not ascending or (self.cuts[0], self.cuts[-1]) != (0, self.vertices) or self.sources != self.vertices:
                raise ValueError(
                    f"cuts {list(self.cuts[:9])} of {self.vertices} vertices that read {self.sources}: expected places "
                    "that ascend from 0 to the number of vertices, at least one in each piece, and one kind of vertices"
                )

    @cached_property
    def _transposition(self) -> tuple[Adjacency, NDArray[np.int64]]:
        order = np.argsort(self.neighbours, kind="stable")
        offsets = np.zeros(self.sources + 1, np.int64)
        np.cumsum(np.bincount(self.neighbours, minlength=self.sources), out=offsets[1:])
        readers = self.readers[order].astype(_index_type(self.vertices, self.sources), copy=False)
        weights = None if self.weights is None else self.weights[order]
        return Adjacency(offsets, readers, self.vertices, weights, self.cuts), order

    @property
    def transposed(self) -> Adjacency:
        """The same edges, read the other way: of each source, the vertices that read it. Computed once."""
        return self._transposition[0]

    @property
    def transposed_edges(self) -> NDArray[np.int64]:
        """For each edge of the transposed graph, its number in this one."""
        return self._transposition[1]

    def with_self_loops(self, weight: float = 1.0) -> Adjacency:
        """The graph in which each vertex also reads itself, once: loops that are there stay, with their weights.

        weight: of the loops that are new, where edges have weights.

        Raises:
            ValueError: the graph is bipartite.
        """
        if self.sources != self.vertices:
            raise ValueError(f"{self.vertices} vertices read {self.sources} others: only one kind can read itself")
        has = np.zeros(self.vertices, np.bool_)
        has[self.neighbours[self.neighbours == self.readers]] = True
        new = np.flatnonzero(~has).astype(self.neighbours.dtype)
        read, reading = np.concatenate([self.neighbours, new]), np.concatenate([self.readers, new])
        weights = self.weights
        if weights is not None:
            weights = np.concatenate([weights, np.full(len(new), weight, weights.dtype)])
        return replace(Adjacency.of_edges(read, reading, self.vertices, weights=weights), cuts=self.cuts)

    def normalised(self, how: Literal["sym", "rw"] = "sym") -> Adjacency:
        """The graph with weights divided by what its vertices weigh: "sym" by √(of the reader · of the one that is
        read), as in a GCN, "rw" by that of the reader, so that each row's weights add up to 1.

        A vertex weighs the sum of its edges' weights; edges of a vertex that weighs nothing weigh nothing.

        Raises:
            ValueError: `how` is neither, or "sym" of a bipartite graph.
        """
        if how not in ("sym", "rw"):
            raise ValueError(f"how={how!r}: expected 'sym' or 'rw'")
        weights = np.ones(self.edges, np.float32) if self.weights is None else self.weights
        totals = np.bincount(self.readers, weights=weights, minlength=self.vertices)
        with np.errstate(divide="ignore", invalid="ignore"):
            if how == "rw":
                factors = np.where(totals != 0, 1 / totals, 0)[self.readers]
            elif self.sources != self.vertices:
                raise ValueError(
                    f"{self.vertices} vertices read {self.sources} others: normalise a bipartite graph with 'rw'"
                )
            else:
                roots = np.where(totals > 0, 1 / np.sqrt(totals), 0)
                factors = roots[self.readers] * roots[self.neighbours]
        kept: Any = (weights * factors).astype(weights.dtype)
        return replace(self, weights=kept)


def _index_type(*counts: int) -> type[np.signedinteger]:
    return np.int32 if max(counts) < 2**31 else np.int64
