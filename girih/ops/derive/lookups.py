"""Which inputs of an operator are numbers of rows: `Sum(v: Select(equal(index[i], v), table[v]))`, or its adjoint.

A number that is no row finds nothing, and adds nothing: another part of the table may have the row.
"""

from __future__ import annotations

from functools import lru_cache

from girih.ops.expressions import Applied, Choice, Constant, Expression, Position, Read, walk
from girih.ops.operator import Description


@lru_cache(maxsize=16384)
def looked_up(description: Description, tensor: int) -> range | None:
    """The numbers of rows, of which an input's numbers each choose one, also from the end if they may; None where they
    choose none."""
    root = description.root
    variables = set(range(description.outputs)) if root is None else set(root.variables)
    for item in walk(description.body):
        if not isinstance(item, Applied) or item.function != "eq":
            continue
        (read, number), from_end = item.arguments, False
        if isinstance(read, Applied) and read.function == "remainder":
            read, from_end = read.arguments[0], True
        if not isinstance(read, Read) or read.tensor != tensor or not isinstance(number, Position):
            continue
        if len(number.index.terms) == 1 and (variable := number.index.terms[0][0]) in variables:
            rows = description.sizes[variable] + number.index.constant
            return range(-rows if from_end else 0, rows)
    return None


def only_moves(body: Expression) -> bool:
    """Are the results numbers that are read, elsewhere, or constants (a reshape, a slice, padding)?"""
    if isinstance(body, Choice):
        reads = any(isinstance(item, Read) for item in walk(body.condition))
        return not reads and only_moves(body.yes) and only_moves(body.no)
    return isinstance(body, (Read, Constant))
