"""NumPy's universal functions with their options (`out`, `where`, `dtype`) and methods (`reduce`, `accumulate`, …)."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import (
    apply,
    as_array,
    axes_of,
    axis_of,
    cast,
    elementwise,
    kind_of,
    no_axis,
    operands,
    typed,
)
from girih.array.core.views import copied


class UniversalFunction:
    """A function of every element.

    ufunc: NumPy's, by whose loops dtypes go. function: ours, of operands alone.
    """

    def __init__(self, ufunc: np.ufunc, function: Callable[..., Any]) -> None:
        self.ufunc = ufunc
        self.function = function
        self.__name__ = self.__qualname__ = ufunc.__name__
        self.__module__ = "girih.array"
        self.__doc__ = function.__doc__ or f"As numpy.{ufunc.__name__}."
        self.nin, self.nout, self.identity = ufunc.nin, ufunc.nout, ufunc.identity
        kinds = inspect.Parameter
        names = ["x"] if self.nin == 1 else [f"x{number + 1}" for number in range(self.nin)]
        first = [kinds(name, kinds.POSITIONAL_ONLY) for name in names]
        more = list(inspect.signature(type(self).__call__).parameters.values())[2:]
        self.__signature__ = inspect.Signature([*first, *more])

    def __repr__(self) -> str:
        return f"<girih ufunc '{self.__name__}'>"

    def __call__(
        self,
        *items: Any,
        out: Any = None,
        where: Any = True,
        dtype: Any = None,
        casting: Any = "same_kind",
        order: str = "K",
        subok: bool = True,
    ) -> Any:
        """out: an array of ours that becomes the result. where: elements elsewhere are those of `out`, or 0."""
        most = self.nin + self.nout
        if len(items) > most:
            given = f"from {self.nin} to {most} positional arguments but {len(items)} were given"
            raise TypeError(f"{self.__name__}() takes {given}")
        if len(items) > self.nin and out is None:  # as NumPy's, which takes them by position too
            items, out = items[: self.nin], items[self.nin :]
        if out is None and where is True and dtype is None:
            made = self.function(*items)
            if isinstance(made, tuple):
                return tuple(item.as_scalar() for item in made)
            return copied(made).as_scalar() if any(made is item for item in items) else made.as_scalar()
        made = self.function(*(items if dtype is None else self._in(dtype, casting, items)))
        if self.nout > 1:
            if where is not True:
                raise TypeError(f"girih.array.{self.__name__} has no where=: choose by np.where")
            outs = out if isinstance(out, tuple) else (out,) * self.nout
            return tuple(written(value, goal, casting) for value, goal in zip(made, outs, strict=True))
        out = out[0] if isinstance(out, tuple) else out
        if where is not True:
            made = _where(where, made, 0 if out is None else as_array(out))
        return written(made, out, casting)

    def _in(self, dtype: Any, casting: Any, items: tuple[Any, ...]) -> list[Any]:
        """The operands in the dtypes of NumPy's loop that makes `dtype`."""
        given = operands(*items)
        kinds = tuple(map(kind_of, given))
        signature = (*(None,) * self.nin, *(np.dtype(dtype),) * self.nout)
        inner = self.ufunc.resolve_dtypes((*kinds, *(None,) * self.nout), signature=signature, casting=casting)
        return [typed(item, kind) for item, kind in zip(given, inner, strict=False)]

    # --------------------------------------------------------------------------------------- methods

    def reduce(
        self,
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
        from girih.array.functions.reductions import reduce as reductions

        self._binary("reduce")
        x = as_array(array)
        more = {"keepdims": keepdims, "where": where}
        if initial is not None:
            more["initial"] = initial
        if self.__name__ in REDUCTIONS:
            if self.__name__ in ("add", "multiply"):
                more["dtype"] = dtype
            made = getattr(reductions, REDUCTIONS[self.__name__])(x, axis, **more)
            return written(made, out)
        if self.__name__ not in ASSOCIATIVE:
            raise TypeError(f"girih.array.{self.__name__} has no reduce: its result depends on the order of elements")
        if where is not True:
            if self.identity is None:
                raise ValueError(
                    f"reduction operation '{self.__name__}' does not have an identity, so to use a where mask one has "
                    "to specify 'initial'"
                )
            x = _where(where, x, x.dtype.type(self.identity))
        axes = axes_of(no_axis(axis, x.ndim), x.ndim)
        x = x if axes else x.copy()
        for dim in axes:
            x = self._folded(x, dim)
        if initial is not None:
            x = self.function(x, initial)
        if not keepdims:
            x = x.reshape(tuple(size for dim, size in enumerate(x.shape) if dim not in axes))
        return written(x if dtype is None else cast(x, dtype), out)

    def _folded(self, x: Array, dim: int) -> Array:
        """One element along `dim`, by halves."""
        before = (slice(None),) * dim
        size = x.shape[dim]
        if size == 0:
            if self.identity is None:
                raise ValueError(f"zero-size array to reduction operation {self.__name__} which has no identity")
            from girih.array.functions.shapes.creation import full

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

    def accumulate(self, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        """The reductions of the first element, the first two, … along an axis: in log₂ steps where ATen has no scan."""
        from girih.array.functions.reductions import scans
        from girih.array.functions.shapes import manipulation

        self._binary("accumulate")
        x = as_array(array)
        if not x.ndim:
            axis_of(0 if axis is None else axis, 1)
            raise TypeError("cannot accumulate on a scalar")
        dim = axis_of(axis, x.ndim)
        if self.__name__ in SCANS and x.dtype.kind != "b":
            return written(getattr(scans, SCANS[self.__name__])(x, dim, dtype), out)
        if self.__name__ not in ASSOCIATIVE and self.__name__ not in REDUCTIONS:
            raise TypeError(f"girih.array.{self.__name__} has no accumulate: the function is not associative")
        made = self.function(x, x)  # in the dtype of its results
        x, before, step = cast(x, dtype if dtype is not None else made.dtype).copy(), (slice(None),) * dim, 1
        while step < x.shape[dim]:
            head = x[(*before, slice(0, step))]
            x = manipulation.concatenate(
                [head, self.function(x[(*before, slice(None, -step))], x[(*before, slice(step, None))])], dim
            )
            step *= 2
        return written(x, out)

    def outer(self, first: Any, second: Any, /, **options: Any) -> Any:
        """Of every pair of elements."""
        self._binary("outer")
        first, second = as_array(first), as_array(second)
        return self(first.reshape(first.shape + (1,) * second.ndim), second, **options)

    def at(self, array: Any, indices: Any, b: Any = None, /) -> None:
        """array[indices] = self(array[indices], b), every occurrence of an index counted.

        Raises:
            TypeError: a function for which equal indices have no order-free meaning, an array that is not ours, or
                one whose dtype does not take the results.
        """
        from girih.array.core.indexing import check_known

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
        made = self.ufunc.resolve_dtypes((array.dtype, kind_of(*operands(b)), None))[-1]
        if not np.can_cast(made, array.dtype, "same_kind"):
            raise TypeError(
                f"girih.array.{self.__name__}.at of {made} into {array.dtype}: what is rounded at an index depends on "
                "the order of indices; use an array of floating-point numbers"
            )
        for dim, (item, size) in enumerate(zip(indices, array.shape, strict=False)):
            check_known(item, size, dim)
        value = cast(as_array(b), array.dtype)
        places = tuple(_wrapped(item, size) for item, size in zip(indices, array.shape, strict=False))
        if self.__name__ in SCATTERED:
            array[...] = _scattered(SCATTERED[self.__name__], array, places, value)
            return
        value = value if self.__name__ == "add" else -value
        given = {"self": array, "indices": places, "values": value, "accumulate": True}
        array[...] = apply("aten.index_put", array.shape, array.dtype, **given)

    def reduceat(self, array: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        """Reductions of the stretches between neighbouring indices, which are computed now."""
        from girih.array.functions.shapes import manipulation

        x = as_array(array)
        dim = axis_of(axis, x.ndim)
        starts = np.asarray(indices)
        places = starts.tolist()
        rising = len(places) > MANY and places[0] >= 0 and places[-1] < x.shape[dim] and (np.diff(starts) > 0).all()
        if rising and self.__name__ in ("add", *SCATTERED) and x.dtype.kind in "if":
            return written(self._stretches(x, starts, dim, dtype), out)
        before = (slice(None),) * dim
        parts = []
        for start, stop in zip(places, [*places[1:], x.shape[dim]], strict=True):
            if not 0 <= start < x.shape[dim]:
                raise IndexError(f"index {start} out-of-bounds in {self.__name__}.reduceat [0, {x.shape[dim]})")
            part = x[(*before, slice(start, stop if stop > start else start + 1))]
            parts.append(self.reduce(part, dim, dtype, keepdims=True))
        return written(manipulation.concatenate(parts, dim), out)

    def _stretches(self, x: Array, starts: np.ndarray, dim: int, dtype: Any) -> Array:
        """Of many stretches, all at once."""
        from girih.array.functions.shapes.creation import full
        from girih.array.functions.shapes.manipulation import moveaxis

        rows = moveaxis(x, dim, 0)
        kind = self.reduce(rows[:1], 0, dtype).dtype
        sizes = np.diff(starts, append=x.shape[dim])
        labels = as_array(np.repeat(np.arange(len(starts)), sizes))
        first = cast(rows[as_array(starts)], kind) if self.identity is None else None
        made = full((len(starts), *rows.shape[1:]), self.identity, kind) if first is None else first
        self.at(made, labels, cast(rows[int(starts[0]) :], kind))
        return moveaxis(made, 0, dim)

    def _binary(self, method: str) -> None:
        if self.nin != 2 or self.nout != 1:
            raise ValueError(f"{method} only supported for binary functions, not {self.__name__}")


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


def written(made: Any, out: Any, casting: Any = "same_kind") -> Any:
    """What was made; where there is an `out`, that one, bound to it.

    Raises:
        TypeError: `out` is not ours, or its dtype does not take the result. ValueError: its shape differs.
    """
    out = out[0] if isinstance(out, tuple) and len(out) == 1 else out
    if out is None:
        return made.as_scalar() if isinstance(made, Array) else made
    if not isinstance(out, Array):
        raise TypeError(f"out= must be a girih array, not {type(out).__name__}: np.asarray(x) makes one")
    if out.scalar:
        raise TypeError("return arrays must be of ArrayType: out= is a number, which is not written to")
    if not np.can_cast(made.dtype, out.dtype, casting):
        raise TypeError(f"Cannot cast from {made.dtype} to the output's {out.dtype} with casting rule {casting!r}")
    if out.shape != made.shape:
        raise ValueError(f"output parameter has shape {out.shape}, the result {made.shape}")
    out[...] = made
    return out


def _where(condition: Any, made: Any, other: Any) -> Array:
    from girih.array.functions.elementwise.ufuncs import where

    return cast(where(condition, made, other), made.dtype)


def _scattered(reducer: str, x: Array, places: tuple[Array, ...], value: Array) -> Array:
    """x with the values taken into the rows at the places: max, min or product."""
    from girih.array.functions.shapes.manipulation import broadcast_to

    count, rest = len(places), x.shape[len(places) :]
    line: Any = 0
    for place, size in zip(places, x.shape[:count], strict=True):
        line = line * size + place
    if line.size == 0:
        return x
    size = math.prod(rest)
    values = broadcast_to(value, (*line.shape, *rest)).reshape((line.size, size))
    index = broadcast_to(line.reshape((-1, 1)), values.shape)
    flat = x.copy().reshape((math.prod(x.shape[:count]), size))
    given = {"self": flat, "dim": 0, "index": index, "src": values, "reduce": reducer}
    return apply("aten.scatter_reduce.two", flat.shape, x.dtype, **given).reshape(x.shape)


def _wrapped(index: Array, size: int) -> Array:
    from girih.array.functions.elementwise.ufuncs import where

    index = cast(index, np.int64)
    return where(index < 0, index + size, index)


def universal(ufunc: np.ufunc) -> Callable[[Callable[..., Any]], UniversalFunction]:
    """A function of operands as NumPy's universal function."""
    return lambda function: UniversalFunction(ufunc, function)


def mapped(ufunc: np.ufunc, operator: str, *names: str) -> UniversalFunction:
    """One ATen operator at every position, in the dtypes of NumPy's loops."""
    if names:
        return UniversalFunction(ufunc, lambda *items: elementwise(ufunc, operator, *items, names=names))
    if ufunc.nin == 1:
        return UniversalFunction(ufunc, lambda x, /: elementwise(ufunc, operator, x))
    return UniversalFunction(ufunc, lambda x1, x2, /: elementwise(ufunc, operator, x1, x2))
