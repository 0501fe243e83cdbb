"""Statistics: quantiles, covariances and histograms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import apply, as_array, axes_of, cast
from girih.array.core.universal import written
from girih.array.functions.elementwise import logic
from girih.array.functions.elementwise import ufuncs as e
from girih.array.functions.products import matmul
from girih.array.functions.reductions import reduce as reductions
from girih.array.functions.reductions.sorting import counted, partition, searchsorted, sort
from girih.array.functions.shapes import manipulation
from girih.array.functions.shapes.creation import zeros
from girih.array.functions.shapes.picking import take_along_axis
from girih.array.functions.whole import whole

# ------------------------------------------------------------------------------------------- quantiles

_LINEAR: Callable[[Any, Any, Any], Any] = lambda m, count, share: (count - 1) * share  # noqa: E731


PLACES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "linear": _LINEAR,
    "lower": lambda m, count, share: m.floor(_LINEAR(m, count, share)),
    "higher": lambda m, count, share: m.ceil(_LINEAR(m, count, share)),
    "nearest": lambda m, count, share: m.rint(_LINEAR(m, count, share)),
    "midpoint": lambda m, count, share: (m.floor(_LINEAR(m, count, share)) + m.ceil(_LINEAR(m, count, share))) / 2,
}
"""By NumPy's method: the place of a share among `count` ordered elements, a number that may lie between two; by the
functions of `m`, NumPy's or ours."""
ELEMENTS = ("lower", "higher", "nearest")
"""Methods whose places are those of elements."""
RARE = (
    "inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull",
    "median_unbiased", "normal_unbiased",
)  # fmt: skip
"""NumPy's other methods, which are evaluated whole."""


def quantile_dtype(x: Array, q: Any, method: str) -> np.dtype:
    """The dtype of quantiles: that of the elements where the method picks elements, else the wider of both dtypes."""
    shares = np.asarray(q).dtype
    if method in ELEMENTS or (method == "linear" and shares.kind in "iub"):
        return x.dtype
    if x.dtype.kind == "f" and type(q) in (int, float):
        return x.dtype
    return np.result_type(x.dtype, shares if shares.kind == "f" else np.float64)


def hundredths(q: Any) -> Any:
    """Percentages as shares; a Python number stays one, for its dtype is weak."""
    return q / 100 if type(q) in (int, float) else np.true_divide(np.asarray(q), 100)


def between(low: Any, high: Any, share: Any) -> Any:
    return low + (high - low) * share


def middle(low: Any, high: Any, share: Any) -> Any:
    """The mean of two neighbours, which also holds for infinities."""
    return (low + high) / 2


def ranked(
    x: Array, q: Any, axis: Any, keepdims: bool, method: str, kind: np.dtype, known: bool = False,
    mixed: Callable[..., Any] = between,
) -> Array:  # fmt: skip
    """Quantiles, which come first, in the dtype `kind`.

    known: NaN do not count; without it they make NaN. mixed: what is between two neighbours.

    Raises:
        ValueError: a share outside [0, 1], or a method that is not there.
    """
    shares = np.asarray(q, np.float64)
    if not ((shares >= 0) & (shares <= 1)).all():
        raise ValueError("Quantiles must be in the range [0, 1]")
    if method not in PLACES:
        methods = ", ".join((*PLACES, *RARE))
        raise ValueError(f"girih.array has no method={method!r} of quantiles: expected one of {methods}")
    axes = axes_of(axis, x.ndim)
    kept = [dim for dim in range(x.ndim) if dim not in axes]
    shape = tuple(x.shape[dim] for dim in kept)
    whole = tuple(1 if dim in axes else size for dim, size in enumerate(x.shape)) if keepdims else shape
    size = math.prod(x.shape[dim] for dim in axes)
    if size == 0 or 0 in shape:
        return as_array(np.full((*shares.shape, *whole), np.nan if kind.kind in "fc" else 0, kind))
    lines = manipulation.transpose(x, [*kept, *axes]).reshape((*shape, size))
    find = _among_known if known else _among_all
    result = find(lines, shares.ravel().tolist(), PLACES[method], kind, mixed)
    return cast(manipulation.stack(result), kind).reshape((*shares.shape, *whole))


def _among_all(lines: Array, shares: list[float], place_of: Any, kind: np.dtype, mixed: Any) -> list[Array]:
    """Where the places are known, lines need not be sorted: only what belongs there is sought, and the last."""
    last = lines.shape[-1] - 1
    places = [max(float(place_of(np, last + 1, share)), 0.0) for share in shares]
    ends = [(int(place), min(int(place) + 1, last)) for place in places]
    ordered = partition(lines, [last, *(end for pair in ends for end in pair)])
    results = []
    for place, (low, high) in zip(places, ends, strict=True):
        values = ordered[..., low]
        results.append(mixed(values, ordered[..., high], kind.type(place - low)) if place > low else values)
    if lines.dtype.kind not in "fc":
        return results
    broken = logic.isnan(ordered[..., last])
    return [e.where(broken, np.nan, values) for values in results]


def _among_known(lines: Array, shares: list[float], place_of: Any, kind: np.dtype, mixed: Any) -> list[Array]:
    """Each line has another number of elements that count."""
    ordered = sort(lines)
    count = cast(reductions.sum(~logic.isnan(ordered), -1), np.float64)
    results = []
    for share in shares:
        place = e.maximum(place_of(e, count, share), 0.0)
        low = e.floor(place)
        ends = [_at(ordered, e.minimum(item, count - 1)) for item in (low, low + 1)]
        values = e.where(place == low, ends[0], mixed(ends[0], ends[1], cast(place - low, kind)))
        results.append(e.where(count == 0, np.nan, values))
    return results


def _at(ordered: Array, place: Any) -> Array:
    """The element at a place along the last dimension."""
    index = manipulation.broadcast_to(e.maximum(cast(place, np.int64), 0), ordered.shape[:-1])
    return take_along_axis(ordered, index[..., None], -1)[..., 0]


def quantile(
    a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False,
) -> Any:  # fmt: skip
    """q: a number or a sequence of them, which comes first.

    Raises:
        TypeError: the elements are complex: they have no order.
    """
    if method in RARE:
        return written(whole(np.quantile)(a, q, axis, method=method, keepdims=keepdims), out)
    x = as_array(a)
    if x.dtype.kind == "c":
        raise TypeError("a must be an array of real numbers")
    kind = quantile_dtype(x, q, method)
    x = x if x.dtype.kind == "f" or x.dtype == kind else cast(x, np.float64)
    return written(ranked(x, q, axis, keepdims, method, kind), out)


def percentile(
    a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False,
) -> Any:  # fmt: skip
    shares = np.asarray(hundredths(q))
    if not ((shares >= 0) & (shares <= 1)).all():
        raise ValueError("Percentiles must be in the range [0, 100]")
    return quantile(a, hundredths(q), axis, out, overwrite_input, method, keepdims)


# ------------------------------------------------------------------------------------------- covariances


def cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None, fweights: Any = None,
    aweights: Any = None, *, dtype: Any = None,
) -> Array:  # fmt: skip
    """The covariances of variables in rows, or in columns; with weights evaluated whole."""
    if fweights is not None or aweights is not None:
        return whole(np.cov)(m, y, rowvar, bias, ddof, fweights, aweights, dtype=dtype)
    x = _variables(m, rowvar)
    if y is not None:
        x = manipulation.concatenate([x, _variables(y, rowvar)])
    x = x if dtype is None else cast(x, dtype)
    away = x - reductions.mean(x, 1, keepdims=True)
    freedom = (0 if bias else 1) if ddof is None else ddof
    return manipulation.squeeze(matmul(away, e.conjugate(away).T) / max(x.shape[1] - freedom, 0))


def _variables(m: Any, rowvar: bool) -> Array:
    x = as_array(m)
    if x.ndim > 2:
        raise ValueError(f"m has more than 2 dimensions: {x.ndim}")
    columns = x.ndim == 2 and not rowvar and x.shape[0] != 1
    x = manipulation.atleast_2d(x)
    x = x.T if columns else x
    return x if x.dtype.kind == "c" else cast(x, np.float64)


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Array:
    result = cov(x, y, rowvar, dtype=dtype)
    if result.ndim == 0:
        return result / result
    scale = e.sqrt(e.real(manipulation.diagonal(result)))
    result = result / scale[:, None] / scale[None, :]
    return result if result.dtype.kind == "c" else e.clip(result, -1, 1)


# ------------------------------------------------------------------------------------------- histograms


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Array:
    """The extent of the data is computed now where no range is given; an estimator's name is evaluated whole."""
    if isinstance(bins, str):
        return whole(np.histogram_bin_edges)(a, bins, range, weights)
    x = as_array(a)
    looked_at = x.size and range is None and np.ndim(bins) == 0
    ends = [reductions.min(x), reductions.max(x)] if looked_at else [zeros(0, x.dtype)]
    return whole(np.histogram_bin_edges)(manipulation.stack(ends), bins, range)


def _bins(x: Array, edges: Array) -> Array:
    """The bin of each element, the number of bins outside; the last bin has both its edges."""
    place = searchsorted(edges, x, "right") - 1
    last = edges.shape[0] - 2
    return e.where(x == edges[-1], last, e.where(place < 0, last + 1, place))


def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[Array, Array]:
    """Counts (or sums of weights) and edges."""
    x = as_array(a)
    x = x if x.ndim else x.reshape(1)
    x = cast(x, np.uint8) if x.dtype == bool else x
    edges = histogram_bin_edges(x, bins, range)
    size = edges.shape[0] - 1
    if weights is None:
        counts = apply("girih.bin_counts", (size,), np.dtype(np.int64), input=x, edges=edges)
    else:
        counts = counted(_bins(x.reshape(-1), edges), size, as_array(weights).reshape(-1), left_out=size)
    if weights is not None and as_array(weights).dtype.kind in "iub":
        counts = cast(counts, as_array(weights).dtype)
    if density:
        return counts / (edges[1:] - edges[:-1]) / reductions.sum(counts), edges
    return counts, edges


def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    """The median over one axis, several or all; NaN where an element is NaN."""
    x = as_array(a)
    x = x if x.dtype.kind in "fc" else cast(x, np.float64)
    return written(ranked(x, 0.5, axis, keepdims, "linear", x.dtype, mixed=middle), out)
