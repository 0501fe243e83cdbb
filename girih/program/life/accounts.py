"""Memory of one device while it runs a program: exact, by liveness of storages.

A buffer occupies its device's part in bytes from the step that makes it to the step that frees it. Results of view
operators share their input's storage where PyTorch can express them so; messages that are not contiguous in their
buffer, and contributions to a reduction, are staged while the exchange lasts: from its start to its finish, where
other steps lie between. While a kernel runs it holds its padded operands and what its operator's `temporary` rule
tells; when all is done, the worker copies new state that is not contiguous or part of something larger. The rules are
those of kernels that hold the same on every processor, and of transports that take contiguous tensors; some are bounds.
What a library's kernel holds on one processor is asked of `scratch`, which the caller gives: exact where it was
measured there, else a bound (`girih.ops.scratch`).

Where workers are threads that compute chunks of each other's loops (`Program.stealing`), the peak is a bound: of a loop
that is offered the sums of all chunks are counted, on its own device, and on every device the buffers of the largest
chunk that any other one offers, whenever its worker waits for a message or stands between two steps. A worker computes
one chunk at a time, so that the peaks of all devices together are a bound for the process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from heapq import nlargest
from math import prod
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from girih.graph import Node, Value
from girih.layout import Placement, Sharding, bounds_of
from girih.machine import names
from girih.ops import Description
from girih.ops.derive.pieces import PieceCall, make_piece
from girih.ops.derive.temporaries import KernelCall, Operand, converted, is_channels_last
from girih.ops.known import descriptions
from girih.ops.scratch import ScratchCall, ScratchSource, asks_for_every, at_most, held, known_by, rule_for
from girih.program.exchange import Message
from girih.program.fusion.block_memory import LoopBytes, loop_bytes, stolen_bytes
from girih.program.life.in_place import ending_with, operands_to_take
from girih.program.life.strides import Shape, contiguous_strides, is_contiguous, strides_of_view
from girih.program.liveness import overwritten
from girih.program.program import Program
from girih.program.steps import BlockStep, ComputeStep, FreeStep, MoveStep, StartStep, Step, TransferStep

SHOWN = 12  # of the biggest storages


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


@dataclass(slots=True)
class Buffer:
    """A buffer in a storage, with its shape and strides in elements."""

    storage: int
    shape: Shape
    strides: Shape


@dataclass(slots=True)
class _Packed:
    """Messages of an exchange, from a buffer with these strides: their bytes, which are there from mark `first` to
    before mark `last`, and their storage; 0 where they have none, since they are gone with the step."""

    step: TransferStep
    strides: Shape
    bytes: int
    first: int
    last: int
    storage: int = 0


@dataclass(frozen=True, slots=True)
class _Told:
    """Bytes that a step holds beside its operands and result, at a mark. told: what says so by the call of a device.
    asked: for which call of the tracker's device."""

    asked: tuple[Description, Sharding]
    told: Callable[[tuple[PieceCall, frozenset[str]]], int]
    bytes: int
    mark: int


class Tracker:
    """Walks a program on one device and tells its storages apart.

    buffers: by name, where each lies. owners, sizes, names: of each storage that is alive, by number. now: their bytes.
    taken: by the result of a step, the operand whose memory it took over.
    """

    def __init__(self, program: Program, device: int, threads: int, scratch: ScratchSource) -> None:
        self.program = program
        self.device = device
        self.threads = threads
        self.scratch = scratch
        self.stolen = stolen_bytes(program, device, threads)
        self.buffers: dict[str, Buffer] = {}
        self.owners: Counter[int] = Counter()
        self.sizes: dict[int, int] = {}
        self.names: dict[int, str] = {}
        self.now = 0
        self.most = 0  # marked in this step
        self.peak = 0
        self.at = -1
        self.changes: list[tuple[int, str, int]] = []  # storage, name and bytes from then on
        self.before_peak = 0  # of these changes, those before the peak
        self.next = 0
        self.nodes = 0  # computed so far
        self.underway: dict[str, int] = {}  # exchanges by target, with the storage of their messages
        self.moving: dict[str, int] = {}  # moves by target, with the storage that they read
        self.takes, self.sent = operands_to_take(program, device)
        self.ending = ending_with(program, device) if self.takes else {}
        self.taken: dict[str, int] = {}
        self.pieces: dict[tuple[Description, Sharding], tuple[PieceCall, frozenset[str]]] = {}
        self.attributes: dict[tuple[Description, Sharding], tuple[tuple[str, Any], ...]] = {}  # of these pieces
        self.shapes: dict[tuple[int, bool], tuple[Shape, Placement]] = {}  # by identity of the place, kept alive
        self.marks: list[tuple[int, int, int]] = []  # bytes, node, and how many changes there were
        # What was asked that may be another on a device with parts of the same shapes, and what was answered.
        self.packed: list[_Packed] = []
        self.messages: dict[int, _Packed] = {}  # by their storage
        self.told: list[_Told] = []
        self.loops: list[tuple[BlockStep, LoopBytes]] = []

    def shape_of(self, buffer: str) -> Shape:
        return self.shape_at(buffer, self.program.places[buffer])

    def shape_at(self, buffer: str, place: Placement) -> Shape:
        """The shape of the device's part of a buffer's value at a place."""
        value = self.program.graph.values[self.program.value_of[buffer]]
        key = id(place), bool(value.shape)
        if key not in self.shapes:
            self.shapes[key] = self.program.part_shape(buffer, place, self.device), place
        return self.shapes[key][0]

    def allocate(self, buffer: str, shape: Shape | None = None, strides: Shape | None = None) -> None:
        shape = self.shape_of(buffer) if shape is None else shape
        storage = self.storage(buffer, prod(shape) * self.item_bytes(buffer))
        self.buffers[buffer] = Buffer(storage, shape, strides or contiguous_strides(shape))

    def item_bytes(self, buffer: str) -> int:
        """The bytes of one element of a buffer; 0 where it does not lie in the device's memory."""
        program = self.program
        if buffer in program.files or buffer in program.streamed or buffer in program.host:
            return 0
        return program.graph.values[program.value_of[buffer]].item_bytes

    def storage(self, name: str, size: int) -> int:
        self.next += 1
        self.sizes[self.next] = size
        self.names[self.next] = name
        self.owners[self.next] = 1
        self.changes.append((self.next, name, size))
        self.now += size
        return self.next

    def alias(self, buffer: str, base: str, shape: Shape, strides: Shape) -> None:
        storage = self.buffers[base].storage
        self.owners[storage] += 1
        self.buffers[buffer] = Buffer(storage, shape, strides)

    def free(self, buffer: str) -> None:
        self.release(self.buffers.pop(buffer).storage)

    def held(self, buffer: str) -> Buffer:
        """What lies in a buffer; where the device has no part of it, no step has made it here."""
        if buffer not in self.buffers:
            shape = self.shape_of(buffer)
            return Buffer(0, shape, contiguous_strides(shape))
        return self.buffers[buffer]

    def release(self, storage: int) -> None:
        self.owners[storage] -= 1
        if self.owners[storage] == 0:
            self.now -= self.sizes[storage]
            self.changes.append((storage, "", 0))
            del self.sizes[storage], self.names[storage], self.owners[storage]

    def mark(self, node: int, extra: int = 0) -> None:
        self.marks.append((self.now + extra, node, len(self.changes)))
        self.most = max(self.most, self.now + extra)
        if self.now + extra > self.peak:
            self.peak, self.at, self.before_peak = self.now + extra, node, len(self.changes)

    @property
    def state_bytes(self) -> int:
        """The bytes of what lives from step to step, before the first step."""
        return sum(
            self.sizes[self.buffers[item.name].storage]
            for item in self.program.graph.inputs
            if item.role in ("parameter", "buffer", "data", "state")
        )

    @property
    def largest(self) -> tuple[tuple[str, int], ...]:
        """The biggest storages at the peak so far: (buffer, bytes)."""
        return self.largest_behind(self.before_peak, {})

    def largest_behind(self, changes: int, others: Mapping[int, int]) -> tuple[tuple[str, int], ...]:
        """The same behind so many changes. others: by storage the bytes that it has in the place of what it had."""
        held = {storage: (name, size) for storage, name, size in self.changes[:changes]}
        held |= {storage: (held[storage][0], size) for storage, size in others.items() if held.get(storage, ("",))[0]}
        return tuple(nlargest(SHOWN, (item for item in held.values() if item[1]), key=itemgetter(1)))

    def step(self, step: Step) -> None:
        if isinstance(step, ComputeStep):
            self.compute(step)
        elif isinstance(step, BlockStep):
            self.blocks(step)
        elif isinstance(step, StartStep) and isinstance(step.transfer, MoveStep):
            self.start_move(step.transfer, step.after)
        elif isinstance(step, StartStep):
            assert isinstance(step.transfer, TransferStep)
            self.start(step.transfer)
        elif isinstance(step, MoveStep):
            self.move(step)
        elif isinstance(step, TransferStep):
            self.transfer(step)
        else:
            for buffer in step.buffers:
                self.free(buffer)
        self.between()

    def between(self) -> None:
        """Its worker does nothing itself: it may compute a chunk of another's loop."""
        if self.stolen:
            self.mark(self.next_node, self.stolen)

    def read_shape(self, step: ComputeStep, operand: int) -> Shape:
        part = step.reads[operand]
        return self.shape_at(part.buffer, part.needed)

    @property
    def next_node(self) -> int:
        return min(self.nodes, len(self.program.graph.nodes) - 1)

    def compute(self, step: ComputeStep) -> None:
        graph = self.program.graph
        self.nodes = step.node + 1
        node = graph.nodes[step.node]
        description = descriptions(graph)[step.node]
        is_view = description is not None and description.operator.view and len(step.reads) == 1
        is_view = is_view and 0 not in self.shape_of(step.writes[0])  # nothing shares nothing
        read = sum(
            prod(self.read_shape(step, number)) * graph.values[self.program.value_of[part.buffer]].item_bytes
            for number, part in enumerate(step.reads)
            if part.buffer in self.program.streamed
        )
        if is_view and description is not None and not read and self.view(step, description):
            return
        strides = None
        if description is not None and description.operator.elementwise and step.reads:
            # TensorIterator keeps the order of dimensions of an input of the output's shape that repeats nothing.
            shape = self.shape_of(step.writes[0])
            for number, part in enumerate(step.reads):
                base = self.held(part.buffer)
                if self.read_shape(step, number) == shape and all(base.strides):
                    strides = _dense(shape, base.strides)
                    break
        elif description is not None and description.operator.order_of is not None:
            shape = self.read_shape(step, description.operator.order_of)
            if is_channels_last(shape, self.held(step.reads[description.operator.order_of].buffer).strides):
                strides = _dense(self.shape_of(step.writes[0]), (3, 0, 2, 1))
        extra = read + (0 if description is None else self.temporaries(step, node, description))
        storage = self.take(step, strides) if step.writes[0] in self.takes else None
        for buffer in step.writes:
            self.allocate(buffer, strides=strides if len(step.writes) == 1 else None)
        if storage is not None:
            self.give(storage, self.sizes[storage])
        self.mark(step.node, extra)

    def take(self, step: ComputeStep, strides: Shape | None) -> int | None:
        """The storage of the operand whose memory the result takes over, if there is one: nothing else lies in it, and
        it has the result's order of elements."""
        target = step.writes[0]
        shape = self.shape_of(target)
        order = strides or contiguous_strides(shape)
        ending, found = self.ending.get(target, frozenset()), None
        for operand in self.takes[target]:
            buffer = step.reads[operand].buffer
            held = self.held(buffer)
            shared = [  # reads of the same storage
                number
                for number, part in enumerate(step.reads)
                if part.buffer in self.buffers and self.buffers[part.buffer].storage == held.storage
            ]
            full = self.sizes.get(held.storage, 0) == prod(shape) * self.item_bytes(buffer) > 0
            alike = shape == held.shape and order == held.strides
            whole = all(
                step.reads[number].buffer == buffer and self.read_shape(step, number) == shape for number in shared
            )
            if not (full and alike and whole):
                continue
            sent = buffer in self.sent or target in self.sent
            self.may_take(target, held.storage, sent)
            ends = buffer in ending and target not in ending and self.owners[held.storage] == 1
            if found is None and ends and not sent:
                self.taken[target] = operand
                found = held.storage
        return found

    def may_take(self, target: str, storage: int, sent: bool) -> None:
        """The result may take over this storage, where it ends. sent: if it, or the result, were not sent."""

    def give(self, storage: int, amount: int) -> None:
        """Some of a storage's bytes are another's now."""
        self.sizes[storage] -= amount
        self.changes.append((storage, self.names[storage], self.sizes[storage]))
        self.now -= amount

    def blocks(self, step: BlockStep) -> None:
        """A group: what leaves it is made before the first block, sums behind the last; the rest is one block long."""
        node = step.members[-1].node
        self.nodes = node + 1
        loop = loop_bytes(self.program, step, self.device, self.threads)
        self.loops.append((step, loop))
        for buffer in step.writes:
            if buffer not in loop.sums:
                self.allocate(buffer)
        self.mark(node, loop.peak)
        for buffer in loop.sums:
            self.allocate(buffer)
        self.mark(node, loop.after)

    def temporaries(self, step: ComputeStep, node: Node, description: Description) -> int:
        """Bytes that are held beside operands and result while the kernel runs: padded operands, the kernel's own."""
        operator, values = description.operator, self.program.graph.values
        shape, result = self.shape_of(step.writes[0]), values[node.outputs[0]]
        temporary = rule_for(operator.temporary, result.item_bytes)
        every = asks_for_every(self.scratch)
        if operator.elementwise and temporary is None and operator.padding is None and not every:
            return _number_bytes(node, values[node.inputs[0]]) + self.converted(step, node) if node.inputs else 0
        if (operator.padding is None and temporary is None and not every) or 0 in shape or not node.inputs:
            return 0
        lying = tuple(self.held(part.buffer).strides for part in step.reads)
        told = partial(self.beside, step, node, description, lying)
        total = told(self.piece(step, node, description))
        asked = description, self.program.strategy.divisions[step.node]
        self.told.append(_Told(asked, told, total, len(self.marks)))
        return total

    def beside(
        self,
        step: ComputeStep,
        node: Node,
        description: Description,
        lying: Sequence[Shape],
        call: tuple[PieceCall, frozenset[str]],
    ) -> int:
        """The same for one device's call, where the operands have these strides."""
        values = self.program.graph.values
        shape, result = self.shape_of(step.writes[0]), values[node.outputs[0]]
        temporary, every = rule_for(description.operator.temporary, result.item_bytes), asks_for_every(self.scratch)
        (piece, cut), total, inputs = call, 0, {}
        parts = zip(step.reads, lying, piece.names, piece.regions, piece.pads, strict=True)
        for part, strides, name, region, pads in parts:
            size = tuple(b - a + before + after for (a, b), (before, after) in zip(region, pads, strict=True))
            value = values[self.program.value_of[part.buffer]]
            padded = any(before or after for before, after in pads)
            in_order = padded or is_contiguous(size, strides) or 0 in size
            total += prod(size) * value.item_bytes if padded else 0
            if name is not None:
                inputs[name] = Operand(size, value.item_bytes, in_order, None if in_order else strides, value.dtype)
        if temporary is None and not every:
            return total
        output = Operand(shape, result.item_bytes, dtype=result.dtype)
        work = KernelCall(piece.attributes, inputs, output, cut, self.threads)
        kept = sum(prod(self.shape_of(name)) * self.item_bytes(name) for name in step.writes)
        if every:
            return total + self.scratch(ScratchCall(piece.operator, work, known_by(temporary), kept))
        assert temporary is not None
        return total + held(temporary, piece.operator, work, self.scratch, kept if len(step.writes) > 1 else 0)

    def converted(self, step: ComputeStep, node: Node) -> int:
        """Bytes of the operands of an element-wise kernel that are copied into the type in which it computes."""
        values, result = self.program.graph.values, self.program.graph.values[node.outputs[0]].dtype
        kinds = [values[self.program.value_of[part.buffer]].dtype for part in step.reads]
        if all(kind == result for kind in kinds):
            return 0
        operands = [(self.read_shape(step, number), kind) for number, kind in enumerate(kinds)]
        return converted(node.operator, operands, node.attributes.get("other"), result)

    def piece(self, step: ComputeStep, node: Node, description: Description) -> tuple[PieceCall, frozenset[str]]:
        """The call on this device, and the names of the index variables that are divided; equal nodes share it."""
        division = self.program.strategy.divisions[step.node]
        if (description, division) not in self.pieces:
            attributes = tuple(node.attributes.items())
            self.pieces[description, division] = self.piece_of(self.device, description, division, attributes)
            self.attributes[description, division] = attributes
        return self.pieces[description, division]

    def piece_of(
        self, device: int, description: Description, division: Sharding, attributes: tuple[tuple[str, Any], ...]
    ) -> tuple[PieceCall, frozenset[str]]:
        starts, stops = bounds_of(division, description.sizes, self.program.mesh)
        start, stop = tuple(starts[device].tolist()), tuple(stops[device].tolist())
        named = zip(description.names, start, stop, description.sizes, strict=True)
        cut = frozenset(name for name, low, high, size in named if high - low != size)
        return _made(description, attributes, repr(attributes), start, stop), cut

    def use_on(self, device: int, use: MemoryUse) -> MemoryUse | None:
        """The memory of a device that does the same steps and has parts of the same shapes; None where its own walk has
        to tell. Beyond these it depends on how messages lie in their buffers, and on padding and attributes of pieces,
        which are looked at anew; and on loops over blocks, which have to be the same. use: of the tracker's device."""
        program = self.program
        if self.stolen != stolen_bytes(program, device, self.threads):
            return None
        if any(loop != loop_bytes(program, step, device, self.threads) for step, loop in self.loops):
            return None
        more = np.zeros(len(self.marks) + 1, np.int64)
        others: dict[int, int] = {}
        for packed in self.packed:
            size = self.staged_on(device, packed.step, packed.strides)
            if packed.storage:
                others[packed.storage] = size
            more[packed.first] += size - packed.bytes
            more[packed.last] -= size - packed.bytes
        pieces = {asked: self.piece_of(device, *asked, self.attributes[asked]) for asked in self.pieces}
        unlike = {asked for asked, piece in pieces.items() if not _alike(piece, self.pieces[asked])}
        for item in self.told if unlike else ():
            if item.asked in unlike:
                size = item.told(pieces[item.asked]) - item.bytes
                more[item.mark] += size
                more[item.mark + 1] -= size
        needed = np.asarray([size for size, _, _ in self.marks], np.int64) + np.cumsum(more)[:-1]
        fullest = int(needed.argmax())
        peak, (_, at, changes) = int(needed[fullest]), self.marks[fullest]
        return replace(use, device=device, peak=peak, at=at, largest=self.largest_behind(changes, others))

    def settle(self) -> None:
        """The worker's last act: new state in the order of the inputs (`girih.run.worker.worker.settle`)."""
        graph = self.program.graph
        kept = {output.name for output in graph.outputs if output.replaces is None}
        updates = [graph.updates[item.name] for item in graph.state_inputs if item.name in graph.updates]
        readers = Counter(name for name in updates if name not in kept)
        for name in updates:
            if name not in self.buffers or name in self.program.host:  # the device has no part of it
                continue
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
        self.between()

    def view(self, step: ComputeStep, description: Description) -> bool:
        source, target = self.buffers[step.reads[0].buffer], step.writes[0]
        shape, goal = self.read_shape(step, 0), self.shape_of(target)
        strides = strides_of_view(description, shape, source.strides, goal)
        if strides is None:
            return False
        self.alias(target, step.reads[0].buffer, goal, strides)
        return True

    def start_move(self, step: MoveStep, after: tuple[str, ...]) -> None:
        """A copy begins. Its target is made at once, as far as may be in memory that moves leave which end before."""
        source = self.buffers[step.source]
        wanted = self.item_bytes(step.target) * prod(source.shape)
        for target in after:
            storage = self.moving.get(target)
            if storage is not None and self.owners[storage] == 1:  # nobody but the move has it
                taken = min(wanted, self.sizes[storage])
                self.give(storage, taken)
                wanted -= taken
                self.hand_over(storage, step.target, taken)
        self.owners[source.storage] += 1
        self.moving[step.target] = source.storage
        self.allocate(step.target, source.shape, source.strides)
        self.mark(self.next_node)

    def hand_over(self, storage: int, target: str, taken: int) -> None:
        """A copy in will take so many bytes of what is still being copied out."""

    def move(self, step: MoveStep) -> None:
        """All of a copy, or the end of one that has begun."""
        if step.target not in self.moving:
            self.start_move(step, ())
        self.release(self.moving.pop(step.target))

    def transfer(self, step: TransferStep) -> None:
        """All of an exchange, or the finish of one that has started."""
        if step.target in self.underway:
            if step.target not in self.buffers:
                self.allocate(step.target)
            self.mark(self.next_node, self.stolen)
            storage = self.underway.pop(step.target)
            self.release(storage)
            if storage in self.messages:
                self.messages[storage].last = len(self.marks)
            return
        self.allocate(step.target)
        self.mark(step.node, self.staged(step) + self.stolen)

    def start(self, step: TransferStep) -> None:
        """The target is made at once if messages arrive in it, at the finish if contributions are combined in it."""
        if self.program.terms_of(step) == 1:
            self.allocate(step.target)
        packed = len(self.packed)
        storage = self.underway[step.target] = self.storage(messages_of(step.target), self.staged(step))
        for item in self.packed[packed:]:
            item.storage = storage
            self.messages[storage] = item
        self.mark(self.next_node)

    def staged(self, step: TransferStep) -> int:
        """Bytes of the messages that are packed, and of those that do not arrive in the target itself."""
        if step.source in self.program.streamed:  # a bound: each part is read when it is packed
            return prod(self.shape_of(step.source)) * self.program.graph.values[step.value].item_bytes
        strides = self.held(step.source).strides
        size = self.staged_on(self.device, step, strides)
        self.packed.append(_Packed(step, strides, size, len(self.marks), len(self.marks) + 1))
        return size

    def staged_on(self, device: int, step: TransferStep, held: Shape) -> int:
        """What `staged` says on a device whose part of the source has these strides."""
        messages, combined = self.program.messages_of(step, device), self.program.terms_of(step) > 1
        goal = contiguous_strides(self.shape_of(step.target))
        packed = set()  # a box that goes to several peers is packed once
        elements = 0
        for message in messages:
            if message.source == message.target:
                continue
            if message.target == device:
                elements += message.elements if combined or not _run(message, goal) else 0
            elif not _run(message, held) and message.box not in packed:
                packed.add(message.box)
                elements += message.elements
        return elements * self.program.graph.values[step.value].item_bytes


@lru_cache(maxsize=4096)
def _made(
    description: Description,
    attributes: tuple[tuple[str, Any], ...],
    typed: str,  # 1, 1.0 and True are equal, but not the same attribute
    start: tuple[int, ...],
    stop: tuple[int, ...],
) -> PieceCall:
    """The call for a box: the next walk of a program asks for the same again."""
    return make_piece(description, dict(attributes), start, stop)


def _alike(one: tuple[PieceCall, frozenset[str]], other: tuple[PieceCall, frozenset[str]]) -> bool:
    """Do two pieces differ in nothing but the places of their regions?"""
    (first, cut), (second, cut_there) = one, other
    sizes, sizes_there = (
        [[stop - start for start, stop in region] for region in piece.regions] for piece in (first, second)
    )
    return first is second or (
        sizes == sizes_there
        and cut == cut_there
        and (first.operator, first.attributes, first.names, first.pads)
        == (second.operator, second.attributes, second.names, second.pads)
    )


MESSAGES = " (messages)"


def messages_of(target: str) -> str:
    """The storage of an exchange's messages while it is under way, by the exchange's target."""
    return target + MESSAGES


def _number_bytes(node: Node, operand: Value) -> int:
    """What PyTorch makes of a Python number in the place of a tensor: one of its own kind, and one of the operand's."""
    number = node.attributes.get("other")
    if not node.operator.endswith(".Tensor") or isinstance(number, bool) or not isinstance(number, int | float):
        return 0
    own = "float64" if isinstance(number, float) else "int64"
    return 8 + (0 if operand.dtype == own else operand.item_bytes)


def _dense(shape: Shape, strides: Shape) -> Shape:
    """Strides of a tensor without gaps whose dimensions lie in the order of these."""
    order = sorted(range(len(shape)), key=lambda axis: -strides[axis])
    packed = contiguous_strides(tuple(shape[axis] for axis in order))
    return tuple(packed[order.index(axis)] for axis in range(len(shape)))


def _run(message: Message, strides: Shape) -> bool:
    """Does the message's box lie in one run of the memory of a buffer with these strides (of a scalar: none)?"""
    return not strides or is_contiguous(tuple(stop - start for start, stop in message.box), strides)


def memory_use(program: Program, device: int = 0, threads: int = 0, scratch: ScratchSource = at_most) -> MemoryUse:
    """Walk the program on one device. Cost: linear in steps and messages.

    threads: of each worker; 0: as worker processes on this host decide, its cores divided among them. scratch: what
    kernels of libraries hold; by default a bound.
    """
    return _walked(program, device, threads, scratch)[1]


def _walked(program: Program, device: int, threads: int, scratch: ScratchSource) -> tuple[Tracker, MemoryUse]:
    tracker = begun(program, device, threads, scratch, Tracker)
    state = tracker.state_bytes
    for step in program.steps_of(device):
        tracker.step(step)
    tracker.settle()
    return tracker, MemoryUse(device, state, tracker.peak, tracker.at, tracker.largest)


def memory_uses(
    program: Program, devices: Sequence[int], threads: int = 0, scratch: ScratchSource = at_most
) -> tuple[MemoryUse, ...]:
    """`memory_use` of each of the devices. Those that do the same with parts of the same shapes, as most do, share one
    walk."""
    walks: dict[tuple[bytes, tuple[int, ...]], list[tuple[Tracker, MemoryUse]]] = {}
    found = []
    for device, shapes in zip(devices, _part_shapes(program, devices), strict=True):
        known = walks.setdefault((shapes.tobytes(), program.order_of(device)), [])
        told = (tracker.use_on(device, use) for tracker, use in known)
        use = next((use for use in told if use is not None), None)
        if use is None:
            known.append(_walked(program, device, threads, scratch))
            use = known[-1][1]
        found.append(use)
    return tuple(found)


def _part_shapes(program: Program, devices: Sequence[int]) -> NDArray[np.int64]:
    """The shapes of the parts of all buffers, and of what is read of them: [devices, dimensions of all of these]."""
    places = {id(place): place for place in program.places.values()}
    for step in program.steps:
        if isinstance(step, ComputeStep):
            places.update((id(part.needed), part.needed) for part in step.reads)
    rows = np.asarray(devices, np.int64)
    none = np.empty((len(rows), 0, 2), np.int64)
    regions = np.concatenate([none, *(place.regions[rows] for place in places.values())], axis=1)
    return np.ascontiguousarray(regions[..., 1] - regions[..., 0])


def host_bytes(program: Program, device: int = 0) -> int:
    """The most bytes that one device has in the large memory at any time. New state that cannot overwrite the old has
    places beside it."""
    graph, steps = program.graph, program.steps_of(device)

    def size(buffer: str) -> int:
        shape = program.part_shape(buffer, program.places[buffer], device)
        return prod(shape) * graph.values[program.value_of[buffer]].item_bytes

    state = {name for pair in graph.updates.items() for name in pair} & program.host
    state -= set(overwritten(graph, steps, program.host).values())
    now = most = sum(size(name) for name in state | {item.name for item in graph.inputs if item.name in program.host})
    held: set[str] = set()
    lasting = {name for pair in graph.updates.items() for name in pair}
    for step in steps:
        move = step.transfer if isinstance(step, StartStep) else step
        if isinstance(move, MoveStep) and move.out and move.target not in held and move.target not in lasting:
            held.add(move.target)
            now += size(move.target)
            most = max(most, now)
        for buffer in step.buffers if isinstance(step, FreeStep) else ():
            if buffer in held:
                now -= size(buffer)
    return most


def live_bytes(
    program: Program, device: int = 0, threads: int = 0, scratch: ScratchSource = at_most
) -> NDArray[np.int64]:
    """The most bytes in use on one device before the first step, in each step (of a free: behind it), and at the
    worker's last act: [steps + 2]. As exact as `memory_use`, and the largest is its peak."""
    tracker = begun(program, device, threads, scratch, Tracker)
    most = [tracker.most]
    for number in program.order_of(device):
        most += [tracker.now] * (number + 1 - len(most))  # in steps that others do
        tracker.most = 0
        tracker.step(program.steps[number])
        most.append(max(tracker.most, tracker.now))
    most += [tracker.now] * (len(program.steps) + 1 - len(most))
    tracker.most = tracker.now
    tracker.settle()
    return np.asarray([*most, tracker.most], np.int64)


def taken_over(program: Program, device: int = 0) -> dict[str, int]:
    """By the result of a step, the operand whose memory it takes over on one device. Cost: linear."""
    if not operands_to_take(program, device)[0]:
        return {}
    tracker = begun(program, device, 1, at_most, Tracker)
    for step in program.steps_of(device):
        tracker.step(step)
    return tracker.taken


def threads_here(program: Program) -> int:
    """How many threads of kernels each worker has on this host, if it has all of them."""
    return names.threads_here(program.mesh.devices)


Walk = TypeVar("Walk", bound=Tracker)


def begun(program: Program, device: int, threads: int, scratch: ScratchSource, kind: type[Walk]) -> Walk:
    """A walk that has not taken a step, with the inputs in memory."""
    tracker = kind(program, device, threads or threads_here(program), scratch)
    for item in program.graph.inputs:
        tracker.allocate(item.name)
    tracker.mark(-1, tracker.stolen)
    return tracker
