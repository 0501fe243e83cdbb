"""Calls of the standard's functions that make, move, reduce, order and inspect arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from standard_elementwise import CASES, case
from standard_values import (
    ALL,
    COMPLEX,
    FLOATING,
    INTEGER,
    NUMERIC,
    REAL,
    Arguments,
    Type,
    arrays,
    axes,
    broadcast_from,
    call,
    promotes,
    shapes,
)

__all__ = ["CASES"]


def typed(draw: st.DrawFn, names: tuple[str, ...] = ALL) -> dict[str, Any]:
    return {"dtype": Type(draw(st.sampled_from(names)))} if draw(st.booleans()) else {}


# ------------------------------------------------------------------------------------------- creation


def filled(name: str) -> None:
    @case(name)
    def drawn(draw: st.DrawFn) -> Arguments:
        return call(draw(st.one_of(shapes(), st.integers(0, 4))), **typed(draw))

    @case(f"{name}_like")
    def like(draw: st.DrawFn) -> Arguments:
        return call(draw(arrays()), **typed(draw))


for made in ("zeros", "ones", "empty"):
    filled(made)


@case("full")
def full(draw: st.DrawFn) -> Arguments:
    value, dtype = draw(
        st.sampled_from([(True, "bool"), (3, "int64"), (3, "uint16"), (2.5, "float32"), (1j, "complex64")])
    )
    return call(draw(shapes()), value, **({"dtype": Type(dtype)} if draw(st.booleans()) else {}))


@case("full_like")
def full_like(draw: st.DrawFn) -> Arguments:
    x = draw(arrays())
    return call(x, {"b": True, "i": 3, "u": 3, "f": 2.5, "c": 1.5j}[x.dtype.kind])


@case("arange")
def arange(draw: st.DrawFn) -> Arguments:
    if draw(st.booleans()):
        start, stop, step = (draw(st.integers(-9, 9)) for _ in range(3))
        names = ("int32", "int64", "float32", "float64")
    else:
        start, stop, step = (draw(st.integers(-9, 9)) / 2 for _ in range(3))
        names = FLOATING
    return call(start, stop, step or 1, **typed(draw, names))


@case("linspace")
def linspace(draw: st.DrawFn) -> Arguments:
    ends = (draw(st.integers(-9, 9)) / 2, draw(st.integers(-9, 9)) / 2)
    return call(*ends, draw(st.integers(0, 7)), endpoint=draw(st.booleans()), **typed(draw, FLOATING))


@case("eye")
def eye(draw: st.DrawFn) -> Arguments:
    sizes = (draw(st.integers(0, 4)), draw(st.one_of(st.none(), st.integers(0, 4))))
    return call(*sizes, k=draw(st.integers(-5, 5)), **typed(draw))


@case("asarray")
def asarray(draw: st.DrawFn) -> Arguments:
    if draw(st.booleans()):
        return call(draw(arrays(special=False)), copy=draw(st.sampled_from([None, True])))
    value = draw(st.sampled_from([True, 3, 2.5, 1j, [1, 2], [[1.5, 2.5]], [True, False], [1 + 1j], []]))
    return call(value)


@case("from_dlpack")
def from_dlpack(draw: st.DrawFn) -> Arguments:
    return call(draw(arrays(NUMERIC)))


@case("meshgrid")
def meshgrid(draw: st.DrawFn) -> Arguments:
    dtype = (draw(st.sampled_from(NUMERIC)),)
    parts = [draw(arrays(dtype, shapes(1, 1))) for _ in range(draw(st.integers(1, 3)))]
    return call(*parts, indexing=draw(st.sampled_from(["xy", "ij"])))


def triangle(name: str) -> None:
    @case(name)
    def drawn(draw: st.DrawFn) -> Arguments:
        return call(draw(arrays(shape=shapes(2, 3))), k=draw(st.integers(-4, 4)))


triangle("tril")
triangle("triu")

# ------------------------------------------------------------------------------------------- dtypes


@case("astype")
def astype(draw: st.DrawFn) -> Arguments:
    x = draw(arrays(special=False))
    goals = [
        name
        for name in ALL
        if not (x.dtype.kind == "c" and np.dtype(name).kind != "c")
        and not (x.dtype.kind in "if" and np.dtype(name).kind == "u")
    ]
    return call(x, Type(draw(st.sampled_from(goals))), copy=draw(st.booleans()))


@case("can_cast")
def can_cast(draw: st.DrawFn) -> Arguments:
    first = draw(st.sampled_from(ALL))  # between kinds the standard leaves it open
    return call(Type(first), Type(draw(st.sampled_from([name for name in ALL if promotes(first, name)]))))


@case("isdtype")
def isdtype(draw: st.DrawFn) -> Arguments:
    kinds = ["bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric"]
    one = st.sampled_from(kinds)
    kind = draw(st.one_of(one, st.lists(one, min_size=1, max_size=2).map(tuple)))
    return call(Type(draw(st.sampled_from(ALL))), kind)


@case("broadcast_to")
def broadcast_to(draw: st.DrawFn) -> Arguments:
    shape = draw(shapes())
    return call(draw(arrays(shape=broadcast_from(draw, shape))), shape)


@case("broadcast_arrays")
def broadcast_arrays(draw: st.DrawFn) -> Arguments:
    shape = draw(shapes())
    return call(*(draw(arrays(shape=broadcast_from(draw, shape))) for _ in range(draw(st.integers(1, 3)))))


# ------------------------------------------------------------------------------------------- reductions


def reduction(name: str, dtypes: tuple[str, ...], **more: Any) -> None:
    @case(name)
    def drawn(draw: st.DrawFn) -> Arguments:
        x = draw(arrays(dtypes, shapes(empty=more.get("empty", True)), special=more.get("special")))
        named = {"axis": axes(draw, x.ndim, more.get("several", True)), "keepdims": draw(st.booleans())}
        if not more.get("several", True) and draw(st.booleans()) and name in ("argmax", "argmin"):
            named["axis"] = None
        if more.get("correction") and draw(st.booleans()):
            named["correction"] = draw(st.sampled_from([0, 1, 0.5]))
        if more.get("dtype") and draw(st.booleans()):
            named["dtype"] = Type({"i": "int64", "u": "uint64", "f": "float64", "c": "complex128"}[x.dtype.kind])
        return call(x, **named)


for both in ("sum", "prod"):
    reduction(both, NUMERIC, special=False, dtype=True)
reduction("mean", FLOATING + COMPLEX, empty=False)
for spread in ("std", "var"):
    reduction(spread, FLOATING, empty=False, correction=True, special=False)
for extreme in ("max", "min"):
    reduction(extreme, REAL, empty=False)
for place in ("argmax", "argmin"):
    reduction(place, REAL, empty=False, several=False)
for truth in ("all", "any", "count_nonzero"):
    reduction(truth, ALL)


def scan(name: str) -> None:
    @case(name)
    def drawn(draw: st.DrawFn) -> Arguments:
        x = draw(arrays(NUMERIC, shapes(1, 3), special=False))
        named = {"include_initial": draw(st.booleans())}
        if x.ndim > 1 or draw(st.booleans()):
            named["axis"] = axes(draw, x.ndim, several=False)
        return call(x, **named)


scan("cumulative_sum")
scan("cumulative_prod")


@case("diff")
def diff(draw: st.DrawFn) -> Arguments:
    x = draw(arrays(NUMERIC, shapes(1, 3, empty=False), special=False))
    axis = axes(draw, x.ndim, several=False)
    named: dict[str, Any] = {"axis": axis, "n": draw(st.integers(0, 2))}
    for name in ("prepend", "append"):
        if draw(st.booleans()):
            named[name] = np.take(x, [0], axis=axis)
    return call(x, **named)


# ------------------------------------------------------------------------------------------- order, sets, look-ups


@case("sort")
def sort(draw: st.DrawFn) -> Arguments:
    x = draw(arrays(REAL, shapes(1, 3), special=False))
    return call(x, axis=axes(draw, x.ndim, several=False), descending=draw(st.booleans()))


CASES["argsort"] = sort


@case("searchsorted")
def searchsorted(draw: st.DrawFn) -> Arguments:
    dtype = draw(st.sampled_from(REAL))
    x, v = draw(arrays((dtype,), shapes(1, 1, 6), special=False)), draw(arrays((dtype,), special=False))
    side = draw(st.sampled_from(["left", "right"]))
    return call(x, v, side=side, sorter=np.argsort(x)) if draw(st.booleans()) else call(np.sort(x), v, side=side)


for name in ("unique_all", "unique_counts", "unique_inverse", "unique_values"):
    case(name)(lambda draw: call(draw(arrays(ALL, special=False))))


@case("isin")
def isin(draw: st.DrawFn) -> Arguments:
    dtype = (draw(st.sampled_from(INTEGER)),)  # without `invert`, which array-api-strict 2.6 takes and ignores
    return call(draw(arrays(dtype)), draw(arrays(dtype, shapes(0, 1, 30))))


@case("nonzero")
def nonzero(draw: st.DrawFn) -> Arguments:
    return call(draw(arrays(ALL, shapes(1, 3))))


@case("take")
def take(draw: st.DrawFn) -> Arguments:
    x = draw(arrays(shape=shapes(1, 3, empty=False)))
    axis = axes(draw, x.ndim, several=False)
    picks = np.array(draw(st.lists(st.integers(0, x.shape[axis] - 1), max_size=5)), np.int64)
    return call(x, picks) if x.ndim == 1 and draw(st.booleans()) else call(x, picks, axis=axis)


@case("take_along_axis")
def take_along_axis(draw: st.DrawFn) -> Arguments:
    x = draw(arrays(shape=shapes(1, 3, empty=False)))
    axis = axes(draw, x.ndim, several=False)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    shape = list(x.shape)
    shape[axis] = draw(st.integers(1, 5))
    return call(x, rng.integers(0, x.shape[axis], shape), axis=axis)


# ------------------------------------------------------------------------------------------- shape and order


@case("concat")
def concat(draw: st.DrawFn) -> Arguments:
    shape = draw(shapes(1, 3))
    first = draw(st.sampled_from(ALL))
    others = [first, draw(st.sampled_from([name for name in ALL if promotes(first, name)]))]
    if draw(st.integers(0, 4)) == 0:
        return call([draw(arrays((name,))) for name in others], axis=None)
    axis = axes(draw, len(shape), several=False)
    parts = []
    for dtype in others:
        size = list(shape)
        size[axis] = draw(st.integers(0, 4))
        parts.append(draw(arrays((dtype,), tuple(size))))
    return call(parts, axis=axis)


@case("stack")
def stack(draw: st.DrawFn) -> Arguments:
    shape, dtype = draw(shapes()), (draw(st.sampled_from(ALL)),)
    parts = [draw(arrays(dtype, shape)) for _ in range(draw(st.integers(1, 3)))]
    return call(parts, axis=draw(st.integers(-len(shape) - 1, len(shape))))


@case("unstack")
def unstack(draw: st.DrawFn) -> Arguments:
    x = draw(arrays(shape=shapes(1, 3)))
    return call(x, axis=axes(draw, x.ndim, several=False))


@case("expand_dims")
def expand_dims(draw: st.DrawFn) -> Arguments:
    x = draw(arrays())
    return call(x, axis=draw(st.integers(-x.ndim - 1, x.ndim)))


@case("squeeze")
def squeeze(draw: st.DrawFn) -> Arguments:
    shape = draw(st.lists(st.sampled_from([1, 1, 3]), min_size=1, max_size=4))
    gone = [dim for dim, size in enumerate(shape) if size == 1 and draw(st.booleans())]
    x = draw(arrays(shape=tuple(shape)))
    return call(x, axis=gone[0] if len(gone) == 1 and draw(st.booleans()) else tuple(gone))


@case("flip")
def flip(draw: st.DrawFn) -> Arguments:
    x = draw(arrays())
    return call(x, axis=axes(draw, x.ndim))


@case("moveaxis")
def moveaxis(draw: st.DrawFn) -> Arguments:
    x = draw(arrays(shape=shapes(1, 3)))
    if draw(st.booleans()):
        return call(x, axes(draw, x.ndim, several=False), axes(draw, x.ndim, several=False))
    count = draw(st.integers(1, x.ndim))
    return call(x, *(tuple(draw(st.permutations(range(x.ndim)))[:count]) for _ in range(2)))


@case("permute_dims")
def permute_dims(draw: st.DrawFn) -> Arguments:
    x = draw(arrays())
    return call(x, tuple(draw(st.permutations(range(x.ndim)))))


@case("matrix_transpose")
def matrix_transpose(draw: st.DrawFn) -> Arguments:
    return call(draw(arrays(shape=shapes(2, 4))))


@case("reshape")
def reshape(draw: st.DrawFn) -> Arguments:
    x = draw(arrays(shape=shapes(empty=False)))
    shape = draw(st.sampled_from([(x.size,), (-1,), (1, x.size), (x.size, 1, 1), x.shape[::-1]]))
    return call(x, shape, **({"copy": draw(st.sampled_from([None, True]))} if draw(st.booleans()) else {}))


@case("roll")
def roll(draw: st.DrawFn) -> Arguments:
    x = draw(arrays())
    axis = axes(draw, x.ndim) or None  # NumPy has no roll along no axes
    shift = draw(st.integers(-5, 5))
    return call(
        x, tuple(shift + number for number in range(len(axis))) if isinstance(axis, tuple) else shift, axis=axis
    )


@case("tile")
def tile(draw: st.DrawFn) -> Arguments:
    return call(draw(arrays()), tuple(draw(st.lists(st.integers(0, 3), max_size=3))))


@case("repeat")
def repeat(draw: st.DrawFn) -> Arguments:
    x = draw(arrays(shape=shapes(1, 3)))
    axis = axes(draw, x.ndim, several=False)
    if draw(st.booleans()):
        counts = np.array([draw(st.integers(0, 3)) for _ in range(x.shape[axis])], np.int64)
        return call(x, counts, axis=axis)
    return call(x, draw(st.integers(0, 3)), **({"axis": axis} if draw(st.booleans()) else {}))


@case("broadcast_shapes")
def broadcast_shapes(draw: st.DrawFn) -> Arguments:
    shape = draw(shapes())
    return call(shape, broadcast_from(draw, shape))
