"""The calls that devices execute in a program's compute steps: each different one once.

A call is what `girih.run.worker.compute` compiles a step to on one device: the operator and attributes of the piece,
the regions that it reads, as they are cut from buffers and lie in memory. Devices whose pieces have equal shapes share
one call; so do equal nodes of repeated layers. Which device a piece's position belongs to (the border that it pads,
the row at which it begins) is taken from the first such device.

Memory order is followed on the first device that has anything of a buffer; on the others it is taken to be the same,
for divisions change sizes only.
Cost: a few operations on arrays over all devices for each node whose description, division or inputs' places differ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from girih.cost.calls import Call, Operand
from girih.cost.work import Work, bounds_of_edges, index_ranges, work_of
from girih.graph import Argument, Node, Ref
from girih.graph.graph import Same
from girih.layout import bounds_of
from girih.ops import Description
from girih.ops.derive.divisions import Box, clip_box, read_box
from girih.ops.derive.kinds import MATMUL, OPAQUE
from girih.ops.derive.pieces import PieceCall, make_piece, pads_of
from girih.ops.gate import RECORDED, called
from girih.ops.known import descriptions
from girih.program import BlockStep, ComputeStep, MoveStep, Program, TransferStep
from girih.program.life.accounts import taken_over
from girih.program.life.strides import Shape, contiguous_strides, is_contiguous, strides_of_view

Numbers = NDArray[np.int32]
NOTHING = -1
Found = TypeVar("Found", bound=Call | Work)


@dataclass(frozen=True)
class LocalCalls:
    """calls: all different. numbers: of the call that a device executes in a step, or NOTHING: [steps, devices].

    scattered: the buffers that are not contiguous. groups: by position of a BlockStep, for each member its numbers, as
    if it were computed whole.
    """

    calls: tuple[Call, ...]
    numbers: Numbers
    scattered: frozenset[str]
    groups: dict[int, list[Numbers]] = field(default_factory=dict)


def local_calls(program: Program, over: bool = False) -> LocalCalls:
    """The calls of a program. Those of the last few programs are known.

    over: say which results are written over an operand, as on the first device; a walk through the program tells.
    """
    return _local_calls(Same(program), over)


@lru_cache(maxsize=4)
def _local_calls(same: Same[Program], over: bool) -> LocalCalls:
    program = same.item
    work = CallCollector(program)
    if over:
        work.taken = taken_over(program)
    for item in program.graph.inputs:
        work.contiguous(item.name)
    numbers = np.full((len(program.steps), program.mesh.devices), NOTHING, np.int32)
    groups: dict[int, list[Numbers]] = {}
    for position, step in enumerate(program.steps):
        if isinstance(step, ComputeStep):
            numbers[position] = work.row(step)
            work.made(step)
        elif isinstance(step, BlockStep):
            groups[position] = []
            for member in step.members:
                groups[position].append(work.row(member))
                work.made(member)
        elif isinstance(step, TransferStep):
            work.contiguous(step.target)
        elif isinstance(step, MoveStep):
            work.strides[step.target] = work.strides[step.source]
    scattered = frozenset(buffer for buffer in work.strides if work.form(buffer) is not None)
    return LocalCalls(tuple(work.calls), numbers, scattered, groups)


def _extents(regions: NDArray[np.int64]) -> NDArray[np.int64]:
    extents: NDArray[np.int64] = regions[..., 1] - regions[..., 0]
    return extents


@dataclass(frozen=True)
class Form:
    """order: the dimensions from the largest stride to the smallest, without those that are repeated in memory.

    strides: where there are gaps, those of that device; None where the elements lie close together.
    """

    order: tuple[int, ...]
    strides: Shape | None = None

    def strides_of(self, shape: Shape) -> Shape:
        """The strides of a buffer of this shape."""
        if self.strides is not None:
            return self.strides
        strides = [0] * len(shape)
        for dim, stride in zip(self.order, contiguous_strides(tuple(shape[dim] for dim in self.order)), strict=True):
            strides[dim] = stride
        return tuple(strides)


@dataclass(frozen=True)
class Computation:
    """A compute step, and what decides with the devices' shares of it what they execute.

    forms: of the buffers that are read. copies: a view that must copy. over: as of `Call`.
    """

    step: ComputeStep
    node: Node
    description: Description | None
    forms: tuple[Form | None, ...]
    copies: bool
    over: int | None = None


@dataclass(frozen=True)
class Share:
    """What one device computes of a step: its range of the description's index variables, if there is one."""

    device: int
    start: list[int]
    stop: list[int]


class Collector(ABC, Generic[Found]):
    """Collects what devices execute in a program, step by step.

    calls: numbers of the different ones. strides: how buffers lie in memory, so far. taken: by result, the operand over
    which it is written.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.graph = program.graph
        self.calls: dict[Found, int] = {}
        self.rows: dict[object, tuple[object, Numbers]] = {}  # with what the key names by identity, to keep it alive
        self.strides: dict[str, Shape] = {}  # of buffers, on the first device that has something
        self.taken: dict[str, int] = {}
        self.data = {item.name: item.path for item in self.graph.inputs if item.role == "data"}

    # ---------------------------------------------------------------------------------------- memory order

    def shape_of(self, buffer: str) -> Shape:
        place = self.program.places[buffer]
        return self.program.part_shape(buffer, place, place.first)

    def contiguous(self, buffer: str) -> None:
        self.strides[buffer] = contiguous_strides(self.shape_of(buffer))

    def made(self, step: ComputeStep) -> None:
        """How the results of a compute step lie in memory: views and element-wise operators keep an order."""
        for buffer in step.writes:
            self.contiguous(buffer)
        description = descriptions(self.graph)[step.node]
        if description is None or not step.reads or len(step.writes) != 1:
            return
        first, target = step.reads[0], step.writes[0]
        if description.operator.view:
            viewed = self.view(step, description)
            if viewed is not None:
                self.strides[target] = viewed
        elif description.operator.elementwise:
            shape, strides = self.shape_of(target), self.strides[first.buffer]
            if self.needed(step) == shape and all(strides):
                order = tuple(sorted(range(len(shape)), key=lambda dim: -strides[dim]))
                self.strides[target] = Form(order).strides_of(shape)

    def view(self, step: ComputeStep, description: Description) -> Shape | None:
        """Strides of a view operator's result, None where it must copy."""
        strides, goal = self.strides[step.reads[0].buffer], self.shape_of(step.writes[0])
        return strides_of_view(description, self.needed(step), strides, goal)

    def needed(self, step: ComputeStep) -> Shape:
        """What the first device that computes reads of the first input."""
        part, place = step.reads[0], self.program.places[step.writes[0]]
        return self.program.part_shape(part.buffer, part.needed, place.first)

    def form(self, buffer: str) -> Form | None:
        """How a buffer lies in memory on every device, None for contiguous."""
        shape, strides = self.shape_of(buffer), self.strides[buffer]
        if is_contiguous(shape, strides):
            return None
        order = tuple(sorted((dim for dim in range(len(shape)) if strides[dim]), key=lambda dim: -strides[dim]))
        dense = is_contiguous(tuple(shape[dim] for dim in order), tuple(strides[dim] for dim in order))
        return Form(order) if dense else Form(order, strides)

    # ---------------------------------------------------------------------------------------- rows

    def row(self, step: ComputeStep) -> Numbers:
        """The number of each device's call: [devices]."""
        node = self.graph.nodes[step.node]
        description = descriptions(self.graph)[step.node]
        held = [self.program.places[part.buffer].regions for part in step.reads]
        cut = [
            None if where is part.needed.regions or np.array_equal(where, part.needed.regions) else where.tobytes()
            for part, where in zip(step.reads, held, strict=True)
        ]
        forms = tuple(self.form(part.buffer) for part in step.reads)
        copies = description is not None and description.operator.view and self.view(step, description) is None
        division = self.program.strategy.divisions[step.node]
        what: object = description if description is not None else node
        over = self.taken.get(step.writes[0]) if step.writes else None
        key = (id(what), division, tuple(cut), forms, copies, over)
        if key not in self.rows:
            self.rows[key] = (what, self.new_row(Computation(step, node, description, forms, copies, over)))
        return self.rows[key][1]

    def new_row(self, item: Computation) -> Numbers:
        step, description = item.step, item.description
        mesh = self.program.mesh
        places = self.program.places
        extents = _extents(places[step.writes[0]].regions) if step.writes else np.zeros((mesh.devices, 0), np.int64)
        columns = [extents, *(_extents(part.needed.regions) for part in step.reads)]
        columns += [_extents(places[part.buffer].regions) for part in step.reads]
        starts = stops = np.zeros((mesh.devices, 0), np.int64)
        if description is not None:
            starts, stops = bounds_of(self.program.strategy.divisions[step.node], description.sizes, mesh)
            columns.append(stops - starts)
        flat = np.concatenate([np.zeros((mesh.devices, 1), np.int64), *columns], axis=1)
        numbers, firsts = distinct(flat)
        chosen = []
        for device in firsts:
            call = self.call(item, Share(device, starts[device].tolist(), stops[device].tolist()))
            chosen.append(NOTHING if call is None else self.calls.setdefault(call, len(self.calls)))
        return np.asarray(chosen, np.int32)[numbers]

    def made_shapes(self, step: ComputeStep, device: int) -> tuple[Shape, ...] | None:
        """The shapes of what one device writes; None where its results have no elements."""
        shapes = tuple([self.program.part_shape(name, self.program.places[name], device) for name in step.writes])
        return None if shapes and all(0 in shape for shape in shapes) else shapes

    @abstractmethod
    def call(self, item: Computation, share: Share) -> Found | None:
        """What one device executes; None where its results have no elements."""

    def work(
        self,
        item: Computation,
        share: Share,
        regions: Sequence[Shape],
        pads: Sequence[Box],
        shapes: tuple[Shape, ...],
    ) -> Work:
        """regions, pads: of what is read; shapes: of what is written."""
        values, node = self.graph.values, item.node
        sizes = [
            float(_padded(shape, around) * values[name].item_bytes)
            for shape, around, name in zip(regions, pads, node.inputs, strict=True)
        ]
        output = float(
            sum([prod(shape) * values[name].item_bytes for shape, name in zip(shapes, node.outputs, strict=True)])
        )
        if item.description is None:
            return Work(OPAQUE, node.operator, 0.0, sum(sizes) + output)
        operations: Any = node.attributes.get("operations", 0)
        if operations and node.operator in RECORDED:
            dtype = values[node.inputs[0]].dtype
            return Work(MATMUL, called(node), float(operations), sum(sizes) + output, dtype)
        extents = [last - first for first, last in zip(share.start, share.stop, strict=True)]
        return work_of(item.description, extents, sizes, output, item.copies)


class CallCollector(Collector[Call]):
    """Collects calls."""

    def source(self, buffer: str, shape: Shape) -> str:
        """The path of the program's data that such a part of a buffer is, whole, or ""."""
        path = self.data.get(buffer, "")
        return path if path and shape == self.graph.values[buffer].shape else ""

    def call(self, item: Computation, share: Share) -> Call | None:
        places, values, shape_at = self.program.places, self.graph.values, self.program.part_shape
        step, node, description, device = item.step, item.node, item.description, share.device
        shapes = self.made_shapes(step, device)
        if shapes is None:
            return None
        piece = None
        if description is not None:
            piece = make_piece(description, node.attributes, share.start, share.stop)
        extents = [last - first for first, last in zip(share.start, share.stop, strict=True)]
        ranges = {} if description is None else index_ranges(description)
        ascending = {} if description is None else bounds_of_edges(description, extents)
        regions = [shape_at(part.buffer, part.needed, device) for part in step.reads]
        likely = min((size for shape in (*shapes, *regions) for size in shape if size > 1), default=2)
        operands = []
        for number, (part, shape, form) in enumerate(zip(step.reads, regions, item.forms, strict=True)):
            held = shape_at(part.buffer, places[part.buffer], device)
            operands.append(
                Operand(
                    shape,
                    values[self.program.value_of[part.buffer]].dtype,
                    None if held == shape or 0 in shape else held,
                    None if form is None or 0 in shape else form.strides_of(held),
                    _pads(piece, number),
                    ascending.get(number, ranges.get(number, likely)),
                    number in ascending,
                    bool(ascending) and number in ranges and number not in ascending,
                    self.source(part.buffer, shape),
                )
            )
        work = self.work(item, share, regions, [operand.pads for operand in operands], shapes)
        if piece is None:
            return Call(node.operator, tuple(_numbered(node)), tuple(operands), shapes, work)
        result = piece.result if len(node.outputs) == 1 else None
        arguments = tuple(piece.arguments([Ref(str(number)) for number in range(len(operands))]).items())
        return Call(piece.operator, arguments, tuple(operands), shapes, work, piece.padding, result, item.over)


class WorkCollector(Collector[Work]):
    """Collects the work of calls alone: all that a roofline asks of them."""

    def call(self, item: Computation, share: Share) -> Work | None:
        shapes = self.made_shapes(item.step, share.device)
        if shapes is None:
            return None
        description, start, stop = item.description, share.start, share.stop
        regions = [self.program.part_shape(part.buffer, part.needed, share.device) for part in item.step.reads]
        pads: Sequence[Box] = [()] * len(regions)
        if description is not None and description.operator.padding is not None:
            boxes = [read_box(description, tensor, start, stop) for tensor in range(len(regions))]
            inside = [clip_box(box, kind.shape) for box, kind in zip(boxes, description.inputs, strict=True)]
            pads = pads_of(description, start, stop, boxes, inside)
        return self.work(item, share, regions, pads, shapes)


def distinct(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[int]]:
    """The number of each of [count, width] rows among the different ones, and the first row of each."""
    if bool((rows == rows[0]).all()):  # most divisions are even
        return np.zeros(len(rows), np.int64), [0]
    from girih.layout import kernels

    numbers, firsts = kernels.distinct_rows(rows)
    return numbers, firsts.tolist()


def _pads(piece: PieceCall | None, number: int) -> tuple[tuple[int, int], ...]:
    if piece is None or not any(before or after for before, after in piece.pads[number]):
        return ()
    return piece.pads[number]


def _padded(shape: Shape, pads: Box) -> int:
    """Elements of an operand with its padding, if it has any."""
    if not pads:
        return prod(shape)
    return prod([size + before + after for size, (before, after) in zip(shape, pads, strict=True)])


def _numbered(node: Node) -> Iterator[tuple[str, Argument]]:
    """A node's arguments with its tensor inputs numbered in their order."""
    count = 0

    def fill(argument: Argument) -> Argument:
        nonlocal count
        if isinstance(argument, Ref):
            count += 1
            return Ref(str(count - 1))
        return tuple(map(fill, argument)) if isinstance(argument, tuple) else argument

    for name, argument in node.arguments:
        yield name, fill(argument)
