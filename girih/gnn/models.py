"""Graph networks as ordinary PyTorch modules: GCN, GraphSAGE, GIN, CommNet, GAT, and deep residual GCNs.

Parameters have the names, and the initial distributions, of torch_geometric's models of the same name, so that
`load_state_dict` takes theirs; outputs are theirs but for the order of sums. A layer is linear in what it aggregates,
so aggregation and the product with the weights change places: what has fewer columns is aggregated, but features that a
plan trains on, of which it aggregates them once, before the first step (`girih.gnn.once`).

GCN: Kipf and Welling 2017. GraphSAGE: Hamilton, Ying and Leskovec 2017. GIN: Xu et al. 2019. CommNet: Sukhbaatar, Szlam
and Fergus 2016. GAT: Veličković et al. 2018, without dropout of attention. Deep residual GCN: ROC, §4.7.5.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.nn import Linear, Module, ModuleList, Parameter
from torch.nn.functional import dropout, linear, relu

from girih.gnn.adjacency import Adjacency
from girih.gnn.neighbours import GraphBuffers, aggregate, attend

Tensor = Any  # torch is untyped for the type checker
Kind = Literal["plain", "looped", "normalised"]
"""How a layer reads a graph: each edge counts as one; with self loops besides; with its weights and self loops, by the
square roots of what both ends weigh."""

_read: WeakKeyDictionary[Adjacency, dict[tuple[Kind, torch.dtype], ReadGraph]] = WeakKeyDictionary()


class ReadGraph(GraphBuffers):
    """A graph as layers of a kind read it. scale: of each vertex 1 / √(the weight that it reads), or None."""

    scale: Tensor | None

    def __init__(self, graph: Adjacency, kind: Kind, dtype: torch.dtype = torch.float32) -> None:
        if kind != "normalised" and graph.weights is not None:
            graph = replace(graph, weights=None)
        if kind != "plain":
            graph = graph.with_self_loops()
        super().__init__(graph, dtype)
        self.kind = kind
        scale = torch.from_numpy(_roots(graph)).to(dtype) if kind == "normalised" else None
        self.register_buffer("scale", scale, persistent=False)


def _roots(graph: Adjacency) -> np.ndarray:
    """1 / √ of the weights that each vertex reads; 0 where that is not more than 0."""
    if graph.weights is None:
        totals = graph.degrees.astype(np.float64)
    else:
        totals = np.add.reduceat(graph.weights, graph.offsets[:-1], dtype=np.float64)  # each row has its self loop
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(totals > 0, 1 / np.sqrt(totals), 0.0)


def read_graph(graph: Adjacency | GraphBuffers, kind: Kind, dtype: torch.dtype = torch.float32) -> ReadGraph:
    """The graph as layers of a kind read it; that of an Adjacency is made once, and kept as long as it is.

    Raises:
        ValueError: buffers that were made for layers of another kind.
    """
    if isinstance(graph, Adjacency):
        kinds = _read.setdefault(graph, {})
        if (kind, dtype) not in kinds:
            kinds[kind, dtype] = ReadGraph(graph, kind, dtype)
        return kinds[kind, dtype]
    if not isinstance(graph, ReadGraph) or graph.kind != kind:
        own = f"of a ReadGraph that is {graph.kind}" if isinstance(graph, ReadGraph) else f"a {type(graph).__name__}"
        raise ValueError(f"the layer reads a graph that is {kind}, got {own}: give the Adjacency, which it prepares")
    return graph


def _aggregates_first(layer: Linear, x: Tensor, graph: GraphBuffers) -> bool:
    """Whether a linear layer comes behind the sum over neighbours, and not before."""
    return layer.in_features <= layer.out_features or x is graph.fixed


def _glorot(*tensors: Tensor) -> None:
    for tensor in tensors:
        bound = math.sqrt(6.0 / (tensor.size(-2) + tensor.size(-1)))
        torch.nn.init.uniform_(tensor, -bound, bound)


class GCNConv(Module):
    """Â x W + b, where Â is the graph with self loops, normalised symmetrically (`Adjacency.normalised`)."""

    kind: ClassVar[Kind] = "normalised"

    def __init__(self, features: int, out: int) -> None:
        super().__init__()
        self.lin = Linear(features, out, bias=False)
        self.bias = Parameter(torch.zeros(out))
        _glorot(self.lin.weight)

    def forward(self, x: Tensor, graph: Adjacency | GraphBuffers) -> Tensor:
        read = read_graph(graph, self.kind, x.dtype)
        assert read.scale is not None
        scale = read.scale.to(x.dtype).unsqueeze(1)
        if _aggregates_first(self.lin, x, read):
            return self.lin(scale * aggregate(scale * x, read)) + self.bias  # type: ignore[no-any-return]
        return scale * aggregate(scale * self.lin(x), read) + self.bias


class SAGEConv(Module):
    """W₁ · (mean or maximum of the neighbours) + b + W₂ · x."""

    kind: ClassVar[Kind] = "plain"

    def __init__(self, features: int, out: int, how: Literal["mean", "max"] = "mean") -> None:
        super().__init__()
        self.how = how
        self.lin_l = Linear(features, out)
        self.lin_r = Linear(features, out, bias=False)

    def forward(self, x: Tensor, graph: Adjacency | GraphBuffers) -> Tensor:
        read = read_graph(graph, self.kind, x.dtype)
        if self.how == "max" or _aggregates_first(self.lin_l, x, read):
            return self.lin_l(aggregate(x, read, self.how)) + self.lin_r(x)  # type: ignore[no-any-return]
        return aggregate(linear(x, self.lin_l.weight), read, self.how) + self.lin_l.bias + self.lin_r(x)  # type: ignore[no-any-return]


class Perceptron(Module):
    """Two linear layers with a ReLU between."""

    def __init__(self, features: int, out: int) -> None:
        super().__init__()
        self.lins = ModuleList([Linear(features, out), Linear(out, out)])


class GINConv(Module):
    """A perceptron of (1 + ε) x + the sum of the neighbours. ε is 0, or learned."""

    kind: ClassVar[Kind] = "plain"
    eps: Tensor

    def __init__(self, features: int, out: int, learned: bool = False) -> None:
        super().__init__()
        self.nn = Perceptron(features, out)
        if learned:
            self.eps = Parameter(torch.zeros(1))
        else:
            self.register_buffer("eps", torch.zeros(1))

    def forward(self, x: Tensor, graph: Adjacency | GraphBuffers) -> Tensor:
        read = read_graph(graph, self.kind, x.dtype)
        first, second = self.nn.lins
        if _aggregates_first(first, x, read):
            hidden = first(aggregate(x, read) + (1 + self.eps) * x)
        else:
            x = linear(x, first.weight)
            hidden = aggregate(x, read) + (1 + self.eps) * x + first.bias
        return second(relu(hidden))  # type: ignore[no-any-return]


class GATConv(Module):
    """Heads of attention over the neighbours and the vertex itself, joined (concat) or averaged."""

    kind: ClassVar[Kind] = "looped"

    def __init__(self, features: int, out: int, heads: int = 1, concat: bool = True, slope: float = 0.2) -> None:
        super().__init__()
        self.heads, self.concat, self.slope = heads, concat, slope
        self.lin = Linear(features, heads * out, bias=False)
        self.att_src = Parameter(torch.empty(1, heads, out))
        self.att_dst = Parameter(torch.empty(1, heads, out))
        self.bias = Parameter(torch.zeros(heads * out if concat else out))
        _glorot(self.lin.weight, self.att_src, self.att_dst)

    def forward(self, x: Tensor, graph: Adjacency | GraphBuffers) -> Tensor:
        read = read_graph(graph, self.kind, x.dtype)
        heads = self.lin(x).reshape(len(x), self.heads, -1)
        source, target = (heads * self.att_src).sum(2), (heads * self.att_dst).sum(2)
        out = attend(heads, read, source, target, slope=self.slope)
        return (out.flatten(1) if self.concat else out.mean(1)) + self.bias


class CommConv(Module):
    """tanh(H x + C · (mean of the neighbours)): a step of communication."""

    kind: ClassVar[Kind] = "plain"

    def __init__(self, width: int) -> None:
        super().__init__()
        self.own = Linear(width, width)
        self.others = Linear(width, width, bias=False)

    def forward(self, x: Tensor, graph: Adjacency | GraphBuffers) -> Tensor:
        read = read_graph(graph, self.kind, x.dtype)
        return torch.tanh(self.own(x) + self.others(aggregate(x, read, "mean")))


class GraphNetwork(Module):
    """Layers over one graph; between them ReLU and dropout. What derives says what its layers are.

    features: numbers of each vertex that come in. hidden: between layers. classes: numbers that go out. layers: how
    many aggregations. dropout: the share of numbers behind each hidden layer that are set to 0 in training.

    `forward(x, graph)`: x [vertices, features], graph an Adjacency, or its `graph_of` → [vertices, classes].

    Raises:
        ValueError: sizes that are none.
    """

    kind: ClassVar[Kind]

    def __init__(
        self, features: int, hidden: int, classes: int, layers: int = 2, dropout: float = 0.0, **options: Any
    ) -> None:
        super().__init__()
        sizes = {"features": features, "hidden": hidden, "classes": classes, "layers": layers}
        if wrong := [f"{name}={size!r}" for name, size in sizes.items() if not (isinstance(size, int) and size >= 1)]:
            raise ValueError(
                f"{type(self).__name__}: {', '.join(wrong)}: expected whole numbers of at least 1"
                + ("; the data has no features: give load(…, x=…)" if features == 0 else "")
            )
        if not 0 <= dropout < 1:
            raise ValueError(f"{type(self).__name__}: dropout={dropout}: expected a share from 0, below 1")
        self.dropout = dropout
        widths = [features, *[hidden] * (layers - 1), classes]
        ends = [False] * (layers - 1) + [True]
        self.convs = ModuleList(
            self.layer(one, other, last, **options) for one, other, last in zip(widths, widths[1:], ends, strict=False)
        )

    def layer(self, features: int, out: int, last: bool, **options: Any) -> Module:
        raise NotImplementedError

    def graph_of(self, graph: Adjacency, dtype: torch.dtype = torch.float32) -> GraphBuffers:
        """The graph as this network reads it, as buffers of a module."""
        return read_graph(graph, self.kind, dtype)

    def between(self, x: Tensor) -> Tensor:
        """What comes behind each hidden layer."""
        return dropout(relu(x), self.dropout, self.training)

    def forward(self, x: Tensor, graph: Adjacency | GraphBuffers) -> Tensor:
        read = read_graph(graph, self.kind, x.dtype)
        for conv in self.convs[:-1]:
            x = self.between(conv(x, read))
        return self.convs[-1](x, read)  # type: ignore[no-any-return]


class GCN(GraphNetwork):
    """Kipf and Welling's graph convolutions."""

    kind = GCNConv.kind

    def layer(self, features: int, out: int, last: bool, **options: Any) -> Module:
        return GCNConv(features, out, **options)


class GraphSAGE(GraphNetwork):
    """Hamilton et al.'s network of full neighbourhoods. how: `mean` or `max` of the neighbours."""

    kind = SAGEConv.kind

    def layer(self, features: int, out: int, last: bool, **options: Any) -> Module:
        return SAGEConv(features, out, **options)


class GIN(GraphNetwork):
    """Xu et al.'s network. learned: whether each layer learns how much a vertex itself counts."""

    kind = GINConv.kind

    def layer(self, features: int, out: int, last: bool, **options: Any) -> Module:
        return GINConv(features, out, **options)


class GAT(GraphNetwork):
    """Veličković et al.'s attention. heads: of each layer; hidden layers join theirs, the last averages."""

    kind = GATConv.kind

    def layer(self, features: int, out: int, last: bool, heads: int = 1, **options: Any) -> Module:
        if last:
            return GATConv(features, out, heads, concat=False, **options)
        if out % heads:
            raise ValueError(f"GAT: hidden={out} does not divide into heads={heads}")
        return GATConv(features, out // heads, heads, **options)


class CommNet(GraphNetwork):
    """Sukhbaatar et al.'s network: an encoder, steps of communication with neighbours, a decoder. layers: steps."""

    kind = CommConv.kind

    def __init__(self, features: int, hidden: int, classes: int, layers: int = 2, dropout: float = 0.0) -> None:
        super().__init__(features, hidden, classes, layers, dropout)
        self.convs = ModuleList(CommConv(hidden) for _ in range(layers))
        self.encoder = Linear(features, hidden)
        self.decoder = Linear(hidden, classes)

    def layer(self, features: int, out: int, last: bool, **options: Any) -> Module:
        return Module()  # steps have one width

    def forward(self, x: Tensor, graph: Adjacency | GraphBuffers) -> Tensor:
        read = read_graph(graph, self.kind, x.dtype)
        x = torch.tanh(self.encoder(x))
        for conv in self.convs:
            x = dropout(conv(x, read), self.dropout, self.training)
        return self.decoder(x)  # type: ignore[no-any-return]


class ResidualGCN(GCN):
    """ROC's deep GCN (§4.7.5): each layer adds what came in, or where widths differ, W times that."""

    def __init__(self, features: int, hidden: int, classes: int, layers: int = 4, dropout: float = 0.0) -> None:
        super().__init__(features, hidden, classes, layers, dropout)
        widths = [(conv.lin.in_features, conv.lin.out_features) for conv in self.convs]
        self.residuals = ModuleList(
            torch.nn.Identity() if one == other else Linear(one, other, bias=False) for one, other in widths
        )

    def forward(self, x: Tensor, graph: Adjacency | GraphBuffers) -> Tensor:
        read = read_graph(graph, self.kind, x.dtype)
        last = len(self.convs) - 1
        for place, (conv, residual) in enumerate(zip(self.convs, self.residuals, strict=True)):
            own = conv(x, read)
            x = residual(x) + (own if place == last else self.between(own))
        return x


NETWORKS: dict[str, type[GraphNetwork]] = {
    "gcn": GCN,
    "sage": GraphSAGE,
    "gin": GIN,
    "gat": GAT,
    "commnet": CommNet,
    "residual-gcn": ResidualGCN,
}
"""By the names that the command line has for them."""
