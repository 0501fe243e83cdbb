"""The text of a group's function: its members as lines, which Python compiles, and TorchScript where it can.

Slices of what comes from outside, one call for each member, into buffers that all blocks use again
(`girih.lower.fusion.registers`), sums over the blocks.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from girih.kernels.evaluate import resolve
from girih.kernels.exact import EXACT_KERNELS
from girih.kernels.products import PRODUCTS, SCRIPT_NAME, is_long
from girih.kernels.scripted import SCRIPT, SCRIPTED_KERNELS
from girih.lower import BlockStep, Program
from girih.lower.fusion.block_memory import kept_as
from girih.lower.fusion.registers import Member, members_of, ranges, registers
from girih.lower.fusion.slicing import Moving
from girih.run.tiles.spill import in_memory
from girih.run.worker.compute import Hole, bind
from girih.run.worker.parts import Cuts, Tensor, held_box

FILE = "<girih blocks>"
COMBINED = {
    "sum": "{total}.add_({part})",
    "prod": "{total}.mul_({part})",
    "max": "{maximum}({total}, {part}, out={total})",
    "min": "{minimum}({total}, {part}, out={total})",
    "logsumexp": "{logaddexp}({total}, {part}, out={total})",
}
LOOP = "        high = low + rows\n"
Region = tuple[tuple[int | Moving, int | Moving], ...]
"""(start, stop) of each dimension."""


class Text:
    """The function of a group on one device. outside: buffers that are read, with what of them never moves cut out.
    direct: results that the members write where they belong; sums: those that are combined over the blocks, by
    reducers. reached: by number of what is read from outside, regions of it that blocks read; filled: by number of a
    direct result, the one that blocks write; both in its own coordinates, with numbers that move."""

    def __init__(self, program: Program, step: BlockStep, rank: int) -> None:
        self.program = program
        self.rank = rank
        self.members = members_of(program, step, rank)
        low, high = ranges(program, step.members[0], step.variables[0])[rank].tolist()
        self.block = (low, min(high, low + step.rows))  # the first
        self.registers = registers(self.members, step.writes)
        self.direct = [m.write for m in self.members if m.write in step.writes and m.kind != "reduced"]
        self.sums = [m.write for m in self.members if m.kind == "reduced"]
        self.reducers = [str(m.description.reducer) for m in self.members if m.kind == "reduced"]
        self.outside: list[tuple[str, Cuts]] = []
        self.reached: list[list[Region]] = []
        self.filled: dict[int, Region] = {}
        self.fixed: set[int] = set()
        self.given: dict[str, Any] = {}
        self.scripts: dict[str, str | None] = {}  # by name in `given`, what it is in TorchScript
        self.local: dict[str, tuple[str, Any]] = {}  # by buffer the name of its block, and its box
        self.slices: dict[str, str] = {}
        self.read: list[str] = []
        self.lines: list[str] = []
        self.line_of: list[int] = []
        for number, (member, ends) in enumerate(zip(self.members, self.registers.ends, strict=True)):
            self.member(number, member, ends)
        for name in self.read:  # before the next block is read
            self.add(f"{name} = None", len(self.members) - 1)

    def add(self, line: str, number: int) -> None:
        self.lines.append(line)
        self.line_of.append(number)

    def constant(self, value: Any, name: str = "k", script: str | None = None) -> str:
        key = f"{name}{len(self.given)}"
        self.given[key] = value
        if script is None and isinstance(value, (float, torch.dtype)):
            script = f'float("{value}")' if isinstance(value, float) else str(value)
        self.scripts[key] = script
        return key

    # ------------------------------------------------------------------------------------------- lines

    def member(self, number: int, member: Member, ends: tuple[str, ...]) -> None:
        operands = [self.operand(number, member, position) for position in range(len(member.step.reads))]
        holes = [Hole(position) for position in range(len(operands))]
        function, arguments, options = bind(member.piece.operator, member.piece.arguments(holes), torch.device("cpu"))
        if member.kind == "into":
            self.into(number, member, function, arguments, options, operands)
        else:
            whole = whole_slice(member)
            call = operands[0] if whole else self.call(member, function, arguments, options, operands)
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
            self.add(self.call(member, plain, arguments, options, operands, target), number)
        elif member.piece.operator == "aten._to_copy" and set(options) <= {"dtype"}:
            self.add(f"{target}.copy_({operands[0]})", number)
        else:
            self.add(f"{target}.copy_({self.call(member, function, arguments, options, operands)})", number)

    def made(self, number: int, member: Member, call: str) -> None:
        name = member.write
        self.add(f"t{number} = {call}", number)
        self.local[name] = (f"t{number}", member.piece.output)
        if member.kind == "reduced":
            place, kept = self.sums.index(name), kept_as(member)
            if kept != member.description.output.dtype:
                self.add(f"t{number} = t{number}.to({self.constant(getattr(torch, kept))})", number)
            names = {
                name: self.constant(getattr(torch, name), name, f"torch.{name}")
                for name in ("maximum", "minimum", "logaddexp")
                if f"{{{name}}}" in COMBINED[str(member.description.reducer)]
            }
            combined = COMBINED[str(member.description.reducer)].format(total=f"a{place}", part=f"t{number}", **names)
            for line in (f"if a{place} is None:", f"    a{place} = t{number}", "else:", f"    {combined}"):
                self.add(line, number)
            self.add(f"t{number} = None", number)
        elif name in self.direct:
            self.add(f"{self.target(number, member)}.copy_(t{number})", number)

    def target(self, number: int, member: Member) -> str:
        """The block of a result that leaves the group, in its place."""
        held = held_box(self.program, member.write, self.program.places[member.write], self.rank)
        place = self.direct.index(member.write)
        self.filled[place] = _inside(member.piece.output, held)
        self.add(f"o{number} = {_cut(f'w{place}', member.piece.output, held)}", number)
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
            self.reached.append([])
        left = tuple(
            own if type(own[0]) is int and type(own[1]) is int else other
            for own, other in zip(region, held, strict=True)
        )
        number_outside = self.outside.index((buffer, fixed))
        self.reached[number_outside].append(_inside(region, left))
        text = _cut(f"x{number_outside}", region, left)
        if buffer in self.program.streamed:
            text = self.streamed(text, number_outside)
        if text not in self.slices:
            self.slices[text] = f"e{len(self.slices)}"
            self.add(f"{self.slices[text]} = {text}", number)
            if buffer in self.program.streamed and number_outside not in self.fixed:
                self.read.append(self.slices[text])
        return self.slices[text]

    def streamed(self, text: str, number: int) -> str:
        """The block of a source, read when it has been cut; once for all blocks where it is fixed."""
        if text == f"x{number}":
            self.fixed.add(number)
        self.given["read"] = in_memory
        self.scripts["read"] = None
        return f"read({text})"

    def call(self, member: Member, function: Any, arguments: list[Any], options: dict[str, Any], operands: list[str],
             out: str | None = None) -> str:  # fmt: skip
        parts = [self.argument(item, operands) for item in arguments]
        parts += [f"{name}={self.argument(item, operands)}" for name, item in options.items()]
        parts += [f"out={out}"] if out else []
        space, name, *_ = member.piece.operator.split(".")
        own = name if member.piece.operator in SCRIPTED_KERNELS else None
        script = f"torch.ops.{space}.{name}" if space == "aten" or member.piece.operator in EXACT_KERNELS else own
        if member.piece.operator in PRODUCTS and self.is_long(member):
            script = SCRIPT_NAME
        return f"{self.constant(function, f'{name}_', script)}({', '.join(parts)})"

    def is_long(self, member: Member) -> bool:
        """Of a product's blocks."""
        return is_long(member.result_shape(*self.block), member.read_shape(0, *self.block)[-1])

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
        names = [("x", outside, "outside"), ("w", whole, "made"), ("b", len(self.registers.views), "buffers"),
                 ("a", len(self.sums), "sums")]  # fmt: skip
        taken = "\n".join(
            f"    {''.join(f'{letter}{number}, ' for number in range(count))}= {group}"
            for letter, count, group in names
            if count
        )
        sums = ", ".join(f"a{number}" for number in range(len(self.sums)))
        return (
            f"def run(first, last, rows, outside, made, buffers, sums):\n{taken}\n"
            f"    for low in range(first, last, rows):\n{LOOP}{body}\n    return [{sums}]\n"
        )

    @property
    def script(self) -> str | None:
        """The same in TorchScript; None where a member is a function that it does not know."""
        if any(name is None for name in self.scripts.values()):
            return None
        lists = [("x", len(self.outside), "outside"), ("w", len(self.direct), "made"),
                 ("b", len(self.registers.views), "buffers"), ("a", len(self.sums), "sums")]  # fmt: skip
        taken = [
            f"    {letter}{number} = {group}[{number}]" for letter, count, group in lists for number in range(count)
        ]
        names = re.compile(rf"\b({'|'.join(self.scripts)})\b") if self.scripts else re.compile("(?!)")
        body = [names.sub(lambda found: str(self.scripts[found[0]]), line) for line in self.lines]
        sums = ", ".join(f"a{number}" for number in range(len(self.sums)))
        own = any(member.piece.operator in SCRIPTED_KERNELS for member in self.members)
        return "\n".join(
            (
                *([SCRIPT] if own else []),
                "def run(first: int, last: int, rows: int, outside: List[Tensor], made: List[Tensor],"
                " buffers: List[Tensor], sums: List[Optional[Tensor]]) -> List[Optional[Tensor]]:",
                *taken,
                "    for low in range(first, last, rows):",
                "        high = low + rows",
                *(f"        {line}" for line in body if not line.endswith("= None")),
                f"    return [{sums}]" if sums else "    return sums",
                "",
            )
        )

    def failed(self, error: BaseException) -> int:
        """The node whose line an error came from."""
        before = len(self.source.partition(LOOP)[0].splitlines()) + 1
        lines = [item.lineno or 0 for item in traceback.extract_tb(error.__traceback__) if item.filename == FILE]
        member = self.line_of[lines[0] - before - 1] if lines and lines[0] > before else -1
        return self.members[member].step.node

    def compiled(self) -> Callable[..., list[Tensor | None]]:
        known = dict(self.given)
        exec(compile(self.source, FILE, "exec"), known)
        return known["run"]  # type: ignore[no-any-return]


def _inside(region: Any, held: Any) -> Region:
    """A region in the coordinates of the box that holds it."""
    return tuple(
        (_less(start, first), _less(stop, first)) for (start, stop), (first, _) in zip(region, held, strict=True)
    )


def _less(item: Any, less: int) -> int | Moving:
    return replace(item, constant=item.constant - less) if isinstance(item, Moving) else item - less


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


def whole_slice(member: Member) -> bool:
    """Is it a slice of all of what has been cut out for it?"""
    if member.piece.operator != "aten.slice.Tensor":
        return False
    given = member.piece.attributes
    start, stop = member.piece.output[given["dim"]]
    found = given["end"], stop - start if type(start) is type(stop) is int else None
    return (given["start"], given.get("step", 1)) == (0, 1) and found[0] == found[1]


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
