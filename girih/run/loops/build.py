"""From a BlockStep on one device to the form of its loop.

Each member becomes one call, on slices of what comes from outside and of what other members made. Element-wise results
go into buffers that all blocks use again (`girih.program.fusion.registers`), or where they belong if they leave the
group; what other kernels make is freed behind its last reader. Cost: linear in the members.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from girih.kernels.evaluate import resolve
from girih.kernels.exact import INTO_KERNELS
from girih.ops.derive.kinds import is_product
from girih.program import BlockStep, Program
from girih.program.fusion.block_memory import kept_as
from girih.program.fusion.registers import Member, members_of, ranges, registers
from girih.program.fusion.slicing import Moving, Number, difference
from girih.run.loops.form import (
    Accumulate,
    Argument,
    Copy,
    Free,
    KernelLine,
    LoopForm,
    Outside,
    Read,
    Result,
    Reused,
    Shape,
    Slice,
    Statement,
    Total,
    View,
)
from girih.run.worker.compute import Hole, bind
from girih.run.worker.parts import Cuts, held_box, shape_of

Region = tuple[tuple[Number, Number], ...]
"""(start, stop) of each dimension, in the coordinates of the whole value."""


def build(program: Program, step: BlockStep, rank: int) -> LoopForm:
    """The loop of a group on one device."""
    return _FormBuilder(program, step, rank).form()


class _FormBuilder:
    """The statements so far. local: by buffer that a member made, its register, and the region that this holds."""

    def __init__(self, program: Program, step: BlockStep, rank: int) -> None:
        self.program = program
        self.rank = rank
        self.members = members_of(program, step, rank)
        self.registers = registers(self.members, step.writes)
        low, high = ranges(program, step.members[0], step.variables[0])[rank].tolist()
        self.span = low, high
        self.rows = min(step.rows, high - low)
        self.totals = [m.write for m in self.members if m.kind == "reduced"]
        self.results = [m.write for m in self.members if m.write in step.writes and m.kind != "reduced"]
        self.outside: dict[tuple[str, Cuts], tuple[int, ...]] = {}  # the shape
        self.once: set[str] = set()
        self.local: dict[str, tuple[str, Region]] = {}
        self.named: dict[Slice, str] = {}  # registers of slices from outside
        self.read: list[str] = []  # registers in which blocks of files are held
        self.body: list[Statement] = []

    def form(self) -> LoopForm:
        for number, (member, ends) in enumerate(zip(self.members, self.registers.ends, strict=True)):
            self.member(number, member)
            self.body += [Free(name) for name, _ in map(self.local.__getitem__, ends) if name[0] == "t"]
        self.body += [Free(name) for name in reversed(self.read)]  # before the next block is read
        low, high = self.span[0], self.span[0] + self.rows
        return LoopForm(
            self.span,
            self.rows,
            tuple(
                Outside(buffer, cuts, shape, self.dtype(buffer), f"x{number}" in self.once)
                for number, ((buffer, cuts), shape) in enumerate(self.outside.items())
            ),
            tuple(Result(name, shape_of(self.held(name)), self.dtype(name)) for name in self.results),
            tuple(self.members[largest].result_bytes(low, high) for largest in self.registers.pool),
            tuple(self.buffer(memory, self.members[number]) for memory, number in self.registers.views),
            tuple(
                Total(m.write, shape_of(self.held(m.write)), self.dtype(m.write), str(m.description.reducer))
                for m in self.members
                if m.kind == "reduced"
            ),
            tuple(self.body),
            any(is_product(member.description) for member in self.members),
        )

    def buffer(self, memory: int, member: Member) -> Reused:
        return Reused(memory, _shape(member.piece.output), member.description.output.dtype)

    def held(self, buffer: str) -> Any:
        return held_box(self.program, buffer, self.program.places[buffer], self.rank)

    def dtype(self, buffer: str) -> str:
        return self.program.graph.values[self.program.value_of[buffer]].dtype

    # ------------------------------------------------------------------------------------------- members

    def member(self, number: int, member: Member) -> None:
        node, output = member.step.node, member.piece.output
        operands = [self.operand(member, position) for position in range(len(member.step.reads))]
        holes = [Hole(position) for position in range(len(operands))]
        _, arguments, options = bind(member.piece.operator, member.piece.arguments(holes), torch.device("cpu"))
        first = operands[0] if operands else None
        into = self.target(number, member) if member.kind == "into" else None
        if into is not None and member.piece.operator == "aten._to_copy" and set(options) <= {"dtype"}:
            assert first is not None
            self.body.append(Copy(node, into, first))
            self.local[member.write] = into, output
            return
        direct = into is not None and takes_out(member, arguments, options)
        register = into if into is not None and direct else f"t{number}"
        if first is not None and is_whole_slice(member):
            self.body.append(View(node, register, first))
        else:
            self.body.append(
                KernelLine(
                    node,
                    register,
                    member.piece.operator,
                    tuple(_filled(item, operands) for item in arguments),
                    tuple((name, _filled(item, operands)) for name, item in options.items()),
                    _shape(output),
                    member.description.output.dtype,
                    into=direct,
                    view=member.kind == "view",
                    item=member.piece.result,
                )
            )
        self.local[member.write] = into or register, output
        if member.kind == "reduced":
            kept = kept_as(member)
            wider = None if kept == member.description.output.dtype else kept
            total = f"a{self.totals.index(member.write)}"
            self.body.append(Accumulate(node, total, register, str(member.description.reducer), wider))
            self.body.append(Free(register))
        elif into is not None and not direct:
            self.body += [Copy(node, into, Slice(register)), Free(register)]
        elif into is None and member.write in self.results:
            self.body.append(Copy(node, self.result(number, member), Slice(register)))
        if member.kind == "view" and first is not None and first.register in self.read:
            self.read.append(register)

    def target(self, number: int, member: Member) -> str:
        """The register into which an element-wise result is written."""
        buffer = self.registers.buffer.get(member.write)
        return self.result(number, member) if buffer is None else f"b{buffer}"

    def result(self, number: int, member: Member) -> str:
        """The block of a result that leaves the group, in its place."""
        whole, output = f"w{self.results.index(member.write)}", member.piece.output
        self.body.append(View(member.step.node, f"o{number}", _cut(whole, output, self.held(member.write))))
        return f"o{number}"

    # ------------------------------------------------------------------------------------------- operands

    def operand(self, member: Member, position: int) -> Slice | None:
        """What a member reads; None where its kernel does not want it."""
        buffer, region = member.step.reads[position].buffer, member.piece.regions[position]
        if member.piece.names[position] is None:
            return None
        if buffer in self.local:
            return _cut(self.local[buffer][0], region, self.local[buffer][1])
        held = self.held(buffer)
        # What does not move is cut out before the loop, and the rest for each block.
        fixed = [all(type(end) is int for end in ends) for ends in region]
        cuts = tuple(
            (dimension, ends[0] - first, ends[1] - ends[0])
            for dimension, (ends, (first, last)) in enumerate(zip(region, held, strict=True))
            if fixed[dimension] and ends != (first, last)
        )
        left = tuple(own if same else other for own, other, same in zip(region, held, fixed, strict=True))
        self.outside.setdefault((buffer, cuts), shape_of(left))
        source = _cut(f"x{list(self.outside).index((buffer, cuts))}", region, left)
        streamed = buffer in self.program.streamed
        if not source.cuts:
            self.once.update([source.register] if streamed else [])
            return source
        if source not in self.named:
            name = self.named[source] = f"e{len(self.named)}"
            self.body.append((Read if streamed else View)(member.step.node, name, source))
            self.read += [name] if streamed else []
        return Slice(self.named[source])


def _filled(item: Any, operands: list[Slice | None]) -> Argument:
    """An argument with slices in the place of holes."""
    if isinstance(item, Hole):
        return operands[item.number]
    return tuple(_filled(part, operands) for part in item) if isinstance(item, list) else item


def _shape(region: Any) -> Shape:
    return tuple(difference(stop, start) for start, stop in region)


def _cut(register: str, region: Region, held: Region) -> Slice:
    """The region, of a register that holds another one."""
    cuts = []
    for dimension, (own, other) in enumerate(zip(region, held, strict=True)):
        if own != other:
            if type(other[0]) is not int:
                raise ValueError(f"a block {own} is read from a block {other}")
            cuts.append((dimension, difference(own[0], other[0]), difference(own[1], other[0])))
    return Slice(register, tuple(cuts))


def is_whole_slice(member: Member) -> bool:
    """Is it a slice of all of what has been cut out for it?"""
    if member.piece.operator != "aten.slice.Tensor":
        return False
    attributes = member.piece.attributes
    start, stop = member.piece.output[attributes["dim"]]
    length = difference(stop, start)
    return (attributes["start"], attributes.get("step", 1)) == (0, 1) and attributes["end"] in (None, length)


def takes_out(member: Member, arguments: list[Any], options: dict[str, Any]) -> bool:
    """May PyTorch's kernel write an element-wise result into memory that is there?"""
    if any(isinstance(item, (list, Moving)) for item in (*arguments, *options.values())):
        return False
    dtypes = tuple(item.dtype for item in member.description.inputs)
    typed = tuple((type(item), item) for item in arguments)  # 1, 1.0 and True are equal, but not the same argument
    return _takes_out(member.piece.operator, dtypes, typed, tuple(options.items()), member.description.output.dtype)


@cache
def _takes_out(
    operator: str,
    dtypes: tuple[str, ...],
    arguments: tuple[tuple[type, Any], ...],
    options: tuple[tuple[str, Any], ...],
    dtype: str,
) -> bool:
    """Does `torch.name`, or girih's function, take `out`, and compute what the operator does? Tried on one element."""
    space, name, *_ = operator.split(".")
    function = getattr(torch, name, None) if space == "aten" else INTO_KERNELS.get(operator)
    if function is None:
        return False
    ones = [torch.ones(1, dtype=getattr(torch, item)) for item in dtypes]
    tensors = [ones[item.number] if isinstance(item, Hole) else item for _, item in arguments]
    out = torch.zeros(1, dtype=getattr(torch, dtype))
    try:
        expected = resolve(operator)(*tensors, **dict(options))
        function(*tensors, **dict(options), out=out)
    except (TypeError, RuntimeError, ValueError):
        return False
    return bool(expected.dtype == out.dtype) and bool(torch.equal(expected, out) or expected.isnan().all())
