"""Seconds of kernels by the layouts that they read and make, measured: what a search chooses layouts by (TASO §2.7).

Images lie in rows (NCHW) or with their channels last (NHWC), matrices in rows or in columns, weights as they are, with
their columns together, packed in oneDNN's own blocks, or transformed (Winograd). Weights are arranged before, so that
costs nothing. A product reads and makes either: C = AB in rows, or Cᵀ = BᵀAᵀ in rows, which is C in columns (TASO Fig.
2.5). A transposition of a matrix moves nothing, and turns rows into columns. What brings a tensor into another layout
is measured as all else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import product

import torch

from girih.cost.calls import Call, Operand
from girih.cost.store import Store
from girih.cost.work import Work
from girih.graph import Graph, Node, Ref, Value
from girih.inference.costs import ATEN, LAID, TURNED, WINOGRAD, KernelCosts, kind
from girih.inference.module import BY_TILES, IN_COLUMNS, TURN
from girih.inference.strided import CHANNELS_LAST, COLUMNS, OTHER, laid, strides_of
from girih.inference.winograd import takes
from girih.kernels.evaluate import evaluate
from girih.kernels.onednn import PRODUCT
from girih.ops.derive.kinds import CREATION, VIEW
from girih.rewrite.ways import ROWS, Way

PACKED = "onednn"
ENDS = (CHANNELS_LAST, COLUMNS)


class LayoutCosts(KernelCosts):
    """The costs of a node in each layout that it can have, as a `girih.rewrite.ways.Costing`."""

    def __init__(self, weights: Collection[str], threads: int, store: Store | None = None) -> None:
        super().__init__(weights, threads, store)
        self._kept: dict[str, bool] = {}

    def ways(self, graph: Graph, node: Node, constant: Collection[str]) -> tuple[Way, ...]:
        if all(name in constant for name in node.outputs):
            return (Way(ATEN, (ROWS,) * len(node.inputs), ROWS, 0.0),)
        return tuple(dict.fromkeys(self._ways(graph, node, constant)))

    def _ways(self, graph: Graph, node: Node, constant: Collection[str]) -> Iterator[Way]:
        rows, sort = (ROWS,) * len(node.inputs), kind(graph, node)
        made = graph.values[node.outputs[0]]
        other = OTHER.get(len(made.shape))
        if sort in (VIEW, CREATION):
            if node.operator == "aten.permute" and node.attributes["dims"] == (1, 0):
                yield from (Way(ATEN, (ROWS,), COLUMNS, 0.0), Way(ATEN, (COLUMNS,), ROWS, 0.0))
                return
            yield Way(ATEN, rows, ROWS, 0.0)
            if node.operator == "aten.slice.Tensor" and other is not None:
                yield Way(ATEN, (other,), other, 0.0)
            return
        call, *packed = self._calls(graph, node, constant)
        if node.operator == PRODUCT and len(node.inputs) == 2:
            yield from self._products(call, [node.inputs[1] in constant, node.inputs[0] in constant])
            for item in packed:
                yield Way(PACKED, rows, ROWS, self.seconds(item))
            return
        yield Way(ATEN, rows, ROWS, self.seconds(call))
        if other is None or not self._keeps(graph, node, constant, call, other):
            yield from (Way(PACKED, rows, ROWS, self.seconds(item)) for item in packed)
            return
        reads = tuple(ROWS if name in constant else other for name in node.inputs)
        strided = self._in(call, node, constant, other)
        yield Way(ATEN, reads, other, self.seconds(strided))
        for item in packed:
            yield Way(PACKED, reads, other, self.seconds(item))
        if packed and takes(node.operator, node.attributes, *(operand.shape for operand in call.operands)):
            yield Way(BY_TILES, reads, other, self.seconds(replace(call, operator=WINOGRAD + node.operator)))

    def _keeps(self, graph: Graph, node: Node, constant: Collection[str], call: Call, other: str) -> bool:
        """Does it make the layout that it reads? It is tried once: PyTorch says so of no tensors without memory."""
        shape = graph.values[node.outputs[0]].shape
        types = {name: graph.values[name] for name in node.inputs}
        variable = [value for name, value in types.items() if name not in constant]
        if not variable or len(node.outputs) > 1 or any(len(value.shape) != len(shape) for value in variable):
            return False
        if call.key not in self._kept:
            tensors = {
                name: torch.zeros(value.shape, dtype=getattr(torch, value.dtype)) for name, value in types.items()
            }
            tensors |= {name: laid(tensor, other) for name, tensor in tensors.items() if name not in constant}
            with torch.no_grad():
                (made,) = evaluate(node, tensors)
            strides = zip(made.stride(), strides_of(shape, other), shape, strict=True)
            self._kept[call.key] = all(one == two for one, two, size in strides if size > 1)
        return self._kept[call.key]

    def _in(self, call: Call, node: Node, constant: Collection[str], layout: str) -> Call:
        """The call, with its tensors in a layout except those that are constant."""
        names = list(dict.fromkeys(node.inputs))
        return replace(
            call,
            operands=tuple(
                operand if name in constant else replace(operand, strides=strides_of(operand.shape, layout))
                for name, operand in zip(names, call.operands, strict=True)
            ),
        )

    def _products(self, call: Call, weights: list[bool]) -> Iterator[Way]:
        """C = AB and C = (BᵀAᵀ)ᵀ, of operands in rows and in columns. weights: is the second known, and the first? The
        layout of what is known is written in the kernel's name."""
        second, first = weights
        if len(call.operands) < 2:  # of a matrix with itself
            yield Way(ATEN, (ROWS, ROWS), ROWS, self.seconds(call))
            return
        for turned in (False, True):
            found: dict[tuple[str, tuple[str, str]], Way] = {}
            for reads in product((ROWS, COLUMNS), repeat=2):
                a, b = (
                    replace(operand, strides=None if layout == ROWS else strides_of(operand.shape, layout))
                    for operand, layout in zip(call.operands, reads, strict=True)
                )
                if turned:
                    flipped = tuple(
                        replace(item, shape=item.shape[::-1],
                                strides=None if item.strides is not None else strides_of(item.shape[::-1], COLUMNS))
                        for item in (b, a)
                    )  # fmt: skip
                    item = replace(call, operator=TURNED + PRODUCT, operands=flipped,
                                   shapes=(call.shapes[0][::-1],))  # fmt: skip
                else:
                    item = replace(call, operands=(a, b))
                known = (ROWS if first else reads[0], ROWS if second else reads[1])
                weight = reads[0] if first else reads[1] if second else ROWS
                name = f"{TURN if turned else ATEN}{IN_COLUMNS if weight == COLUMNS else ''}"
                way = Way(name, known, COLUMNS if turned else ROWS, self.seconds(item))
                found[name, known] = way
            yield from found.values()

    def conversion(self, value: Value, before: str, after: str) -> float:
        """Seconds of a copy in the other layout."""
        strides = None if before == ROWS else strides_of(value.shape, before)
        operand = Operand(value.shape, value.dtype, strides=strides)
        work = Work("", LAID, 0.0, 2.0 * value.bytes)
        arguments = (("self", Ref("0")), ("layout", after))
        return self.seconds(Call(LAID, arguments, (operand,), (value.shape,), work))
