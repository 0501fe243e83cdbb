"""Rewrites, kernels and layouts of a graph together: the search behind `girih.optimize` (TASO §2.7).

The graph is searched in segments, whose inputs may come and whose outputs may leave in any layout; what layouts cost
between them is chosen at the end, for the whole graph. So the segments' bounds add up to a bound for the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from girih.graph import Graph
from girih.inference.layouts import ENDS
from girih.rewrite.backtracking import Rewritten, RuleSearch
from girih.rewrite.certificate import Certificate, together
from girih.rewrite.constants import folded
from girih.rewrite.rules.rule import Rule
from girih.rewrite.saturation import Saturation
from girih.rewrite.ways import ChosenWays, Cost, Costing, cheapest
from girih.search.table import proposer_of

SEARCHES = ("backtracking", "saturation")
BOUND_SHARE = 1 / 3
"""The share of a search by backtracking's seconds that its bound has."""
NODES = 400
"""The most nodes of the e-graph that gives the bound: each may have to be measured."""


@dataclass(frozen=True)
class Bounded(RuleSearch):
    """A search with a certificate: an e-graph bounds what the first one finds, in a share of its seconds."""

    first: RuleSearch
    seconds: float

    name: ClassVar[str] = "bounded"

    def search(self, graph: Graph, rules: Sequence[Rule], cost: Cost | Costing) -> Rewritten:
        first = self.first.within(self.seconds * (1 - BOUND_SHARE)).search(graph, rules, cost)
        bound = Saturation(nodes=NODES, seconds=self.seconds * BOUND_SHARE, whole=False, ends=self.first.ends)
        return bound.bounded(first, graph, rules, cost)


def search_of(search: str | RuleSearch, seconds: float, alpha: float) -> RuleSearch:
    """A search by name, with these limits, or as it is; inputs and outputs of parts in any layout.

    Raises:
        ValueError: no such search.
    """
    if isinstance(search, RuleSearch):
        able = any(item.name == "ends" for item in fields(search))
        return replace(search, ends=ENDS) if able else search  # type: ignore[call-arg]
    if search not in SEARCHES:
        raise ValueError(
            f"no search {search!r} for rewrites: there are {' and '.join(SEARCHES)}, or a Backtracking or a Saturation "
            "with its options"
        )
    limits: dict[str, Any] = {"alpha": alpha} if search == "backtracking" else {}
    own: RuleSearch = proposer_of("rewrite", search, seconds=seconds, ends=ENDS, **limits)
    return own


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
    search: RuleSearch,
    progress: Callable[[str, float], None] = lambda what, share: None,
) -> Found:
    """The cheapest graph that is found, and how it is computed. graph: without nodes of weights alone. costs: that know
    these weights. search: its seconds are those of the whole."""
    bounded = search if isinstance(search, Saturation) else Bounded(search, search.seconds)
    whole, found = bounded.in_parts(graph, weights, rules, costs, progress)
    as_it_was = cheapest(graph, costs)
    before = as_it_was.cost
    choice = cheapest(whole, costs)
    if choice.cost > before:  # by what layouts cost between parts
        whole, choice = graph, as_it_was
    return Found(*folded(whole, weights), choice, before, found)
