"""In which tensors an expression is linear, and what follows for sums that are divided.

A partial sum may pass through what is linear in it. And where something is added to a sum, `x[i, j] + Sum(k: …)`, the
sum can still be divided if x is itself held as as many partial sums: each piece adds its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from girih.ops.expressions import (
    Applied,
    Choice,
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

ZERO = -1
"""The degree of a literal zero."""


def is_floating(dtype: str) -> bool:
    """May a value of this type be held as partial sums?"""
    return dtype.startswith(("float", "bfloat"))


def degree(expression: Expression, inputs: frozenset[int]) -> int | None:
    """Degree in the tensors `inputs` together, if homogeneous: 0 free of them, 1 linear; None otherwise.

    A literal zero is homogeneous of any degree and is reported as ZERO.
    """
    if isinstance(expression, Constant):
        return ZERO if expression.value == 0 else 0
    if isinstance(expression, Position):
        return 0
    if isinstance(expression, Read):
        return 1 if expression.tensor in inputs else 0
    degrees = [degree(child, inputs) for child in children(expression)]
    if any(degree is None for degree in degrees):
        return None
    known = [degree for degree in degrees if degree is not None]
    if isinstance(expression, Applied):
        if expression.function == "mul":
            return min(known) if min(known) < 0 else (sum(known) if sum(known) <= 1 else None)
        if expression.function == "div":
            return known[0] if known[1] == 0 else None
        if expression.function in ("neg", "once"):
            return known[0]
        if expression.function in ("add", "sub"):
            return _common(known)
        return 0 if all(degree <= 0 for degree in known) else None
    if isinstance(expression, Choice):
        if isinstance(expression.condition, Constant):  # the other branch gives only its shape
            return known[1] if expression.condition.value else known[2]
        return _common(known[1:]) if known[0] <= 0 else None
    if isinstance(expression, Reduce):
        return known[0] if expression.reducer == "sum" or known[0] == 0 else None
    if isinstance(expression, Piecewise):
        return _common(known)
    if isinstance(expression, OpaqueRead):
        fixed = all(degree <= 0 for number, degree in enumerate(known) if number not in expression.linear)
        return sum(known) if fixed and sum(known) <= 1 else None
    return 0 if all(degree == 0 for degree in known) else None


def _common(degrees: list[int]) -> int | None:
    real = {degree for degree in degrees if degree >= 0}
    return None if len(real) > 1 else (real.pop() if real else ZERO)


@dataclass(frozen=True)
class Root:
    """The reduction by which pieces of an expression can be combined.

    alongside: the inputs that must be held as partial sums, one for each piece, where it is divided: what is added to
    the reduction is linear in them together.
    """

    reduction: Reduce
    alongside: frozenset[int] = frozenset()


def root_of(body: Expression, dtypes: Sequence[str]) -> Root | None:
    """The reduction at the root; a sum also under scaling by constants, and beside terms that can be sums of parts.

    dtypes: of the inputs.
    """
    root = _with_terms(body)
    if root is None:
        return None
    reduction, terms = root
    if not terms:
        return Root(reduction)
    inside = {item.tensor for item in walk(reduction) if isinstance(item, Read)}
    outside = {item.tensor for term in terms for item in walk(term) if isinstance(item, Read)}
    able = [number for number in sorted(outside - inside) if is_floating(dtypes[number])]
    for count in range(len(able) + 1):
        for chosen in combinations(able, count):
            if all(degree(term, frozenset(chosen)) in (1, ZERO) for term in terms):
                return Root(reduction, frozenset(chosen))
    return None


def _with_terms(body: Expression) -> tuple[Reduce, tuple[Expression, ...]] | None:
    """The reduction at the root, and what is added to it."""
    if isinstance(body, Reduce):
        return body, ()
    if not isinstance(body, Applied):
        return None
    if body.function in ("mul", "div", "neg"):
        tensors = [item for item in body.arguments if not isinstance(item, Constant)]
        scaled = body.function != "div" or not isinstance(body.arguments[0], Constant)
        return _sum_of(tensors[0]) if len(tensors) == 1 and scaled else None
    if body.function in ("add", "sub"):
        both = [(number, inner) for number, item in enumerate(body.arguments) if (inner := _sum_of(item)) is not None]
        if len(both) == 1:
            number, (reduction, terms) = both[0]
            return reduction, (*terms, body.arguments[1 - number])
    return None


def _sum_of(body: Expression) -> tuple[Reduce, tuple[Expression, ...]] | None:
    root = _with_terms(body)
    return root if root is not None and root[0].reducer == "sum" else None
