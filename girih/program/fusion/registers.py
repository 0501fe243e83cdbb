"""What a block of a group holds: which results share a buffer, and what kernels make anew.

Element-wise results are written into memory that all blocks use again, as soon as their last reader is done; in place,
where the operand that ends there has their shape and type. Other kernels make their result anew. What leaves the group
is written where it belongs, and read from there. How many bytes that is: `girih.program.fusion.block_memory`. Cost:
linear in the members.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any, Literal

import numpy as np

from girih.graph import Node
from girih.graph.graph import ITEM_BYTES
from girih.layout import bounds_of
from girih.ops import Description
from girih.ops.derive.divisions import is_elementwise
from girih.ops.derive.pieces import PieceCall
from girih.ops.known import descriptions
from girih.program.fusion.slicing import Along, along, at_block, moving_piece
from girih.program.program import Program
from girih.program.steps import BlockStep, ComputeStep

_WEAK = frozenset({"uint16", "uint32", "uint64", "complex64", "complex128"})
"""Types for which PyTorch has few kernels (`girih.kernels.numpy_fallback`, which loads torch)."""
Kind = Literal["into", "view", "made", "reduced"]


@dataclass(frozen=True)
class Member:
    """A node of a group on one device, cut along an index variable. piece: with numbers that move."""

    step: ComputeStep
    variable: int
    node: Node
    description: Description
    way: Along
    piece: PieceCall

    @property
    def write(self) -> str:
        return self.step.writes[0]

    @property
    def kind(self) -> Kind:
        """How its result comes to be: into memory that is there, as a view, or made by the kernel."""
        operator = self.description.operator
        if self.way.made is None:
            return "reduced"
        return "view" if operator.view else "into" if elementwise(self.description) else "made"

    def result_shape(self, low: int, high: int) -> tuple[int, ...]:
        return _shape(self.piece.output, low, high)

    def result_bytes(self, low: int, high: int) -> int:
        return prod(self.result_shape(low, high)) * ITEM_BYTES[self.description.output.dtype]

    def read_shape(self, number: int, low: int, high: int) -> tuple[int, ...]:
        return _shape(self.piece.regions[number], low, high)

    def read_bytes(self, number: int, low: int, high: int) -> int:
        return prod(self.read_shape(number, low, high)) * ITEM_BYTES[self.description.inputs[number].dtype]

    def attributes(self, low: int, high: int) -> dict[str, Any]:
        attributes: dict[str, Any] = at_block(self.piece.attributes, low, high)
        return attributes


def _shape(box: Any, low: int, high: int) -> tuple[int, ...]:
    return tuple(stop - start for start, stop in at_block(box, low, high))


@lru_cache(maxsize=16384)
def elementwise(description: Description) -> bool:
    """Is it an element-wise function of operands, not of the index alone?"""
    return bool(description.inputs) and is_elementwise(description)


def ranges(program: Program, step: ComputeStep, variable: int) -> np.ndarray:
    """[devices, 2]: the values of an index variable that each device has."""
    description = descriptions(program.graph)[step.node]
    assert description is not None
    starts, stops = _bounds(program, description, step.node)
    return np.stack([starts[:, variable], stops[:, variable]], axis=1)


def _bounds(program: Program, description: Description, node: int) -> tuple[np.ndarray, np.ndarray]:
    return bounds_of(program.strategy.divisions[node], description.sizes, program.mesh)


def member_of(program: Program, step: ComputeStep, variable: int, device: int) -> Member | None:
    """None where the node cannot be cut along the variable on this device."""
    node, description = program.graph.nodes[step.node], descriptions(program.graph)[step.node]
    way = along(description, variable) if description is not None else None
    if description is None or way is None or not _WEAK.isdisjoint(_dtypes(description)):
        return None
    starts, stops = _bounds(program, description, step.node)
    attributes = tuple(node.attributes.items())
    box = tuple(starts[device].tolist()), tuple(stops[device].tolist())
    piece = _moving(description, attributes, repr(attributes), *box, variable)
    return Member(step, variable, node, description, way, piece) if piece is not None else None


def _dtypes(description: Description) -> set[str]:
    return {item.dtype for item in (*description.inputs, description.output)}


@lru_cache(maxsize=16384)
def _moving(
    description: Description,
    attributes: tuple[tuple[str, Any], ...],
    typed: str,  # 1, 1.0 and True are equal, but not the same attribute
    starts: tuple[int, ...],
    stops: tuple[int, ...],
    variable: int,
) -> PieceCall | None:
    return moving_piece(description, dict(attributes), starts, stops, variable)


def members_of(program: Program, step: BlockStep, device: int) -> list[Member]:
    members = [
        member_of(program, one, variable, device) for one, variable in zip(step.members, step.variables, strict=True)
    ]
    return [member for member in members if member is not None]


@dataclass(frozen=True)
class Registers:
    """Where results of members lie.

    pool: of each piece of memory the member with the largest result that lies there. views: buffers, each a piece of
    memory with the shape and type of a member's result: (number in the pool, member). buffer: by result, the number of
    its view. ends: behind each member, the results that are let go.
    """

    pool: tuple[int, ...]
    views: tuple[tuple[int, int], ...]
    buffer: dict[str, int]
    ends: tuple[tuple[str, ...], ...]


@dataclass
class _Held:
    """A storage while it is in use. names: the results that lie in it. memory: its number in the pool."""

    names: list[str] = field(default_factory=list)
    memory: int | None = None
    last: int = -1


class _Pool:
    """Memory for results, of the members of one device."""

    def __init__(self, members: list[Member]) -> None:
        self.members = members
        self.largest: list[int] = []
        self.sizes: list[int] = []  # bytes for each value of the variable
        self.spare: list[int] = []
        self.views: list[tuple[int, int]] = []
        self.known: dict[tuple[Any, ...], int] = {}

    def taken(self, position: int) -> int:
        """Memory for a member's result: of what is spare the smallest that is large enough, else the largest, which
        grows."""
        size = self.members[position].result_bytes(0, 1)
        if not self.spare:
            self.largest.append(position)
            self.sizes.append(size)
            return len(self.sizes) - 1
        enough = [number for number in self.spare if self.sizes[number] >= size]
        register = min(enough, key=self.sizes.__getitem__) if enough else max(self.spare, key=self.sizes.__getitem__)
        self.spare.remove(register)
        if size > self.sizes[register]:
            self.largest[register], self.sizes[register] = position, size
        return register

    def view(self, memory: int, position: int) -> int:
        """The number of the buffer with the shape and type of a member's result."""
        member = self.members[position]
        kind = memory, _shape(member.piece.output, 0, 1), member.way.made, member.description.output.dtype
        if kind not in self.known:
            self.known[kind] = len(self.views)
            self.views.append((memory, position))
        return self.known[kind]


def registers(members: list[Member], writes: tuple[str, ...]) -> Registers:
    """Share memory among the members of one device. writes: what leaves the group."""
    held = _storages(members, writes)
    pool = _Pool(members)
    buffer: dict[str, int] = {}
    ends: list[tuple[str, ...]] = []
    for position, member in enumerate(members):
        own = held.get(member.write)
        if member.kind == "into" and member.write not in writes and own is not None:
            own.memory = _in_place(member, position, held)
            if own.memory is None:
                own.memory = pool.taken(position)
            buffer[member.write] = pool.view(own.memory, position)
        over = {id(item): item for item in held.values() if item.last == position}
        ends.append(tuple(name for item in over.values() for name in item.names))
        for item in over.values():
            if item.memory is not None and (own is None or item is own or item.memory != own.memory):
                pool.spare.append(item.memory)
    return Registers(tuple(pool.largest), tuple(pool.views), buffer, tuple(ends))


def _storages(members: list[Member], writes: tuple[str, ...]) -> dict[str, _Held]:
    """By result the storage that it lies in, with its last reader; of what lies outside there is none."""
    held: dict[str, _Held] = {}
    for position, member in enumerate(members):
        for part in member.step.reads:
            if part.buffer in held:
                held[part.buffer].last = position
        kind = member.kind
        if kind == "view":
            base = held.get(member.step.reads[0].buffer)
            if base is not None:
                held[member.write] = base
                base.names.append(member.write)
                base.last = position
        elif kind != "reduced" and not (kind == "into" and member.write in writes):
            held[member.write] = _Held([member.write], None, position)
    return held


def _in_place(member: Member, position: int, held: dict[str, _Held]) -> int | None:
    """The memory of an operand that ends here, is read as it is, and has the shape and type of the result."""
    output = member.description.output
    for number, part in enumerate(member.step.reads):
        item = held.get(part.buffer)
        if item is None or item.memory is None or item.last != position or item.names[0] != part.buffer:
            continue
        if member.description.inputs[number] != output or member.piece.regions[number] != member.piece.output:
            continue
        readers = [one for one in member.step.reads if held.get(one.buffer) is item]
        if all(one.buffer == part.buffer for one in readers):
            return item.memory
    return None


def row_bytes(members: list[Member], writes: tuple[str, ...]) -> int:
    """Bytes that pass through the cache for each value of the variable: buffers, results, operands from outside, each
    at the first member that reads so much of it."""
    registered = registers(members, writes)
    inside = {member.write for member in members}
    total = sum(members[first].result_bytes(0, 1) for first in registered.pool)
    largest, outside = 0, dict[str, int]()
    for member in members:
        size = 0 if member.kind in ("view", "reduced") else member.result_bytes(0, 1)
        for number, part in enumerate(member.step.reads):
            if part.buffer not in inside and member.way.read[number] != -1:
                read = member.read_bytes(number, 0, 1)
                size += max(0, read - outside.get(part.buffer, 0))
                outside[part.buffer] = max(read, outside.get(part.buffer, 0))
        largest = max(largest, size)
    return max(total + largest, 1)
