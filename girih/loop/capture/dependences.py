"""Dependence vectors of a loop (Orion, thesis §5.3.2, Alg. 3).

`vectors` is Alg. 3: for each pair of references to one array at most one vector, refined dimension by dimension.
What it leaves open is here made exact:

- A reference is also paired with itself: two iterations write what one reference names.
- "Correct for lexicographical positiveness": a vector whose first component may be anything stands for a set of
  lexicographically positive ones, since `(∞, 1)` is `(+∞, 1)`, `(0, 1)` and, turned round, `(+∞, -1)`. `positive`
  returns this set; the vector of nothing but zeros is no dependence between iterations.
- Alg. 3 leaves write-write pairs of unordered loops out. Rows, or two arrays, written by two iterations at once may end
  half from the one and half from the other, and which of two writes comes last would depend on timing.
  `dependence_vectors` keeps these pairs: what results is a serial order's, and the same in every run.

A component is an integer, POSITIVE (any integer above 0) or ANY. The cost is quadratic in the references to an array.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from itertools import combinations_with_replacement, product
from typing import TypeAlias

from girih.loop.capture.arithmetic import sums_of
from girih.loop.capture.body import Body
from girih.loop.capture.values import ANYWHERE, Reference, Subscript

WIDEST = 8
"""A slice of so many indices from the loop's own is taken apart; of a wider one nothing is known."""


class Component(Enum):
    """What is not one integer."""

    POSITIVE = "+∞"
    ANY = "∞"

    def __repr__(self) -> str:
        return self.value


POSITIVE, ANY = Component.POSITIVE, Component.ANY
Distance: TypeAlias = "int | Component"
Vector: TypeAlias = tuple[Distance, ...]


def dependence_vectors(body: Body, ordered: bool) -> frozenset[Vector]:
    """The lexicographically positive dependence vectors of a loop, over all arrays but its reductions.

    A reduction (an array that is only added to) has none where order does not matter; in an ordered loop sums of
    integers alone have none, because floating-point sums would be rounded otherwise.
    """
    found: frozenset[Vector] = frozenset()
    for array in dict.fromkeys(item.array for item in body.references):
        found |= vectors_of(body, array, ordered)
    return frozenset(found)


def vectors_of(body: Body, array: str, ordered: bool) -> frozenset[Vector]:
    """Those of one array."""
    if is_reduction(body, array, ordered):
        return frozenset()
    pairs = vectors(body.of(array), body.space.dims, skip_writes=False)
    return frozenset(item for vector in pairs for item in positive(vector))


def is_reduction(body: Body, array: str, ordered: bool) -> bool:
    """May each worker add to a copy of its own, which are added up in the end?"""
    role = body.roles[array]
    whole = not ordered or "int" in str(getattr(role, "dtype", ""))
    return whole and array in body.reductions


def sum_dtype(body: Body, array: str) -> str:
    """In which the workers' sums over iterations are kept."""
    return sums_of(str(getattr(body.roles[array], "dtype", "")))


def vectors(references: Sequence[Reference], dims: int, skip_writes: bool) -> Iterator[Vector]:
    """Alg. 3 for one array; skip_writes: leave pairs of writes out, as it does for unordered loops."""
    apart = [item for reference in references for item in taken_apart(reference)]
    for first, second in combinations_with_replacement(apart, 2):
        if not (first.writes or second.writes) or (skip_writes and first.writes and second.writes):
            continue
        vector = distance(first.subscripts, second.subscripts, dims)
        if vector is not None:
            yield vector


def distance(first: Sequence[Subscript], second: Sequence[Subscript], dims: int) -> Vector | None:
    """How far the iteration of the second reference lies behind the first's; None: they never meet."""
    vector: list[Distance] = [ANY] * dims
    for a, b in zip(first, second, strict=True):
        if a.low is None or b.low is None or a.high is None or b.high is None:
            continue
        if a.dim is not None and a.dim == b.dim:
            apart = a.low - b.low
            if vector[a.dim] not in (ANY, apart):
                return None
            vector[a.dim] = apart
        elif a.dim is None and b.dim is None and (a.high <= b.low or b.high <= a.low):
            return None
    return tuple(vector)


def taken_apart(reference: Reference) -> Iterator[Reference]:
    """`a[i-1:i+2]` as a[i-1], a[i] and a[i+1]."""
    choices: list[list[Subscript]] = []
    for part in reference.subscripts:
        if part.dim is None or part.low is None or part.high is None or part.single:
            choices.append([part])
        elif part.high - part.low <= WIDEST:
            choices.append([Subscript(part.dim, low, low + 1) for low in range(part.low, part.high)])
        else:
            choices.append([ANYWHERE])
    for subscripts in product(*choices):
        yield replace(reference, subscripts=tuple(subscripts))


def positive(vector: Vector) -> Iterator[Vector]:
    """The lexicographically positive vectors for which it stands, as few as possible; of zeros alone there is none."""
    head: tuple[Distance, ...] = ()
    for at, component in enumerate(vector):
        rest = vector[at + 1 :]
        if component is ANY:
            yield (*head, POSITIVE, *rest)
            turned = turn(rest)
            if turned != rest:
                yield (*head, POSITIVE, *turned)
            head = (*head, 0)
        elif component is POSITIVE or (isinstance(component, int) and component > 0):
            yield (*head, component, *rest)
            return
        elif isinstance(component, int) and component < 0:
            yield (*head, -component, *turn(rest))
            return
        else:
            head = (*head, 0)


def turn(vector: Iterable[Distance]) -> Vector:
    """The vector the other way round; a POSITIVE component could be any negative one, and is taken as ANY."""
    return tuple(-item if isinstance(item, int) else ANY for item in vector)


def text(vector: Vector) -> str:
    return f"({', '.join(item.value if isinstance(item, Component) else str(item) for item in vector)})"


def judged(vectors: Iterable[Vector]) -> tuple[Vector, ...]:
    """In a fixed order, for people and files."""
    return tuple(sorted(vectors, key=lambda vector: [(str(type(item)), str(item)) for item in vector]))
