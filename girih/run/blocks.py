"""A group of nodes, block by block: its members become the lines of one small Python function, compiled once.

Between two kernels that take some microseconds an interpreter of instructions would take as long as they do. So the
loop over the blocks is written out: slices of what comes from outside, one call for each member, into buffers that all
blocks use again (`girih.lower.registers`), sums over the blocks. `Block.source` is its text.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping
from functools import cache
from time import perf_counter
from typing import Any

import torch

from girih.graph.graph import ITEM_BYTES
from girih.lower import BlockStep, Program
from girih.lower.along import Moving, at_block
from girih.lower.registers import Member, members_of, ranges, registers
from girih.ops.evaluate import resolve
from girih.run.compute import KERNELS, Hole, Slots, bind
from girih.run.elsewhere import in_memory, mapped
from girih.run.errors import MemberError
from girih.run.parts import Cuts, Tensor, held_box, narrow, shape_of
from girih.run.transfers import COMBINE

FILE = "<girih blocks>"
WIDE = {"float32": torch.float64, "float16": torch.float32, "bfloat16": torch.float32}
"""In what sums over blocks are kept: there may be very many blocks."""


class Block:
    """Run a group: the instruction of a BlockStep on one device."""

    __slots__ = (
        "_code", "_dtypes", "_files", "_outside", "_pool", "_rows", "_shapes", "_span", "_text", "device", "writes",
    )  # fmt: skip

    def __init__(self, program: Program, step: BlockStep, rank: int, slot_of: Mapping[str, int], device: Any) -> None:
        self.device = device
        text = _Text(program, step, rank)
        self._text = text
        self._code = text.compiled()
        low, high = ranges(program, step.members[0], step.variables[0])[rank].tolist()
        self._rows = min(step.rows, high - low)
        whole = (high - low) // self._rows * self._rows
        self._span = (low, low + whole, high)
        self.writes = [(slot_of[name], name) for name in step.writes]
        self._dtypes = {
            name: getattr(torch, program.graph.values[program.value_of[name]].dtype) for name in step.writes
        }
        self._shapes = {name: shape_of(held_box(program, name, program.places[name], rank)) for name in step.writes}
        self._pool = [text.members[first] for first in text.registers.pool]
        self._outside = [(slot_of[name], cuts) for name, cuts in text.outside]
        self._files = program.files

    @property
    def source(self) -> str:
        return self._text.source

    def run(self, slots: Slots, seconds: list[float]) -> None:
        began = perf_counter()
        outside = [narrow(slots[slot], cuts) for slot, cuts in self._outside]
        for number in self._text.fixed:  # what all blocks read alike is read once
            outside[number] = in_memory(outside[number])
        made = {name: self._made(name) for name in self._text.direct}
        low, middle, high = self._span
        sums: list[Tensor | None] = [None] * len(self._text.sums)
        sizes = [(low, middle, self._rows)] + ([(middle, high, high - middle)] if high > middle else [])
        memory = [self._memory(member) for member in self._pool]
        for first, last, rows in sizes:
            buffers = [self._buffer(item, member, first, rows) for item, member in zip(memory, self._pool, strict=True)]
            try:
                sums = self._code(range(first, last, rows), rows, outside, list(made.values()), buffers, sums)
            except Exception as error:
                raise MemberError(self._text.failed(error)) from error
        for name, total in zip(self._text.sums, sums, strict=True):
            made[name] = total.to(self._dtypes[name])  # type: ignore[union-attr]
        for slot, name in self.writes:
            slots[slot] = made[name]
        seconds[KERNELS] += perf_counter() - began

    def _made(self, name: str) -> Tensor:
        shape, dtype = self._shapes[name], self._dtypes[name]
        if name in self._files:
            return mapped(shape, dtype)
        return torch.empty(shape, dtype=dtype, device=self.device)

    def _memory(self, member: Member) -> Tensor:
        low = self._span[0]
        size = member.result_bytes(low, low + self._rows)
        return torch.empty(size, dtype=torch.uint8, device=self.device)

    def _buffer(self, memory: Tensor, member: Member, low: int, rows: int) -> Tensor:
        shape = shape_of(at_block(member.piece.output, low, low + rows))
        dtype = member.description.output.dtype
        return memory[: math.prod(shape) * ITEM_BYTES[dtype]].view(getattr(torch, dtype)).view(shape)


class _Text:
    """The function of a group on one device. outside: buffers that are read, with what of them never moves cut out.
    direct: results that the members write where they belong; sums: those that are combined over the blocks."""

    def __init__(self, program: Program, step: BlockStep, rank: int) -> None:
        self.program = program
        self.rank = rank
        self.members = members_of(program, step, rank)
        self.registers = registers(self.members, step.writes)
        self.direct = [m.write for m in self.members if m.write in step.writes and m.kind != "reduced"]
        self.sums = [m.write for m in self.members if m.kind == "reduced"]
        self.outside: list[tuple[str, Cuts]] = []
        self.fixed: set[int] = set()
        self.given: dict[str, Any] = {}
        self.local: dict[str, tuple[str, Any]] = {}  # by buffer the name of its block, and its box
        self.slices: dict[str, str] = {}
        self.lines: list[str] = []
        self.line_of: list[int] = []
        for number, (member, ends) in enumerate(zip(self.members, self.registers.ends, strict=True)):
            self.member(number, member, ends)

    def add(self, line: str, number: int) -> None:
        self.lines.append(line)
        self.line_of.append(number)

    def constant(self, value: Any, name: str = "k") -> str:
        key = f"{name}{len(self.given)}"
        self.given[key] = value
        return key

    # ------------------------------------------------------------------------------------------- lines

    def member(self, number: int, member: Member, ends: tuple[str, ...]) -> None:
        operands = [self.operand(number, member, position) for position in range(len(member.step.reads))]
        holes = [Hole(position) for position in range(len(operands))]
        function, arguments, options = bind(member.piece.operator, member.piece.arguments(holes), torch.device("cpu"))
        if member.kind == "into":
            self.into(number, member, function, arguments, options, operands)
        else:
            call = self.call(function, arguments, options, operands)
            call += "" if member.piece.result is None else f"[{member.piece.result}]"
            self.made(number, member, call)
        for name in ends:
            block, _ = self.local[name]
            if block.startswith("t"):
                self.add(f"{block} = None", number)

    def into(self, number: int, member: Member, function: Any, arguments: list[Any], options: dict[str, Any],
             operands: list[str]) -> None:  # fmt: skip
        name = member.write
        target = f"b{self.registers.buffer[name]}" if name in self.registers.buffer else self.target(number, member)
        self.local[name] = (target, member.piece.output)
        plain = direct(member, function, arguments, options)
        if plain is not None:
            self.add(self.call(plain, arguments, options, operands, target), number)
        elif member.piece.operator == "aten._to_copy" and set(options) <= {"dtype"}:
            self.add(f"{target}.copy_({operands[0]})", number)
        else:
            self.add(f"{target}.copy_({self.call(function, arguments, options, operands)})", number)

    def made(self, number: int, member: Member, call: str) -> None:
        name = member.write
        self.add(f"t{number} = {call}", number)
        self.local[name] = (f"t{number}", member.piece.output)
        if member.kind == "reduced":
            place, dtype = self.sums.index(name), member.description.output.dtype
            if member.description.reducer == "sum" and dtype in WIDE:
                self.add(f"t{number} = t{number}.to({self.constant(WIDE[dtype])})", number)
            combine = self.constant(COMBINE[str(member.description.reducer)], "combine")
            self.add(f"if a{place} is None: a{place} = t{number}", number)
            self.add(f"else: {combine}(a{place}, t{number})", number)
            self.add(f"t{number} = None", number)
        elif name in self.direct:
            self.add(f"{self.target(number, member)}.copy_(t{number})", number)

    def target(self, number: int, member: Member) -> str:
        """The block of a result that leaves the group, in its place."""
        held = held_box(self.program, member.write, self.program.places[member.write], self.rank)
        whole = f"w{self.direct.index(member.write)}"
        self.add(f"o{number} = {_cut(whole, member.piece.output, held)}", number)
        return f"o{number}"

    # ------------------------------------------------------------------------------------------- operands

    def operand(self, number: int, member: Member, position: int) -> str:
        buffer, region = member.step.reads[position].buffer, member.piece.regions[position]
        if member.piece.names[position] is None:
            return "None"
        if buffer in self.local:
            block, held = self.local[buffer]
            return _cut(block, region, held)
        held = held_box(self.program, buffer, self.program.places[buffer], self.rank)
        fixed = tuple(
            (dimension, start - first, stop - start)
            for dimension, ((start, stop), (first, last)) in enumerate(zip(region, held, strict=True))
            if type(start) is int and type(stop) is int and (start, stop) != (first, last)
        )
        if (buffer, fixed) not in self.outside:
            self.outside.append((buffer, fixed))
        left = tuple(
            own if type(own[0]) is int and type(own[1]) is int else other
            for own, other in zip(region, held, strict=True)
        )
        number_outside = self.outside.index((buffer, fixed))
        text = _cut(f"x{number_outside}", region, left)
        if buffer in self.program.streamed:
            text = self.streamed(text, number_outside)
        if text not in self.slices:
            self.slices[text] = f"e{len(self.slices)}"
            self.add(f"{self.slices[text]} = {text}", number)
        return self.slices[text]

    def streamed(self, text: str, number: int) -> str:
        """The block of a source, read when it has been cut; once for all blocks where it is fixed."""
        if text == f"x{number}":
            self.fixed.add(number)
        return f"{self.constant(in_memory, 'read')}({text})"

    def call(self, function: Any, arguments: list[Any], options: dict[str, Any], operands: list[str],
             out: str | None = None) -> str:  # fmt: skip
        parts = [self.argument(item, operands) for item in arguments]
        parts += [f"{name}={self.argument(item, operands)}" for name, item in options.items()]
        parts += [f"out={out}"] if out else []
        return f"{self.constant(function, _name_of(function))}({', '.join(parts)})"

    def argument(self, item: Any, operands: list[str]) -> str:
        if isinstance(item, Hole):
            return operands[item.number]
        if isinstance(item, Moving):
            return _number(item)
        if isinstance(item, list):
            return f"[{', '.join(self.argument(part, operands) for part in item)}]"
        return repr(item) if item is None or type(item) in (int, bool, str) else self.constant(item)

    # ------------------------------------------------------------------------------------------- the function

    @property
    def source(self) -> str:
        outside, whole = len(self.outside), len(self.direct)
        body = "\n".join(f"        {line}" for line in self.lines)
        names = [("x", outside, "outside"), ("w", whole, "made"), ("b", len(self.registers.pool), "buffers"),
                 ("a", len(self.sums), "sums")]  # fmt: skip
        taken = "\n".join(
            f"    {''.join(f'{letter}{number}, ' for number in range(count))}= {group}"
            for letter, count, group in names
            if count
        )
        sums = ", ".join(f"a{number}" for number in range(len(self.sums)))
        return (
            f"def run(span, rows, outside, made, buffers, sums):\n{taken}\n    for low in span:\n"
            f"        high = low + rows\n{body}\n    return [{sums}]\n"
        )

    def failed(self, error: BaseException) -> int:
        """The node whose line an error came from."""
        before = len(self.source.partition("        high = low + rows\n")[0].splitlines()) + 1
        lines = [item.lineno or 0 for item in traceback.extract_tb(error.__traceback__) if item.filename == FILE]
        member = self.line_of[lines[0] - before - 1] if lines and lines[0] > before else -1
        return self.members[member].step.node

    def compiled(self) -> Callable[..., list[Tensor | None]]:
        known = dict(self.given)
        exec(compile(self.source, FILE, "exec"), known)
        return known["run"]  # type: ignore[no-any-return]


def _name_of(function: Any) -> str:
    name = str(getattr(function, "__name__", "f")).partition(".")[0]
    return f"{name}_" if name.isidentifier() else "f"


def _number(item: Any, less: int = 0) -> str:
    """A number of the block as an expression in `low` and `high`."""
    if not isinstance(item, Moving):
        return str(item - less)
    terms = [(item.by_low, "low"), (item.by_high, "high")]
    text = " + ".join(name if factor == 1 else f"{factor} * {name}" for factor, name in terms if factor)
    constant = item.constant - less
    return f"{text} + {constant}" if constant > 0 else f"{text} - {-constant}" if constant < 0 else text


def _cut(tensor: str, region: Any, held: Any) -> str:
    """The region of a tensor that holds a box, both in the coordinates of the whole value."""
    for dimension, (own, other) in enumerate(zip(region, held, strict=True)):
        if own == other:
            continue
        first = other[0] if type(other[0]) is int else None
        if first is None:
            raise ValueError(f"a block {own} is read from a block {other}")
        start, stop = _number(own[0], first), _number(own[1], first)
        if dimension == 0:
            tensor = f"{tensor}[{start}:{stop}]"
        else:
            tensor = f"{tensor}.narrow({dimension}, {start}, ({stop}) - ({start}))"
    return tensor


def direct(member: Member, function: Any, arguments: list[Any], options: dict[str, Any]) -> Callable[..., Any] | None:
    """The function that writes an element-wise result into memory that is given, if PyTorch has it."""
    name = member.piece.operator.split(".")[1]
    found = getattr(torch, name, None) if member.piece.operator.startswith("aten.") else None
    if found is None or any(isinstance(item, (list, Moving)) for item in (*arguments, *options.values())):
        return None
    dtypes = tuple(item.dtype for item in member.description.inputs)
    given = tuple((type(item), item) for item in arguments)
    if not _writes(name, member.piece.operator, dtypes, given, tuple(options.items()), member.description.output.dtype):
        return None
    return found  # type: ignore[no-any-return]


@cache
def _writes(
    name: str,
    operator: str,
    dtypes: tuple[str, ...],
    arguments: tuple[tuple[type, Any], ...],
    options: tuple[tuple[str, Any], ...],
    dtype: str,
) -> bool:
    """Does `torch.name` take `out`, and make what the operator makes? Tried on one element."""
    ones = [torch.ones(1, dtype=getattr(torch, item)) for item in dtypes]
    given = [ones[item.number] if isinstance(item, Hole) else item for _, item in arguments]
    out = torch.zeros(1, dtype=getattr(torch, dtype))
    try:
        expected = resolve(operator)(*given, **dict(options))
        getattr(torch, name)(*given, **dict(options), out=out)
    except (TypeError, RuntimeError, ValueError):
        return False
    return bool(expected.dtype == out.dtype) and bool(torch.equal(expected, out) or expected.isnan().all())
