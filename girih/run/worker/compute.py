"""Compute instructions: one call of one function on slots, with everything looked up beforehand."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from time import perf_counter
from typing import Any

import torch
from torch.nn.functional import pad
from torch.utils._pytree import tree_map

from girih.graph import Graph, Node, Ref
from girih.kernels.evaluate import as_torch, resolve
from girih.kernels.exact import INTO_KERNELS
from girih.kernels.numpy_fallback import WEAK, with_numpy
from girih.kernels.own import OVER_FIRST
from girih.kernels.products import PRODUCTS
from girih.layout import bounds_of
from girih.ops import descriptions_of
from girih.ops.catalogue import catalogue
from girih.ops.derive.pieces import PieceCall, make_piece
from girih.program import ComputeStep, Program
from girih.run.tiles.spill import Streamed
from girih.run.worker.parts import Cuts, held_box, relative, shape_of

Slots = list[Any]
Read = tuple[Any, Cuts, list[int] | None]  # slot, or the tensor itself where it is empty; cuts; pads or None
KERNELS = 0  # position in the measured seconds


@dataclass(frozen=True)
class Hole:
    """Where the n-th tensor that a node reads stands in its arguments."""

    number: int


class Compute:
    """Call one function with tensors from slots.

    arguments: positional, with None where tensors go; places: for each tensor that is passed (position, item in a
    list or -1, and its Read). shapes: of the results, to be proved. over: the position of the argument over which the
    result is written, and the name under which the function takes it, or "" if it is known to write there.
    """

    __slots__ = (
        "arguments", "function", "lists", "options", "over", "padding", "places", "result", "shapes", "whole", "writes",
    )  # fmt: skip

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: list[Any],
        options: dict[str, Any],
        reads: list[Read],
        writes: tuple[int, ...],
        shapes: tuple[tuple[int, ...], ...],
        padding: float | None,
        result: int | None,
        over: tuple[int, str] | None = None,
    ) -> None:
        self.function = function
        self.options = options
        self.writes = writes
        self.shapes = shapes
        self.padding = padding
        self.result = result
        self.over = over if over is not None and over[1] else None
        self.arguments: list[Any] = [None if isinstance(item, Hole) else item for item in arguments]
        self.lists = [
            position
            for position, item in enumerate(arguments)
            if isinstance(item, list) and any(isinstance(part, Hole) for part in item)
        ]
        self.places: list[tuple[int, int, Any, Cuts, list[int] | None]] = []
        for position, item in enumerate(arguments):
            for place, part in enumerate(item if position in self.lists else [item]):
                if isinstance(part, Hole):
                    self.places.append((position, place if position in self.lists else -1, *reads[part.number]))
        plain = not self.lists and self.over is None and result is None and len(writes) == 1
        plain = plain and all(not cuts and pads is None and type(slot) is int for _, _, slot, cuts, pads in self.places)
        self.whole = [(position, slot) for position, _, slot, _, _ in self.places] if plain else None

    def run(self, slots: Slots, seconds: list[float]) -> None:
        if self.whole is not None:
            self._run_whole(self.whole, slots, seconds)
            return
        arguments = self.arguments.copy()
        for position in self.lists:
            arguments[position] = [None if isinstance(part, Hole) else part for part in arguments[position]]
        padded = 0.0
        for position, place, slot, cuts, pads in self.places:
            tensor = slots[slot] if type(slot) is int else slot
            for dimension, start, length in cuts:
                tensor = tensor.narrow(dimension, start, length)
            if tensor.__class__ is Streamed:
                tensor = tensor.read()
            if pads is not None:
                started = perf_counter()
                tensor = pad(tensor, pads, value=self.padding)
                padded += perf_counter() - started
            if place < 0:
                arguments[position] = tensor
            else:
                arguments[position][place] = tensor
        options = self.options if self.over is None else {**self.options, self.over[1]: arguments[self.over[0]]}
        started = perf_counter()
        results = self.function(*arguments, **options)
        seconds[KERNELS] += perf_counter() - started + padded
        if self.result is not None:
            results = results[self.result]
        if len(self.writes) == 1:
            results = (results,)
        for slot, shape, tensor in zip(self.writes, self.shapes, results, strict=True):
            if tensor is not None and tensor.shape != shape:
                raise RuntimeError(f"its piece has shape {list(tensor.shape)}, the program says {list(shape)}")
            slots[slot] = tensor

    def _run_whole(self, whole: list[tuple[int, int]], slots: Slots, seconds: list[float]) -> None:
        """As nearly all calls are, of whole buffers with one result. whole: the position and the slot of each."""
        arguments = self.arguments.copy()
        for position, slot in whole:
            tensor = slots[slot]
            arguments[position] = tensor.read() if tensor.__class__ is Streamed else tensor
        started = perf_counter()
        tensor = self.function(*arguments, **self.options)
        seconds[KERNELS] += perf_counter() - started
        if tensor is not None and tensor.shape != self.shapes[0]:
            raise RuntimeError(f"its piece has shape {list(tensor.shape)}, the program says {list(self.shapes[0])}")
        slots[self.writes[0]] = tensor


class Nothing:
    """A piece without elements."""

    __slots__ = ("device", "dtypes", "shapes", "writes")

    def __init__(self, writes: tuple[int, ...], shapes: tuple[tuple[int, ...], ...], dtypes: list[Any], device: Any):
        self.writes, self.shapes, self.dtypes, self.device = writes, shapes, dtypes, device

    def run(self, slots: Slots, seconds: list[float]) -> None:
        for slot, shape, dtype in zip(self.writes, self.shapes, self.dtypes, strict=True):
            slots[slot] = torch.empty(shape, dtype=dtype, device=self.device)


def compile_compute(
    program: Program, step: ComputeStep, rank: int, slot_of: Mapping[str, int], device: Any, taken: int | None = None
) -> Compute | Nothing:
    """A compute step as it is on one device. taken: the operand over which it writes its result."""
    graph = program.graph
    node = graph.nodes[step.node]
    writes = tuple(slot_of[name] for name in step.writes)
    shapes = tuple(shape_of(held_box(program, name, program.places[name], rank)) for name in step.writes)
    if shapes and all(0 in shape for shape in shapes):
        dtypes = [getattr(torch, graph.values[name].dtype) for name in node.outputs]
        return Nothing(writes, shapes, dtypes, device)
    piece = _piece(program, step, rank)
    needed = [held_box(program, part.buffer, part.needed, rank) for part in step.reads]
    if piece is not None and list(piece.regions) != needed:
        raise ValueError(f"node {node.name!r}: its piece reads {piece.regions}, but the program brings {needed}")
    reads: list[Read] = []
    for number, (part, box) in enumerate(zip(step.reads, needed, strict=True)):
        if any(stop <= start for start, stop in box):  # nobody sends what is empty: it may be nowhere
            dtype = getattr(torch, graph.values[program.value_of[part.buffer]].dtype)
            reads.append((torch.empty(shape_of(box), dtype=dtype, device=device), (), _flat_pads(piece, number)))
            continue
        held = held_box(program, part.buffer, program.places[part.buffer], rank)
        reads.append((slot_of[part.buffer], relative(box, held), _flat_pads(piece, number)))
    return compile_call(graph, node, piece, reads, writes, shapes, device, taken)


def compile_call(
    graph: Graph,
    node: Node,
    piece: PieceCall | None,
    reads: list[Read],
    writes: tuple[int, ...],
    shapes: tuple[tuple[int, ...], ...],
    device: Any,
    taken: int | None = None,
) -> Compute:
    """The call of a node, or of a piece of it, on slots. reads, writes: in the order of the node's inputs and outputs;
    shapes: of what is written. taken: as for `compile_compute`."""
    holes = [Hole(number) for number in range(len(reads))]
    if piece is None:
        operator, named = node.operator, _with_holes(node)
    else:
        operator, named = piece.operator, piece.arguments(holes)
    function, arguments, options = bind(operator, named, device)
    described = catalogue().get(operator)
    if looks_at_operand(operator) and not (described is not None and described.view):
        function = _apart(function)
    over = None
    if taken is not None:
        function, keyword = over_operand(operator, taken)
        over = (
            next(place for place, item in enumerate(arguments) if isinstance(item, Hole) and item.number == taken),
            keyword,
        )
    types = {graph.values[name].dtype for name in (*node.inputs, *node.outputs)}
    if not WEAK.isdisjoint(types) and len(shapes) == 1 and device.type == "cpu":
        function = with_numpy(
            operator,
            function,
            [name for name, _, _ in _parameters(operator)],
            None if piece is None else piece.result,
            shapes[0],
            graph.values[node.outputs[0]].dtype,
        )
    return Compute(
        function,
        arguments,
        options,
        reads,
        writes,
        shapes,
        None if piece is None else piece.padding,
        None if piece is None else piece.result,
        over,
    )


def _piece(program: Program, step: ComputeStep, rank: int) -> PieceCall | None:
    node = program.graph.nodes[step.node]
    descriptions = descriptions_of(program.graph, node)
    if not descriptions:
        return None
    description = descriptions[0]
    starts, stops = bounds_of(program.strategy.divisions[step.node], description.sizes, program.mesh)
    piece = make_piece(description, node.attributes, starts[rank].tolist(), stops[rank].tolist())
    return replace(piece, result=None) if len(descriptions) > 1 else piece


def _flat_pads(piece: PieceCall | None, number: int) -> list[int] | None:
    """Pads in PyTorch's order, the last dimension first; None where there are none."""
    if piece is None or not any(before or after for before, after in piece.pads[number]):
        return None
    return [amount for pair in reversed(piece.pads[number]) for amount in pair]


def _with_holes(node: Node) -> dict[str, Any]:
    """A node's arguments with holes for its inputs, in their order."""
    count = iter(range(len(node.inputs)))

    def fill(argument: Any) -> Any:
        if isinstance(argument, Ref):
            return Hole(next(count))
        return tuple(map(fill, argument)) if isinstance(argument, tuple) else argument

    return {name: fill(argument) for name, argument in node.arguments}


@cache
def looks_at_operand(operator: str) -> bool:
    """Is what one of PyTorch's operators makes a view of what it reads?"""
    function = resolve(operator)
    returns = getattr(getattr(function, "_schema", None), "returns", ())
    return any(item.alias_info is not None for item in returns)


def _apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with results in memory of their own, as the accounts have it of all that is not described as a view:
    what is written over them must not change what they were made of."""

    def call(*arguments: Any, **options: Any) -> Any:
        return tree_map(torch.clone, function(*arguments, **options))

    return call


def kernel_of(operator: str, device: Any) -> Callable[..., Any]:
    """The function that computes an operator on a device."""
    return (PRODUCTS.get(operator) if device.type == "cpu" else None) or resolve(operator)


def over_operand(operator: str, operand: int) -> tuple[Callable[..., Any], str]:
    """The kernel that writes an element-wise operator's result over one of its operands, and the name under which it
    takes that one again; "" if it always writes over its first.

    Raises:
        LookupError: PyTorch has none.
    """
    if operand == 0 and operator in OVER_FIRST:
        return OVER_FIRST[operator], ""
    if operand == 0 and operator in INTO_KERNELS:
        return INTO_KERNELS[operator], "out"
    function: Any = resolve(operator)
    space, name, *_ = operator.split(".")
    if space != "aten":
        raise LookupError(f"{operator} has no kernel that writes over operand {operand}")
    wanted = [(item.name, str(item.type)) for item in function._schema.arguments]
    kernels: list[tuple[int, Any, str]] = []
    for packet in (getattr(getattr(torch.ops, space), name), getattr(getattr(torch.ops, space), f"{name}_", None)):
        for variant in [getattr(packet, overload) for overload in packet.overloads()] if packet is not None else []:
            arguments = variant._schema.arguments
            outs = [item.name for item in arguments if item.is_out]
            plain = [(item.name, str(item.type)) for item in arguments if not item.is_out]
            writes = len(outs) == 1 or (operand == 0 and bool(arguments[0].is_write))
            if writes and [item for item, _ in plain] == [item for item, _ in wanted] and _has_kernel(variant):
                unlike = sum(one != other for one, other in zip(plain, wanted, strict=True))
                kernels.append((unlike, variant, outs[0] if outs else ""))
    if not kernels:
        raise LookupError(f"{operator} has no kernel that writes over operand {operand}")
    _, kernel, keyword = min(kernels, key=lambda item: item[0])
    return kernel, keyword


def _has_kernel(function: Any) -> bool:
    """Has it a kernel of its own? What PyTorch generates instead makes the result elsewhere and copies it."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(function.name(), "CPU"))


def bind(operator: str, named: Mapping[str, Any], device: Any) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
    """A function and its arguments, positional as far as they can be: those are passed fastest."""
    values = {name: as_torch(name, value) for name, value in named.items()}
    order = _parameters(operator)
    if device.type != "cpu" and any(name == "device" for name, _, _ in order):
        values.setdefault("device", device)
    arguments: list[Any] = []
    last = max((number for number, (name, _, only) in enumerate(order) if name in values and not only), default=-1)
    for name, default, _ in order[: last + 1]:
        if name not in values and default is inspect.Parameter.empty:
            raise TypeError(f"{operator} needs {name!r}; it has {sorted(values)}")
        arguments.append(values.pop(name, default))
    unknown = set(values) - {name for name, _, _ in order}
    if unknown:
        raise TypeError(f"{operator} has no argument {sorted(unknown)}")
    function = kernel_of(operator, device)
    if held := [name for name, value in values.items() if isinstance(value, Hole)]:  # tensors that only have a name
        function = _by_name(function, len(arguments), held)
        arguments += map(values.pop, held)
    return function, arguments, values


def _by_name(function: Callable[..., Any], count: int, names: Sequence[str]) -> Callable[..., Any]:
    """The function with what has these names behind the first `count` arguments."""

    def call(*arguments: Any, **options: Any) -> Any:
        return function(*arguments[:count], **dict(zip(names, arguments[count:], strict=True)), **options)

    return call


@cache
def _parameters(operator: str) -> tuple[tuple[str, Any, bool], ...]:
    """An operator's parameters in order: (name, default or Parameter.empty, given by name only)."""
    function = resolve(operator)
    if operator.startswith("girih."):
        parameters = inspect.signature(function).parameters.values()
        return tuple((item.name, item.default, item.kind is item.KEYWORD_ONLY) for item in parameters)
    return tuple(
        (item.name, item.default_value if item.has_default_value() else inspect.Parameter.empty, item.kwarg_only)
        for item in function._schema.arguments  # type: ignore[attr-defined]
    )
