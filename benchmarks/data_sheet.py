"""What a graph's nodes cost by a data sheet: the cost function of a search for rewrites, where there is no such device.

A node takes a launch, and the larger of its arithmetic at the device's peak and its bytes at its memory's rate. Views
and what depends on weights alone take nothing. As in TASO, whose convolution has an activation, a bias and a relu
behind a convolution are computed with it, where nobody else reads what is between. A data sheet knows no layouts: all
is in rows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from girih.cost.work import work_of
from girih.graph import Graph, Node, Value
from girih.graph.graph import ITEM_BYTES
from girih.machine.machine import Device
from girih.ops import Description
from girih.ops.derive.kinds import CREATION, VIEW
from girih.ops.describe import first_description
from girih.ops.operator import TensorType
from girih.rewrite.constants import constants
from girih.rewrite.ways import ROWS, Way

CONVOLUTION = "aten.convolution"
ACTIVATION = "aten.relu"


@dataclass(frozen=True)
class DataSheetCosts:
    """A `Costing` for searches. weights: inputs that are known before."""

    device: Device
    weights: frozenset[str] = frozenset()

    def ways(self, graph: Graph, node: Node, constant: Collection[str]) -> tuple[Way, ...]:
        return (Way("", (ROWS,) * len(node.inputs), ROWS, self.seconds(graph, node, constant)),)

    def seconds(self, graph: Graph, node: Node, constant: Collection[str]) -> float:
        """How long one node takes alone."""
        if constant and all(name in constant for name in node.outputs):
            return 0.0
        description = first_description(graph, node)
        if description is None:
            size = sum(graph.values[name].bytes for name in (*node.inputs, *node.outputs))
            return self.device.launch_seconds + size / self.device.memory_bytes_per_second
        kind, operations, moved, dtype = _work(description)
        if kind in (VIEW, CREATION):
            return 0.0
        arithmetic, traffic = operations / self.device.flops(dtype), moved / self.device.memory_bytes_per_second
        return self.device.launch_seconds + max(arithmetic, traffic)

    def joins(self, graph: Graph, node: Node, before: Node, constant: Collection[str]) -> bool:
        if node.operator == ACTIVATION:
            return before.operator == CONVOLUTION or _is_bias(graph, before, constant)
        return before.operator == CONVOLUTION and _is_bias(graph, node, constant)

    def conversion(self, value: Value, before: str, after: str) -> float:
        return 0.0

    def constants(self, graph: Graph) -> frozenset[str]:
        return constants(graph, self.weights)


def _is_bias(graph: Graph, node: Node, constant: Collection[str]) -> bool:
    """Does it add a constant, a number for each channel?"""
    if node.operator != "aten.add.Tensor" or len(node.inputs) != 2:
        return False
    shape = graph.values[node.outputs[0]].shape
    added = [graph.values[name] for name in node.inputs if name in constant]
    return len(added) == 1 and added[0].elements == shape[1] if len(shape) > 1 else False


@lru_cache(maxsize=65536)
def _work(description: Description) -> tuple[str, float, float, str]:
    inputs = [_bytes(item) for item in description.inputs]
    work = work_of(description, description.sizes, inputs, _bytes(description.output), moves=False)
    return work.kind, work.operations, work.bytes, work.dtype


def _bytes(tensor: TensorType) -> float:
    return float(prod(tensor.shape) * ITEM_BYTES[tensor.dtype])
