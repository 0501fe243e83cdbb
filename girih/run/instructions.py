"""One device's instructions: each step of the program with everything looked up beforehand.

What can be known before the run is: functions, positions of tensors in their arguments, slices relative to buffers,
peers. Buffers are numbered slots of a list. Running an instruction then touches nothing but slots.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch.nn.functional import pad

from girih.graph import Node, Ref
from girih.layout import bounds
from girih.lower import ComputeStep, FreeStep, Message, Program, TransferStep
from girih.ops import description_of
from girih.ops.evaluate import resolve
from girih.ops.pieces import PieceCall, make_piece
from girih.run.parts import Box, as_box, shape_of
from girih.run.transport import Transport

Tensor = Any  # torch is untyped for the type checker
Slots = list[Any]
Cuts = tuple[tuple[int, int, int], ...]  # (dimension, start, length) where a box is narrower than its buffer
Read = tuple[Any, Cuts, list[int] | None]  # slot, or the tensor itself where it is empty; cuts; pads or None
KERNELS, TRANSFERS = 0, 1  # positions in the measured seconds


@dataclass(frozen=True)
class _Hole:
    """Where the n-th tensor that a node reads stands in its arguments."""

    number: int


def relative(box: Box, held: Box) -> Cuts:
    """How to cut `box` out of a buffer that holds `held`.

    Raises:
        ValueError: the buffer does not hold it.
    """
    cuts = []
    for dimension, ((start, stop), (first, last)) in enumerate(zip(box, held, strict=True)):
        if start < first or stop > last:
            raise ValueError(f"{box} is not inside of {held}")
        if (start, stop) != (first, last):
            cuts.append((dimension, start - first, stop - start))
    return tuple(cuts)


def narrow(tensor: Tensor, cuts: Cuts) -> Tensor:
    for dimension, start, length in cuts:
        tensor = tensor.narrow(dimension, start, length)
    return tensor


# ------------------------------------------------------------------------------------------- compute


class Compute:
    """Call one function with tensors from slots.

    arguments: positional, with None where tensors go; places: for each tensor that is passed (position, item in a
    list or -1, and its Read). shapes: of the results, to be proved.
    """

    __slots__ = ("arguments", "function", "lists", "options", "padding", "places", "result", "shapes", "writes")

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
    ) -> None:
        self.function = function
        self.options = options
        self.writes = writes
        self.shapes = shapes
        self.padding = padding
        self.result = result
        self.arguments: list[Any] = [None if isinstance(item, _Hole) else item for item in arguments]
        self.lists = [
            position
            for position, item in enumerate(arguments)
            if isinstance(item, list) and any(isinstance(part, _Hole) for part in item)
        ]
        self.places: list[tuple[int, int, Any, Cuts, list[int] | None]] = []
        for position, item in enumerate(arguments):
            for place, part in enumerate(item if position in self.lists else [item]):
                if isinstance(part, _Hole):
                    self.places.append((position, place if position in self.lists else -1, *reads[part.number]))

    def run(self, slots: Slots, seconds: list[float]) -> None:
        arguments = self.arguments.copy()
        for position in self.lists:
            arguments[position] = [None if isinstance(part, _Hole) else part for part in arguments[position]]
        padded = 0.0
        for position, place, slot, cuts, pads in self.places:
            tensor = slots[slot] if type(slot) is int else slot
            for dimension, start, length in cuts:
                tensor = tensor.narrow(dimension, start, length)
            if pads is not None:
                started = perf_counter()
                tensor = pad(tensor, pads, value=self.padding)
                padded += perf_counter() - started
            if place < 0:
                arguments[position] = tensor
            else:
                arguments[position][place] = tensor
        started = perf_counter()
        made = self.function(*arguments, **self.options)
        seconds[KERNELS] += perf_counter() - started + padded
        if self.result is not None:
            made = made[self.result]
        if len(self.writes) == 1:
            made = (made,)
        for slot, shape, tensor in zip(self.writes, self.shapes, made, strict=True):
            if tensor is not None and tensor.shape != shape:
                raise RuntimeError(f"its piece has shape {list(tensor.shape)}, the program says {list(shape)}")
            slots[slot] = tensor


class Nothing:
    """A piece without elements."""

    __slots__ = ("device", "dtypes", "shapes", "writes")

    def __init__(self, writes: tuple[int, ...], shapes: tuple[tuple[int, ...], ...], dtypes: list[Any], device: Any):
        self.writes, self.shapes, self.dtypes, self.device = writes, shapes, dtypes, device

    def run(self, slots: Slots, seconds: list[float]) -> None:
        for slot, shape, dtype in zip(self.writes, self.shapes, self.dtypes, strict=True):
            slots[slot] = torch.empty(shape, dtype=dtype, device=self.device)


def compile_compute(
    program: Program, step: ComputeStep, rank: int, slot_of: Mapping[str, int], device: Any
) -> Compute | Nothing:
    """A compute step as it is on one device."""
    graph = program.graph
    node = graph.nodes[step.node]
    writes = tuple(slot_of[name] for name in step.writes)
    shapes = tuple(shape_of(as_box(program.places[name].regions[rank])) for name in step.writes)
    if shapes and all(0 in shape for shape in shapes):
        dtypes = [getattr(torch, graph.values[name].dtype) for name in node.outputs]
        return Nothing(writes, shapes, dtypes, device)
    piece = _piece(program, step, rank)
    needed = [as_box(part.needed.regions[rank]) for part in step.reads]
    if piece is not None and list(piece.regions) != needed:
        raise ValueError(f"node {node.name!r}: its piece reads {piece.regions}, but the program brings {needed}")
    reads: list[Read] = []
    for number, (part, box) in enumerate(zip(step.reads, needed, strict=True)):
        if any(stop <= start for start, stop in box):  # nobody sends what is empty: it may be nowhere
            dtype = getattr(torch, graph.values[program.value_of[part.buffer]].dtype)
            reads.append((torch.empty(shape_of(box), dtype=dtype, device=device), (), _flat_pads(piece, number)))
            continue
        held = as_box(program.places[part.buffer].regions[rank])
        reads.append((slot_of[part.buffer], relative(box, held), _flat_pads(piece, number)))
    holes = [_Hole(number) for number in range(len(reads))]
    if piece is None:
        operator, named = node.operator, _with_holes(node)
    else:
        operator, named = piece.operator, piece.arguments(holes)
    function, arguments, options = _bind(operator, named, device)
    return Compute(
        function,
        arguments,
        options,
        reads,
        writes,
        shapes,
        None if piece is None else piece.padding,
        None if piece is None else piece.result,
    )


def _piece(program: Program, step: ComputeStep, rank: int) -> PieceCall | None:
    node = program.graph.nodes[step.node]
    description = description_of(program.graph, node)
    if description is None:
        return None
    codes = np.asarray([program.strategy.divisions[step.node]], np.int64).reshape(1, program.mesh.axes)
    starts, stops = bounds(codes, description.sizes, program.mesh)
    return make_piece(description, node.attributes, starts[0, rank].tolist(), stops[0, rank].tolist())


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
            return _Hole(next(count))
        return tuple(map(fill, argument)) if isinstance(argument, tuple) else argument

    return {name: fill(argument) for name, argument in node.arguments}


def _bind(operator: str, named: Mapping[str, Any], device: Any) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
    """A function and its arguments, positional as far as they can be: those are passed fastest."""
    function = resolve(operator)
    given = {name: _plain(name, value) for name, value in named.items()}
    if operator.startswith("girih."):
        parameters = inspect.signature(function).parameters.values()
        order = [(item.name, item.default, item.kind is item.KEYWORD_ONLY) for item in parameters]
    else:
        order = [
            (item.name, item.default_value if item.has_default_value() else inspect.Parameter.empty, item.kwarg_only)
            for item in function._schema.arguments  # type: ignore[attr-defined]
        ]
    if device.type != "cpu" and any(name == "device" for name, _, _ in order):
        given.setdefault("device", device)
    arguments: list[Any] = []
    last = max((number for number, (name, _, only) in enumerate(order) if name in given and not only), default=-1)
    for name, default, _ in order[: last + 1]:
        if name not in given and default is inspect.Parameter.empty:
            raise TypeError(f"{operator} needs {name!r}; it has {sorted(given)}")
        arguments.append(given.pop(name, default))
    unknown = set(given) - {name for name, _, _ in order}
    if unknown:
        raise TypeError(f"{operator} has no argument {sorted(unknown)}")
    return function, arguments, given


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain("", item) for item in value]
    if name == "dtype" and isinstance(value, str):
        return getattr(torch, value)
    return value


# ------------------------------------------------------------------------------------------- transfer


def _combine_logsumexp(target: Tensor, part: Tensor) -> None:
    torch.logaddexp(target, part, out=target)


COMBINE: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "sum": lambda target, part: target.add_(part),
    "prod": lambda target, part: target.mul_(part),
    "max": lambda target, part: torch.maximum(target, part, out=target),
    "min": lambda target, part: torch.minimum(target, part, out=target),
    "logsumexp": _combine_logsumexp,
}


class Transfer:
    """Assemble a new buffer from the parts at home and the messages of peers.

    Where contributions are combined, that is done in the order of terms, on every device that keeps a copy: copies
    then have the same bits.
    """

    __slots__ = ("combine", "device", "dtype", "placed", "receives", "sends", "shape", "source", "target", "transport")

    def __init__(self, program: Program, step: TransferStep, rank: int, slots: Mapping[str, int], transport: Transport,
                 device: Any) -> None:  # fmt: skip
        swap = program.exchange_of(step)
        held = as_box(step.before.regions[rank])
        goal = as_box(step.after.regions[rank])
        self.source = slots[step.source]
        self.target = slots[step.target]
        self.shape = shape_of(goal)
        self.dtype = getattr(torch, program.graph.values[step.value].dtype)
        self.device = device
        self.transport = transport
        self.combine = COMBINE[step.reducer] if swap.terms > 1 else None
        mine = [message for message in swap.messages if message.target == rank]
        self.sends = [
            (message.target, relative(message.box, held))
            for message in swap.messages
            if message.source == rank and message.target != rank
        ]
        # What is received, and where: placed in order of terms, each from home (cuts of the source) or from a peer.
        self.receives = [(message.source, shape_of(message.box)) for message in mine if message.source != rank]
        self.placed: list[tuple[Cuts, bool, Cuts | None]] = [
            (
                relative(message.box, goal),
                message.term == 0,
                relative(message.box, held) if message.source == rank else None,
            )
            for message in sorted(mine, key=_term)
        ]
        assert [m for m in sorted(mine, key=_term) if m.source != rank] == [m for m in mine if m.source != rank]

    def run(self, slots: Slots, seconds: list[float]) -> None:
        started = perf_counter()
        source = slots[self.source]
        target = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        transport, packs = self.transport, self.transport.packs
        sends, packed = [], {}
        for peer, cuts in self.sends:
            part = narrow(source, cuts)
            if packs and not part.is_contiguous():
                if cuts not in packed:
                    packed[cuts] = part.contiguous()
                part = packed[cuts]
            sends.append((peer, part))
        staged: list[tuple[Tensor, Tensor, bool]] = []  # (where in the target, what, is it a first term)
        receives: list[tuple[int, Tensor]] = []
        incoming = iter(self.receives)
        home: list[tuple[Tensor, Tensor]] = []
        for cuts, first, own in self.placed:
            place = narrow(target, cuts)
            if own is not None:
                part = narrow(source, own)
                if self.combine is None:
                    home.append((place, part))
                else:
                    staged.append((place, part, first))
                continue
            peer, shape = next(incoming)
            if self.combine is None and (place.is_contiguous() or not packs):
                receives.append((peer, place))
            else:
                part = torch.empty(shape, dtype=self.dtype, device=self.device)
                receives.append((peer, part))
                staged.append((place, part, first))
        wait = transport.begin(sends, receives)
        for place, part in home:
            place.copy_(part)
        wait()
        for place, part, first in staged:
            if first or self.combine is None:
                place.copy_(part)
            else:
                self.combine(place, part)
        slots[self.target] = target
        seconds[TRANSFERS] += perf_counter() - started


def _term(message: Message) -> int:
    return message.term


class Free:
    __slots__ = ("slots",)

    def __init__(self, step: FreeStep, slots: Mapping[str, int]) -> None:
        self.slots = [slots[name] for name in step.buffers]

    def run(self, slots: Slots, seconds: list[float]) -> None:
        for slot in self.slots:
            slots[slot] = None


Instruction = Compute | Nothing | Transfer | Free


def compile_instructions(
    program: Program, rank: int, slots: Mapping[str, int], transport: Transport, device: Any
) -> list[Instruction]:
    """The instructions of one device, one for each step of the program."""
    result: list[Instruction] = []
    for step in program.steps:
        if isinstance(step, ComputeStep):
            result.append(compile_compute(program, step, rank, slots, device))
        elif isinstance(step, TransferStep):
            result.append(Transfer(program, step, rank, slots, transport, device))
        else:
            result.append(Free(step, slots))
    return result
