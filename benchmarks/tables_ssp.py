"""Bounded staleness, checked: traces of random runs with delays, and all orders of messages in small cases.

What: the promise of tables. A worker that reads in its tick t sees all updates of the ticks up to t − S − 1 of all
workers, all of its own, and never fewer than it has seen before. How: 1,000 runs over ZeroMQ (threads of one process,
and every fiftieth on processes), each drawn at random: two to four workers, one or two servers, staleness 0 to 3, dense
or sparse rows, caches that hold all rows or few, with and without managed communication, and random pauses before every
call. Worker w adds 1 to column w of random rows, so that a row that is read shows how many updates of whom it has; what
it must have is counted from the workers' own notes. Besides, the clients and servers themselves are put through all
orders of events in small cases (`benchmarks.tables_interleavings`); where a case has too many, as many states as
`--states` says. Against: nothing. Floor: no violation.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.common import Benchmark, Report, Row, note


@dataclass(frozen=True)
class Drawn:
    """One run's options."""

    seed: int
    workers: int
    servers: int
    staleness: int
    sparse: bool
    rows: int
    memory: int
    managed: bool
    ticks: int
    pause: float
    processes: bool

    @staticmethod
    def of(seed: int) -> Drawn:
        generator = np.random.default_rng(seed)
        return Drawn(
            seed=seed,
            workers=int(generator.integers(2, 5)),
            servers=int(generator.integers(1, 3)),
            staleness=int(generator.integers(0, 4)),
            sparse=bool(generator.integers(2)),
            rows=int(generator.choice([3, 400])),
            memory=int(generator.choice([4096, 1 << 20])),
            managed=bool(generator.integers(2)),
            ticks=int(generator.integers(3, 8)),
            pause=float(generator.choice([0.0, 0.002, 0.006])),
            processes=seed % 50 == 49,
        )


def trace(t: Any, rank: int, drawn: Drawn) -> list[tuple[str, int, int, list[int]]]:
    """What a worker did: ("inc", tick, row, []) and ("read", tick, row, values of all columns)."""
    generator = np.random.default_rng((drawn.seed, rank))
    table = t["counts"]
    notes: list[tuple[str, int, int, list[int]]] = []

    def pause() -> None:
        if drawn.pause:
            time.sleep(generator.exponential(drawn.pause))

    for tick in range(drawn.ticks):
        for _ in range(int(generator.integers(1, 5))):
            pause()
            rows = np.unique(generator.integers(0, drawn.rows, int(generator.integers(1, 40))))
            if generator.integers(2):
                table.inc_entries(rows, np.full(len(rows), rank), np.ones(len(rows)))
                notes += [("inc", tick, row, []) for row in rows.tolist()]
            else:
                if generator.integers(4) == 0:
                    table.prefetch(rows)
                    pause()
                found = table.get_rows(rows)
                values = found.toarray() if drawn.sparse else found
                notes += [("read", tick, row, values[i].tolist()) for i, row in enumerate(rows.tolist())]
        pause()
        t.clock()
    return notes


def run_once(seed: int) -> list[str]:
    """A random run; what was wrong with it."""
    import girih.loop as gl

    drawn = Drawn.of(seed)
    with gl.tables(
        workers=drawn.workers,
        servers=drawn.servers,
        staleness=drawn.staleness,
        bandwidth="50 MB/s" if drawn.managed else None,
        queue=1024,
        backend="processes" if drawn.processes else "threads",
        memory=drawn.memory,
        timeout=30,
    ) as t:
        make = t.sparse if drawn.sparse else t.dense
        table = make("counts", drawn.rows, drawn.workers, "int32")
        notes = t.run(trace, drawn)
        final = table.read()
    return violations(drawn, notes, final.toarray() if drawn.sparse else final)


def violations(drawn: Drawn, notes: list[Any], final: np.ndarray) -> list[str]:
    """What the notes of all workers show to be wrong."""
    made = np.zeros((drawn.workers, drawn.ticks, drawn.rows), np.int64)  # updates by worker, tick and row
    for worker, own in enumerate(notes):
        for kind, tick, row, _ in own:
            if kind == "inc":
                made[worker, tick, row] += 1
    total = made.sum(axis=1)
    before = np.concatenate([np.zeros_like(made[:, :1]), made.cumsum(axis=1)], axis=1)  # by the beginning of a tick
    wrong = []
    for worker, own in enumerate(notes):
        mine = np.zeros(drawn.rows, np.int64)
        seen = np.zeros((drawn.rows, drawn.workers), np.int64)
        for kind, tick, row, values in own:
            if kind == "inc":
                mine[row] += 1
                continue
            least = before[:, max(0, tick - drawn.staleness), row].copy()
            most = total[:, row].copy()
            least[worker] = most[worker] = mine[row]
            found = np.array(values)
            if (found < least).any() or (found > most).any():
                wrong.append(f"{drawn}: worker {worker}, tick {tick}, row {row}: {values}, expected {least} to {most}")
            if (found < seen[row]).any():
                wrong.append(f"{drawn}: worker {worker}, tick {tick}, row {row}: {values} after {seen[row]}")
            seen[row] = found
    if not np.array_equal(final, total.T):
        wrong.append(f"{drawn}: at the end the servers do not have the sum of all updates")
    return wrong


def measure(options: argparse.Namespace) -> Report:
    from benchmarks.tables_interleavings import explore, small_cases

    runs = 5 if options.quick else options.runs
    states = 100 if options.quick else options.states
    rows: list[Row] = []
    misses: list[str] = []
    for name, case in small_cases().items():
        began = time.perf_counter()
        verdict = explore(case, most_states=states)
        rows.append(
            {
                "case": f"all orders, {name}",
                "runs": verdict.states,
                "whole": verdict.complete,
                "violations": len(verdict.violations),
                "seconds": time.perf_counter() - began,
            }
        )
        misses += verdict.violations[:2]
        note(rows[-1])
    began = time.perf_counter()
    wrong: list[str] = []
    for seed in range(runs):
        wrong += run_once(seed)
        if seed % 100 == 99:
            note({"runs": seed + 1, "violations": len(wrong)})
    rows.append(
        {
            "case": "random runs over ZeroMQ",
            "runs": runs,
            "whole": True,
            "violations": len(wrong),
            "seconds": time.perf_counter() - began,
        }
    )
    misses += wrong[:2]
    return Report(
        "bounded staleness: what was checked",
        (
            ("case", "case"),
            ("states or runs", "runs"),
            ("all of them", "whole"),
            ("violations", "violations"),
            ("seconds", "seconds"),
        ),
        tuple(rows),
        f"no violation in {runs} random runs and {sum(row['runs'] for row in rows[:-1])} states",
        tuple(misses),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=1000, help="random runs (default 1000)")
    parser.add_argument("--states", type=int, default=30_000, help="most states of each small case (default 30000)")


BENCHMARK = Benchmark("tables_ssp", __doc__ or "", measure, 0.0, "so many violations", add_options)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
