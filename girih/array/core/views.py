"""Views that see writes, as NumPy's do, on expressions that never change.

An Array is a name for an expression. Arrays that NumPy would let share memory are a family: each remembers the steps by
which it is a part of the whole. A write makes the expression of the whole anew, with the steps backwards, and binds
every member to its part of it. So `y = x[2:5]; y[0] = 1` shows in x, and what was computed from x before keeps its
value. A family ends with its last view: what nobody else can see is simply bound anew.

What NumPy makes a view and what a copy depends, for `reshape` and `ravel`, on the order of elements in memory. It is
known for what comes from arrays in C order; `layout` says how a part lies in the whole. Where it is not known (a sum of
transposed arrays, then reshaped), reading is as always, and writing while both are alive is refused.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from girih.array.core.array import Array

UNKNOWN = False
Layout = tuple[int, ...] | bool | None
"""Of an array in its whole: strides in elements; None: in C order without gaps; UNKNOWN."""


class Step(Protocol):
    """One way to be a part of an array."""

    def forward(self, x: Array) -> Array:
        """The part of x."""

    def backward(self, x: Array, part: Array) -> Array:
        """x with another part."""


class Family:
    """Arrays that show parts of one. expression: of the whole, also where no array shows all of it."""

    __slots__ = ("expression", "members")

    def __init__(self, base: Array) -> None:
        self.expression = base.expression
        self.members: dict[int, weakref.ref[Array]] = {}
        self.add(base)

    def add(self, member: Array) -> None:
        self.members[id(member)] = weakref.ref(member)
        member.family = self

    def leave(self, member: Array) -> None:
        self.members.pop(id(member), None)
        if len(self.members) == 1:
            last = next(iter(self.members.values()))()
            if last is not None:
                last.family, last.path = None, ()

    def write(self, member: Array, new: Array) -> None:
        """Give a member another value.

        Raises:
            ValueError: whether NumPy lets two of the members share memory is not known.
        """
        from girih.array.core.array import Array

        others = [one for one in (item() for item in self.members.values()) if one is not None]
        if any(isinstance(step, Uncertain) for one in others for step in one.path):
            raise ValueError(
                "an array that is written to was reshaped, and girih does not know whether NumPy would copy it or "
                "write to both: reshape a copy(), or write to the array before"
            )
        wholes = [Array(self.expression)]
        for step in member.path[:-1]:
            wholes.append(step.forward(wholes[-1]))
        part = new
        for step, whole in zip(reversed(member.path), reversed(wholes), strict=False):
            part = step.backward(whole, part)
        self.expression = part.expression
        for one in others:
            if one is member:
                one.bind(new.expression)
                continue
            shown = Array(self.expression)
            for step in one.path:
                shown = step.forward(shown)
            one.bind(shown.expression)


def view(x: Array, step: Step, layout: Layout, writeable: bool = True) -> Array:
    """A part of x that sees writes to x, and x to it; of a number a copy."""
    x = x.as_written()
    made = step.forward(x)
    made.scalar = False
    made.layout, made.writeable = layout, x.writeable and writeable
    if made.size:
        (x.family or Family(x)).add(made)
        made.path = (*x.path, step)
    return made


def read_only(x: Array) -> Array:
    """All of x, which sees writes to x and takes none."""
    from girih.array.core.array import Array

    x = x.as_written()
    made = Array(x.expression)
    made.layout, made.writeable = x.layout, False
    if made.size:
        (x.family or Family(x)).add(made)
        made.path = x.path
    return made


def write(x: Array, new: Array) -> None:
    """x becomes `new`, of its shape and dtype; and what shares elements with x sees it.

    Raises:
        ValueError: x is read-only.
    """
    if not x.writeable:
        raise ValueError("assignment destination is read-only")
    if x.family is not None:
        x.family.write(x, new)
    else:
        x.bind(new.expression)


# ------------------------------------------------------------------------------------------- steps


@dataclass(frozen=True)
class Slice:
    """x[…, start : start + (length - 1)·step + 1 : step, …] along a dimension, with step ≥ 1."""

    dim: int
    start: int
    length: int
    step: int

    @property
    def stop(self) -> int:
        return self.start + (self.length - 1) * self.step + 1 if self.length else self.start

    def forward(self, x: Array) -> Array:
        from girih.array.core.builder import apply

        shape = (*x.shape[: self.dim], self.length, *x.shape[self.dim + 1 :])
        place = {"dim": self.dim, "start": self.start, "end": self.stop, "step": self.step}
        return apply("aten.slice.Tensor", shape, x.dtype, self=x, **place)

    def backward(self, x: Array, part: Array) -> Array:
        from girih.array.core.builder import apply

        if self.step > 1:
            part = self._spread(Slice(self.dim, self.start, self.stop - self.start, 1).forward(x), part)
        place = {"dim": self.dim, "start": self.start, "end": self.stop}
        return apply("aten.slice_scatter", x.shape, x.dtype, self=x, src=part, **place)

    def _spread(self, stretch: Array, part: Array) -> Array:
        """The stretch with a new element at every step."""
        import numpy as np

        from girih.array.functions.elementwise.ufuncs import where
        from girih.array.functions.shapes.manipulation import repeat

        count = stretch.shape[self.dim]
        rest = (1,) * (stretch.ndim - 1 - self.dim)
        hit = (np.arange(count) % self.step == 0).reshape((count, *rest))
        wide = Slice(self.dim, 0, count, 1).forward(repeat(part, self.step, self.dim))
        return where(hit, wide, stretch)

    def layout(self, x: Array) -> Layout:
        strides = strides_of(x)
        if strides is None:
            return UNKNOWN
        return (*strides[: self.dim], strides[self.dim] * self.step, *strides[self.dim + 1 :])


@dataclass(frozen=True)
class Flip:
    dims: tuple[int, ...]

    def forward(self, x: Array) -> Array:
        from girih.array.core.builder import apply

        return apply("aten.flip", x.shape, x.dtype, self=x, dims=self.dims)

    def backward(self, x: Array, part: Array) -> Array:
        return self.forward(part)

    def layout(self, x: Array) -> Layout:
        strides = strides_of(x)
        if strides is None:
            return UNKNOWN
        return tuple(-size if dim in self.dims else size for dim, size in enumerate(strides))


@dataclass(frozen=True)
class Permute:
    order: tuple[int, ...]

    def forward(self, x: Array) -> Array:
        from girih.array.core.builder import apply

        return apply("aten.permute", [x.shape[dim] for dim in self.order], x.dtype, self=x, dims=self.order)

    def backward(self, x: Array, part: Array) -> Array:
        return Permute(tuple(self.order.index(dim) for dim in range(len(self.order)))).forward(part)

    def layout(self, x: Array) -> Layout:
        strides = strides_of(x)
        return UNKNOWN if strides is None else tuple(strides[dim] for dim in self.order)


@dataclass(frozen=True)
class Reshape:
    shape: tuple[int, ...]

    def forward(self, x: Array) -> Array:
        from girih.array.core.builder import apply

        return apply("aten.reshape", self.shape, x.dtype, self=x, shape=self.shape)

    def backward(self, x: Array, part: Array) -> Array:
        return part if part.shape == x.shape else Reshape(x.shape).forward(part)


class Uncertain(Reshape):
    """A reshape of which NumPy may make a copy."""


@dataclass(frozen=True)
class ReadOnly:
    """A part that NumPy does not let anybody write through: stretched by broadcasting, or a diagonal."""

    operator: str
    shape: tuple[int, ...]
    arguments: tuple[tuple[str, Any], ...]

    def forward(self, x: Array) -> Array:
        from girih.array.core.builder import apply

        return apply(self.operator, self.shape, x.dtype, self=x, **dict(self.arguments))

    def backward(self, x: Array, part: Array) -> Array:
        raise ValueError("assignment destination is read-only")


@dataclass(frozen=True)
class ComplexPart:
    """The real or the imaginary part of complex numbers."""

    name: str

    def forward(self, x: Array) -> Array:
        from girih.array.core.builder import apply

        kind = "float32" if x.dtype.itemsize == 8 else "float64"
        return apply(f"aten.{self.name}", x.shape, kind, self=x)

    def backward(self, x: Array, part: Array) -> Array:
        from girih.array.core.builder import apply

        other = ComplexPart("imag" if self.name == "real" else "real").forward(x)
        real, imag = (part, other) if self.name == "real" else (other, part)
        return apply("aten.complex", x.shape, x.dtype, real=real, imag=imag)


# ------------------------------------------------------------------------------------------- how parts lie


def strides_of(x: Array) -> tuple[int, ...] | None:
    """In elements of the whole; None where the order is not known."""
    if x.layout is None or (x.ndim < 2 and not isinstance(x.layout, tuple)):
        return tuple(math.prod(x.shape[dim + 1 :]) for dim in range(x.ndim))
    return x.layout if isinstance(x.layout, tuple) else None


def in_order(x: Array) -> bool:
    """Would NumPy make results of element-wise functions of x in C order?"""
    if x.layout is None or x.ndim < 2:
        return True
    if not isinstance(x.layout, tuple):
        return False
    sizes = [abs(stride) for stride, size in zip(x.layout, x.shape, strict=True) if size != 1]
    return all(first >= second for first, second in pairwise(sizes))


def copied(x: Array) -> Array:
    """A copy in the order of x's elements in memory, as NumPy's `order="K"`; `x.copy()` is in C order."""
    made = x.copy()
    made.layout = None if in_order(x) else UNKNOWN
    return made


def without_gaps(x: Array) -> bool:
    """Is it known to lie in C order, one element after another?"""
    strides, size = strides_of(x), 1
    for stride, extent in zip(reversed(strides or ()), reversed(x.shape), strict=False):
        if extent != 1 and stride != size:
            return False
        size *= extent
    return strides is not None


def reshaped(x: Array, shape: Sequence[int]) -> Array:
    """x in another shape of as many elements: a view where NumPy makes one, else a copy."""
    goal = tuple(shape)
    if [size for size in goal if size != 1] == [size for size in x.shape if size != 1]:
        strides = strides_of(x)
        layout: Layout = UNKNOWN if strides is None else _with_ones(x.shape, strides, goal)
        return view(x, Reshape(goal), None if x.layout is None else layout)
    strides = strides_of(x)
    if strides is None:
        return view(x, Uncertain(goal), UNKNOWN)
    if x.layout is None:
        return view(x, Reshape(goal), None)
    found = _regrouped(x.shape, strides, goal)
    if found is not None:
        return view(x, Reshape(goal), found)
    made = Reshape(goal).forward(x)
    made.layout = None
    return made


def _with_ones(shape: Sequence[int], strides: Sequence[int], goal: Sequence[int]) -> tuple[int, ...]:
    left = iter(stride for stride, size in zip(strides, shape, strict=True) if size != 1)
    return tuple(next(left) if size != 1 else 0 for size in goal)


def _regrouped(shape: Sequence[int], strides: Sequence[int], goal: Sequence[int]) -> tuple[int, ...] | None:
    """The strides of a reshape that needs no copy, else None: dimensions that merge must follow one another."""
    if 0 in shape:
        return (0,) * len(goal)  # nothing that could be copied
    old = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    made: list[int] = []
    at = 0
    new = list(goal)
    while new:
        if new[0] == 1:
            made.append(0)
            new.pop(0)
            continue
        wanted, have, taken, last = new[0], old[at][0], 1, at + 1
        while wanted != have:
            if wanted < have:
                wanted *= new[taken]
                taken += 1
            else:
                have *= old[last][0]
                last += 1
        for (_, outer), (size, inner) in zip(old[at : last - 1], old[at + 1 : last], strict=True):
            if outer != size * inner:
                return None
        stride = old[last - 1][1]
        inner_sizes = new[:taken]
        made += [stride * math.prod(inner_sizes[position + 1 :]) for position in range(taken)]
        new = new[taken:]
        at = last
    return tuple(made)
