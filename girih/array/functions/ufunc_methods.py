"""The methods of universal functions: `np.add.reduce`, `accumulate`, `outer`, `at` and `reduceat`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import apply, as_array, axes_of, axis_of, cast, choice, kind_of, no_axis, operands
from girih.array.core.indexing import check_known, wrapped
from girih.array.core.universal import UniversalFunction, written
from girih.array.core.views import expanded
from girih.array.functions.reductions import reduce as reductions
from girih.array.functions.reductions import scans
from girih.array.functions.shapes import manipulation
from girih.array.functions.shapes.creation import full
from girih.array.functions.shapes.manipulation import moveaxis

REDUCTIONS = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any",
}  # fmt: skip
ASSOCIATIVE = frozenset(
    {"fmax", "fmin", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_xor", "logaddexp", "logaddexp2", "hypot",
     "gcd", "lcm"}
)  # fmt: skip
MANY = 64
"""More stretches than these are not reduced one by one."""
SCATTERED = {"maximum": "amax", "minimum": "amin", "multiply": "prod"}
SCANS = {"add": "cumsum", "multiply": "cumprod"}


def reduce(
    self: UniversalFunction,
    array: Any,
    axis: Any = 0,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> Any:
    """Over one axis, several or all (None).

    Raises:
        TypeError: the function has no order-free meaning over many elements.
    """
    _check_binary(self, "reduce")
    x = as_array(array)
    more = {"keepdims": keepdims, "where": where}
    if initial is not None:
        more["initial"] = initial
    if self.__name__ in REDUCTIONS:
        if self.__name__ in ("add", "multiply"):
            more["dtype"] = dtype
        result = getattr(reductions, REDUCTIONS[self.__name__])(x, axis, **more)
        return written(result, out)
    if self.__name__ not in ASSOCIATIVE:
        raise TypeError(f"girih.array.{self.__name__} has no reduce: its result depends on the order of elements")
    if where is not True:
        if self.identity is None:
            raise ValueError(
                f"reduction operation '{self.__name__}' does not have an identity, so to use a where mask one has "
                "to specify 'initial'"
            )
        x = cast(choice(where, x, x.dtype.type(self.identity)), x.dtype)
    axes = axes_of(no_axis(axis, x.ndim), x.ndim)
    x = x if axes else x.copy()
    for dim in axes:
        x = _folded(self, x, dim)
    if initial is not None:
        x = self.function(x, initial)
    if not keepdims:
        x = x.reshape(tuple(size for dim, size in enumerate(x.shape) if dim not in axes))
    return written(x if dtype is None else cast(x, dtype), out)


def _folded(self: UniversalFunction, x: Array, dim: int) -> Array:
    """Reduce to one element along `dim`, one half with the other again and again."""
    before = (slice(None),) * dim
    size = x.shape[dim]
    if size == 0:
        if self.identity is None:
            raise ValueError(f"zero-size array to reduction operation {self.__name__} which has no identity")
        return full((*x.shape[:dim], 1, *x.shape[dim + 1 :]), self.identity, x.dtype)
    rest: list[Array] = []
    while size > 1:
        half = size // 2
        if size % 2:
            rest.append(x[(*before, slice(size - 1, size))])
        x = self.function(x[(*before, slice(0, half))], x[(*before, slice(half, 2 * half))])
        size = half
    for part in reversed(rest):
        x = self.function(x, part)
    return x


def accumulate(self: UniversalFunction, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
    """The reductions of the first element, the first two, … along an axis: in log₂ steps where ATen has no scan."""
    _check_binary(self, "accumulate")
    x = as_array(array)
    if not x.ndim:
        axis_of(0 if axis is None else axis, 1)
        raise TypeError("cannot accumulate on a scalar")
    dim = axis_of(axis, x.ndim)
    counts = x.dtype.kind != "b" or dtype is None or np.dtype(dtype) != bool  # truth values are counted as numbers
    if self.__name__ in SCANS and counts:
        return written(getattr(scans, SCANS[self.__name__])(x, dim, dtype), out)
    if self.__name__ not in ASSOCIATIVE and self.__name__ not in REDUCTIONS:
        raise TypeError(f"girih.array.{self.__name__} has no accumulate: the function is not associative")
    result = self.function(x, x)  # in the dtype of its results
    x, before, step = cast(x, dtype if dtype is not None else result.dtype).copy(), (slice(None),) * dim, 1
    while step < x.shape[dim]:
        head = x[(*before, slice(0, step))]
        x = manipulation.concatenate(
            [head, self.function(x[(*before, slice(None, -step))], x[(*before, slice(step, None))])], dim
        )
        step *= 2
    return written(x, out)


def outer(self: UniversalFunction, first: Any, second: Any, /, **options: Any) -> Any:
    """The function of every pair of elements."""
    _check_binary(self, "outer")
    first, second = as_array(first), as_array(second)
    return self(first.reshape(first.shape + (1,) * second.ndim), second, **options)


def at(self: UniversalFunction, array: Any, indices: Any, b: Any = None, /) -> None:
    """array[indices] = self(array[indices], b), every occurrence of an index counted.

    Raises:
        TypeError: a function for which equal indices have no order-free meaning, an array that is not ours, or
            one whose dtype does not take the results.
    """
    if not isinstance(array, Array):
        raise TypeError(f"girih.array.{self.__name__}.at writes into girih arrays, not into {type(array).__name__}")
    if self.nin == 1:
        array[indices] = self.function(array[indices])
        return
    picks = indices if isinstance(indices, tuple) else (indices,)
    if any(isinstance(item, slice) or item is None or item is Ellipsis for item in picks):
        array[indices] = self.function(array[indices], b)  # slices meet no element twice
        return
    indices = [as_array(item) for item in picks]
    if len(indices) > array.ndim:
        rank = f"array is {array.ndim}-dimensional, but {len(indices)} were indexed"
        raise IndexError(f"too many indices for array: {rank}")
    if any(item.dtype.kind == "b" for item in indices):  # nor do masks
        array[tuple(indices)] = self.function(array[tuple(indices)], b)
        return
    if self.__name__ not in ("add", "subtract", *SCATTERED):
        names = ", ".join(f"{name}.at" for name in ("add", "subtract", *SCATTERED))
        raise TypeError(f"girih.array has no {self.__name__}.at: expected one of {names}")
    if self.__name__ in SCATTERED and array.dtype.kind == "c":
        raise TypeError(f"girih.array.{self.__name__}.at takes no complex numbers, as add.at and subtract.at do")
    kind = self.ufunc.resolve_dtypes((array.dtype, kind_of(*operands(b)), None))[-1]
    if not np.can_cast(kind, array.dtype, "same_kind"):
        raise TypeError(
            f"girih.array.{self.__name__}.at of {kind} into {array.dtype}: what is rounded at an index depends on "
            "the order of indices; use an array of floating-point numbers"
        )
    for dim, (item, size) in enumerate(zip(indices, array.shape, strict=False)):
        check_known(item, size, dim)
    value = cast(as_array(b), array.dtype)
    places = tuple(wrapped(cast(item, np.int64), size) for item, size in zip(indices, array.shape, strict=False))
    if self.__name__ in SCATTERED:
        array[...] = _scattered(SCATTERED[self.__name__], array, places, value)
        return
    value = value if self.__name__ == "add" else -value
    arguments = {"self": array, "indices": places, "values": value, "accumulate": True}
    array[...] = apply("aten.index_put", array.shape, array.dtype, **arguments)


def reduceat(
    self: UniversalFunction, array: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None
) -> Any:
    """Reductions of the stretches between neighbouring indices, which are computed now."""
    x = as_array(array)
    dim = axis_of(axis, x.ndim)
    starts = np.asarray(indices)
    places = starts.tolist()
    rising = len(places) > MANY and places[0] >= 0 and places[-1] < x.shape[dim] and (np.diff(starts) > 0).all()
    if rising and self.__name__ in ("add", *SCATTERED) and x.dtype.kind in "if":
        return written(_stretches(self, x, starts, dim, dtype), out)
    before = (slice(None),) * dim
    parts = []
    for start, stop in zip(places, [*places[1:], x.shape[dim]], strict=True):
        if not 0 <= start < x.shape[dim]:
            raise IndexError(f"index {start} out-of-bounds in {self.__name__}.reduceat [0, {x.shape[dim]})")
        part = x[(*before, slice(start, stop if stop > start else start + 1))]
        parts.append(reduce(self, part, dim, dtype, keepdims=True))
    return written(manipulation.concatenate(parts, dim), out)


def _stretches(self: UniversalFunction, x: Array, starts: np.ndarray, dim: int, dtype: Any) -> Array:
    """`reduceat` of many stretches, all computed at once."""
    rows = moveaxis(x, dim, 0)
    kind = reduce(self, rows[:1], 0, dtype).dtype
    sizes = np.diff(starts, append=x.shape[dim])
    labels = as_array(np.repeat(np.arange(len(starts)), sizes))
    first = cast(rows[as_array(starts)], kind) if self.identity is None else None
    result = full((len(starts), *rows.shape[1:]), self.identity, kind) if first is None else first
    at(self, result, labels, cast(rows[int(starts[0]) :], kind))
    return moveaxis(result, 0, dim)


def _check_binary(self: UniversalFunction, method: str) -> None:
    if self.nin != 2 or self.nout != 1:
        raise ValueError(f"{method} only supported for binary functions, not {self.__name__}")


def _scattered(reducer: str, x: Array, places: tuple[Array, ...], value: Array) -> Array:
    """x with the values taken into the rows at the places: max, min or product."""
    count, rest = len(places), x.shape[len(places) :]
    line: Any = 0
    for place, size in zip(places, x.shape[:count], strict=True):
        line = line * size + place
    if line.size == 0:
        return x
    size = math.prod(rest)
    values = expanded(value, (*line.shape, *rest)).reshape((line.size, size))
    index = expanded(line.reshape((-1, 1)), values.shape)
    flat = x.copy().reshape((math.prod(x.shape[:count]), size))
    arguments = {"self": flat, "dim": 0, "index": index, "src": values, "reduce": reducer}
    return apply("aten.scatter_reduce.two", flat.shape, x.dtype, **arguments).reshape(x.shape)
