"""Cost-based backtracking: the sequence of replacements that makes a graph cheapest (TASO §2.7).

Graphs wait in a queue, the cheapest first. Of the one that is taken, each rule is applied in each place; a graph that
costs less than `alpha` times the cheapest so far waits in its turn, so that a step that costs a little may open the way
to one that saves more. Graphs that are the same but for names and order are looked at once. Other than in the paper, a
graph that is cheaper than all before is taken at once, and the rest of its parent's children wait: a long sequence of
gains is walked without looking at every other step on the way. Joins and splits of many are of two while the search
goes on, as rules know them, and are priced as of many.

Cost: for each graph taken, one look at its nodes for each rule, and one more for each replacement.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from typing import ClassVar, Self

from girih.graph import Argument, Graph, Ref
from girih.layout.budget import Budget
from girih.rewrite.certificate import Certificate
from girih.rewrite.passes.binary_joins import BinaryJoins, FlatJoins
from girih.rewrite.passes.computed_once import ComputeOnce
from girih.rewrite.proposer import Proposer
from girih.rewrite.rules.apply import Match, NodeIndex, matches, replaced
from girih.rewrite.rules.rule import Rule
from girih.rewrite.segments import joined, segments
from girih.rewrite.ways import Cost, Costing, Remembered, cheapest, costing_of

MATCHED, CHILD = 1_000.0, 25_000.0
"""Nanoseconds for each node of a graph: of looking for one rule, and of making and pricing a replacement."""


@dataclass(frozen=True)
class Applied:
    """One step of a sequence. at: the values that the source made. cost: of the graph behind it."""

    rule: Rule
    at: tuple[str, ...]
    cost: float


@dataclass(frozen=True)
class Rewritten:
    """What a search found. before, cost: of the graph as it was, and as it is. taken, tried: graphs whose rules were
    applied, and replacements. complete: was the queue empty at the end? by: the method whose graph it is; what
    saturation finds has no sequence. certificate: where one was asked for. stopped: why the search ended; "time" where
    its counted work was over, "clock" where the machine was much slower than that. work: seconds of counted work."""

    graph: Graph
    before: float
    cost: float
    sequence: tuple[Applied, ...]
    taken: int
    tried: int
    complete: bool
    by: str = "backtracking"
    certificate: Certificate | None = None
    stopped: str = ""
    work: float = 0.0


class RuleSearch(Proposer):
    """A search over the graphs that rules lead to. seconds: of work at most, counted (`girih.layout.budget.Budget`), so
    that a busy machine finds the same. ends: layouts besides rows in which inputs may come and outputs leave, where it
    has such an option."""

    changes: ClassVar[tuple[str, ...]] = ("rewrites",)
    seconds: float
    ends: tuple[str, ...] = ()

    @abstractmethod
    def search(self, graph: Graph, rules: Sequence[Rule], cost: Cost | Costing) -> Rewritten:
        """The cheapest graph that is found. cost: of a node, in seconds; a graph's is the sum, and with a `Costing` the
        cheapest choice of kernels and layouts."""

    def within(self, seconds: float) -> Self:
        return replace(self, seconds=seconds)  # type: ignore[call-arg]

    def in_parts(
        self,
        graph: Graph,
        constant: Collection[str],
        rules: Sequence[Rule],
        cost: Cost | Costing,
        note: Callable[[str, float], None] = lambda what, share: None,
    ) -> tuple[Graph, tuple[Rewritten, ...]]:
        """The graph whose parts (`girih.rewrite.segments`) are each searched by itself in its share of the seconds, and
        what was found of each. constant: values that all parts may read."""
        parts, found = segments(graph, constant), list[Rewritten]()
        for number, part in enumerate(parts):
            note(f"search part {number + 1} of {len(parts)}", number / len(parts))
            own = self.within(self.seconds * len(part.nodes) / len(graph.nodes))
            found.append(own.search(part, rules, cost))
        return joined(graph, [item.graph for item in found], parts), tuple(found)


@dataclass(frozen=True)
class Backtracking(RuleSearch):
    """Cost-based backtracking: the cheapest sequence of replacements, the cheapest graphs looked at first (TASO §2.7).

    alpha: how much dearer than the cheapest a graph may be to be looked at. graphs: how many are taken at most.
    seconds: of work at most, counted (`girih.layout.budget.Budget`), so that a busy machine finds the same. patience:
    how many are taken, at most, after the last that was cheaper. ends: layouts besides rows in which inputs may come
    and outputs leave."""

    alpha: float = 1.05
    graphs: int = 1000
    seconds: float = 60.0
    patience: int = 40
    ends: tuple[str, ...] = ()

    name: ClassVar[str] = "backtracking"

    def search(self, graph: Graph, rules: Sequence[Rule], cost: Cost | Costing) -> Rewritten:
        budget, costing = Budget(self.seconds), Remembered(costing_of(cost))
        measured = costing.measuring

        def priced(graph: Graph) -> float:
            nonlocal measured
            before, measured = measured, costing.measuring
            budget.spend(CHILD * len(graph.nodes) + (measured - before) * 1e9)
            return cheapest(flat.apply(graph), costing, ends=self.ends, free=bool(self.ends)).cost

        flat = FlatJoins()
        before = priced(graph)
        graph = ComputeOnce().apply(BinaryJoins().apply(graph))
        best = Rewritten(graph, before, priced(graph), (), 0, 0, False)
        number = count()
        queue = [_Waiting(best.cost, next(number), children(graph, rules), graph, ())]
        known = {fingerprint(graph)}
        taken, tried, last, stopped = 0, 0, 0, ""
        while queue and taken < min(self.graphs, last + self.patience):
            current = heappop(queue)
            if current.cost > self.alpha * best.cost:
                queue.clear()
                break
            if budget.late:
                stopped = budget.why
                break
            taken += 1
            budget.spend(MATCHED * len(rules) * len(current.graph.nodes))
            for match, child in current.children:
                tried += 1
                key = fingerprint(child)
                if key in known:
                    continue
                known.add(key)
                amount = priced(child)
                if amount < self.alpha * best.cost:
                    longer = (*current.sequence, Applied(match.rule, match.outputs, amount))
                    order = _from(rules, match.rule)
                    heappush(queue, _Waiting(amount, next(number), children(child, order), child, longer))
                    if amount < best.cost * (1 - 1e-12):
                        last = taken
                        best = Rewritten(child, before, amount, longer, taken, tried, False)
                        heappush(queue, current)  # its other children wait until the better graph's are seen
                        break
                if budget.late:
                    stopped = budget.why
                    break
        complete = not stopped and not queue
        stopped = stopped or (
            "every graph was seen" if complete else f"limit of {min(self.graphs, last + self.patience)} graphs"
        )
        found = Rewritten(flat.apply(best.graph), before, best.cost, best.sequence, taken, tried, complete)
        return replace(found, stopped=stopped, work=budget.spent / 1e9)


@dataclass(frozen=True, order=True)
class _Waiting:
    """A graph in the queue, with the children that were not looked at yet."""

    cost: float
    number: int
    children: Iterator[tuple[Match, Graph]] = field(compare=False)
    graph: Graph = field(compare=False)
    sequence: tuple[Applied, ...] = field(compare=False)


def _from(rules: Sequence[Rule], rule: Rule) -> tuple[Rule, ...]:
    """The rules, beginning with one: what paid in one place is tried in the others first."""
    first = rules.index(rule)
    return (*rules[first:], *rules[:first])


def children(graph: Graph, rules: Sequence[Rule]) -> Iterator[tuple[Match, Graph]]:
    """The graph after each replacement by each rule."""
    index = NodeIndex.of(graph)
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
