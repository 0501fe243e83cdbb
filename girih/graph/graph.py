"""Graph, values and nodes: one dataflow graph of ATen operators, immutable and in topological order.

A value is a tensor with a shape and a dtype. A node applies one operator to values and attributes and makes
one or more values. The graph also says which of its outputs replaces which of its inputs (a new weight
replaces the old one), so that a training step is one pure function that can be applied again and again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import Concatenate, Generic, Literal, ParamSpec, TypeAlias, TypeVar, get_args

Role: TypeAlias = Literal["parameter", "buffer", "data", "state", "batch", "scalar", "seed"]
OutputRole: TypeAlias = Literal["loss", "update", "result"]

ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
}


T = TypeVar("T")
P = ParamSpec("P")
_KEPT = "_kept"
"""Where a graph has the answers of `kept_with_graph`."""


class GraphError(ValueError):
    """A graph that breaks its own law; the message shows the node with its neighbours."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference to a value inside a node's arguments."""

    name: str


Scalar: TypeAlias = bool | int | float | str | None
Argument: TypeAlias = "Scalar | Ref | tuple[Argument, ...]"


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor: `shape` in elements, `dtype` by PyTorch's name without the `torch.` prefix."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def item_bytes(self) -> int:
        return ITEM_BYTES[self.dtype]

    @property
    def bytes(self) -> int:
        return self.elements * self.item_bytes


@dataclass(frozen=True)
class Node:
    """One application of an operator.

    operator: `aten.mm`, `aten.add.Tensor` (the overload unless it is `default`), or `girih.NAME`.
    arguments: (name in the operator's schema, value) pairs; tensors appear as `Ref`, defaults are left out.
    phase: where the node comes from: forward, backward or update.
    source: `file:line` of the user's program, or "".
    scope: the module path the node was made in (`layers.3.attention`), or "".
    """

    name: str
    operator: str
    arguments: tuple[tuple[str, Argument], ...]
    outputs: tuple[str, ...]
    phase: Literal["forward", "backward", "update"] = "forward"
    source: str = field(default="", compare=False)
    scope: str = field(default="", compare=False)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the values that it reads, in the order of its arguments, repeated where used twice."""
        return tuple(ref.name for _, argument in self.arguments for ref in references(argument))

    @cached_property
    def attributes(self) -> dict[str, Argument]:
        """The arguments that hold no tensor."""
        return {name: value for name, value in self.arguments if not any(references(value))}

    def renamed(self, name_of: Callable[[str], str]) -> Node:
        """The node, reading the value `name_of(name)` wherever it read the value `name`."""
        return replace(self, arguments=tuple((key, _renamed(value, name_of)) for key, value in self.arguments))


def references(argument: Argument) -> Iterator[Ref]:
    """Every `Ref` in an argument, in order."""
    if isinstance(argument, Ref):
        yield argument
    elif isinstance(argument, tuple):
        for item in argument:
            yield from references(item)


def _renamed(argument: Argument, name_of: Callable[[str], str]) -> Argument:
    if isinstance(argument, Ref):
        return Ref(name_of(argument.name))
    return tuple(_renamed(item, name_of) for item in argument) if isinstance(argument, tuple) else argument


@dataclass(frozen=True, slots=True)
class Input:
    """What enters the graph.

    path: for parameters and buffers the name in the module's state_dict; for optimizer state
    `PARAMETER/KEY`; for data of the program the name of a buffer; for a batch the position in its
    nesting (`0`, `1/input_ids`), "" of one that is a bare tensor.
    """

    name: str
    role: Role
    path: str = ""


def of_batch(path: str) -> str:
    """How messages name the tensor at a path of the batch."""
    return f"the batch's tensor {path!r}" if path else "the batch"


@dataclass(frozen=True, slots=True)
class Output:
    """What leaves the graph; `replaces` names the input whose place an updated value takes."""

    name: str
    role: OutputRole
    replaces: str | None = None


@dataclass(frozen=True)
class Graph:
    """A program as pure dataflow: `values` by name, `nodes` in topological order."""

    values: dict[str, Value]
    nodes: tuple[Node, ...]
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]

    @cached_property
    def producer(self) -> dict[str, int]:
        """The index of the node that makes each value; inputs are not in it."""
        return {name: index for index, node in enumerate(self.nodes) for name in node.outputs}

    @cached_property
    def consumers(self) -> dict[str, tuple[int, ...]]:
        """The indices of the nodes that read each value, ascending, each once."""
        users: dict[str, list[int]] = {name: [] for name in self.values}
        for index, node in enumerate(self.nodes):
            for name in dict.fromkeys(node.inputs):
                users[name].append(index)
        return {name: tuple(indices) for name, indices in users.items()}

    @cached_property
    def updates(self) -> dict[str, str]:
        """Input name -> name of the output that replaces it."""
        return {output.replaces: output.name for output in self.outputs if output.replaces is not None}

    def role_of(self, name: str) -> Role | None:
        """The role of an input; None for a value that a node makes."""
        return self._roles.get(name)

    @cached_property
    def _roles(self) -> dict[str, Role]:
        return {item.name: item.role for item in self.inputs}

    @property
    def state_inputs(self) -> tuple[Input, ...]:
        """What lives from step to step: parameters, buffers, data of the program, and optimizer state."""
        return tuple(item for item in self.inputs if item.role in ("parameter", "buffer", "data", "state"))

    @cached_property
    def data_inputs(self) -> frozenset[str]:
        """Names of inputs that are data of the program and stay as they are: no checkpoint holds them."""
        return frozenset(item.name for item in self.inputs if item.role == "data" and item.name not in self.updates)

    def __str__(self) -> str:
        return format_graph(self)

    def __getstate__(self) -> dict[str, object]:
        return {key: item for key, item in vars(self).items() if key != _KEPT}


def kept_with_graph(function: Callable[Concatenate[Graph, P], T]) -> Callable[Concatenate[Graph, P], T]:
    """A function of a graph (and of what has a hash) that computes once: its answers live as long as the graph, which
    may be in them, and are in no pickle or copy of it. Nobody may change an answer."""

    @wraps(function)
    def kept(graph: Graph, /, *args: P.args, **options: P.kwargs) -> T:
        known: dict[object, T] = vars(graph).setdefault(_KEPT, {})
        key = function, args, tuple(options.items())
        if key not in known:
            known[key] = function(graph, *args, **options)
        return known[key]

    return kept


def format_value(value: Value) -> str:
    return f"%{value.name}: {value.dtype}[{', '.join(map(str, value.shape))}]"


def format_argument(argument: Argument) -> str:
    if isinstance(argument, Ref):
        return f"%{argument.name}"
    if isinstance(argument, tuple):
        return f"[{', '.join(map(format_argument, argument))}]"
    if isinstance(argument, str):
        return json.dumps(argument)
    if isinstance(argument, float) and argument in (float("inf"), float("-inf")):
        return "inf" if argument > 0 else "-inf"
    return repr(argument)


def format_node(graph: Graph, node: Node) -> str:
    results = ", ".join(format_value(graph.values[name]) for name in node.outputs)
    arguments = ", ".join(f"{name}={format_argument(value)}" for name, value in node.arguments)
    notes = ", ".join(note for note in (node.phase, node.source, node.scope) if note)
    return f"{results} = {node.operator}({arguments})  # {notes}"


def format_graph(graph: Graph) -> str:
    lines = ["graph"]
    for item in graph.inputs:
        lines.append(f"  input {format_value(graph.values[item.name])}  {item.role}  {json.dumps(item.path)}")
    lines += [f"  {format_node(graph, node)}" for node in graph.nodes]
    outputs = [
        f"%{output.name} {output.role}" + (f" replaces %{output.replaces}" if output.replaces else "")
        for output in graph.outputs
    ]
    lines.append(f"  return {', '.join(outputs)}")
    return "\n".join(lines)


def without_unread(graph: Graph) -> Graph:
    """The graph without the nodes, and their values, that no output depends on. Inputs stay. Cost: linear."""
    read = {item.name for item in graph.outputs}
    nodes = []
    for node in reversed(graph.nodes):
        if not read.isdisjoint(node.outputs):
            nodes.append(node)
            read.update(node.inputs)
    kept = {name for node in nodes for name in node.outputs} | {item.name for item in graph.inputs}
    values = {name: value for name, value in graph.values.items() if name in kept}
    return replace(graph, values=values, nodes=tuple(reversed(nodes)))


def check(graph: Graph) -> None:
    """Prove the law of a Graph.

    Every value is made once, before it is read; every name is known; replaced inputs and their
    replacements have equal shape and dtype; only inputs are replaced, and none twice.

    Raises:
        GraphError: with the offending node and its neighbours.
    """
    defined: set[str] = set()
    for name, value in graph.values.items():
        if value.name != name:
            raise GraphError(f"value {value.name!r} is filed under {name!r}")
        if value.dtype not in ITEM_BYTES:
            raise GraphError(f"value {name!r} is {value.dtype!r}: expected one of {', '.join(ITEM_BYTES)}")
    for item in graph.inputs:
        if item.name in defined:
            raise GraphError(f"input {item.name!r} is declared twice")
        if item.role not in get_args(Role):
            raise GraphError(f"input {item.name!r} is {item.role!r}: expected one of {get_args(Role)}")
        defined.add(item.name)
    for index, node in enumerate(graph.nodes):
        for name in node.inputs:
            if name not in defined:
                raise GraphError(f"{_place(graph, index)}\n{name!r} is read before it is made")
        for name in node.outputs:
            if name in defined:
                raise GraphError(f"{_place(graph, index)}\n{name!r} is made twice")
            defined.add(name)
    if missing := defined.symmetric_difference(graph.values):
        raise GraphError(f"values and their makers disagree about {sorted(missing)[:5]}")
    replaced: set[str] = set()
    for output in graph.outputs:
        if output.role not in get_args(OutputRole):
            raise GraphError(f"output {output.name!r} is {output.role!r}: expected one of {get_args(OutputRole)}")
        if output.name not in defined:
            raise GraphError(f"output {output.name!r} is made by no node and is no input")
        if output.replaces is None:
            continue
        if output.replaces in replaced:
            raise GraphError(f"input {output.replaces!r} is replaced twice")
        if graph.role_of(output.replaces) is None:
            raise GraphError(f"{output.name!r} replaces {output.replaces!r}, which is no input")
        replaced.add(output.replaces)
        new, old = graph.values[output.name], graph.values[output.replaces]
        if (new.shape, new.dtype) != (old.shape, old.dtype):
            raise GraphError(
                f"{output.name!r} {new.dtype}{list(new.shape)} cannot replace "
                f"{output.replaces!r} {old.dtype}{list(old.shape)}: shape and dtype must be equal"
            )


def _place(graph: Graph, index: int) -> str:
    lines = []
    for position in range(max(0, index - 2), min(len(graph.nodes), index + 3)):
        mark = "→" if position == index else " "
        lines.append(f"{mark} {format_node(graph, graph.nodes[position])}")
    return "\n".join(lines)


class Same(Generic[T]):
    """Something large and immutable as a key of a memo, by identity: comparing it would take longer than what is kept.

    It is kept alive, so that its identity stays its own.
    """

    __slots__ = ("item",)

    def __init__(self, item: T) -> None:
        self.item = item

    def __hash__(self) -> int:
        return id(self.item)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.item is self.item
