"""Sums, means, maxima and attention over the neighbours of each vertex, as PyTorch functions with gradients.

Each is made of operators of girih's own (`girih.kernels.neighbours`) that capture records as one node, plain PyTorch
runs, and `torch.compile` takes. A gradient is the same operator on the transposed graph, whose rows `GraphBuffers`
keeps beside the graph's.
"""

from __future__ import annotations

from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch

from girih.gnn.adjacency import Adjacency
from girih.kernels.neighbours import operators

Tensor = Any  # torch is untyped for the type checker
_known: WeakKeyDictionary[Adjacency, GraphBuffers] = WeakKeyDictionary()


class GraphBuffers(torch.nn.Module):
    """A graph and its transpose as buffers of a module, which move with it and are not in its state.

    Modules of several layers share one, as `self.graph = buffers` in each.

    offsets, neighbours, weights: of the graph (weights None where all edges count as one). back_offsets,
    back_neighbours, back_weights: of its transpose. order: for each edge of the transpose its number in the graph, and
    edges: the numbers in order; these are what operators with a number for each edge need.
    """

    offsets: Tensor
    neighbours: Tensor
    weights: Tensor | None
    back_offsets: Tensor
    back_neighbours: Tensor
    back_weights: Tensor | None
    readers: Tensor | None
    order: Tensor | None

    def __init__(self, graph: Adjacency, dtype: torch.dtype | None = None, of_edges: bool = False) -> None:
        """dtype: of the weights; None: as they are. of_edges: whether operators are used that have values for each edge
        (weights that are learned, `to_edges`, attention with scores of edges), which need two more buffers."""
        super().__init__()
        graph.check()
        back = graph.transposed
        same = graph.sources == graph.vertices and graph.weights is None and _equal(graph, back)
        self.sources = graph.sources
        for name, array in (("offsets", graph.offsets), ("neighbours", graph.neighbours), ("weights", graph.weights)):
            tensor = None if array is None else torch.from_numpy(np.require(array, requirements=["C", "W"]))
            self.register_buffer(name, _cast(tensor, dtype), persistent=False)
        for name, array in (("offsets", back.offsets), ("neighbours", back.neighbours), ("weights", back.weights)):
            tensor = getattr(self, name) if same else None if array is None else torch.from_numpy(array)
            self.register_buffer(f"back_{name}", _cast(tensor, dtype), persistent=False)
        small = graph.neighbours.dtype
        numbers = torch.from_numpy(graph.transposed_edges.astype(small)) if of_edges else None
        self.register_buffer("order", numbers, persistent=False)
        self.register_buffer("readers", torch.from_numpy(graph.readers) if of_edges else None, persistent=False)

    @property
    def vertices(self) -> int:
        return len(self.offsets) - 1

    @property
    def edges(self) -> int:
        return len(self.neighbours)

    def extra_repr(self) -> str:
        return f"{self.vertices} vertices, {self.edges} edges"


def _equal(first: Adjacency, second: Adjacency) -> bool:
    return np.array_equal(first.offsets, second.offsets) and np.array_equal(first.neighbours, second.neighbours)


def _cast(tensor: Tensor | None, dtype: torch.dtype | None) -> Tensor | None:
    floating = tensor is not None and tensor.dtype.is_floating_point
    return tensor.to(dtype) if floating and dtype is not None else tensor  # type: ignore[union-attr]


def buffers_of(graph: Adjacency | GraphBuffers) -> GraphBuffers:
    """The graph's tensors; those of an Adjacency are made once, and kept as long as it is."""
    if isinstance(graph, GraphBuffers):
        return graph
    if graph not in _known:
        _known[graph] = GraphBuffers(graph, of_edges=True)
    return _known[graph]


def _checked(x: Tensor, graph: Adjacency | GraphBuffers, rank: int, name: str = "x") -> GraphBuffers:
    """The graph's tensors.

    Raises:
        ValueError: x has not a row for each vertex that can be read, or too few dimensions.
        TypeError: x is not of floating-point numbers.
    """
    buffers = buffers_of(graph)
    if x.dim() < rank or x.shape[0] != buffers.sources:
        raise ValueError(
            f"{name} must have a row for each of the {buffers.sources} vertices that are read, got {list(x.shape)}"
        )
    if x.dtype not in (torch.float32, torch.float64, torch.bfloat16):
        raise TypeError(f"{name} must be float32, float64 or bfloat16, got {x.dtype}")
    return buffers


def _of_edges(tensor: Tensor | None) -> Tensor:
    if tensor is None:
        raise ValueError(
            "values of edges need the edges' order: build the buffers as GraphBuffers(graph, of_edges=True)"
        )
    return tensor


def aggregate(
    x: Tensor,
    graph: Adjacency | GraphBuffers,
    how: Literal["sum", "mean", "max"] = "sum",
    weights: Tensor | None = None,
) -> Tensor:
    """For each vertex the sum, mean or largest of its neighbours' rows of x; 0 for a vertex without neighbours.

    x: [sources, ...features], float32, float64 or bfloat16 (added up in float32). weights: [edges], what each edge's
    row is multiplied with before, or [edges, …] of the first features; None: the graph's own weights, if it has some. A
    mean divides by the number of neighbours. Where several neighbours have the largest number they share its gradient
    equally, as in torch.amax.

    Returns:
        [vertices, ...features].

    Raises:
        ValueError: x or the weights do not fit the graph, `how` is unknown, or there are weights for a maximum.
    """
    buffers = _checked(x, graph, 1)
    if how == "max":
        if weights is not None:
            raise ValueError("how='max' takes no weights: multiply x by them, or leave them out")
        out = _Max.apply(x, buffers)
    elif how in ("sum", "mean"):
        if weights is not None and weights.shape != (buffers.edges, *x.shape[1 : weights.dim()]):
            raise ValueError(
                f"expected a weight for each of {buffers.edges} edges, or for each and the first features of x "
                f"{list(x.shape)}, got {list(weights.shape)}"
            )
        out = _Sum.apply(x, buffers, weights, how == "mean")
    else:
        raise ValueError(f"how={how!r}: expected 'sum', 'mean' or 'max'")
    return out  # type: ignore[no-any-return]


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, graph: GraphBuffers, weights: Tensor | None, mean: bool) -> Tensor:
        ctx.graph, ctx.mean, ctx.learned = graph, mean, weights is not None
        ctx.save_for_backward(x if weights is not None and weights.requires_grad else None, weights)
        own = graph.weights if weights is None else weights
        return operators.neighbour_sum(x, graph.offsets, graph.neighbours, _alike(own, x), mean)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        graph, (x, weights) = ctx.graph, ctx.saved_tensors
        if ctx.mean:
            degrees = (graph.offsets[1:] - graph.offsets[:-1]).clamp(min=1)
            grad = grad / degrees.to(grad.dtype).reshape(-1, *[1] * (grad.dim() - 1))
        of_x = of_weights = None
        if ctx.needs_input_grad[0]:
            own = graph.back_weights if weights is None else weights.index_select(0, _of_edges(graph.order))
            of_x = operators.neighbour_sum(grad, graph.back_offsets, graph.back_neighbours, _alike(own, grad), False)
        if ctx.needs_input_grad[2]:
            rows = graph.offsets, graph.neighbours
            of_weights = operators.edge_products(grad, x, *rows, weights.dim() - 1).to(weights.dtype)
        return of_x, None, of_weights, None


def _alike(weights: Tensor | None, x: Tensor) -> Tensor | None:
    """Weights in the dtype in which rows of x are added up."""
    exact = torch.float64 if x.dtype == torch.float64 else torch.float32
    return weights if weights is None or weights.dtype == exact else weights.to(exact)


class _Max(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, graph: GraphBuffers) -> Tensor:
        ctx.graph = graph
        top = operators.neighbour_max(x, graph.offsets, graph.neighbours)
        ctx.save_for_backward(x, top)
        return top  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        graph, (x, top) = ctx.graph, ctx.saved_tensors
        ties = operators.neighbour_ties(x, top, graph.offsets, graph.neighbours)
        share = grad / ties.clamp(min=1)
        rows = graph.back_offsets, graph.back_neighbours
        return operators.neighbour_max_gradient(share, top, x, *rows), None


def to_edges(x: Tensor, graph: Adjacency | GraphBuffers, end: Literal["source", "target"]) -> Tensor:
    """For each edge the row of x of the vertex that is read ("source"), or of the one that reads ("target").

    x: [sources, ...] or [vertices, ...]. Returns [edges, ...], in the order of the graph's edges.

    Raises:
        ValueError: x does not fit the graph, or `end` is neither.
    """
    buffers = buffers_of(graph)
    rows = {"source": buffers.sources, "target": buffers.vertices}
    if end not in rows:
        raise ValueError(f"end={end!r}: expected 'source' or 'target'")
    if x.dim() == 0 or len(x) != rows[end]:
        raise ValueError(f"x must have a row for each of {rows[end]} vertices, the edges' {end}s; got {list(x.shape)}")
    return _ToEdges.apply(x, buffers, end == "source")  # type: ignore[no-any-return]


class _ToEdges(torch.autograd.Function):
    """The gradient is a sum over the edges of each vertex: the edges are what its neighbours are."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, graph: GraphBuffers, of_source: bool) -> Tensor:
        ctx.graph, ctx.of_source = graph, of_source
        return x.index_select(0, graph.neighbours if of_source else _of_edges(graph.readers))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        graph = ctx.graph
        if ctx.of_source:
            rows = graph.back_offsets, _of_edges(graph.order)
        else:
            rows = graph.offsets, torch.arange(len(grad), dtype=graph.neighbours.dtype)
        return operators.neighbour_sum(grad, *rows, None, False), None, None


def attend(
    x: Tensor,
    graph: Adjacency | GraphBuffers,
    source: Tensor,
    target: Tensor,
    scores: Tensor | None = None,
    slope: float = 0.2,
    dropout: float = 0.0,
) -> Tensor:
    """For each vertex and head the mean of its neighbours' rows of x, weighted by a softmax of their scores (GAT).

    The score of an edge from u to v is leaky_relu(source[u] + target[v] + scores[edge], slope). x: [sources, heads,
    features]. source: [sources, heads]. target: [vertices, heads]. scores: [edges, heads], for features of edges.
    slope: 1 leaves scores as they are. Nothing of the size of the edges is kept, unless scores need gradients, or there
    is dropout. dropout: the share of what the softmax gives, edge by edge, that is set to 0; the rest grows so much.

    Returns:
        [vertices, heads, features]; 0 for a vertex without neighbours.

    Raises:
        ValueError: the tensors do not fit the graph, or one another.
    """
    buffers = _checked(x, graph, 3)
    heads = x.shape[1]
    expected = {
        "source": (source, (buffers.sources, heads)),
        "target": (target, (buffers.vertices, heads)),
        "scores": (scores, (buffers.edges, heads)),
    }
    for name, (tensor, shape) in expected.items():
        if tensor is not None and tensor.shape != shape:
            raise ValueError(f"{name} must be {list(shape)} for x of {list(x.shape)}, got {list(tensor.shape)}")
    if dropout:
        read = to_edges(source, buffers, "source") + to_edges(target, buffers, "target")
        read = read if scores is None else read + scores
        shares = _Shares.apply(torch.nn.functional.leaky_relu(read, slope), buffers)
        return aggregate(x, buffers, "sum", torch.nn.functional.dropout(shares, dropout))
    return _Attend.apply(x, buffers, source, target, scores, slope)  # type: ignore[no-any-return]


class _Shares(torch.autograd.Function):
    """The softmax of the scores [edges, heads] of each vertex's edges."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, graph: GraphBuffers) -> Tensor:
        heads, readers = scores.shape[1], _of_edges(graph.readers)
        none = scores.new_zeros((graph.sources, heads)), scores.new_zeros((graph.vertices, heads))
        total = operators.attention_logsumexp(*none, graph.offsets, graph.neighbours, scores, 1.0)
        shares = (scores - total.to(scores.dtype).index_select(0, readers)).exp()
        ctx.graph = graph
        ctx.save_for_backward(shares)
        return shares

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        graph, (shares,) = ctx.graph, ctx.saved_tensors
        parts = grad * shares
        numbers = torch.arange(len(parts), dtype=graph.neighbours.dtype)
        sums = operators.neighbour_sum(parts, graph.offsets, numbers, None, False)
        return parts - shares * sums.index_select(0, _of_edges(graph.readers)), None


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, graph: GraphBuffers, source: Tensor, target: Tensor, scores: Tensor | None, slope: float
    ) -> Tensor:
        rows = graph.offsets, graph.neighbours
        total = operators.attention_logsumexp(source, target, *rows, scores, slope)
        out = operators.attention_sum(x, total, source, target, *rows, scores, slope)
        ctx.graph, ctx.slope = graph, slope
        ctx.save_for_backward(x, total, source, target, scores, out)
        return out  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        graph, (x, total, source, target, scores, out) = ctx.graph, ctx.saved_tensors
        dot = (grad * out).sum(2)
        of_x = of_source = of_target = of_scores = None
        same = grad, x, dot, total, source, target
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[2]:
            own = None if scores is None else scores.index_select(0, _of_edges(graph.order))
            rows = graph.back_offsets, graph.back_neighbours
            both = operators.attention_source_gradient(*same, *rows, own, ctx.slope)
            of_x, of_source = both[..., :-1], both[..., -1]
        if ctx.needs_input_grad[3]:
            rows = graph.offsets, graph.neighbours
            of_target = operators.attention_target_gradient(*same, *rows, scores, ctx.slope)
        if ctx.needs_input_grad[4]:
            rows = graph.offsets, graph.neighbours
            of_scores = operators.attention_score_gradient(*same, *rows, scores, ctx.slope)
        return of_x, None, of_source, of_target, of_scores, None
