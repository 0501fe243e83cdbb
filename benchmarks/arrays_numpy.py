"""The 12 array applications on girih and on NumPy: the same functions, the same data, in one process, in turn.

NumPy with its BLAS on one thread and on two. girih with one worker of one thread, and with two workers, as threads of
this process; data and results lie with the workers, as NumPy's lie in memory. `first`: the first call on two workers,
with placing the data, planning and compiling. Black-Scholes also against the same formulas as one parallel loop of
Numba, on two threads. Times are medians on the wall, every result is compared with NumPy's.
Linear regression is measured with 100 columns, too.
A note says what an evaluation costs by itself: milliseconds of `float((x * k).sum())`, x of 1,000 elements, k new each
time, on one and on two threads.
Floors: with one worker `--floor` times one-threaded NumPy; element-wise programs 3 times the faster NumPy with two
workers; Black-Scholes within 1.3 times the loop.
"""

from __future__ import annotations

import argparse
import gc
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import numpy as np

from benchmarks.array_applications import Application, chosen, same
from benchmarks.common import Benchmark, Report, Row, note, repeats_option

FUSED, KERNEL = 3.0, 1.3
EVALUATIONS = 300
"""Of the small program, after a third as many that are not measured."""
QUICK = ("k-means", "QR", "Black-Scholes")
WIDER = Application(
    "linear, 100 columns", "linear_regression", {"count": 200_000, "features": 100}, {"count": 5000}, {"steps": 10}
)
"""One more: rows of this length are read slowly by products."""


def one_thread(*_: Any) -> None:
    import torch

    torch.set_num_threads(1)


@contextmanager
def workers(count: int) -> Iterator[Any]:
    """Threads of this process, each of which computes with one thread."""
    import girih

    with girih.cluster(count, backend="threads", small=0) as cluster:  # what is measured is left to them
        cluster.run.crew.command("measure", [{"task": one_thread}] * count)
        yield cluster


def evaluated(cluster: Any, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """All of them at once; they stay with the workers."""
    cluster.evaluate([item.expression for item in arrays if not item.expression.is_leaf], report=False)
    return arrays


def seconds(work: Callable[[], Any], repeats: int) -> float:
    found = []
    for _ in range(repeats):
        gc.collect()
        began = time.perf_counter()
        made = work()
        found.append(time.perf_counter() - began)
        del made  # before the next: an equal array that is still alive would not be computed again
    return median(found)


def ours(
    application: Application, arrays: tuple[np.ndarray, ...], count: int, repeats: int
) -> tuple[Any, float, float]:
    """(results, seconds of the first call, seconds of the following ones)."""
    import girih.array

    run = application.program()
    with workers(count) as cluster:
        given = [girih.array.asarray(x) for x in arrays]

        def work() -> tuple[Any, ...]:
            return evaluated(cluster, run(girih.array, *given))

        began = time.perf_counter()
        made = work()
        first = time.perf_counter() - began
        found = tuple(item.compute() for item in made)
        del made
        seconds(work, 1)  # planned anew: the data lie with the workers now
        before = cluster.evaluations
        taken = seconds(work, repeats)
        if cluster.evaluations - before < repeats:
            raise AssertionError(f"{application.name}: {repeats} calls were not computed anew each time")
        return found, first, taken


def against_numpy(application: Application, quick: bool, repeats: int) -> tuple[Row, list[str]]:
    from threadpoolctl import threadpool_limits

    arrays, run = application.arrays(quick), application.program()
    known = run(np, *arrays)
    plain = {}
    for threads in (1, 2):
        with threadpool_limits(threads, "blas"):
            plain[threads] = seconds(lambda: run(np, *arrays), repeats)
    wrong = []
    mine = {}
    for count in (1, 2):
        found, first, mine[count] = ours(application, arrays, count, repeats)
        if words := same(found, known):
            wrong.append(f"{application.name}, {count} workers: {words}")
    fastest = min(plain.values())
    row: Row = {
        "program": application.name,
        "numpy 1": plain[1],
        "numpy 2": plain[2],
        "one": mine[1],
        "two": mine[2],
        "first": first,
        "alone": plain[1] / mine[1],
        "faster": fastest / mine[2],
        "kernel": None,
    }
    return row, wrong


def kernel_seconds(arrays: tuple[np.ndarray, ...], repeats: int, known: Any) -> tuple[float, str]:
    """Black-Scholes as a parallel loop, on two threads; and what is wrong with its results."""
    import numba

    @numba.njit
    def normal(x: float) -> float:
        k = 1 / (1 + 0.2316419 * abs(x))
        series = k * (0.319381530 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))))
        tail = math.exp(-0.5 * x * x) * 0.3989422804014327 * series
        return 1 - tail if x > 0 else tail

    @numba.njit(parallel=True, fastmath=True)
    def prices(share: Any, strike: Any, years: Any, rate: float, volatility: float) -> Any:
        call, put = np.empty_like(share), np.empty_like(share)
        for i in numba.prange(share.size):
            spread = volatility * math.sqrt(years[i])
            first = (math.log(share[i] / strike[i]) + (rate + 0.5 * volatility**2) * years[i]) / spread
            discounted = strike[i] * math.exp(-rate * years[i])
            call[i] = share[i] * normal(first) - discounted * normal(first - spread)
            put[i] = call[i] - share[i] + discounted
        return call, put

    numba.set_num_threads(2)
    words = same(prices(*arrays, 0.02, 0.3), known)
    return seconds(lambda: prices(*arrays, 0.02, 0.3), repeats), words


def evaluation_seconds(count: int, repeats: int) -> float:
    """Of `float((x * k).sum())`, 1,000 elements and k new each time: all of it is the cost of evaluating."""
    import girih.array

    with workers(count):
        x = girih.array.asarray(np.arange(1000.0))
        found = []
        for k in range(repeats + repeats // 3):
            began = time.perf_counter()
            float((x * (k + 0.5)).sum())
            found.append(time.perf_counter() - began)
    return median(found[repeats // 3 :])


def measure(options: argparse.Namespace) -> Report:
    repeats = 1 if options.quick else options.repeats
    rows: list[Row] = []
    misses: list[str] = []
    more = () if options.only or options.quick else (WIDER,)
    for application in (*chosen(options.only, QUICK if options.quick else None), *more):
        row, wrong = against_numpy(application, options.quick, repeats)
        misses += wrong
        if application.name == "Black-Scholes":
            arrays = application.arrays(options.quick)
            row["kernel"], words = kernel_seconds(arrays, repeats, application.program()(np, *arrays))
            if words:
                raise AssertionError(f"the kernel: {words}")
            if row["two"] > KERNEL * row["kernel"]:
                misses.append(f"Black-Scholes takes {row['two'] / row['kernel']:.2f} of the loop's time, not {KERNEL}")
        if row["alone"] < options.floor:
            misses.append(f"{row['program']}: one worker {row['alone']:.2f} × NumPy, floor {options.floor:g}")
        if application.elementwise and row["faster"] < FUSED:
            misses.append(f"{row['program']}: two workers {row['faster']:.2f} × NumPy, floor {FUSED:g}")
        rows.append(row)
        note(row)
    columns = (
        ("program", "program"),
        ("NumPy, 1 thread, s", "numpy 1"),
        ("2 threads", "numpy 2"),
        ("girih, 1 worker", "one"),
        ("2 workers", "two"),
        ("first call", "first"),
        ("NumPy 1 / 1 worker", "alone"),
        ("NumPy / 2 workers", "faster"),
        ("Numba loop", "kernel"),
    )
    small = [1e3 * evaluation_seconds(count, 30 if options.quick else EVALUATIONS) for count in (1, 2)]
    mean = math.exp(sum(math.log(row["faster"]) for row in rows) / len(rows))
    return Report(
        "Array applications on girih and on NumPy",
        columns,
        tuple(rows),
        f"{len(rows)} programs, with two workers {mean:.2f} times as fast as NumPy in geometric mean",
        tuple(misses),
        (
            f"with two workers {mean:.2f} times as fast as the faster NumPy in geometric mean",
            f"float((x * k).sum()), 1,000 elements: {small[0]:.2f} ms with one worker, {small[1]:.2f} ms with two",
        ),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    repeats_option(parser)
    parser.add_argument("--only", nargs="+", metavar="PROGRAM", help="these only (--quick: k-means, QR, Black-Scholes)")


BENCHMARK = Benchmark(
    "arrays_numpy", __doc__ or "", measure, 0.95, "with one worker, times as fast as one-threaded NumPy", add_options
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
