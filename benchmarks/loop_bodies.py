"""Loops of Orion's thesis with its judgement of each, and loops of many kinds with what holds of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import girih.loop as gl
from benchmarks.loop_cases import Case


def sgd_mf(key, v, W, H, step):
    """Thesis Fig. 5.4 and A.1: 2D."""
    W_row = W[key[0]]
    H_row = H[key[1]]
    diff = v - np.dot(W_row, H_row)
    W_grad = -2 * diff * H_row
    H_grad = -2 * diff * W_row
    W[key[0]] = W_row - W_grad * step
    H[key[1]] = H_row - H_grad * step


def sgd_mf_adagrad(key, v, W, H, Wz, Hz, step):
    """SGD MF with an adaptive step: 2D."""
    i, j = key
    diff = v - W[i] @ H[j]
    g = diff * H[j]
    h = diff * W[i]
    Wz[i] += g * g
    Hz[j] += h * h
    W[i] += step * g / np.sqrt(Wz[i] + 1e-6)
    H[j] += step * h / np.sqrt(Hz[j] + 1e-6)


def slr(sample, v, weights, buffered, step):
    """Thesis A.2: sparse logistic regression, writes through a buffer: 1D."""
    label, ids, xs = v
    total = 0.0
    for k in range(len(ids)):
        total += weights[ids[k]] * xs[k]
    diff = 1 / (1 + np.exp(-total)) - label
    for k in range(len(ids)):
        buffered[ids[k]] -= step * xs[k] * diff


def slr_direct(sample, v, weights, step):
    """The same with writes to the weights themselves: any two samples may share a feature."""
    label, ids, xs = v
    total = 0.0
    for k in range(len(ids)):
        total += weights[ids[k]] * xs[k]
    diff = 1 / (1 + np.exp(-total)) - label
    for k in range(len(ids)):
        weights[ids[k]] -= step * xs[k] * diff


def lda(key, count, z, by_document, by_word, totals):
    """Collapsed Gibbs sampling; topic totals are read stale and written through a buffer: 2D."""
    d, w = key
    old = z[d, w]
    by_document[d, old] -= count
    by_word[w, old] -= count
    topics = by_document.shape[1]
    total = 0.0
    for k in range(topics):
        total += (by_document[d, k] + 0.1) * (by_word[w, k] + 0.1) / (totals[k] + 1.0)
    draw = 0.37 * total
    new = 0
    running = 0.0
    for k in range(topics):
        running += (by_document[d, k] + 0.1) * (by_word[w, k] + 0.1) / (totals[k] + 1.0)
        if running < draw:
            new = k + 1
    if new >= topics:
        new = topics - 1
    z[d, w] = new
    by_document[d, new] += count
    by_word[w, new] += count


def histograms(key, v, bins, sums):
    """Gradient-boosted trees: a histogram for each feature: 1D along features."""
    feature, sample = key
    sums[feature, int(v * 3)] += 1.0


def split_search(feature, sums, gains, best):
    """Gradient-boosted trees: the best split of each feature: 1D."""
    total = 0.0
    for b in range(sums.shape[1]):
        total += sums[feature, b]
    left = 0.0
    gains[feature] = 0.0
    for b in range(sums.shape[1]):
        left += sums[feature, b]
        gain = left * (total - left)
        if gain > gains[feature]:
            gains[feature] = gain
            best[feature] = b


def figure_5_7(key, a):
    """Dependence (0, 1): 1D along the first dimension."""
    i, j = key
    a[i, j + 1] = a[i, j] * 0.5 + 1


def figure_5_9(key, a):
    """Dependences (1, 0) and (0, 1): 2D."""
    i, j = key
    a[i + 1, j + 1] = a[i, j + 1] * 0.5 + a[i + 1, j] * 0.25 + 1


def seidel(key, a):
    """Dependences (1, -1), (1, 0), (0, 1): only a unimodular transformation."""
    i, j = key
    a[i + 1, j + 1] = a[i, j + 1] * 0.5 + a[i + 1, j] * 0.25 + a[i, j + 2] * 0.125


def diagonal(key, a):
    """Dependence (1, 1)."""
    i, j = key
    a[i + 1, j + 1] = a[i, j] * 0.5 + 1


def recurrence(i, a):
    """a[i] = a[i - 1] + 1."""
    a[i] = a[i - 1] + 1


def elementwise(i, a, b):
    a[i] = 2 * b[i] + 1


def shifted(i, a, b):
    a[i + 1] = b[i] + b[i + 2]


def reversed_dependence(i, a):
    a[i] = a[i + 1] * 0.5


def last_writer(i, a):
    """All write one element: in order, the last remains."""
    a[0] = a[0] * 0.0 + i


def total(key, v, a):
    """A sum over all: added up by each worker."""
    a[0] += v


def bins(key, v, h):
    """A histogram of the values: added up by each worker."""
    i, j = key
    h[int(v * 4)] += 1.0


def rows_swapped(i, a, b):
    w = a[i]
    b[i] = w
    a[i] = 2 * w + b[i]


def through_view(i, a):
    w = a[i]
    w[0] = 1.0
    w[1:3] += w[0] + 1


def branches(i, a, b):
    if b[i] > 0.5:
        t = a[i]
    else:
        t = a[i] * 2
    a[i] = t + 1


def helper_row(a, i):
    return a[i]


def helper_add(a, i, x):
    a[i] += x


def through_helpers(key, a, b):
    i, j = key
    x = helper_row(b, j)
    helper_add(a, i, 0.5 * x)


def even_odd(i, a):
    a[2 * i] = a[2 * i + 1] + 1


def tensor(key, v, A, B, C, step):
    """Three factors: any two iterations that share one depend on each other, and no two dimensions part them all."""
    i, j, k = key
    d = v - (A[i] * B[j] * C[k]).sum()
    A[i] += step * d * B[j] * C[k]
    B[j] += step * d * A[i] * C[k]
    C[k] += step * d * A[i] * B[j]


def window(i, a, b):
    b[i + 1] = a[i] + a[i + 1] + a[i + 2]


def sliced(i, a, b):
    b[i] = np.sum(a[i : i + 3])


def column(key, a, b):
    i, j = key
    a[i, j] = b[j, i] * 2


def scan(key, a):
    i, j = key
    a[i + 1, j] += a[i, j]


def constant_read(i, a, b):
    a[i] = b[0] + b[-1]


def stride_of_rows(i, a):
    a[i, :] = a[i, :] * 0.5 + 1


def backwards_in_three(key, a):
    """Dependence (1, 0, -2)."""
    i, j, k = key
    a[i + 1, j, k + 2] = a[i, j, k + 4] * 0.5 + 1


def _draw() -> np.random.Generator:
    return np.random.default_rng(7)


def _ratings(count: int = 60, m: int = 12, n: int = 9) -> gl.Space:
    draw = _draw()
    keys = np.unique(draw.integers(0, (m, n), (count, 2)), axis=0)
    draw.shuffle(keys)
    return gl.sparse(tuple(keys.T), draw.random(len(keys)), shape=(m, n))


def _samples() -> gl.Space:
    draw = _draw()
    labels, ids, xs = draw.integers(0, 2, 20).astype(float), draw.integers(0, 15, (20, 4)), draw.random((20, 4))
    return gl.sparse((np.arange(20),), (labels, ids, xs))


def _triples() -> gl.Space:
    draw = _draw()
    keys = np.unique(draw.integers(0, 4, (20, 3)), axis=0)
    return gl.sparse(tuple(keys.T), draw.random(len(keys)), shape=(4, 4, 4))


def paper() -> list[Case]:
    """The thesis' loops, and its figures."""
    draw = _draw()
    ratings = _ratings()
    factors = {"W": draw.random((12, 5)), "H": draw.random((9, 5))}
    squares = {"Wz": np.zeros((12, 5)), "Hz": np.zeros((9, 5))}
    counts = {"z": np.zeros((12, 9), np.int64), "by_document": draw.integers(5, 9, (12, 3)) * 1.0,
              "by_word": draw.integers(5, 9, (9, 3)) * 1.0}  # fmt: skip
    grid, serial = gl.range(8, 8), ("serial",)
    columns = gl.sparse((np.repeat(np.arange(6), 5), np.tile(np.arange(5), 6)), draw.random(30))
    return [
        Case("SGD MF", sgd_mf, ratings, {**factors, "step": 0.1}, kinds=("2d",)),
        Case("SGD MF, ordered", sgd_mf, ratings, {**factors, "step": 0.1}, ordered=True, kinds=("2d",)),
        Case("SGD MF, adaptive", sgd_mf_adagrad, ratings, {**factors, **squares, "step": 0.1}, kinds=("2d",)),
        Case("SLR without buffers", slr_direct, _samples(), {"weights": draw.random(15), "step": 0.1}, kinds=serial),
        Case("LDA", lda, ratings, {**counts, "totals": np.full(3, 50.0)}, kinds=("2d",), shared=("totals",)),
        Case("GBT, histograms", histograms, columns, {"bins": 3, "sums": np.zeros((6, 3))}, kinds=("1d",)),
        Case("GBT, splits", split_search, gl.range(6),
             {"sums": draw.random((6, 4)), "gains": np.zeros(6), "best": np.zeros(6, np.int64)}, kinds=("1d",)),
        Case("Fig. 5.7", figure_5_7, grid, {"a": draw.random((9, 9))}, ordered=True, kinds=("1d",)),
        Case("Fig. 5.9", figure_5_9, grid, {"a": draw.random((9, 9))}, ordered=True, kinds=("2d",)),
        Case("Fig. 5.11", figure_5_9, grid, {"a": draw.random((9, 9))}, kinds=("2d",)),
        Case("unimodular", seidel, grid, {"a": draw.random((9, 10))}, ordered=True, kinds=("unimodular",)),
    ]  # fmt: skip


def ours() -> list[Case]:
    draw = _draw()

    def one(
        name: str, body: Callable[..., Any], kinds: str, space: gl.Space | None = None, **arguments: Any
    ) -> list[Case]:
        where = gl.range(8) if space is None else space
        return [
            Case(f"{name}{', ordered' if ordered else ''}", body, where, arguments, ordered, tuple(kinds.split("|")))
            for ordered in (False, True)
        ]

    def v(*shape: int) -> np.ndarray:
        return draw.random(shape)

    ratings = _ratings()
    grid = gl.range(6, 6)
    found = [
        one("recurrence", recurrence, "serial", gl.range((1, 8)), a=v(8)),
        one("element-wise", elementwise, "1d", a=v(8), b=v(8)),
        one("shifted", shifted, "1d", a=v(9), b=v(10)),
        one("reads ahead", reversed_dependence, "serial", a=v(9)),
        one("rows swapped", rows_swapped, "1d", a=v(8, 4), b=v(8, 4)),
        one("through a view", through_view, "1d", a=v(8, 4)),
        one("branches", branches, "1d", a=v(8), b=v(8)),
        one("helpers", through_helpers, "1d|2d|serial", ratings_without(ratings), a=v(12), b=v(9)),
        one("even and odd", even_odd, "serial", a=v(18)),
        one("tensor", tensor, "serial", _triples(), A=v(4, 3), B=v(4, 3), C=v(4, 3), step=0.1),
        one("window", window, "1d", a=v(10), b=v(9)),
        one("slices", sliced, "1d", a=v(10), b=v(8)),
        one("transposed", column, "1d", grid, a=v(6, 6), b=v(6, 6)),
        one("scan", scan, "1d", grid, a=v(7, 6)),
        one("constants", constant_read, "1d", a=v(8), b=v(8)),
        one("rows in place", stride_of_rows, "1d", a=v(8, 20)),
        one("diagonal", diagonal, "unimodular", grid, a=v(7, 7)),
        one("three dimensions", backwards_in_three, "1d", gl.range(4, 4, 4), a=v(5, 4, 8)),
        one("last writer", last_writer, "serial", a=v(3)),
    ]
    sums = [
        Case("total", total, ratings, {"a": np.zeros(2)}, kinds=("1d",)),
        Case("total, ordered", total, ratings, {"a": np.zeros(2)}, True, ("serial",)),
        Case("bins", bins, ratings, {"h": np.zeros(5)}, kinds=("1d",)),
    ]
    return [case for group in found for case in group] + sums


def ratings_without(space: gl.Space) -> gl.Space:
    """The keys alone."""
    assert space.entries is not None
    return gl.sparse(space.entries.keys, shape=space.shape)


def buffered() -> tuple[gl.Space, Callable[..., Any], dict[str, Any]]:
    """SLR as the thesis runs it: (space, body, arguments); 1D by way of the buffer."""
    weights = gl.array(_draw().random(15))
    return _samples(), slr, {"weights": weights, "buffered": gl.buffer(weights), "step": 0.1}
