"""Memory of one device while it runs a program: exact, by liveness of storages.

A buffer occupies its device's part in bytes from the step that makes it to the step that frees it. Results of view
operators share their input's storage where PyTorch can express them so; messages that are not contiguous in their
buffer, and contributions to a reduction, are staged while the exchange lasts. While a kernel runs it holds its padded
operands and what its operator's `temporary` rule tells; when all is done, the worker copies new state that is not
contiguous or part of something larger. The rules are those of PyTorch's CPU kernels; some are bounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np

from girih.graph import Node
from girih.layout import bounds
from girih.lower.exchange import Message
from girih.lower.program import ComputeStep, FreeStep, Program, TransferStep
from girih.ops import Description, description_of
from girih.ops.pieces import PieceCall, make_piece
from girih.ops.temporaries import Operand, Work

Shape = tuple[int, ...]


@dataclass(frozen=True)
class MemoryUse:
    """Bytes on one device. state: what lives from step to step. peak: the most at any time, state included.

    at: the node during which the peak is reached. largest: the biggest storages at the peak, (buffer, bytes).
    """

    device: int
    state: int
    peak: int
    at: int
    largest: tuple[tuple[str, int], ...]


@dataclass
class _Buffer:
    storage: int
    shape: Shape
    strides: Shape


@cache
def contiguous_strides(shape: Shape) -> Shape:
    strides, size = [], 1
    for extent in reversed(shape):
        strides.append(size)
        size *= max(extent, 1)
    return tuple(reversed(strides))


def view_strides(shape: Shape, strides: Shape, target: Shape) -> Shape | None:
    """Strides of `tensor.view(target)`, or None where PyTorch must copy."""
    if prod(shape) == 0:
        return contiguous_strides(target)
    result: list[int] = [0] * len(target)
    position = len(target) - 1
    chunk_stride = strides[-1] if strides else 1
    chunk, seen = 1, 1
    for dimension in range(len(shape) - 1, -1, -1):
        chunk *= shape[dimension]
        ends = dimension == 0 or (shape[dimension - 1] != 1 and strides[dimension - 1] != chunk * chunk_stride)
        if not ends:
            continue
        while position >= 0 and (seen < chunk or target[position] == 1):
            result[position] = seen * chunk_stride
            seen *= target[position]
            position -= 1
        if seen != chunk:
            return None
        if dimension > 0:
            chunk_stride, chunk, seen = strides[dimension - 1], 1, 1
    if position >= 0 and not shape:
        return contiguous_strides(target)
    return tuple(result) if position < 0 else None


def strides_of_view(
    operator: str, attributes: Mapping[str, Any], shape: Shape, strides: Shape, target: Shape
) -> Shape | None:
    """Strides of what a view operator makes of a tensor, or None where it must copy."""
    if operator == "aten.permute":
        return tuple(strides[dim] for dim in attributes["dims"])
    if operator in ("aten.transpose.int", "aten.t"):
        order = list(strides)
        first, second = attributes.get("dim0", 0), attributes.get("dim1", -1)
        if order:
            order[first], order[second] = order[second], order[first]
        return tuple(order)
    if operator == "aten.expand":
        lead = len(target) - len(shape)
        return tuple(
            0 if number < lead or (shape[number - lead] == 1 and extent != 1) else strides[number - lead]
            for number, extent in enumerate(target)
        )
    if operator == "aten.slice.Tensor":
        dim = attributes.get("dim", 0) % len(strides)
        return (*strides[:dim], strides[dim] * attributes.get("step", 1), *strides[dim + 1 :])
    if operator == "aten.select.int":
        dim = attributes["dim"] % len(strides)
        return (*strides[:dim], *strides[dim + 1 :])
    if operator == "aten.diagonal":
        across = [attributes.get("dim1", 0) % len(strides), attributes.get("dim2", 1) % len(strides)]
        kept = [stride for dim, stride in enumerate(strides) if dim not in across]
        return (*kept, sum(strides[dim] for dim in across))
    if operator in ("aten.alias", "aten.detach"):
        return strides
    return view_strides(shape, strides, target)  # reshape, view, squeeze, unsqueeze


def is_contiguous(shape: Shape, strides: Shape) -> bool:
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1:
            if stride != expected:
                return False
            expected *= extent
    return True


class _Tracker:
    def __init__(self, program: Program, device: int) -> None:
        self.program = program
        self.device = device
        self.buffers: dict[str, _Buffer] = {}
        self.owners: Counter[int] = Counter()
        self.sizes: dict[int, int] = {}
        self.names: dict[int, str] = {}
        self.now = 0
        self.peak = 0
        self.at = -1
        self.largest: tuple[tuple[str, int], ...] = ()
        self.next = 0
        self.pieces: dict[tuple[Description, tuple[int, ...]], tuple[PieceCall, frozenset[str]]] = {}

    def shape_of(self, buffer: str) -> Shape:
        regions = self.program.places[buffer].regions[self.device]
        return tuple(int(high - low) for low, high in regions)

    def allocate(self, buffer: str, shape: Shape | None = None, strides: Shape | None = None) -> None:
        shape = self.shape_of(buffer) if shape is None else shape
        item = self.program.graph.values[self.program.value_of[buffer]].item_bytes
        self.next += 1
        self.sizes[self.next] = prod(shape) * item
        self.names[self.next] = buffer
        self.owners[self.next] = 1
        self.now += self.sizes[self.next]
        self.buffers[buffer] = _Buffer(self.next, shape, strides or contiguous_strides(shape))

    def alias(self, buffer: str, base: str, shape: Shape, strides: Shape) -> None:
        storage = self.buffers[base].storage
        self.owners[storage] += 1
        self.buffers[buffer] = _Buffer(storage, shape, strides)

    def free(self, buffer: str) -> None:
        storage = self.buffers.pop(buffer).storage
        self.owners[storage] -= 1
        if self.owners[storage] == 0:
            self.now -= self.sizes[storage]
            del self.sizes[storage], self.names[storage], self.owners[storage]

    def mark(self, node: int, extra: int = 0) -> None:
        if self.now + extra > self.peak:
            self.peak, self.at = self.now + extra, node
            order = sorted(self.sizes, key=lambda storage: -self.sizes[storage])[:12]
            self.largest = tuple((self.names[storage], self.sizes[storage]) for storage in order)

    def read_shape(self, step: ComputeStep, operand: int) -> Shape:
        regions = step.reads[operand].needed.regions[self.device]
        return tuple(int(high - low) for low, high in regions)

    def compute(self, step: ComputeStep) -> None:
        graph = self.program.graph
        node = graph.nodes[step.node]
        description = description_of(graph, node)
        is_view = description is not None and description.operator.view and len(step.reads) == 1
        if is_view and self.view(step, node.operator):
            return
        strides = None
        if description is not None and description.operator.elementwise and step.reads:
            # TensorIterator keeps the order of dimensions of a dense input of the output's shape.
            base = self.buffers[step.reads[0].buffer]
            if self.read_shape(step, 0) == base.shape == self.shape_of(step.writes[0]) and _dense(base):
                strides = base.strides
        extra = 0 if description is None else self.temporaries(step, node, description)
        for buffer in step.writes:
            self.allocate(buffer, strides=strides if len(step.writes) == 1 else None)
        self.mark(step.node, extra)

    def temporaries(self, step: ComputeStep, node: Node, description: Description) -> int:
        """Bytes that are held beside operands and result while the kernel runs: padded operands, the kernel's own."""
        operator = description.operator
        shape = self.shape_of(step.writes[0])
        if (operator.padding is None and operator.temporary is None) or 0 in shape:
            return 0
        piece, cut = self.piece(step, node, description)
        values, total, inputs = self.program.graph.values, 0, {}
        for part, name, region, pads in zip(step.reads, piece.names, piece.regions, piece.pads, strict=True):
            size = tuple(b - a + before + after for (a, b), (before, after) in zip(region, pads, strict=True))
            item = values[self.program.value_of[part.buffer]].item_bytes
            padded = any(before or after for before, after in pads)
            in_order = padded or is_contiguous(size, self.buffers[part.buffer].strides) or 0 in size
            total += prod(size) * item if padded else 0
            if name is not None:
                inputs[name] = Operand(size, item, in_order)
        if operator.temporary is None:
            return total
        output = Operand(shape, values[node.outputs[0]].item_bytes)
        return total + operator.temporary(Work(piece.attributes, inputs, output, cut))

    def piece(self, step: ComputeStep, node: Node, description: Description) -> tuple[PieceCall, frozenset[str]]:
        """The call on this device, and the names of the index variables that are divided; equal nodes share it."""
        division = self.program.strategy.divisions[step.node]
        if (description, division) not in self.pieces:
            mesh, sizes = self.program.mesh, description.sizes
            starts, stops = bounds(np.asarray([division], np.int64).reshape(1, mesh.axes), sizes, mesh)
            start, stop = starts[0, self.device].tolist(), stops[0, self.device].tolist()
            named = zip(description.names, start, stop, sizes, strict=True)
            cut = frozenset(name for name, low, high, size in named if high - low != size)
            piece = make_piece(description, node.attributes, start, stop)
            self.pieces[description, division] = (piece, cut)
        return self.pieces[description, division]

    def settle(self) -> None:
        """The worker's last act: new state in the order of the inputs (`girih.run.worker.settle`)."""
        graph = self.program.graph
        kept = {output.name for output in graph.outputs if output.replaces is None}
        updates = [graph.updates[item.name] for item in graph.state_inputs if item.name in graph.updates]
        readers = Counter(name for name in updates if name not in kept)
        for name in updates:
            held = self.buffers[name]
            size = prod(held.shape) * graph.values[name].item_bytes
            if not is_contiguous(held.shape, held.strides) or self.sizes[held.storage] != size:
                self.now += size
                self.mark(len(graph.nodes) - 1)
            else:
                self.owners[held.storage] += 1  # it lives on as state
            readers[name] -= 1
            if readers[name] == 0:
                self.free(name)

    def view(self, step: ComputeStep, operator: str) -> bool:
        source, target = self.buffers[step.reads[0].buffer], step.writes[0]
        shape, goal = self.read_shape(step, 0), self.shape_of(target)
        attributes = self.program.graph.nodes[step.node].attributes
        strides = strides_of_view(operator, attributes, shape, source.strides, goal)
        if strides is None:
            return False
        self.alias(target, step.reads[0].buffer, goal, strides)
        return True

    def transfer(self, step: TransferStep) -> None:
        swap = self.program.exchange_of(step)
        item = self.program.graph.values[step.value].item_bytes
        self.allocate(step.target)
        staged = 0
        source, target = self.buffers[step.source], self.buffers[step.target]
        packed = set()  # a box that goes to several peers is packed once
        for message in swap.messages:
            if message.source == message.target:
                continue
            if message.target == self.device and (swap.terms > 1 or not _run(message, target)):
                staged += message.elements * item
            if message.source == self.device and not _run(message, source) and message.box not in packed:
                packed.add(message.box)
                staged += message.elements * item
        self.mark(step.node, staged)


def _dense(buffer: _Buffer) -> bool:
    order = sorted(range(len(buffer.shape)), key=lambda axis: -buffer.strides[axis])
    return is_contiguous(tuple(buffer.shape[axis] for axis in order), tuple(buffer.strides[axis] for axis in order))


def _run(message: Message, buffer: _Buffer) -> bool:
    """Does the message's box lie in one run of the buffer's memory?"""
    return is_contiguous(tuple(stop - start for start, stop in message.box), buffer.strides)


def memory_use(program: Program, device: int = 0) -> MemoryUse:
    """Walk the program on one device. Cost: linear in steps and messages."""
    tracker = _Tracker(program, device)
    roles = {item.name: item.role for item in program.graph.inputs}
    for item in program.graph.inputs:
        tracker.allocate(item.name)
    state = sum(
        tracker.sizes[tracker.buffers[name].storage]
        for name, role in roles.items()
        if role in ("parameter", "buffer", "state")
    )
    tracker.mark(-1)
    for step in program.steps:
        if isinstance(step, ComputeStep):
            tracker.compute(step)
        elif isinstance(step, TransferStep):
            tracker.transfer(step)
        elif isinstance(step, FreeStep):
            for buffer in step.buffers:
                tracker.free(buffer)
    tracker.settle()
    return MemoryUse(device, state, tracker.peak, tracker.at, tracker.largest)
