"""What girih.array adds to NumPy: by operation, by element, by evaluation, by shape and by program.

CPU microseconds of this process, the least of alternating rounds (of what is new each time the median), NumPy's beside.
Small: the operations of scripts on three to a thousand elements, each with its own NumPy call. Large (everything left
to one worker, `small=0`): one operation evaluated again with a plan that is known; a shape that is new to a program
that is known; a new program. Floors: a small operation at most 5 µs more than NumPy's, an element 20 µs; an evaluation
with a known plan 100 µs, a new shape 300 µs, a new program 2,000 µs. `--floor` times each of these is allowed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy

from benchmarks.common import Benchmark, Report, Row

SMALL, ELEMENT, KNOWN, SHAPE, PROGRAM = 5.0, 20.0, 100.0, 300.0, 2000.0
OPERATIONS = {
    "x + x": lambda np, x, a: x + x,
    "x * 2.0": lambda np, x, a: x * 2.0,
    "x > 1": lambda np, x, a: x > 1,
    "np.sin(x)": lambda np, x, a: np.sin(x),
    "np.maximum(x, 0)": lambda np, x, a: np.maximum(x, 0),
    "np.where(x > 1, x, 0)": lambda np, x, a: np.where(x > 1, x, 0),
    "x.sum()": lambda np, x, a: x.sum(),
    "a.mean(axis=0)": lambda np, x, a: a.mean(axis=0),
    "a @ a": lambda np, x, a: a @ a,
    "np.dot(x, x)": lambda np, x, a: np.dot(x, x),
    "np.linalg.norm(x)": lambda np, x, a: np.linalg.norm(x),
    "np.concatenate((x, x))": lambda np, x, a: np.concatenate([x, x]),
    "np.roll(x, 1)": lambda np, x, a: np.roll(x, 1),
    "np.zeros(3)": lambda np, x, a: np.zeros(3),
    "np.array((1.0, 2.0))": lambda np, x, a: np.array([1.0, 2.0]),
    "np.arange(5)": lambda np, x, a: np.arange(5),
    "x.reshape(-1, 1)": lambda np, x, a: x.reshape(-1, 1),
    "x.copy()": lambda np, x, a: x.copy(),
    "a[:, 1]": lambda np, x, a: a[:, 1],
    "x[1:-1] += 1": lambda np, x, a: x[1:-1].__iadd__(1),
    "x at x > 1": lambda np, x, a: x[x > 1],
}
ELEMENTS = {
    "x[1]": lambda np, x, a: x[1],
    "a[1, 2]": lambda np, x, a: a[1, 2],
    "x[1] = 2.0": lambda np, x, a: x.__setitem__(1, 2.0),
    "a[1, 2] = 2.0": lambda np, x, a: a.__setitem__((1, 2), 2.0),
    "float(x[1])": lambda np, x, a: float(x[1]),
}
SIZES = (1, 100, 10_000, 1_000_000)


def per_call(work: Callable[[], Any], calls: int) -> float:
    """CPU microseconds of one call."""
    began = time.process_time()
    for _ in range(calls):
        work()
    return (time.process_time() - began) / calls * 1e6


def typical(work: Callable[[], Any], calls: int) -> float:
    """The median call of those that cannot be repeated: Python collects the garbage of all of the process in one."""
    return statistics.median(per_call(work, 1) for _ in range(calls))


def alternately(first: Callable[[], Any], second: Callable[[], Any], calls: int, rounds: int) -> tuple[float, float]:
    """The least of each, measured by turns."""
    pairs = [(per_call(first, calls), per_call(second, calls)) for _ in range(rounds)]
    return min(one for one, _ in pairs), min(other for _, other in pairs)


def measure(options: argparse.Namespace) -> Report:
    import girih.array

    rounds, calls = (2, 200) if options.quick else (9, 2000)
    rows: list[Row] = []
    for kind, table, limit in (("small", OPERATIONS, SMALL), ("element", ELEMENTS, ELEMENT)):
        for name, work in table.items():
            given = [(np, np.arange(1, 4) * 1.5, np.ones((4, 4))) for np in (numpy, girih.array)]
            known, ours = alternately(lambda: work(*given[0]), lambda: work(*given[1]), calls, rounds)  # noqa: B023
            rows.append(row(kind, name, known, ours, limit))
    for size in SIZES[: 2 if options.quick else None]:
        x, y = numpy.arange(float(size)), girih.array.arange(float(size))
        known, ours = alternately(lambda: x * 1.5 + x, lambda: y * 1.5 + y, max(2, calls // size), rounds)  # noqa: B023
        rows.append(row("small", f"x * 1.5 + x, {size:,} elements", known, ours, max(2 * SMALL, known)))
    rows += large(max(2, rounds // 2), 20 if options.quick else 100)
    misses = [f"{item['what']}: {item['more']:.0f} µs more than NumPy's" for item in rows
              if item["more"] > options.floor * item["limit"]]  # fmt: skip
    most: dict[str, float] = {}
    for item in rows:
        most[item["kind"]] = max(item["more"], most.get(item["kind"], 0.0))
    summary = "at most " + ", ".join(f"{kind} {value:.1f}" for kind, value in most.items()) + " µs more than NumPy's"
    columns = (("kind", "kind"), ("operation", "what"), ("NumPy, µs", "numpy"), ("girih, µs", "girih"),
               ("more, µs", "more"), ("at most", "limit"))  # fmt: skip
    return Report("What girih.array adds to NumPy", columns, tuple(rows), summary, tuple(misses))


def large(rounds: int, calls: int) -> list[Row]:
    """Of work that is left to one worker."""
    import girih
    import girih.array as np

    with girih.cluster(1, backend="threads", small=0):
        content = numpy.arange(1000.0)
        x = np.array(content).persist()
        number = iter(range(10**9))
        # a number is an input of the plan, which is new each time: nothing is known but the plan
        one = min(per_call(lambda: float((x * float(next(number))).sum()), calls) for _ in range(rounds))
        sizes = iter(range(1001, 10**9))
        made = [np.array(numpy.arange(float(next(sizes)))).persist() for _ in range(calls)]
        shapes = iter(made)
        shape = typical(lambda: float((next(shapes) * 2.0).sum()), calls) - one
        programs = iter(range(1, calls + 1))
        program = typical(lambda: float(program_of(x, next(programs))), min(calls, 20)) - one
        of_numpy = min(per_call(lambda: float((content * 2.0).sum()), calls) for _ in range(rounds))
    return [
        row("known plan", "float((x * k).sum()), k new", of_numpy, one, KNOWN),
        row("new shape", "float((x * 2).sum()), x of a new size", of_numpy, shape + of_numpy, SHAPE),
        row("new program", "eight operations in a new order", of_numpy, program + of_numpy, PROGRAM),
    ]


def program_of(x: Any, number: int) -> Any:
    """Eight operations, in an order that no other number has."""
    steps = (abs, lambda v: v + 1.0, lambda v: v * 0.5, lambda v: -v)
    for place in range(7):
        x = steps[number // 4**place % 4](x)
    return x.sum()


def row(kind: str, what: str, of_numpy: float, of_girih: float, limit: float) -> Row:
    more = of_girih - of_numpy
    return {"kind": kind, "what": what, "numpy": round(of_numpy, 2), "girih": round(of_girih, 2),
            "more": round(more, 2), "limit": limit}  # fmt: skip


BENCHMARK = Benchmark("arrays_overhead", __doc__ or "", measure, 1.0, "so many times the floors are allowed")

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
