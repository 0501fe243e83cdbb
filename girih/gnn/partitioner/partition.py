"""A graph in contiguous pieces, one for each worker: how it is cut, what each piece takes, and how good that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from girih.gnn.adjacency import Adjacency
from girih.gnn.data.data import Data
from girih.gnn.partitioner.contiguous import best_cut, lower_bound, recursive_cut
from girih.gnn.partitioner.cost import CostModel
from girih.gnn.partitioner.exchange import best_exchanging_cut, rows_read
from girih.gnn.partitioner.features import Features
from girih.gnn.partitioner.orders import AnyGraph, Order, ordered, reordered
from girih.rewrite.certificate import Certificate

CUTS = {
    "best": "the largest piece is the least that contiguous pieces can have",
    "recursive": "the published cut: halves of halves, by binary search",
    "parts": "where the parts of a graph partitioner begin",
}
"""The ways to cut an order of vertices, and what they do."""
COUNTED = ("vertices", "edges")
"""What a cost that is not learned counts: the cuts of most other systems."""


@dataclass(frozen=True, eq=False)
class Partition:
    """Vertices in an order, cut into contiguous pieces.

    cuts: pieces + 1 places in the order, from 0 to the number of vertices; a piece may be empty. order: at place i
    stands vertex order[i]; None where vertices stand as they are numbered. named: the order's name. costs: (layers,
    pieces) what each layer takes on each piece, in `certificate.unit`: predicted seconds, or vertices or edges. totals:
    of each piece, what all layers take, and the rows that it reads where these were to count. edges: of each piece.
    reads: of each piece, how many different rows of other pieces it reads in each layer. certificate: of the largest
    piece among contiguous cuts of this order; its statistics also bound cuts of any order.
    """

    cuts: tuple[int, ...]
    order: Order | None
    named: str
    costs: NDArray[np.float64]
    totals: NDArray[np.float64]
    edges: tuple[int, ...]
    reads: tuple[int, ...]
    certificate: Certificate

    @property
    def pieces(self) -> int:
        return len(self.cuts) - 1

    @cached_property
    def vertices(self) -> tuple[int, ...]:
        """How many vertices each piece has: the shares of a stated sharding, `S0[7:3]`, where none is 0."""
        return tuple(int(size) for size in np.diff(self.cuts))

    @property
    def imbalance(self) -> float:
        """The largest piece over the mean: 1 is balanced."""
        return float(self.totals.max() / self.totals.mean()) if self.totals.any() else 1.0

    def members(self, piece: int) -> NDArray[np.int64]:
        """The vertices of a piece, by the numbers that they had in the graph."""
        start, stop = self.cuts[piece : piece + 2]
        return np.arange(start, stop) if self.order is None else self.order[start:stop]

    def arranged(self, graph: AnyGraph) -> AnyGraph:
        """The graph, or data on it, with vertices in this order: piece p is the range from cuts[p] to cuts[p + 1].

        Where no piece is empty, and the graph is not bipartite, it has these cuts: a plan then has a worker for each.
        """
        arranged: Any = graph if self.order is None else reordered(graph, self.order)
        own = arranged if isinstance(arranged, Adjacency) else arranged.graph
        if min(self.vertices) < 1 or own.sources != own.vertices:
            return arranged  # type: ignore[no-any-return]
        cut = replace(own, cuts=self.cuts)
        return cut if isinstance(arranged, Adjacency) else arranged.but(graph=cut, ordered_from=arranged.ordered_from)  # type: ignore[return-value]

    def __str__(self) -> str:
        unit = self.certificate.unit
        head = ("piece", "vertices", "edges", "rows of others", f"predicted {unit}", "of the mean")
        mean = self.totals.mean() if self.totals.any() else 1.0
        rows = [head]
        for number, row in enumerate(zip(self.vertices, self.edges, self.reads, self.totals, strict=True)):
            vertices, edges, reads, total = row
            share = f"{total / mean:.3f}"
            rows.append((str(number), f"{vertices:,}", f"{edges:,}", f"{reads:,}", f"{total:,.4g}", share))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
        title = f"{sum(self.vertices):,} vertices in {self.pieces} pieces, in the order {self.named!r}"
        largest = f"largest piece {self.imbalance:.3f} of the mean; {self.certificate}"
        return "\n".join([title, *lines, largest])


def partition(
    graph: Adjacency | Data,
    pieces: int,
    cost: CostModel | str = "edges",
    order: str | Sequence[str] = "given",
    cut: str = "best",
    row_seconds: float = 0.0,
    known: Features | None = None,
) -> Partition:
    """Cut a graph into contiguous pieces of equal cost (ROC, Jia et al. 2020, §4.4).

    cost: what was learned of a network's layers; or "vertices" or "edges", of which pieces get equally many. order: how
    vertices are numbered first (`ORDERS`); of several the one is taken whose largest piece costs the least. cut: how
    the order is cut (`CUTS`). row_seconds: what it takes to read a row of another piece, once for each that is read,
    where that is to count: seconds of all layers together, and of both directions. known: the graph's features for this
    cost, where they were counted before and the order is the given one.

    Raises:
        ValueError: there is no such cost, order or cut; the order has no parts; a cost that is not in seconds is to
            count rows that are read; pieces are fewer than 1.
        ImportError: the order needs a library that is not installed.
    """
    if isinstance(graph, Data):
        graph = graph.graph
    if pieces < 1:
        raise ValueError(f"{pieces} pieces: expected at least 1")
    if cut not in CUTS:
        raise ValueError(f"no cut {cut!r}: expected one of {', '.join(CUTS)}")
    if isinstance(cost, str) and cost not in COUNTED:
        raise ValueError(f"no cost {cost!r}: expected a CostModel, or one of {', '.join(COUNTED)}")
    if row_seconds < 0 or (row_seconds and (isinstance(cost, str) or cut != "best")):
        raise ValueError(
            f"row_seconds={row_seconds} with cost {cost if isinstance(cost, str) else 'learned'!r} and cut {cut!r}: "
            "rows that are read count, in seconds, where cost is a CostModel and cut is 'best'"
        )
    names = (order,) if isinstance(order, str) else tuple(order)
    if not names:
        raise ValueError("order=(): expected the name of an order, or several")
    found = [_cut(graph, pieces, cost, name, cut, row_seconds, known) for name in dict.fromkeys(names)]
    return min(found, key=lambda one: one.certificate.cost)


def _cut(
    graph: Adjacency,
    pieces: int,
    cost: CostModel | str,
    order: str,
    cut: str,
    row_seconds: float,
    known: Features | None,
) -> Partition:
    places, parts = ordered(graph, order, pieces)
    arranged = graph if order == "given" else reordered(graph, places)
    if cut == "parts" and parts is None:
        raise ValueError(f"cut='parts' of the order {order!r}: it has none; expected the order metis or kahip")
    if isinstance(cost, CostModel):
        known = known if known is not None and order == "given" else cost.features(arranged)
        running = cost.running(known)
    else:
        running = np.asarray(np.arange(graph.vertices + 1) if cost == "vertices" else arranged.offsets, np.float64)
    cuts = best_cut(running, pieces)
    least, how = float(np.diff(running[list(cuts)]).max()), "Nicol's search over running sums"
    if row_seconds:
        cuts, least = best_exchanging_cut(running, arranged, pieces, row_seconds)
        how = "a dynamic programme over cuts"
    elif cut != "best":
        cuts = recursive_cut(running, pieces) if parts is None or cut == "recursive" else parts
    # Rows of a bipartite graph are not those of the vertices that read them: none has a piece that it is of.
    reads = rows_read(arranged, cuts) if arranged.vertices == arranged.sources else np.zeros(pieces, np.int64)
    if isinstance(cost, CostModel) and known is not None:
        costs = cost.seconds(known, cuts)
        least += cost.piece_seconds if graph.vertices else 0.0
    else:
        costs = np.diff(running[list(cuts)])[None]
    totals = costs.sum(axis=0) + row_seconds * reads
    certificate = Certificate(
        float(totals.max()),
        min(least, float(totals.max())),  # the two are summed up in different orders
        "seconds" if isinstance(cost, CostModel) else cost,
        how,
        "optimal" if totals.max() <= least * (1 + 1e-9) else "all cuts are made",
        f"cuts of the order {order!r} into {pieces} contiguous pieces",
        {"mean": float(totals.mean()), "bound of any pieces": lower_bound(running, pieces)},
    )
    return Partition(
        cuts,
        None if order == "given" else places,
        order,
        costs,
        totals,
        tuple(np.diff(arranged.offsets[list(cuts)]).tolist()),
        tuple(reads.tolist()),
        certificate,
    )


def with_cuts(graph: Adjacency, cuts: Sequence[int], cost: CostModel, known: Features) -> Partition:
    """Pieces with these cuts, in the graph's order, and what they take; known: the graph's features for this cost."""
    costs = cost.seconds(known, cuts)
    totals, running = costs.sum(axis=0), cost.running(known)
    certificate = Certificate(
        float(totals.max()),
        min(lower_bound(running, len(cuts) - 1), float(totals.max())),
        "seconds",
        "the mean piece, or the largest vertex",
        "cuts are given",
        f"cuts of the order 'given' into {len(cuts) - 1} contiguous pieces",
        {"mean": float(totals.mean())},
    )
    edges, reads = np.diff(graph.offsets[list(cuts)]).tolist(), rows_read(graph, cuts).tolist()
    return Partition(tuple(cuts), None, "given", costs, totals, tuple(edges), tuple(reads), certificate)
