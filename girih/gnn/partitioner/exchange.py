"""Cuts that also count the rows that a piece reads of others, each once however many of its vertices read it.

A piece [i, j) costs what its vertices take, and `row_seconds` for each different neighbour outside of it. That cost
does not grow with the piece, as the whole graph reads nothing of others; so no filling of pieces finds the best cut.
Here the cost of every range between `candidates` is tabled, and the best cut at candidates is found by a dynamic
programme over the table: O(candidates · edges) for the table, less what pieces cost that are dearer than a cut that is
known, and O(pieces · candidates²). Where every vertex is a candidate, that is the best cut. Else candidates are laid
anew, closely around the cuts, as long as that finds better ones, and a bound says how much there may still be: a piece
that begins and ends in two gaps between candidates takes at least what the vertices between the gaps do, and reads at
least what these read of others, less the rows that lie in the gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from girih.gnn.adjacency import Adjacency
from girih.gnn.partitioner.contiguous import Running, best_cut
from girih.layout.compiled import compiled

ROUNDS = 8


def rows_read(graph: Adjacency, cuts: Sequence[int]) -> NDArray[np.int64]:
    """For each piece how many different rows it reads of others; O(edges)."""
    counts = np.zeros(len(cuts) - 1, np.int64)
    for number, (start, stop) in enumerate(pairwise(cuts)):
        read = graph.neighbours[graph.offsets[start] : graph.offsets[stop]]
        seen = np.zeros(graph.sources, bool)
        seen[read] = True
        seen[start:stop] = False
        counts[number] = seen.sum()
    return counts


def largest(running: Running, graph: Adjacency, cuts: Sequence[int], row_seconds: float) -> float:
    """The seconds of the slowest piece, what it reads of others included."""
    return float((np.diff(running[list(cuts)]) + row_seconds * rows_read(graph, cuts)).max())


def best_exchanging_cut(
    running: Running, graph: Adjacency, pieces: int, row_seconds: float, candidates: int = 256
) -> tuple[tuple[int, ...], float]:
    """(The cuts whose slowest piece is the fastest, with the rows that it reads of others; a bound that no contiguous
    cut is below.) Where the graph has no more vertices than `candidates`, the bound is what the slowest piece takes.

    running: seconds of the vertices before each vertex. row_seconds: to read a row of another piece.
    """
    end = len(running) - 1
    cuts = best_cut(running, pieces)
    least = float(np.diff(running[list(cuts)]).max())
    cost = largest(running, graph, cuts, row_seconds)
    every = end <= candidates
    shares = np.searchsorted(running, np.linspace(0, running[-1], candidates + 1)[1:-1])
    places = np.arange(end + 1) if every else np.unique([*cuts, *shares])
    for number in range(ROUNDS):
        read = _rows_between(graph, running, places, cost)
        table = np.where(read >= 0, running[places] - running[places, None] + row_seconds * read, np.inf)
        before = cost
        found, by_table = _best(table, pieces)
        if by_table < cost:
            cuts, cost = tuple(map(int, places[found])), by_table
        if number == 0:
            least = cost if every else max(least, _bound(read, running, places, row_seconds, before, pieces))
        if every or (cost == before and number):
            break
        reach = np.unique(np.geomspace(1, max(2, end / candidates), max(2, candidates // (2 * pieces))).astype(int))
        near = (np.array(cuts)[:, None] + np.concatenate([-reach, [0], reach])).ravel()
        places = np.unique([0, end, *near[(near > 0) & (near < end)]])
    return cuts, min(least, cost)


def _best(table: NDArray[np.float64], pieces: int) -> tuple[list[int], float]:
    """(The numbers of the candidates at which the cuts lie; what the slowest piece costs), by a table of the ranges
    between any two candidates, of which the first is the beginning and the last the end."""
    fastest = table[0]
    chosen = []
    for _ in range(pieces - 1):
        slower = np.maximum(fastest[:, None], table)  # [from, to]
        chosen.append(slower.argmin(axis=0))
        fastest = slower.min(axis=0)
    cuts = [len(table) - 1]
    for previous in reversed(chosen):
        cuts.append(int(previous[cuts[-1]]))
    return [0, *reversed(cuts)], float(fastest[-1])


def _bound(
    read: NDArray[np.int64],
    running: Running,
    places: NDArray[np.int64],
    row_seconds: float,
    most: float,
    pieces: int,
) -> float:
    """What no cut is below. A piece that begins in gap g, behind candidate g and before the next, and ends in gap h has
    all between candidates g + 1 and h; the end is a gap of its own. Pieces above `most` count as that."""
    widths = np.diff(places, append=places[-1])
    inside = read[1:]  # [g, h]: rows that the vertices between candidates g + 1 and h read of others
    rows = np.maximum(0, inside - widths[:-1, None] - widths)
    costs = np.where(inside >= 0, running[places] - running[places[1:], None] + row_seconds * rows, most)
    gaps = np.full(read.shape, np.inf)
    gaps[:-1] = costs
    later = np.arange(len(places))
    gaps[later[:, None] > later] = np.inf
    gaps[later, later] = 0.0
    return _best(gaps, pieces)[1]


@compiled(lambda offsets, neighbours, sources, running, places, *_: float(len(neighbours) * len(places)))
def _scan(offsets, neighbours, sources, running, places, most, rows):  # type: ignore[no-untyped-def]
    """Fill rows[k, l] with how many different rows the vertices from candidate k to l read of others.

    From each candidate on, vertices join one after another. `mark[u]` is the last start from which u was read. A
    vertex that joins is no longer read of others.
    """
    mark = np.full(sources, -1, np.int64)
    for start in range(len(places)):
        first = places[start]
        others = 0
        rows[start, start] = 0
        for stop in range(start + 1, len(places)):
            if running[places[stop]] - running[first] > most:
                break
            for vertex in range(places[stop - 1], places[stop]):
                if mark[vertex] == start:
                    others -= 1
                for edge in range(offsets[vertex], offsets[vertex + 1]):
                    read = neighbours[edge]
                    if mark[read] != start:
                        mark[read] = start
                        if read < first or read > vertex:
                            others += 1
            rows[start, stop] = others


def _rows_between(graph: Adjacency, running: Running, places: NDArray[np.int64], most: float) -> NDArray[np.int64]:
    """[k, l]: how many different rows the range from candidate k to l reads of others; -1 where l is before k, or where
    the range costs more than `most` without any."""
    rows = np.full((len(places), len(places)), -1, np.int64)
    _scan(graph.offsets, graph.neighbours, graph.sources, running, places, most, rows)
    return rows
