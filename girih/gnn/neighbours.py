"""Sums, means, maxima and attention over the neighbours of each vertex, as PyTorch functions with gradients.

Each is made of operators of girih's own (`girih.kernels.neighbours`) that capture records as one node, plain PyTorch
runs, and `torch.compile` takes. A gradient is the same operator on the transposed graph, whose rows `GraphBuffers`
keeps beside the graph's.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise, product
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

    Where the graph has cuts there are pieces besides: pieces and back_pieces of the graph and its transpose, and for
    operators with a number for each edge, edge_pieces, in which each vertex reads its edges, and order_pieces, in which
    each vertex of the transpose does.

    fixed: while a program is captured that has its features as a part, these.
    """

    offsets: Tensor
    neighbours: Tensor
    weights: Tensor | None
    back_offsets: Tensor
    back_neighbours: Tensor
    back_weights: Tensor | None
    readers: Tensor | None
    order: Tensor | None
    pieces: Pieces | None
    back_pieces: Pieces | None
    order_pieces: Pieces | None
    edge_pieces: Pieces | None

    def __init__(self, graph: Adjacency, dtype: torch.dtype | None = None, of_edges: bool = False) -> None:
        """dtype: of the weights; None: as they are. of_edges: whether operators are used that have values for each edge
        (weights that are learned, `to_edges`, attention with scores of edges), which need two more buffers."""
        super().__init__()
        self.fixed: Tensor = None
        graph.check()
        back = graph.transposed
        same = graph.sources == graph.vertices and graph.weights is None and _equal(graph, back)
        self.sources, self.vertices, self.edges = graph.sources, graph.vertices, graph.edges
        whole = not graph.cuts
        for name, array in (("offsets", graph.offsets), ("neighbours", graph.neighbours), ("weights", graph.weights)):
            tensor = (
                None if array is None or not whole else torch.from_numpy(np.require(array, requirements=["C", "W"]))
            )
            self.register_buffer(name, _cast(tensor, dtype), persistent=False)
        for name, array in (("offsets", back.offsets), ("neighbours", back.neighbours), ("weights", back.weights)):
            tensor = None if array is None or not whole else torch.from_numpy(array)
            self.register_buffer(
                f"back_{name}", getattr(self, name) if same else _cast(tensor, dtype), persistent=False
            )
        small = graph.neighbours.dtype
        order, readers = graph.transposed_edges.astype(small) if of_edges else None, graph.readers if of_edges else None
        for name, array in (("order", order), ("readers", readers)):
            tensor = torch.from_numpy(array) if array is not None and whole else None
            self.register_buffer(name, tensor, persistent=False)
        self.pieces = self.back_pieces = self.order_pieces = self.edge_pieces = None
        if whole:
            return
        self.pieces = Pieces(graph, dtype=dtype)
        self.back_pieces = self.pieces if same else Pieces(back, dtype=dtype)
        if order is not None:
            numbers = np.arange(graph.edges, dtype=small)
            self.edge_pieces = Pieces(replace(graph, neighbours=numbers, weights=None), self.pieces.edge_cuts)
            self.order_pieces = Pieces(replace(back, neighbours=order, weights=None), self.pieces.edge_cuts)

    def __matmul__(self, x: Tensor) -> Tensor:
        """What the graph's matrix times x is: `aggregate(x, graph)`."""
        return aggregate(x, self)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """`torch.sparse.mm(graph, x)`, `torch.mm` and `torch.matmul`, in which the graph stands for a sparse matrix."""
        if function in (torch.sparse.mm, torch.mm, torch.matmul) and isinstance(args[0], GraphBuffers) and not kwargs:
            return aggregate(args[1], args[0])
        return NotImplemented

    def extra_repr(self) -> str:
        cut = "" if self.pieces is None else f", in {self.pieces.count} pieces"
        return f"{self.vertices} vertices, {self.edges} edges{cut}"


class Pieces(torch.nn.Module):
    """A graph in pieces of consecutive vertices, of which each reads the rows that it needs, and each row once.

    A piece's neighbours are renumbered: first come the rows of its own range, then, piece by piece and in ascending
    order, those that it reads of others. Which these are is found once, here; it holds for all layers and epochs. In a
    plan a worker computes a piece, so that just these rows are sent (`girih.gnn.partitioner.search.Vertices`).

    Buffers: offsets_q, neighbours_q and, where edges have some, weights_q of each piece q; degrees, of all vertices;
    readers_q, the vertex of piece q that reads each of its edges, where it is edges that are read; rows_p_q, the rows
    that piece q reads of piece p, as numbers within p; there is none where it reads none.
    """

    def __init__(self, graph: Adjacency, source_cuts: tuple[int, ...] = (), dtype: torch.dtype | None = None) -> None:
        """source_cuts: which rows belong to which piece, where what is read are edges and not vertices."""
        super().__init__()
        self.cuts, self.source_cuts = graph.cuts, source_cuts or graph.cuts
        self.count = len(self.cuts) - 1
        self.edge_cuts = tuple(graph.offsets[list(self.cuts)].tolist())
        self._keep("degrees", graph.degrees)
        places = np.empty(self.source_cuts[-1], graph.neighbours.dtype)
        for piece, (first, last) in enumerate(pairwise(self.edge_cuts)):
            start, stop = self.source_cuts[piece : piece + 2]
            near = graph.neighbours[first:last]
            others = np.zeros(len(places), bool)
            others[near] = True
            others[start:stop] = False
            read = np.flatnonzero(others)
            places[start:stop] = np.arange(stop - start)
            places[read] = np.arange(stop - start, stop - start + len(read))
            offsets = graph.offsets[self.cuts[piece] : self.cuts[piece + 1] + 1] - first
            self._keep(f"offsets_{piece}", offsets)
            self._keep(f"neighbours_{piece}", places[near])
            weights = None if graph.weights is None else torch.from_numpy(graph.weights[first:last])
            self.register_buffer(f"weights_{piece}", _cast(weights, dtype), persistent=False)
            if source_cuts:
                self._keep(
                    f"readers_{piece}", np.repeat(np.arange(len(offsets) - 1, dtype=near.dtype), np.diff(offsets))
                )
            bounds = np.searchsorted(read, self.source_cuts)
            for other, (begin, end) in enumerate(pairwise(bounds)):
                if end > begin:
                    self._keep(f"rows_{other}_{piece}", read[begin:end] - self.source_cuts[other])

    def _keep(self, name: str, array: np.ndarray) -> None:
        self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(array)), persistent=False)

    def own(self, x: Tensor) -> list[Tensor]:
        """The rows of each piece's vertices, of x [vertices, ...]."""
        return _ranges(x, self.cuts)

    def rows(self, x: Tensor) -> list[Tensor]:
        """The rows of x that each piece reads, its own first."""
        own = _ranges(x, self.source_cuts)
        parts = [[own[piece]] for piece in range(self.count)]
        for piece, other in product(range(self.count), repeat=2):
            rows = getattr(self, f"rows_{other}_{piece}", None)
            if rows is not None:
                parts[piece].append(own[other].index_select(0, rows))
        return [some[0] if len(some) == 1 else operators.rows_here(some, piece) for piece, some in enumerate(parts)]

    def values(self, x: Tensor) -> list[Tensor]:
        """For each piece the row of x that each of its edges reads."""
        return [rows.index_select(0, getattr(self, f"neighbours_{q}")) for q, rows in enumerate(self.rows(x))]

    def shares(self, scores: Tensor) -> list[Tensor]:
        """For each piece, whose vertices read their edges, the softmax of each vertex's scores [edges, heads]."""
        parts = []
        for q, own in enumerate(self.rows(scores)):
            near, readers = self._near(q), getattr(self, f"readers_{q}")
            none = own.new_zeros((self.cuts[q + 1] - self.cuts[q], own.shape[1]))
            total = operators.attention_logsumexp(own, none, *near, None, 1.0)
            parts.append((own - total.to(own.dtype).index_select(0, readers)).exp())
        return parts

    def share_gradients(self, parts: Tensor, shares: Tensor) -> list[Tensor]:
        """Its gradient, of each piece; parts: what comes back for the shares, times these."""
        results = []
        for q, (own, mine) in enumerate(zip(self.rows(parts), self.rows(shares), strict=True)):
            sums = operators.neighbour_sum(own, *self._near(q), None, False)
            results.append(own - mine * sums.index_select(0, getattr(self, f"readers_{q}")))
        return results

    def _near(self, piece: int) -> tuple[Tensor, Tensor]:
        return getattr(self, f"offsets_{piece}"), getattr(self, f"neighbours_{piece}")

    def read(self, x: Tensor) -> list[Tensor]:
        """For each piece the row of x [vertices, ...] of the vertex that reads, for each of its edges."""
        readers = [getattr(self, f"readers_{q}") for q in range(self.count)]
        return [rows.index_select(0, mine) for rows, mine in zip(self.own(x), readers, strict=True)]


def _ranges(x: Tensor, cuts: tuple[int, ...]) -> list[Tensor]:
    return [x[start:stop] for start, stop in pairwise(cuts)]


Rows = Any  # a tensor, or where a graph is in pieces what each piece has of it, as a list


def _read(x: Tensor, pieces: Pieces | None) -> Rows:
    """The rows that neighbours are looked up in."""
    return x if pieces is None else pieces.rows(x)


def _read_all(tensors: tuple[Tensor, ...], pieces: Pieces | None) -> list[Rows]:
    """The same of several tensors, whose rows go together in one message where they are of one type."""
    if pieces is None or len({item.dtype for item in tensors}) > 1:
        return [_read(item, pieces) for item in tensors]
    shapes = [item.shape[1:] for item in tensors]
    widths = [math.prod(shape) for shape in shapes]
    together = pieces.rows(torch.cat([item.reshape(len(item), -1) for item in tensors], 1))
    split = [rows.split(widths, 1) for rows in together]
    return [[part[n].reshape(len(part[n]), *shape) for part in split] for n, shape in enumerate(shapes)]


def _own(x: Tensor, pieces: Pieces | None) -> Rows:
    """The rows of the vertices that read."""
    return x if pieces is None else pieces.own(x)


def _of_each_edge(values: Tensor | None, graph: GraphBuffers, back: bool = False) -> Rows:
    """A number for each edge, or several, in the order of the graph's edges, or, back, of the transposed graph's."""
    if values is None:
        return None
    if graph.pieces is None:
        return values.index_select(0, _of_edges(graph.order)) if back else values
    return _of_edges(graph.order_pieces).values(values) if back else _ranges(values, graph.pieces.edge_cuts)


def _weights_of(graph: GraphBuffers, x: Tensor, back: bool = False) -> Rows:
    """The graph's own weights, or None."""
    pieces = graph.back_pieces if back else graph.pieces
    if pieces is None:
        return _alike(graph.back_weights if back else graph.weights, x)
    weights = [_alike(getattr(pieces, f"weights_{q}"), x) for q in range(pieces.count)]
    return None if weights[0] is None else weights


def _over(
    graph: GraphBuffers, back: bool, operator: Any, rows: tuple[Rows, ...], edges: tuple[Rows, ...] = (), *options: Any
) -> Tensor:
    """An operator over the neighbours of the graph's vertices, or, back, of the transposed graph's: of all at once, or
    piece by piece. rows, edges: what `_read`, `_own` and `_of_each_edge` give."""
    pieces = graph.back_pieces if back else graph.pieces
    if pieces is None:
        near = (graph.back_offsets, graph.back_neighbours) if back else (graph.offsets, graph.neighbours)
        return operator(*rows, *near, *edges, *options)
    parts = []
    for q in range(pieces.count):
        near = getattr(pieces, f"offsets_{q}"), getattr(pieces, f"neighbours_{q}")
        mine = [None if item is None else item[q] for item in edges]
        parts.append(operator(*[item[q] for item in rows], *near, *mine, *options))
    return operators.pieces_joined(parts)


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


def _of_edges(tensor: Any) -> Any:
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
        if _weights_of(buffers, x) is not None:
            raise ValueError(
                "how='max' takes no weights, and the graph has some: give dataclasses.replace(graph, weights=None)"
            )
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
        ctx.graph, ctx.mean = graph, mean
        rows = _read(x, graph.pieces)
        ctx.rows = rows if weights is not None and weights.requires_grad and graph.pieces is not None else None
        ctx.save_for_backward(x if weights is not None and weights.requires_grad else None, weights)
        own = _weights_of(graph, x) if weights is None else _of_each_edge(_alike(weights, x), graph)
        return _over(graph, False, operators.neighbour_sum, (rows,), (own,), mean)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        graph, (x, weights) = ctx.graph, ctx.saved_tensors
        if ctx.mean:
            degrees = _degrees(graph)
            grad = grad / degrees.to(grad.dtype).reshape(-1, *[1] * (grad.dim() - 1))
        of_x = of_weights = None
        if ctx.needs_input_grad[0]:
            own = (
                _weights_of(graph, grad, True) if weights is None else _of_each_edge(_alike(weights, grad), graph, True)
            )
            of_x = _over(graph, True, operators.neighbour_sum, (_read(grad, graph.back_pieces),), (own,), False)
        if ctx.needs_input_grad[2]:
            rows = x if ctx.rows is None else ctx.rows
            both = _own(grad, graph.pieces), rows
            products = _over(graph, False, operators.edge_products, both, (), weights.dim() - 1)
            of_weights = products.to(weights.dtype)
        return of_x, None, of_weights, None


def _degrees(graph: GraphBuffers) -> Tensor:
    """How many neighbours each vertex has, at least 1."""
    if graph.pieces is None:
        return (graph.offsets[1:] - graph.offsets[:-1]).clamp(min=1)
    return graph.pieces.degrees.clamp(min=1)


def _alike(weights: Tensor | None, x: Tensor) -> Tensor | None:
    """Weights in the dtype in which rows of x are added up."""
    exact = torch.float64 if x.dtype == torch.float64 else torch.float32
    return weights if weights is None or weights.dtype == exact else weights.to(exact)


class _Max(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, graph: GraphBuffers) -> Tensor:
        ctx.graph = graph
        rows = _read(x, graph.pieces)
        ctx.rows = None if graph.pieces is None else rows
        top = _over(graph, False, operators.neighbour_max, (rows,))
        ctx.save_for_backward(x, top)
        return top

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        graph, (x, top) = ctx.graph, ctx.saved_tensors
        rows = x if ctx.rows is None else ctx.rows
        ties = _over(graph, False, operators.neighbour_ties, (rows, _own(top, graph.pieces)))
        share, back = grad / ties.clamp(min=1), graph.back_pieces
        rows = *_read_all((share, top), back), _own(x, back)
        return _over(graph, True, operators.neighbour_max_gradient, rows), None


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
        if graph.pieces is None:
            return x.index_select(0, graph.neighbours if of_source else _of_edges(graph.readers))
        pieces = _of_edges(graph.edge_pieces)
        return operators.pieces_joined(graph.pieces.values(x) if of_source else pieces.read(x))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        graph = ctx.graph
        pieces = graph.order_pieces if ctx.of_source else graph.edge_pieces
        if pieces is not None:
            parts = []
            for q, rows in enumerate(pieces.rows(grad)):
                parts.append(operators.neighbour_sum(rows, *pieces._near(q), None, False))
            return operators.pieces_joined(parts), None, None
        if ctx.of_source:
            near = graph.back_offsets, _of_edges(graph.order)
        else:
            near = graph.offsets, torch.arange(len(grad), dtype=graph.neighbours.dtype)
        return operators.neighbour_sum(grad, *near, None, False), None, None


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
        ctx.graph = graph
        if graph.pieces is not None:
            shares = operators.pieces_joined(_of_edges(graph.edge_pieces).shares(scores))
            ctx.save_for_backward(shares)
            return shares
        heads, readers = scores.shape[1], _of_edges(graph.readers)
        none = scores.new_zeros((graph.sources, heads)), scores.new_zeros((graph.vertices, heads))
        total = operators.attention_logsumexp(*none, graph.offsets, graph.neighbours, scores, 1.0)
        shares = (scores - total.to(scores.dtype).index_select(0, readers)).exp()
        ctx.save_for_backward(shares)
        return shares

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        graph, (shares,) = ctx.graph, ctx.saved_tensors
        parts = grad * shares
        if graph.pieces is not None:
            return operators.pieces_joined(_of_edges(graph.edge_pieces).share_gradients(parts, shares)), None
        numbers = torch.arange(len(parts), dtype=graph.neighbours.dtype)
        sums = operators.neighbour_sum(parts, graph.offsets, numbers, None, False)
        return parts - shares * sums.index_select(0, _of_edges(graph.readers)), None


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, graph: GraphBuffers, source: Tensor, target: Tensor, scores: Tensor | None, slope: float
    ) -> Tensor:
        pieces = graph.pieces
        (own, near), far, edges = _read_all((x, source), pieces), _own(target, pieces), _of_each_edge(scores, graph)
        total = _over(graph, False, operators.attention_logsumexp, (near, far), (edges,), slope)
        rows = own, _own(total, pieces), near, far
        out = _over(graph, False, operators.attention_sum, rows, (edges,), slope)
        ctx.graph, ctx.slope = graph, slope
        ctx.rows = None if pieces is None else (own, near)
        ctx.save_for_backward(x, total, source, target, scores, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        graph, (x, total, source, target, scores, out) = ctx.graph, ctx.saved_tensors
        dot = (grad * out).sum(2)
        of_x = of_source = of_target = of_scores = None
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[2]:
            back = graph.back_pieces
            read = _read_all((grad, dot, total, target), back)
            rows = read[0], _own(x, back), read[1], read[2], _own(source, back), read[3]
            own = _of_each_edge(scores, graph, True)
            both = _over(graph, True, operators.attention_source_gradient, rows, (own,), ctx.slope)
            of_x, of_source = both[..., :-1], both[..., -1]
        near, pieces = (x, source) if ctx.rows is None else ctx.rows, graph.pieces
        own = [_own(item, pieces) for item in (grad, dot, total, target)]
        rows, edges = (own[0], near[0], own[1], own[2], near[1], own[3]), (_of_each_edge(scores, graph),)
        if ctx.needs_input_grad[3]:
            of_target = _over(graph, False, operators.attention_target_gradient, rows, edges, ctx.slope)
        if ctx.needs_input_grad[4]:
            of_scores = _over(graph, False, operators.attention_score_gradient, rows, edges, ctx.slope)
        return of_x, None, of_source, of_target, of_scores, None
