"""A loop's form, interpreted statement by statement: what every target is held against, and how short one can be."""

from __future__ import annotations

from typing import Any

import torch

from girih.program.fusion.slicing import at_block
from girih.run.loops.form import Accumulate, Copy, Free, KernelLine, LoopForm, Read, Slice, View
from girih.run.worker.compute import kernel_of

COMBINED = {
    "sum": torch.add,
    "prod": torch.mul,
    "max": torch.maximum,
    "min": torch.minimum,
    "logsumexp": torch.logaddexp,
}


class Interpreted:
    """The function of a form, with the arguments and the result that a target's function has."""

    def __init__(self, form: LoopForm) -> None:
        self.form = form

    def __call__(
        self,
        first: int,
        last: int,
        rows: int,
        outside: list[Any],
        results: list[Any],
        buffers: list[Any],
        totals: list[Any],
    ) -> list[Any]:
        groups = {"x": outside, "w": results, "b": buffers, "a": totals}
        held = {f"{letter}{number}": item for letter, group in groups.items() for number, item in enumerate(group)}
        for low in range(first, last, rows):
            for statement in self.form.body:
                _step(statement, held, (low, low + rows))
        return [held[f"a{number}"] for number in range(len(totals))]


def _step(statement: Any, held: dict[str, Any], block: tuple[int, int]) -> None:
    def value(item: Any) -> Any:
        if isinstance(item, tuple):
            return [value(part) for part in item]
        if not isinstance(item, Slice):
            return at_block(item, *block)
        tensor = held[item.register]
        for dimension, start, stop in at_block(item.cuts, *block):
            tensor = tensor.narrow(dimension, start, stop - start)
        return tensor

    name = statement.register
    match statement:
        case View():
            held[name] = value(statement.source)
        case Read():
            held[name] = value(statement.source).read()
        case KernelLine():
            kernel = kernel_of(statement.operator, torch.device("cpu"))
            arguments, options = map(value, statement.arguments), statement.options
            result = kernel(*arguments, **{key: value(item) for key, item in options})
            result = result if statement.item is None else result[statement.item]
            if statement.into:
                held[name].copy_(result)
            else:
                held[name] = result
        case Copy():
            held[name].copy_(value(statement.source))
        case Accumulate():
            part, total = held[statement.source], held[name]
            part = part.to(getattr(torch, statement.dtype)) if statement.dtype else part
            held[name] = part if total is None else COMBINED[statement.reducer](total, part)
        case Free():
            del held[name]
