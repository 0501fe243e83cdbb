"""Borders around an array: a constant, or its own elements again. Other borders are evaluated whole."""

from __future__ import annotations

from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import as_array
from girih.array.functions.shapes import manipulation
from girih.array.functions.shapes.picking import take
from girih.array.functions.whole import whole

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
