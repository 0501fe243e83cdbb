"""Replacements that pay at once, anywhere in a graph: before it is searched in parts.

Backtracking looks at all sequences of replacements, and so at small parts (`segments`). What is alike in distant parts,
such as the same weights in each step of an unrolled network, only the whole graph shows. Here the first replacement
that lowers the cost is made, and the next is looked for in the graph that it left, until none is left or the time is
over.

Cost: for each replacement that is tried, one look at all nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from girih.graph import Graph, Node
from girih.layout.budget import Budget
from girih.rewrite.backtracking import MATCHED, Applied, Rewritten, RuleSearch, total
from girih.rewrite.rules.apply import NodeIndex, matches, replaced
from girih.rewrite.rules.rule import Rule
from girih.rewrite.ways import Cost, Costing, measuring

LEAST = 1e-3
"""What a replacement must save, of the cost of the nodes that it changes: less is noise of measurements."""
TRIED = 5_000.0
"""Nanoseconds for each node of a graph of making a replacement, and looking at what it changes."""


@dataclass(frozen=True)
class Sweep(RuleSearch):
    """Every replacement that pays at once, anywhere in the graph. A graph's cost is the sum of its nodes'."""

    seconds: float = 20.0

    name: ClassVar[str] = "sweep"

    def search(self, graph: Graph, rules: Sequence[Rule], cost: Cost | Costing) -> Rewritten:
        assert callable(cost)
        budget, before, measured = Budget(self.seconds), total(graph, cost), measuring(cost)
        now, tried, whole = before, 0, True
        steps: list[Applied] = []
        refused: set[tuple[int, tuple[str, ...]]] = set()
        for number, rule in enumerate(rules):
            going = True
            while going and whole:
                going = False
                budget.spend(MATCHED * len(graph.nodes))
                for match in matches(rule, NodeIndex.of(graph)):
                    key = (number, tuple(match.names.values()))
                    if key in refused:
                        continue
                    if budget.late:
                        whole = False
                        break
                    tried += 1
                    budget.spend(TRIED * len(graph.nodes) + (measuring(cost) - measured) * 1e9)
                    measured = measuring(cost)
                    child = replaced(graph, match)
                    saved, gone = (0.0, 0.0) if child is None else difference(graph, child, cost)
                    if child is None or saved <= LEAST * gone:
                        refused.add(key)
                        continue
                    graph, now, going = child, now - saved, True
                    steps.append(Applied(rule, match.outputs, now))
                    break
        stopped = "nothing is saved" if whole else budget.why
        return Rewritten(graph, before, now, tuple(steps), len(steps), tried, whole, stopped=stopped)


def difference(before: Graph, after: Graph, cost: Cost) -> tuple[float, float]:
    """(how much less the second graph costs, what the nodes cost that it does without). Only nodes that changed are
    priced, and those beside them, whose price may depend on who else reads what they read or make."""
    first, second = ({node.outputs[0]: node for node in graph.nodes} for graph in (before, after))
    changed = {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)}
    touched = {value for side in (first, second) for name in changed & side.keys() for value in _around(side[name])}
    sums = []
    for graph in (before, after):
        near = [node for node in graph.nodes if not touched.isdisjoint(_around(node))]
        sums.append(sum(cost(graph, node) for node in near))
    return sums[0] - sums[1], sums[0]


def _around(node: Node) -> tuple[str, ...]:
    return (*node.inputs, *node.outputs)
