"""Which inputs of an operator are numbers of rows: `Sum(v: Select(equal(index[i], v), table[v]))`, or its adjoint.

A number that is no row finds nothing, and adds nothing: another part of the table may have the row.
"""

from __future__ import annotations

from functools import lru_cache

from girih.ops.expressions import Applied, Choice, Constant, Expression, Position, Read, walk
from girih.ops.operator import Description


@lru_cache(maxsize=16384)
def looked_up(description: Description, tensor: int) -> int | None:
    """Of how many rows an input's numbers each choose one; None where they choose none."""
    root = description.root
    variables = set(range(description.outputs)) if root is None else set(root.variables)
    for item in walk(description.body):
        if isinstance(item, Applied) and item.function == "eq" and isinstance(item.arguments[0], Read):
            number = item.arguments[1]
            if item.arguments[0].tensor == tensor and isinstance(number, Position) and len(number.index.terms) == 1:
                (variable, _), *_ = number.index.terms
                if variable in variables:
                    return description.sizes[variable] + number.index.constant
    return None


def only_moves(body: Expression) -> bool:
    """Are the results numbers that are read, elsewhere, or constants (a reshape, a slice, padding)?"""
    if isinstance(body, Choice):
        reads = any(isinstance(item, Read) for item in walk(body.condition))
        return not reads and only_moves(body.yes) and only_moves(body.no)
    return isinstance(body, (Read, Constant))
