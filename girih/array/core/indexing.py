"""x[…] with integers, slices, None and ellipsis (views), integer arrays and masks.

A mask makes a shape that depends on data: it is computed when the shape is asked for, which is here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from girih.array.core import views
from girih.array.core.array import UNKNOWN, Array, Layout, Shown
from girih.array.core.builder import apply, as_array, broadcast_shapes, cast, choice
from girih.array.core.order import strides_of
from girih.capture.lazy.expressions import Expression


def get(x: Array, key: Any) -> Array:
    """x[key]. Raises IndexError, as NumPy."""
    items = list(key) if isinstance(key, tuple) else [key]
    if items and all(isinstance(item, (int, np.integer)) and not isinstance(item, bool) for item in items):
        whole = len(items) == x.ndim  # a number, which sees no writes
        part = _basic(x.copy() if whole else x, _whole(x, list(map(int, items))))
        return part.as_scalar() if whole else part
    if not items and not x.shape:
        return x.as_scalar()
    items = [_plain(item) for item in items]
    if any(_is_number(item) for item in items) and all(
        _is_number(item) or not isinstance(item, Array) for item in items
    ):
        return _numbered(x, _whole(x, items))
    if not any(isinstance(item, Array) for item in items):
        return _basic(x.as_written(), _whole(x, items))
    for number, item in enumerate(items):
        if isinstance(item, Array) and item.dtype.kind == "b" and not item.ndim:  # a mask of a new dimension of one
            x = x.reshape((*x.shape[: (at := sum(map(_used, items[:number])))], 1, *x.shape[at:]))
            items[number] = item.reshape(1)
    if len(items) == 1 and isinstance(items[0], Array) and items[0].dtype.kind == "b" and items[0].size:
        fits(x, items[0], 0)
        return Masked(x.copy(), items[0].copy())  # later writes to them are not seen
    return _advanced(x, _whole(x, items))


class Masked(Shown):
    """x[mask]: how many elements it has is known once the mask is computed, which is when somebody asks for it.

    Sums and means over what the mask chose do not ask (`girih.array.functions.reductions.reduce`).
    """

    __slots__ = ("base", "mask", "picked")

    def __init__(self, base: Array, mask: Array) -> None:
        self.base = base
        self.mask = mask
        self.picked: Array | None = None
        self._alone()

    def __del__(self) -> None:
        """Leaves the family of views; the array `picked` leaves it by itself."""
        family = getattr(self, "family", None)  # none, where __init__ was interrupted
        if family is not None:
            family.leave(self)

    @property
    def expression(self) -> Expression:  # type: ignore[override]
        if self.picked is None:
            self.picked = _advanced(self.base, [self.mask, *[slice(None)] * (self.base.ndim - self.mask.ndim)])
        return self.picked.expression

    def bind(self, expression: Expression) -> None:
        self.picked = Array(expression)

    @property
    def dtype(self) -> np.dtype:
        return self.base.dtype

    @property
    def ndim(self) -> int:
        return self.base.ndim - self.mask.ndim + 1 if self.picked is None else self.picked.ndim


def _is_number(item: Any) -> bool:
    return isinstance(item, Array) and item.scalar and item.dtype.kind in "iu"


def _numbered(x: Array, items: list[Any]) -> Array:
    """x at numbers that are perhaps not computed yet: the parts there are views, as at integers of Python."""
    element = len(items) == x.ndim and all(_is_number(item) or isinstance(item, int) for item in items)
    shown = x.copy() if element else x.as_written()
    left: list[Any] = []
    for item in items:
        if _is_number(item):
            step = NumberedPart(sum(map(_used, left)), item)
            shown = views.view(shown, step, step.layout(shown))
        else:
            left.append(item)
    part = _basic(shown, left)
    return part.as_scalar() if element else part


@dataclass(frozen=True, eq=False)
class NumberedPart:
    """A part at a number, which nobody can write to."""

    dim: int
    number: Array

    def _key(self) -> tuple[Any, ...]:
        return (*[slice(None)] * self.dim, self.number.as_written())

    def forward(self, x: Array) -> Array:
        return _advanced(x, _whole(x, list(self._key())))

    def backward(self, x: Array, part: Array) -> Array:
        whole = x.copy()
        whole[self._key()] = part
        return whole

    def layout(self, x: Array) -> Layout:
        strides = strides_of(x)
        return UNKNOWN if strides is None else strides[: self.dim] + strides[self.dim + 1 :]


def _plain(item: Any) -> Any:
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, (int, np.integer)) and not isinstance(item, (bool, np.bool_)):
        return int(item)
    if isinstance(item, (list, tuple, np.ndarray, bool, np.bool_)):
        content = np.asarray(item)
        item = as_array(content.astype(np.int64) if content.size == 0 and not isinstance(item, np.ndarray) else content)
    if isinstance(item, Array) and item.dtype.kind in "iub":
        return item
    raise IndexError(
        "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays are valid "
        "indices"
    )


def _used(item: Any) -> int:
    """How many dimensions an item takes."""
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if isinstance(item, Array) and item.dtype.kind == "b" else 1


def _whole(x: Array, items: list[Any]) -> list[Any]:
    """The key with slices in place of its ellipsis, and for dimensions that it does not mention."""
    used = sum(map(_used, items))
    if used > x.ndim:
        raise IndexError(f"too many indices for array: array is {x.ndim}-dimensional, but {used} were indexed")
    ellipses = [number for number, item in enumerate(items) if item is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    at = ellipses[0] if ellipses else len(items)
    return [*items[:at], *[slice(None)] * (x.ndim - used), *items[at + len(ellipses) :]]


def items_of(x: Array, key: Any) -> list[Any]:
    """A key for writing, with one item for each dimension that is not new."""
    items = [_plain(item) for item in (key if isinstance(key, tuple) else (key,))]
    return _whole(x, items)


def _basic(x: Array, items: list[Any]) -> Array:
    steps = steps_of(x, items)
    for step in steps:
        x = views.reshaped(x, step.shape) if isinstance(step, views.Reshape) else views.view(x, step, step.layout(x))
    return x if steps else views.again(x)


def steps_of(x: Array, items: list[Any]) -> list[Any]:
    """What slices, integers and new axes do, one dimension after another; at last the shape."""
    steps: list[Any] = []
    dim = 0
    shape: list[int] = []
    for item in items:
        if item is None:
            shape.append(1)
            continue
        size = x.shape[dim]
        if isinstance(item, int):
            steps += _slice(size, dim, _inside(item, size, dim), 1, 1)
        else:
            start, stop, step = item.indices(size)
            length = len(range(start, stop, step))
            steps += _slice(size, dim, start, length, step)
            shape.append(length)
        dim += 1
    if any(item is None or isinstance(item, int) for item in items):
        steps.append(views.Reshape(tuple(shape)))
    return steps


def _slice(size: int, dim: int, start: int, length: int, step: int) -> list[Any]:
    """x[start : : step] with `length` elements; backwards it is a flip of what it passes."""
    if step < 0 and length > 0:
        return [*_slice(size, dim, start + (length - 1) * step, length, -step), views.Flip((dim,))]
    return [] if length == size else [views.SlicePart(dim, start, length, max(step, 1))]


def _inside(item: int, size: int, dim: int) -> int:
    if not -size <= item < size:
        raise IndexError(f"index {item} is out of bounds for axis {dim} with size {size}")
    return item % size


def _advanced(x: Array, items: list[Any]) -> Array:
    """Slices and new axes first, as a view; then integers and arrays together."""
    plain, picks = parted(x, items)
    view = _basic(x.copy(), plain)
    shape, numbers = meeting(view, picks)
    dims = sorted(picks)
    if len(dims) == 1 and picks[dims[0]].ndim == 1:
        index = wrapped(numbers[dims[0]], view.shape[dims[0]])
        part = apply("aten.index_select", shape, x.dtype, self=view, dim=dims[0], index=index)
    else:
        indices = tuple(numbers.get(at) for at in range(dims[-1] + 1))
        part = apply("aten.index.Tensor", shape, x.dtype, self=view, indices=indices)
    if part.ndim > 1 and dims != [0]:
        part.layout = UNKNOWN
    return part


def parted(x: Array, items: list[Any]) -> tuple[list[Any], dict[int, Array]]:
    """The slices and new axes of a key; and the integers and arrays by dimension of the view that these make."""
    plain: list[Any] = []
    picks: dict[int, Array] = {}
    dim = 0
    for number, item in enumerate(items):
        before = sum(_used(other) for other in items[:number])
        if isinstance(item, Array):
            arrays = places_of(item) if item.dtype.kind == "b" else (item,)
            if item.dtype.kind == "b":
                fits(x, item, before)
            for array in arrays:
                picks[dim] = cast(array, np.int64)
                plain.append(slice(None))
                dim += 1
            continue
        if isinstance(item, int):
            picks[dim] = as_array(np.asarray([_inside(item, x.shape[before], dim)])).reshape(())
            item = slice(None)
        plain.append(item)
        dim += 1
    return plain, picks


def meeting(view: Array, picks: dict[int, Array]) -> tuple[tuple[int, ...], dict[int, Array]]:
    """The shape of what integers and arrays choose together of a view; and these, checked as far as they are known."""
    for at, array in picks.items():
        check_known(array, view.shape[at], at)
    dims = sorted(picks)
    try:
        inner = broadcast_shapes(*(picks[at].shape for at in dims))
    except ValueError:
        shapes = " ".join(str(picks[at].shape) for at in dims)
        text = f"shape mismatch: indexing arrays could not be broadcast together with shapes {shapes}"
        raise IndexError(text) from None
    together = dims == list(range(dims[0], dims[-1] + 1))
    rest = [size for at, size in enumerate(view.shape) if at not in picks]
    first = dims[0] if together else 0
    return (*rest[:first], *inner, *rest[first:]), picks


def fits(x: Array, mask: Array, at: int) -> None:
    if mask.ndim > x.ndim:
        raise IndexError(f"too many indices for array: array is {x.ndim}-dimensional, but {mask.ndim} were indexed")
    for dim, size in enumerate(mask.shape, at):
        if x.shape[dim] != size and size:  # as NumPy, which lets an axis of nothing choose nothing
            raise IndexError(
                f"boolean index did not match indexed array along axis {dim}; size of axis is {x.shape[dim]} but size "
                f"of corresponding boolean axis is {size}"
            )


def check_known(index: Array, size: int, dim: int) -> None:
    """Numbers in memory are checked now; those that are computed, by the kernel."""
    content = index.expression.content
    if isinstance(content, np.ndarray) and content.size:
        for number in (int(content.min()), int(content.max())):
            _inside(number, size, dim)


def wrapped(index: Array, size: int) -> Array:
    """Negative numbers count from the end."""
    content = index.expression.content
    if isinstance(content, np.ndarray) and content.size and content.min() >= 0:
        return index
    return choice(index < 0, index + size, index)


def places_of(x: Array) -> tuple[Array, ...]:
    """Where x is not zero; computed now, because the shape depends on the data."""
    return tuple(as_array(places) for places in np.nonzero(x.compute()))
