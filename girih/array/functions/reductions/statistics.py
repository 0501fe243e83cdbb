"""Statistics: quantiles, covariances and histograms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import as_array, axes_of, cast
from girih.array.core.universal import written
from girih.array.functions.elementwise import logic
from girih.array.functions.elementwise import ufuncs as e
from girih.array.functions.products import matmul
from girih.array.functions.reductions import reduce as reductions
from girih.array.functions.reductions.sorting import counted, partition, searchsorted, sort
from girih.array.functions.shapes import manipulation
from girih.array.functions.shapes.picking import take_along_axis

# ------------------------------------------------------------------------------------------- quantiles

_LINEAR: Callable[[Any, Any, Any], Any] = lambda m, count, share: (count - 1) * share  # noqa: E731


def _between(alpha: float, beta: float) -> Callable[[Any, Any, Any], Any]:
    return lambda m, count, share: m.clip(count * share + (alpha + share * (1 - alpha - beta)) - 1, 0, count - 1)


def _closest(m: Any, place: Any) -> Any:
    """The nearest whole number above; what is whole and odd stays."""
    low = m.floor(place)
    return m.where((low == place) & (low % 2 == 1), low, low + 1)


PLACES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "linear": _LINEAR,
    "lower": lambda m, count, share: m.floor(_LINEAR(m, count, share)),
    "higher": lambda m, count, share: m.ceil(_LINEAR(m, count, share)),
    "nearest": lambda m, count, share: m.rint(_LINEAR(m, count, share)),
    "inverted_cdf": lambda m, count, share: m.clip(m.ceil(count * share - 1), 0, count - 1),
    "closest_observation": lambda m, count, share: m.clip(_closest(m, count * share - 1.5), 0, count - 1),
    "midpoint": lambda m, count, share: (m.floor(_LINEAR(m, count, share)) + m.ceil(_LINEAR(m, count, share))) / 2,
    "averaged_inverted_cdf": lambda m, count, share: m.clip(
        m.where(m.floor(count * share) == count * share, count * share - 0.5, m.ceil(count * share - 1)), 0, count - 1
    ),
    "interpolated_inverted_cdf": _between(0, 1),
    "hazen": _between(0.5, 0.5),
    "weibull": _between(0, 0),
    "median_unbiased": _between(1 / 3, 1 / 3),
    "normal_unbiased": _between(3 / 8, 3 / 8),
}
"""By NumPy's method: the place of a share among `count` ordered elements, a number that may lie between two; by the
functions of `m`, NumPy's or ours."""
WHOLE = ("lower", "higher", "nearest", "inverted_cdf", "closest_observation")
"""Methods whose places are those of elements."""


def quantile_dtype(x: Array, q: Any, method: str) -> np.dtype:
    """Of quantiles: the elements' where they are some of these; else the wider one. Python numbers have none."""
    shares = np.asarray(q).dtype
    if method in WHOLE or (method == "linear" and shares.kind in "iub"):
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
    """Of infinities too."""
    return (low + high) / 2


def ranked(
    x: Array,
    q: Any,
    axis: Any,
    keepdims: bool,
    method: str,
    kind: np.dtype,
    known: bool = False,
    mixed: Callable[..., Any] = between,
) -> Array:
    """Quantiles, which come first, in the dtype `kind`.

    known: NaN do not count; without it they make NaN. mixed: what is between two neighbours.

    Raises:
        ValueError: a share outside [0, 1], or a method that is not there.
    """
    shares = np.asarray(q, np.float64)
    if not ((shares >= 0) & (shares <= 1)).all():
        raise ValueError("Quantiles must be in the range [0, 1]")
    if method not in PLACES:
        raise ValueError(f"girih.array has no method={method!r} of quantiles: expected one of {', '.join(PLACES)}")
    axes = axes_of(axis, x.ndim)
    kept = [dim for dim in range(x.ndim) if dim not in axes]
    shape = tuple(x.shape[dim] for dim in kept)
    whole = tuple(1 if dim in axes else size for dim, size in enumerate(x.shape)) if keepdims else shape
    size = math.prod(x.shape[dim] for dim in axes)
    if size == 0 or 0 in shape:
        return as_array(np.full((*shares.shape, *whole), np.nan if kind.kind in "fc" else 0, kind))
    lines = manipulation.transpose(x, [*kept, *axes]).reshape((*shape, size))
    find = _among_known if known else _among_all
    found = find(lines, shares.ravel().tolist(), PLACES[method], kind, mixed)
    return cast(manipulation.stack(found), kind).reshape((*shares.shape, *whole))


def _among_all(lines: Array, shares: list[float], place_of: Any, kind: np.dtype, mixed: Any) -> list[Array]:
    """Where the places are known, lines need not be sorted: only what belongs there is sought, and the last."""
    last = lines.shape[-1] - 1
    places = [max(float(place_of(np, last + 1, share)), 0.0) for share in shares]
    ends = [(int(place), min(int(place) + 1, last)) for place in places]
    ordered = partition(lines, [last, *(end for pair in ends for end in pair)])
    found = []
    for place, (low, high) in zip(places, ends, strict=True):
        made = ordered[..., low]
        found.append(mixed(made, ordered[..., high], kind.type(place - low)) if place > low else made)
    if lines.dtype.kind not in "fc":
        return found
    broken = logic.isnan(ordered[..., last])
    return [e.where(broken, np.nan, made) for made in found]


def _among_known(lines: Array, shares: list[float], place_of: Any, kind: np.dtype, mixed: Any) -> list[Array]:
    """Each line has another number of elements that count."""
    ordered = sort(lines)
    count = cast(reductions.sum(~logic.isnan(ordered), -1), np.float64)
    found = []
    for share in shares:
        place = e.maximum(place_of(e, count, share), 0.0)
        low = e.floor(place)
        ends = [_at(ordered, e.minimum(item, count - 1)) for item in (low, low + 1)]
        made = e.where(place == low, ends[0], mixed(ends[0], ends[1], cast(place - low, kind)))
        found.append(e.where(count == 0, np.nan, made))
    return found


def _at(ordered: Array, place: Any) -> Array:
    """The element at a place along the last dimension."""
    index = manipulation.broadcast_to(e.maximum(cast(place, np.int64), 0), ordered.shape[:-1])
    return take_along_axis(ordered, index[..., None], -1)[..., 0]


def quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Any:
    """q: a number or a sequence of them, which comes first.

    Raises:
        TypeError: the elements are complex: they have no order.
    """
    x = as_array(a)
    if x.dtype.kind == "c":
        raise TypeError("a must be an array of real numbers")
    kind = quantile_dtype(x, q, method)
    x = x if x.dtype.kind == "f" or x.dtype == kind else cast(x, np.float64)
    return written(ranked(x, q, axis, keepdims, method, kind), out)


def percentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Any:
    shares = np.asarray(hundredths(q))
    if not ((shares >= 0) & (shares <= 1)).all():
        raise ValueError("Percentiles must be in the range [0, 100]")
    return quantile(a, hundredths(q), axis, out, overwrite_input, method, keepdims)


# ------------------------------------------------------------------------------------------- covariances


def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Array:
    """Of variables in rows, or in columns."""
    x = _variables(m, rowvar)
    if y is not None:
        x = manipulation.concatenate([x, _variables(y, rowvar)])
    x = x if dtype is None else cast(x, dtype)
    freedom = (0 if bias else 1) if ddof is None else ddof
    weights = None
    for given in (fweights, aweights):
        if given is not None:
            weights = cast(as_array(given), np.float64) * (1 if weights is None else weights)
    if weights is None:
        away = x - reductions.mean(x, 1, keepdims=True)
        total: Any = max(x.shape[1] - freedom, 0)
        return manipulation.squeeze(matmul(away, e.conjugate(away).T) / total)
    sum_of = reductions.sum(weights)
    away = x - reductions.sum(x * weights, 1, keepdims=True) / sum_of
    total = sum_of - freedom
    if aweights is not None and freedom:
        total = sum_of - freedom * reductions.sum(weights * as_array(aweights)) / sum_of
    return manipulation.squeeze(matmul(away * weights, e.conjugate(away).T) / total)


def _variables(m: Any, rowvar: bool) -> Array:
    x = as_array(m)
    if x.ndim > 2:
        raise ValueError(f"m has more than 2 dimensions: {x.ndim}")
    columns = x.ndim == 2 and not rowvar and x.shape[0] != 1
    x = manipulation.atleast_2d(x)
    x = x.T if columns else x
    return x if x.dtype.kind == "c" else cast(x, np.float64)


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Array:
    made = cov(x, y, rowvar, dtype=dtype)
    if made.ndim == 0:
        return made / made
    scale = e.sqrt(e.real(manipulation.diagonal(made)))
    made = made / scale[:, None] / scale[None, :]
    return made if made.dtype.kind == "c" else e.clip(made, -1, 1)


# ------------------------------------------------------------------------------------------- histograms


def _width(x: Array, rule: str) -> float:
    """The width of a bin by NumPy's estimators; what they need of the data is computed now."""
    size = x.size
    low, high = float(reductions.min(x)), float(reductions.max(x))
    if rule == "sqrt":
        return (high - low) / math.sqrt(size)
    if rule == "sturges":
        return (high - low) / (math.log2(size) + 1)
    if rule == "rice":
        return (high - low) / (2 * size ** (1 / 3))
    if rule == "scott":
        return (24 * math.sqrt(math.pi) / size) ** (1 / 3) * float(reductions.std(x))
    if rule == "fd":
        lower, upper = (float(part) for part in percentile(x, [25, 75]))
        return 2 * (upper - lower) * size ** (-1 / 3)
    if rule == "auto":
        narrow, sturges = _width(x, "fd"), _width(x, "sturges")
        narrow = max(narrow, _width(x, "sqrt") / 2)
        return min(narrow, sturges) if narrow else sturges
    raise ValueError(f"girih.array has no bins={rule!r}: expected auto, fd, scott, rice, sturges, sqrt or a number")


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Array:
    """The extent of the data is computed now where no range is given."""
    x = as_array(a).reshape(-1)
    if not isinstance(bins, (int, str, np.integer)):
        edges = as_array(bins)
        if edges.ndim != 1:
            raise ValueError("`bins` must be 1d, when an array")
        if not bool((edges[1:] >= edges[:-1]).all()):
            raise ValueError("`bins` must increase monotonically, when an array")
        return edges
    if range is not None:
        low, high = range
        if low > high:
            raise ValueError("max must be larger than min in range parameter.")
    else:
        low, high = (float(reductions.min(x)), float(reductions.max(x))) if x.size else (0.0, 1.0)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"supplied range of [{low}, {high}] is not finite")
    if isinstance(bins, str):
        inside = as_array(x[(x >= low) & (x <= high)])
        width = _width(inside, bins) if inside.size else 0.0
        bins = math.ceil((high - low) / width) if width else 1
    if bins < 1:
        raise ValueError("`bins` must be positive, when an integer")
    low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
    return as_array(np.linspace(low, high, int(bins) + 1, dtype=np.result_type(low, high, x.dtype)
                                if x.dtype.kind == "f" else np.float64))  # fmt: skip


def _bins(x: Array, edges: Array) -> Array:
    """The bin of each element, -1 outside; the last bin has both its edges."""
    place = searchsorted(edges, x, "right") - 1
    last = edges.shape[0] - 2
    return e.where(x == edges[-1], last, e.where(place > last, -1, place))


def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[Array, Array]:
    """Counts (or sums of weights) and edges."""
    x = as_array(a).reshape(-1)
    edges = histogram_bin_edges(x, bins, range)
    made = counted(_bins(x, edges), edges.shape[0] - 1, None if weights is None else as_array(weights).reshape(-1))
    if weights is not None and as_array(weights).dtype.kind in "iub":
        made = cast(made, as_array(weights).dtype)
    if density:
        return made / (edges[1:] - edges[:-1]) / reductions.sum(made), edges
    return made, edges


def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[Array, list[Array]]:
    """sample: [points, dimensions], or one array for each dimension."""
    columns: list[Array]
    if isinstance(sample, (list, tuple)):
        columns = [as_array(column) for column in sample]
    else:
        x = as_array(sample)
        columns = [x[:, dim] for dim in np.arange(x.shape[1]).tolist()] if x.ndim > 1 else [x]
    count = len(columns)
    each: Sequence[Any] = [bins] * count if isinstance(bins, (int, np.integer)) else bins
    if len(each) != count:
        raise ValueError("The dimension of bins must be equal to the dimension of the sample x.")
    extents = [None] * count if range is None else range
    edges = [
        histogram_bin_edges(column, one, extent) for column, one, extent in zip(columns, each, extents, strict=True)
    ]
    shape = tuple(edge.shape[0] - 1 for edge in edges)
    place: Any = 0
    outside: Any = None
    for column, edge, size in zip(columns, edges, shape, strict=True):
        own = _bins(column, edge)
        place = place * size + own
        outside = own < 0 if outside is None else outside | (own < 0)
    flat = counted(e.where(outside, -1, place), math.prod(shape), weights)
    made = cast(flat, np.float64).reshape(shape)
    if density:
        total = reductions.sum(made)
        for dim, edge in enumerate(edges):
            width = edge[1:] - edge[:-1]
            made = made / width.reshape((-1,) + (1,) * (count - 1 - dim))
        made = made / total
    return made, edges


def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[Array, Array, Array]:
    if not isinstance(bins, (int, np.integer)) and len(bins) != 2:
        bins = [bins, bins]
    made, edges = histogramdd([x, y], bins, range, density, weights)
    return made, edges[0], edges[1]


def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    """Of an axis, of several or of all; NaN where there is one."""
    x = as_array(a)
    x = x if x.dtype.kind in "fc" else cast(x, np.float64)
    return written(ranked(x, 0.5, axis, keepdims, "linear", x.dtype, mixed=middle), out)
