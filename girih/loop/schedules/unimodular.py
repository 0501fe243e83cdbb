"""Unimodular transformations that make a loop nest parallel (Wolf & Lam 1991; Orion, thesis §5.3.3).

Two rows u and w of a unimodular matrix are sought, for which u·d ≥ 0 and w·d ≥ 0 for every dependence vector d. Blocks
of the plane that they span may then run in a wavefront: an iteration that depends on another lies in a block that is
in neither direction before the other's. Their sum h = u + w is the outermost loop of the thesis, which carries the
dependences: h·d > 0, except for dependences that stay within one block, which is run in the loop's own order.

Rows with components up to REACH are tried, those of fewest hyperplanes first; so what is found is the best of them,
and nothing is claimed of larger ones. The cost is (2·REACH+1)^n for n dimensions, once for each loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import gcd
from typing import TypeAlias

from girih.loop.capture.dependences import ANY, POSITIVE, Vector

REACH = 3
MOST_DIMS = 4
Form: TypeAlias = tuple[int, ...]
"""A linear form over the loop's indices."""


@dataclass(frozen=True)
class Transformation:
    """matrix: unimodular, its first row the sum of space and time, by whose value the wavefront goes."""

    space: Form
    time: Form
    matrix: tuple[Form, ...]
    hyperplanes: int
    carries_all: bool


def least(form: Form, vector: Vector) -> int | None:
    """The least value of form · d over all d that the vector stands for; None: there is none."""
    total = 0
    for factor, component in zip(form, vector, strict=True):
        if component is ANY and factor:
            return None
        if component is POSITIVE:
            if factor < 0:
                return None
            total += factor
        elif isinstance(component, int):
            total += factor * component
    return total


def transformation(vectors: Iterable[Vector], sizes: Sequence[int]) -> Transformation | None:
    """The two forms with the fewest hyperplanes, or None if no forms of small numbers will do."""
    known = tuple(vectors)
    dims = len(sizes)
    if dims < 2 or dims > MOST_DIMS:
        return None
    reach = REACH if dims <= 3 else 1
    forms = [
        form
        for form in product(range(-reach, reach + 1), repeat=dims)
        if any(form) and gcd(*form) == 1 and all((low := least(form, d)) is not None and low >= 0 for d in known)
    ]
    forms.sort(key=lambda form: (width(form, sizes), form))
    best: Transformation | None = None
    for first, second in combinations(forms[:120], 2):
        planes = width(first, sizes) + width(second, sizes) - 1
        if best is not None and planes >= best.hyperplanes and best.carries_all:
            continue
        matrix = completed(first, second)
        if matrix is None:
            continue
        outer = tuple(a + b for a, b in zip(first, second, strict=True))
        carries = all((low := least(outer, d)) is not None and low > 0 for d in known)
        if best is None or (carries, -planes) > (best.carries_all, -best.hyperplanes):
            wide, narrow = (first, second) if width(first, sizes) >= width(second, sizes) else (second, first)
            best = Transformation(wide, narrow, (outer, *matrix[1:]), planes, carries)
    return best


def width(form: Form, sizes: Sequence[int]) -> int:
    """How many values it takes over the iteration space."""
    return sum(abs(factor) * (size - 1) for factor, size in zip(form, sizes, strict=True)) + 1


def completed(first: Form, second: Form) -> tuple[Form, ...] | None:
    """A unimodular matrix whose first rows are these, filled up with unit rows; None: there is none of this kind."""
    dims = len(first)
    units = [tuple(int(at == dim) for at in range(dims)) for dim in range(dims)]
    for rest in combinations(units, dims - 2):
        matrix = (first, second, *rest)
        if abs(determinant(matrix)) == 1:
            return matrix
    return None


def determinant(matrix: Sequence[Sequence[int]]) -> int:
    if len(matrix) == 1:
        return matrix[0][0]
    return sum(
        (-1) ** column * factor * determinant([[*row[:column], *row[column + 1 :]] for row in matrix[1:]])
        for column, factor in enumerate(matrix[0])
        if factor
    )
