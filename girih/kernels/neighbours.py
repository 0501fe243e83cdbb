"""Sums, maxima and attention over the neighbours of each vertex of a graph in compressed rows, and their gradients.

Row v of the result reads `neighbours[offsets[v]:offsets[v + 1]]`, rows of x. Rows are divided among as many threads as
PyTorch uses, in ranges of about as many edges. The sum of a row goes through its edges in their order, four at a time,
so that four rows of x are read at once and the result's row stays in the cache; bfloat16 is added up in float32.
Heads and features are dimensions of their own there: a compiler does not see that `h * size + j` is within the row.

A piece of a divided plan has a part of the edges (from number `first`), or of the rows of x (from number `start`).
Edges and rows that it has not got add nothing, so that pieces add up. What is held beside
operands and result is told by the operators' `temporary` rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch

from girih.layout.compiled import compiled, inside
from girih.ops.derive.temporaries import FEW, SHARES

Tensor = Any  # torch is untyped for the type checker

FAST = {"reassoc", "contract", "nsz"}
"""What a compiler may do with products that are summed, so that it uses vector units; such loops are always compiled,
because plain Python would round otherwise."""

# ------------------------------------------------------------------------------------------- threads and dtypes


def _by_rows(
    kernel: Callable[..., None], offsets: Any, width: int, *operands: Any, room: tuple[int, Any] | None = None
) -> None:
    """kernel(*operands, first row, one past the last), in ranges of rows that have about as many edges each.

    room: (heads, dtype) where the kernel computes shares, for which each thread has room: it comes before the range.
    """
    rows, edges = len(offsets) - 1, int(offsets[-1] - offsets[0])
    threads = torch.get_num_threads() if edges * width > FEW else 1
    rooms: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
    for _ in range(threads):
        rooms.put(() if room is None else _room(*room))

    def run(begin: int, end: int) -> None:
        own = rooms.get()
        kernel(*operands, *own, begin, end)
        rooms.put(own)

    if threads == 1 or rows < 2:
        run(0, rows)
        return
    parts = 4 * threads
    goals = offsets[0] + edges * np.arange(1, parts, dtype=np.int64) // parts
    bounds = [0, *np.searchsorted(offsets, goals).clip(0, rows).tolist(), rows]
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(run, *bounds[part : part + 2]) for part in range(parts)]:
            done.result()


def _room(heads: int, dtype: Any) -> tuple[Any, ...]:
    """Room for the shares and slopes of `SHARES` edges, and bits for exponentials, by PyTorch, which counts it."""
    kinds = ((SHARES, heads), dtype), ((SHARES, heads), dtype), ((SHARES * heads,), torch.int32)
    return tuple(torch.empty(shape, dtype=kind).numpy() for shape, kind in kinds)


def _exact(dtype: Any) -> Any:
    """In what numbers of a dtype are added up."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _array(tensor: Tensor, dtype: Any = None) -> Any:
    """A tensor as NumPy sees it, one row after another."""
    return tensor.detach().to(dtype or tensor.dtype).contiguous().numpy()


def _matrix(tensor: Tensor, dtype: Any = None) -> Any:
    """The same with one row for each vertex."""
    return _array(tensor, dtype).reshape(len(tensor), math.prod(tensor.shape[1:]))


def _check(**expected: tuple[Tensor | None, Sequence[int]]) -> None:
    """Compiled loops look at no size.

    Raises:
        ValueError: a tensor has another shape than expected, by name.
    """
    for name, (tensor, shape) in expected.items():
        if tensor is not None and tuple(tensor.shape) != tuple(shape):
            raise ValueError(f"{name} must be {list(shape)} to fit the graph and x, got {list(tensor.shape)}")


def _zeros(x: Tensor, rows: int) -> Tensor:
    """Where rows like those of x are added up."""
    return x.new_zeros((rows, *x.shape[1:]), dtype=_exact(x.dtype))


def _of_edges(values: Tensor | None, dtype: Any, heads: int = 1) -> Any:
    """Numbers of each row or edge, and head, as a matrix; one without rows for None."""
    if values is None:
        return np.empty((0, heads), np.float64 if dtype == torch.float64 else np.float32)
    return _array(values.reshape(len(values), heads), dtype)


def _turns(offsets, neighbours, x, *_):  # type: ignore[no-untyped-def]
    return float(len(neighbours) * x.shape[1] + len(offsets))


@inside(nogil=True)
def _add_rows(out, v, x, neighbours, low, high, weights, base, start):  # type: ignore[no-untyped-def]
    """out[v] += Σ weights[e - base] · x[neighbours[e] - start] over the edges e from low to high, four at a time."""
    sources, width = x.shape
    heads = weights.shape[1]
    size = width // heads
    by_heads, sums = x.reshape((sources, heads, size)), out.reshape((len(out), heads, size))
    e = low
    while e < high:
        a = neighbours[e] - start
        if e + 4 <= high:
            b, c, d = neighbours[e + 1] - start, neighbours[e + 2] - start, neighbours[e + 3] - start
            if min(min(a, b), min(c, d)) >= 0 and max(max(a, b), max(c, d)) < sources:
                if len(weights) == 0:
                    for j in range(width):
                        out[v, j] += (x[a, j] + x[b, j]) + (x[c, j] + x[d, j])
                elif heads == 1:
                    k, m, n, o = (
                        weights[e - base, 0],
                        weights[e + 1 - base, 0],
                        weights[e + 2 - base, 0],
                        weights[e + 3 - base, 0],
                    )
                    for j in range(width):
                        out[v, j] += (k * x[a, j] + m * x[b, j]) + (n * x[c, j] + o * x[d, j])
                else:
                    for h in range(heads):
                        k, m, n, o = (
                            weights[e - base, h],
                            weights[e + 1 - base, h],
                            weights[e + 2 - base, h],
                            weights[e + 3 - base, h],
                        )
                        for j in range(size):
                            left = k * by_heads[a, h, j] + m * by_heads[b, h, j]
                            sums[v, h, j] += left + (n * by_heads[c, h, j] + o * by_heads[d, h, j])
                e += 4
                continue
        if 0 <= a < sources:
            if len(weights) == 0:
                for j in range(width):
                    out[v, j] += x[a, j]
            else:
                for h in range(heads):
                    k = weights[e - base, h]
                    for j in range(h * size, h * size + size):
                        out[v, j] += k * x[a, j]
        e += 1


@inside(nogil=True, fastmath=FAST)
def _dot(x, a, y, b, left, right):  # type: ignore[no-untyped-def]
    """Σ x[a, j] · y[b, j] over j from left to right; of parts that are cut out first, which vector units can take."""
    one, other = x[a, left:right], y[b, left:right]
    total = x.dtype.type(0)
    for j in range(len(one)):
        total += one[j] * other[j]
    return total


# ------------------------------------------------------------------------------------------- rows of other pieces


def rows_here(parts: Sequence[Tensor], worker: int) -> Tensor:
    """[rows of all parts, ...features]: the parts one behind the other. worker: which one's rows they are; a plan puts
    the work there."""
    return torch.cat(tuple(parts))


def pieces_joined(parts: Sequence[Tensor]) -> Tensor:
    """[rows of all parts, ...features]: what pieces made, one behind the other."""
    return torch.cat(tuple(parts))


# ------------------------------------------------------------------------------------------- sums


def neighbour_sum(
    x: Tensor, offsets: Tensor, neighbours: Tensor, weights: Tensor | None = None, mean: bool = False, first: int = 0,
    start: int = 0,
) -> Tensor:  # fmt: skip
    """[vertices, ...features]: the sum (mean: divided by the number) of the neighbours' rows of x [sources,
    ...features].

    offsets: int, [vertices + 1]. neighbours: int, [edges]. weights: what each edge's row is multiplied with, [edges],
    or [edges, ...] of edges and the first dimensions of the features.
    """
    exact, out = _exact(x.dtype), _zeros(x, len(offsets) - 1)
    kept = () if weights is None else x.shape[1 : weights.dim()]
    _check(weights=(weights, (len(neighbours), *kept)))
    heads = math.prod(kept)
    rows = _array(offsets), _array(neighbours), _matrix(x, exact)
    operands = *rows, _of_edges(weights, exact, heads), bool(mean), first, start, _matrix(out)
    _by_rows(_sum_rows, rows[0], rows[2].shape[1], *operands)
    return out.to(x.dtype)


@compiled(_turns, nogil=True)
def _sum_rows(offsets, neighbours, x, weights, mean, first, start, out, begin, end):  # type: ignore[no-untyped-def]
    """out[v] = Σ weights[e] · x[neighbours[e] - start] over the edges e of each row v from begin to end."""
    edges = len(neighbours)
    for v in range(begin, end):
        low, high = offsets[v] - first, offsets[v + 1] - first
        _add_rows(out, v, x, neighbours, min(max(low, 0), edges), min(max(high, 0), edges), weights, 0, start)
        if mean and high > low:
            for j in range(x.shape[1]):
                out[v, j] /= high - low


def edge_products(
    a: Tensor, b: Tensor, offsets: Tensor, neighbours: Tensor, kept: int = 0, first: int = 0, start: int = 0
) -> Tensor:
    """[edges, ...]: the product of row v of a [vertices, ...features] and the row of b [sources, ...features] that each
    of its edges reads, summed over the features behind the first `kept` dimensions: the gradient of a sum's weights (a
    sampled product of dense matrices)."""
    exact = _exact(a.dtype)
    _check(a=(a, (len(offsets) - 1, *b.shape[1:])))
    out = a.new_zeros((len(neighbours), *a.shape[1 : kept + 1]), dtype=exact)
    rows = _array(offsets), _array(neighbours), _matrix(b, exact)
    heads = out.view(len(out), math.prod(out.shape[1:])).numpy()
    _by_rows(_multiply_rows, rows[0], rows[2].shape[1], *rows, _matrix(a, exact), first, start, heads)
    return out.to(a.dtype)


@compiled(nogil=True, fastmath=FAST)
def _multiply_rows(offsets, neighbours, b, a, first, start, out, begin, end):  # type: ignore[no-untyped-def]
    """out[e, h] = a[v, h] · b[neighbours[e] - start, h] for the edges e of each row v from begin to end."""
    edges, heads = out.shape
    size = a.shape[1] // heads
    for v in range(begin, end):
        for e in range(max(offsets[v] - first, 0), min(offsets[v + 1] - first, edges)):
            u = neighbours[e] - start
            if 0 <= u < len(b):
                for h in range(heads):
                    out[e, h] = _dot(a, v, b, u, h * size, h * size + size)


# ------------------------------------------------------------------------------------------- maxima


def neighbour_max(x: Tensor, offsets: Tensor, neighbours: Tensor) -> Tensor:
    """[vertices, ...features]: the largest of the neighbours' rows of x [sources, ...features], 0 where none are."""
    out = _zeros(x, len(offsets) - 1)
    rows = _array(offsets), _array(neighbours), _matrix(x, out.dtype)
    _by_rows(_max_rows, rows[0], rows[2].shape[1], *rows, _matrix(out))
    return out.to(x.dtype)


@compiled(_turns, nogil=True)
def _max_rows(offsets, neighbours, x, out, begin, end):  # type: ignore[no-untyped-def]
    """out[v, j] = the largest x[neighbours[e], j] over the edges e of each row v from begin to end; NaN if one is."""
    sources, width = x.shape
    for v in range(begin, end):
        begun = False
        for e in range(max(offsets[v], 0), min(offsets[v + 1], len(neighbours))):
            u = neighbours[e]
            if not 0 <= u < sources:
                continue
            for j in range(width):
                larger = not begun or x[u, j] > out[v, j] or x[u, j] != x[u, j]
                out[v, j] = x[u, j] if larger else out[v, j]
            begun = True


def neighbour_ties(
    x: Tensor, top: Tensor, offsets: Tensor, neighbours: Tensor, first: int = 0, start: int = 0
) -> Tensor:
    """[vertices, ...features]: how many of the neighbours' rows of x [sources, ...features] equal the largest, top."""
    out = _zeros(x, len(offsets) - 1)
    _check(top=(top, out.shape))
    rows = _array(offsets), _array(neighbours), _matrix(x, out.dtype)
    _by_rows(_count_rows, rows[0], rows[2].shape[1], *rows, _matrix(top, out.dtype), first, start, _matrix(out))
    return out.to(x.dtype)


@compiled(_turns, nogil=True)
def _count_rows(offsets, neighbours, x, top, first, start, out, begin, end):  # type: ignore[no-untyped-def]
    """out[v, j] = how many edges e of each row v from begin to end have x[neighbours[e], j] = top[v, j]."""
    edges, width = len(neighbours), x.shape[1]
    for v in range(begin, end):
        for e in range(max(offsets[v] - first, 0), min(offsets[v + 1] - first, edges)):
            u = neighbours[e] - start
            if 0 <= u < len(x):
                for j in range(width):
                    out[v, j] += x[u, j] == top[v, j]


def neighbour_max_gradient(
    grad: Tensor, top: Tensor, x: Tensor, offsets: Tensor, neighbours: Tensor, first: int = 0, start: int = 0
) -> Tensor:
    """[sources, ...features]: what each row of x [sources, ...features] gets of grad [vertices, ...features], where it
    is the maximum `top` [vertices, ...features]. offsets, neighbours: of the transposed graph."""
    _check(x=(x, (len(offsets) - 1, *grad.shape[1:])), top=(top, grad.shape))
    out = _zeros(grad, len(x))
    rows = _array(offsets), _array(neighbours), _matrix(grad, out.dtype)
    others = _matrix(top, out.dtype), _matrix(x, out.dtype)
    _by_rows(_give_rows, rows[0], rows[2].shape[1], *rows, *others, first, start, _matrix(out))
    return out.to(grad.dtype)


@compiled(_turns, nogil=True)
def _give_rows(offsets, neighbours, grad, top, x, first, start, out, begin, end):  # type: ignore[no-untyped-def]
    """out[u, j] = Σ grad[v, j] over the edges to v of each row u from begin to end where x[u, j] = top[v, j]."""
    edges, width = len(neighbours), x.shape[1]
    for u in range(begin, end):
        for e in range(max(offsets[u] - first, 0), min(offsets[u + 1] - first, edges)):
            v = neighbours[e] - start
            if 0 <= v < len(grad):
                for j in range(width):
                    if x[u, j] == top[v, j]:
                        out[u, j] += grad[v, j]


# ------------------------------------------------------------------------------------------- attention
#
# The score of edge e from u to v is leaky(source[u] + target[v] + scores[e]) for each head; its share is
# exp(score - logsumexp[v]). Shares are computed where they are needed, row by row: no array of edges is made.


def attention_logsumexp(
    source: Tensor, target: Tensor, offsets: Tensor, neighbours: Tensor, scores: Tensor | None = None,
    slope: float = 1.0, first: int = 0, start: int = 0,
) -> Tensor:  # fmt: skip
    """[vertices, heads]: the logarithm of the sum of the exponentials of the edges' scores; -infinity without edges.

    source: [sources, heads]. target: [vertices, heads]. scores: [edges, heads]. slope: what a negative score is
    multiplied with.
    """
    exact = _exact(source.dtype)
    heads = source.shape[1]
    _check(target=(target, (len(offsets) - 1, heads)), scores=(scores, (len(neighbours), heads)))
    out = source.new_full(target.shape, -math.inf, dtype=exact)
    rows = _array(offsets), _array(neighbours), _array(source, exact)
    edges, slope = _of_edges(scores, exact, heads), rows[2].dtype.type(slope)
    _by_rows(
        _logsumexp_rows, rows[0], heads, *rows, _array(target, exact), edges, slope, first, start, out.numpy(),
        room=(heads, exact),
    )  # fmt: skip
    return out


@inside(nogil=True, fastmath=FAST)
def _exponentials(z, bits, count):  # type: ignore[no-untyped-def]
    """z[i] = exp(z[i]), of none above 0 by much; of float32 in vectors, as Cephes has it (to two units in the last
    place): 2ⁿ · (1 + f + f² · p(f)) for z = n · log 2 + f. bits: int32, room for 2ⁿ."""
    if z.itemsize == 8:
        for i in range(count):
            z[i] = math.exp(z[i])
        return
    powers = bits.view(z.dtype)
    for i in range(count):
        x = max(z[i], _LEAST)
        n = math.floor(x * _LOG2_E + _HALF)
        f = (x - n * _LOG_2_HIGH) - n * _LOG_2_LOW
        p = ((((_P0 * f + _P1) * f + _P2) * f + _P3) * f + _P4) * f + _P5
        z[i] = p * f * f + f + _ONE
        bits[i] = (np.int32(n) + 127) << 23
    for i in range(count):
        z[i] *= powers[i]


_LEAST, _LOG2_E, _HALF, _ONE = np.float32(-87.0), np.float32(1.44269504), np.float32(0.5), np.float32(1.0)
_LOG_2_HIGH, _LOG_2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_P0, _P1, _P2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
_P3, _P4, _P5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)


@inside(nogil=True, fastmath=FAST)
def _scores(z, slopes, neighbours, low, high, start, row, mine, theirs, scores, slope):  # type: ignore[no-untyped-def]
    """For the edges e of a row from low to high z[e - low] = their scores for each head, and slopes[e - low] what
    negative ones were multiplied with; -infinity where the row that is read is not here."""
    for e in range(low, high):
        u = neighbours[e] - start
        inside = 0 <= u < len(theirs)
        for h in range(mine.shape[1]):
            score = mine[row, h] + theirs[u, h] if inside else -_INFINITY
            if len(scores) > 0:
                score += scores[e, h]
            factor = slope if score < 0 else _ONE
            slopes[e - low, h] = factor
            z[e - low, h] = score * factor


_INFINITY = np.float32(np.inf)


@compiled(nogil=True, fastmath=FAST)
def _logsumexp_rows(  # type: ignore[no-untyped-def]
    offsets, neighbours, source, target, scores, slope, first, start, out, z, slopes, bits, begin, end
):
    """out[v, h] = log Σ exp(score of e) over the edges e of each row v from begin to end, by way of the largest."""
    edges, heads = len(neighbours), source.shape[1]
    flat, totals = z.reshape(-1), np.empty(heads, source.dtype)
    for v in range(begin, end):
        last = min(max(offsets[v + 1] - first, 0), edges)
        for low in range(max(offsets[v] - first, 0), last, SHARES):
            high = min(low + SHARES, last)
            _scores(z, slopes, neighbours, low, high, start, v, target, source, scores, slope)
            for h in range(heads):
                top = out[v, h]  # of the edges before: the logarithm of their sum
                for k in range(high - low):
                    top = max(top, z[k, h])
                totals[h] = 0
                for k in range(high - low):
                    z[k, h] = z[k, h] - top if top > -np.inf else -_INFINITY
                if top > -np.inf:
                    totals[h] = math.exp(out[v, h] - top)
                    out[v, h] = top
            _exponentials(flat, bits, (high - low) * heads)
            for h in range(heads):
                for k in range(high - low):
                    totals[h] += z[k, h]
                out[v, h] += math.log(totals[h]) if out[v, h] > -np.inf else 0


def attention_sum(
    x: Tensor, logsumexp: Tensor, source: Tensor, target: Tensor, offsets: Tensor, neighbours: Tensor,
    scores: Tensor | None = None, slope: float = 1.0, first: int = 0, start: int = 0,
) -> Tensor:  # fmt: skip
    """[vertices, heads, features]: the neighbours' rows of x [sources, heads, features], each times its share.

    logsumexp: [vertices, heads], of `attention_logsumexp`, whose other operands these are.
    """
    exact, heads = _exact(x.dtype), x.shape[1]
    _check(
        source=(source, x.shape[:2]), target=(target, (len(offsets) - 1, heads)), logsumexp=(logsumexp, target.shape),
        scores=(scores, (len(neighbours), heads)),
    )  # fmt: skip
    out = _zeros(x, len(offsets) - 1)
    rows = _array(offsets), _array(neighbours), _matrix(x, exact)
    parts = [_array(item, exact) for item in (logsumexp, source, target)]
    edges, slope = _of_edges(scores, exact, heads), rows[2].dtype.type(slope)
    _by_rows(
        _attend_rows, rows[0], rows[2].shape[1], *rows, *parts, edges, slope, first, start, _matrix(out),
        room=(heads, exact),
    )  # fmt: skip
    return out.to(x.dtype)


@compiled(nogil=True, fastmath=FAST)
def _attend_rows(  # type: ignore[no-untyped-def]
    offsets, neighbours, x, total, source, target, scores, slope, first, start, out, shares, slopes, bits, begin, end
):
    """out[v] = Σ share of e · x[neighbours[e] - start] over the edges e of each row v from begin to end."""
    edges, heads = len(neighbours), source.shape[1]
    flat = shares.reshape(-1)
    for v in range(begin, end):
        last = min(max(offsets[v + 1] - first, 0), edges)
        for low in range(max(offsets[v] - first, 0), last, SHARES):
            high = min(low + SHARES, last)
            _scores(shares, slopes, neighbours, low, high, start, v, target, source, scores, slope)
            for k in range(high - low):
                for h in range(heads):
                    shares[k, h] -= total[v, h]
            _exponentials(flat, bits, (high - low) * heads)
            _add_rows(out, v, x, neighbours, low, high, shares, low, start)


def attention_target_gradient(
    grad: Tensor, x: Tensor, dot: Tensor, logsumexp: Tensor, source: Tensor, target: Tensor, offsets: Tensor,
    neighbours: Tensor, scores: Tensor | None = None, slope: float = 1.0, first: int = 0, start: int = 0,
) -> Tensor:  # fmt: skip
    """[vertices, heads]: the gradient of `target`.

    grad: of the result of `attention_sum`. dot: [vertices, heads], the products of grad and that result.
    """
    return _score_gradients(
        False, target.shape, grad, x, dot, logsumexp, source, target, offsets, neighbours, scores, slope, first,
        start,
    )  # fmt: skip


def attention_score_gradient(
    grad: Tensor, x: Tensor, dot: Tensor, logsumexp: Tensor, source: Tensor, target: Tensor, offsets: Tensor,
    neighbours: Tensor, scores: Tensor | None = None, slope: float = 1.0, first: int = 0, start: int = 0,
) -> Tensor:  # fmt: skip
    """[edges, heads]: the gradient of `scores`. Operands as of `attention_target_gradient`."""
    size = len(neighbours), target.shape[1]
    return _score_gradients(
        True, size, grad, x, dot, logsumexp, source, target, offsets, neighbours, scores, slope, first, start
    )


def _score_gradients(
    of_edges: bool, size: Any, grad: Tensor, x: Tensor, dot: Tensor, logsumexp: Tensor, source: Tensor,
    target: Tensor, offsets: Tensor, neighbours: Tensor, scores: Tensor | None, slope: float, first: int, start: int,
) -> Tensor:  # fmt: skip
    exact, heads = _exact(x.dtype), x.shape[1]
    _check(
        source=(source, x.shape[:2]), target=(target, (len(offsets) - 1, heads)), logsumexp=(logsumexp, target.shape),
        dot=(dot, target.shape), grad=(grad, (*target.shape, x.shape[2])), scores=(scores, (len(neighbours), heads)),
    )  # fmt: skip
    out = x.new_zeros(size, dtype=exact)
    rows = _array(offsets), _array(neighbours), _array(x, exact)
    parts = [_array(item, exact) for item in (grad, dot, logsumexp, source, target)]
    edges, slope = _of_edges(scores, exact, heads), rows[2].dtype.type(slope)
    _by_rows(
        _gradient_rows, rows[0], heads * x.shape[2], *rows, *parts, edges, slope, first, start, of_edges, out.numpy(),
        room=(heads, exact),
    )  # fmt: skip
    return out.to(target.dtype)


@inside(nogil=True, fastmath=FAST)
def _product(one, row, other, a, h):  # type: ignore[no-untyped-def]
    """Σ one[row, h, j] · other[a, h, j] over j."""
    total = one.dtype.type(0)
    for j in range(one.shape[2]):
        total += one[row, h, j] * other[a, h, j]
    return total


@inside(nogil=True, fastmath=FAST)
def _row_gradients(  # type: ignore[no-untyped-def]
    shares, slopes, flat, bits, neighbours, low, high, x, grad, dot, total, source, target, scores, slope, start, v
):
    """shares[e - low, h] = the gradient of the score of e, for the edges e of row v from low to high."""
    count, heads, size = x.shape
    zero = x.dtype.type(0)
    _scores(shares, slopes, neighbours, low, high, start, v, target, source, scores, slope)
    for k in range(high - low):
        for h in range(heads):
            shares[k, h] -= total[v, h]
    _exponentials(flat, bits, (high - low) * heads)
    k = 0
    while k < high - low:
        a = neighbours[low + k] - start
        if k + 4 <= high - low:
            b, c, d = neighbours[low + k + 1] - start, neighbours[low + k + 2] - start, neighbours[low + k + 3] - start
            if min(min(a, b), min(c, d)) >= 0 and max(max(a, b), max(c, d)) < count:
                for h in range(heads):
                    p = q = r = t = zero
                    for j in range(size):
                        own = grad[v, h, j]
                        p += own * x[a, h, j]
                        q += own * x[b, h, j]
                        r += own * x[c, h, j]
                        t += own * x[d, h, j]
                    shares[k, h] *= (p - dot[v, h]) * slopes[k, h]
                    shares[k + 1, h] *= (q - dot[v, h]) * slopes[k + 1, h]
                    shares[k + 2, h] *= (r - dot[v, h]) * slopes[k + 2, h]
                    shares[k + 3, h] *= (t - dot[v, h]) * slopes[k + 3, h]
                k += 4
                continue
        for h in range(heads):
            if 0 <= a < count:
                shares[k, h] *= (_product(grad, v, x, a, h) - dot[v, h]) * slopes[k, h]
            else:
                shares[k, h] = 0
        k += 1


@compiled(nogil=True, fastmath=FAST)
def _gradient_rows(  # type: ignore[no-untyped-def]
    offsets, neighbours, x, grad, dot, total, source, target, scores, slope, first, start, of_edges, out, shares,
    slopes, bits, begin, end,
):  # fmt: skip
    """The gradient of the score of each edge e of each row v from begin to end: of_edges: into out[e]; else it is added
    to out[v]."""
    edges, heads = len(neighbours), source.shape[1]
    flat = shares.reshape(-1)
    for v in range(begin, end):
        last = min(max(offsets[v + 1] - first, 0), edges)
        for low in range(max(offsets[v] - first, 0), last, SHARES):
            high = min(low + SHARES, last)
            _row_gradients(
                shares, slopes, flat, bits, neighbours, low, high, x, grad, dot, total, source, target, scores, slope,
                start, v,
            )  # fmt: skip
            for k in range(high - low):
                for h in range(heads):
                    if of_edges:
                        out[low + k, h] = shares[k, h]
                    else:
                        out[v, h] += shares[k, h]


def attention_source_gradient(
    grad: Tensor, x: Tensor, dot: Tensor, logsumexp: Tensor, source: Tensor, target: Tensor, offsets: Tensor,
    neighbours: Tensor, scores: Tensor | None = None, slope: float = 1.0,
) -> Tensor:  # fmt: skip
    """[sources, heads, features + 1]: the gradient of x, and behind its last feature that of `source`.

    offsets, neighbours: of the transposed graph, in whose order `scores` are. Others as of `attention_target_gradient`.
    """
    exact, (count, heads, size) = _exact(x.dtype), x.shape
    _check(
        source=(source, (len(offsets) - 1, heads)), x=(x, (*source.shape, size)), target=(target, (len(target), heads)),
        logsumexp=(logsumexp, target.shape), dot=(dot, target.shape), grad=(grad, (*target.shape, size)),
        scores=(scores, (len(neighbours), heads)),
    )  # fmt: skip
    out = x.new_zeros((count, heads, size + 1), dtype=exact)
    rows = _array(offsets), _array(neighbours), _array(grad, exact)
    parts = [_array(item, exact) for item in (x, dot, logsumexp, source, target)]
    edges, slope = _of_edges(scores, exact, heads), rows[2].dtype.type(slope)
    _by_rows(_source_rows, rows[0], heads * size, *rows, *parts, edges, slope, out.numpy(), room=(heads, exact))
    return out.to(x.dtype)


@compiled(nogil=True, fastmath=FAST)
def _source_rows(  # type: ignore[no-untyped-def]
    offsets, neighbours, grad, x, dot, total, source, target, scores, slope, out, shares, slopes, bits, begin, end
):
    """out[u, h, :-1] = Σ share of e · grad[v], and out[u, h, -1] = Σ gradient of the score of e, over the edges e to v
    of each row u from begin to end."""
    edges, count, (_, heads, size) = len(neighbours), len(grad), x.shape
    zero = x.dtype.type(0)
    flat = shares.reshape(-1)
    for u in range(begin, end):
        last = min(max(offsets[u + 1], 0), edges)
        for low in range(max(offsets[u], 0), last, SHARES):
            high = min(low + SHARES, last)
            _scores(shares, slopes, neighbours, low, high, 0, u, source, target, scores, slope)
            for k in range(high - low):
                v = neighbours[low + k]
                if 0 <= v < len(grad):
                    for h in range(heads):
                        shares[k, h] -= total[v, h]
            _exponentials(flat, bits, (high - low) * heads)
            k = 0
            while k < high - low:
                a = neighbours[low + k]
                if k + 4 <= high - low:
                    b, c, d = neighbours[low + k + 1], neighbours[low + k + 2], neighbours[low + k + 3]
                    if min(min(a, b), min(c, d)) >= 0 and max(max(a, b), max(c, d)) < count:
                        for h in range(heads):
                            l, m, n, o = shares[k, h], shares[k + 1, h], shares[k + 2, h], shares[k + 3, h]
                            p = q = r = t = zero
                            for j in range(size):
                                own = x[u, h, j]
                                p += own * grad[a, h, j]
                                q += own * grad[b, h, j]
                                r += own * grad[c, h, j]
                                t += own * grad[d, h, j]
                            first = l * (p - dot[a, h]) * slopes[k, h] + m * (q - dot[b, h]) * slopes[k + 1, h]
                            last_two = n * (r - dot[c, h]) * slopes[k + 2, h] + o * (t - dot[d, h]) * slopes[k + 3, h]
                            out[u, h, size] += first + last_two
                            for j in range(size):
                                left = l * grad[a, h, j] + m * grad[b, h, j]
                                out[u, h, j] += left + (n * grad[c, h, j] + o * grad[d, h, j])
                        k += 4
                        continue
                if 0 <= a < count:
                    for h in range(heads):
                        share = shares[k, h]
                        out[u, h, size] += share * (_product(x, u, grad, a, h) - dot[a, h]) * slopes[k, h]
                        for j in range(size):
                            out[u, h, j] += share * grad[a, h, j]
                k += 1


# ------------------------------------------------------------------------------------------- operators of PyTorch

_ROWS = "Tensor offsets, Tensor neighbours"
_SCORED = f"Tensor logsumexp, Tensor source, Tensor target, {_ROWS}, Tensor? scores=None, float slope=1.0"


def _like_first(first: Tensor, *_: Any, **__: Any) -> Tensor:
    return torch.empty_like(first, memory_format=torch.contiguous_format)


def _of_rows(x: Tensor, offsets: Tensor, *_: Any, **__: Any) -> Tensor:
    return x.new_empty((offsets.shape[0] - 1, *x.shape[1:]))


def _of_all(parts: Sequence[Tensor], *_: Any, **__: Any) -> Tensor:
    return parts[0].new_empty((sum(part.shape[0] for part in parts), *parts[0].shape[1:]))


def _of_targets(x: Tensor, _logsumexp: Tensor, _source: Tensor, target: Tensor, *_: Any, **__: Any) -> Tensor:
    return x.new_empty((target.shape[0], *x.shape[1:]))


def _of_totals(source: Tensor, target: Tensor, *_: Any, **__: Any) -> Tensor:
    return target.new_empty(target.shape, dtype=_exact(source.dtype))


_OPERATORS: tuple[tuple[Callable[..., Tensor], str, Callable[..., Tensor]], ...] = (
    (rows_here, "(Tensor[] parts, int worker) -> Tensor", _of_all),
    (pieces_joined, "(Tensor[] parts) -> Tensor", _of_all),
    (neighbour_sum, f"(Tensor x, {_ROWS}, Tensor? weights=None, bool mean=False) -> Tensor", _of_rows),
    (edge_products, f"(Tensor a, Tensor b, {_ROWS}, int kept=0) -> Tensor",
     lambda a, b, offsets, neighbours, kept=0: a.new_empty((neighbours.shape[0], *a.shape[1 : kept + 1]))),
    (neighbour_max, f"(Tensor x, {_ROWS}) -> Tensor", _of_rows),
    (neighbour_ties, f"(Tensor x, Tensor top, {_ROWS}) -> Tensor", lambda x, top, *_: torch.empty_like(top)),
    (neighbour_max_gradient, f"(Tensor grad, Tensor top, Tensor x, {_ROWS}) -> Tensor",
     lambda grad, top, x, *_: torch.empty_like(x)),
    (attention_logsumexp, f"(Tensor source, Tensor target, {_ROWS}, Tensor? scores=None, float slope=1.0) -> Tensor",
     _of_totals),
    (attention_sum, f"(Tensor x, {_SCORED}) -> Tensor", _of_targets),
    (attention_target_gradient, f"(Tensor grad, Tensor x, Tensor dot, {_SCORED}) -> Tensor",
     lambda grad, x, dot, total, source, target, *_, **__: torch.empty_like(target)),
    (attention_score_gradient, f"(Tensor grad, Tensor x, Tensor dot, {_SCORED}) -> Tensor",
     lambda grad, x, dot, total, source, target, offsets, neighbours, *_, **__:
         target.new_empty((neighbours.shape[0], target.shape[1]))),
    (attention_source_gradient, f"(Tensor grad, Tensor x, Tensor dot, {_SCORED}) -> Tensor",
     lambda grad, x, *_, **__: x.new_empty((x.shape[0], x.shape[1], x.shape[2] + 1))),
)  # fmt: skip

for _kernel, _schema, _fake in _OPERATORS:
    torch.library.custom_op(f"girih::{_kernel.__name__}", _kernel, mutates_args=(), schema=_schema).register_fake(_fake)

operators: Any = torch.ops.girih
"""These kernels as operators of PyTorch, which capture records and `torch.compile` takes."""

NEIGHBOUR_KERNELS: dict[str, Callable[..., Tensor]] = {
    f"girih.{kernel.__name__}": kernel for kernel, _, _ in _OPERATORS
}
