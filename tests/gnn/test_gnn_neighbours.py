"""Aggregation over neighbours is what a dense adjacency matrix gives, with its gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from girih import gnn

EXACT = {"rtol": 1e-10, "atol": 1e-10}


def random_graph(rng: np.random.Generator, weighted: bool = False) -> gnn.Adjacency:
    """With empty rows, edges that are there twice, self loops; sometimes bipartite, sometimes without edges."""
    vertices, sources, edges = int(rng.integers(1, 8)), int(rng.integers(1, 8)), int(rng.integers(0, 25))
    if rng.random() < 0.5:
        sources = vertices
    read, reading = rng.integers(0, sources, edges), rng.integers(0, vertices, edges)
    weights = rng.standard_normal(edges) if weighted else None
    return gnn.Adjacency.of_edges(read, reading, vertices, sources, weights)


def random_tensor(rng: np.random.Generator, *shape: int, grad: bool = True) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape)).requires_grad_(grad)


def dense_aggregate(x: torch.Tensor, graph: gnn.Adjacency, how: str, weights: torch.Tensor | None) -> torch.Tensor:
    """Of each vertex by itself, by PyTorch."""
    rows = []
    for v in range(graph.vertices):
        edges = slice(int(graph.offsets[v]), int(graph.offsets[v + 1]))
        near = x[torch.from_numpy(graph.neighbours[edges]).long()]
        if weights is not None:
            near = near * weights[edges].reshape(-1, *[1] * (x.dim() - 1))
        empty = x.new_zeros(x.shape[1:])
        rows.append(empty if not len(near) else {"sum": near.sum, "mean": near.mean, "max": near.amax}[how](0))
    return torch.stack(rows)


def assert_same(made: torch.Tensor, expected: torch.Tensor, leaves: list[torch.Tensor]) -> None:
    """The values, and the gradients of all leaves."""
    torch.testing.assert_close(made, expected, **EXACT)
    assert made.requires_grad
    expected = expected + sum(leaf.sum() for leaf in leaves) * 0  # rows without edges depend on nothing
    weight = torch.randn_like(expected)
    gradients = [torch.autograd.grad((out * weight).sum(), leaves) for out in (made, expected)]
    torch.testing.assert_close(*gradients, **EXACT)


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["sum", "mean", "max"]), st.sampled_from([None, "own", "learned"]))
def test_aggregation_is_that_of_each_vertex_by_itself(seed: int, how: str, weighted: str | None) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, weighted == "own" and how != "max")
    x = random_tensor(rng, graph.sources, *rng.integers(1, 4, rng.integers(0, 3)))
    if rng.random() < 0.3:
        x = x.detach().round().requires_grad_()  # neighbours that tie
    learned = random_tensor(rng, graph.edges) if weighted == "learned" and how != "max" else None
    own = None if graph.weights is None else torch.from_numpy(graph.weights)
    expected = dense_aggregate(x, graph, how, own if learned is None else learned)
    leaves = [x] if learned is None else [x, learned]
    assert_same(gnn.aggregate(x, graph, how, learned), expected, leaves)


def dense_attention(
    x: torch.Tensor, graph: gnn.Adjacency, source: torch.Tensor, target: torch.Tensor, scores: torch.Tensor | None,
    slope: float,
) -> torch.Tensor:  # fmt: skip
    rows = []
    for v in range(graph.vertices):
        edges = slice(int(graph.offsets[v]), int(graph.offsets[v + 1]))
        near = torch.from_numpy(graph.neighbours[edges]).long()
        score = source[near] + target[v] + (0 if scores is None else scores[edges])
        share = torch.nn.functional.leaky_relu(score, slope).softmax(0)
        rows.append((share.unsqueeze(2) * x[near]).sum(0))
    return torch.stack(rows)


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_attention_is_a_softmax_over_neighbours(seed: int, scored: bool) -> None:
    rng = np.random.default_rng(seed)
    graph, heads = random_graph(rng), int(rng.integers(1, 4))
    x = random_tensor(rng, graph.sources, heads, int(rng.integers(1, 12)))
    source, target = random_tensor(rng, graph.sources, heads), random_tensor(rng, graph.vertices, heads)
    scores = random_tensor(rng, graph.edges, heads) if scored else None
    slope = float(rng.choice([0.2, 1.0]))
    expected = dense_attention(x, graph, source, target, scores, slope)
    leaves = [item for item in (x, source, target, scores) if item is not None]
    assert_same(gnn.attend(x, graph, source, target, scores, slope), expected, leaves)


@pytest.mark.parametrize("end", ["source", "target"])
def test_edges_get_the_rows_of_their_ends(end: str) -> None:
    rng = np.random.default_rng(3)
    graph = gnn.Adjacency.of_edges(rng.integers(0, 5, 20), rng.integers(0, 7, 20), 7, 5)
    x = random_tensor(rng, 5 if end == "source" else 7, 2, 3)
    rows = graph.neighbours if end == "source" else graph.readers
    assert_same(gnn.to_edges(x, graph, end), x[torch.from_numpy(rows).long()], [x])


def test_gradients_are_the_numerical_ones() -> None:
    rng = np.random.default_rng(4)
    graph = gnn.Adjacency.of_edges(rng.integers(0, 4, 9), rng.integers(0, 5, 9), 5, 4)
    x, weights, scores = random_tensor(rng, 4, 2), random_tensor(rng, 9), random_tensor(rng, 9, 2)
    heads, source, target = random_tensor(rng, 4, 2, 2), random_tensor(rng, 4, 2), random_tensor(rng, 5, 2)
    for how in ("sum", "mean"):
        assert torch.autograd.gradcheck(lambda x, w, how=how: gnn.aggregate(x, graph, how, w), (x, weights))
    assert torch.autograd.gradcheck(lambda x: gnn.aggregate(x, graph, "max"), (x,))
    assert torch.autograd.gradcheck(lambda *t: gnn.attend(t[0], graph, *t[1:]), (heads, source, target, scores))


def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are divided among threads, and a few have most of the edges."""
    monkeypatch.setattr("girih.kernels.neighbours.FEW", 0)
    rng = np.random.default_rng(5)
    graph = gnn.Adjacency.of_edges(rng.integers(0, 40, 3000), rng.integers(0, 40, 3000) ** 2 // 40, 40)
    x, heads = torch.randn(40, 12), torch.randn(40, 4, 3)
    source, target = torch.randn(40, 4), torch.randn(40, 4)

    def made(threads: int) -> list[torch.Tensor]:
        before = torch.get_num_threads()
        try:
            torch.set_num_threads(threads)
            results = [gnn.aggregate(x, graph, how) for how in ("sum", "mean", "max")]
            return [*results, gnn.attend(heads, graph, source, target)]
        finally:
            torch.set_num_threads(before)

    assert all(map(torch.equal, made(1), made(3)))


def test_halves_are_added_up_in_float32() -> None:
    """1,000 ones and a hundredth each: bfloat16 itself would stay at 256."""
    graph = gnn.Adjacency(np.array([0, 1000]), np.arange(1000, dtype=np.int32), 1000)
    x = torch.full((1000, 2), 1.01, dtype=torch.bfloat16, requires_grad=True)
    made = gnn.aggregate(x, graph)
    assert made.dtype == torch.bfloat16
    torch.testing.assert_close(made.float(), torch.full((1, 2), 1010.0), rtol=2**-7, atol=0.0)
    made.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))


def test_the_compiler_of_pytorch_takes_them() -> None:
    rng = np.random.default_rng(6)
    graph = gnn.GraphBuffers(gnn.Adjacency.of_edges(rng.integers(0, 9, 30), rng.integers(0, 9, 30), 9))
    x, source, target = torch.randn(9, 1, 4, requires_grad=True), torch.randn(9, 1), torch.randn(9, 1)

    def network(x: torch.Tensor) -> torch.Tensor:
        hidden = gnn.attend(x, graph, source, target).relu()
        return gnn.aggregate(hidden, graph, "mean").sum() + gnn.aggregate(hidden, graph, "max").sum()

    compiled = torch.compile(network, backend="aot_eager", fullgraph=True)
    values = [(network(x), torch.autograd.grad(network(x), x)), (compiled(x), torch.autograd.grad(compiled(x), x))]
    torch.testing.assert_close(*values)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x, graph: gnn.aggregate(x[:3], graph), r"a row for each of the 4 vertices that are read, got \[3, 2\]"),
        (lambda x, graph: gnn.aggregate(x, graph, "median"), "expected 'sum', 'mean' or 'max'"),
        (lambda x, graph: gnn.aggregate(x, graph, "max", torch.ones(5)), "takes no weights"),
        (lambda x, graph: gnn.aggregate(x, replace(graph, weights=np.ones(5)), "max"), "the graph has some"),
        (lambda x, graph: gnn.aggregate(x, graph, "sum", torch.ones(4)), "a weight for each of 5 edges"),
        (lambda x, graph: gnn.to_edges(x, graph, "both"), "expected 'source' or 'target'"),
        (lambda x, graph: gnn.to_edges(x, gnn.GraphBuffers(graph), "target"), "of_edges=True"),
        (lambda x, graph: gnn.attend(x[:, None], graph, x, x), r"source must be \[4, 1\]"),
    ],
)
def test_what_does_not_fit_is_refused(call: object, said: str) -> None:
    graph = gnn.Adjacency.of_edges(np.array([0, 1, 2, 3, 0]), np.array([0, 1, 2, 3, 3]), 4)
    with pytest.raises(ValueError, match=said):
        call(torch.randn(4, 2), graph)


def test_damaged_graphs_are_refused() -> None:
    offsets, neighbours = np.array([0, 2, 3]), np.array([0, 1, 1], np.int32)
    with pytest.raises(ValueError, match="edge 0 reads vertex 0, but there are only the vertices 0 to -1"):
        gnn.GraphBuffers(gnn.Adjacency(offsets, neighbours, 0))
    with pytest.raises(ValueError, match="must ascend from 0 to 3"):
        gnn.GraphBuffers(gnn.Adjacency(np.array([0, 3, 2]), neighbours, 2))
    with pytest.raises(ValueError, match="a weight for each of 3 edges"):
        gnn.GraphBuffers(gnn.Adjacency(offsets, neighbours, 2, np.ones(2, np.float32)))


def test_normalisation_and_self_loops() -> None:
    """Against the dense matrix: D^-1/2 (A + I) D^-1/2, and D^-1 A."""
    rng = np.random.default_rng(7)
    graph = gnn.Adjacency.of_edges(rng.integers(0, 6, 20), rng.integers(0, 6, 20), 6)

    def dense(graph: gnn.Adjacency) -> torch.Tensor:
        return gnn.aggregate(torch.eye(6), graph)

    looped = dense(graph)
    looped[range(6), range(6)] += (looped.diagonal() == 0).float()
    torch.testing.assert_close(dense(graph.with_self_loops()), looped)
    roots = looped.sum(1).rsqrt()
    torch.testing.assert_close(dense(graph.with_self_loops().normalised()), roots[:, None] * looped * roots)
    torch.testing.assert_close(dense(graph.normalised("rw")).sum(1), (dense(graph).sum(1) > 0).float())
