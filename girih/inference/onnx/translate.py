"""ONNX graph → OnnxModule, for inputs of known shapes.

Nodes are gone through once. What is known, weights and what follows from them and from shapes, is computed at once; of
all else shape and dtype are found by running the operator on fake tensors. So sizes and axes that a graph computes from
shapes are numbers when an operator asks for them, the branch of an `If` is chosen, and `Loop` and `Scan` are written
out, where they depend on nothing else. Inputs on which they depend are fixed at the values of the example. Cost: linear
in the nodes, loops written out."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto
from torch._subclasses.fake_tensor import FakeTensorMode

from girih.inference.onnx.errors import OnnxError
from girih.inference.onnx.file import OnnxFile, every_node, graphs_of, read_file, title
from girih.inference.onnx.module import WIDENED, OnnxModule, OnnxStep, ValueSlot
from girih.inference.onnx.operators import OnnxOperator
from girih.inference.onnx.pages import operators
from girih.inference.onnx.tensors import DTYPES, MOST_BYTES, dtype_of, first_line, tensor_of

Tensor = Any

OTHERWISE = ("again", "refuse")
MOST_NODES, MOST_DEPTH = 50_000, 30
SMALL = 64
"""Elements of an input that may be fixed because shapes depend on it."""
ORDERED = frozenset(
    ("Div", "Mod", "Max", "Min", "Clip", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "BitShift", "Pow",
     "ReduceMax", "ReduceMin", "ReduceMean", "TopK", "ArgMax", "ArgMin", "MaxPool")
)  # fmt: skip
"""What is another number where uint64 is computed as int64."""


@dataclass(frozen=True)
class Item:
    """A value: its number, a fake tensor of its shape and dtype, its numbers where they are known, and the inputs that
    they depend on where not."""

    number: int
    fake: Tensor
    real: Tensor | None = None
    of: frozenset[str] = frozenset()


class _Fix(Exception):  # noqa: N818
    """The translation starts again with these inputs fixed."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names


def read(
    path: str | Path,
    example: Sequence[Tensor] | Mapping[str, Tensor] | None = None,
    sizes: Mapping[str, int] | None = None,
    otherwise: str = "again",
) -> OnnxModule:
    """The model of an ONNX file as a module, for inputs of one shape.

    example: inputs, in order or by name; they give the shapes that the file leaves open, and the values of inputs on
    which shapes depend. sizes: of dimensions that have a name in the file. Without an example, inputs are drawn at
    random, floats around zero and whole numbers 0 or 1, for the dimensions that are known. otherwise: inputs of other
    shapes have the file read `again`, or are refused (`refuse`).

    Raises:
        OnnxError: the file is damaged, or says what girih cannot; a dimension is unknown.
    """
    if otherwise not in OTHERWISE:
        raise OnnxError(f"no way {otherwise!r} to answer other shapes: there are {' and '.join(OTHERWISE)}")
    before = _stamp(path)
    module = translated(read_file(path), example, sizes)
    if otherwise == "again":
        module.again = partial(_again, path, before)
    return module


def _again(path: str | Path, before: tuple[int, int] | None, example: Mapping[str, Tensor]) -> OnnxModule:
    if _stamp(path) != before:
        raise OnnxError(f"{path}: the file was changed since it was read, so that it is not read for other shapes")
    return translated(read_file(path), example)


def _stamp(path: str | Path) -> tuple[int, int] | None:
    """When a file was written, and its size."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def translated(
    file: OnnxFile,
    example: Sequence[Tensor] | Mapping[str, Tensor] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> OnnxModule:
    """The model as a module, for inputs such as the example, or of these sizes (see `read`)."""
    where = f"{file.path}: " if file.path else ""
    inputs = [item for item in file.graph.input if item.name not in file.weights]
    try:
        values = _values(inputs, example, sizes or {})
        fixed: set[str] = set()
        while True:
            try:
                return _Translation(file, values, frozenset(fixed), example is not None).module()
            except _Fix as need:
                fixed |= need.names
    except OnnxError as error:
        raise OnnxError(f"{where}{error}" if where and not str(error).startswith(where) else str(error)) from error


def _values(
    inputs: Sequence[Any], example: Sequence[Tensor] | Mapping[str, Tensor] | None, sizes: Mapping[str, int]
) -> dict[str, Tensor]:
    """A tensor for each input, checked against what the file says."""
    if example is None:
        return {item.name: _drawn(item, sizes) for item in inputs}
    names = [item.name for item in inputs]
    given = dict(example) if isinstance(example, Mapping) else dict(zip(names, example, strict=False))
    if set(given) != set(names) or (not isinstance(example, Mapping) and len(example) != len(names)):
        raise OnnxError(f"its inputs are {', '.join(names)}, the example has {', '.join(given) or 'none'}")
    for item in inputs:
        dtype, dims = _type(item)
        tensor = given[item.name]
        if tensor.dtype is not dtype:
            raise OnnxError(f"input {item.name!r} is {dtype}, the example has {tensor.dtype}")
        wrong = dims is not None and (
            len(dims) != tensor.dim()
            or any(isinstance(a, int) and a != b for a, b in zip(dims, tensor.shape, strict=True))
        )
        if wrong:
            raise OnnxError(f"input {item.name!r} is {list(dims or ())}, the example has {list(tensor.shape)}")
    return {name: given[name] for name in names}


def _type(item: Any) -> tuple[torch.dtype, list[int | str] | None]:
    """dtype and dimensions, by name or `?` where they are open; None where not even their number is known."""
    kind = item.type.WhichOneof("value")
    if kind != "tensor_type":
        raise OnnxError(f"input {item.name!r} is a {(kind or 'value without a type').removesuffix('_type')}, no tensor")
    tensor = item.type.tensor_type
    dtype = dtype_of(tensor.elem_type)
    if not tensor.HasField("shape"):
        return dtype, None
    dims = [part.dim_value if part.HasField("dim_value") else part.dim_param or "?" for part in tensor.shape.dim]
    if any(isinstance(size, int) and size < 0 for size in dims):
        raise OnnxError(f"{item.name!r} is declared as {dims}: sizes are 0 or more")
    return dtype, dims


def _drawn(item: Any, sizes: Mapping[str, int]) -> Tensor:
    dtype, dims = _type(item)
    if dims is None:
        raise OnnxError(f"input {item.name!r} has no shape in the file: give an example")
    shape = [size if isinstance(size, int) else sizes.get(size, 0) for size in dims]
    for size, found in zip(dims, shape, strict=True):
        if isinstance(size, str) and found < 1:
            hint = f"say its size, as {size}=1, or give an example" if size != "?" else "give an example"
            raise OnnxError(f"input {item.name!r} is {list(dims)}: dimension {size!r} is open, {hint}")
    if math.prod(shape) * dtype.itemsize > 8 * MOST_BYTES:
        raise OnnxError(f"input {item.name!r} is {shape}: too large for an example")
    generator = torch.Generator().manual_seed(0)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=torch.float32).to(dtype)
    return torch.randint(2, shape, generator=generator).to(dtype)


class _Translation:
    """The translation of a graph, node by node, with what it knows so far."""

    def __init__(self, file: OnnxFile, example: Mapping[str, Tensor], fixed: frozenset[str], given: bool) -> None:
        self.file, self.example, self.fixed, self.given = file, example, fixed, given
        self.opset, self.depth = file.opset, 0
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.steps: list[OnnxStep] = []
        self.known: dict[int, tuple[str, Tensor]] = {}
        self.count = self.visited = 0

    def module(self) -> OnnxModule:
        scope: dict[str, Item | None] = {}
        inputs = {}
        for name, tensor in self.file.weights.items():
            scope[name] = self.constant(name, tensor)
        for name, tensor in self.example.items():
            if name in self.fixed:
                scope[name] = self.constant(name, tensor)
                continue
            item = scope[name] = self.item(self.mode.from_tensor(tensor), of=frozenset((name,)))
            inputs[name] = item.number
        self.graph(self.file.graph, scope)
        outputs = {item.name: _there(scope[item.name]).number for item in self.file.graph.output}
        self.check_declared(scope)
        read = set(outputs.values())
        steps = []
        for step in reversed(self.steps):
            if any(number in read for number in step.results):
                steps.append(step)
                read.update(step.slots)
        constants = {number: item for number, item in self.known.items() if number in read}
        return OnnxModule(
            steps[::-1], constants, inputs, outputs, {name: self.example[name] for name in inputs},
            {name: self.example[name] for name in self.fixed}, self.file.path, self.open_sizes(), self.branches(),
        )  # fmt: skip

    def branches(self) -> bool:
        """Has the file branches or loops?"""
        functions = self.file.functions.values()
        nodes = [*every_node(self.file.graph.node), *(node for item in functions for node in every_node(item.node))]
        return any(next(graphs_of(node), None) is not None for node in nodes)

    def open_sizes(self) -> dict[str, tuple[int | str, ...]]:
        """See `OnnxModule.open`. Dimensions without a name are named by their place."""
        return {
            item.name: tuple(f"{item.name}_{i}" if size == "?" else size for i, size in enumerate(dims))
            for item in self.file.graph.input
            if item.name in self.example and (dims := _type(item)[1]) is not None
        }

    def check_declared(self, scope: Mapping[str, Item | None]) -> None:
        """Raises OnnxError where a value is another than the file declares. Sizes of outputs are compared where all
        inputs have theirs: exporters write those of an example beside inputs that are open."""
        graph = self.file.graph
        inputs = [_type(item)[1] for item in graph.input]
        closed = all(dims is not None and not any(isinstance(size, str) for size in dims) for dims in inputs)
        for item in (*graph.output, *graph.value_info):
            found = scope.get(item.name)
            if found is None or item.type.WhichOneof("value") != "tensor_type" or not item.type.tensor_type.elem_type:
                continue
            dtype, dims = _type(item)
            shape = list(found.fake.shape)
            known = dims is not None and closed and not any(isinstance(size, str) for size in dims)
            if (known and dims != shape) or dtype is not found.fake.dtype:
                raise OnnxError(
                    f"{item.name!r} is declared as {_word(dtype)}{'' if dims is None else dims}, and what computes it "
                    f"makes {_word(found.fake.dtype)}{shape}"
                )

    def item(self, fake: Tensor, real: Tensor | None = None, of: frozenset[str] = frozenset()) -> Item:
        self.count += 1
        return Item(self.count, fake, real, of)

    def constant(self, name: str, tensor: Tensor) -> Item:
        item = self.item(self.mode.from_tensor(tensor), tensor)
        self.known[item.number] = (name, tensor)
        return item

    def visit(self, nodes: int, count: bool = True) -> None:
        """Raises OnnxError where so many more nodes are too many."""
        if self.visited + nodes > max(MOST_NODES, 2 * len(self.file.graph.node)):
            raise OnnxError(f"with its loops written out it has more than {MOST_NODES} nodes")
        self.visited += nodes if count else 0

    def graph(self, graph: GraphProto, scope: dict[str, Item | None]) -> None:
        """The nodes of a graph in a scope, to which their results are added."""
        for node in graph.node:
            self.visit(1)
            try:
                results = self.node(node, scope)
            except (OnnxError, _Fix):
                raise
            except Exception as error:
                raise OnnxError(f"node {title(node)}: {_said(error)}") from error
            for name, item in zip_longest(node.output, results):
                if name and item is None and self.depth == 0:
                    raise OnnxError(f"node {title(node)}: its output {name!r} is not supported")
                if name:
                    scope[name] = item

    def node(self, node: NodeProto, scope: dict[str, Item | None]) -> Sequence[Item | None]:
        if node.op_type == "Constant":
            return [self.constant(node.output[0], _constant(node))]
        if node.op_type in ("If", "Loop", "Scan"):
            attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
            inputs = [scope[name] if name else None for name in node.input]
            control = {"If": self.if_, "Loop": self.loop, "Scan": self.scan}[node.op_type]
            return control(node, attributes, inputs, scope)
        every = operators().get(node.op_type, ()) if node.domain in ("", "ai.onnx") else ()
        chosen = next((item for item in every if item.since <= self.opset), None)
        own = self.file.functions.get((node.domain, node.op_type))
        if own is None and chosen is not None:
            return self.call(node, chosen, scope)
        function = own or self.definition(node, scope)
        if function is None:
            raise OnnxError(f"operator {title(node)} is not supported")
        return self.function(node, function, scope)

    def definition(self, node: NodeProto, scope: Mapping[str, Item | None]) -> FunctionProto | None:
        """The function by which ONNX itself defines an operator, if it does."""
        domain = "" if node.domain == "ai.onnx" else node.domain
        try:
            schema = (
                onnx.defs.get_schema(node.op_type, self.opset, domain)
                if not domain
                else onnx.defs.get_schema(node.op_type, domain)
            )
        except onnx.defs.SchemaError:
            return None
        versions = [item for item in schema.function_opset_versions if item <= self.opset]
        if versions:
            return FunctionProto.FromString(schema.get_function_with_opset_version(max(versions)))
        versions = [item for item in schema.context_dependent_function_opset_versions if item <= self.opset]
        if not versions:
            return None
        types = []
        for name in node.input:
            item = scope[name] if name else None
            kind = onnx.TypeProto()
            if item is not None:
                number = next(key for key, dtype in DTYPES.items() if dtype is item.fake.dtype)
                kind = onnx.helper.make_tensor_type_proto(number, list(item.fake.shape))
            types.append(kind.SerializeToString())
        made = schema.get_context_dependent_function_with_opset_version(max(versions), node.SerializeToString(), types)
        return FunctionProto.FromString(made)

    def function(self, node: NodeProto, function: FunctionProto, scope: Mapping[str, Item | None]) -> list[Item | None]:
        """The nodes of a function in the place of its call."""
        given = {item.name: item for item in function.attribute_proto}
        domain = "" if node.domain == "ai.onnx" else node.domain
        if onnx.defs.has(node.op_type, domain) and (node.domain, node.op_type) not in self.file.functions:
            for name, item in onnx.defs.get_schema(node.op_type, domain).attributes.items():
                if item.default_value.type:
                    given[name] = item.default_value
        given |= {item.name: item for item in node.attribute}
        own: dict[str, Item | None] = dict.fromkeys(function.input)
        own |= {
            name: scope[given_name] if given_name else None
            for name, given_name in zip(function.input, node.input, strict=False)
        }
        graph = GraphProto(node=[_filled(item, given) for item in function.node])
        before = self.opset
        if self.depth > MOST_DEPTH:
            raise OnnxError(f"operator {title(node)} is a function that calls itself")
        self.depth += 1
        self.opset = next((item.version for item in function.opset_import if item.domain in ("", "ai.onnx")), before)
        try:
            self.graph(graph, own)
        finally:
            self.opset, self.depth = before, self.depth - 1
        return [own.get(name) for name in function.output]

    def call(self, node: NodeProto, chosen: OnnxOperator, scope: Mapping[str, Item | None]) -> list[Item]:
        keywords: dict[str, Any] = {}
        for attribute in node.attribute:
            if attribute.name not in chosen.parameters:
                raise OnnxError(f"attribute {attribute.name!r} of operator {title(node)} is not supported")
            keywords[attribute.name] = _attribute(attribute)
        if "outputs" in chosen.parameters:
            keywords["outputs"] = len(node.output)
        names = list(node.input)
        while names and not names[-1]:
            names.pop()
        if len(names) > len(chosen.inputs) and not chosen.is_variadic:
            raise OnnxError(f"operator {title(node)} has {len(names)} inputs: up to {len(chosen.inputs)} are supported")
        items = [scope[name] if name else None for name in names]
        arguments = []
        for place, item in enumerate(items):
            parameter = chosen.inputs[place] if place < len(chosen.inputs) else ""
            if item is None:
                default = chosen.parameters[parameter].default if parameter else None
                if default is chosen.parameters[parameter].empty:
                    raise OnnxError(f"operator {title(node)} lacks its input {parameter!r}")
                arguments.append(default)
            elif parameter in chosen.known or (parameter in chosen.rather and item.real is not None):
                arguments.append(self.value(item, node, parameter).tolist())
            else:
                arguments.append(ValueSlot(item.number))
        present = [item for item in items if item is not None]
        unsigned = any(item.fake.dtype in WIDENED for item in present)
        if chosen.name in ORDERED and any(item.fake.dtype is torch.uint64 for item in present):
            raise OnnxError(f"operator {title(node)} of uint64 is not supported")
        step = OnnxStep(
            title(node), chosen.function, tuple(arguments), keywords, (), self.dtypes(node, items),
            unsigned and not chosen.exact,
        )  # fmt: skip
        return self.made(step, present, len(node.output), list(node.output))

    def made(self, step: OnnxStep, items: Sequence[Item], count: int, names: Sequence[str]) -> list[Item]:
        """A step's results: computed at once where all that it reads is known, and small."""
        known = all(item.real is not None for item in items)
        fakes: tuple[Tensor, ...] | None
        with torch.no_grad():
            try:
                with self.mode:
                    fakes = step.run({item.number: item.fake for item in items})
            except Exception as error:
                if not known or not _depends_on_data(error):
                    raise
                fakes = None
            if known:
                if fakes is not None and sum(item.numel() * item.element_size() for item in fakes) > MOST_BYTES:
                    shapes = ", ".join(str(list(item.shape)) for item in fakes)
                    raise OnnxError(f"node {step.title} makes a constant of {shapes}, of more than {MOST_BYTES} bytes")
                reals = step.run({item.number: item.real for item in items})
                return [self.constant(name, item) for name, item in zip(names, reals[:count], strict=False)]
        assert fakes is not None
        of = frozenset[str]().union(*(item.of for item in items))
        results = []
        for fake in fakes[:count]:
            shape_alone = step.title.split(" ")[0] in ("Shape", "Size")
            if shape_alone:  # a number that follows from a shape, whatever the values are
                with torch.no_grad():
                    (real,) = step.run({item.number: torch.empty(item.fake.shape, device="meta") for item in items})
                return [self.constant(names[0], real)]
            results.append(self.item(fake, of=of))
        numbers = tuple(item.number for item in results)
        self.steps.append(
            OnnxStep(step.title, step.function, step.arguments, step.keywords, numbers, step.dtypes, step.widened)
        )
        return results

    def dtypes(self, node: NodeProto, items: Sequence[Item | None]) -> tuple[torch.dtype | None, ...]:
        """The dtype of each output: that of the input of the same type variable; None where there is none."""
        schema = onnx.defs.get_schema(node.op_type, self.opset, "")
        of: dict[str, torch.dtype] = {}
        for place, item in enumerate(items):
            if item is not None:
                formal = schema.inputs[min(place, len(schema.inputs) - 1)]
                of.setdefault(formal.type_str, item.fake.dtype)
        outputs = [schema.outputs[min(place, len(schema.outputs) - 1)].type_str for place in range(len(node.output))]
        return tuple(of.get(item) for item in outputs)

    def value(self, item: Item, node: NodeProto, what: str) -> Tensor:
        """The numbers of a value, which must be known."""
        if item.real is not None:
            return item.real
        small = all(self.example[name].numel() <= SMALL and self.example[name].dim() <= 1 for name in item.of)
        if item.of and small and not item.of & self.fixed:
            if not self.given:
                names = ", ".join(sorted(item.of))
                raise OnnxError(f"{what!r} of operator {title(node)} depends on the input {names}: give an example")
            raise _Fix(item.of)
        raise OnnxError(f"operator {title(node)}: its {what!r} depends on data")

    # Control flow, written out

    def inner(
        self, graph: GraphProto, scope: Mapping[str, Item | None], given: Mapping[str, Item | None]
    ) -> list[Item]:
        """The results of a graph within, from what its inputs are."""
        own = {**scope, **given}
        for tensor in graph.initializer:
            own[tensor.name] = self.constant(tensor.name, tensor_of(tensor))
        self.graph(graph, own)
        return [_there(own[item.name]) for item in graph.output]

    def if_(
        self, node: NodeProto, attributes: Any, inputs: Sequence[Any], scope: Mapping[str, Item | None]
    ) -> list[Item]:
        branch = "then_branch" if bool(self.value(inputs[0], node, "condition")) else "else_branch"
        return self.inner(attributes[branch], scope, {})

    def loop(
        self, node: NodeProto, attributes: Any, inputs: Sequence[Any], scope: Mapping[str, Item | None]
    ) -> list[Item]:
        body = attributes["body"]
        most = None if inputs[0] is None else int(self.value(inputs[0], node, "trip count"))
        going = len(inputs) < 2 or inputs[1] is None or bool(self.value(inputs[1], node, "condition"))
        names = [item.name for item in body.input]
        if going and most is not None and _lasts(body):
            self.visit(max(len(body.node), 1) * most, count=False)
        carried = list(inputs[2:])
        scanned: list[list[Item]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
        turn = 0
        while going and (most is None or turn < most):
            self.visit(1)
            given = {
                names[0]: self.constant("turn", torch.tensor(turn)),
                names[1]: self.constant("on", torch.tensor(True)),
            }
            given |= dict(zip(names[2:], carried, strict=True))
            results = self.inner(body, scope, given)
            carried = results[1 : 1 + len(carried)]
            for kept, item in zip(scanned, results[1 + len(carried) :], strict=True):
                kept.append(item)
            turn += 1
            if turn < (most if most is not None else turn + 1):
                going = bool(self.value(results[0], node, "condition"))
        if not turn and scanned:
            raise OnnxError(f"operator {title(node)} of no turns is not supported")
        return [*carried, *(self.stacked(items, 0) for items in scanned)]

    def scan(
        self, node: NodeProto, attributes: Any, inputs: Sequence[Any], scope: Mapping[str, Item | None]
    ) -> list[Item]:
        body, count = attributes["body"], attributes["num_scan_inputs"]
        if self.opset < 9:
            raise OnnxError("operator Scan before opset 9 is not supported")
        carried, over = list(inputs[: len(inputs) - count]), inputs[len(inputs) - count :]
        axes = attributes.get("scan_input_axes", [0] * count)
        backward = attributes.get("scan_input_directions", [0] * count)
        made = len(body.output) - len(carried)
        axes_out = attributes.get("scan_output_axes", [0] * made)
        backward_out = attributes.get("scan_output_directions", [0] * made)
        length = over[0].fake.shape[axes[0]]
        scanned: list[list[Item]] = [[] for _ in range(made)]
        names = [item.name for item in body.input]
        for turn in range(length):
            parts = [
                self.picked(item, axis, length - 1 - turn if back else turn)
                for item, axis, back in zip(over, axes, backward, strict=True)
            ]
            results = self.inner(body, scope, dict(zip(names, [*carried, *parts], strict=True)))
            carried = results[: len(carried)]
            for kept, item in zip(scanned, results[len(carried) :], strict=True):
                kept.append(item)
        stacked = [
            self.stacked(items[::-1] if back else items, axis)
            for items, axis, back in zip(scanned, axes_out, backward_out, strict=True)
        ]
        return [*carried, *stacked]

    def picked(self, item: Item, axis: int, place: int) -> Item:
        step = OnnxStep("select", torch.select, (ValueSlot(item.number), axis, place), {}, (), (None,))
        return self.made(step, [item], 1, ["part"])[0]

    def stacked(self, items: Sequence[Item], axis: int) -> Item:
        slots = tuple(ValueSlot(item.number) for item in items)
        step = OnnxStep("stack", lambda *parts: torch.stack(parts, axis), slots, {}, (), (None,))
        return self.made(step, items, 1, ["parts"])[0]


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _lasts(body: GraphProto) -> bool:
    """Does a loop's body hand its condition on as it is, so that the number of turns alone ends it?"""
    makers = {name: node for node in body.node for name in node.output}
    name = body.output[0].name
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    return name not in makers or makers[name].op_type == "Constant"


def _filled(node: NodeProto, given: Mapping[str, AttributeProto]) -> NodeProto:
    """A function's node with the attributes of its call in place of their names; those that it does not give are left
    out."""
    copy = NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for item in node.attribute:
        if item.ref_attr_name:
            if item.ref_attr_name in given:
                filled = copy.attribute.add()
                filled.CopyFrom(given[item.ref_attr_name])
                filled.name = item.name
            continue
        kept = copy.attribute.add()
        kept.CopyFrom(item)
        if item.type == AttributeProto.GRAPH:
            del kept.g.node[:]
            kept.g.node.extend(_filled(inner, given) for inner in item.g.node)
    return copy


def _there(item: Item | None) -> Item:
    if item is None:
        raise OnnxError("a result of the graph is left out by the function that would make it")
    return item


def _depends_on_data(error: Exception) -> bool:
    return type(error).__name__ in ("DynamicOutputShapeException", "DataDependentOutputException") or (
        "data-dependent" in str(error) or "DataDependent" in type(error).__name__
    )


def _said(error: Exception) -> str:
    return "its result's shape depends on data" if _depends_on_data(error) else first_line(error)


def _constant(node: NodeProto) -> Tensor:
    (attribute,) = node.attribute
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.name == "value":
        return tensor_of(value)
    if attribute.name in ("value_float", "value_floats"):
        return torch.tensor(value, dtype=torch.float32)
    if attribute.name in ("value_int", "value_ints"):
        return torch.tensor(value, dtype=torch.int64)
    raise OnnxError(f"a constant of {attribute.name.removeprefix('value_')} is not supported")


def _attribute(attribute: AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.type == AttributeProto.STRING:
        return value.decode("utf-8", "replace")
    if attribute.type == AttributeProto.STRINGS:
        return [item.decode("utf-8", "replace") for item in value]
    if attribute.type == AttributeProto.TENSOR:
        tensor = tensor_of(value)
        return tensor.tolist(), tensor.dtype
    if attribute.type in (AttributeProto.FLOATS, AttributeProto.INTS):
        return list(value)
    if attribute.type in (AttributeProto.FLOAT, AttributeProto.INT):
        return value
    raise OnnxError(f"attribute {attribute.name!r} of an operator is neither number, text nor tensor")
