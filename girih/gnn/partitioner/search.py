"""A graph network over devices by ranges of its vertices, as `girih.gnn.partition` cuts them (ROC, §4.3).

Each device has a range of the vertices with all that belongs to them in every layer, computes the sums over their
neighbours, and keeps a copy of the weights. What carries vertices is found from where neighbours are read, through all
other operators. What does not is divided as the exact search finds best.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import ClassVar

import numpy as np

from girih.graph import Graph, Node, Ref
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
        readers = [number for number, node in enumerate(graph.nodes) if _reads_neighbours(graph, node)]
        if not readers:
            raise SearchError("the program reads no neighbours: expected a graph network of girih.gnn")
        vertices = graph.values[graph.nodes[readers[0]].outputs[0]].shape[0]
        if self.shares and (mesh.sizes != (len(self.shares),) or sum(self.shares) != vertices):
            raise SearchError(
                f"{len(self.shares)} shares of {sum(self.shares)} vertices, for {vertices} vertices on a mesh of "
                f"{mesh}: expected a share of them for each device of one mesh axis, which local:N:N has"
            )
        inputs = {item.name: 0 for item in graph.inputs if graph.values[item.name].shape[:1] == (vertices,)}
        results = {graph.nodes[number].outputs[0]: 0 for number in readers}
        carriers = batch_dimensions(graph, inputs | results)
        layouts = {
            name: (along(graph.values[name], dimension, mesh),)
            for name, dimension in carriers.items()
            if graph.values[name].shape[dimension] == vertices
        }
        divisions = along_the_batch(graph, mesh, carriers)
        # By the vertices that read, not by the rows that are read: a piece has its vertices' edges.
        divisions |= {number: np.zeros((1, mesh.axes), np.int64) for number in readers}
        space = "ranges of vertices, weights replicated; other layouts searched"
        even = exact(
            graph,
            objective,
            rules=SECONDS,
            candidates=Candidates(layouts, divisions),
            seconds=self.seconds,
            space=space,
        )
        if not self.shares:
            return even
        strategy = with_shares(graph, even.strategy, (_whole(self.shares),))
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
