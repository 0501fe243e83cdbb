"""The form of a loop over the blocks of a group: six kinds of statements on named registers, whatever runs them.

A form is built from a BlockStep on one device (`girih.run.loops.build`), and is what each target prints or runs: Python
(`girih.run.loops.python`) and TorchScript (`girih.run.loops.torchscript`). Tests hold it against a law
(`tests/support/loop_form_law.py`).
`str(form)` is for people:

    loop over [0, 40) in blocks of 16
      x0: float64[40, 5] of %x
      w0: float64[40] of %y
      b0: float64[high - low, 5] in memory 0 of 640 bytes
      a0: float64[] of %z, prod over the blocks
    for low, high:
      e0 = x0[low:high]
      b0 <- aten.exp(e0)
      t1: float64[high - low] = aten.sum.dim_IntList(b0, [1], False)
      o1 = w0[low:high]
      o1 <- t1
      t2: float64[] = aten.prod(t1)
      a0 <- prod with t2
      free t2
      free t1

A block is [low, high). Numbers that stand in a form are whole, or affine in low and high (`Moving`). Registers are x
(read from outside of the group), w (results, written where they belong), b (buffers that all blocks use again), a
(totals over the blocks), and what a block names: e and o (parts of x and w), t (what kernels make).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from girih.program.fusion.slicing import Moving, Number, difference
from girih.run.worker.parts import Cuts

Shape = tuple[Number, ...]


@dataclass(frozen=True)
class Slice:
    """A register, or a part of it. cuts: (dimension, start, stop) of the dimensions that are cut."""

    register: str
    cuts: tuple[tuple[int, Number, Number], ...] = ()

    def shape(self, whole: Shape) -> Shape:
        """The shape of the slice of a register with this shape."""
        sizes = list(whole)
        for dimension, start, stop in self.cuts:
            sizes[dimension] = difference(stop, start)
        return tuple(sizes)

    def __str__(self) -> str:
        if not self.cuts:
            return self.register
        ranges = {dimension: f"{number_text(start)}:{number_text(stop)}" for dimension, start, stop in self.cuts}
        return f"{self.register}[{', '.join(ranges.get(number, ':') for number in range(max(ranges) + 1))}]"


Argument = Any
"""A Slice, a Number, None, a bool, a float, a string, a torch.dtype, or a tuple of such."""


@dataclass(frozen=True)
class View:
    """Name what a slice shows; nothing is copied. node: of the graph, for which the statement stands."""

    node: int
    register: str
    source: Slice

    def __str__(self) -> str:
        return f"{self.register} = {self.source}"


@dataclass(frozen=True)
class Read:
    """Bring a slice of a file into memory."""

    node: int
    register: str
    source: Slice

    def __str__(self) -> str:
        return f"{self.register} = read {self.source}"


@dataclass(frozen=True)
class KernelLine:
    """Call an operator's kernel. It makes a register of this shape and type anew, or writes into one that is there.

    into: is the register there? view: does the kernel show the memory of its first argument, and make none?
    item: which result, of a kernel that returns several.
    """

    node: int
    register: str
    operator: str
    arguments: tuple[Argument, ...]
    options: tuple[tuple[str, Argument], ...]
    shape: Shape
    dtype: str
    into: bool = False
    view: bool = False
    item: int | None = None

    @property
    def slices(self) -> Iterator[Slice]:
        """All registers that the kernel reads."""
        pending = [*self.arguments, *(value for _, value in self.options)]
        for item in pending:
            if isinstance(item, Slice):
                yield item
            elif isinstance(item, tuple):
                pending += item

    def __str__(self) -> str:
        goal = f"{self.register} <-" if self.into else f"{self.register}: {_kind(self.dtype, self.shape)} ="
        written = [*map(_text, self.arguments), *(f"{name}={_text(value)}" for name, value in self.options)]
        item = "" if self.item is None else f"[{self.item}]"
        return f"{goal} {'view ' if self.view else ''}{self.operator}({', '.join(written)}){item}"


@dataclass(frozen=True)
class Copy:
    """Write a slice into a register that is there; the types may differ."""

    node: int
    register: str
    source: Slice

    def __str__(self) -> str:
        return f"{self.register} <- {self.source}"


@dataclass(frozen=True)
class Accumulate:
    """Combine a register with a total over the blocks, which it becomes in the first of them.

    dtype: in which the total is kept, where that is not the register's own.
    """

    node: int
    register: str
    source: str
    reducer: str
    dtype: str | None = None

    def __str__(self) -> str:
        return f"{self.register} <- {self.reducer} with {self.source}{f' as {self.dtype}' if self.dtype else ''}"


@dataclass(frozen=True)
class Free:
    """Let a register go: its memory is free when nothing else shows it."""

    register: str

    def __str__(self) -> str:
        return f"free {self.register}"


Statement = View | Read | KernelLine | Copy | Accumulate | Free


@dataclass(frozen=True)
class Outside:
    """What a loop reads of a buffer: `cuts` of it, which are the same for all blocks. once: it is a file's, and read
    before the loop."""

    buffer: str
    cuts: Cuts
    shape: tuple[int, ...]
    dtype: str
    once: bool


@dataclass(frozen=True)
class Result:
    """A buffer that the blocks write where it belongs; the shape is what the device holds of it."""

    buffer: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Reused:
    """A register in one of the loop's pieces of memory, which others may use before and after it."""

    memory: int
    shape: Shape
    dtype: str


@dataclass(frozen=True)
class Total:
    """A buffer that is combined over the blocks, as it is asked for: the total may be kept in a wider type."""

    buffer: str
    shape: tuple[int, ...]
    dtype: str
    reducer: str


@dataclass(frozen=True)
class LoopForm:
    """A group's loop on one device: blocks of `rows` values of an index variable in `span`, the last may be shorter.

    memory: bytes of the pieces of memory in which the buffers lie. products: does it compute matrix products?
    """

    span: tuple[int, int]
    rows: int
    outside: tuple[Outside, ...]
    results: tuple[Result, ...]
    memory: tuple[int, ...]
    buffers: tuple[Reused, ...]
    totals: tuple[Total, ...]
    body: tuple[Statement, ...]
    products: bool

    def kinds(self) -> dict[str, tuple[Shape, str]]:
        """Shape and type of each register but the totals."""
        known: dict[str, tuple[Shape, str]] = {}
        groups: dict[str, Sequence[Outside | Result | Reused]] = {
            "x": self.outside,
            "w": self.results,
            "b": self.buffers,
        }
        for letter, group in groups.items():
            known |= {f"{letter}{number}": (item.shape, item.dtype) for number, item in enumerate(group)}
        for statement in self.body:
            if isinstance(statement, (View, Read)):
                shape, dtype = known[statement.source.register]
                known[statement.register] = statement.source.shape(shape), dtype
            elif isinstance(statement, KernelLine) and not statement.into:
                known[statement.register] = statement.shape, statement.dtype
        return known

    def __str__(self) -> str:
        lines = [f"loop over [{self.span[0]}, {self.span[1]}) in blocks of {self.rows}"]
        for number, item in enumerate(self.outside):
            part = "".join(f", from {start} in dimension {dimension}" for dimension, start, _ in item.cuts)
            once = ", read once" if item.once else ""
            lines.append(f"  x{number}: {_kind(item.dtype, item.shape)} of %{item.buffer}{part}{once}")
        lines += [f"  w{n}: {_kind(item.dtype, item.shape)} of %{item.buffer}" for n, item in enumerate(self.results)]
        lines += [
            f"  b{n}: {_kind(item.dtype, item.shape)} in memory {item.memory} of {self.memory[item.memory]} bytes"
            for n, item in enumerate(self.buffers)
        ]
        lines += [
            f"  a{n}: {_kind(item.dtype, item.shape)} of %{item.buffer}, {item.reducer} over the blocks"
            for n, item in enumerate(self.totals)
        ]
        return "\n".join([*lines, "for low, high:", *(f"  {statement}" for statement in self.body)])


def number_text(item: Number) -> str:
    """A number of the block as an expression in `low` and `high`."""
    if not isinstance(item, Moving):
        return str(item)
    names = [("high", item.by_high), ("low", item.by_low)]
    terms = [(name if abs(factor) == 1 else f"{abs(factor)} * {name}", factor) for name, factor in names if factor]
    terms += [(str(abs(item.constant)), item.constant)] if item.constant else []
    text = "".join(f" {'-' if factor < 0 else '+'} {term}" for term, factor in terms)
    return text[3:] if text.startswith(" + ") else text[1] + text[3:]


def _kind(dtype: str, shape: Shape) -> str:
    return f"{dtype}[{', '.join(map(number_text, shape))}]"


def _text(item: Argument) -> str:
    if isinstance(item, tuple):
        return f"[{', '.join(map(_text, item))}]"
    if isinstance(item, Moving):
        return number_text(item)
    return repr(item) if isinstance(item, str) else str(item)
