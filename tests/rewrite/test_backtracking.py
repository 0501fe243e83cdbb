"""The search for the cheapest graph: it finds what single steps do not, never makes worse, and keeps the numbers."""

from __future__ import annotations

import pytest
import torch

from girih.capture import Inference, capture
from girih.graph import Graph, Node, check
from girih.kernels.evaluate import interpret
from girih.rewrite.backtracking import Backtracking, fingerprint, total
from girih.rewrite.rules.rule import parse

ASSOCIATIVE = "mm(a, mm(b, c)) == mm(mm(a, b), c)"
ONE_PRODUCT = (
    "x[m, k], a[k, n], b[k, p]: (mm(x, a), mm(x, b)) == "
    "(split(mm(x, cat(a, b, dim=1)), dim=1)[0], split(mm(x, cat(a, b, dim=1)), dim=1)[1])"
)
RULES = [rule for text in (ASSOCIATIVE, ONE_PRODUCT) for rule in (parse(text), parse(text).reverse)]


def flops(graph: Graph, node: Node) -> float:
    """Multiplications of products, and elements of everything else."""
    made = graph.values[node.outputs[0]].elements
    return made * (graph.values[node.inputs[0]].shape[1] if node.operator == "aten.mm" else 1)


def graph_of(module: torch.nn.Module, *inputs: torch.Tensor) -> Graph:
    return capture(Inference(module), inputs).graph


class Chain(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
        return ((a @ b) @ c) @ d


def test_a_chain_of_products_comes_to_its_optimum() -> None:
    shapes = [(30, 35), (35, 15), (15, 5), (5, 10)]  # the first four of a well-known textbook chain
    graph = graph_of(Chain(), *(torch.randn(shape) for shape in shapes))
    found = Backtracking(alpha=2.0).search(graph, RULES, flops)
    assert found.cost == 30 * 35 * 5 + 35 * 15 * 5 + 30 * 5 * 10
    assert found.complete
    assert found.sequence[-1].cost == found.cost == total(found.graph, flops) < found.before
    check(found.graph)
    values = {item.name: torch.randn(graph.values[item.name].shape) for item in graph.inputs}
    torch.testing.assert_close(
        list(interpret(found.graph, values).values()), list(interpret(graph, values).values()), rtol=1e-3, atol=1e-2
    )


def test_a_step_that_costs_is_taken_where_alpha_allows() -> None:
    """One product of two is dearer by the join, until a number says that products cost a start each."""
    graph = graph_of(Twice(), torch.randn(4, 8), torch.randn(8, 5), torch.randn(8, 7))
    assert Backtracking().search(graph, RULES, flops).sequence == ()
    dear = Backtracking().search(
        graph, RULES, lambda graph, node: flops(graph, node) + 1000 * (node.operator == "aten.mm")
    )
    assert [step.rule for step in dear.sequence] == [RULES[2]]
    assert dear.cost < dear.before


class Twice(torch.nn.Module):
    def forward(self, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (x @ a).relu().sum() + (x @ b).tanh().sum()


@pytest.mark.parametrize("limits", [Backtracking(graphs=0), Backtracking(seconds=0.0)])
def test_a_search_that_ran_out_says_so_and_gives_what_it_has(limits: Backtracking) -> None:
    graph = graph_of(Twice(), torch.randn(4, 8), torch.randn(8, 5), torch.randn(8, 7))
    found = limits.search(graph, RULES, flops)
    assert not found.complete
    assert found.graph is graph
    assert found.cost == found.before


def test_names_and_order_do_not_matter() -> None:
    graph = graph_of(Twice(), torch.randn(4, 8), torch.randn(8, 5), torch.randn(8, 7))
    other = graph_of(Twice(), torch.randn(4, 8), torch.randn(8, 5), torch.randn(8, 7))
    assert fingerprint(graph) == fingerprint(other)
    assert fingerprint(graph) != fingerprint(graph_of(Chain(), *(torch.randn(4, 4) for _ in range(4))))
