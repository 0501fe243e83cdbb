"""Scratch memory that a library takes inside one of its kernels, and that no rule of ours can tell.

How much it is depends on the processor's instruction sets, the library's version and the number of threads. So an
operator with such a kernel says in its description that its scratch is `Measured`, with what is known of it from shapes
alone: a bound. A walk through a program's memory asks a `ScratchSource` for the bytes of each such call: what was
measured on the host that the program runs on, or `at_most`, the bound.

The rules of our own and of PyTorch's kernels are those of processors. A source that knows a GPU says that it wants to
be asked for `every` call, and measures it there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from girih.graph.graph import format_argument
from girih.ops.derive.temporaries import KernelCall, Measured, Operand, Temporary


@dataclass(frozen=True, eq=False)
class ScratchCall:
    """A call whose scratch is asked for: an operator, its work on one device, and what is known beforehand. kept: bytes
    of all its results; on a processor 0 where it has one."""

    operator: str
    work: KernelCall
    known: Measured
    kept: int = 0

    @cached_property
    def key(self) -> str:
        """Everything that the scratch depends on, but for processor and libraries; equal keys are measured once."""
        attributes = sorted(self.work.attributes.items())
        written = [f"{name}={format_argument(value)}" for name, value in attributes]
        operands = [f"{name}: {_lies(operand)}" for name, operand in self.work.inputs.items()]
        result = _lies(self.work.output)
        return f"{self.operator}({', '.join(written)}) {'; '.join(operands)} -> {result}, {self.work.threads} threads"

    @cached_property
    def bound(self) -> int:
        return self.known.bound(self.work)


ScratchSource = Callable[[ScratchCall], int]
"""Bytes of a call's scratch."""


def known_by(temporary: Temporary | None) -> Measured:
    """What is known of the scratch of a call beforehand, for a source that is asked for every call."""
    if isinstance(temporary, Measured):
        return temporary
    return Measured((lambda work: 0) if temporary is None else temporary, lambda work: 0)


def asks_for_every(scratch: ScratchSource) -> bool:
    """Does the source know kernels of which the rules do not hold, and wants to be asked for each call?"""
    return bool(getattr(scratch, "every", False))


def at_most(call: ScratchCall) -> int:
    """The bound from shapes alone, of processors that are not here."""
    return call.bound


def rule_for(temporary: Temporary | None, item_bytes: int) -> Temporary | None:
    """What tells the scratch of calls that make elements of so many bytes; None: they take none."""
    if isinstance(temporary, Measured) and temporary.only and item_bytes not in temporary.only:
        return None
    return temporary


def held(temporary: Temporary, operator: str, work: KernelCall, scratch: ScratchSource, kept: int = 0) -> int:
    """Bytes that a call of an operator holds, by its rule or by the source. kept: of all its results, if several."""
    if isinstance(temporary, Measured):
        return scratch(ScratchCall(operator, work, temporary, kept))
    return temporary(work)


def _lies(operand: Operand) -> str:
    order = "" if operand.strides is None else f" strides {list(operand.strides)}"
    return f"{operand.dtype}{list(operand.shape)}{order}"
