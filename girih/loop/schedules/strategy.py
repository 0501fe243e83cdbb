"""How a loop is divided: along one dimension, two, two forms of a unimodular transformation, or not at all.

Orion, thesis §5.2.2 and §5.3.3. A dimension i with d[i] = 0 in every dependence vector divides the loop alone (1D).
Two dimensions of which each vector has a zero in one divide it in blocks (2D); in an ordered loop no vector may point
backwards in either, which matters from three dimensions on. Else two forms of a unimodular transformation are sought.
Among what is possible of the first kind, the choice moves the fewest elements between workers. All choices are
counted, so it is the least of them; `bound` counts for every dimension what would move if nothing but the arrays'
subscripts mattered, no dependence and no order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from math import prod

from girih.loop.capture.body import ArrayRole, Body
from girih.loop.capture.dependences import (
    POSITIVE,
    Vector,
    dependence_vectors,
    is_reduction,
    judged,
    text,
)
from girih.loop.capture.errors import LoopError
from girih.loop.capture.values import Reference
from girih.loop.schedules.unimodular import Form, Transformation, transformation
from girih.rewrite.certificate import Certificate

KINDS = ("1d", "2d", "unimodular", "serial")


@dataclass(frozen=True)
class Movement:
    """What of an array moves between workers in one execution of the loop.

    how: `stays`, `travels` (each part from worker to worker), `copied` (read by all), `added` (a sum of all workers'),
    `served` (wherever it is needed). elements: exact where parts are whole, for the given number of workers.
    """

    array: str
    how: str
    elements: int


@dataclass(frozen=True)
class LoopStrategy:
    """How a loop is divided among workers.

    space: each worker has a range of this form's values. time: parts in this direction are taken one after another.
    why: for people. certificate: of the elements that are moved in one execution.
    """

    kind: str
    ordered: bool
    workers: int
    vectors: tuple[Vector, ...]
    movements: tuple[Movement, ...]
    certificate: Certificate
    why: str
    space: Form | None = None
    time: Form | None = None
    transformation: Transformation | None = None

    @property
    def wavefront(self) -> bool:
        """Do blocks run in the order of both forms (or may each worker begin elsewhere)?"""
        return self.kind == "unimodular" or (self.kind == "2d" and self.ordered)


def choose(
    body: Body, ordered: bool, workers: int, kind: str | None = None, dims: tuple[int, ...] | None = None
) -> LoopStrategy:
    """The strategy that moves the fewest elements.

    kind, dims: what a user wants instead: one of KINDS, and the space and time dimensions.

    Raises:
        LoopError: what is wanted would not keep the loop's meaning.
    """
    vectors = judged(dependence_vectors(body, ordered))
    sizes = body.space.shape
    options = list(_options(vectors, sizes, ordered))
    if workers == 1:
        options = [item for item in options if item[0] == "serial"] if kind is None and dims is None else options
    wanted = [item for item in options if kind in (None, item[0]) and dims in (None, _dims_of(item))]
    if not wanted:
        words = " and ".join([*([f"kind={kind!r}"] if kind else []), *([f"dims={dims}"] if dims else [])])
        name = body.source.tree.name
        raise LoopError(
            f"{body.source.file}:{body.source.tree.lineno}: {words} would not keep what {name} computes: "
            f"its dependence vectors are {', '.join(map(text, vectors)) or 'none'}; possible is "
            f"{', '.join(dict.fromkeys(_words(*item[:3]) for item in options))}"
        )
    first = min(KINDS.index(item[0]) for item in wanted)
    priced = []
    for option in wanted:
        if KINDS.index(option[0]) == first:
            movements = tuple(movements_of(body, ordered, option[0], option[1], option[2], workers))
            priced.append((sum(item.elements for item in movements), option, movements))
    cost, (chosen, space, time, found), movements = min(priced, key=lambda item: item[0])
    certificate = Certificate(
        cost, min(least_moved(body, workers), cost), "elements", "the arrays' subscripts alone",
        "every division was counted", "divisions along one dimension",
        {f"elements, {_words(*option[:3])}": each for each, option, _ in priced},
    )  # fmt: skip
    return LoopStrategy(
        chosen, ordered, workers, vectors, movements, certificate,
        _why(chosen, vectors, space, time, len(options) > 1, workers), space, time, found,
    )  # fmt: skip


Option = tuple[str, Form | None, Form | None, Transformation | None]


def _options(vectors: tuple[Vector, ...], sizes: tuple[int, ...], ordered: bool) -> Iterator[Option]:
    dims = len(sizes)
    units = [tuple(int(at == dim) for at in range(dims)) for dim in range(dims)]
    for dim in one_dimension(vectors, dims):
        yield "1d", units[dim], None, None
    for space, time in two_dimensions(vectors, dims, ordered):
        yield "2d", units[space], units[time], None
    found = transformation(vectors, sizes) if vectors else None
    if found is not None:
        yield "unimodular", found.space, found.time, found
    yield "serial", None, None, None


def _dims_of(option: Option) -> tuple[int, ...]:
    return tuple(form.index(1) for form in option[1:3] if form is not None and sum(map(abs, form)) == 1 and 1 in form)


def one_dimension(vectors: Iterable[Vector], dims: int) -> tuple[int, ...]:
    """The dimensions that divide the loop alone."""
    known = tuple(vectors)
    return tuple(dim for dim in range(dims) if all(vector[dim] == 0 for vector in known))


def two_dimensions(vectors: Iterable[Vector], dims: int, ordered: bool) -> tuple[tuple[int, int], ...]:
    """(space, time) pairs of dimensions that divide the loop in blocks."""
    known = tuple(vectors)

    def fits(vector: Vector, space: int, time: int) -> bool:
        if vector[space] != 0 and vector[time] != 0:
            return False
        return not ordered or all(_forward(vector[dim]) for dim in (space, time))

    return tuple(
        (space, time)
        for space, time in permutations(range(dims), 2)
        if all(fits(vector, space, time) for vector in known)
    )


def _forward(component: object) -> bool:
    return component is POSITIVE or (isinstance(component, int) and component >= 0)


def movements_of(
    body: Body, ordered: bool, kind: str, space: Form | None, time: Form | None, workers: int
) -> Iterator[Movement]:
    """What each array moves if the loop is divided so."""
    others = workers - 1
    for name, references in _by_array(body).items():
        role = body.roles[name]
        assert isinstance(role, ArrayRole)
        elements = prod(role.shape)
        if kind == "serial" or not others:
            yield Movement(name, "stays", 0)
        elif is_reduction(body, name, ordered):
            yield Movement(name, "added", elements * others)
        elif (halo := _halo(references, space, role)) is not None:
            yield Movement(name, "stays", halo * others)
        elif _halo(references, time, role) is not None:
            yield Movement(name, "travels", elements * others)
        elif not any(item.writes for item in references):
            yield Movement(name, "copied", elements * others)
        else:
            yield Movement(name, "served", elements * others)
    for name in body.buffered:
        yield Movement(name, "added", prod(getattr(body.roles[name], "shape", (0,))) * others)


def least_moved(body: Body, workers: int) -> int:
    """A lower bound on the elements that move between workers that divide the loop along any one dimension."""
    if workers == 1:
        return 0
    dims = body.space.dims
    totals = []
    for dim in range(dims):
        unit = tuple(int(at == dim) for at in range(dims))
        total = 0
        for name, references in _by_array(body).items():
            role = body.roles[name]
            assert isinstance(role, ArrayRole)
            halo = _halo(references, unit, role)
            total += (prod(role.shape) if halo is None else halo) * (workers - 1)
        totals.append(total)
    return min(totals)


def _by_array(body: Body) -> Mapping[str, tuple[Reference, ...]]:
    return {name: body.of(name) for name in dict.fromkeys(item.array for item in body.references)}


def _halo(references: tuple[Reference, ...], form: Form | None, role: ArrayRole) -> int | None:
    """Elements of the array on both sides of one cut of a loop dimension; None: it is not cut along with it."""
    if form is None or sum(map(abs, form)) != 1 or 1 not in form:
        return None
    dim = form.index(1)
    for at in range(len(role.shape)):
        parts = [item.subscripts[at] for item in references]
        if all(part.dim == dim and part.low is not None for part in parts):
            lows = [part.low for part in parts if part.low is not None]
            highs = [part.high for part in parts if part.high is not None]
            return (max(highs) - min(lows) - 1) * prod(role.shape) // max(1, role.shape[at])
    return None


def _words(kind: str, space: Form | None, time: Form | None) -> str:
    if kind == "1d":
        return f"1D along {named(space)}"
    if kind == "2d":
        return f"2D, space {named(space)}, time {named(time)}"
    return f"unimodular, space {named(space)}, time {named(time)}" if kind == "unimodular" else "serial"


def named(form: Form | None) -> str:
    """`p0`, or `p0+2·p1`."""
    if form is None:
        return "–"
    terms: list[str] = []
    for dim, factor in enumerate(form):
        if factor:
            size = "" if abs(factor) == 1 else f"{abs(factor)}·"
            terms.append(f"{'-' if factor < 0 else '+' if terms else ''}{size}p{dim}")
    return "".join(terms)


def _why(
    kind: str, vectors: tuple[Vector, ...], space: Form | None, time: Form | None, others: bool, workers: int
) -> str:
    """others: whether it might have been divided in another way."""
    if kind == "1d":
        if not vectors:
            return "no iteration depends on another"
        return f"iterations that differ in {named(space)} do not depend on each other"
    if kind == "2d":
        return f"iterations that differ in both {named(space)} and {named(time)} do not depend on each other"
    if kind == "unimodular":
        return f"no dependence points backwards in {named(space)} or in {named(time)}"
    if workers == 1:
        return "there is one worker"
    return "as was asked for" if others else "no division keeps the order of iterations that depend on each other"
