"""The target Python: a loop's form as the text of one function, which Python compiles.

Between two kernels that take some microseconds an interpreter of statements would take as long as they do.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from functools import lru_cache
from types import CodeType
from typing import Any

import torch

from girih.kernels.exact import INTO_KERNELS
from girih.kernels.own import add_logsumexp_
from girih.program.fusion.slicing import Moving
from girih.run.loops.form import (
    Accumulate,
    Argument,
    Copy,
    Free,
    KernelLine,
    LoopForm,
    Read,
    Slice,
    Statement,
    number_text,
)
from girih.run.tiles.spill import in_memory
from girih.run.worker.compute import kernel_of
from girih.run.worker.parts import Tensor

Run = Callable[..., list[Tensor | None]]
"""A loop's function: (first, last, rows, outside, results, buffers, totals) to the totals. It computes the blocks of
[first, last), adds to totals that are not None, and writes the results where they belong."""
FILE = "<girih loops>"
REGISTERS = (("x", "outside"), ("w", "results"), ("b", "buffers"), ("a", "totals"))
LOOP = ("    for low in range(first, last, rows):", "        high = low + rows")
COMBINED = {
    "sum": "{total}.add_({part})",
    "prod": "{total}.mul_({part})",
    "max": "torch.maximum({total}, {part}, out={total})",
    "min": "torch.minimum({total}, {part}, out={total})",
    "logsumexp": "add_logsumexp_({total}, {part})",
}


def compiled(form: LoopForm) -> Run:
    """The form as a function of Python's."""
    known: dict[str, Any] = {"torch": torch, "read": in_memory, "inf": math.inf, "nan": math.nan}
    known["add_logsumexp_"] = add_logsumexp_
    known |= {name: kernel_of(operator, torch.device("cpu")) for operator, name in _names(form).items()}
    known |= {_into(call): INTO_KERNELS[call.operator] for call in calls_of(form) if call.operator in INTO_KERNELS}
    exec(_code(python_text(form)), known)
    return known["run"]  # type: ignore[no-any-return]


@lru_cache(maxsize=512)
def _code(text: str) -> CodeType:
    """Python takes a millisecond for it, and loops over arrays of other sizes mostly have the same text."""
    return compile(text, FILE, "exec")


def python_text(form: LoopForm) -> str:
    head = "def run(first, last, rows, outside, results, buffers, totals):"
    return function_text(form, head, [line for _, line in _body(form)])


def node_of(form: LoopForm, error: BaseException) -> int:
    """The node of the graph in whose line of the function an error was raised."""
    nodes = [None if isinstance(statement, Free) else statement.node for statement, _ in _body(form)]
    first = python_text(form).splitlines().index(LOOP[-1]) + 2  # lines are counted from 1
    raised = [frame.lineno or 0 for frame in traceback.extract_tb(error.__traceback__) if frame.filename == FILE]
    node = nodes[raised[0] - first] if raised and 0 <= raised[0] - first < len(nodes) else None
    return next(item for item in (node, *reversed(nodes)) if item is not None)


def _body(form: LoopForm) -> list[tuple[Statement, str]]:
    """The lines of a block, each with its statement."""
    names = _names(form)

    def kernel(call: KernelLine) -> str:
        return _into(call) if call.into else names[call.operator]

    return [(statement, line) for statement in form.body for line in lines(statement, kernel, repr)]


def _names(form: LoopForm) -> dict[str, str]:
    """By operator, what its kernel is named."""
    operators = dict.fromkeys(call.operator for call in calls_of(form) if not call.into)
    return {operator: f"{operator.split('.')[1]}_{number}" for number, operator in enumerate(operators)}


def _into(call: KernelLine) -> str:
    """The name of what takes `out`: girih's, else the function of `torch` itself."""
    name = call.operator.split(".")[1]
    return f"{name}_into" if call.operator in INTO_KERNELS else f"torch.{name}"


def calls_of(form: LoopForm) -> list[KernelLine]:
    return [statement for statement in form.body if isinstance(statement, KernelLine)]


def function_text(form: LoopForm, head: str, body: list[str]) -> str:
    """The function around the lines of a block."""
    counts = (form.outside, form.results, form.buffers, form.totals)
    taken = [
        f"    {letter}{number} = {group}[{number}]"
        for (letter, group), items in zip(REGISTERS, counts, strict=True)
        for number in range(len(items))
    ]
    totals = [f"    totals[{number}] = a{number}" for number in range(len(form.totals))]
    return "\n".join((head, *taken, *LOOP, *(f"        {line}" for line in body), *totals, "    return totals", ""))


def lines(statement: Statement, kernel: Callable[[KernelLine], str], constant: Callable[[Argument], str]) -> list[str]:
    """A statement as lines of Python. kernel: what a call's function is named. constant: how a number is written."""

    def text(item: Argument) -> str:
        if isinstance(item, Slice):
            return slice_text(item)
        if isinstance(item, tuple):
            return f"[{', '.join(map(text, item))}]"
        return number_text(item) if isinstance(item, Moving) else constant(item)

    name = statement.register
    match statement:
        case Free():
            return [f"{name} = None"]
        case Copy():
            return [f"{name}.copy_({slice_text(statement.source)})"]
        case Accumulate(_, total, part, reducer, dtype):
            wider = [f"{part} = {part}.to(torch.{dtype})"] if dtype else []
            combined = COMBINED[reducer].format(total=total, part=part)
            return [*wider, f"if {total} is None:", f"    {total} = {part}", "else:", f"    {combined}"]
        case KernelLine():
            arguments = [*map(text, statement.arguments), *(f"{key}={text(item)}" for key, item in statement.options)]
            arguments += [f"out={name}"] if statement.into else []
            call = f"{kernel(statement)}({', '.join(arguments)})"
            call += "" if statement.item is None else f"[{statement.item}]"
            return [call if statement.into else f"{name} = {call}"]
        case Read():
            return [f"{name} = read({slice_text(statement.source)})"]
        case _:
            return [f"{name} = {slice_text(statement.source)}"]


def slice_text(item: Slice) -> str:
    text = item.register
    for dimension, start, stop in item.cuts:
        begin, end = number_text(start), number_text(stop)
        text += f"[{begin}:{end}]" if dimension == 0 else f".narrow({dimension}, {begin}, ({end}) - ({begin}))"
    return text
