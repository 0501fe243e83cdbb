"""Seconds of a graph's nodes on this processor, measured: what a search for rewrites sums up.

A node is priced as the back ends compute it. What depends on weights alone is computed before, and costs nothing. A
convolution and a product with weights are oneDNN's, whose weights lie in its own order. A sum and a function behind one
of them, which alone read it, are computed with it; views move nothing. All else is PyTorch's call. Measurements are
kept by operator, shapes and threads in the store of costs, in a setting of their own: each was taken alone, one call
after another.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import cycle
from typing import Any

import torch

from girih.cost.calls import Call, Operand
from girih.cost.setting import setting_of
from girih.cost.store import Measurement, Store
from girih.cost.work import Work
from girih.graph import Argument, Graph, Node, Ref, Value
from girih.inference.strided import laid
from girih.inference.trial import quick, turn_of
from girih.inference.winograd import LARGER, Winograd
from girih.kernels.evaluate import resolve
from girih.kernels.onednn import CONVOLUTION, FUNCTIONS, PRODUCT, WITH_PACKED, packed, takes
from girih.ops.derive.kinds import CREATION, ELEMENTWISE, FUNCTION, VIEW, kind_of
from girih.ops.describe import describe_call
from girih.ops.operator import TensorType
from girih.rewrite.constants import constants
from girih.rewrite.ways import ROWS, Way
from girih.run.calibrate.measure_operators import prepare, tensor_of

SECONDS = 0.03
"""How long a call is measured, about, behind the first."""
WORK = 2 * SECONDS
"""Seconds that a search counts for a call that it has measured, preparing it included."""
REPEATS = 5, 50
ATEN = "aten"
RUNTIME = "onnxruntime: "
ONEDNN = "onednn: "  # before the operator's name, in calls of oneDNN's kernel
WINOGRAD = "winograd: "  # in calls of `girih.inference.winograd`
LAID = "laid"  # of a call of `girih.inference.strided.laid`
TURNED = "turned: "  # in calls of (BᵀAᵀ)ᵀ in the place of AB, whose weights come first
BYTES_PER_SECOND = 1e10  # of what cannot be measured
FAR, MOST_COPIES, MOST_NODES = 32 << 20, 64, 16
"""Bytes between two uses of the same weights: more than a core's own caches hold."""


class KernelCosts:
    """The cost of a node of a graph, for `Backtracking`. weights: the inputs that are known before. threads: of PyTorch
    while calls are measured. store: where measurements are kept; None keeps them as long as this lives."""

    def __init__(self, weights: Collection[str], threads: int, store: Store | None = None) -> None:
        self.knows(weights)
        self.threads = threads
        self.store = store
        setting = setting_of(threads, 1)
        self.setting = replace(setting, device=f"{setting.device}, kernels alone")
        self.known = {} if store is None else {key: item.seconds for key, item in store.every(self.setting).items()}
        self.measured = 0
        self._constant: frozenset[str] = frozenset()
        self._maker: dict[str, Node] = {}

    @property
    def measuring(self) -> float:
        """Seconds of work that measuring has taken, counted: see `girih.rewrite.ways.measuring`."""
        return self.measured * WORK

    def knows(self, weights: Collection[str]) -> None:
        """From now on these are the weights: what was computed of them is one too."""
        self.weights = frozenset(weights)
        self._graph: Graph | None = None

    def __call__(self, graph: Graph, node: Node) -> float:
        if graph is not self._graph:
            self._graph, self._constant = graph, constants(graph, self.weights)
            self._maker = {name: item for item in graph.nodes for name in item.outputs}
        if self._constant.issuperset(node.outputs):
            return 0.0
        if kind(graph, node) in (VIEW, CREATION) or self._is_with_another(graph, node):
            return 0.0
        return min(self.seconds(call) for call in self._calls(graph, node))

    # As a `girih.rewrite.ways.Costing`: all in rows.

    def ways(self, graph: Graph, node: Node, constant: Collection[str]) -> tuple[Way, ...]:
        """The faster of the kernels that the node can be."""
        reads = (ROWS,) * len(node.inputs)
        if all(name in constant for name in node.outputs) or kind(graph, node) in (VIEW, CREATION):
            return (Way(ATEN, reads, ROWS, 0.0),)
        kernels = (ATEN, ONEDNN.rstrip(": "))
        calls = self._calls(graph, node, constant)
        every = [Way(name, reads, ROWS, self.seconds(call)) for name, call in zip(kernels, calls, strict=False)]
        return (min(every, key=lambda way: way.seconds),)

    def joins(self, graph: Graph, node: Node, before: Node, constant: Collection[str]) -> bool:
        """A sum or a function behind a convolution or a product, or one behind such a sum: its call computes them, too.
        All else that is element-wise is a call of its own, and has its price."""
        if kind(graph, node) not in (ELEMENTWISE, FUNCTION):
            return False
        if graph.values[node.outputs[0]].shape != graph.values[before.outputs[0]].shape:
            return False
        if before.operator in (CONVOLUTION, PRODUCT):
            return node.operator in WITH_PACKED
        return before.operator == "aten.add.Tensor" and node.operator in FUNCTIONS

    def conversion(self, value: Value, before: str, after: str) -> float:
        return 0.0

    def constants(self, graph: Graph) -> frozenset[str]:
        return constants(graph, self.weights)

    def kernels(self, graph: Graph) -> dict[str, str]:
        """By the name of a node, `onednn` where that kernel is faster than PyTorch's."""
        chosen = {}
        for node in graph.nodes:
            if self(graph, node) > 0:
                every = self._calls(graph, node)
                if len(every) > 1 and self.seconds(every[1]) < self.seconds(every[0]):
                    chosen[node.name] = "onednn"
        return chosen

    def _is_with_another(self, graph: Graph, node: Node) -> bool:
        """Is it computed together with what makes one of its operands, and alone reads it?"""
        return any(
            KernelCosts.joins(self, graph, node, self._maker[name], self._constant)
            for name in node.inputs
            if name in self._maker and name not in self._constant and len(graph.consumers[name]) == 1
        )

    def _calls(self, graph: Graph, node: Node, constant: Collection[str] | None = None) -> tuple[Call, ...]:
        """What the node can be: PyTorch's call, and oneDNN's where the weights are known."""
        constant = self._constant if constant is None else constant
        names = list(dict.fromkeys(node.inputs))

        def numbered(argument: Argument) -> Argument:
            if isinstance(argument, tuple):
                return tuple(map(numbered, argument))
            return Ref(str(names.index(argument.name))) if isinstance(argument, Ref) else argument

        values = [graph.values[name] for name in names]
        least = min((size for value in values for size in value.shape if size > 1), default=2)  # indices are below it
        operands = tuple(Operand(value.shape, value.dtype, high=least) for value in values)
        results = [graph.values[name] for name in node.outputs]
        work = Work("", node.operator, 0.0, float(sum(value.bytes for value in (*values, *results))))
        arguments = tuple((name, numbered(value)) for name, value in node.arguments)
        call = Call(node.operator, arguments, operands, tuple(value.shape for value in results), work)
        packs = len(names) == 2 and node.inputs[1] in constant
        if not packs or not takes(node.operator, node.attributes, values[0].shape, values[0].dtype):
            return (call,)
        return call, replace(call, operator=ONEDNN + node.operator)

    def seconds(self, call: Call) -> float:
        """Seconds of one execution, measured once."""
        if call.key not in self.known:
            try:
                repeats = measure(call)
            except (RuntimeError, IndexError):  # it does not take numbers at random
                repeats = [call.work.bytes / BYTES_PER_SECOND] * 2
            self.measured += 1
            seconds = quick(repeats)
            low, _, high = statistics.quantiles(repeats, n=4)
            self.known[call.key] = seconds
            if self.store is not None:
                spread = (high - low) / seconds if seconds else 0.0
                now = datetime.now(UTC).isoformat(timespec="seconds")
                self.store.put(self.setting, [(call, Measurement(seconds, spread, len(repeats), now))])
        return self.known[call.key]


class RuntimeCosts(KernelCosts):
    """The same where ONNX Runtime runs the program: convolutions and products of weights are measured there. All else,
    which is little of the time, is priced as PyTorch's."""

    def _calls(self, graph: Graph, node: Node, constant: Collection[str] | None = None) -> tuple[Call, ...]:
        plain, *packs = super()._calls(graph, node, constant)
        return (replace(plain, operator=RUNTIME + node.operator),) if packs else (plain,)


def kind(graph: Graph, node: Node) -> str:
    value = graph.values[node.outputs[0]]
    tensors = tuple(
        (name, graph.values[item.name].shape, graph.values[item.name].dtype)
        for name, item in node.arguments
        if isinstance(item, Ref)
    )
    attributes = tuple((name, item) for name, item in node.arguments if not isinstance(item, Ref))
    return _kind_of_call(node.operator, tensors, attributes, value.shape, value.dtype)


@lru_cache(maxsize=65536)
def _kind_of_call(
    operator: str,
    tensors: tuple[tuple[str, tuple[int, ...], str], ...],
    attributes: tuple[tuple[str, Argument], ...],
    shape: tuple[int, ...],
    dtype: str,
) -> str:
    if any(isinstance(item, tuple) and any(isinstance(part, Ref) for part in item) for _, item in attributes):
        return ""  # of a list of tensors: it copies
    types = {name: TensorType(size, kind) for name, size, kind in tensors}
    description = describe_call(operator, types, dict(attributes), TensorType(shape, dtype))
    return "" if description is None else kind_of(description)


def measure(call: Call) -> list[float]:
    """Seconds of repeated executions on random numbers, with the threads that PyTorch has now.

    A model reads other weights before it comes to the same again: equal weights at many places take turns.
    """
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        inputs = [tensor_of(operand, generator, torch.device("cpu")) for operand in call.operands]
        run: Callable[[], Any]
        times = 1
        if call.operator == LAID:
            run = partial(laid, inputs[0], str(dict(call.arguments)["layout"]))
        elif call.operator.startswith(RUNTIME):
            run, times = _in_runtime(call, inputs)
        else:
            run = _with_weights(call, inputs) if _has_weights(call) else _plain(call)
        clock = turn_of(torch.get_num_threads()).clock
        began = clock()
        run()
        first = clock() - began
        least, most = REPEATS
        count = min(most, max(least, int(SECONDS / max(first, 1e-7))))
        took = []
        for _ in range(count):
            began = clock()
            run()
            took.append((clock() - began) / times)
    return took


def _in_runtime(call: Call, inputs: Sequence[Any]) -> tuple[Callable[[], Any], int]:
    """(a run of a model of several such nodes, each with weights of its own; how many they are)."""
    import onnx
    import onnxruntime

    data, weight = inputs
    copies = max(1, min(MOST_NODES, FAR // max(weight.nbytes, 1)))
    at: dict[str, Any] = dict(call.arguments)
    product = call.operator == RUNTIME + PRODUCT
    more: dict[str, Any] = {}
    if not product:
        padding = list(at["padding"])
        more = {"strides": at["stride"], "pads": padding * 2, "dilations": at["dilation"], "group": at["groups"]}
    nodes = [
        onnx.helper.make_node("MatMul" if product else "Conv", ["x", f"w{number}"], [f"y{number}"], **more)
        for number in range(copies)
    ]
    array = weight.contiguous().numpy()
    weights = [onnx.numpy_helper.from_array(array, f"w{number}") for number in range(copies)]
    kind = onnx.TensorProto.FLOAT
    outputs = [onnx.helper.make_tensor_value_info(f"y{number}", kind, call.shapes[0]) for number in range(copies)]
    entering = onnx.helper.make_tensor_value_info("x", kind, list(data.shape))
    graph = onnx.helper.make_graph(nodes, "measured", [entering], outputs, weights)
    opsets = [onnx.helper.make_opsetid("", 21)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    given = {"x": data.contiguous().numpy()}
    return lambda: session.run(None, given), copies


def _plain(call: Call) -> Callable[[], Any]:
    instruction, slots = prepare(call, torch.device("cpu"))
    work = [0.0, 0.0]
    return lambda: instruction.run(slots, work)


def _has_weights(call: Call) -> bool:
    operator = call.operator.removeprefix(ONEDNN).removeprefix(WINOGRAD).removeprefix(TURNED)
    return operator in (CONVOLUTION, PRODUCT) and len(call.operands) == 2


def _with_weights(call: Call, inputs: Sequence[Any]) -> Callable[[], Any]:
    """A convolution or a product with weights that take turns; images have their channels last for oneDNN."""
    data, weight = inputs[::-1] if call.operator.startswith(TURNED) else inputs
    named = dict(call.arguments)
    copies = max(1, min(MOST_COPIES, FAR // max(weight.nbytes, 1)))
    if call.operator.startswith(ONEDNN):
        operator = call.operator.removeprefix(ONEDNN)
        every = [packed(operator, named, weight, tuple(data.shape)) for _ in range(copies)]
        orders, (_, function, behind) = cycle([order for order, _, _ in every]), every[0]
        if data.dim() == 4:
            data = data.to(memory_format=torch.channels_last)
        return lambda: function(data, next(orders), None, *behind)
    if call.operator.startswith(WINOGRAD):
        copies = max(1, FAR // (LARGER * weight.nbytes))
        data = data.to(memory_format=torch.channels_last)
        modules = cycle([Winograd(named, weight, tuple(data.shape), None, False) for _ in range(copies)])
        return lambda: next(modules)(data)
    weights = cycle([weight.clone() for _ in range(copies)])
    function = resolve(call.operator.removeprefix(TURNED))
    if call.operator.startswith(TURNED):
        return lambda: function(next(weights), data)
    first, second = (name for name, value in call.arguments if isinstance(value, Ref))
    others = {name: value for name, value in named.items() if not isinstance(value, Ref)}
    return lambda: function(**{first: data, second: next(weights)}, **others)
