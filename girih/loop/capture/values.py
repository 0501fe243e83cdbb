"""What is known of a value in a loop body: an index of the loop, a constant, a part of an array, or little."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

WEAK_INT, WEAK_FLOAT = "int", "float"
"""Python's own numbers: they take the dtype of what they meet (NumPy's NEP 50)."""


@dataclass(frozen=True)
class Subscript:
    """Where a reference touches one dimension of an array: [low, high), from the index of a loop dimension if given.

    dim: the loop dimension whose index is added; None: none. low None: it may be anywhere.
    """

    dim: int | None = None
    low: int | None = None
    high: int | None = None

    @property
    def anywhere(self) -> bool:
        return self.low is None

    @property
    def single(self) -> bool:
        return self.low is not None and self.high == self.low + 1

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return ":"
        if self.dim is None:
            return str(self.low) if self.single else f"{self.low}:{self.high}"
        name = f"p{self.dim}"
        first = f"{name}{self.low:+d}" if self.low else name
        return first if self.single else f"{first}:{name}{self.high:+d}"


ANYWHERE = Subscript()


@dataclass(frozen=True)
class Reference:
    """One place in a body that reads or writes an array.

    update: part of `array[…] += …`.
    """

    array: str
    subscripts: tuple[Subscript, ...]
    writes: bool
    line: int
    text: str
    update: bool = False

    def __str__(self) -> str:
        return f"{self.array}[{', '.join(map(str, self.subscripts))}]"


@dataclass(frozen=True)
class Index:
    """The index of a loop dimension plus a constant."""

    dim: int
    offset: int = 0


@dataclass(frozen=True)
class Interval:
    """An integer in [low, high); a constant where there is one."""

    low: int
    high: int

    @property
    def constant(self) -> int | None:
        return self.low if self.high == self.low + 1 else None


@dataclass(frozen=True)
class Tuple:
    items: tuple[Value, ...]


@dataclass(frozen=True)
class Cut:
    """A slice; step: it has one."""

    start: Value | None
    stop: Value | None
    step: bool = False


@dataclass(frozen=True)
class View:
    """A part of an array that shares its memory.

    open: the dimensions that can still be subscripted, in order; None: unknown which (after a reshape). cut: some of
    them are slices of unknown size.
    """

    array: str
    subscripts: tuple[Subscript, ...]
    open: tuple[int, ...] | None
    cut: bool = False


@dataclass(frozen=True)
class Views:
    """One of several views. outside: or something that the loop inherits."""

    members: frozenset[View]
    outside: bool = False


@dataclass(frozen=True)
class Scalar:
    dtype: str


@dataclass(frozen=True)
class Vector:
    """An array of one dimension that shares no memory with the loop's. length None: it is not known."""

    length: int | None
    dtype: str


@dataclass(frozen=True)
class Function:
    target: Callable[..., Any]


@dataclass(frozen=True)
class Object:
    """A module, or another object whose attributes can be looked up."""

    target: Any


@dataclass(frozen=True)
class Outside:
    """A container that the loop inherits, or an array in one: whoever else holds it would see a change.

    element: what it contains; an array's is a part of it, and itself one as long as dimensions are left, or a number.
    dims: of an array; None: a container.
    """

    element: Value
    dims: int | None = None


@dataclass(frozen=True)
class Stream:
    """A NumPy `Generator` that the loop is given: each iteration draws from a stream of its own."""

    name: str


@dataclass(frozen=True)
class Foreign:
    """Another object that the loop inherits: whatever is done with it may change it, in each worker otherwise."""

    what: type


@dataclass(frozen=True)
class Unknown:
    """A value that shares no memory with arrays of the loop."""


Value: TypeAlias = (
    Index
    | Interval
    | Tuple
    | Cut
    | View
    | Views
    | Scalar
    | Vector
    | Function
    | Object
    | Outside
    | Stream
    | Foreign
    | Unknown
)
UNKNOWN = Unknown()


def join(first: Value, second: Value) -> Value:
    """What is known where it may be either."""
    if first == second:
        return first
    for item in (first, second):
        if isinstance(item, Foreign | Stream):
            return Foreign(np.random.Generator) if isinstance(item, Stream) else item
    if isinstance(first, View | Views) or isinstance(second, View | Views):
        members = [item for value in (first, second) for item in views_of(value)]
        return Views(frozenset(members), is_outside(first) or is_outside(second))
    if isinstance(first, Outside) or isinstance(second, Outside):
        if isinstance(first, Outside) and isinstance(second, Outside):
            return Outside(join(first.element, second.element), first.dims if first.dims == second.dims else None)
        return first if isinstance(first, Outside) else second
    if isinstance(first, Interval) and isinstance(second, Interval):
        return Interval(min(first.low, second.low), max(first.high, second.high))
    if isinstance(first, Tuple) and isinstance(second, Tuple) and len(first.items) == len(second.items):
        return Tuple(tuple(join(a, b) for a, b in zip(first.items, second.items, strict=True)))
    if isinstance(first, Scalar) and isinstance(second, Scalar):
        if {first.dtype, second.dtype} <= {WEAK_INT, WEAK_FLOAT}:
            return Scalar(WEAK_FLOAT)
        weak = [item for item in (first, second) if item.dtype in (WEAK_INT, WEAK_FLOAT)]
        strong = [item for item in (first, second) if item not in weak]
        if len(strong) == 1 and "float" in strong[0].dtype:
            return strong[0]
    return UNKNOWN


def joined(values: Sequence[Value]) -> Value:
    """What is known where it may be any of these, of which there is one at least."""
    return reduce(join, values)


def views_of(value: Value) -> tuple[View, ...]:
    """The views that it may be."""
    if isinstance(value, View):
        return (value,)
    return tuple(sorted(value.members, key=repr)) if isinstance(value, Views) else ()


def reshaped(value: Value) -> Value:
    """The same elements of the same views, in an order that is not followed."""
    members = frozenset(View(view.array, view.subscripts, None) for view in views_of(value))
    outside = is_outside(value)
    return next(iter(members)) if len(members) == 1 and not outside else Views(members, outside)


def is_outside(value: Value) -> bool:
    """May it be something that the loop inherits and could change?"""
    return isinstance(value, Outside) or (isinstance(value, Views) and value.outside)


def holds_outside(value: Value) -> bool:
    return is_outside(value) or (isinstance(value, Tuple) and any(map(holds_outside, value.items)))


def holds_view(value: Value) -> bool:
    return isinstance(value, View | Views) or (isinstance(value, Tuple) and any(map(holds_view, value.items)))


def entry(part: Value | Subscript, size: int) -> tuple[Subscript, bool, bool]:
    """(where it lies in a dimension of this size, the dimension stays, it is an array of indices)."""
    if isinstance(part, Subscript):
        return part, False, False
    if isinstance(part, Index):
        return Subscript(part.dim, part.offset, part.offset + 1), False, False
    if isinstance(part, Interval):
        if part.constant is not None and -size <= part.low < 0:
            return Subscript(None, part.low + size, part.low + size + 1), False, False
        return (Subscript(None, part.low, part.high) if part.low >= 0 else ANYWHERE), False, False
    if isinstance(part, Cut):
        return slice_of(part, size), True, False
    return ANYWHERE, False, not isinstance(part, Scalar)


def slice_of(part: Cut, size: int) -> Subscript:
    """Where a slice lies."""
    start: Value = Interval(0, 1) if part.start is None else part.start
    stop: Value = Interval(size, size + 1) if part.stop is None else part.stop
    if isinstance(start, Interval) and isinstance(stop, Interval) and not part.step:
        low, high = start.low, stop.high - 1
        low, high = (low + size if low < 0 else low), (high + size if high < 0 else high)
        if start.constant is not None and stop.constant is not None and low >= 0:
            return ANYWHERE if (low, min(high, size)) == (0, size) else Subscript(None, low, max(min(high, size), low))
    if not (isinstance(start, Index) and isinstance(stop, Index) and start.dim == stop.dim) or part.step:
        return ANYWHERE
    if stop.offset > start.offset >= 0:  # below 0 a slice counts from the end
        return Subscript(start.dim, start.offset, stop.offset)
    return ANYWHERE


def is_whole(part: Value | Subscript, size: int) -> bool:
    """Is it a slice of everything?"""
    if not isinstance(part, Cut) or part.step:
        return False
    first = part.start is None or part.start == Interval(0, 1)
    return first and (part.stop is None or (isinstance(part.stop, Interval) and part.stop.low >= size))
