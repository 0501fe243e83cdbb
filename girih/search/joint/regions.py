"""Rewrites of one layer, or of all layers that are alike, with what is cheapest around them as it is.

Rules that pay on one device are applied to the whole graph before it is divided (`girih.search.joint.jointly`). Whether
they pay depends on the layouts of what they read and make: a merged product that must then be gathered loses. Here a
rule is applied in all places that are alike, and nowhere else. All nodes and values that stay keep their divisions and
layouts; those that the rule has made are divided as is cheapest beside them, by an exact search over these few. What
that takes the simulator says.

Cost: for each rule one look at the nodes; for each group of places its replacements, and a search over a few nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from girih.graph import Graph
from girih.layout.budget import Budget
from girih.ops.known import descriptions
from girih.partition import Strategy
from girih.partition.searches.exact import exact
from girih.partition.space.problem import Candidates, Objective
from girih.partition.strategy import SearchError
from girih.plans.rewritten import Prices, ProofError, Rewrite, prove_all, rules
from girih.rewrite.backtracking import CHILD, MATCHED
from girih.rewrite.passes.binary_joins import BinaryJoins, FlatJoins
from girih.rewrite.passes.computed_once import ComputeOnce
from girih.rewrite.rewriting import check
from girih.rewrite.rules.apply import Match, NodeIndex, matches, replaced
from girih.rewrite.rules.rule import Rule

DEARER = 1.05
"""Times the seconds of one device: what makes the graph dearer than that is not divided."""
SECONDS = 2.0
"""Seconds of work of dividing what a rule has made, at most."""


def regions(
    graph: Graph, strategy: Strategy, objective: Objective, budget: Budget
) -> Iterator[tuple[Graph, tuple[Rewrite, ...], Strategy]]:
    """(the graph with one group of places written otherwise, by which rewrites, how it is divided), those first that
    save most on one device. budget: of work, which it spends."""
    start, price = ComputeOnce().apply(BinaryJoins().apply(graph)), Prices(objective.machine.device)
    before = sum(price(graph, node) for node in graph.nodes)
    found: list[tuple[float, int, Graph, tuple[Rewrite, ...]]] = []
    for rule in rules():
        if budget.late:
            break
        budget.spend(MATCHED * len(start.nodes))
        for places in _alike(start, rule):
            if budget.late:
                break
            budget.spend(CHILD * len(start.nodes) * len(places))
            other, made = _applied(start, rule, places)
            if not made:
                continue
            other = FlatJoins().apply(other)
            cost = sum(price(other, node) for node in other.nodes)
            if cost <= DEARER * before:
                rewrites = tuple(Rewrite(str(rule), at, before, cost) for at in made)
                found.append((cost, len(found), other, rewrites))
    for _, _, other, rewrites in sorted(found, key=lambda item: item[:2]):
        if budget.late:
            return
        with suppress(ProofError, SearchError, ValueError):  # ValueError: nothing lies as the rest needs it
            prove_all(rewrites)
            check(graph, other)
            yield other, rewrites, _divided(other, graph, strategy, objective, budget)


def _alike(graph: Graph, rule: Rule) -> Iterator[tuple[Match, ...]]:
    """The places of a rule, those together that replace nodes of the same operators on the same shapes."""
    known, groups = descriptions(graph), dict[object, list[Match]]()
    for match in matches(rule, NodeIndex.of(graph)):
        nodes = [graph.producer[name] for name in match.outputs if name in graph.producer]
        groups.setdefault(tuple((graph.nodes[at].operator, id(known[at])) for at in nodes), []).append(match)
    yield from map(tuple, groups.values())


def _applied(graph: Graph, rule: Rule, places: Sequence[Match]) -> tuple[Graph, list[tuple[str, ...]]]:
    """The graph with the rule applied where it still can be, and what it has made otherwise."""
    wanted, made = {match.outputs for match in places}, list[tuple[str, ...]]()
    while wanted:
        again = next((match for match in matches(rule, NodeIndex.of(graph)) if match.outputs in wanted), None)
        if again is None:
            break
        wanted.discard(again.outputs)
        if (other := replaced(graph, again)) is not None:
            graph = other
            made.append(again.outputs)
    return graph, made


def _divided(graph: Graph, before: Graph, strategy: Strategy, objective: Objective, budget: Budget) -> Strategy:
    """The cheapest strategy in which everything lies, and is divided, as in a strategy of the graph before, where it
    was there.

    Raises:
        SearchError, ValueError: there is none.
    """
    known = {(node.operator, node.arguments, node.outputs): division
             for node, division in zip(before.nodes, strategy.divisions, strict=True)}  # fmt: skip
    divisions = {}
    for number, node in enumerate(graph.nodes):
        division = known.get((node.operator, node.arguments, node.outputs))
        if division is not None and not division.shares:
            divisions[number] = np.asarray([division.codes], np.int64)
    lying = {name: strategy.layouts[name].even_codes for name in graph.values if name in strategy.layouts}
    layouts = {name: (codes,) for name, codes in lying.items() if codes is not None}
    own = replace(objective, budget=None)
    found = exact(graph, own, candidates=Candidates(layouts, divisions), seconds=min(SECONDS, budget.seconds))
    budget.spend(found.certificate.work * 1e9)
    return found.strategy
