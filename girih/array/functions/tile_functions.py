"""The five operators of Spartan (§3.2), for users' own functions on tiles: map, filter, fold, scan, join_update.

A function is called by the workers, in threads or processes, with parts of arrays as NumPy arrays that must not be
written to; arrays that it refers to are NumPy's there, too. What an operator says of it is what the planner needs:
where it reads and where it writes. So these are nodes of the Graph as all others are, in index notation
(`girih.ops.catalogue.tile_functions`), tiled by the same search; how arrays are cut into tiles must not change the
result.

NumPy's functions of this package are the same operators with functions that girih knows: element-wise ones are `map`,
reductions are `fold`, cumulative ones `scan`, products are `join_update` with a sum. Known functions do not call Python
for each tile, and run in blocks; use these operators for what NumPy's names do not say.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import apply, as_array, axis_of, broadcast_shapes, number
from girih.array.core.dtypes import name_of
from girih.array.core.evaluation import WITH_FUNCTION
from girih.array.functions.shapes.manipulation import swapaxes as swapaxis
from girih.ops import functions
from girih.ops.functions import UFUNCS

__all__ = ["filter", "fold", "join_update", "map", "scan", "slice", "swapaxis", "vectorize"]

Function = Callable[..., Any]


def map(function: Function, *arrays: Any, dtype: Any = None) -> Array:
    """function(tile, …) element by element; arrays broadcast. Moves nothing where all are cut alike.

    function: of NumPy arrays that broadcast; gives the array of their common shape. Numbers among `arrays` come to it
        as arrays without dimensions; a number in the function itself makes a new plan when it changes.
    dtype: of the result; found by a call with one element each, unless given.

    Raises:
        TypeError: the function fails on one element each, and no dtype is given. EvaluationError: later, naming the
            line: it fails, or makes an array of another shape.
    """
    operands = _operands(arrays, "map")
    shape = broadcast_shapes(*(x.shape for x in operands))
    kind = _dtype(dtype, function, [_one(x) for x in operands], "map")
    return apply("girih.map", shape, kind, tensors=tuple(operands), function=_text(function), kind=name_of(kind))


def filter(predicate: Any, array: Any) -> Array:
    """The elements for which a predicate of tiles, or an array of truth values, holds: array[mask].

    How many there are is known once they are asked for; sums and means over them do not ask.
    """
    x = as_array(array)
    mask = map(predicate, x, dtype=np.bool_) if callable(predicate) else as_array(predicate)
    return x[mask]


def fold(function: Function, array: Any, axis: int = 0, combine: Any = None, dtype: Any = None) -> Array:
    """The array aggregated along an axis, which vanishes: function(tile, axis), and so on over what it makes of tiles.

    function: of (tile, axis) as `numpy.sum`, or a ufunc; associative and commutative. combine: by what the results of
        tiles are joined: "sum", "prod", "max" or "min"; of a ufunc of these it is known. Otherwise the function itself
        folds the stacked results of tiles, one for each worker.
    dtype: of the result; found by a call with one element, unless given.

    Raises:
        TypeError, ValueError: wrong arguments. EvaluationError: later, naming the line, as for `map`.
    """
    x, aggregate, combine = as_array(array), function, _reducer(function, combine)
    dim = axis_of(axis, x.ndim)
    if isinstance(function, np.ufunc):
        aggregate = _Reduce(function)
    kind = _dtype(dtype, aggregate, [_one(x), dim], "fold")
    shape = (*x.shape[:dim], *x.shape[dim + 1 :])
    if not x.shape[dim]:
        raise ValueError(f"fold: nothing to aggregate along axis {dim} of an array of shape {x.shape}")
    arguments = {"function": _text(aggregate), "kind": name_of(kind)}
    if combine is not None:
        return apply("girih.fold", shape, kind, input=x, axis=dim, reducer=combine, **arguments)
    return apply("girih.fold_whole", shape, kind, input=x, axis=dim, **arguments)


def scan(function: Function, array: Any, axis: int = 0, combine: Any = None, dtype: Any = None) -> Array:
    """Cumulative aggregates along an axis, in the array's shape: the scan of each tile, joined with what is before it.

    function: of (tile, axis) as `numpy.cumsum`, or a ufunc. combine: (what is before, scanned tile) → the tile's
        result: a function of arrays that broadcast, associative, or "sum", "prod", "max" or "min"; known of a ufunc.
        Between tiles only one element of each row moves.
    dtype: of the result; found by a call with one element, unless given.

    Raises:
        TypeError, ValueError: wrong arguments. EvaluationError: later, naming the line, as for `map`.
    """
    x, cumulate = as_array(array), function
    dim = axis_of(axis, x.ndim)
    if isinstance(function, np.ufunc):
        cumulate, combine = _Accumulate(function), function if combine is None else combine
    combine = UFUNCS.get(combine, combine) if isinstance(combine, str) else combine
    if not callable(combine):
        raise TypeError(f"scan: combine={combine!r}: expected a function of two arrays, or one of {list(UFUNCS)}")
    kind = _dtype(dtype, cumulate, [_one(x), dim], "scan")
    arguments = {"function": _text(cumulate), "kind": name_of(kind)}
    return apply("girih.scan", x.shape, kind, input=x, axis=dim, combine=_text(combine), **arguments)


def join_update(
    function: Function, *arrays: Any, axis: int | Sequence[int] = -1, shape: Sequence[int], accumulate: str = "sum",
    dtype: Any = None, along: int | None = None, location: bool = False,
) -> Array:  # fmt: skip
    """Tiles of arrays, cut alike along an axis of each, go to the function together; its results accumulate.

    function(tile, …) gives an array of `shape`, or (place, array): the update of a part that begins at `place`. Updates
    of several tiles are combined by `accumulate`: "sum", "prod", "max" or "min". A matrix product is
    `join_update(numpy.dot, a, b, axis=(1, 0), shape=(n, m))`.

    axis: of each array, of equal size; -1: the whole array goes to every tile. dtype: of the result; that of the
        arrays together, unless given.
    along: the dimension of the result that is cut as the tiles are. Each then makes its part of the result, nothing is
        combined, and nothing of the result moves.
    location: the function is first given the slice of the joined axis that its tiles are.

    Raises:
        TypeError, ValueError: wrong arguments. EvaluationError: later, naming the line: the function fails, or makes an
            array of another shape.
    """
    operands = _operands(arrays, "join_update")
    axes = _axes(operands, axis)
    goal = tuple(int(size) for size in shape)
    if accumulate not in UFUNCS:
        raise ValueError(f"join_update: accumulate={accumulate!r}: expected one of {list(UFUNCS)}")
    kind = np.dtype(dtype) if dtype is not None else np.result_type(*(x.dtype for x in operands))
    size = next(x.shape[at] for x, at in zip(operands, axes, strict=True) if at >= 0)
    more: dict[str, Any] = {"function": _text(function), "axes": axes, "shape": goal, "kind": name_of(kind)}
    more.update({"location": True} if location else {})
    if along is None:
        return apply("girih.join_update", goal, kind, tensors=tuple(operands), reducer=accumulate, **more)
    at = axis_of(along, len(goal))
    if goal[at] != size:
        raise ValueError(f"join_update: the result has {goal[at]} elements along dimension {at}, the tiles {size}")
    return apply("girih.join_along", goal, kind, tensors=tuple(operands), along=at, **more)


# ------------------------------------------------------------------------------------------- arrays and views


def slice(array: Any, region: Any) -> Array:
    """A view of a region: a slice, or (start, stop) or a slice for each dimension."""
    items = region if isinstance(region, (tuple, list)) else (region,)
    return as_array(array)[tuple(item if isinstance(item, builtins.slice) else builtins.slice(*item) for item in items)]


# ------------------------------------------------------------------------------------------- arguments


class _Reduce:
    """A ufunc as a function of (tile, axis)."""

    def __init__(self, ufunc: np.ufunc) -> None:
        self.ufunc = ufunc
        self.__qualname__ = f"{ufunc.__name__}.reduce"

    def __call__(self, tile: np.ndarray, axis: int) -> Any:
        return self.ufunc.reduce(tile, axis)


class _Accumulate(_Reduce):
    def __call__(self, tile: np.ndarray, axis: int) -> Any:
        return self.ufunc.accumulate(tile, axis)


def _reducer(function: Function, combine: Any) -> str | None:
    """The name of what combines results of tiles; None: the function itself."""
    combine = function if combine is None and isinstance(function, np.ufunc) else combine
    if isinstance(combine, np.ufunc):
        combine = next((name for name, ufunc in UFUNCS.items() if ufunc is combine), None)
    if combine is not None and combine not in UFUNCS:
        raise TypeError(f"fold: combine={combine!r}: expected one of {list(UFUNCS)}, or None for the function itself")
    return combine  # type: ignore[no-any-return]


def _operands(arrays: Sequence[Any], name: str) -> list[Array]:
    """Python numbers take the dtype of the arrays, where that holds them."""
    if not arrays:
        raise TypeError(f"{name}: expected at least one array")
    weak = [isinstance(item, (int, float, complex)) and not isinstance(item, np.generic) for item in arrays]
    strong = [as_array(item) for item, is_weak in zip(arrays, weak, strict=True) if not is_weak]
    kinds = [x.dtype for x in strong]
    left = iter(strong)
    return [
        number(item, np.result_type(*kinds, item) if kinds else np.asarray(item).dtype) if is_weak else next(left)
        for item, is_weak in zip(arrays, weak, strict=True)
    ]


def _one(x: Array) -> np.ndarray:
    return np.ones((1,) * x.ndim, x.dtype)


def _dtype(dtype: Any, function: Function, arguments: Sequence[Any], name: str) -> np.dtype:
    if dtype is not None:
        return np.dtype(dtype)
    if not callable(function):
        raise TypeError(f"{name}: {function!r} is no function")
    try:
        with np.errstate(all="ignore"):
            kind = np.asarray(function(*arguments)).dtype
    except Exception as error:
        raise TypeError(
            f"{name}: {functions.name_of(function)} fails on a tile of one element, by which the dtype is found "
            f"({type(error).__name__}: {error}): give dtype="
        ) from error
    name_of(kind)
    return kind


def _text(function: Function) -> str:
    if not callable(function):
        raise TypeError(f"{function!r} is no function")
    token = WITH_FUNCTION.set(True)
    try:
        return functions.text_of(function)
    finally:
        WITH_FUNCTION.reset(token)


def _axes(arrays: Sequence[Array], axis: int | Sequence[int]) -> tuple[int, ...]:
    axes = (axis,) * len(arrays) if isinstance(axis, int) else tuple(axis)
    if len(axes) != len(arrays):
        raise ValueError(f"join_update: {len(axes)} axes for {len(arrays)} arrays")
    result = tuple(at if at == -1 else axis_of(at, x.ndim) for x, at in zip(arrays, axes, strict=True))
    sizes = {x.shape[at] for x, at in zip(arrays, result, strict=True) if at >= 0}
    if not sizes:
        raise ValueError("join_update: every axis is -1: give the axis along which one of the arrays is cut")
    if len(sizes) > 1:
        raise ValueError(
            f"join_update: the arrays have {sorted(sizes)} elements along their axes: expected equal sizes"
        )
    return result


# ------------------------------------------------------------------------------------------- functions of numbers


class vectorize:  # noqa: N801 - NumPy's name
    """NumPy's, of functions with one result: called with arrays that broadcast, gives the array of its results.

    The workers call the function, each for the elements of its own part: Python's pace, on all cores with processes.

    otypes: the dtype of the result; without it the function is called once for the first elements, now.

    Raises:
        TypeError: excluded or signature is given, or the function has several results.
    """

    def __init__(
        self, pyfunc: Callable[..., Any] | None = None, otypes: Any = None, doc: str | None = None,
        excluded: Any = None, cache: bool = False, signature: str | None = None,
    ) -> None:  # fmt: skip
        if excluded or signature is not None:
            raise TypeError("girih.array.vectorize calls functions of numbers: it has neither excluded= nor signature=")
        if otypes is not None and len(otypes) != 1:
            raise TypeError(f"girih.array.vectorize has functions with one result, got otypes={otypes!r}")
        self.pyfunc = pyfunc
        self.kind = None if otypes is None else np.dtype(otypes[0])
        self.__doc__ = doc if doc is not None else getattr(pyfunc, "__doc__", None)

    def __call__(self, *arrays: Any, **options: Any) -> Any:
        if self.pyfunc is None:  # a decorator with options
            return vectorize(arrays[0], None if self.kind is None else [self.kind], self.__doc__)
        if options:
            raise TypeError(f"girih.array.vectorize passes arrays by position only, got {', '.join(options)}")
        operands = [as_array(x) for x in arrays]
        kind = self._kind(operands) if self.kind is None else self.kind
        return map(EveryElement(self.pyfunc, kind), *operands, dtype=kind)

    def _kind(self, operands: list[Array]) -> np.dtype:
        if any(x.size == 0 for x in operands):
            raise ValueError("cannot call `vectorize` on size 0 inputs unless `otypes` is set")
        assert self.pyfunc is not None
        first = self.pyfunc(*(x.reshape(-1)[0].compute()[()] for x in operands))  # NumPy's numbers, with their dtypes
        if isinstance(first, tuple):
            raise TypeError("girih.array.vectorize has functions with one result, got a tuple")
        return np.asarray(first).dtype


@dataclass(frozen=True)
class EveryElement:
    """The user's function of one element as a function of tiles, which calls it for each."""

    function: Callable[..., Any]
    kind: np.dtype

    def __call__(self, *tiles: np.ndarray) -> np.ndarray:
        return np.vectorize(self.function, otypes=[self.kind])(*tiles)
