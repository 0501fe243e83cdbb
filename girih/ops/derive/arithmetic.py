"""How much arithmetic an operator is: what its index notation says, where something is computed."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from girih.ops.derive.kinds import LOOK_UP, hit_of, kind_of
from girih.ops.expressions import (
    Affine,
    Applied,
    Constant,
    Expression,
    OpaqueRead,
    Piecewise,
    Position,
    Read,
    Reduce,
    children,
    walk,
)
from girih.ops.operator import Description

ONCE = "once"
"""The function in descriptions that says that a kernel computes its argument once for what it depends on."""
_CHEAP = {"eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", ONCE}
_OPAQUE = 4


@lru_cache(maxsize=16384)
def floating_point_operations(description: Description) -> int:
    """The floating-point operations of a whole operator.

    Each function, and each element that is reduced, counts one at every point of the index variables around it. Opaque
    functions are estimated as 4 for each output element. What is computed `once` counts at the points of the index
    variables that it reads, and the same function of the same tensors counts one time (the scores of an attention,
    which all features of a row share). Where numbers are looked up in a table, or rows belong to groups, only the place
    that is found counts, since a kernel computes nowhere else. Each part of a concatenation counts for its own share of
    the result alone.
    """
    outputs = frozenset(range(description.outputs))
    chosen = groups_of(description) | compared_of(description)
    total = 0
    around: list[tuple[Expression, frozenset[int], tuple[int, ...]]] = [(description.body, outputs, description.sizes)]
    counted: set[object] = set()
    while around:
        item, variables, sizes = around.pop()
        if isinstance(item, Applied) and item.function == ONCE:
            function = _renamed(item, sizes, {})
            if function in counted:
                continue
            counted.add(function)
            variables = _free(item)
        if isinstance(item, Reduce):
            variables |= frozenset(item.variables)
        each = _OPAQUE if isinstance(item, OpaqueRead) else _is_arithmetic(item)
        if each:
            points = variables if variables == outputs else variables - chosen
            total += each * prod(sizes[variable] for variable in points)
        if isinstance(item, Piecewise) and item.index.variable is not None:
            place = item.index.variable
            for begin, end, part in zip(item.bounds, item.bounds[1:], item.parts, strict=False):
                around.append((part, variables, (*sizes[:place], end - begin, *sizes[place + 1 :])))
            continue
        around.extend((child, variables, sizes) for child in children(item))
    return total


@lru_cache(maxsize=16384)
def operations_per_point(description: Description) -> float:
    """The operations of an operator divided by the points of its index space: a piece has as many for each point."""
    return floating_point_operations(description) / max(prod(description.sizes), 1)


def _free(item: Expression) -> frozenset[int]:
    """The index variables on which an expression depends."""
    if isinstance(item, Read):
        return frozenset(v for index in item.index if index is not None for v, _ in index.terms)
    if isinstance(item, Position):
        return frozenset(v for v, _ in item.index.terms)
    inside = frozenset[int]().union(*map(_free, children(item)))
    return inside - frozenset(item.variables) if isinstance(item, Reduce) else inside


def _renamed(item: Expression, sizes: tuple[int, ...], names: dict[int, tuple[int, int]]) -> object:
    """An expression whose index variables are numbered as they come, with their sizes: equal for equal functions."""

    def at(index: Affine | None) -> object:
        if index is None:
            return None
        terms = [(names.setdefault(v, (len(names), sizes[v])), factor) for v, factor in index.terms]
        return tuple(terms), index.constant

    if isinstance(item, Read):
        return item.tensor, tuple(map(at, item.index))
    if isinstance(item, Position):
        return at(item.index)
    own = item.value if isinstance(item, Constant) else getattr(item, "function", getattr(item, "reducer", ""))
    inside = tuple([_renamed(child, sizes, names) for child in children(item)])
    summed = tuple([names.get(v) for v in item.variables]) if isinstance(item, Reduce) else ()
    return type(item).__name__, own, inside, summed


def _is_arithmetic(item: Expression) -> bool:
    return isinstance(item, Reduce) or (isinstance(item, Applied) and item.function not in _CHEAP)


@lru_cache(maxsize=16384)
def compared_of(description: Description) -> frozenset[int]:
    """The index variables of a look-up that are compared with numbers in a tensor."""
    if kind_of(description) != LOOK_UP:
        return frozenset()
    hits = (hit_of(item, description) for item in walk(description.body))
    return frozenset(variable for hit in hits if hit is not None for variable, _ in hit[1].terms)


@lru_cache(maxsize=16384)
def groups_of(description: Description) -> frozenset[int]:
    """The index variables that number groups, of which each point is in one: they are chosen by where they end,
    `ends[e - 1] <= t < ends[e]`, or begin, `offsets[v] <= e < offsets[v + 1]`."""
    return frozenset(variable for _, variable in group_bounds(description))


@lru_cache(maxsize=16384)
def group_bounds(description: Description) -> frozenset[tuple[int, int]]:
    """(tensor of bounds, index variable that numbers the groups)."""
    found: set[tuple[int, int]] = set()
    for item in walk(description.body):
        if isinstance(item, Applied) and item.function == "and" and (pair := _between(*item.arguments)) is not None:
            found.add(pair)
    return frozenset(found)


def _between(begin: Expression, end: Expression) -> tuple[int, int] | None:
    """(tensor, index variable) of `ends[e - 1] <= t` and `t < ends[e]`, which is read as `ends[e] > t`."""
    if not (isinstance(begin, Applied) and isinstance(end, Applied) and (begin.function, end.function) == ("le", "gt")):
        return None
    (first, place), (last, again) = begin.arguments, end.arguments
    if not (isinstance(first, Read) and isinstance(last, Read) and first.tensor == last.tensor and place == again):
        return None
    if len(first.index) != 1 or first.index[0] is None or last.index[0] is None:
        return None
    if first.index[0] + 1 != last.index[0]:
        return None
    variables = [index.variable for index in (last.index[0], first.index[0]) if index.variable is not None]
    return (first.tensor, variables[0]) if variables else None
