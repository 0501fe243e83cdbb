"""All ways to write a small graph to which proved rules lead, the one first of which a division may be fastest.

A rule that saves nothing by itself may open the way to one that does: (a b) c becomes a (b c), and b c is there
already, or needs no message. And a product that is written otherwise, as dear as before on one device, may need other
divisions of all that is around it. Neither is seen where one rule at a time is priced on one device
(`girih.plans.rewritten`), or beside the best as it is divided (`girih.search.joint.regions`). So of small graphs every
replacement of every graph is followed, best first by the lower bound of its step (`girih.simulate.bounds`); what is the
same but for names and order is looked at once. Rules may lead from a graph that cannot be the fastest to one that is:
such graphs are gone through, and left out of what is found.

Cost: for each graph that is gone through, one look at its nodes for each rule; one more for each graph that is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from heapq import heappop, heappush

from girih.graph import Graph
from girih.layout.budget import Budget
from girih.machine import Machine
from girih.plans.rewritten import Prices, ProofError, Rewrite, prove_all, rules
from girih.rewrite.backtracking import CHILD, MATCHED, children, fingerprint
from girih.rewrite.passes.binary_joins import BinaryJoins, FlatJoins
from girih.rewrite.passes.computed_once import ComputeOnce
from girih.rewrite.rewriting import check
from girih.simulate.bounds import bound_of

TAKEN = 64
"""Graphs whose replacements are looked at, at most."""


def writings(
    graph: Graph, machine: Machine, wanted: Callable[[Graph], bool], budget: Budget
) -> Iterator[tuple[Graph, tuple[Rewrite, ...]]]:
    """(the graph written otherwise, by which rewrites), those with the least lower bound first.

    wanted: whether a graph is worth dividing, which is asked when its turn comes. budget: of work, which it spends.
    """
    start, price, own_rules = ComputeOnce().apply(BinaryJoins().apply(graph)), Prices(machine.device), rules()
    known, number, taken = {fingerprint(start)}, 0, 0
    waiting: list[tuple[float, int, Graph, tuple[Rewrite, ...]]] = [(0.0, number, start, ())]
    while waiting and taken < TAKEN and not budget.late:
        _, _, current, rewrites = heappop(waiting)
        if rewrites and wanted(other := FlatJoins().apply(current)):
            with suppress(ProofError, ValueError):
                prove_all(rewrites)
                check(graph, other)
                yield other, rewrites
        taken += 1
        budget.spend(MATCHED * len(own_rules) * len(current.nodes))
        before = sum(price(current, node) for node in current.nodes)
        for match, child in children(current, own_rules):
            if (key := fingerprint(child)) in known:
                continue
            known.add(key)
            number += 1
            budget.spend(CHILD * len(child.nodes))
            cost = sum(price(child, node) for node in child.nodes)
            longer = (*rewrites, Rewrite(str(match.rule), match.outputs, before, cost))
            heappush(waiting, (bound_of(FlatJoins().apply(child), machine).seconds, number, child, longer))


def orders_of(graph: Graph) -> Iterator[tuple[int, ...]]:
    """The nodes in each order in which they can be computed."""
    nodes, entering = graph.nodes, {item.name for item in graph.inputs}

    def behind(order: tuple[int, ...], known: set[str]) -> Iterator[tuple[int, ...]]:
        if len(order) == len(nodes):
            yield order
        for number, node in enumerate(nodes):
            if number not in order and known.issuperset(node.inputs):
                yield from behind((*order, number), known.union(node.outputs))

    return behind((), entering)


def in_order(graph: Graph, order: Sequence[int]) -> Graph:
    """The graph with its nodes in an order."""
    return replace(graph, nodes=tuple(graph.nodes[number] for number in order))
