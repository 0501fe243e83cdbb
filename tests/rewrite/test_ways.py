"""Kernels and layouts of a graph: chosen together, conversions paid once, and the optimum as by trying all."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import product

import torch
from counts import random_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from girih.capture import Inference, capture
from girih.graph import Graph, Node, Value
from girih.rewrite.rules.rule import parse
from girih.rewrite.saturation import Saturation
from girih.rewrite.ways import ROWS, ChosenWays, Way, cheapest

COLUMNS = "columns"


@dataclass
class Drawn:
    """Costs of each operator in each layout; elementwise `joins` are free behind products."""

    seconds: dict[tuple[str, str], float]
    convert: float
    joining: bool = False
    asked: list[str] = field(default_factory=list)

    def ways(self, graph: Graph, node: Node, constant: Collection[str]) -> tuple[Way, ...]:
        self.asked.append(node.name)
        return tuple(
            Way(layout, (layout,) * len(node.inputs), layout, self.seconds.get((node.operator, layout), 5.0))
            for layout in (ROWS, COLUMNS)
        )

    def joins(self, graph: Graph, node: Node, before: Node, constant: Collection[str]) -> bool:
        return self.joining and node.operator != "aten.mm" and before.operator == "aten.mm"

    def conversion(self, value: Value, before: str, after: str) -> float:
        return self.convert

    def constants(self, graph: Graph) -> frozenset[str]:
        return frozenset()


class Small(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        first = torch.relu(x @ y)
        return torch.tanh(first) @ (first + y)


def small() -> Graph:
    return capture(Inference(Small()), (torch.randn(3, 3), torch.randn(3, 3))).graph


def by_trying(graph: Graph, costs: Drawn) -> float:
    """The cheapest of all choices of ways, conversions paid once for each value and layout."""
    best = float("inf")
    every = [costs.ways(graph, node, ()) for node in graph.nodes]
    for chosen in product(*every):
        lies = {item.name: ROWS for item in graph.inputs}
        ways = dict(zip((node.name for node in graph.nodes), chosen, strict=True))
        for node in graph.nodes:
            lies[node.outputs[0]] = ways[node.name].makes
        wanted = {
            (name, layout)
            for node in graph.nodes
            for name, layout in zip(node.inputs, ways[node.name].reads, strict=True)
            if lies[name] != layout
        } | {(output.name, ROWS) for output in graph.outputs if lies[output.name] != ROWS}
        cost = costs.convert * len(wanted)
        for node in graph.nodes:
            joined = any(
                costs.joins(graph, node, graph.nodes[graph.producer[name]], ())
                and len(graph.consumers[name]) == 1
                and lies[name] == ways[node.name].makes
                for name in node.inputs
                if name in graph.producer
            )
            cost += 0.0 if joined else ways[node.name].seconds
        best = min(best, cost)
    return best


OPERATORS = ("aten.mm", "aten.relu", "aten.tanh", "aten.add.Tensor")
NUMBERS = st.integers(1, 9).map(float)


@settings(max_examples=random_cases(30))
@given(st.tuples(*[NUMBERS] * 8), st.integers(0, 6).map(float), st.booleans())
def test_the_choice_is_the_best_of_all(numbers: tuple[float, ...], convert: float, joining: bool) -> None:
    graph = small()
    pairs = product(OPERATORS, (ROWS, COLUMNS))
    costs = Drawn(dict(zip(pairs, numbers, strict=True)), convert, joining)
    choice = cheapest(graph, costs)
    assert choice.exact
    assert choice.cost == by_trying(graph, costs)
    found = Saturation().search(graph, [], costs)
    assert found.certificate is not None
    assert found.cost == choice.cost
    assert found.certificate.gap == 0


def test_rewrites_and_layouts_are_chosen_together() -> None:
    """TASO's Fig. 2.12: neither pays alone. A product is cheap in columns, but its operands would have to be brought
    there; the other bracketing has its operands there already."""

    class Chain(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
            return torch.tanh((a @ b) @ c)

    graph = capture(Inference(Chain()), tuple(torch.randn(3, 3) for _ in range(3))).graph
    rule = parse("mm(mm(a, b), c) == mm(a, mm(b, c))")

    class Costs(Drawn):
        def ways(self, graph: Graph, node: Node, constant: Collection[str]) -> tuple[Way, ...]:
            if node.operator != "aten.mm":
                return (Way("", (ROWS,), ROWS, 1.0),)
            inner = all(name in ("x.0", "x.1", "x.2") for name in node.inputs)
            last = Way("", (ROWS, COLUMNS), ROWS, 1.0)
            return (Way("", (ROWS, ROWS), ROWS, 6.0), Way("", (ROWS, ROWS), COLUMNS, 6.0) if inner else last)

    costs = Costs({}, 20.0)
    alone = cheapest(graph, costs)
    joint = Saturation().search(graph, [rule], costs)
    assert alone.cost == 6 + 6 + 1
    assert joint.cost == 6 + 1 + 1
    assert cheapest(joint.graph, costs).layouts


def test_nothing_to_choose_is_a_sum() -> None:
    graph = small()

    class One(Drawn):
        def ways(self, graph: Graph, node: Node, constant: Collection[str]) -> tuple[Way, ...]:
            return super().ways(graph, node, constant)[:1]

    choice = cheapest(graph, One({}, 1.0))
    assert choice == ChosenWays(25.0, choice.ways)
    assert choice.layouts == {}
