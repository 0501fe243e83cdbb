"""`exact` over the divisions that DTensor has: what `girih.plan(for_engine="dtensor")` searches.

DTensor cuts tensors evenly, along whole axes of a mesh, each dimension by one axis (`Rules.even`). That of PyTorch 2.13
divides convolutions by samples alone, with whole weights, and knows no halos; pooling, whose rules the page of an
export teaches it (`girih.run.export.dtensor_apply`), divides by images and channels. A plan that divides them otherwise
says fewer bytes than are moved: LeNet's on two ranks said a fifth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from girih.graph import Graph
from girih.layout import Mesh
from girih.ops import Description
from girih.ops.known import several_descriptions
from girih.partition.searches.data_parallel import batch_dimensions, carrying
from girih.partition.searches.exact import Exact
from girih.partition.space.options import EVEN, EVEN_SECONDS, Rules, node_options, several_options
from girih.partition.space.problem import Candidates, Objective
from girih.partition.strategy import PASS, REPEAT


@dataclass(frozen=True)
class ForDTensor(Exact):
    """The least cost over the strategies that DTensor can run, with a proof.

    By `bytes` what several readers fetch is brought once to a second layout where that pays: DTensor keeps for the
    backward pass, too, what it has gathered. space: `apart`, where each reader fetches for itself.
    """

    def rules_of(self, objective: Objective) -> Rules:
        return replace(EVEN, shared=self.space == "whole") if objective.unit == "bytes" else EVEN_SECONDS

    def candidates(self, graph: Graph, objective: Objective) -> Candidates:
        return as_dtensor_divides(graph, objective.machine.mesh, self.rules_of(objective))


def as_dtensor_divides(graph: Graph, mesh: Mesh, rules: Rules) -> Candidates:
    """The divisions of convolutions and pooling that DTensor has; of all other nodes the rules say them."""
    samples, found = batch_dimensions(graph), {}
    for number, (node, several) in enumerate(zip(graph.nodes, several_descriptions(graph), strict=True)):
        pools = "pool" in node.operator
        if several and (pools or "convolution" in node.operator):
            variables = carrying(several[0], tuple(map(samples.get, node.inputs)))
            if pools:
                variables |= {variable for index in several[0].place[:2] for variable, _ in index.terms}
            items = tuple(graph.values[name].item_bytes for name in (*node.inputs, *node.outputs))
            found[number] = _divisions(several, items, tuple(sorted(variables)), mesh, rules)
    return Candidates({}, found)


@lru_cache(maxsize=4096)
def _divisions(
    several: tuple[Description, ...], items: tuple[int, ...], variables: tuple[int, ...], mesh: Mesh, rules: Rules
) -> NDArray[np.int64]:
    """[count, axes]: the divisions along some index variables, and those that repeat no more work than they must, where
    the rules say so."""
    free = replace(rules, repeat=True)
    every = (
        several_options(several, items, mesh, free) if len(several) > 1 else node_options(several[0], items, mesh, free)
    ).divisions
    kept = every[(np.isin(every, variables) | (every == REPEAT) | (every <= PASS)).all(axis=1)]
    repeats = (kept == REPEAT).sum(axis=1)
    least: NDArray[np.int64] = kept if rules.repeat else kept[repeats == repeats.min()]
    return least
