"""Calls of the standard's products; with them, those of all other pages."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from standard_elementwise import case
from standard_others import CASES
from standard_values import NUMERIC, Arguments, arrays, broadcast_from, call, content, pairs, promotes, shapes

__all__ = ["CASES"]


@case("matmul")
def matmul(draw: st.DrawFn) -> Arguments:
    n, k, m = (draw(st.integers(1, 4)) for _ in range(3))
    batch = draw(shapes(0, 2))
    left, right = draw(st.sampled_from([((n, k), (k, m)), ((k,), (k, m)), ((n, k), (k,)), ((k,), (k,))]))
    left = (*batch, *left) if len(left) == 2 else left
    right = (*broadcast_from(draw, batch), *right) if len(right) == 2 else right
    first = draw(st.sampled_from(NUMERIC))
    second = draw(st.sampled_from([name for name in NUMERIC if promotes(first, name)]))
    return call(draw(arrays((first,), left, False)), draw(arrays((second,), right, False)))


@case("tensordot")
def tensordot(draw: st.DrawFn) -> Arguments:
    shape = draw(shapes(0, 3, empty=False))
    count = draw(st.integers(0, len(shape)))
    dtype = (draw(st.sampled_from(NUMERIC)),)
    x = draw(arrays(dtype, shape, False))
    if draw(st.booleans()):
        other = shape[len(shape) - count :] + draw(shapes(0, 2, empty=False))
        return call(x, draw(arrays(dtype, other, False)), axes=count)
    dims = draw(st.permutations(range(len(shape))))[:count]
    return call(
        x, draw(arrays(dtype, tuple(shape[dim] for dim in dims), False)), axes=(tuple(dims), tuple(range(count)))
    )


@case("vecdot")
def vecdot(draw: st.DrawFn) -> Arguments:
    x, y = draw(pairs(NUMERIC, special=False))
    x = content(x.dtype.name, (*np.shape(x), 3), 1, False)
    y = content(np.asarray(y).dtype.name if isinstance(y, np.ndarray) else x.dtype.name, (*np.shape(y), 3), 2, False)
    return call(x, y, **({"axis": -1} if draw(st.booleans()) else {}))
