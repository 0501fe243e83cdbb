"""x[key] = value, x += y, and what else writes in place: an array is bound to a new expression (`views.py`).

A slice is written by a node that divides as the array does; integers and masks by one that is whole along them, but for
a number where a mask holds, which is a choice between two. Each write makes the array anew.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from girih.array.core import indexing, views
from girih.array.core.array import Array
from girih.array.core.builder import apply, as_array, cast, choice, number


def assign(x: Array, key: Any, value: Any) -> None:
    """x[key] = value.

    Raises:
        IndexError, ValueError, TypeError, OverflowError: NumPy's; and those of `views.write`.
    """
    if x.scalar:
        raise TypeError(f"'{x.dtype.type.__module__}.{x.dtype.type.__name__}' object does not support item assignment")
    if not x.writeable:
        raise ValueError("assignment destination is read-only")
    mask = key[0] if isinstance(key, tuple) and len(key) == 1 else key
    if isinstance(mask, (bool, np.bool_)) or (isinstance(mask, Array) and mask.dtype.kind == "b" and not mask.ndim):
        _one_dimension(value, x.ndim)
        if (value.ndim if isinstance(value, Array) else np.ndim(value)) > x.ndim:  # one more dimension, of 1 or of 0
            rows = _fitted(value, x.dtype, (int(bool(mask)), *x.shape))
            if rows.shape[0]:
                views.write(x, rows[0])
            return
        views.write(x, choice(mask, _fitted(value, x.dtype, x.shape), x))  # all of it or nothing
        return
    items = indexing.items_of(x, key)
    if any(isinstance(item, Array) for item in items):
        _assign_chosen(x, items, value)
        return
    steps = indexing.steps_of(x, items)
    if _is_element(x, key) and (value.ndim if isinstance(value, Array) else np.ndim(value)):
        raise ValueError("setting an array element with a sequence.")
    wholes = _through(x, steps)
    if isinstance(value, Array) and value.expression is wholes[-1].expression:
        return  # x[key] += y has written already
    part = _fitted(value, x.dtype, wholes[-1].shape)
    if part.size:
        views.write(x, _back(steps, wholes, part))


def _one_dimension(value: Any, rest: int) -> None:
    """NumPy's rule for a mask over all of an array. rest: how many dimensions the mask leaves."""
    rank = value.ndim if isinstance(value, Array) else np.ndim(value)
    if rest == 0 and rank > 1:
        raise TypeError(
            f"NumPy boolean array indexing assignment requires a 0 or 1-dimensional input, input has {rank} dimensions"
        )


def _is_element(x: Array, key: Any) -> bool:
    """Does a key choose one element, and no array of one?"""
    keys = key if isinstance(key, tuple) else (key,)
    return bool(keys) and len(keys) == x.ndim and all(isinstance(item, (int, np.integer)) for item in keys)


def _through(x: Array, steps: list[Any]) -> list[Array]:
    """x and what the steps make of it, one after another, outside of any family."""
    wholes = [Array(x.expression)]
    for step in steps:
        wholes.append(step.forward(wholes[-1]))
    return wholes


def _back(steps: list[Any], wholes: list[Array], part: Array) -> Array:
    for step, whole in zip(reversed(steps), reversed(wholes[:-1]), strict=True):
        part = step.backward(whole, part)
    return part


def _assign_chosen(x: Array, items: list[Any], value: Any) -> None:
    mask = items[0]
    if isinstance(mask, Array) and mask.dtype.kind == "b" and all(item == slice(None) for item in items[1:]):
        indexing.fits(x, mask, 0)
        _one_dimension(value, x.ndim - mask.ndim)
        new = _plain(value, x.dtype)
        rest = x.shape[mask.ndim :]
        if mask.ndim == x.ndim and new.ndim > 1:
            limit = "requires a 0 or 1-dimensional input"
            raise TypeError(f"boolean array indexing assignment {limit}, input has {new.ndim} dimensions")
        if new.ndim <= len(rest) or (new.shape[0] == 1 and new.ndim == len(rest) + 1):
            new = new.reshape(new.shape[1:]) if new.ndim > len(rest) else new
            new = _broadcast(new, rest)
            views.write(x, choice(mask.reshape(mask.shape + (1,) * len(rest)), new, x))
            return
    plain, picks = indexing.parted(x, items)
    steps = indexing.steps_of(x, plain)
    wholes = _through(x, steps)
    shown = wholes[-1]
    shape, numbers = indexing.meeting(shown, picks)
    part = _fitted(value, x.dtype, shape)
    if not part.size:
        return
    indices = tuple(numbers.get(at) for at in range(max(numbers) + 1))
    changed = apply("girih.assign", shown.shape, x.dtype, self=shown, indices=indices, values=part)
    views.write(x, _back(steps, wholes, changed))


def _plain(value: Any, dtype: np.dtype) -> Array:
    """A value in the dtype of what it is written to; the cast is unsafe, as NumPy's is here."""
    if not isinstance(value, Array):
        content = np.asarray(value)
        if content.ndim == 0 and not isinstance(value, np.ndarray):
            one = np.empty((), dtype)
            one[...] = value  # which NumPy refuses where the dtype has no such number
            return number(one, dtype)
        value = as_array(content)
    if value.dtype.kind == "c" and dtype.kind not in "cb":
        message = "Casting complex values to real discards the imaginary part"
        warnings.warn(message, np.exceptions.ComplexWarning, stacklevel=4)
    return cast(value, dtype)


def _fitted(value: Any, dtype: np.dtype, shape: tuple[int, ...]) -> Array:
    return _broadcast(_plain(value, dtype), shape)


def _broadcast(new: Array, shape: tuple[int, ...]) -> Array:
    """Raises ValueError, as NumPy, where a value does not fit; leading dimensions of one element do."""
    own_shape = new.shape
    while new.ndim > len(shape) and new.shape[0] == 1:
        new = new.reshape(new.shape[1:])
    try:
        fits = np.broadcast_shapes(new.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        text = ",".join(map(str, own_shape)) + ("," if len(own_shape) == 1 else "")
        goal = ",".join(map(str, shape)) + ("," if len(shape) == 1 else "")
        raise ValueError(f"could not broadcast input array from shape ({text}) into shape ({goal})")
    return views.expanded(new, shape).copy()


def update(x: Array, function: Any, other: Any) -> Array:
    """x = function(x, other) in place, as `x += other`; of a computed number, which NumPy does not write to, a new one.

    Raises:
        ValueError: the result has another shape, or x is read-only. TypeError: x's dtype does not take the result.
    """
    result: Array = function(x, other)
    if x.scalar:
        return result
    if not np.can_cast(result.dtype, x.dtype, "same_kind"):
        name = getattr(function, "__name__", "function")
        raise TypeError(
            f"Cannot cast ufunc '{name}' output from {result.dtype!r} to {x.dtype!r} with casting rule 'same_kind'"
        )
    if result.shape != x.shape:
        raise ValueError(
            f"non-broadcastable output operand with shape {x.shape} doesn't match the broadcast shape {result.shape}"
        )
    if not x.writeable:
        raise ValueError("output array is read-only")
    views.write(x, cast(result, x.dtype))
    return x
