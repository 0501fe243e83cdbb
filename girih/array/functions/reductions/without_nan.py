"""Reductions that leave NaN out."""

from __future__ import annotations

from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import as_array, cast, no_axis
from girih.array.core.universal import written
from girih.array.functions.elementwise import logic
from girih.array.functions.elementwise import ufuncs as e
from girih.array.functions.reductions import reduce as r
from girih.array.functions.reductions.scans import cumprod, cumsum
from girih.array.functions.reductions.statistics import RARE, hundredths, middle, quantile_dtype, ranked
from girih.array.functions.shapes.manipulation import broadcast_to
from girih.array.functions.whole import whole


def _without_nan(a: Any, value: float) -> Array:
    x = as_array(a)
    return cast(e.where(logic.isnan(x), value, x), x.dtype) if x.dtype.kind in "fc" else x


def nansum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, **options: Any) -> Any:
    return r.sum(_without_nan(a, 0), axis, dtype, out, keepdims, **options)


def nanprod(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, **options: Any
) -> Any:
    return r.prod(_without_nan(a, 1), axis, dtype, out, keepdims, **options)


def nancumsum(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    return cumsum(_without_nan(a, 0), axis, dtype, out)


def nancumprod(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    return cumprod(_without_nan(a, 1), axis, dtype, out)


def _known(x: Array, where: Any) -> Any:
    """Where elements are no NaN, among those that `where` chooses; True for all."""
    if x.dtype.kind in "iub":
        return where
    return ~logic.isnan(x) if where is True else ~logic.isnan(x) & as_array(where)


def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True
) -> Any:
    x = as_array(a)
    return r.mean(x, no_axis(axis, x.ndim), dtype, out, keepdims, where=_known(x, where))


def nanvar(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: bool = False, *,
    where: Any = True,
) -> Any:  # fmt: skip
    x = as_array(a)
    axis, known = no_axis(axis, x.ndim), _known(x, where)
    if known is True:
        return r.var(x, axis, dtype, out, ddof, keepdims)
    result = r.var(_without_nan(x, 0), axis, dtype, ddof=ddof, keepdims=keepdims, where=known)
    short = r.sum(broadcast_to(known, x.shape), axis, keepdims=keepdims) <= ddof
    return written(cast(e.where(short, np.nan, result), result.dtype), out)


def nanstd(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: bool = False, *,
    where: Any = True,
) -> Any:  # fmt: skip
    return written(e.sqrt(nanvar(a, axis, dtype, ddof=ddof, keepdims=keepdims, where=where)), out)


def nanmax(
    a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
) -> Any:
    return written(_extreme(r.max, -np.inf, a, axis, keepdims, initial, where), out)


def nanmin(
    a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
) -> Any:
    return written(_extreme(r.min, np.inf, a, axis, keepdims, initial, where), out)


def _extreme(extreme: Any, worst: float, a: Any, axis: Any, keepdims: bool, initial: Any, where: Any) -> Array:
    x = as_array(a)
    options = {"keepdims": keepdims, "initial": initial, "where": where}
    if x.dtype.kind != "f":
        return extreme(x, axis, **options)
    result = extreme(_without_nan(x, worst), axis, **options)
    if initial is not None:
        return result
    return cast(e.where(r.all(logic.isnan(x), axis, keepdims=keepdims), np.nan, result), x.dtype)


def nanargmax(a: Any, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Any:
    return r.argmax(_known_somewhere(a, axis, -np.inf), axis, out, keepdims=keepdims)


def nanargmin(a: Any, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Any:
    return r.argmin(_known_somewhere(a, axis, np.inf), axis, out, keepdims=keepdims)


def _known_somewhere(a: Any, axis: int | None, worst: float) -> Array:
    """Whether all are NaN is computed now, because NumPy raises then."""
    x = as_array(a)
    if x.dtype.kind == "f" and bool(r.any(r.all(logic.isnan(x), axis))):
        raise ValueError("All-NaN slice encountered")
    return _without_nan(x, worst)


def nanquantile(a: Any, q: Any, axis: Any = None, out: Any = None, *, keepdims: bool = False,
                method: str = "linear") -> Any:  # fmt: skip
    """NaN are sorted behind all others; ranks are those among the known."""
    if method in RARE:
        return written(whole(np.nanquantile)(a, q, axis, method=method, keepdims=keepdims), out)
    x = as_array(a)
    kind = quantile_dtype(x, q, method)
    x = x if x.dtype.kind == "f" or x.dtype == kind else cast(x, np.float64)
    return written(ranked(x, q, axis, keepdims, method, kind, known=x.dtype.kind == "f"), out)


def nanpercentile(a: Any, q: Any, axis: Any = None, out: Any = None, *, keepdims: bool = False,
                  method: str = "linear") -> Any:  # fmt: skip
    return nanquantile(a, hundredths(q), axis, out, keepdims=keepdims, method=method)


def nanmedian(a: Any, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Any:
    x = as_array(a)
    if x.dtype.kind == "c":
        raise TypeError("a must be an array of real numbers")
    x = x if x.dtype.kind == "f" else cast(x, np.float64)
    return written(ranked(x, 0.5, axis, keepdims, "linear", x.dtype, known=True, mixed=middle), out)
