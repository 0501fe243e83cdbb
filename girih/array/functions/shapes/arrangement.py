"""More of shapes, parts and positions: splitting, inserting, index arrays, and what writes into an array."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import as_array, axis_of, cast
from girih.array.core.views import ComplexPart
from girih.array.functions.elementwise import logic
from girih.array.functions.elementwise import ufuncs as e
from girih.array.functions.reductions.scans import cumsum
from girih.array.functions.shapes import creation, manipulation
from girih.array.functions.shapes.picking import nonzero, take

# ------------------------------------------------------------------------------------------- joining and parting


def append(arr: Any, values: Any, axis: int | None = None) -> Array:
    return manipulation.concatenate([arr, values], axis)


def hsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    x = as_array(ary)
    if x.ndim == 0:
        raise ValueError("hsplit only works on arrays of 1 or more dimensions")
    return manipulation.split(x, indices_or_sections, 1 if x.ndim > 1 else 0)


def vsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    if as_array(ary).ndim < 2:
        raise ValueError("vsplit only works on arrays of 2 or more dimensions")
    return manipulation.split(ary, indices_or_sections, 0)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    if as_array(ary).ndim < 3:
        raise ValueError("dsplit only works on arrays of 3 or more dimensions")
    return manipulation.split(ary, indices_or_sections, 2)


def block(arrays: Any) -> Array:
    """Nested lists are joined, the innermost along the last dimension."""
    depth = _depth(arrays)
    rank = max(depth, max((x.ndim for x in _leaves(arrays)), default=0))

    def joined(item: Any, level: int) -> Array:
        if not isinstance(item, list):
            x = as_array(item)
            return x.reshape((1,) * (rank - x.ndim) + x.shape)
        if not item:
            raise ValueError("List depths are mismatched: a list is empty")
        return manipulation.concatenate([joined(part, level + 1) for part in item], rank - depth + level)

    return joined(arrays, 0)


def _depth(item: Any) -> int:
    return 1 + max((_depth(part) for part in item), default=0) if isinstance(item, list) else 0


def _leaves(item: Any) -> list[Array]:
    return [leaf for part in item for leaf in _leaves(part)] if isinstance(item, list) else [as_array(item)]


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Array:
    """Positions are looked at now."""
    x = as_array(arr)
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    dim = axis_of(axis, x.ndim)
    size, new = x.shape[dim], as_array(values, x.dtype)
    one = not isinstance(obj, slice) and np.ndim(obj) == 0
    places = np.arange(size)[obj] if isinstance(obj, slice) else np.asarray(obj)
    places = np.atleast_1d(places).astype(np.int64)
    if ((places < -size) | (places > size)).any():
        raise IndexError(f"index {obj} is out of bounds for axis {dim} with size {size}")
    places = np.where(places < 0, places + size, places)
    if one:
        new = manipulation.moveaxis(new.reshape((1,) * (x.ndim - new.ndim) + new.shape), 0, dim) if new.ndim else new
        count = new.shape[dim] if new.ndim else 1
        places = np.repeat(places, count)
    order = np.argsort(places, kind="stable")
    shape = (*x.shape[:dim], len(places), *x.shape[dim + 1 :])
    added = manipulation.broadcast_to(new, shape)
    spots = np.empty(size + len(places), np.int64)
    at = np.empty(len(places), np.int64)
    at[order] = places[order] + np.arange(len(places))
    old = np.ones(size + len(places), bool)
    old[at] = False
    spots[old], spots[at] = np.arange(size), size + np.arange(len(places))
    return take(manipulation.concatenate([x, added], dim), spots, dim)


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
    x = as_array(filt)
    places = nonzero(x)[0].compute()
    if len(places) == 0:
        return x[:0]
    first = int(places[0]) if "f" in trim.lower() else 0
    return x[first : int(places[-1]) + 1 if "b" in trim.lower() else x.shape[0]]


def diagflat(v: Any, k: int = 0) -> Array:
    return manipulation.diag(as_array(v).reshape(-1), k)


# ------------------------------------------------------------------------------------------- index arrays


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, ...]:
    return tuple(as_array(places) for places in np.tril_indices(n, k, m))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, ...]:
    return tuple(as_array(places) for places in np.triu_indices(n, k, m))


def tril_indices_from(arr: Any, k: int = 0) -> tuple[Array, ...]:
    return tril_indices(as_array(arr).shape[-2], k, as_array(arr).shape[-1])


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Array, ...]:
    return triu_indices(as_array(arr).shape[-2], k, as_array(arr).shape[-1])


def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    return (creation.arange(n),) * ndim


def diag_indices_from(arr: Any) -> tuple[Array, ...]:
    x = as_array(arr)
    if x.ndim < 2:
        raise ValueError("input array must be at least 2-d")
    if len(set(x.shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    return diag_indices(x.shape[0], x.ndim)


def mask_indices(n: int, mask_func: Any, k: int = 0) -> tuple[Array, ...]:
    return nonzero(mask_func(creation.ones((n, n), int), k) != 0)


def ix_(*args: Any) -> tuple[Array, ...]:
    """Sequences as index arrays that broadcast to all their combinations."""
    made = []
    for number, item in enumerate(args):
        x = as_array(item)
        if x.ndim != 1:
            raise ValueError("Cross index must be 1 dimensional")
        x = nonzero(x)[0] if x.dtype.kind == "b" else cast(x, np.int64) if x.size == 0 else x
        made.append(x.reshape((1,) * number + (-1,) + (1,) * (len(args) - 1 - number)))
    return tuple(made)


def unravel_index(indices: Any, shape: Any) -> tuple[Array, ...]:
    """Raises ValueError where an index, looked at now, is outside."""
    x = as_array(indices)
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if x.size and bool(logic.logical_or(x < 0, x >= math.prod(sizes)).any()):
        raise ValueError(f"index is out of bounds for array with size {math.prod(sizes)}")
    made = []
    for size in reversed(sizes):
        made.append(cast(e.remainder(x, size), np.int64))
        x = e.floor_divide(x, size)
    return tuple(reversed(made))


def ravel_multi_index(multi_index: Sequence[Any], dims: Any, mode: str = "raise") -> Array:
    sizes = (dims,) if isinstance(dims, int) else tuple(dims)
    place: Any = 0
    for item, size in zip(multi_index, sizes, strict=True):
        x = as_array(item)
        if mode == "wrap":
            x = e.remainder(x, size)
        elif mode == "clip":
            x = e.clip(x, 0, size - 1)
        elif x.size and bool(logic.logical_or(x < 0, x >= size).any()):
            raise ValueError("invalid entry in coordinates array")
        place = place * size + x
    return cast(as_array(place), np.int64)


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


def putmask(a: Any, mask: Any, values: Any) -> None:
    """Values are repeated over the whole array."""
    x = _ours(a, "putmask")
    new = as_array(values)
    checked = isinstance(values, np.ndarray) or (isinstance(values, Array) and not values.scalar)
    if checked and not np.can_cast(new.dtype, x.dtype, "safe"):
        raise TypeError(f"Cannot cast array data from {new.dtype!r} to {x.dtype!r} according to the rule 'safe'")
    x[...] = e.where(mask, new if new.ndim == 0 else resize(new, x.shape), x)


def place(arr: Any, mask: Any, vals: Any) -> None:
    """The values go, one after another and again from the first, to where the mask holds."""
    x, chosen, new = _ours(arr, "place"), as_array(mask).astype(bool), as_array(vals).reshape(-1)
    if new.size == 0:
        raise ValueError("Cannot insert from an empty array!")
    rank = (cumsum(chosen) - 1).reshape(chosen.shape)
    x[...] = e.where(chosen, take(new, e.remainder(rank, new.size)), x)


class Flat:
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


def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    x = _ours(a.as_written() if isinstance(a, Array) else a, "put")  # NumPy writes to a copy of a number
    picks, new = as_array(ind).reshape(-1), as_array(v)
    if not x.writeable:
        raise ValueError("put: output array is read-only")
    if picks.size and not x.size:
        raise IndexError("cannot replace elements of an empty array")
    if picks.size == 0 or new.size == 0:
        return
    picks = e.remainder(picks, x.size) if mode == "wrap" else e.clip(picks, 0, x.size - 1) if mode == "clip" else picks
    flat = x.reshape(-1).copy()
    flat[picks] = resize(new, (picks.size,))
    x[...] = flat.reshape(x.shape)


def put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None) -> None:
    x = _ours(arr, "put_along_axis")
    picks = as_array(indices)
    if axis is None:
        put(x, picks, values)
        return
    dim = axis_of(axis, x.ndim)
    grids = [creation.arange(size).reshape((-1,) + (1,) * (x.ndim - 1 - at)) for at, size in enumerate(picks.shape)]
    x[tuple(picks if at == dim else grid for at, grid in enumerate(grids))] = values


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
