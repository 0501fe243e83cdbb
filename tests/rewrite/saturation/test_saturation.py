"""Equality saturation: the optimum of what rules reach, without circles, and how far others are from it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
import scipy.optimize
import torch
from counts import random_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from girih.capture import Inference, capture
from girih.graph import Graph, Input, Node, Output, Ref, Value, check
from girih.kernels.evaluate import interpret
from girih.rewrite.backtracking import Backtracking, fingerprint, total
from girih.rewrite.rules.apply import NodeIndex, matches
from girih.rewrite.rules.further import inference
from girih.rewrite.rules.rule import parse
from girih.rewrite.rules.shipped import shipped
from girih.rewrite.saturation import Saturation
from girih.rewrite.saturation.egraph import EGraph
from girih.rewrite.saturation.explore import explore, symmetric
from girih.rewrite.saturation.extract import extract
from girih.rewrite.ways import InRows

ASSOCIATIVE = parse("mm(a, mm(b, c)) == mm(mm(a, b), c)")
ONE_PRODUCT = parse(
    "x[m, k], a[k, n], b[k, p]: (mm(x, a), mm(x, b)) == "
    "(split(mm(x, cat(a, b, dim=1)), dim=1)[0], split(mm(x, cat(a, b, dim=1)), dim=1)[1])"
)


def flops(graph: Graph, node: Node) -> float:
    """Multiplications of products, and elements of everything else."""
    made = graph.values[node.outputs[0]].elements
    return made * (graph.values[node.inputs[0]].shape[1] if node.operator == "aten.mm" else 1)


def calls(graph: Graph, node: Node) -> float:
    return {"aten.mm": 10.0, "aten.cat": 1.0, "aten.slice.Tensor": 0.0}.get(node.operator, 3.0)


def graph_of(module: torch.nn.Module, *inputs: torch.Tensor) -> Graph:
    return capture(Inference(module), inputs).graph


def same(before: Graph, after: Graph) -> None:
    check(after)
    values = {item.name: torch.randn(before.values[item.name].shape) for item in before.inputs}
    expected, found = interpret(before, values), interpret(after, values)
    assert expected.keys() == found.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-3, atol=1e-3)


class Chain(torch.nn.Module):
    def forward(self, *matrices: torch.Tensor) -> torch.Tensor:
        result = matrices[0]
        for matrix in matrices[1:]:
            result = result @ matrix
        return result


def best_chain(sizes: list[int]) -> int:
    """The textbook's dynamic program: the fewest multiplications."""
    count = len(sizes) - 1
    best = [[0] * count for _ in range(count)]
    for length in range(1, count):
        for first in range(count - length):
            last = first + length
            best[first][last] = min(
                best[first][middle] + best[middle + 1][last] + sizes[first] * sizes[middle + 1] * sizes[last + 1]
                for middle in range(first, last)
            )
    return best[0][-1]


@settings(max_examples=10)
@given(st.lists(st.integers(1, 9), min_size=4, max_size=5))
def test_a_chain_of_products_comes_to_its_optimum_with_a_proof(sizes: list[int]) -> None:
    graph = graph_of(Chain(), *(torch.randn(pair) for pair in pairwise(sizes)))
    found = Saturation().search(graph, [ASSOCIATIVE, ASSOCIATIVE.reverse], flops)
    assert found.cost == total(found.graph, flops) == best_chain(sizes)
    assert found.certificate is not None
    assert found.certificate.gap == 0
    assert found.certificate.stopped == "saturated"
    assert found.complete
    same(graph, found.graph)


class Several(torch.nn.Module):
    """Products of one tensor, two of which leave the graph, and one of another."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.randn(4, 3 + number) for number in range(count))
        self.other = torch.nn.Parameter(torch.randn(5, 3))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, *rest = (x @ weight for weight in self.weights)
        return first, rest[0], torch.relu(torch.cat(rest, 1)), y @ self.other


def test_several_products_become_one() -> None:
    graph = graph_of(Several(4), torch.randn(2, 4), torch.randn(2, 5))
    found = Saturation().search(graph, [ONE_PRODUCT], calls)
    assert found.certificate is not None
    assert found.certificate.gap == 0
    assert [node.operator for node in found.graph.nodes].count("aten.mm") == 2
    assert found.cost < found.before
    same(graph, found.graph)


def test_many_products_do_not_grow_without_end() -> None:
    """Each product beside those after it, never beside itself: 2ᵏ joins, and the e-graph is saturated."""
    graph = graph_of(Several(4), torch.randn(2, 4), torch.randn(2, 5))
    egraph = EGraph(graph)
    explored = explore(egraph, [ONE_PRODUCT], nodes=5000, rounds=10, seconds=60)
    assert explored.stopped == "saturated"
    assert sum(node.operator == "aten.mm" for node in egraph.every()) == 2**4 - 1 + 1


class Loop(torch.nn.Module):
    """TASO's Fig. 2.6."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ torch.relu(a @ b)


def test_a_circle_is_in_the_e_graph_and_not_in_what_is_taken_out() -> None:
    graph = graph_of(Loop(), torch.randn(4, 4), torch.randn(4, 4))
    egraph = EGraph(graph)
    assert explore(egraph, [ONE_PRODUCT], nodes=100, rounds=5, seconds=10).stopped == "saturated"
    assert any(node.operator == "aten.cat" for node in egraph.every())
    found = extract(egraph, InRows(calls), ())
    assert found.graph is not None
    assert found.exact
    same(graph, found.graph)
    assert found.bound == pytest.approx(total(graph, calls))


def test_no_clock_ends_extraction_and_size_decides_what_is_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine on which seconds pass as it looks at its clock, the same graph comes out, with the same bound."""
    graph = graph_of(Several(5), torch.randn(2, 4), torch.randn(2, 5))
    egraph = EGraph(graph)
    explore(egraph, [ONE_PRODUCT], nodes=1000, rounds=5, seconds=10)
    quiet = extract(egraph, InRows(calls), set(), seconds=10)
    now, limits = 0.0, []

    def clock() -> float:
        nonlocal now
        now += 1e4
        return now

    def told(*arguments, **options):
        limits.append(options["options"])
        return milp(*arguments, **options)

    milp = scipy.optimize.milp
    monkeypatch.setattr("scipy.optimize.milp", told)
    monkeypatch.setattr("girih.layout.budget.time", SimpleNamespace(monotonic=clock))
    busy = extract(egraph, InRows(calls), set(), seconds=10)
    assert quiet.exact
    assert (busy.exact, busy.bound, busy.variables) == (True, quiet.bound, quiet.variables)
    assert fingerprint(busy.graph) == fingerprint(quiet.graph)
    assert limits
    assert all("time_limit" not in item for item in limits)
    few = extract(egraph, InRows(calls), set(), seconds=0.01)
    assert (few.graph, few.bound, few.exact) == (None, 0.0, False)


def test_backtracking_gets_the_same_certificate_and_is_not_below_the_bound() -> None:
    graph = graph_of(Several(3), torch.randn(2, 4), torch.randn(2, 5))
    rules = [rule for rule in (*inference(), *shipped()) if "product" in rule.name or "join" in rule.name]
    found = Backtracking(graphs=2).search(graph, rules, calls)
    bounded = Saturation().bounded(found, graph, rules, calls)
    assert bounded.certificate is not None
    assert found.certificate is None
    assert bounded.certificate.bound <= bounded.cost <= found.cost
    whole = Saturation().search(graph, rules, calls)
    assert whole.cost == pytest.approx(bounded.cost)


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Saturation(nodes=3), "limit of 3 nodes"),
        (Saturation(rounds=0), "limit of 0 rounds"),
        (Saturation(seconds=0.0), "limit of 0 seconds, extraction ran out of time"),
    ],
)
def test_a_search_that_met_a_limit_says_so_and_gives_what_it_has(limits: Saturation, why: str) -> None:
    graph = graph_of(Several(3), torch.randn(2, 4), torch.randn(2, 5))
    found = limits.search(graph, [ONE_PRODUCT], calls)
    assert found.certificate is not None
    assert found.certificate.stopped == why
    assert not found.complete
    assert found.cost <= found.before
    assert "explored" in found.certificate.space
    same(graph, found.graph)


@pytest.mark.parametrize("search", [Backtracking(seconds=0.01), Saturation(seconds=0.01)], ids=["walk", "saturation"])
def test_what_is_found_does_not_depend_on_the_clock(
    search: Backtracking | Saturation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work is counted: a search that is cut short is cut at the same place, however slow the machine is."""
    graph = graph_of(Several(5), torch.randn(2, 4), torch.randn(2, 5))
    step, now = 0.0, 0.0

    def clock() -> float:
        nonlocal now
        now += step
        return now

    monkeypatch.setattr("girih.layout.budget.time", SimpleNamespace(monotonic=clock))
    quiet = search.search(graph, [ONE_PRODUCT], calls)
    step = 1e-5
    busy = search.search(graph, [ONE_PRODUCT], calls)
    assert (busy.cost, busy.tried, busy.stopped) == (quiet.cost, quiet.tried, quiet.stopped)
    assert fingerprint(busy.graph) == fingerprint(quiet.graph)
    step = 1e3
    ended = search.search(graph, [ONE_PRODUCT], calls)
    stopped = ended.stopped if ended.certificate is None else ended.certificate.stopped
    assert "clock" in stopped


def test_what_leaves_twice_and_several_results_are_kept() -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            values, places = torch.topk(x, 2)
            return torch.relu(x), torch.relu(x) + 0, values, values + places

    graph = graph_of(Twice(), torch.randn(3, 4))
    egraph = EGraph(graph)
    found = extract(egraph, InRows(calls), ()).graph
    assert found is not None
    same(graph, found)


def test_equal_nodes_are_one_and_their_readers_too() -> None:
    class Equal(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(torch.relu(x)) + torch.tanh(torch.relu(x))

    graph = graph_of(Equal(), torch.randn(3))
    found = Saturation().search(graph, [], calls)
    assert len(found.graph.nodes) == 3
    same(graph, found.graph)


def test_joins_of_joins_and_slices_of_slices_are_one() -> None:
    class Nested(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
            joined = torch.cat((torch.cat((x, y), 1), z), 1) + torch.cat((x, torch.cat((y, z), 1)), 1)
            return joined[:, 1:8][:, 2:5] + joined[:, 3:6]

    graph = graph_of(Nested(), *(torch.randn(2, 3) for _ in range(3)))
    egraph = EGraph(graph)
    assert sum(node.operator == "aten.add.Tensor" for node in egraph.every()) == 2
    found = extract(egraph, InRows(lambda graph, node: 1.0), ()).graph
    assert found is not None
    assert [node.operator for node in found.nodes].count("aten.cat") == 1
    assert [node.operator for node in found.nodes].count("aten.slice.Tensor") == 1
    same(graph, found)


def test_rules_match_in_an_e_graph_as_in_a_graph() -> None:
    graph = graph_of(Several(3), torch.randn(2, 4), torch.randn(2, 5))
    egraph = EGraph(graph)
    index = NodeIndex({name: egraph.values[name] for name in egraph.nodes}, egraph.every())
    in_graph = {match.outputs for match in matches(ONE_PRODUCT, NodeIndex.of(graph))}
    assert {match.outputs for match in matches(ONE_PRODUCT, index)} == in_graph != set()
    assert symmetric(ONE_PRODUCT.source)
    assert not symmetric(replace(ONE_PRODUCT, source=ONE_PRODUCT.source[:1]).source)


UNARY = ("aten.tanh", "aten.relu", "aten.sigmoid")
LENGTH = 8


@st.composite
def e_graphs(draw: st.DrawFn) -> EGraph:
    """Of small random graphs, of which random values are said to be equal: circles, classes of several nodes, and
    slices of slices."""
    nodes: list[Node] = []
    values = {"x": Value("x", (LENGTH,), "float32"), "y": Value("y", (LENGTH,), "float32")}
    for number in range(draw(st.integers(3, 9))):
        name, read = f"n{number}", draw(st.sampled_from(sorted(values)))
        kind = draw(st.sampled_from(("unary", "binary", "slice")))
        (length,) = values[read].shape
        alike = [other for other in sorted(values) if values[other].shape == (length,)]
        if kind == "slice" and length > 2:
            start = draw(st.sampled_from((0, length // 2)))
            arguments = (("self", Ref(read)), ("dim", 0), ("start", start), ("end", start + length // 2))
            operator, length = "aten.slice.Tensor", length // 2
        elif kind == "binary":
            operator = "aten.mul.Tensor"
            arguments = (("self", Ref(read)), ("other", Ref(draw(st.sampled_from(alike)))))
        else:
            operator, arguments = draw(st.sampled_from(UNARY)), (("self", Ref(read)),)
        nodes.append(Node(name, operator, arguments, (name,)))
        values[name] = Value(name, (length,), "float32")
    outputs = draw(st.lists(st.sampled_from(sorted(values.keys() - {"x", "y"})), min_size=1, max_size=2, unique=True))
    graph = Graph(
        inputs=(Input("x", "batch", "x"), Input("y", "batch", "y")),
        outputs=tuple(Output(name, "result") for name in outputs),
        nodes=tuple(nodes),
        values=values,
    )
    egraph = EGraph(graph)
    for _ in range(draw(st.integers(0, 4))):
        first = draw(st.sampled_from([node.name for node in nodes]))
        alike = [node.name for node in nodes if values[node.name].shape == values[first].shape]
        egraph.join(first, draw(st.sampled_from(alike)))
        egraph.rebuild()
    return egraph


def price(graph: Graph, node: Node) -> float:
    return {"aten.slice.Tensor": 0.0, "aten.mul.Tensor": 5.0, "aten.tanh": 3.0, "aten.relu": 4.0}.get(
        node.operator, 7.0
    )


def cheapest_of_all(egraph: EGraph) -> float:
    """By looking at each choice of a node for each class that outputs need, without circles."""
    inputs = {egraph.find(item.name) for item in egraph.graph.inputs}

    def best(waiting: tuple[str, ...], chosen: dict[str, Node]) -> float:
        left = [name for name in waiting if name not in chosen]
        if not left:
            return sum(price(egraph.graph, node) for node in chosen.values()) if in_some_order(chosen) else float("inf")
        name, *rest = left
        return min(
            (
                best((*rest, *(read for read in node.inputs if read not in inputs)), {**chosen, name: node})
                for node in egraph.nodes[name].values()
            ),
            default=float("inf"),
        )

    def in_some_order(chosen: dict[str, Node]) -> bool:
        made = set(inputs)
        while new := {name for name, node in chosen.items() if name not in made and made.issuperset(node.inputs)}:
            made |= new
        return made.issuperset(chosen)

    return best(tuple(name for name in egraph.roots.values() if name not in inputs), {})


@settings(max_examples=random_cases(150), deadline=None)
@given(e_graphs())
def test_the_bound_is_the_cheapest_of_all_graphs_in_a_random_e_graph(egraph: EGraph) -> None:
    found = extract(egraph, InRows(price), ())
    assert found.exact
    assert found.bound == pytest.approx(cheapest_of_all(egraph))
    assert found.graph is not None
    check(found.graph)
    roots = egraph.roots
    if len(set(roots.values())) == len(roots):  # else one value leaves twice, and is computed for each
        assert total(found.graph, price) == pytest.approx(found.bound)


def test_a_slice_of_a_slice_stays_where_it_is_not_there_as_one() -> None:
    """What is sliced was said to be a slice after that, so no one slice is in the place of both."""

    class Sliced(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return torch.tanh(x)[:4], torch.relu(y)[:2]

    graph = graph_of(Sliced(), torch.randn(8), torch.randn(4))
    egraph = EGraph(graph)
    (relu,) = (node.name for node in graph.nodes if node.operator == "aten.relu")
    egraph.join(graph.outputs[0].name, relu)
    egraph.rebuild()
    found = extract(egraph, InRows(price), ())
    assert found.exact
    assert found.bound == pytest.approx(price(graph, graph.nodes[0])) == cheapest_of_all(egraph) == 3.0
