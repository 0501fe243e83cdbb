"""More of shapes and parts: joining, splitting, deleting, borders, and what writes into an array."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import as_array, axis_of
from girih.array.core.views import ComplexPart
from girih.array.functions.elementwise import ufuncs as e
from girih.array.functions.shapes import creation, manipulation
from girih.array.functions.shapes.picking import take
from girih.array.functions.whole import whole

# ------------------------------------------------------------------------------------------- joining and parting


def append(arr: Any, values: Any, axis: int | None = None) -> Array:
    return manipulation.concatenate([arr, values], axis)


def hsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    return _split(ary, indices_or_sections, 1 if as_array(ary).ndim > 1 else 0, "hsplit", 1)


def vsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    return _split(ary, indices_or_sections, 0, "vsplit", 2)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    return _split(ary, indices_or_sections, 2, "dsplit", 3)


def _split(ary: Any, parts: Any, axis: int, name: str, least: int) -> list[Array]:
    if as_array(ary).ndim < least:
        raise ValueError(f"{name} only works on arrays of {least} or more dimensions")
    return manipulation.split(ary, parts, axis)


def block(arrays: Any) -> Array:
    """Nested lists are joined, the innermost along the last dimension."""
    return _joined(arrays)[0] if isinstance(arrays, list) else as_array(arrays).copy()


def _joined(item: Any) -> tuple[Array, int]:
    """What a nested list is joined to, and how deep it is."""
    if not isinstance(item, list):
        return as_array(item), 0
    joined = [_joined(part) for part in item]
    parts, depths = [part for part, _ in joined], {depth for _, depth in joined}
    if len(depths) != 1:
        raise ValueError("List depths are mismatched: a list is empty, or of arrays and of lists")
    depth = depths.pop() + 1
    rank = max(depth, *(x.ndim for x in parts))
    return manipulation.concatenate([x.reshape((1,) * (rank - x.ndim) + x.shape) for x in parts], -depth), depth


def delete(arr: Any, obj: Any, axis: int | None = None) -> Array:
    """Positions are looked at now."""
    x = as_array(arr)
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    dim = axis_of(axis, x.ndim)
    kept = np.ones(x.shape[dim], bool)
    picks = obj if isinstance(obj, slice) else np.asarray(obj)
    kept[picks if isinstance(picks, slice) or picks.size else slice(0, 0)] = False
    return take(x, np.flatnonzero(kept), dim)


def resize(a: Any, new_shape: Any) -> Array:
    x = as_array(a).reshape(-1)
    shape = (new_shape,) if isinstance(new_shape, int) else tuple(new_shape)
    wanted = math.prod(shape)
    if x.size == 0 or wanted == 0:
        return creation.zeros(shape, x.dtype)
    return manipulation.tile(x, -(-wanted // x.size))[:wanted].reshape(shape)


def trim_zeros(filt: Any, trim: str = "fb") -> Array:
    """Which elements are 0 is looked at now."""
    x = as_array(filt)
    if x.ndim != 1:
        return whole(np.trim_zeros)(x, trim)  # type: ignore[no-any-return]
    places = np.flatnonzero(x.compute())
    if not places.size:
        return x[:0]
    return x[places[0] if "f" in trim.lower() else 0 : places[-1] + 1 if "b" in trim.lower() else None]


def diagflat(v: Any, k: int = 0) -> Array:
    return manipulation.diag(as_array(v).reshape(-1), k)


# ------------------------------------------------------------------------------------------- written in place


def _ours(item: Any, name: str) -> Array:
    if not isinstance(item, Array):
        raise TypeError(f"girih.array.{name} writes into girih arrays, not into {type(item).__name__}")
    if item.scalar:
        raise TypeError(f"girih.array.{name} writes into arrays, not into a number: np.array(x) is one")
    return item


def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    if dst is src and where is True:
        return  # also where it is read-only, as NumPy
    x, new = _ours(dst, "copyto"), as_array(src)
    if not np.can_cast(new.dtype, x.dtype, casting):
        raise TypeError(f"Cannot cast array data from {new.dtype!r} to {x.dtype!r} according to the rule {casting!r}")
    x[...] = new if where is True else e.where(where, new, x)


def may_share_memory(a: Any, b: Any, /, max_work: Any = None) -> bool:
    """Do writes to one of two arrays show in the other, as far as is known without looking at which elements?"""
    if not isinstance(a, Array) and not isinstance(b, Array):
        return np.may_share_memory(a, b, max_work)
    first, second = (getattr(x, "family", None) for x in (a, b))
    return a is b or (first is not None and first is second)


def shares_memory(a: Any, b: Any, /, max_work: Any = None) -> bool:
    """Have two arrays an element in common? Which parts they show is looked at now."""
    if not isinstance(a, Array) and not isinstance(b, Array):
        return np.shares_memory(a, b, max_work)
    if a is b or not may_share_memory(a, b):
        return a is b and a.size > 0
    return len(np.intersect1d(_places(a), _places(b))) > 0


def _places(x: Array) -> np.ndarray:
    """The elements of x, as their numbers in what its family shows parts of."""
    assert x.family is not None
    whole = x.family.expression
    part = creation.arange(math.prod(whole.shape)).reshape(whole.shape)
    for step in x.path:
        part = part if isinstance(step, ComplexPart) else step.forward(part)
    return np.asarray(part).ravel()


class FlatElements:
    """x.flat: the elements of an array one after another, in C order; writing goes to the array, as with `put`."""

    def __init__(self, x: Array) -> None:
        self._x = x

    def __len__(self) -> int:
        return self._x.size

    def __iter__(self) -> Iterator[Any]:
        return iter(self._x.ravel())

    def __getitem__(self, key: Any) -> Array:
        return self._x.reshape(-1).copy()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        """Values are repeated as often as is needed, as NumPy does; of no values none are written. Values that share
        elements with the array are those of before, where NumPy reads some that it has just written."""
        x, new = self._x.as_written(), as_array(value)  # NumPy writes to a copy of a number
        key = key[0] if isinstance(key, tuple) and len(key) == 1 else key
        if key is None or isinstance(key, tuple):
            raise IndexError("x.flat[...] is written by one integer, slice, ellipsis, or array of integers or booleans")
        if not x.writeable:
            raise ValueError("underlying array is read-only")
        flat = x.reshape(-1).copy()
        shape = flat[key].shape  # raises IndexError
        if new.ndim and isinstance(key, (int, np.integer)):
            raise ValueError("Error setting single item of array.")
        if not new.size:
            return
        flat[key] = resize(new, shape) if new.ndim else value
        x[...] = flat.reshape(x.shape)


def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    if isinstance(a, Array) and a.ndim < 2:
        raise ValueError("array must be at least 2-d")
    x = _ours(a, "fill_diagonal")
    if wrap and x.ndim == 2 and x.shape[0] > x.shape[1]:
        raise TypeError("girih.array.fill_diagonal has no wrap=True")
    if x.ndim > 2 and len(set(x.shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    size = min(x.shape)
    x[(creation.arange(size),) * x.ndim] = resize(val, (size,)) if np.ndim(val) else val


# ------------------------------------------------------------------------------------------- borders

AGAIN = ("edge", "reflect", "symmetric", "wrap")


def pad(array: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Array:
    """Raises ValueError, as NumPy, for a mode or an option of it that is not there."""
    x, widths, value = as_array(array), np.asarray(pad_width), options.get("constant_values", 0)
    constant = mode == "constant" and not set(options) - {"constant_values"} and np.isscalar(value)
    simple = constant or mode == "empty" or mode in AGAIN
    if not simple or (options and not constant) or widths.dtype.kind not in "iu" or (widths < 0).any():
        return whole(np.pad)(array, pad_width, mode, **options)
    pairs = np.broadcast_to(widths, (x.ndim, 2)).tolist()
    if mode not in AGAIN:
        return manipulation.pad(x, pairs, constant_values=x.dtype.type(value).item())
    x = x.copy()
    for dim, pair in enumerate(pairs):
        if any(pair):
            x = take(x, np.pad(np.arange(x.shape[dim]), pair, mode), dim)
    return x
