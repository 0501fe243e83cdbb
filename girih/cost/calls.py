"""A call: what one device executes of a node, complete enough to be measured by itself.

Its `key` is a line of text in which everything stands that its time depends on; equal keys are measured once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from girih.cost.work import Work
from girih.graph import Argument
from girih.graph.graph import format_argument


@dataclass(frozen=True)
class Operand:
    """A tensor as a call gets it.

    shape: of the region that is read. held: of the buffer that it is cut from, None where that is the same.
    strides: of the buffer, in elements; None where it is contiguous. pads: elements added before and after each
    dimension, () for none. high: whole numbers in it are less than this. ascending: they ascend from 0 to the largest.
    skewed: they are neighbours of a graph's vertices, most of which are few vertices: how often a row is read again
    decides how fast it is read. source: the path of the program's data that it is, whole, or "": who has that data can
    measure the call on it.
    """

    shape: tuple[int, ...]
    dtype: str
    held: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    pads: tuple[tuple[int, int], ...] = ()
    high: int = 2
    ascending: bool = False
    skewed: bool = False
    source: str = field(default="", compare=False)

    def __str__(self) -> str:
        text = f"{self.dtype}{list(self.shape)}"
        if self.held is not None:
            text += f" of {list(self.held)}"
        if self.strides is not None:
            text += f" strides {list(self.strides)}"
        if self.pads:
            text += f" pads {[list(pair) for pair in self.pads]}"
        if self.skewed:
            text += " skewed"
        return text


@dataclass(frozen=True)
class Call:
    """An operator, its arguments with `Ref("0")`, `Ref("1")`, … for the operands, and the shapes of its results.

    padding: the value with which operands are padded. result: which one is taken, of an operator that returns several.
    over: the operand in whose memory the result is written, which spares it new memory; None: in its own.
    """

    operator: str
    arguments: tuple[tuple[str, Argument], ...]
    operands: tuple[Operand, ...]
    shapes: tuple[tuple[int, ...], ...]
    work: Work
    padding: float | None = None
    result: int | None = None
    over: int | None = None

    @cached_property
    def key(self) -> str:
        return self.apart if self.over is None else f"{self.apart} over %{self.over}"

    @cached_property
    def apart(self) -> str:
        """The key of the same call with a result in memory of its own."""
        arguments = ", ".join(f"{name}={format_argument(value)}" for name, value in self.arguments)
        operands = "; ".join(f"%{number}: {operand}" for number, operand in enumerate(self.operands))
        return f"{self.operator}({arguments}) {operands}"
