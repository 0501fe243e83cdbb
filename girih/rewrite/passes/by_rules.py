"""Proved rules applied wherever they leave fewer nodes; and numbers that are known to be 1, for rules that speak of it.

    1 / (1 + exp(-x))   →   reciprocal(exp(-x) + 1)   →   sigmoid(x)

A search weighs rules by costs. These save by themselves: each application removes nodes, and one kernel is left.
Cost: linear in the nodes for each application.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from girih.graph import Argument, Graph, Node, Ref
from girih.rewrite.rules.apply import NodeIndex, matches, replaced
from girih.rewrite.rules.rule import Rule


@dataclass(frozen=True)
class ByRules:
    """Apply rules while one of them leaves fewer nodes. ones: inputs of the graph that are numbers and 1; where no rule
    applies, they stay inputs as all other numbers, so that a program that changes them is planned once."""

    rules: tuple[Rule, ...]
    ones: frozenset[str] = frozenset()

    def apply(self, graph: Graph) -> Graph:
        known = _with_ones(graph, self.ones)
        better = known
        while (smaller := next(self._smaller(better), None)) is not None:
            better = smaller
        return graph if better is known else better

    def _smaller(self, graph: Graph) -> Iterator[Graph]:
        index = NodeIndex.of(graph)
        for rule in self.rules:
            for match in matches(rule, index):
                after = replaced(graph, match)
                if after is not None and len(after.nodes) < len(graph.nodes):
                    yield after


def _with_ones(graph: Graph, ones: frozenset[str]) -> Graph:
    """1 + x with the number as an attribute, and 1 / x as a reciprocal."""
    if ones.isdisjoint(name for node in graph.nodes for name in node.inputs):
        return graph
    return replace(graph, nodes=tuple(_with_one(graph, node, ones) for node in graph.nodes))


def _with_one(graph: Graph, node: Node, ones: frozenset[str]) -> Node:
    arguments: dict[str, Argument] = dict(node.arguments)
    first, second = arguments.get("self"), arguments.get("other")
    if not isinstance(first, Ref) or not isinstance(second, Ref) or not {first.name, second.name} & ones:
        return node
    rest = second if first.name in ones else first
    made, of = graph.values[node.outputs[0]], graph.values[rest.name]
    if (made.shape, made.dtype) != (of.shape, of.dtype) or not made.dtype.startswith("float"):
        return node
    if node.operator == "aten.add.Tensor" and arguments.get("alpha", 1) == 1:
        return replace(node, arguments=(("self", rest), ("other", 1.0)))
    if node.operator == "aten.div.Tensor" and first.name in ones:
        return replace(node, operator="aten.reciprocal", arguments=(("self", rest),))
    return node
