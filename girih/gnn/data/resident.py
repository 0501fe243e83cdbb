"""A network together with the data that it learns on: what `girih.plan(step, data)` plans.

Features, graph and labels of a whole graph are the same in every step. So they are buffers of the program, which the
workers hold, and a step takes no batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from girih.capture import capture
from girih.capture.torch.training import Inference, TrainingStep
from girih.gnn.data.errors import DataError
from girih.gnn.data.watch import checksums, fingerprints
from girih.gnn.geometric import OnGraph, edge_index, is_layer, reads_edges
from girih.gnn.neighbours import GraphBuffers
from girih.gnn.once import once
from girih.graph import Graph

Tensor = Any  # torch is untyped for the type checker


class Whole(NamedTuple):
    """What a step that is given as `step=f(model, batch)` gets as its batch."""

    x: Tensor
    graph: GraphBuffers
    target: Tensor | None


class Resident(torch.nn.Module):
    """A network, and the data that it reads (a `Data`) as buffers. Its state is the network's alone.

    The network is called as `network(x, graph)`. One of torch_geometric, or whose `forward` takes an `edge_index`, is
    put on the graph (`OnGraph`); where that cannot be, it is called as `network(x, edge_index)`, as it comes.

    Raises:
        DataError: the data has no features, or other features than the network's parameters are made for; or it has
            weights, and the network of one's own is called with edges alone.
    """

    x: Tensor
    target: Tensor | None
    edge_index: Tensor | None

    def __init__(self, network: torch.nn.Module, data: Any, learns: bool = True) -> None:
        super().__init__()
        if data.x is None:
            raise DataError(f"{data.name} has no features for the network to read: give load(…, x=…)")
        dtype = next((item.dtype for item in network.parameters() if item.is_floating_point()), torch.float32)
        self.register_buffer("x", torch.from_numpy(data.x).to(dtype), persistent=False)
        self.register_buffer("target", torch.from_numpy(data.target()) if learns else None, persistent=False)
        self._watch = data.watch
        self._arrays = data.arrays
        self._as_planned = checksums(self._arrays)
        self._seen = fingerprints(self._arrays)
        self._before_order = data.ordered_from
        if data.graph.weights is not None and reads_edges(network) and not any(map(is_layer, network.modules())):
            raise DataError(
                f"{data.name} has weights of edges, which {type(network).__name__}.forward(x, edge_index) does not get:"
                " write it with gnn.aggregate(x, graph), which takes them, or give the data without, as "
                "data.but(graph=dataclasses.replace(data.graph, weights=None))"
            )
        own, edges, self.graph = network, None, None
        if not reads_edges(network):
            self.graph = getattr(network, "graph_of", GraphBuffers)(data.graph, dtype)
        else:
            try:
                own = OnGraph(network, data.graph, dtype)
                own.ready(self.x)
            except Exception:  # a layer may do with its edges whatever it likes
                own, edges = network, edge_index(data.graph)
        self.network = own
        self.register_buffer("edge_index", edges, persistent=False)
        networks = {id(item) for item in network.buffers()}
        self.data_buffers = tuple(path for path, item in self.named_buffers() if id(item) not in networks)
        self.sums_once: tuple[int, ...] = ()

    @property
    def checksums(self) -> Mapping[str, int]:
        """A checksum for each of the user's arrays, taken when this was made. Data whose vertices were put into another
        order keep the checksums of the arrays that they were made of."""
        return self._as_planned if self._before_order is None else self._before_order

    def data_tensors(self) -> dict[str, Tensor]:
        """The buffers that are not the network's own, by path."""
        return {path: self.get_buffer(path) for path in self.data_buffers}

    def with_once(self, graph: Graph) -> Graph:
        """The program of a step with this, as captured, in which what it computes of the data alone is data
        (`girih.gnn.once`): buffers of this from now on. `sums_once` says which of the network's sums these are."""
        found = once(graph)
        for path, tensor in found.tensors(self.data_tensors()).items():
            self.register_buffer(path, tensor, persistent=False)
            self.data_buffers += (path,)
        self.sums_once = found.sums
        return found.graph

    def forward(self) -> Any:
        if self.edge_index is not None:
            return self.network(self.x, self.edge_index)
        if self.graph is None or self.target is None:  # of layers of torch_geometric, or without labels
            return self.network(self.x, self.graph)
        self.graph.fixed = self.x
        try:
            return self.network(self.x, self.graph)
        finally:
            self.graph.fixed = None

    def check_unchanged(self) -> None:
        """Raises DataError if the file of the data is no longer what it was, or its arrays have been written into.

        Arrays are read once for that, at the pace of memory.
        """
        if self._watch is not None:
            self._watch.check()
        before = self._seen
        if changed := [name for name, now in fingerprints(self._arrays).items() if now != before[name]]:
            raise DataError(
                f"the data's {' and '.join(changed)} changed since the program was planned with it, which a run does "
                "not see: undo it, or plan again"
            )

    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        return self.network.state_dict(*arguments, **options)

    def load_state_dict(self, *arguments: Any, **options: Any) -> Any:
        return self.network.load_state_dict(*arguments, **options)


def resident_of(network: torch.nn.Module, data: Any, learns: bool, graph: Graph) -> Resident:
    """A network and data for the program of a plan, with what that has computed once."""
    resident = Resident(network, data, learns)
    paths = {item.path for item in graph.inputs if item.name in graph.data_inputs}
    if not paths <= resident.data_tensors().keys():
        resident.with_once(capture(Inference(resident, call=_called), ()).graph)
    return resident


def _called(model: Any, batch: Any) -> Any:
    return model()


def with_data(step: TrainingStep | Inference, data: Any) -> tuple[TrainingStep | Inference, tuple[()]]:
    """A step whose data (a `Data`) is part of its program, and its batch, which is empty.

    Raises:
        DataError: the data does not suit the step.
    """
    resident = Resident(step.model, data, isinstance(step, TrainingStep))
    if isinstance(step, Inference):
        own_call = step.call

        def call(model: Any, batch: Any) -> Any:
            return model() if own_call is None else own_call(model.network, _whole(model))

        return replace(step, model=resident, call=call), ()
    loss, own_step = step.loss, step.step

    def one(model: Any, batch: Any) -> Any:
        if own_step is not None:
            return own_step(model.network, _whole(model))
        assert loss is not None
        return loss(model(), model.target)

    return replace(step, model=resident, loss=None, step=one), ()


def _whole(model: Resident) -> Whole:
    return Whole(model.x, model.graph if model.edge_index is None else model.edge_index, model.target)  # type: ignore[arg-type]
