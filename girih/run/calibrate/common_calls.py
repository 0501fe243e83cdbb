"""Common operators at several sizes: what a roofline is fitted to where nothing else is known.

They are a graph like any other, of nodes that have nothing to do with each other, on one device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from girih.cost.calls import Call
from girih.cost.device_calls import local_calls
from girih.graph import Graph, Input, Node, Output, Ref, Value
from girih.layout import Links, Mesh, Sharding, Transfers
from girih.partition.strategy import Strategy
from girih.program import Program, lower

Shape = tuple[int, ...]

LENGTHS = (1 << 8, 1 << 12, 1 << 16, 1 << 20, 1 << 22)
"""Elements of element-wise operators: 1 KiB to 16 MiB of float32."""


class _Gathered:
    """Nodes and their inputs."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.nodes: list[Node] = []
        self.inputs: list[Input] = []

    def add(
        self,
        operator: str,
        tensors: Mapping[str, Shape],
        output: Shape,
        *,
        whole: tuple[str, ...] = (),
        **attributes: Any,
    ) -> None:
        """whole: which tensors are of whole numbers."""
        number = len(self.nodes)
        arguments: list[tuple[str, Any]] = list(attributes.items())
        for name, shape in tensors.items():
            value = Value(f"x{number}_{name}", shape, "int64" if name in whole else "float32")
            self.values[value.name] = value
            self.inputs.append(Input(value.name, "batch", value.name))
            arguments.append((name, Ref(value.name)))
        result = Value(f"y{number}", output, "float32")
        self.values[result.name] = result
        self.nodes.append(Node(result.name, operator, tuple(arguments), (result.name,)))

    def program(self) -> Program:
        outputs = tuple(Output(node.outputs[0], "result") for node in self.nodes)
        graph = Graph(self.values, tuple(self.nodes), tuple(self.inputs), outputs)
        strategy = Strategy(Mesh(()), (Sharding(()),) * len(self.nodes), dict.fromkeys(self.values, Sharding(())))
        return lower(graph, strategy, Transfers(Mesh(()), Links((), ())))


def common_calls() -> tuple[Call, ...]:
    """About a hundred calls, the smallest first: products, convolutions, element-wise operators, reductions, moves,
    look-ups."""
    gathered = _Gathered()
    for add in (_products, _convolutions, _elementwise, _moves, _tables):
        add(gathered)
    calls = local_calls(gathered.program()).calls
    return tuple(sorted(calls, key=lambda call: call.work.operations + call.work.bytes))


def _products(gathered: _Gathered) -> None:
    for size in (16, 64, 128, 256, 512, 1024):
        gathered.add("aten.mm", {"self": (size, size), "mat2": (size, size)}, (size, size))
    for rows, inner, columns in ((32, 1024, 1024), (1024, 32, 1024), (1024, 1024, 32), (256, 64, 4096), (8, 512, 2048)):
        gathered.add("aten.mm", {"self": (rows, inner), "mat2": (inner, columns)}, (rows, columns))
    for batch, rows, inner in ((8, 32, 16), (32, 64, 32), (64, 128, 64)):
        gathered.add("aten.bmm", {"self": (batch, rows, inner), "mat2": (batch, inner, rows)}, (batch, rows, rows))


def _convolutions(gathered: _Gathered) -> None:
    for images, channels, size, kernel in (
        (2, 8, 16, 3),
        (8, 16, 32, 3),
        (8, 64, 28, 3),
        (8, 64, 28, 1),
        (4, 128, 14, 3),
    ):
        shape, weight = (images, channels, size, size), (channels, channels, kernel, kernel)
        same: dict[str, Any] = {
            "stride": (1, 1),
            "padding": (kernel // 2, kernel // 2),
            "dilation": (1, 1),
            "groups": 1,
        }
        gathered.add(
            "aten.convolution", {"input": shape, "weight": weight}, shape,
            bias=None, transposed=False, output_padding=(0, 0), **same,
        )  # fmt: skip
        gathered.add(
            "girih.convolution_weight_gradient", {"grad": shape, "input": shape}, weight, weight_size=weight, **same
        )


def _elementwise(gathered: _Gathered) -> None:
    for length in LENGTHS:
        square = (length // 64, 64)
        gathered.add("aten.add.Tensor", {"self": square, "other": square}, square)
        gathered.add("aten.mul.Tensor", {"self": square, "other": (64,)}, square)
        gathered.add("aten.relu", {"self": square}, square)
        gathered.add("aten.addcmul", {"self": square, "tensor1": square, "tensor2": square}, square, value=0.5)
        for name in ("exp", "tanh", "sigmoid", "sqrt"):
            gathered.add(f"aten.{name}", {"self": square}, square)
        gathered.add("aten.sum.dim_IntList", {"self": square}, square[:1], dim=(1,), keepdim=False)
        gathered.add("aten.sum.dim_IntList", {"self": square}, square[1:], dim=(0,), keepdim=False)
        gathered.add("girih.mean", {"input": square}, (square[0], 1), dims=(1,), keepdim=True, count=64)
        gathered.add("aten.logsumexp", {"self": square}, square[:1], dim=(1,), keepdim=False)


def _moves(gathered: _Gathered) -> None:
    for length in LENGTHS:
        square = (length // 64, 64)
        gathered.add("aten.cat", {"tensors.0": square, "tensors.1": square}, (2 * square[0], 64), dim=0)
        gathered.add("aten.full", {}, square, size=square, fill_value=0.0, dtype="float32")
        gathered.add("aten._to_copy", {"self": square}, square, whole=("self",), dtype="float32")
    gathered.add("aten.reshape", {"self": (64, 64)}, (4096,), shape=(4096,))


def _tables(gathered: _Gathered) -> None:
    for rows, width, count in ((64, 16, 64), (1000, 64, 512), (30000, 128, 1024)):
        gathered.add(
            "girih.embedding", {"weight": (rows, width), "indices": (count,)}, (count, width), whole=("indices",)
        )
        gathered.add(
            "girih.embedding_gradient", {"grad": (count, width), "indices": (count,)}, (rows, width),
            whole=("indices",), rows=rows,
        )  # fmt: skip
        gathered.add("girih.pick", {"input": (count, rows), "index": (count,)}, (count,), whole=("index",), dim=1)
