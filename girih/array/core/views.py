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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from girih.array.core.array import UNKNOWN, Array, Family, Layout, ViewStep
from girih.array.core.builder import apply, choice
from girih.array.core.order import in_order, regrouped, strides_of, with_ones


def view(x: Array, step: ViewStep, layout: Layout, writeable: bool = True) -> Array:
    """A part of x that sees writes to x, and x to it; of a number a copy."""
    x = x.as_written()
    part = step.forward(x)
    part.scalar = False
    part.layout, part.writeable = layout, x.writeable and writeable
    if part.size:
        (x.family or Family(x)).add(part)
        part.path = (*x.path, step)
    return part


def again(x: Array) -> Array:
    """All of x by another name, whose shape may become another one while x keeps its own."""
    x = x.as_written()
    shown = Array(x.expression)
    shown.layout, shown.writeable = x.layout, x.writeable
    if shown.size:
        (x.family or Family(x)).add(shown)
        shown.path = x.path
    return shown


def read_only(x: Array) -> Array:
    """All of x, which sees writes to x and takes none."""
    shown = again(x)
    shown.writeable = False
    return shown


def write(x: Array, new: Array) -> None:
    """x becomes `new`, of its shape and dtype; and what shares elements with x sees it.

    Raises:
        ValueError: x is read-only, or whether NumPy lets two of x's family share memory is not known.
    """
    if not x.writeable:
        raise ValueError("assignment destination is read-only")
    if x.family is None:
        x.bind(new.expression)
        return
    family = x.family
    others = [one for one in (item() for item in family.members.values()) if one is not None]
    if any(isinstance(step, Uncertain) for one in others for step in one.path):
        raise ValueError(
            "an array that is written to was reshaped, and girih does not know whether NumPy would copy it or "
            "write to both: reshape a copy(), or write to the array before"
        )
    wholes = [Array(family.expression)]
    for step in x.path[:-1]:
        wholes.append(step.forward(wholes[-1]))
    part = new
    for step, whole in zip(reversed(x.path), reversed(wholes), strict=False):
        part = step.backward(whole, part)
    family.expression = part.expression
    for one in others:
        if one is x:
            one.bind(new.expression)
            continue
        shown = Array(family.expression)
        for step in one.path:
            shown = step.forward(shown)
        one.bind(shown.expression)


# ------------------------------------------------------------------------------------------- steps


@dataclass(frozen=True)
class SlicePart:
    """x[…, start : start + (length - 1)·step + 1 : step, …] along a dimension, with step ≥ 1."""

    dim: int
    start: int
    length: int
    step: int

    @property
    def stop(self) -> int:
        return self.start + (self.length - 1) * self.step + 1 if self.length else self.start

    def forward(self, x: Array) -> Array:
        shape = (*x.shape[: self.dim], self.length, *x.shape[self.dim + 1 :])
        place = {"dim": self.dim, "start": self.start, "end": self.stop, "step": self.step}
        return apply("aten.slice.Tensor", shape, x.dtype, self=x, **place)

    def backward(self, x: Array, part: Array) -> Array:
        if self.step > 1:
            part = self._spread(SlicePart(self.dim, self.start, self.stop - self.start, 1).forward(x), part)
        place = {"dim": self.dim, "start": self.start, "end": self.stop}
        return apply("aten.slice_scatter", x.shape, x.dtype, self=x, src=part, **place)

    def _spread(self, stretch: Array, part: Array) -> Array:
        """The stretch with a new element at every step."""
        count, before, rest = stretch.shape[self.dim], stretch.shape[: self.dim], stretch.shape[self.dim + 1 :]
        hit = (np.arange(count) % self.step == 0).reshape((count, *(1,) * len(rest)))
        each = expanded(reshaped(part, (*before, self.length, 1, *rest)), (*before, self.length, self.step, *rest))
        repeated = reshaped(each, (*before, self.length * self.step, *rest))
        return choice(hit, SlicePart(self.dim, 0, count, 1).forward(repeated.copy()), stretch)

    def layout(self, x: Array) -> Layout:
        strides = strides_of(x)
        if strides is None:
            return UNKNOWN
        return (*strides[: self.dim], strides[self.dim] * self.step, *strides[self.dim + 1 :])


@dataclass(frozen=True)
class Flip:
    dims: tuple[int, ...]

    def forward(self, x: Array) -> Array:
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
        return apply(self.operator, self.shape, x.dtype, self=x, **dict(self.arguments))

    def backward(self, x: Array, part: Array) -> Array:
        raise ValueError("assignment destination is read-only")


@dataclass(frozen=True)
class ComplexPart:
    """The real or the imaginary part of complex numbers."""

    name: str

    def forward(self, x: Array) -> Array:
        kind = "float32" if x.dtype.itemsize == 8 else "float64"
        return apply(f"aten.{self.name}", x.shape, kind, self=x)

    def backward(self, x: Array, part: Array) -> Array:
        other = ComplexPart("imag" if self.name == "real" else "real").forward(x)
        real, imag = (part, other) if self.name == "real" else (other, part)
        return apply("aten.complex", x.shape, x.dtype, real=real, imag=imag)


# ------------------------------------------------------------------------------------------- shapes


def copied(x: Array) -> Array:
    """A copy in the order of x's elements in memory, as NumPy's `order="K"`; `x.copy()` is in C order."""
    copy = x.copy()
    copy.layout = None if in_order(x) else UNKNOWN
    return copy


def reshaped(x: Array, shape: Sequence[int]) -> Array:
    """x in another shape of as many elements: a view where NumPy makes one, else a copy."""
    goal = tuple(shape)
    if [size for size in goal if size != 1] == [size for size in x.shape if size != 1]:
        strides = strides_of(x)
        layout: Layout = UNKNOWN if strides is None else with_ones(x.shape, strides, goal)
        return view(x, Reshape(goal), None if x.layout is None else layout)
    strides = strides_of(x)
    if strides is None:
        return view(x, Uncertain(goal), UNKNOWN)
    if x.layout is None:
        return view(x, Reshape(goal), None)
    part_layout = regrouped(x.shape, strides, goal)
    if part_layout is not None:
        return view(x, Reshape(goal), part_layout)
    copy = Reshape(goal).forward(x)
    copy.layout = None
    return copy


def expanded(x: Array, shape: tuple[int, ...]) -> Array:
    """x broadcast to a shape, which nobody can write through.

    Raises:
        ValueError: it does not broadcast.
    """
    if shape == x.shape:
        return read_only(x)
    try:
        fits = np.broadcast_shapes(x.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"cannot broadcast an array of shape {x.shape} to shape {shape}")
    strides = strides_of(x)
    layout: Layout = UNKNOWN
    if strides is not None:
        wide = (0 if size == 1 else stride for size, stride in zip(x.shape, strides, strict=True))
        layout = (*(0,) * (len(shape) - x.ndim), *wide)
    return view(x, ReadOnly("aten.expand", shape, (("size", shape),)), layout, writeable=False)
