"""Bulk prefetch against single reads: sparse logistic regression whose weights lie in a server process.

`single`: the loop's body in plain Python, each weight that it reads a request to the server, as a loop without prefetch
would; on a part of the samples, seconds for each. `bulk`: the same body as a parallel loop on one worker, of which
girih synthesises the function that lists the rows that all samples read, and fetches them in one request; `cached`:
the lists are known from the execution before. Writes go through a buffer in all, and are sent at the end.
The thesis has 7,682 s, 9.2 s and 6.3 s for a pass over KDD2010 (835 and 1,219 times).
CPU seconds are the loop's process' and the server's together; the walls of a loaded machine favour single reads, which
mostly sleep. Floor: `--floor` times less CPU than single reads, for bulk and for cached.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Benchmark, Report, Row, Timing, note
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


class Clock:
    """CPU seconds of this process and a server's, and wall seconds, since it was made."""

    def __init__(self, server: int) -> None:
        self.server = server
        self.began = self.now()

    def now(self) -> tuple[float, float]:
        fields = Path(f"/proc/{self.server}/stat").read_text().rpartition(")")[2].split()
        theirs = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return time.process_time() + theirs, time.perf_counter()

    def since(self) -> Timing:
        return Timing(*(end - start for start, end in zip(self.began, self.now(), strict=True)))


def single(labels: np.ndarray, ids: np.ndarray, xs: np.ndarray) -> tuple[Timing, np.ndarray]:
    """What a sample takes, and the weights after all of them."""
    import girih.loop as gl

    with gl.served(np.zeros(FEATURES, np.float32)) as weights:
        sums = Sums()
        clock = Clock(weights.server.process.pid)
        for sample in range(len(labels)):
            slr(sample, (labels[sample], ids[sample], xs[sample]), weights, sums, np.float32(0.1))
        rows = np.array(sorted(sums))
        weights.server.add(rows, np.array([sums[row] for row in rows], np.float32))
        return each(clock.since(), len(labels)), weights.numpy()


def bulk(labels: np.ndarray, ids: np.ndarray, xs: np.ndarray, cached: bool, repeats: int) -> tuple[Timing, np.ndarray]:
    """The same by a parallel loop; the weights after one execution."""
    import girih.loop as gl

    space = gl.sparse((np.arange(len(labels)),), (labels, ids, xs))
    with gl.served(np.zeros(FEATURES, np.float32), cached=cached) as weights:
        loop: Any = gl.parallel_for(space, workers=1)(slr)
        buffered = gl.buffer(weights)
        loop(weights, buffered, step=0.1)
        after = weights.numpy()
        clock = Clock(weights.server.process.pid)
        for _ in range(repeats):
            loop(weights, buffered, step=0.1)
        return each(clock.since(), len(labels) * repeats), after


def each(whole: Timing, count: int) -> Timing:
    return Timing(whole.cpu / count, whole.wall / count)


def measure(options: argparse.Namespace) -> Report:
    samples, few = (5_000, 30) if options.quick else (SAMPLES, SINGLE)
    whole = data(samples)
    part = tuple(item[:few] for item in whole)
    alone, known = single(*part)  # type: ignore[arg-type]
    _, small = bulk(*part, cached=False, repeats=1)  # type: ignore[misc]
    misses = []
    if not np.allclose(known, small, rtol=1e-4, atol=1e-6):
        misses.append("weights differ between single reads and bulk reads")
    rows: list[Row] = [
        {"reads": "single", "cpu": 1e6 * alone.cpu, "wall": 1e6 * alone.wall, "times": 1.0, "thesis": 7682.0}
    ]
    for name, cached, theirs in (("bulk", False, 9.2), ("bulk, cached", True, 6.3)):
        found, _ = bulk(*whole, cached=cached, repeats=5 if options.quick else 20)
        row: Row = {
            "reads": name, "cpu": 1e6 * found.cpu, "wall": 1e6 * found.wall,
            "times": round(alone.cpu / found.cpu), "wall times": round(alone.wall / found.wall), "thesis": theirs,
        }  # fmt: skip
        note(row)
        rows.append(row)
        if row["times"] < options.floor:
            misses.append(f"{name}: {row['times']} times less than single reads")
    columns = (("reads", "reads"), ("CPU µs for a sample", "cpu"), ("wall µs", "wall"), ("× less CPU", "times"),
               ("× less wall", "wall times"), ("thesis, s for a pass", "thesis"))  # fmt: skip
    return Report(
        f"sparse logistic regression, {samples:,} samples of {EACH} of {FEATURES:,} features", columns, tuple(rows),
        f"bulk {rows[1]['times']} ×, cached {rows[2]['times']} × less CPU than single reads", tuple(misses),
    )  # fmt: skip


BENCHMARK = Benchmark("loops_prefetch", __doc__ or "", measure, 800.0, "times single reads")

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
