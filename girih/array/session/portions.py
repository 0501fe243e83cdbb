"""Large results in portions: rows of an array that is made element by element, computed where they are wanted.

What is written to a file, and is larger than memory, need not be there whole: of `(x - x.mean(0)) / x.std(0)` some rows
at a time are computed, from the same rows of `x` and from what all rows need. Cost of a portion: linear in the
expressions between the sources and the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from girih.capture.lazy.expressions import Expression, Needed, Operand, call, data
from girih.capture.lazy.sources import Source, window
from girih.graph.graph import ITEM_BYTES
from girih.ops import Description, description_of
from girih.ops.derive.divisions import is_elementwise
from girih.ops.expressions import Position, walk


@dataclass(frozen=True, eq=False)
class Portions:
    """The rows of an expression, from rows of others. nodes: in topological order, the wanted one last. whole: what
    every portion reads whole, and is to be computed before."""

    nodes: tuple[Expression, ...]
    whole: tuple[Expression, ...]

    def rows(self, start: int, stop: int) -> Expression:
        """An expression of these rows alone."""
        made: dict[Expression, Expression] = {}
        for item in self.nodes:
            for operand in item.inputs:
                if operand.is_leaf and operand not in made and _along(operand, item):
                    made[operand] = _cut(operand, start, stop)
            arguments = {name: _swapped(argument, made) for name, argument in item.arguments}
            shape = stop - start, *item.shape[1:]
            made[item] = call(item.operator, arguments, shape, item.dtype, item.source)
        return made[self.nodes[-1]]


def portions(wanted: Expression, work: Needed, most: float) -> Portions | None:
    """work: all that is needed for the wanted one. most: bytes of what may be held whole. None: some of it is larger,
    and not made row by row."""
    graph = work.graph()
    row_by_row = {node.outputs[0] for node in graph.nodes if _is_row_by_row(description_of(graph, node))}
    members: set[Expression] = {wanted}
    own: dict[Expression, None] = {}
    whole: dict[Expression, None] = {}
    for item in reversed(work.nodes):  # readers before what they read
        if item not in members:
            continue
        if work.names[item] not in row_by_row:
            whole[item] = None
            continue
        own[item] = None
        for operand in item.inputs:
            if operand.is_leaf:
                continue
            if _along(operand, item):
                members.add(operand)
            else:
                whole[operand] = None
    if not own or any(item in own or bytes_of(item) > most for item in whole):
        return None
    return Portions(tuple(reversed(own)), tuple(whole))


def _is_row_by_row(description: Description | None) -> bool:
    """Is it made element by element, each of them by the same rule, wherever it is?"""
    if description is None or not is_elementwise(description):
        return False
    operator = description.operator
    placed = any(isinstance(part, Position) for part in walk(description.body))
    return not (placed or operator.view or operator.piece is not None)


def _along(operand: Expression, item: Expression) -> bool:
    """Has an operand the rows of the result?"""
    return len(operand.shape) == len(item.shape) and operand.shape[0] == item.shape[0] != 1


def bytes_of(item: Expression) -> int:
    return math.prod(item.shape) * ITEM_BYTES[item.dtype]


def _cut(item: Expression, start: int, stop: int) -> Expression:
    """Rows of a leaf; of a source, which is not kept, nothing else is read."""
    if item.kept is None and isinstance(item.content, Source):
        return data(window(item.content, 0, start, stop), item.dtype, item.source)
    arguments: dict[str, Operand] = {"self": item, "dim": 0, "start": start, "end": stop, "step": 1}
    return call("aten.slice.Tensor", arguments, (stop - start, *item.shape[1:]), item.dtype, item.source)


def _swapped(argument: Operand, made: Mapping[Expression, Expression]) -> Any:
    if isinstance(argument, Expression):
        return made.get(argument, argument)
    return tuple(_swapped(part, made) for part in argument) if isinstance(argument, tuple) else argument
