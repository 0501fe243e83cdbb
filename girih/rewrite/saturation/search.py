"""The second method: all rules everywhere at once, and the cheapest graph of all that they reach.

What a greedy walk finds is put into the e-graph first, so that a limit leaves at least that.

`Saturation` searches; `bounded` gives what another search found, backtracking (TASO §2.7), a certificate: its graph is
put into the e-graph, so that the bound holds for a space in which it is. The bound is of that space: of all that the
rules reach where the e-graph is saturated, otherwise of what was explored before the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from girih.graph import Graph
from girih.rewrite.backtracking import Backtracking, Rewritten, RuleSearch
from girih.rewrite.certificate import Certificate
from girih.rewrite.passes.binary_joins import BinaryJoins, FlatJoins
from girih.rewrite.rules.rule import Rule
from girih.rewrite.saturation.egraph import EGraph
from girih.rewrite.saturation.explore import Explored, explore
from girih.rewrite.saturation.extract import Extracted, extract
from girih.rewrite.ways import Cost, Costing, cheapest, costing_of


@dataclass(frozen=True)
class Saturation(RuleSearch):
    """Equality saturation: all rules everywhere at once, and the cheapest graph of all that they reach.

    nodes: of the e-graph at most. rounds: of rules at most. seconds: of counted work at most, of both halves
    together, of which extraction keeps a third at least. whole: in `bounded`, explore from the graph as it was too, and
    not from what was found alone: where kernels are measured, those that were found to be slower need not be. ends:
    layouts besides rows in which inputs may come and outputs leave."""

    nodes: int = 4000
    rounds: int = 8
    seconds: float = 60.0
    whole: bool = True
    ends: tuple[str, ...] = ()

    name: ClassVar[str] = "saturation"

    def search(self, graph: Graph, rules: Sequence[Rule], cost: Cost | Costing) -> Rewritten:
        costing = costing_of(cost)
        greedy = Backtracking(alpha=1.0, seconds=self.seconds / 6, patience=1, ends=self.ends)
        first = greedy.search(graph, rules, costing)
        return self._best(first, graph, rules, costing)

    def bounded(self, found: Rewritten, graph: Graph, rules: Sequence[Rule], cost: Cost | Costing) -> Rewritten:
        """What was found, or the e-graph's if that is cheaper, with the e-graph's certificate."""
        return self._best(found, graph, rules, costing_of(cost))

    def _best(self, found: Rewritten, graph: Graph, rules: Sequence[Rule], costing: Costing) -> Rewritten:
        first = graph if self.whole else found.graph
        egraph = EGraph(first)
        for other in (BinaryJoins().apply(first), found.graph):
            if other is not first:
                join(egraph, other)
        explored = explore(egraph, rules, nodes=self.nodes, rounds=self.rounds, seconds=2 / 3 * self.seconds)
        rest = max(self.seconds - explored.work, self.seconds / 3)
        known = costing.constants(graph) & {item.name for item in graph.inputs}
        extracted = extract(egraph, costing, known, seconds=rest, ends=self.ends)
        best = found
        if extracted.graph is not None:
            other = FlatJoins().apply(extracted.graph)
            amount = cheapest(other, costing, ends=self.ends, free=bool(self.ends)).cost
            if amount < found.cost * (1 - 1e-9):
                best = replace(found, graph=other, cost=amount, sequence=(), by="saturation")
        certificate = _certificate(best.cost, egraph, explored, extracted, self.whole)
        return replace(
            best,
            complete=explored.stopped == "saturated" and extracted.exact,
            certificate=certificate,
            tried=best.tried + explored.applied,
        )


def join(egraph: EGraph, graph: Graph) -> None:
    """Put another graph that computes the same into an e-graph."""
    at = egraph.insert(graph)
    for output in graph.outputs:
        egraph.join(egraph.find(output.name), at[output.name])
    egraph.rebuild()


def _certificate(cost: float, egraph: EGraph, explored: Explored, extracted: Extracted, whole: bool) -> Certificate:
    statistics: dict[str, float | int | str] = {
        "nodes": egraph.size,
        "classes": len(egraph.nodes),
        "rounds": explored.rounds,
        "applied": explored.applied,
        "variables": extracted.variables,
        "constraints": extracted.constraints,
        "circles cut": extracted.cuts,
        "seconds exploring": explored.seconds,
        "seconds extracting": extracted.seconds,
    }
    saturated = explored.stopped == "saturated"
    space = "all that the rules reach" if saturated else "what was explored"
    if not whole:
        space += " from what was found"
    how = "an integer program" if extracted.exact else "the dual bound of an integer program"
    stopped = explored.stopped if extracted.exact else f"{explored.stopped}, extraction ran out of time"
    # A bound within the solver's tolerance of the cost is the cost.
    bound = cost if extracted.exact and extracted.bound > cost * (1 - 1e-6) else min(extracted.bound, cost)
    return Certificate(cost, bound, "seconds", how, stopped, space, statistics)
