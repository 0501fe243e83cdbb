"""Crossing strategies: each layer as in one of several, while the step becomes faster.

The plan of the exact search moves least, data parallelism hides most behind its computation, an expert's plan places
what the others divide. Which of them is best for a layer depends on what the others do, and only the simulator tells.
Here one layer of the best strategy after another (first all layers that are alike together, then each by itself) is
exchanged for that of another strategy; what makes the step faster is kept. What is exchanged: the divisions of the
layer's nodes, and the layouts of the values that it makes, of its weights, and of what enters there.

Where one layer passes partial sums on that the other does not take, the score finds the strategy infinitely slow.
Cost: (layers × strategies) calls of the score for each round, of which there are few.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

from girih.graph import Graph
from girih.layout.budget import Budget
from girih.ops.known import descriptions
from girih.partition.search import ScoredSearch
from girih.partition.space.layers import layers_of
from girih.partition.space.problem import Objective, value_variables
from girih.partition.strategy import SearchError, SearchResult, Strategy
from girih.rewrite.certificate import Certificate


@dataclass(frozen=True)
class Crossing(ScoredSearch):
    """The best that exchanging layers between known strategies finds.

    tries: exchanges that are judged, at most.
    """

    tries: int = 2**62

    name: ClassVar[str] = "crossed"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        budget, score = Budget(self.seconds), self.score(objective)
        within = getattr(score, "within", lambda strategy, _: score(strategy))
        if not self.known:
            raise SearchError("search crossed begins with known answers: expected some, got none")
        best = min((result.strategy for result in self.known), key=score)
        seconds, tried, stopped = score(best), 0, "no exchange is faster"
        members, owned = _members(graph)
        groups = list(_groups(graph, members))
        improved = True
        while improved:
            improved = False
            for group, other in product(groups, self.known):
                if budget.late:
                    improved, stopped = False, budget.why
                    break
                exchanged = _exchanged(best, other.strategy, [node for layer in group for node in members[layer]],
                                       [name for layer in group for name in owned.get(layer, ())])  # fmt: skip
                if exchanged is None:
                    continue
                if tried == self.tries:
                    improved, stopped = False, "so many exchanges were tried"
                    break
                tried += 1
                limit = seconds * (1 - 1e-9)
                took = within(exchanged, limit)
                budget.spend(getattr(score, "done", objective.judging) * 1e9)
                if took < limit:
                    best, seconds, improved = exchanged, took, True
        space = "layers exchanged between known strategies"
        certificate = Certificate(seconds, 0.0, "seconds", "none", stopped, space, {"tried": tried})
        return SearchResult(best, certificate, search=self.name)


def _members(graph: Graph) -> tuple[dict[int, list[int]], dict[int, list[str]]]:
    """(nodes, values whose layouts it decides) of each layer: those that it makes, and the inputs that it reads first;
    old and new weights are one."""
    layers, variable = layers_of(graph), value_variables(graph)
    members: dict[int, list[int]] = {}
    owner: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        members.setdefault(layers[number], []).append(number)
        for name in node.outputs:
            owner[variable[name]] = layers[number]
    for number, node in enumerate(graph.nodes):
        for name in node.inputs:
            owner.setdefault(variable[name], layers[number])
    owned: dict[int, list[str]] = {}
    for name, number in variable.items():
        if number in owner:
            owned.setdefault(owner[number], []).append(name)
    return members, owned


def _groups(graph: Graph, members: Mapping[int, Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Layers of the same nodes together, then each by itself."""
    known = descriptions(graph)
    alike: dict[object, list[int]] = {}
    for layer, nodes in members.items():
        key = tuple(graph.nodes[node].name if known[node] is None else id(known[node]) for node in nodes)
        alike.setdefault(key, []).append(layer)
    yield from map(tuple, alike.values())
    yield from ((layer,) for group in alike.values() if len(group) > 1 for layer in group)


def _exchanged(best: Strategy, other: Strategy, nodes: Sequence[int], names: Sequence[str]) -> Strategy | None:
    """The best with these nodes and values as in the other; None if they are alike."""
    same = all(best.divisions[node] == other.divisions[node] for node in nodes)
    if same and all(best.layouts[name] == other.layouts[name] for name in names):
        return None
    divisions = list(best.divisions)
    for node in nodes:
        divisions[node] = other.divisions[node]
    return Strategy(best.mesh, tuple(divisions), best.layouts | {name: other.layouts[name] for name in names})
