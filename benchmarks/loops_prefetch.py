"""Bulk prefetch against single reads: sparse logistic regression whose weights lie in a server process.

`single`: the loop's body in plain Python, each weight that it reads a request to the server, as a loop without prefetch
would; on a part of the samples, seconds for each. `bulk`: the same body as a parallel loop on one worker, of which
girih synthesises the function that lists the rows that all samples read, and fetches them in one request; `cached`:
the lists are known from the execution before. Writes go through a buffer in all, and are sent at the end.
The thesis has 7,682 s, 9.2 s and 6.3 s for a pass over KDD2010 (835 and 1,219 times).
Floor: `--floor` times single reads, for bulk and for cached.
"""

from __future__ import annotations

import argparse
import sys
import time
from statistics import median
from typing import Any

import numpy as np

from benchmarks.common import Benchmark, Report, Row, note
from benchmarks.loop_bodies import slr

FEATURES, SAMPLES, EACH = 100_000, 40_000, 36
SINGLE = 400
"""Samples that single reads take their time for."""


class Sums(dict[int, float]):
    """A buffer in plain Python."""

    def __missing__(self, key: int) -> float:
        return 0.0


def data(samples: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    ids = (FEATURES * draw.random((samples, EACH)) ** 3).astype(np.int64)
    return (draw.random(samples) < 0.5).astype(np.float32), ids, draw.random((samples, EACH)).astype(np.float32)


def single(labels: np.ndarray, ids: np.ndarray, xs: np.ndarray) -> tuple[float, np.ndarray]:
    """(seconds for a sample, the weights after all of them)."""
    import girih.loop as gl

    with gl.served(np.zeros(FEATURES, np.float32)) as weights:
        sums = Sums()
        began = time.perf_counter()
        for sample in range(len(labels)):
            slr(sample, (labels[sample], ids[sample], xs[sample]), weights, sums, np.float32(0.1))
        rows = np.array(sorted(sums))
        weights.server.add(rows, np.array([sums[row] for row in rows], np.float32))
        return (time.perf_counter() - began) / len(labels), weights.numpy()


def bulk(labels: np.ndarray, ids: np.ndarray, xs: np.ndarray, cached: bool, repeats: int) -> tuple[float, np.ndarray]:
    """The same by a parallel loop; the weights after one execution."""
    import girih.loop as gl

    space = gl.sparse((np.arange(len(labels)),), (labels, ids, xs))
    with gl.served(np.zeros(FEATURES, np.float32), cached=cached) as weights:
        loop: Any = gl.parallel_for(space, workers=1)(slr)
        buffered = gl.buffer(weights)
        loop(weights, buffered, step=0.1)
        after = weights.numpy()
        taken = []
        for _ in range(repeats):
            began = time.perf_counter()
            loop(weights, buffered, step=0.1)
            taken.append(time.perf_counter() - began)
        return median(taken) / len(labels), after


def measure(options: argparse.Namespace) -> Report:
    samples, few = (10_000, 100) if options.quick else (SAMPLES, SINGLE)
    whole = data(samples)
    part = tuple(item[:few] for item in whole)
    alone, known = single(*part)  # type: ignore[arg-type]
    _, small = bulk(*part, cached=False, repeats=1)  # type: ignore[misc]
    misses = []
    if not np.allclose(known, small, rtol=1e-4, atol=1e-6):
        misses.append("weights differ between single reads and bulk reads")
    rows: list[Row] = [{"reads": "single", "microseconds": 1e6 * alone, "times": 1.0, "thesis": 7682.0}]
    for name, cached, theirs in (("bulk", False, 9.2), ("bulk, cached", True, 6.3)):
        seconds, _ = bulk(*whole, cached=cached, repeats=3 if options.quick else 7)
        row: Row = {"reads": name, "microseconds": 1e6 * seconds, "times": round(alone / seconds), "thesis": theirs}
        note(row)
        rows.append(row)
        if alone / seconds < options.floor:
            misses.append(f"{name}: {alone / seconds:.0f} times as fast as single reads")
    columns = (
        ("reads", "reads"),
        ("µs for a sample", "microseconds"),
        ("× faster", "times"),
        ("thesis, s for a pass", "thesis"),
    )
    return Report(
        f"sparse logistic regression, {samples:,} samples of {EACH} of {FEATURES:,} features", columns, tuple(rows),
        f"bulk {rows[1]['times']} ×, cached {rows[2]['times']} × as fast as single reads", tuple(misses),
    )  # fmt: skip


BENCHMARK = Benchmark("loops_prefetch", __doc__ or "", measure, 800.0, "times single reads")

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
