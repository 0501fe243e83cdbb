"""A graph network over devices by ranges of its vertices, as `girih.gnn.partition` cuts them (ROC, §4.3).

Each device has a range of the vertices with all that belongs to them in every layer, computes the sums over their
neighbours, and keeps a copy of the weights. Where the graph has cuts (`Adjacency.cuts`), a device gets of the others
just the rows that its vertices read, each once. What carries vertices is found from where neighbours are read, through
all other operators. What does not is divided as the exact search finds best.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import ClassVar

import numpy as np

from girih.graph import Graph, Node, Ref
from girih.layout import REPLICATE, Layout, among
from girih.layout.sharding import MOST_SHARE
from girih.partition.search import Search
from girih.partition.searches.data_parallel import along, along_the_batch, batch_dimensions
from girih.partition.searches.exact import exact
from girih.partition.searches.proportional import cost_of, with_shares
from girih.partition.space.options import SECONDS
from girih.partition.space.problem import Candidates, Objective
from girih.partition.strategy import SearchError, SearchResult
from girih.rewrite.certificate import Certificate

READERS = ("girih.neighbour_", "girih.attention_")
"""How the names of operators begin that read neighbours."""
ROWS, JOINED = "girih.rows_here", "girih.pieces_joined"
"""What puts the rows together that a piece reads, and what puts the pieces' results together."""


@dataclass(frozen=True)
class Vertices(Search):
    """Each device has a range of a graph's vertices, and all weights.

    shares: how many vertices each device has, as `Partition.vertices` says, along the machine's one mesh axis, which
    four processes have by the name `local:4:4`; (): as many as others, along all axes. The graph that is planned has to
    be in the partition's order (`Partition.arranged`).

    Raises:
        SearchError: shares that are none.
    """

    name: ClassVar[str] = "vertices"
    shares: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shares and min(self.shares) < 1:
            raise SearchError(f"shares {self.shares}: expected at least one vertex for each device; cut fewer pieces")

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        mesh = objective.machine.mesh
        pieces = pieces_of(graph)
        shares = self.shares or pieces.shares
        readers = [number for number, node in enumerate(graph.nodes) if _reads_neighbours(graph, node)]
        if not readers:
            raise SearchError("the program reads no neighbours: expected a graph network of girih.gnn")
        if pieces.homes and (pieces.shares != shares or mesh.sizes != (len(shares),)):
            raise SearchError(
                f"the graph is cut into pieces of {list(pieces.shares)} vertices, for shares {list(shares)} on a mesh "
                f"of {mesh}: expected the cut's own shares, and a device of one mesh axis for each piece"
            )
        vertices = sum(shares) if pieces.homes else graph.values[graph.nodes[readers[0]].outputs[0]].shape[0]
        if self.shares and (mesh.sizes != (len(self.shares),) or sum(self.shares) != vertices):
            raise SearchError(
                f"{len(self.shares)} shares of {sum(self.shares)} vertices, for {vertices} vertices on a mesh of "
                f"{mesh}: expected a share of them for each device of one mesh axis, which local:N:N has"
            )
        ranged = [number for number in readers if number not in pieces.homes]
        ranged += [
            number for number in pieces.joins if graph.values[graph.nodes[number].outputs[0]].shape[0] == vertices
        ]
        inputs = {item.name: 0 for item in graph.inputs if graph.values[item.name].shape[:1] == (vertices,)}
        results = {graph.nodes[number].outputs[0]: 0 for number in ranged}
        carriers = batch_dimensions(graph, inputs | results)
        layouts = {
            name: (along(graph.values[name], dimension, mesh),)
            for name, dimension in carriers.items()
            if graph.values[name].shape[dimension] == vertices
        }
        divisions = along_the_batch(graph, mesh, carriers)
        # By the vertices that read, not by the rows that are read: a piece has its vertices' edges.
        divisions |= {number: np.zeros((1, mesh.axes), np.int64) for number in ranged}
        layouts |= {name: (_only(piece),) for name, piece in pieces.values(graph).items()}
        divisions |= {number: np.asarray([_only(piece)], np.int64) for number, piece in pieces.homes.items()}
        space = "ranges of vertices, weights replicated; other layouts searched"
        even = exact(
            graph,
            objective,
            rules=SECONDS,
            candidates=Candidates(layouts, divisions),
            seconds=self.seconds,
            space=space,
        )
        if not shares:
            return even
        strategy = with_shares(graph, even.strategy, (_whole(shares),))
        certificate = Certificate(
            cost_of(graph, strategy, objective),
            0.0,
            objective.unit,
            "none: shares are given, not searched",
            even.certificate.stopped,
            f"{space}; shares as given",
            even.certificate.statistics,
        )
        return replace(even, strategy=strategy, certificate=certificate)


@dataclass(frozen=True)
class Pieces:
    """A program whose graph is in pieces (`girih.gnn.neighbours.Pieces`), as its operators show it.

    homes: the piece that a node is a part of, by the node's number: it gathers rows for others out of its own, puts its
    own and theirs together, and computes over its neighbours. joins: nodes that put the pieces' results together.
    shares: how many vertices each piece has; () where the graph is in one.
    """

    homes: Mapping[int, int]
    joins: tuple[int, ...]
    shares: tuple[int, ...]

    def values(self, graph: Graph) -> dict[str, int]:
        """What only one piece makes, or reads of the inputs, by name."""
        readers: dict[str, set[int]] = {}
        for number, node in enumerate(graph.nodes):
            for name in node.inputs:
                readers.setdefault(name, set()).add(self.homes.get(number, -1))
        own = {name: piece for number, piece in self.homes.items() for name in graph.nodes[number].outputs}
        for item in graph.inputs:
            pieces = readers.get(item.name, {-1})
            if (
                len(pieces) == 1
                and -1 not in pieces
                and item.role in ("buffer", "data")
                and item.name not in graph.updates
            ):
                own[item.name] = min(pieces)
        return own


def pieces_of(graph: Graph) -> Pieces:
    """Which nodes belong to which piece of the graph; O(nodes).

    From where pieces are joined on backwards a node belongs to the piece that reads it, and rows that are gathered for
    others to the piece whose they are.
    """
    maker = {name: number for number, node in enumerate(graph.nodes) for name in node.outputs}
    joins = tuple(number for number, node in enumerate(graph.nodes) if node.operator == JOINED)
    if not joins:
        return Pieces({}, (), ())
    homes = {maker[name]: piece for number in joins for piece, name in enumerate(graph.nodes[number].inputs)}
    homes |= {n: int(dict(node.arguments)["worker"]) for n, node in enumerate(graph.nodes) if node.operator == ROWS}  # type: ignore[arg-type]
    for number in reversed(range(len(graph.nodes))):
        node = graph.nodes[number]
        if number not in homes or _takes_rows(node):
            continue
        for name in node.inputs[:1] if node.operator == ROWS else node.inputs:  # others are rows of other pieces
            if maker.get(name, number) not in (number, *joins):
                homes.setdefault(maker[name], homes[number])
    for number, node in enumerate(graph.nodes):
        before = [homes[maker[name]] for name in node.inputs if maker.get(name) in homes]
        if before and number not in joins:
            homes.setdefault(number, before[0])
    sizes = [[graph.values[name].shape[0] for name in graph.nodes[number].inputs] for number in joins]
    return Pieces(homes, joins, tuple(min(sizes, key=sum)))


def _takes_rows(node: Node) -> bool:
    """Does it take a range of rows of the whole?"""
    return node.operator == "aten.slice.Tensor" and dict(node.arguments).get("dim") == 0


def _only(piece: int) -> Layout:
    """On the device of one piece, whole."""
    return (among(REPLICATE, (piece,)),)


def _reads_neighbours(graph: Graph, node: Node) -> bool:
    """Is it an operator over neighbours with a row for each vertex?"""
    offsets = dict(node.arguments).get("offsets")
    if not node.operator.startswith(READERS) or not isinstance(offsets, Ref):
        return False
    return graph.values[node.outputs[0]].shape[:1] == (graph.values[offsets.name].shape[0] - 1,)


def _whole(shares: tuple[int, ...]) -> tuple[int, ...]:
    """The same proportions in smaller numbers, exactly if they go into what a sharding can state."""
    common = gcd(*shares)
    most = max(1.0, sum(shares) / common / (MOST_SHARE - len(shares)))
    return tuple(max(1, round(share / common / most)) for share in shares)
