"""The 12 array applications on girih and on NumPy: the same functions, the same data, in one process, in turn.

NumPy with its BLAS on one thread and on two. girih with one worker of one thread, and with two workers, as threads of
this process; data and results lie with the workers, as NumPy's lie in memory. `first`: the first call on two workers,
with placing the data, planning and compiling. Black-Scholes also against the same formulas as one parallel loop of
Numba, on two threads. Times are medians on the wall of runs that alternate, with a pause between them in which threads
of the one before fall asleep; every result is compared with NumPy's.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from benchmarks.array_applications import Application, chosen, same
from benchmarks.common import Benchmark, Report, Row, note, repeats_option

FUSED, KERNEL = 3.0, 1.3
PAUSE = 0.01
"""Seconds before each run."""
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
    return in_turns({"": work}, repeats)[""]


def in_turns(works: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The median seconds of each."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            gc.collect()
            time.sleep(PAUSE)
            began = time.perf_counter()
            made = work()
            found[name].append(time.perf_counter() - began)
            del made  # before the next: an equal array that is still alive would not be computed again
    return {name: median(times) for name, times in found.items()}


def against(
    application: Application,
    arrays: tuple[np.ndarray, ...],
    count: int,
    repeats: int,
    others: Mapping[str, Callable[[], Any]],
) -> tuple[Any, float, dict[str, float]]:
    """(results of girih with so many workers, seconds of its first call, seconds of later ones, as `girih`, and of the
    others)."""
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
        taken = in_turns({**others, "girih": work}, repeats)
        if cluster.evaluations - before < repeats:
            raise AssertionError(f"{application.name}: {repeats} calls were not computed anew each time")
        return found, first, taken


def against_numpy(application: Application, quick: bool, repeats: int) -> tuple[Row, list[str]]:
    from threadpoolctl import ThreadpoolController

    libraries: Any = ThreadpoolController()
    arrays, run = application.arrays(quick), application.program()

    def plain(threads: int) -> Any:
        with libraries.limit(limits=threads, user_api="blas"):
            return run(np, *arrays)

    one, two = partial(plain, 1), partial(plain, 2)
    known = plain(1)
    kernel = kernel_of(arrays, known) if application.name == "Black-Scholes" else {}
    alone, _, single = against(application, arrays, 1, repeats, {"numpy": one})
    both, first, double = against(application, arrays, 2, repeats, {"numpy 1": one, "numpy 2": two, **kernel})
    wrong = [
        f"{application.name}, {count} workers: {words}"
        for count, found in ((1, alone), (2, both))
        if (words := same(found, known))
    ]
    row: Row = {
        "program": application.name,
        "numpy 1": single["numpy"],
        "numpy 2": double["numpy 2"],
        "one": single["girih"],
        "two": double["girih"],
        "first": first,
        "alone": single["numpy"] / single["girih"],
        "faster": min(double["numpy 1"], double["numpy 2"]) / double["girih"],
        "kernel": double.get("kernel"),
    }
    return row, wrong


def kernel_of(arrays: tuple[np.ndarray, ...], known: Any) -> dict[str, Callable[[], Any]]:
    """Black-Scholes as a parallel loop, on two threads, as `kernel`."""
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
    if words := same(prices(*arrays, 0.02, 0.3), known):
        raise AssertionError(f"the kernel: {words}")
    return {"kernel": lambda: prices(*arrays, 0.02, 0.3)}


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
        if row["kernel"] and row["two"] > KERNEL * row["kernel"]:
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
