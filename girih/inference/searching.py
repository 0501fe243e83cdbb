"""Rewrites, kernels and layouts of a graph together: the search behind `girih.optimize` (TASO §2.7).

The graph is searched in segments, whose inputs may come and whose outputs may leave in any layout; what layouts cost
between them is chosen at the end, for the whole graph. So the segments' bounds add up to a bound for the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from girih.graph import Graph
from girih.inference.layouts import ENDS
from girih.rewrite.backtracking import Backtracking, Rewritten
from girih.rewrite.certificate import Certificate, together
from girih.rewrite.constants import folded
from girih.rewrite.rules.rule import Rule
from girih.rewrite.saturation import Saturation
from girih.rewrite.segments import joined, segments
from girih.rewrite.ways import ChosenWays, Costing, cheapest

Search = Backtracking | Saturation
SEARCHES = ("backtracking", "saturation")
BOUND_SHARE = 1 / 3
"""The share of a search by backtracking's seconds that its bound has."""
NODES = 400
"""The most nodes of the e-graph that gives the bound: each may have to be measured."""


def search_of(search: str | Search, seconds: float, alpha: float) -> Search:
    """A search by name, with these limits, or as it is; inputs and outputs of parts in any layout.

    Raises:
        ValueError: no such search.
    """
    if isinstance(search, Search):
        return replace(search, ends=ENDS)
    if search not in SEARCHES:
        raise ValueError(
            f"no search {search!r} for rewrites: there are {' and '.join(SEARCHES)}, or a Backtracking or a Saturation "
            "with its options"
        )
    if search == "backtracking":
        return Backtracking(alpha, seconds=seconds, ends=ENDS)
    return Saturation(seconds=seconds, ends=ENDS)


@dataclass(frozen=True)
class Found:
    """graph, weights: rewritten, with what depends on weights alone computed. choice: kernels and layouts. searched: of
    each part. before: seconds of the graph as it was, kernels and layouts chosen."""

    graph: Graph
    weights: Mapping[str, Any]
    choice: ChosenWays
    before: float
    searched: tuple[Rewritten, ...]

    @property
    def certificate(self) -> Certificate:
        """The certificate of the whole: the cost has the layouts that were chosen, the bound is that of all parts."""
        parts = tuple(item.certificate for item in self.searched if item.certificate is not None)
        whole = together(parts)
        return replace(whole, cost=self.choice.cost, bound=min(whole.bound, self.choice.cost))


def rewrite(
    graph: Graph,
    weights: Mapping[str, Any],
    rules: Sequence[Rule],
    costs: Costing,
    search: Search,
    progress: Callable[[str, float], None] = lambda what, share: None,
) -> Found:
    """The cheapest graph that is found, and how it is computed. graph: without nodes of weights alone. costs: that know
    these weights. search: its seconds are those of the whole."""
    found: list[Rewritten] = []
    parts = segments(graph, weights)
    for number, part in enumerate(parts):
        progress(f"search part {number + 1} of {len(parts)}", number / len(parts))
        share = search.seconds * len(part.nodes) / max(len(graph.nodes), 1)
        found.append(_searched(part, rules, costs, search, share))
    as_it_was = cheapest(graph, costs)
    before = as_it_was.cost
    whole = joined(graph, [item.graph for item in found], parts)
    choice = cheapest(whole, costs)
    if choice.cost > before:  # by what layouts cost between parts
        whole, choice = graph, as_it_was
    return Found(*folded(whole, weights), choice, before, tuple(found))


def _searched(part: Graph, rules: Sequence[Rule], costs: Costing, search: Search, seconds: float) -> Rewritten:
    if isinstance(search, Saturation):
        return replace(search, seconds=seconds).search(part, rules, costs)
    first = replace(search, seconds=seconds * (1 - BOUND_SHARE)).search(part, rules, costs)
    bound = Saturation(nodes=NODES, seconds=seconds * BOUND_SHARE, whole=False, ends=search.ends)
    return bound.bounded(first, part, rules, costs)
