"""Networks of torch_geometric as they come, on a graph that stays: their layers read it by girih's operators.

A layer of torch_geometric finds out in each step what follows from the graph alone (self loops, degrees), reads values
in Python while it does, and makes a row for each edge. Here that is done once, beforehand, and its `propagate` is
`gnn.aggregate` or `gnn.attend`; all else, and all weights, are the layer's own. The layer is as it was outside of a
call. What other layers compute of the edges is found while they run (`girih.gnn.constant`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from girih.capture.errors import MoreBuffersError
from girih.gnn.adjacency import Adjacency
from girih.gnn.constant import Constants, Folding, Held
from girih.gnn.neighbours import GraphBuffers, aggregate, attend, to_edges

Tensor = Any  # torch is untyped for the type checker
_AGGREGATIONS = {"add": "sum", "sum": "sum", "mean": "mean", "max": "max"}


@dataclass(frozen=True)
class Reading:
    """How a layer reads a graph. form: of the graph, which layers of one form share. propagate: in the layer's place.
    settings: attributes that the layer has while it is called, because what they ask for is done already."""

    form: tuple[Any, ...]
    propagate: Callable[..., Tensor]
    settings: dict[str, Any] = field(default_factory=dict)


class OnGraph(torch.nn.Module):
    """A network on edges that stay, whose sums over neighbours are `gnn.aggregate` and `gnn.attend`.

    With a graph it is called as `network(x)`, which is `network(x, edge_index)`. torch_geometric's GCNConv, SAGEConv,
    GINConv, GATConv and GATv2Conv are read (a GCNConv takes the weights of the graph, the others have none). Without
    one the network has its edges itself, as buffers int64[2, edges] or sparse matrices, and is called as it is.
    Wherever else rows of x are gathered and added up by what follows from the edges alone, that is found while the
    network runs (`girih.gnn.constant`). The state is the network's alone.

    Raises:
        ValueError: a layer with an option that is not read, or there is no graph and the network has no edges.
    """

    def __init__(
        self, network: torch.nn.Module, graph: Adjacency | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.network = network
        layers = [module for module in network.modules() if is_layer(module)]
        self._layers = [layer for layer in layers if is_readable(layer)]
        self._readings = [_reading(layer) for layer in self._layers]
        self.graphs = torch.nn.ModuleDict()
        self.constants = Constants(() if graph is None else graph.cuts)
        self._edges = graph
        self._folds = graph is None or len(layers) > len(self._layers) or not layers
        self._hidden = {path for path, item in network.named_buffers() if graph is None and _of_edges(item)}
        if graph is None and not self._hidden:
            raise ValueError(
                f"{type(network).__name__} has no edges: give OnGraph(network, graph), or the network a buffer "
                "edge_index, int64 [2, edges], or a sparse matrix"
            )
        for path in self._hidden:
            owner, name = _owner(network, path)
            owner.register_load_state_dict_pre_hook(partial(_with_own_edges, name))
        if graph is None:
            return
        for reading in self._readings:
            name = _name(reading.form)
            if name not in self.graphs:
                exact = np.float64 if dtype == torch.float64 else np.float32
                *form, of_edges = reading.form
                self.graphs[name] = GraphBuffers(_prepared(graph, exact, *form), dtype, of_edges)

    def forward(self, *inputs: Any) -> Any:
        """The network's output. inputs: x alone, or x and None, as a step's `batch.graph` is where the network has the
        graph; of a network that has its edges itself, all that it takes.

        Raises:
            ValueError: there are edges, or something else, beside x.
        """
        if self._edges is not None and any(item is not None for item in inputs[1:]):
            raise ValueError(
                "this network is on its graph already (gnn.OnGraph), and would not read other edges: call it as "
                "network(x), and make another OnGraph for another graph"
            )
        if not self._folds:
            with self._on_graph():
                return self.network(inputs[0], torch.empty((2, 0), dtype=torch.int64, device=inputs[0].device))
        known = sum(1 for _ in self.constants.buffers())
        folding = Folding(self.constants)
        if self._edges is not None:
            inputs = inputs[0], folding.given(edge_index(self._edges))
        with self._on_graph(), self._edges_held(folding), folding:
            results = folding.whole(self.network(*inputs))
        if known < sum(1 for _ in self.constants.buffers()) and torch._C._len_torch_dispatch_stack():
            raise MoreBuffersError("the network's constants were found while it was captured: capture it again")
        return results

    def ready(self, *inputs: Tensor) -> None:
        """Find what stays, before the network is captured, so that it is among the buffers."""
        with suppress(MoreBuffersError), FakeTensorMode(allow_non_fake_inputs=True) as fakes, torch.no_grad():
            self(*map(fakes.from_tensor, inputs))

    @contextmanager
    def _edges_held(self, folding: Folding) -> Iterator[None]:
        """While open, the network's own edges are constants."""
        kept = [(*_owner(self.network, path), self.network.get_buffer(path)) for path in self._hidden]
        try:
            for owner, name, real in kept:
                owner._buffers[name] = folding.given(real)
            yield
        finally:
            for owner, name, real in kept:
                owner._buffers[name] = real

    @contextmanager
    def _on_graph(self) -> Iterator[None]:
        before = [dict(vars(layer)) for layer in self._layers]
        try:
            for layer, reading in zip(self._layers, self._readings, strict=True):
                if self._edges is None:
                    if type(layer).__name__ == "GATConv":
                        vars(layer).update(_attending(layer, self.constants))
                    continue
                graph = self.graphs[_name(reading.form)]
                own = {"propagate": _bound(reading.propagate, layer, graph), **reading.settings}
                if "edge_updater" in own:
                    own["edge_updater"] = _bound(own["edge_updater"], layer, graph)
                vars(layer).update(own)
            yield
        finally:
            for layer, kept in zip(self._layers, before, strict=True):
                vars(layer).clear()
                vars(layer).update(kept)

    def named_buffers(self, *arguments: Any, **options: Any) -> Iterator[tuple[str, Tensor]]:
        """The buffers, without the network's own edges, which no plan divides."""
        hidden = {id(self.network.get_buffer(path)) for path in self._hidden}
        return ((path, item) for path, item in super().named_buffers(*arguments, **options) if id(item) not in hidden)

    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        return self.network.state_dict(*arguments, **options)

    def load_state_dict(self, *arguments: Any, **options: Any) -> Any:
        return self.network.load_state_dict(*arguments, **options)


def edge_index(graph: Adjacency) -> Tensor:
    """int64[2, edges] as torch_geometric has it: the vertex that is read, and the one that reads."""
    with _disable_current_modes():
        return torch.from_numpy(np.stack([graph.neighbours, graph.readers]).astype(np.int64))


def _of_edges(buffer: Tensor) -> bool:
    """Is a buffer an `edge_index`, or a sparse matrix?"""
    if buffer.layout in (torch.sparse_coo, torch.sparse_csr):
        return True
    return buffer.dtype == torch.int64 and buffer.dim() == 2 and len(buffer) == 2


def _owner(network: torch.nn.Module, path: str) -> tuple[torch.nn.Module, str]:
    home, _, name = path.rpartition(".")
    return network.get_submodule(home), name


def _with_own_edges(name: str, owner: torch.nn.Module, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """A run's state has no edges, which no plan divides: the module that loads it keeps its own."""
    if name not in owner._non_persistent_buffers_set:
        state.setdefault(prefix + name, owner.get_buffer(name))


def is_layer(module: torch.nn.Module) -> bool:
    """Is a module a layer of torch_geometric's that reads a graph?"""
    kinds = type(module).__mro__
    return any(kind.__name__ == "MessagePassing" and kind.__module__.startswith("torch_geometric") for kind in kinds)


def reads_edges(network: torch.nn.Module) -> bool:
    """Is a network called with an `edge_index`: has it layers of torch_geometric's, or does its `forward` name one?"""
    if any(map(is_layer, network.modules())):
        return True
    named = inspect.signature(network.forward).parameters
    return list(named)[1:2] == ["edge_index"]


def is_readable(module: torch.nn.Module) -> bool:
    """Can such a layer be put on a graph?"""
    try:
        return bool(_reading(module))
    except ValueError:
        return False


def _bound(function: Callable[..., Any], layer: Any, graph: GraphBuffers) -> Callable[..., Any]:
    return lambda *_, **given: function(layer, graph, **given)


def _name(form: tuple[Any, ...]) -> str:
    return "_".join(str(item).replace(".", "_") for item in form)


def _prepared(graph: Adjacency, exact: Any, flow: str, loops: float | None, kind: str) -> Adjacency:
    """The graph as layers of a form read it, its weights in the dtype `exact`.

    loops: what a self loop weighs that is not there, None: none are added. As torch_geometric has it, loops of a graph
    without weights count as one, however often they are there.
    """
    if flow == "target_to_source":
        graph = graph.transposed
    if kind == "plain":
        graph = replace(graph, weights=None)
    if loops is not None and graph.weights is None:
        apart = graph.neighbours != graph.readers
        kept = Adjacency.of_edges(graph.neighbours[apart], graph.readers[apart], graph.vertices, graph.sources)
        graph = replace(kept, cuts=graph.cuts)
    if loops is not None:
        graph = graph.with_self_loops(loops)
    if kind != "normalised":
        return graph
    weights = np.ones(graph.edges, exact) if graph.weights is None else graph.weights.astype(exact)
    return replace(graph, weights=weights).normalised()


def _reading(layer: Any) -> Reading:
    """How a layer reads a graph."""
    kind, name = type(layer).__name__, f"{type(layer).__name__} of {type(layer).__module__}"
    known = {"GCNConv": _of_gcn, "SAGEConv": _of_plain, "GINConv": _of_plain, "GATConv": _of_gat, "GATv2Conv": _of_gat}
    if kind not in known or not type(layer).__module__.startswith("torch_geometric.nn.conv."):
        raise ValueError(
            f"{name} is a layer that girih cannot put on a graph: expected {', '.join(known)}. Write it with "
            "gnn.aggregate, gnn.attend and gnn.to_edges"
        )
    if known[kind] is not _of_gat and layer.aggr not in _AGGREGATIONS:
        raise ValueError(f"{name} aggregates by {layer.aggr!r}: expected one of {', '.join(_AGGREGATIONS)}")
    return known[kind](layer)


def _of_plain(layer: Any) -> Reading:
    return Reading((layer.flow, None, "plain", False), _summed)


def _of_gcn(layer: Any) -> Reading:
    loops = (2.0 if layer.improved else 1.0) if layer.normalize and layer.add_self_loops else None
    form = layer.flow, loops, "normalised" if layer.normalize else "weighted", False
    return Reading(form, _summed, {"normalize": False})


def _of_gat(layer: Any) -> Reading:
    loops = 1.0 if layer.add_self_loops else None
    by_both_ends = type(layer).__name__ == "GATv2Conv"
    scores = _scores_of_both_ends if by_both_ends else lambda layer, graph, alpha, **_: alpha
    form = layer.flow, loops, "plain", bool(by_both_ends or layer.dropout)
    return Reading(form, _attended, {"add_self_loops": False, "edge_updater": scores})


def _scores_of_both_ends(layer: Any, graph: GraphBuffers, x: Any, **_: Any) -> Tensor:
    """GATv2's: the score of an edge is not a sum of its ends' scores, so that a row for each edge is made."""
    ends = to_edges(x[0], graph, "source") + to_edges(x[1], graph, "target")
    return (torch.nn.functional.leaky_relu(ends, layer.negative_slope) * layer.att).sum(-1)  # type: ignore[no-any-return]


def _summed(layer: Any, graph: GraphBuffers, x: Any, edge_weight: Tensor | None = None, **_: Any) -> Tensor:
    if edge_weight is not None:
        raise ValueError("the weights of edges are those of the graph: give them with it, and not in each step")
    source = x[0] if isinstance(x, tuple) else x
    return aggregate(source, graph, _AGGREGATIONS[layer.aggr])  # type: ignore[arg-type]


def _attended(layer: Any, graph: GraphBuffers, x: Any, alpha: Any, **_: Any) -> Tensor:
    dropout = layer.dropout if layer.training else 0.0
    if isinstance(alpha, tuple):
        return attend(x[0], graph, alpha[0], alpha[1], slope=layer.negative_slope, dropout=dropout)
    none = alpha.new_zeros((graph.sources, layer.heads)), alpha.new_zeros((graph.vertices, layer.heads))
    return attend(x[0], graph, *none, alpha, slope=1.0, dropout=dropout)


def _attending(layer: Any, constants: Constants) -> dict[str, Any]:
    """For a GATConv that gets its edges in each call: `gnn.attend` in place of scores of each edge, where these follow
    from both ends alone."""
    own = type(layer)

    def edge_updater(edges: Any, alpha: Any, edge_attr: Any = None, size: Any = None) -> Any:
        apart = edge_attr is None and isinstance(edges, Held) and None not in alpha
        return alpha if apart else own.edge_updater(layer, edges, alpha=alpha, edge_attr=edge_attr, size=size)

    def propagate(edges: Any, x: Any, alpha: Any, size: Any = None) -> Any:
        if not isinstance(alpha, tuple):
            return own.propagate(layer, edges, x=x, alpha=alpha, size=size)
        with _disable_current_modes():
            read, reading = edges.fixed if layer.flow == "source_to_target" else edges.fixed.flip(0)
        sizes = len(alpha[0]), len(alpha[1])
        return _attended(layer, constants.graph(read, reading, *sizes, None, bool(layer.dropout)), x, alpha)

    return {"edge_updater": edge_updater, "propagate": propagate}
