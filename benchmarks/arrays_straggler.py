"""Array programs on two workers of which one is slow: with work stealing, and without.

What: element-wise applications, and a long chain of functions over many elements, on two workers, each on a core of
its own, threads of this process; another process computes on the second core all the time, so that its worker has
half of it. Seconds of an evaluation, medians, with chunks of blocks that the faster worker may take and without, by
turns; and without the other process, which shows what stealing costs where nobody is slow. Threads see each other's
tiles (`girih.run.transport.stealing`); what processes would gain is in docs/design/004-blocks.md. Against: Spartan
§3.4 moves tiles between workers by the same idea. With c and c / 2 of two cores the work of one core takes 2 / 3 of
the time where it is moved: 1.5 times as fast is the most. Floor: `--floor` with the other process. Where workers
cannot be bound to cores, nothing is measured, and the verdict says so.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import geometric_mean, median
from typing import Any

import numpy as np

from benchmarks.array_applications import Application, chosen
from benchmarks.arrays_numpy import evaluated, one_thread, seconds
from benchmarks.common import Benchmark, Report, Row, note, repeats_option
from benchmarks.straggler_work import Least, bound

PROGRAMS = ("Black-Scholes", "fuzzy k-means", "binomial tree")
QUICK = ("Black-Scholes",)
CHAIN = "long chain"
NEVER = 1 << 30


@dataclass(frozen=True)
class Chain:
    """A program of one loop that takes about a second, as an Application."""

    name: str = CHAIN
    functions: int = 120

    def arrays(self, quick: bool) -> tuple[np.ndarray, ...]:
        return (np.random.default_rng(0).normal(size=40_000 if quick else 4_000_000),)

    def program(self) -> Callable[..., tuple[Any, ...]]:
        def run(namespace: Any, x: Any) -> tuple[Any, ...]:
            y = x
            for _ in range(self.functions):
                y = namespace.exp(-(y * y)) + x
            return (y.sum(), y.max())

        return run


def programs(only: Sequence[str] | None, quick: bool) -> list[Application | Chain]:
    """Those that are asked for by name, or all.

    Raises:
        ValueError: there is no program of a name.
    """
    names = list(only or (QUICK if quick else (*PROGRAMS, CHAIN)))
    chain = [Chain()] if CHAIN in names else []
    return [*(chosen(others) if (others := [name for name in names if name != CHAIN]) else []), *chain]


def refusal() -> str:
    """Why two workers cannot have cores of their own, or ""."""
    if not hasattr(os, "sched_setaffinity"):
        return "this system does not bind threads to cores"
    return "" if len(os.sched_getaffinity(0)) > 1 else "there is one core"


@contextmanager
def busy(core: int) -> Iterator[None]:
    """A process that computes on the core."""
    text = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True:\n    pass"
    process = subprocess.Popen([sys.executable, "-c", text])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def times(application: Application | Chain, quick: bool, repeats: int) -> tuple[float, float, int]:
    """(seconds without stealing, with it, chunks that were stolen)."""
    import girih
    import girih.array
    from girih.run.transport.stealing import LEAST_LEFT

    run = application.program()
    with girih.cluster(2, backend="threads", small=0) as cluster:
        crew = cluster.run.crew
        crew.command("measure", [{"task": one_thread}] * 2)
        crew.command("measure", [{"task": bound}] * 2)
        given = [girih.array.asarray(x) for x in application.arrays(quick)]

        def work() -> Any:
            return evaluated(cluster, run(girih.array, *given))

        seconds(work, 2)  # placed, planned, compiled
        taken: dict[int, list[float]] = {NEVER: [], LEAST_LEFT: []}
        try:
            for _ in range(repeats):
                for least, own in taken.items():
                    crew.command("measure", [{"task": Least(least)}] * 2)
                    own.append(seconds(work, 1))
        finally:
            crew.command("measure", [{"task": Least(LEAST_LEFT)}] * 2)
        stolen = [one.stolen for one in cluster.run.statistics()]
        without, with_it = map(median, taken.values())
        return without, with_it, max(stolen)  # threads count together


def measure(options: argparse.Namespace) -> Report:
    if why := refusal():
        return Report("Not measured", (("programs", "programs"),), (), f"skipped: {why}", notes=(f"skipped: {why}",))
    slow = sorted(os.sched_getaffinity(0))[1]
    repeats = 2 if options.quick else 3 * options.repeats
    rows: list[Row] = []
    for application in programs(options.only, options.quick):
        quiet = times(application, options.quick, repeats)
        with busy(slow):
            without, stealing, stolen = times(application, options.quick, repeats)
        rows.append(
            {
                "program": application.name,
                "alone": quiet[0],
                "alone, stealing": quiet[1],
                "slow": without,
                "slow, stealing": stealing,
                "stolen": stolen,
                "ratio": round(without / stealing, 3),
            }
        )
        note(rows[-1])
    mean = geometric_mean(row["ratio"] for row in rows)
    columns = (
        ("program", "program"),
        ("both alone, s", "alone"),
        ("stealing", "alone, stealing"),
        ("one with half a core", "slow"),
        ("stealing", "slow, stealing"),
        ("chunks stolen", "stolen"),
        ("times as fast", "ratio"),
    )
    return Report(
        "Two workers of which one has half a core",
        columns,
        tuple(rows),
        f"with stealing {mean:.2f} times as fast",
        (f"with stealing only {mean:.2f} times as fast",) if mean < options.floor else (),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    repeats_option(parser)
    parser.add_argument(
        "--only", nargs="+", metavar="PROGRAM", help=f"these only (default: {', '.join(PROGRAMS)}, {CHAIN})"
    )


BENCHMARK = Benchmark(
    "arrays_straggler", __doc__ or "", measure, 1.1, "with a slow worker, times as fast by stealing", add_options
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
