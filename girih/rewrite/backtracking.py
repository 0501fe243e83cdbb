"""Cost-based backtracking: the sequence of replacements that makes a graph cheapest (TASO §2.7).

Graphs wait in a queue, the cheapest first. Of the one that is taken, each rule is applied in each place; a graph that
costs less than `alpha` times the cheapest so far waits in its turn, so that a step that costs a little may open the way
to one that saves more. Graphs that are the same but for names and order are looked at once.

Cost: for each graph taken, one look at its nodes for each rule, and one more for each replacement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from girih.graph import Argument, Graph, Node, Ref
from girih.rewrite.rules.apply import Index, Match, matches, replaced
from girih.rewrite.rules.rule import Rule

Cost = Callable[[Graph, Node], float]
Progress = Callable[["Rewritten"], None]


@dataclass(frozen=True)
class Applied:
    """One step of a sequence. at: the values that the source made. cost: of the graph behind it."""

    rule: Rule
    at: tuple[str, ...]
    cost: float


@dataclass(frozen=True)
class Rewritten:
    """What a search found. before, cost: of the graph as it was, and as it is. taken, tried: graphs whose rules were
    applied, and replacements. complete: was the queue empty at the end?"""

    graph: Graph
    before: float
    cost: float
    sequence: tuple[Applied, ...]
    taken: int
    tried: int
    complete: bool


@dataclass(frozen=True)
class Backtracking:
    """alpha: how much dearer than the cheapest a graph may be to be looked at. graphs, seconds: how many are taken, and
    for how long, at most."""

    alpha: float = 1.05
    graphs: int = 1000
    seconds: float = 60.0

    def search(self, graph: Graph, rules: Sequence[Rule], cost: Cost, progress: Progress | None = None) -> Rewritten:
        """The cheapest graph that is found. cost: of a node, in seconds; a graph's is the sum."""
        ends = time.monotonic() + self.seconds
        before = total(graph, cost)
        best = Rewritten(graph, before, before, (), 0, 0, False)
        number = count()
        queue: list[tuple[float, int, Graph, tuple[Applied, ...]]] = [(before, next(number), graph, ())]
        known = {fingerprint(graph)}
        taken, tried, whole = 0, 0, True
        while queue and taken < self.graphs and time.monotonic() < ends:
            price, _, current, sequence = heappop(queue)
            if price >= self.alpha * best.cost:
                queue.clear()
                break
            taken += 1
            for match, child in _children(current, rules):
                tried += 1
                key = fingerprint(child)
                if key in known:
                    continue
                known.add(key)
                amount = total(child, cost)
                longer = (*sequence, Applied(match.rule, match.outputs, amount))
                if amount < best.cost:
                    best = Rewritten(child, before, amount, longer, taken, tried, False)
                    if progress is not None:
                        progress(best)
                if amount < self.alpha * best.cost:
                    heappush(queue, (amount, next(number), child, longer))
                if time.monotonic() >= ends:
                    whole = False
                    break
        return Rewritten(best.graph, before, best.cost, best.sequence, taken, tried, whole and not queue)


def _children(graph: Graph, rules: Sequence[Rule]) -> Iterator[tuple[Match, Graph]]:
    index = Index(graph)
    for rule in rules:
        for match in matches(rule, index):
            child = replaced(graph, match)
            if child is not None:
                yield match, child


def total(graph: Graph, cost: Cost) -> float:
    return sum(cost(graph, node) for node in graph.nodes)


def fingerprint(graph: Graph) -> int:
    """Equal for graphs that are the same but for the names of values and the order of nodes."""
    hashes = {item.name: hash(("input", item.name)) for item in graph.inputs}

    def of(argument: Argument) -> object:
        if isinstance(argument, Ref):
            return hashes[argument.name]
        return tuple(map(of, argument)) if isinstance(argument, tuple) else argument

    for node in graph.nodes:
        own = hash((node.operator, tuple((name, of(value)) for name, value in sorted(node.arguments))))
        for result, name in enumerate(node.outputs):
            hashes[name] = hash((own, result))
    leaving = tuple((hashes[output.name], output.role, output.replaces) for output in graph.outputs)
    return hash((leaving, frozenset(hashes.values())))
