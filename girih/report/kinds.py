"""What sort of work a node is, read off its description: for colours and totals."""

from __future__ import annotations

from girih.graph import Graph, Node
from girih.ops import first_description
from girih.ops.derive import kinds

CONVOLUTION = "convolution"
PRODUCT = "matrix product"
REDUCTION = "reduction"
ELEMENTWISE = "element-wise"
MOVEMENT = "data movement"
OPAQUE = "opaque function"
UNDESCRIBED = "not described"

KINDS = (PRODUCT, CONVOLUTION, REDUCTION, ELEMENTWISE, MOVEMENT, OPAQUE, UNDESCRIBED)
SHOWN = {
    kinds.MATMUL: PRODUCT, kinds.CONVOLUTION: CONVOLUTION, kinds.REDUCTION: REDUCTION, kinds.LOOK_UP: REDUCTION,
    kinds.ELEMENTWISE: ELEMENTWISE, kinds.FUNCTION: ELEMENTWISE, kinds.OPAQUE: OPAQUE,
    kinds.COPY: MOVEMENT, kinds.VIEW: MOVEMENT, kinds.CREATION: MOVEMENT,
}  # fmt: skip
"""A page has fewer colours than prices have kinds. A look-up is written as a sum of which one term counts."""


def kind_of(graph: Graph, node: Node) -> str:
    """One of `KINDS`."""
    description = first_description(graph, node)
    return UNDESCRIBED if description is None else SHOWN[kinds.kind_of(description)]
