"""The graph that a graph network reads: of each vertex, its neighbours, in compressed rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.signedinteger]


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Edges as compressed rows (CSR): vertex v reads `neighbours[offsets[v]:offsets[v + 1]]`.

    offsets: int64, one more than there are vertices that read. neighbours: of each edge, the vertex that is read, in
    range(sources), int32 where that is enough. sources: the number of vertices that can be read; it differs from
    `vertices` in bipartite graphs alone. weights: a number for each edge, or None where all edges count as one.
    Arrays may be mapped files; nothing writes to them.
    """

    offsets: NDArray[np.int64]
    neighbours: Indices
    sources: int
    weights: NDArray[np.float32] | NDArray[np.float64] | None = None

    @property
    def vertices(self) -> int:
        return len(self.offsets) - 1

    @property
    def edges(self) -> int:
        return len(self.neighbours)

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        """Of each vertex, how many neighbours it reads."""
        return np.diff(self.offsets)

    @classmethod
    def of_edges(cls, read: Indices, reading: Indices, vertices: int, sources: int | None = None) -> Adjacency:
        """A graph of edges: `reading[e]` reads `read[e]`. Neighbours of a vertex come in ascending order."""
        order = np.lexsort((read, reading))
        offsets = np.zeros(vertices + 1, np.int64)
        np.cumsum(np.bincount(reading, minlength=vertices), out=offsets[1:])
        sources = vertices if sources is None else sources
        small: type[np.signedinteger] = np.int32 if max(vertices, sources) < 2**31 else np.int64
        return cls(offsets, np.asarray(read)[order].astype(small, copy=False), sources)
