"""Shape, order and parts: views where ATen has views, copies elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from operator import index
from typing import Any

import numpy as np

from girih.array.core import views
from girih.array.core.array import UNKNOWN, Array, Layout
from girih.array.core.builder import (
    apply,
    as_array,
    axes_of,
    axis_of,
    broadcast_shapes,
    cast,
    choice,
    line_axis,
    no_axis,
)
from girih.array.core.indexing import get
from girih.array.core.order import strides_of, without_gaps
from girih.array.core.universal import written
from girih.array.functions.elementwise.information import check_device
from girih.array.functions.whole import whole


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Array:
    check_device(device)
    x = as_array(x)
    result = cast(x, dtype)
    if result is x:
        return views.copied(x) if copy else x
    return result if x.scalar else result.as_written()


# ------------------------------------------------------------------------------------------- shape


def reshape(a: Any, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Array:
    """order: "C", or "F", in which the first index changes fastest; elements lie in C order all the same.

    Raises:
        ValueError: NumPy's, where the sizes do not fit; another order.
    """
    x = as_array(a)
    wanted = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    sizes = [int(size) for size in wanted]
    if order == "F":
        return transpose(reshape(transpose(x), sizes[::-1]))
    if order not in ("C", "A"):
        raise ValueError(f"order={order!r}: girih.array has orders 'C' and 'F'")
    if sizes.count(-1) > 1:
        raise ValueError("can only specify one unknown dimension")
    known = math.prod(size for size in sizes if size != -1)
    if -1 in sizes and known and x.size % known == 0:
        sizes[sizes.index(-1)] = x.size // known
    if -1 in sizes or math.prod(sizes) != x.size:
        raise ValueError(f"cannot reshape array of size {x.size} into shape {wanted}")
    if tuple(sizes) == x.shape:
        return views.again(x) if x.ndim else x
    return views.reshaped(x, sizes)


def ravel(a: Any, order: str = "C") -> Array:
    """A view of what lies in C order without gaps, else a copy."""
    x = transpose(a) if order == "F" else as_array(a)
    result = reshape(x, (-1,), "C" if order == "F" or (order == "K" and x.layout is None) else order)
    if x.layout is None or not isinstance(x.layout, tuple) or without_gaps(x):
        return result
    return result.copy()


def squeeze(a: Any, axis: Any = None) -> Array:
    x = as_array(a)
    ones = tuple(dim for dim, size in enumerate(x.shape) if size == 1)
    gone = ones if axis is None else axes_of(no_axis(axis, x.ndim), x.ndim)
    if x.scalar or not gone:
        return x
    if any_other := [dim for dim in gone if x.shape[dim] != 1]:
        raise ValueError(f"cannot select an axis to squeeze out which has size not equal to one: {any_other}")
    return reshape(x, tuple(size for dim, size in enumerate(x.shape) if dim not in gone))


def expand_dims(a: Any, axis: Any) -> Array:
    x = as_array(a)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    new = axes_of(tuple(axes), x.ndim + len(axes))
    sizes = iter(x.shape)
    return reshape(x, tuple(1 if dim in new else next(sizes) for dim in range(x.ndim + len(axes))))


def atleast_1d(*arrays: Any) -> Any:
    return _each(lambda x: x if x.ndim else reshape(x, (1,)), arrays)


def atleast_2d(*arrays: Any) -> Any:
    return _each(lambda x: x if x.ndim > 1 else reshape(x, (1, -1)), arrays)


def atleast_3d(*arrays: Any) -> Any:
    shapes = {0: lambda x: (1, 1, 1), 1: lambda x: (1, *x.shape, 1), 2: lambda x: (*x.shape, 1)}
    return _each(lambda x: x if x.ndim > 2 else reshape(x, shapes[x.ndim](x)), arrays)


def _each(change: Any, arrays: Sequence[Any]) -> Any:
    changed = tuple(change(as_array(x)) for x in arrays)
    return changed[0] if len(changed) == 1 else changed


# ------------------------------------------------------------------------------------------- order of dimensions


def transpose(a: Any, axes: Any = None) -> Array:
    x = as_array(a)
    if axes is None:
        order = tuple(reversed(range(x.ndim)))
    else:
        order = np.lib.array_utils.normalize_axis_tuple(axes, x.ndim)
        if len(order) != x.ndim:
            raise ValueError("axes don't match array")
    if order == tuple(range(x.ndim)):
        return views.again(x) if x.ndim else x
    step = views.Permute(tuple(order))
    return views.view(x, step, step.layout(x))


permute_dims = transpose


def matrix_transpose(x: Any, /) -> Array:
    x = as_array(x)
    if x.ndim < 2:
        raise ValueError("matrix transpose with ndim < 2 is undefined")
    return swapaxes(x, -1, -2)


def swapaxes(a: Any, axis1: int, axis2: int) -> Array:
    x = as_array(a)
    order = list(range(x.ndim))
    first, second = axis_of(axis1, x.ndim), axis_of(axis2, x.ndim)
    order[first], order[second] = order[second], order[first]
    return transpose(x, order)


def moveaxis(a: Any, source: Any, destination: Any) -> Array:
    x = as_array(a)
    normal = np.lib.array_utils.normalize_axis_tuple
    origin, goal = normal(source, x.ndim, "source"), normal(destination, x.ndim, "destination")
    if len(origin) != len(goal):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    order = [dim for dim in range(x.ndim) if dim not in origin]
    for to, dim in sorted(zip(goal, origin, strict=True)):
        order.insert(to, dim)
    return transpose(x, order)


def rollaxis(a: Any, axis: int, start: int = 0) -> Array:
    x = as_array(a)
    axis, start = axis_of(axis, x.ndim), start + x.ndim if start < 0 else start
    return moveaxis(x, axis, start - 1 if axis < start else start)


def flip(m: Any, axis: Any = None) -> Array:
    x = as_array(m)
    axes = axes_of(axis, x.ndim)
    step = views.Flip(axes)
    return views.view(x, step, step.layout(x)) if axes else views.again(x) if x.ndim else x.as_scalar()


def fliplr(m: Any) -> Array:
    return flip(m, 1)


def flipud(m: Any) -> Array:
    return flip(m, 0)


def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    first, second = axes
    turns = k % 4
    if turns == 0:
        return flip(m, ())
    if turns == 2:
        return flip(m, axes)
    return swapaxes(flip(m, second), first, second) if turns == 1 else flip(swapaxes(m, first, second), second)


def roll(a: Any, shift: Any, axis: Any = None) -> Array:
    x = as_array(a)
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    axes = np.atleast_1d(np.asarray(axis, np.int64)).tolist()
    amounts = np.atleast_1d(np.asarray(shift))
    if amounts.ndim > 1:
        raise ValueError("'shift' and 'axis' should be scalars or 1D sequences")
    if x.size == 0 or not axes:
        return x.copy()
    for amount, dim in zip(*(pair.tolist() for pair in np.broadcast_arrays(amounts, axes)), strict=True):
        x = apply("aten.roll", x.shape, x.dtype, self=x, shifts=(int(amount),), dims=(axis_of(dim, x.ndim),))
    return x


# ------------------------------------------------------------------------------------------- copies


def broadcast_to(array: Any, shape: Any) -> Array:
    x = as_array(array)
    goal = tuple(map(index, shape)) if isinstance(shape, Sequence) else (int(shape),)
    return views.expanded(x, goal)


def broadcast_arrays(*args: Any) -> tuple[Array, ...]:
    arrays = [as_array(x) for x in args]
    shape = broadcast_shapes(*(x.shape for x in arrays))
    return tuple(broadcast_to(x, shape) for x in arrays)


def tile(A: Any, reps: Any) -> Array:
    x = as_array(A)
    times = tuple(map(index, reps)) if isinstance(reps, Sequence) else (index(reps),)
    times = (1,) * (x.ndim - len(times)) + times
    x = reshape(x, (1,) * (len(times) - x.ndim) + x.shape)
    shape = [count * size for count, size in zip(times, x.shape, strict=True)]
    return apply("aten.repeat", shape, x.dtype, self=x, repeats=times)


def repeat(a: Any, repeats: Any, axis: int | None = None) -> Array:
    x = as_array(a)
    axis = line_axis(axis, x.ndim)
    x = x if axis is not None else ravel(x)
    dim = axis_of(axis if axis is not None else 0, x.ndim)
    if not isinstance(repeats, (int, np.integer)):
        positions = np.repeat(np.arange(x.shape[dim]), np.asarray(repeats))
        return get(x, (slice(None),) * dim + (as_array(positions),))
    one = expand_dims(x, dim + 1)
    if repeats == 1:
        return x.copy()
    wide = broadcast_to(one, (*one.shape[: dim + 1], int(repeats), *one.shape[dim + 2 :]))
    return reshape(wide, (*x.shape[:dim], x.shape[dim] * int(repeats), *x.shape[dim + 1 :])).copy()


# ------------------------------------------------------------------------------------------- joining and parting


def concatenate(arrays: Sequence[Any], axis: int | None = 0, out: Any = None, dtype: Any = None) -> Any:
    """Raises ValueError, as NumPy, for no arrays or for shapes that do not fit."""
    parts = [as_array(x) for x in arrays]
    if not parts:
        raise ValueError("need at least one array to concatenate")
    parts = [ravel(x) for x in parts] if axis is None else parts
    if any(x.ndim == 0 for x in parts):
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    rank, dim = parts[0].ndim, axis_of(axis or 0, parts[0].ndim)
    others = {(*x.shape[:dim], *x.shape[dim + 1 :]) for x in parts}
    if len(others) > 1 or any(x.ndim != rank for x in parts):
        raise ValueError(
            "all the input array dimensions except for the concatenation axis must match exactly, but the shapes are "
            + ", ".join(str(x.shape) for x in parts)
        )
    kind = np.dtype(dtype) if dtype is not None else np.result_type(*(x.dtype for x in parts))
    parts = [cast(x, kind) for x in parts]
    if len(parts) == 1:
        return written(parts[0].copy(), out)
    size = sum(x.shape[dim] for x in parts)
    shape = (*parts[0].shape[:dim], size, *parts[0].shape[dim + 1 :])
    return written(apply("aten.cat", shape, kind, tensors=tuple(parts), dim=dim), out)


concat = concatenate


def stack(arrays: Sequence[Any], axis: int = 0, out: Any = None, *, dtype: Any = None) -> Any:
    parts = [as_array(x) for x in arrays]
    if not parts:
        raise ValueError("need at least one array to stack")
    if len({x.shape for x in parts}) > 1:
        raise ValueError("all input arrays must have the same shape")
    return concatenate([expand_dims(x, axis) for x in parts], axis, out, dtype)


def vstack(tup: Sequence[Any], *, dtype: Any = None) -> Any:
    return concatenate([atleast_2d(x) for x in tup], 0, dtype=dtype)


def hstack(tup: Sequence[Any], *, dtype: Any = None) -> Any:
    parts = [atleast_1d(x) for x in tup]
    return concatenate(parts, 0 if parts and parts[0].ndim == 1 else 1, dtype=dtype)


def dstack(tup: Sequence[Any]) -> Array:
    return concatenate([atleast_3d(x) for x in tup], 2)


def column_stack(tup: Sequence[Any]) -> Array:
    columns = [as_array(x) for x in tup]
    return concatenate([reshape(x, (-1, 1)) if x.ndim < 2 else x for x in columns], 1)


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    x = as_array(ary)
    size = x.shape[axis_of(axis, x.ndim)]
    if isinstance(indices_or_sections, int):
        if indices_or_sections <= 0:
            raise ValueError("number sections must be larger than 0.")
        each, rest = divmod(size, indices_or_sections)
        sizes = [each + 1] * rest + [each] * (indices_or_sections - rest)
        bounds = [0, *np.cumsum(sizes).tolist()]
    else:
        bounds = [0, *(int(at) for at in indices_or_sections), size]
    before = (slice(None),) * axis_of(axis, x.ndim)
    return [x[(*before, slice(first, last))] for first, last in pairwise(bounds)]


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    x = as_array(ary)
    if isinstance(indices_or_sections, int) and x.shape[axis_of(axis, x.ndim)] % indices_or_sections:
        raise ValueError("array split does not result in an equal division")
    return array_split(x, indices_or_sections, axis)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Array, ...]:
    x = as_array(x)
    before = (slice(None),) * axis_of(axis, x.ndim)
    return tuple(x[(*before, position)] for position in range(x.shape[len(before)]))


# ------------------------------------------------------------------------------------------- diagonals and borders


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    x = as_array(a)
    if x.ndim < 2:
        raise ValueError("diag requires an array of at least two dimensions")
    first, second, offset = axis_of(axis1, x.ndim), axis_of(axis2, x.ndim), index(offset)
    length = max(0, min(x.shape[first] - max(-offset, 0), x.shape[second] - max(offset, 0)))
    shape = (*(size for dim, size in enumerate(x.shape) if dim not in (first, second)), length)
    place = (("offset", offset), ("dim1", first), ("dim2", second))
    strides = strides_of(x)
    layout: Layout = UNKNOWN
    if strides is not None:
        rest = (stride for dim, stride in enumerate(strides) if dim not in (first, second))
        layout = (*rest, strides[first] + strides[second])
    return views.view(x, views.ReadOnly("aten.diagonal", shape, place), layout, writeable=False)


def diag(v: Any, k: int = 0) -> Array:
    x = as_array(v)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    size = x.shape[0] + abs(k)
    wide = pad(x, (max(k, 0), max(-k, 0)))
    return choice(np.eye(size, k=k, dtype=bool), reshape(wide, (1, -1)), x.dtype.type(0))


def tril(m: Any, k: int = 0) -> Array:
    """The lower triangle of matrices in the last two dimensions; a vector is taken for every row of one.

    A k that is no whole number is evaluated whole: NumPy rounds it in a way of its own.
    """
    return _triangle(np.tril, m, k)


def triu(m: Any, k: int = 0) -> Array:
    """As `tril`."""
    return _triangle(np.triu, m, k)


def _triangle(function: Any, m: Any, k: Any) -> Array:
    if not hasattr(k, "__index__"):
        result: Array = whole(function)(m, k)
        return result
    x = _matrices(m)
    return apply(f"aten.{function.__name__}", x.shape, x.dtype, self=x, diagonal=index(k))


def _matrices(m: Any) -> Array:
    x = as_array(m)
    return broadcast_to(x, (x.shape[0], x.shape[0])) if x.ndim == 1 else x


def pad(array: Any, pad_width: Any, *, constant_values: Any = 0) -> Array:
    """A constant at the borders; `girih.array.functions.shapes.arrangement` has NumPy's other modes."""
    x = as_array(array)
    widths = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2)).tolist()
    shape = [size + before + after for size, (before, after) in zip(x.shape, widths, strict=True)]
    flat = tuple(int(amount) for pair in reversed(widths) for amount in pair)
    return apply("aten.constant_pad_nd", shape, x.dtype, self=x, pad=flat, value=constant_values)
