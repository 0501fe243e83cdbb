"""Builds the nodes of a Graph one by one; the small simplifications that every rule relies on are here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from girih.capture.errors import CaptureError
from girih.capture.source import find_asker
from girih.capture.torch.record import Note
from girih.graph import Argument, Node, Ref, Value
from girih.kernels.evaluate import resolve
from girih.ops.gate import RECORDED
from girih.ops.operator import TensorType

# Identical nodes with outputs up to this size are made once; larger ones would live too long.
SHARED_BYTES = 4096

# Arguments that say where or how a tensor lies, not what it is.
LAYOUT_ARGUMENTS = frozenset({"memory_format", "layout", "device", "pin_memory", "generator", "non_blocking"})

FLOATS = ("float64", "float32", "bfloat16", "float16")
HALVES = ("bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class NodeCall:
    """An ATen call before it is rewritten: arguments by schema name with defaults, tensors as `Value`s.

    outputs: what each output must be, None where the call gives none; used: which of them are read.
    """

    operator: str
    arguments: dict[str, Any]
    outputs: tuple[TensorType | None, ...]
    used: tuple[bool, ...]

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    @property
    def out(self) -> TensorType:
        first = self.outputs[0]
        assert first is not None
        return first


@dataclass(frozen=True, slots=True)
class Absent:
    """An output that the rules do not make; only a call whose rule does without it may read it."""

    operator: str
    source: str

    def __str__(self) -> str:
        return f"{self.source}: an output of {self.operator} besides its first is used; a graph cannot give it"


@cache
def schema(operator: str) -> dict[str, Any]:
    """The default of each parameter of an ATen operator, in order; `...` where there is none."""
    return {
        item.name: item.default_value if item.has_default_value() else ...
        for item in resolve(operator)._schema.arguments  # type: ignore[attr-defined]
    }


class Builder:
    """Nodes in topological order. Each method adds what it needs and returns the value that it made."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.values: dict[str, Value] = {}
        self.note = Note()
        self.seed: Value | None = None
        self.streams: dict[tuple[int | None, int], int] = {}
        self.drawn = 0  # by the call that is being translated
        self._shared: dict[tuple[str, tuple[tuple[str, Argument], ...]], tuple[str, ...]] = {}
        self._reshaped: dict[str, Value] = {}
        self._permuted: dict[str, tuple[Value, tuple[int, ...]]] = {}

    def input(self, name: str, shape: Sequence[int], dtype: str) -> Value:
        value = Value(name, tuple(shape), dtype)
        self.values[name] = value
        return value

    def emit(self, operator: str, shape: Sequence[int], dtype: str, /, **arguments: Any) -> Value:
        """One node with one output."""
        return self.emit_many(operator, (TensorType(tuple(shape), dtype),), arguments)[0]

    def emit_many(self, operator: str, outputs: Sequence[TensorType], arguments: dict[str, Any]) -> tuple[Value, ...]:
        """One node; arguments that equal the schema's defaults, or say only where a tensor lies, are left out."""
        if any(isinstance(item, complex) for item in arguments.values()):
            operator, arguments = self._with_complex(operator, outputs[0].dtype, arguments)
        kept = tuple(self._kept(operator, arguments))
        sharable = sum(math.prod(item.shape) for item in outputs) * 8 <= SHARED_BYTES
        if sharable and (operator, kept) in self._shared:
            return tuple(self.values[name] for name in self._shared[operator, kept])
        base = str(arguments["operator"] if operator in RECORDED else operator).split(".")[1]
        number = len(self.nodes)
        names = tuple(f"{base}.{number}.{place}" for place in range(len(outputs)))
        results = tuple(Value(name, item.shape, item.dtype) for name, item in zip(names, outputs, strict=True))
        self.values.update(zip(names, results, strict=True))
        note = self.note
        self.nodes.append(Node(names[0], operator, kept, names, note.phase, note.source, note.scope))
        if sharable:
            self._shared[operator, kept] = names
        return results

    def _with_complex(self, operator: str, dtype: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """A call with complex numbers, for which a graph has no notation, as one with tensors of them."""
        if operator == "aten.full":
            number = self.complex_number(arguments["fill_value"], dtype)
            return "aten.expand", {"self": number, "size": arguments["size"]}
        name, _, overload = operator.removeprefix("aten.").partition(".")
        overload = "Tensor_Tensor" if name == "pow" else overload.replace("Scalar", "Tensor")
        dtypes = [item.dtype for item in arguments.values() if isinstance(item, Value)]
        kind = next(item for item in (dtype, *dtypes) if item.startswith("complex"))  # a comparison makes none
        tensors = {
            key: self.complex_number(item, kind) if isinstance(item, complex) else item
            for key, item in arguments.items()
        }
        return f"aten.{name}.{overload}", tensors

    def complex_number(self, number: complex, dtype: str) -> Value:
        half = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}[dtype]
        real, imag = (self.full((), part, half) for part in (complex(number).real, complex(number).imag))
        return self.emit("aten.complex", (), dtype, real=real, imag=imag)

    @staticmethod
    def _kept(operator: str, arguments: dict[str, Any]) -> Iterable[tuple[str, Argument]]:
        if operator.startswith("girih."):
            for name, item in arguments.items():
                if item is not None:
                    yield name, argument_of(item)
            return
        for name, default in schema(operator).items():
            if name not in arguments or name in LAYOUT_ARGUMENTS:
                continue
            item = arguments[name]
            if default is ... or not equal(item, default):
                yield name, argument_of(item)

    def node_of(self, value: Value) -> Node | None:
        """The node that made a value; None for an input. Cost: linear in the nodes made since."""
        return next((node for node in reversed(self.nodes) if value.name in node.outputs), None)

    # Views

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """aten.reshape; a chain becomes one, an identity none."""
        shape = tuple(shape)
        if x.shape == shape:
            return x
        origin = self._reshaped.get(x.name, x)
        if origin.shape == shape:
            return origin
        result = self.emit("aten.reshape", shape, x.dtype, self=origin, shape=shape)
        self._reshaped[result.name] = origin
        return result

    def permute(self, x: Value, dims: Sequence[int]) -> Value:
        """aten.permute with non-negative dims; a chain becomes one, an identity none."""
        order = tuple(dim % len(x.shape) for dim in dims)
        origin, before = self._permuted.get(x.name, (x, tuple(range(len(order)))))
        order = tuple(before[dim] for dim in order)
        if order == tuple(range(len(order))):
            return origin
        shape = tuple(origin.shape[dim] for dim in order)
        if [n for n in origin.shape if n != 1] == [origin.shape[d] for d in order if origin.shape[d] != 1]:
            kept = [d for d in order if origin.shape[d] != 1]
            if kept == sorted(kept):
                return self.reshape(origin, shape)
        result = self.emit("aten.permute", shape, x.dtype, self=origin, dims=order)
        self._permuted[result.name] = (origin, order)
        return result

    def expand(self, x: Value, shape: Sequence[int]) -> Value:
        shape = tuple(shape)
        return x if x.shape == shape else self.emit("aten.expand", shape, x.dtype, self=x, size=shape)

    def slice(self, x: Value, dim: int, start: int, end: int, step: int = 1) -> Value:
        """aten.slice.Tensor with everything given and inside the tensor."""
        size = x.shape[dim]
        start, end = (min(max(n + size if n < 0 else n, 0), size) for n in (start, end))
        length = max(0, -(-(end - start) // step))
        if length == size and step == 1:
            return x
        shape = (*x.shape[:dim], length, *x.shape[dim + 1 :])
        arguments = {"self": x, "dim": dim, "start": start, "end": max(start, end), "step": step}
        kept = tuple((name, argument_of(item)) for name, item in arguments.items())
        return self._exact("aten.slice.Tensor", shape, x.dtype, kept)

    def _exact(self, operator: str, shape: tuple[int, ...], dtype: str, kept: Any) -> Value:
        """A node that keeps its arguments as they are, also those that equal a default."""
        name = f"{operator.split('.')[1]}.{len(self.nodes)}.0"
        value = self.values[name] = Value(name, shape, dtype)
        note = self.note
        self.nodes.append(Node(name, operator, kept, (name,), note.phase, note.source, note.scope))
        return value

    def cat(self, tensors: Sequence[Value], dim: int) -> Value:
        if len(tensors) == 1:
            return tensors[0]
        first = tensors[0]
        size = sum(x.shape[dim] for x in tensors)
        shape = (*first.shape[:dim], size, *first.shape[dim + 1 :])
        dtype = first.dtype
        for other in tensors[1:]:
            dtype = promote(dtype, other.dtype)
        kept = (("tensors", argument_of(tuple(tensors))), ("dim", dim))
        return self._exact("aten.cat", shape, dtype, kept)

    def pad(self, x: Value, dim: int, before: int, after: int) -> Value:
        """Zeros before and after along one dimension."""
        if before == after == 0:
            return x
        rank = len(x.shape)
        pad = (0, 0) * (rank - 1 - dim) + (before, after)
        shape = (*x.shape[:dim], before + x.shape[dim] + after, *x.shape[dim + 1 :])
        return self.emit("aten.constant_pad_nd", shape, x.dtype, self=x, pad=pad)

    # Element-wise and reductions

    def cast(self, x: Value, dtype: str) -> Value:
        return x if x.dtype == dtype else self.emit("aten._to_copy", x.shape, dtype, self=x, dtype=dtype)

    def binary(self, operator: str, a: Value, b: Value | float, **more: Any) -> Value:
        """`aten.add`, `sub`, `mul` or `div` of values or numbers, broadcast."""
        if not isinstance(b, Value):
            return self.emit(f"aten.{operator}.Tensor", a.shape, a.dtype, self=a, other=b, **more)
        shape, dtype = broadcast(a.shape, b.shape), promote(a.dtype, b.dtype)
        return self.emit(f"aten.{operator}.Tensor", shape, dtype, self=a, other=b, **more)

    def unary(self, operator: str, a: Value) -> Value:
        return self.emit(f"aten.{operator}", a.shape, a.dtype, self=a)

    def full(self, shape: Sequence[int], fill: float, dtype: str) -> Value:
        return self.emit("aten.full", shape, dtype, size=tuple(shape), fill_value=fill, dtype=dtype)

    def sum(self, x: Value, dims: Sequence[int], keepdim: bool = True) -> Value:
        dims = dims_of(dims, x)
        kept = reduced(x.shape, dims, keepdim)
        if all(x.shape[dim] == 1 for dim in dims) and x.dtype in FLOATS:
            return self.reshape(x, kept)
        dtype = x.dtype if x.dtype in FLOATS or x.dtype.startswith("complex") else "int64"
        return self.emit("aten.sum.dim_IntList", kept, dtype, self=x, dim=dims, keepdim=keepdim)

    def product_sum(self, a: Value, b: Value, dims: Sequence[int]) -> Value:
        """Σ a · b over dims, kept."""
        shape = broadcast(a.shape, b.shape)
        dims = tuple(sorted(dim % len(shape) for dim in dims))
        dtype = promote(a.dtype, b.dtype)
        return self.emit("girih.product_sum", reduced(shape, dims, True), dtype, a=a, b=b, dims=dims)

    def mean(self, x: Value, dims: Sequence[int], keepdim: bool = True) -> Value:
        dims = dims_of(dims, x)
        count = math.prod(x.shape[dim] for dim in dims)
        shape = reduced(x.shape, dims, keepdim)
        return self.emit("girih.mean", shape, x.dtype, input=x, dims=dims, keepdim=keepdim, count=count)

    def refuse(self, what: str) -> CaptureError:
        """The error for something that this vocabulary cannot say, at the present source line."""
        return CaptureError(f"{self.note.source or find_asker() or 'somewhere'}: {what}")


def alike(rule: Any, names: str) -> dict[str, Any]:
    """The same rule for several of ATen's operators, named without `aten.` and parted by blanks."""
    return {f"aten.{name}": rule for name in names.split()}


def argument_of(item: Any) -> Argument:
    if isinstance(item, Value):
        return Ref(item.name)
    if isinstance(item, (tuple, list)):
        return tuple(argument_of(part) for part in item)
    if item is None or isinstance(item, (bool, int, float, str)):
        return item
    if isinstance(item, Absent):
        raise CaptureError(str(item))
    text = str(item)
    if text.startswith("torch."):  # a dtype
        return text.removeprefix("torch.")
    if type(item).__name__ == "ScriptObject":
        raise CaptureError(
            f"{text} is an object of TorchScript, of which only its own kernels know what is in it: modules of "
            "torch.ao.quantization (`quantize_dynamic`) keep their weights so. Give the model before it was quantized; "
            "an ONNX file of the quantized one is read, too"
        )
    raise CaptureError(f"an argument of type {type(item).__name__} cannot stand in a graph: {text}")


def equal(item: Any, default: Any) -> bool:
    if isinstance(item, (tuple, list)) and isinstance(default, (tuple, list)):
        return len(item) == len(default) and all(map(equal, item, default))
    if isinstance(item, Value):
        return False
    alike = type(item) is type(default) or {type(item), type(default)} == {int, float}  # alpha=1.0 against 1
    return item is default or (alike and bool(item == default))


def dims_of(dims: Any, x: Value) -> tuple[int, ...]:
    """The dimensions that an argument names, non-negative and sorted; None or () name all."""
    rank = len(x.shape)
    if dims is None:
        return tuple(range(rank))
    if isinstance(dims, int):
        dims = (dims,)
    return tuple(sorted(dim % max(rank, 1) for dim in dims)) if len(dims) and rank else tuple(range(rank))


def reduced(shape: Sequence[int], dims: Sequence[int], keepdim: bool) -> tuple[int, ...]:
    if keepdim:
        return tuple(1 if dim in dims else size for dim, size in enumerate(shape))
    return tuple(size for dim, size in enumerate(shape) if dim not in dims)


def broadcast(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + tuple(a), (1,) * (rank - len(b)) + tuple(b)
    return tuple(m if n == 1 else n for m, n in zip(left, right, strict=True))


_ORDER = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")


def promote(a: str, b: str) -> str:
    """The dtype of a and b together, for the pairs that rules meet."""
    if a == b:
        return a
    if {a, b} == {"float16", "bfloat16"}:
        return "float32"
    return max(a, b, key=_ORDER.index)
