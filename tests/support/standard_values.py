"""Arrays and attributes for calls of the standard's functions, and the comparison of two libraries' results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

BOOL = ("bool",)
INTEGER = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATING = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
REAL = INTEGER + FLOATING
NUMERIC = REAL + COMPLEX
ALL = BOOL + NUMERIC
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.0, 3.0, 1e-3, -1e-3, 30.0])


@dataclass(frozen=True)
class Type:
    """A dtype by name, which each library has as its own object."""

    name: str


@dataclass(frozen=True)
class Arguments:
    """One call: positional and named arguments; NumPy arrays and `Type` are made each library's own."""

    positional: tuple[Any, ...]
    named: dict[str, Any]

    def call(self, function: Callable[..., Any], space: Any) -> Any:
        named = {name: own(value, space) for name, value in self.named.items()}
        return function(*(own(item, space) for item in self.positional), **named)


def call(*positional: Any, **named: Any) -> Arguments:
    return Arguments(positional, named)


def own(item: Any, space: Any) -> Any:
    """NumPy arrays and dtypes as a library's, also in tuples and lists."""
    if isinstance(item, np.ndarray):
        return space.asarray(item.copy())
    if isinstance(item, Type):
        return getattr(space, item.name)
    return type(item)(own(part, space) for part in item) if type(item) in (tuple, list) else item


# ------------------------------------------------------------------------------------------- what is drawn


def shapes(least: int = 0, most: int = 3, size: int = 4, empty: bool = True) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.integers(0 if empty else 1, size), min_size=least, max_size=most).map(tuple)


def content(dtype: str, shape: tuple[int, ...], seed: int, special: bool) -> np.ndarray:
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if kind in "iu":
        limits = np.iinfo(dtype)
        if special:
            return np.asarray(rng.choice(np.array([0, 1, 2, 3, limits.min, limits.max, limits.max - 1], dtype), shape))
        return np.asarray(rng.integers(max(-9, limits.min), 10, shape), dtype)
    if kind == "c":
        parts = [content("float64", shape, seed + number, special) for number in (0, 1)]
        made = np.empty(shape, dtype)
        made.real, made.imag = parts
        return made
    made = rng.choice(SPECIAL, shape) if special else rng.normal(size=shape) * rng.choice([0.1, 1.0, 10.0])
    return np.asarray(made, dtype)


@st.composite
def arrays(
    draw: st.DrawFn, dtypes: tuple[str, ...] = ALL, shape: Any = None, special: bool | None = None
) -> np.ndarray:
    """special: with NaN, infinities, zeros of both signs and the integers' limits; None: with or without."""
    size = draw(shapes()) if shape is None else draw(shape) if isinstance(shape, st.SearchStrategy) else shape
    if special is None:
        special = draw(st.booleans())
    return content(draw(st.sampled_from(dtypes)), size, draw(st.integers(0, 2**20)), special)


def broadcast_from(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to the given one."""
    kept = draw(st.integers(0, len(shape)))
    return tuple(1 if draw(st.booleans()) else size for size in shape[kept:])


@st.composite
def pairs(draw: st.DrawFn, dtypes: tuple[str, ...], special: bool | None = None) -> tuple[Any, Any]:
    """Two arrays that broadcast, of dtypes of one kind; one may be a Python number."""
    shape = draw(shapes())
    other = broadcast_from(draw, shape)
    first = draw(st.sampled_from(dtypes))
    second = draw(st.sampled_from([name for name in dtypes if promotes(first, name)]))
    x, y = draw(arrays((first,), shape, special)), draw(arrays((second,), other, special))
    mode = draw(st.integers(0, 5))
    if mode == 0:
        return x, number_of(first, draw)
    return (y, x) if mode == 1 else (x, y)


def promotes(first: str, second: str) -> bool:
    """Does the standard say what two dtypes promote to?"""
    kinds = {np.dtype(first).kind, np.dtype(second).kind}
    return (len(kinds) == 1 or kinds <= {"i", "u"} or kinds <= {"f", "c"}) and not (
        kinds == {"i", "u"} and "uint64" in (first, second)
    )


def number_of(dtype: str, draw: st.DrawFn) -> Any:
    kind = np.dtype(dtype).kind
    if kind == "b":
        return draw(st.booleans())
    if kind in "iu":
        return draw(st.integers(0 if kind == "u" else -5, 5))
    return draw(st.sampled_from([0.5, -2.0, 3.0]))


def axes(draw: st.DrawFn, rank: int, several: bool = True) -> Any:
    """None, one axis, or several."""
    if rank == 0:
        return draw(st.sampled_from([None, ()])) if several else None
    one = st.integers(-rank, rank - 1)
    if not several:
        return draw(one)
    some = st.lists(st.integers(0, rank - 1), unique=True, max_size=rank).map(tuple)
    return draw(st.one_of(st.none(), one, some))


# ------------------------------------------------------------------------------------------- comparison


def as_numpy(item: Any) -> np.ndarray:
    return item.compute() if hasattr(item, "compute") else np.asarray(item._array)


def same(expected: Any, got: Any, tolerance: float = 1.0, values: bool = True) -> None:
    """Equal structure, shapes, dtypes and values; zeros have equal signs. tolerance: in units of 64 roundings."""
    if isinstance(expected, (tuple, list)):
        assert len(expected) == len(got)
        if hasattr(expected, "_fields"):
            assert expected._fields == got._fields
        for first, second in zip(expected, got, strict=True):
            same(first, second, tolerance, values)
        return
    if not hasattr(expected, "_array"):
        name = getattr(expected, "_np_dtype", expected)
        assert np.dtype(name) == got if isinstance(name, np.dtype) else name == got, (expected, got)
        return
    assert hasattr(got, "compute"), f"a {type(got).__name__} in place of an array"
    assert tuple(got.shape) == tuple(expected.shape)
    assert got.dtype == expected.dtype._np_dtype
    if values:
        same_values(as_numpy(expected), as_numpy(got), tolerance)


def same_values(first: np.ndarray, second: np.ndarray, tolerance: float = 1.0) -> None:
    assert (second.shape, second.dtype) == (first.shape, first.dtype)
    if first.dtype.kind not in "fc":
        np.testing.assert_array_equal(second, first)
        return
    close = 64 * tolerance * np.finfo(first.dtype).eps
    np.testing.assert_allclose(second, first, rtol=close, atol=close)
    for one, other in ((first.real, second.real), (first.imag, second.imag)) if first.dtype.kind == "c" else ():
        np.testing.assert_array_equal(np.isnan(other), np.isnan(one))
    if first.dtype.kind == "f":
        zeros = (first == 0) & (second == 0)
        np.testing.assert_array_equal(np.signbit(second[zeros]), np.signbit(first[zeros]))
