"""Rules in graphs: where they are found, what stands in their place, and that the numbers stay."""

from __future__ import annotations

import pytest
import torch

from girih.capture import Inference, capture
from girih.graph import Graph, check
from girih.kernels.evaluate import interpret
from girih.rewrite.rules.apply import NodeIndex, matches, replaced
from girih.rewrite.rules.rule import RuleError, parse
from girih.rewrite.rules.vocabulary import operator_named

ONE_PRODUCT = (
    "x[m, k], a[k, n], b[k, p]: (mm(x, a), mm(x, b)) == "
    "(split(mm(x, cat(a, b, dim=1)), dim=1)[0], split(mm(x, cat(a, b, dim=1)), dim=1)[1])"
)
ONE_CONVOLUTION = (
    "(convolution(x, a, stride=s, padding=p), convolution(x, b, stride=s, padding=p)) == "
    "(split(convolution(x, cat(a, b, dim=0), stride=s, padding=p), dim=1)[0], "
    "split(convolution(x, cat(a, b, dim=0), stride=s, padding=p), dim=1)[1])"
)
TRANSPOSED = "mm(x, a) == permute(mm(permute(a, dims=(1, 0)), permute(x, dims=(1, 0))), dims=(1, 0))"


class Branches(torch.nn.Module):
    """Two products and two convolutions of the same tensors, one after the other, and a chain of products."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (torch.nn.Parameter(torch.randn(8, size)) for size in (5, 8, 8))
        self.one = torch.nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.two = torch.nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.far = torch.nn.Conv2d(3, 6, 3, padding=1, stride=2, bias=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        products = torch.relu(x @ self.a).sum() + torch.tanh(x @ self.b @ self.c).sum()
        return products + self.one(y).sum() * self.two(y).relu().sum() + self.far(y).sum()


def graph_of(module: torch.nn.Module, *inputs: torch.Tensor) -> Graph:
    """In float64: what cancels in a sum leaves no more than the tolerance."""
    return capture(Inference(module.double()), tuple(item.double() for item in inputs)).graph


def same(before: Graph, after: Graph) -> None:
    check(after)
    values = {item.name: torch.randn(before.values[item.name].shape, dtype=torch.float64) for item in before.inputs}
    expected, found = interpret(before, values), interpret(after, values)
    assert expected.keys() == found.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("text", "places", "nodes"), [(ONE_PRODUCT, 2, 2), (ONE_CONVOLUTION, 2, 2), (TRANSPOSED, 3, 3)]
)
def test_a_rule_is_found_wherever_it_is_and_keeps_the_numbers(text: str, places: int, nodes: int) -> None:
    graph = graph_of(Branches(), torch.randn(4, 8), torch.randn(2, 3, 9, 9))
    rule = parse(text)
    found = list(matches(rule, NodeIndex.of(graph)))
    assert len(found) == places
    for match in found:
        after = replaced(graph, match)
        assert after is not None
        assert len(after.nodes) == len(graph.nodes) + nodes
        same(graph, after)
        back = [replaced(after, other) for other in matches(rule.reverse, NodeIndex.of(after))]
        assert any(other is not None and len(other.nodes) == len(graph.nodes) for other in back)
        for other in back:
            if other is not None:
                same(graph, other)


def test_what_would_be_a_circle_is_refused() -> None:
    """TASO Fig. 2.6: two products that can be one by themselves, but not where one needs the other."""

    class Loop(torch.nn.Module):
        def forward(self, x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
            first = x @ a
            return x @ (first + a)

    graph = graph_of(Loop(), torch.randn(4, 4), torch.randn(4, 4))
    found = list(matches(parse(ONE_PRODUCT), NodeIndex.of(graph)))
    assert len(found) == 2
    assert [replaced(graph, match) for match in found] == [None, None]


def test_sizes_that_the_rule_does_not_allow_are_no_match() -> None:
    graph = graph_of(Branches(), torch.randn(4, 8), torch.randn(2, 3, 9, 9))
    square = parse("x[m, k], a[k, k]: mm(x, a) == mm(x, a)")
    assert len(list(matches(square, NodeIndex.of(graph)))) == 2  # of three
    double = parse("x[m, 2*k], a[2*k, k + 1]: mm(x, a) == mm(x, a)")
    assert [match.symbols["k"] for match in matches(double, NodeIndex.of(graph))] == [4]
    unsaid = parse("x[m, k + 1], a[k + 1, n]: mm(x, a) == mm(x, a)")
    assert list(matches(unsaid, NodeIndex.of(graph))) == []  # nothing says what k is


def test_a_split_elsewhere_than_at_the_join_is_no_match() -> None:
    class Slices(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            both = torch.cat((a, b), 1)
            return both[:, : a.shape[1]] * 2, both[:, :2] * 3

    graph = graph_of(Slices(), torch.randn(4, 3), torch.randn(4, 5))
    undone = parse("split(cat(a, b, dim=1), dim=1)[0] == a")
    (match,) = matches(undone, NodeIndex.of(graph))
    after = replaced(graph, match)
    assert after is not None
    assert len(after.nodes) == len(graph.nodes) - 1
    same(graph, after)


def test_unknown_operators_are_named() -> None:
    with pytest.raises(RuleError, match="no operator 'matmull' is described"):
        operator_named("matmull")
    assert operator_named("mm") == "aten.mm"
    assert operator_named("add") == "aten.add.Tensor"
    assert operator_named("head_product") == "girih.head_product"
