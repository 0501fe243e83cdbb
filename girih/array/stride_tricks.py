"""numpy.lib.stride_tricks, as far as it shows arrays and not memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from girih.array.core import views
from girih.array.core.array import UNKNOWN, Array
from girih.array.core.builder import as_array, axis_of
from girih.array.core.builder import broadcast_shapes as broadcast_shapes
from girih.array.core.unsupported import missing
from girih.array.functions.shapes.manipulation import broadcast_arrays as broadcast_arrays
from girih.array.functions.shapes.manipulation import broadcast_to as broadcast_to


def sliding_window_view(x: Any, window_shape: Any, axis: Any = None, *, writeable: bool = False) -> Array:
    """All windows of a shape: their places in the dimensions of x, their elements in further dimensions behind.

    A view that cannot be written to. What is made of it is computed in blocks, and holds no window in memory.

    Raises:
        ValueError: NumPy's; writeable.
    """
    array = as_array(x)
    sizes = tuple(np.atleast_1d(window_shape).tolist())
    if writeable:
        raise ValueError("writeable=True: girih.array has no windows that are written through")
    if any(size < 0 for size in sizes):
        raise ValueError("`window_shape` cannot contain negative values")
    if axis is None:
        axes = tuple(range(array.ndim))
        if len(sizes) != array.ndim:
            raise ValueError(f"window_shape {sizes} must have one size for each of the {array.ndim} dimensions of x")
    else:
        axes = tuple(axis_of(dim, array.ndim) for dim in (axis if isinstance(axis, (tuple, list)) else (axis,)))
        if len(sizes) != len(axes):
            raise ValueError(f"window_shape {sizes} must have one size for each of the axes {axes}")
    for dim, size in zip(axes, sizes, strict=True):
        if size > array.shape[dim]:
            raise ValueError("window shape cannot be larger than input array shape")
        shape = (*array.shape[:dim], array.shape[dim] - size + 1, *array.shape[dim + 1 :], size)
        step = views.ReadOnly("aten.unfold", shape, (("dimension", dim), ("size", size), ("step", 1)))
        array = views.view(array, step, UNKNOWN, writeable=False)
    return array


def __getattr__(name: str) -> Any:
    raise missing("girih.array.lib.stride_tricks", name, globals())
