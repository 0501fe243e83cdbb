"""What the work of a vertex depends on: the features of ROC's cost model (Jia et al. 2020, §4.4.1, Table 4.2).

    x1   1                               the vertex itself
    x2   |N(v)|                          its neighbours
    x3   |C(v)|                          runs of neighbours that are numbered consecutively
    x4   Σ_i ⌈|c_i(v)| / line⌉           accesses to memory that load the neighbours' numbers
    x5   Σ_i ⌈|c_i(v)| · d_in / line⌉    accesses that load the neighbours' rows, of d_in values each
    x6…  rows that a cache lacks         ours, one feature for each level of caches

`line` is how many values one access brings: 16 on a CPU (64 bytes of float32), the 32 threads of a warp on a GPU. A run
is a longest stretch of the list of neighbours in which each is the one before or the next after it: a neighbour that
stands twice belongs to one run, and counts once in its length; a list that is not sorted has more runs.

Differences from the paper: x6 and what follows. On a CPU the caches decide what a row costs, by up to tenfold, and the
five features see only whether neighbours are consecutive. Counted are the rows that are not in a cache which holds so
many bytes of rows, the last ones read, while vertices are taken in ascending order (LRU), epoch after epoch.

The gradient of a sum over neighbours is a sum over the transposed graph. Where a layer computes it too, its rows are
counted as well: a row costs the same in both directions.

All features are whole numbers and are kept as running sums over the vertices, so that those of a contiguous range are a
difference of two rows. One pass over the edges for the runs, and one for each width of rows and each cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from girih.gnn.adjacency import Adjacency
from girih.layout.compiled import compiled

TABLE = ("vertices", "neighbours", "runs", "loads of neighbours", "loads of rows")
"""The features of Table 4.2, in the order of columns."""


@dataclass(frozen=True)
class Access:
    """How a device reads memory.

    line: values that one access brings. caches: bytes of each level that one worker has, smallest first; () for none.
    value_bytes: of one value of a row.

    Raises:
        ValueError: one of them is not at least 1.
    """

    line: int = 16
    caches: tuple[int, ...] = (1 << 20, 1 << 25)
    value_bytes: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "caches", tuple(self.caches))  # a list, as JSON gives it
        if min((self.line, self.value_bytes, *self.caches)) < 1:
            raise ValueError(f"{self}: expected whole numbers of at least 1")

    @property
    def names(self) -> tuple[str, ...]:
        """What the features are, in the order of columns."""
        return (*TABLE, *(f"rows not in {size / 2**20:g} MiB" for size in self.caches))


Reading = tuple[int, bool]
"""How many values a layer gathers of each neighbour, and whether it does the same backwards."""


@dataclass(frozen=True, eq=False)
class Features:
    """Running sums of the features of a graph's vertices. Made by `features`.

    running: for each kind of reading that its layers do an int64 array of shape (vertices + 1, features), whose row v
    is the sum over the vertices before v.
    """

    running: dict[Reading, NDArray[np.int64]]

    @property
    def vertices(self) -> int:
        return len(next(iter(self.running.values()))) - 1

    def between(self, cuts: Sequence[int] | NDArray[np.integer], reading: Reading) -> NDArray[np.int64]:
        """The features of the ranges between cuts that ascend, one row each."""
        sums: NDArray[np.int64] = np.diff(self.of(reading)[np.asarray(cuts)], axis=0)
        return sums

    def of(self, reading: Reading) -> NDArray[np.int64]:
        """The running sums of this kind of reading.

        Raises:
            ValueError: they were made for others.
        """
        if reading not in self.running:
            known = ", ".join(map(_words, self.running))
            raise ValueError(f"no features of {_words(reading)}: these were counted for {known}; count for all layers")
        return self.running[reading]


def _words(reading: Reading) -> str:
    return f"rows of {reading[0]} values{', both ways' if reading[1] else ''}"


def features(graph: Adjacency, readings: Sequence[Reading], access: Access | None = None) -> Features:
    """The features of all vertices, for layers that read a graph in these ways.

    Raises:
        ValueError: there are none; no values are gathered; a bipartite graph is to be read backwards, where vertices
            are others.
    """
    access = access or Access()
    different = tuple(dict.fromkeys(readings))
    if not different or min(width for width, _ in different) < 1:
        raise ValueError(f"readings {different}: expected how many values each layer gathers of a neighbour")
    if any(both for _, both in different) and graph.vertices != graph.sources:
        raise ValueError(
            f"{graph.vertices} vertices read {graph.sources} others: their gradients belong to other vertices; count "
            "layers that read forwards alone"
        )
    widths = tuple(dict.fromkeys(width for width, _ in different))
    forwards = _sums(graph, widths, access)
    running = {(width, False): sums for width, sums in zip(widths, forwards, strict=True)}
    if any(both for _, both in different):
        for width, sums in zip(widths, _sums(graph.transposed, widths, access), strict=True):
            sums += running[width, False]
            sums[:, 0] = np.arange(graph.vertices + 1)
            running[width, True] = sums
    return Features({reading: running[reading] for reading in different})


def _sums(graph: Adjacency, widths: Sequence[int], access: Access) -> list[NDArray[np.int64]]:
    """The running sums for each width of rows, forwards."""
    runs = np.zeros((graph.vertices + 1, 2 + len(widths)), np.int64)
    _count_runs(graph.offsets, graph.neighbours, np.array(widths), access.line, runs)
    counted, lacking = [], {}
    for number, width in enumerate(widths):
        sums = np.empty((graph.vertices + 1, len(access.names)), np.int64)
        sums[:, 0] = np.arange(graph.vertices + 1)
        sums[:, 1] = graph.offsets
        sums[:, 2:4], sums[:, 4] = runs[:, :2], runs[:, 2 + number]
        for level, size in enumerate(access.caches):
            rows = max(1, size // (width * access.value_bytes))
            if rows not in lacking:
                lacking[rows] = np.zeros(graph.vertices + 1, np.int64)
                _count_lacking(graph.offsets, graph.neighbours, graph.sources, rows, lacking[rows])
            sums[:, len(TABLE) + level] = lacking[rows]
        counted.append(sums)
    return counted


@compiled(lambda offsets, neighbours, widths, *_: float(len(neighbours) + len(offsets) * len(widths)))
def _count_runs(offsets, neighbours, widths, line, sums):  # type: ignore[no-untyped-def]
    """Fill the running sums over vertices: x3, x4, and x5 for each width. A run from `first` to `last` is open while
    first is not negative."""
    for vertex in range(len(offsets) - 1):
        row = sums[vertex + 1]
        row[:] = sums[vertex]
        first, last = -1, -1
        for edge in range(offsets[vertex], offsets[vertex + 1] + 1):
            read = neighbours[edge] if edge < offsets[vertex + 1] else -1
            if first >= 0 and read != last and read != last + 1:
                length = last - first + 1
                row[0] += 1
                row[1] += (length + line - 1) // line
                for kind in range(len(widths)):
                    row[2 + kind] += (length * widths[kind] + line - 1) // line
                first = -1
            if first < 0:
                first = read
            last = read


@compiled(lambda offsets, neighbours, *_: float(8 * len(neighbours) + 2 * len(offsets)))
def _count_lacking(offsets, neighbours, sources, rows, sums):  # type: ignore[no-untyped-def]
    """Fill the running sum over vertices of the neighbours that are not among the last `rows` different ones read.

    Those are a ring of links, newer[u] and older[u], in which `sources` stands between the newest and the oldest.
    newer[u] is -1 for what is not in it. All is read twice, and counted the second time.
    """
    newer = np.full(sources + 1, -1, np.int64)
    older = np.full(sources + 1, -1, np.int64)
    newer[sources] = older[sources] = sources  # its newer is the oldest, its older the newest
    held = 0
    for turn in range(2 * len(offsets) - 2):
        vertex = turn % (len(offsets) - 1)
        lacking = 0
        for edge in range(offsets[vertex], offsets[vertex + 1]):
            read = neighbours[edge]
            if older[sources] == read:
                continue
            if newer[read] < 0:
                lacking += 1
                held += 1
                if held > rows:
                    gone = newer[sources]
                    newer[sources] = newer[gone]
                    older[newer[gone]] = sources
                    newer[gone] = -1
                    held -= 1
            else:
                newer[older[read]] = newer[read]
                older[newer[read]] = older[read]
            newest = older[sources]
            newer[newest] = read
            older[read] = newest
            newer[read] = sources
            older[sources] = read
        sums[vertex + 1] = sums[vertex] + lacking
