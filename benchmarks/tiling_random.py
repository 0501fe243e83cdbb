"""Tilings of random array programs: the exact search against Spartan's greedy one and against trying all.

Programs of 2 to 15 operators (new arrays, maps, matrix products, sums along an axis, cumulative sums, swapped axes)
over dimensions from 128K to 512K, as §5.2 of Huang et al. (Spartan, USENIX ATC 2015) has them, on 4 processes in a mesh
of 2×2: a matrix lies by rows, by columns or by blocks. Cost: the bytes that devices receive; each optimum's program is
lowered, and its bytes counted. Where a program has few enough tilings, all are tried. Greedy's misses are shown as in
Fig. 10. The paper: 95 of 100 optimal, 0.1 s; trying all took 1,900 s for 15 operators.
Search: processor time from a graph to its proved tiling, all memos emptied before (`again`: with what it remembered).
Floor: `--floor` milliseconds for the median search; every program must be proved optimal.
"""

from __future__ import annotations

import argparse
import sys
from itertools import pairwise
from math import prod
from statistics import median
from typing import Any

import numpy as np

from benchmarks.array_programs import exhaustive, random_program
from benchmarks.common import Benchmark, Report, Row, forget, objective, timed

MACHINE = "local:4"
MOST_TILINGS = 2**20
FEWEST, MOST = 2, 15


def compared(graph: Any, aim: Any, most: int) -> tuple[Row, str]:
    """One program: what both searches cost and took, and what is wrong."""
    from girih.partition.searches.exact import exact
    from girih.partition.searches.spartan import Spartan
    from girih.partition.space.options import TOFU
    from girih.partition.space.problem import build
    from girih.program import lower

    forget()
    found, first = timed(exact, graph, aim)
    _, again = timed(exact, graph, aim)
    forget()
    greedy, other = timed(Spartan().search, graph, aim)
    best, cost = found.certificate, greedy.certificate.cost
    row: Row = {"cost": best.cost, "greedy": cost, "ms": first.cpu * 1e3, "again": again.cpu * 1e3}
    row["greedy ms"], row["tried"], row["trying"] = other.cpu * 1e3, False, 0.0
    wrong = ""
    if best.gap != 0 or best.stopped != "optimal":
        wrong = f"{best.cost} bytes are not proved, bound {best.bound}"
    if cost < best.cost:
        wrong = f"greedy moves {cost} bytes, the proved optimum {best.cost}"
    if (moved := lower(graph, found.strategy, aim.transfers).bytes_received().sum()) != best.cost:
        wrong = f"its program moves {moved} bytes, not {best.cost}"
    item = build(graph, aim, TOFU)
    if prod(item.problem.domains[: len(item.layouts)]) <= most:
        least, trying = timed(exhaustive, item.problem, len(item.layouts))
        row["tried"], row["trying"] = True, trying.cpu * 1e3
        if least != best.cost:
            wrong = f"{best.cost} bytes proved, but trying all finds {least}"
    return row, wrong


def summed_up(name: str, rows: list[Row]) -> Row:
    missed = [row["greedy"] / row["cost"] for row in rows if row["greedy"] > row["cost"] > 0]
    return {
        "operators": name,
        "programs": len(rows),
        "ms": round(median(row["ms"] for row in rows), 2),
        "most": round(max(row["ms"] for row in rows), 2),
        "again": round(median(row["again"] for row in rows), 2),
        "tried": sum(row["tried"] for row in rows),
        "trying": round(max(row["trying"] for row in rows), 1),
        "greedy ms": round(median(row["greedy ms"] for row in rows), 2),
        "optimal": f"{sum(row['greedy'] <= row['cost'] for row in rows) / len(rows):.1%}",
        "from nothing": sum(row["greedy"] > row["cost"] == 0 for row in rows),
        "ratio": round(median(missed), 3) if missed else None,
        "worst": round(max(missed), 3) if missed else None,
    }


def misses_of(rows: list[Row]) -> tuple[str, ...]:
    """Greedy's misses, as Fig. 10: how many times the optimum's bytes, and gigabytes where the optimum moves none."""
    ratios = sorted(row["greedy"] / row["cost"] for row in rows if row["greedy"] > row["cost"] > 0)
    free = sorted(row["greedy"] / 1e9 for row in rows if row["greedy"] > row["cost"] == 0)
    notes = []
    edges = (1.0, 1.01, 1.1, 1.25, 1.5, 2.0, 4.0, float("inf"))
    if ratios:
        counts = ", ".join(
            f"{sum(low < ratio <= high for ratio in ratios)} to {high:g} ×" for low, high in pairwise(edges)
        )
        notes.append(f"greedy / optimum where greedy misses: {counts}")
    if free:
        quartiles = ", ".join(f"{np.quantile(free, share):.4g}" for share in (0, 0.25, 0.5, 0.75, 1))
        notes.append(f"where the optimum moves nothing, greedy moves (GB; least, quartiles, most): {quartiles}")
    return tuple(notes)


def measure(options: argparse.Namespace) -> Report:
    random = np.random.default_rng(options.seed)
    aim = objective("bytes", options.machine)
    count, most = (20, 2**12) if options.quick else (options.programs, options.tilings)
    compared(random_program(np.random.default_rng(0), 8), aim, most)  # machine code and catalogue
    by_size: dict[int, list[Row]] = {}
    misses: list[str] = []
    for number in range(count):
        operators = FEWEST + number % (MOST - FEWEST + 1)
        row, wrong = compared(random_program(random, operators), aim, most)
        by_size.setdefault(operators, []).append(row)
        if wrong:
            misses.append(f"program {number} of {operators} operators: {wrong}")
    every = [row for rows in by_size.values() for row in rows]
    table = [*(summed_up(str(size), rows) for size, rows in sorted(by_size.items())), summed_up("all", every)]
    whole = table[-1]
    if whole["ms"] >= options.floor:
        misses.append(f"the median search takes {whole['ms']} ms, floor {options.floor:g}")
    columns = (
        ("operators", "operators"),
        ("programs", "programs"),
        ("exact, ms", "ms"),
        ("most", "most"),
        ("again", "again"),
        ("all tilings tried", "tried"),
        ("trying, most ms", "trying"),
        ("greedy, ms", "greedy ms"),
        ("greedy optimal", "optimal"),
        ("missed where 0", "from nothing"),
        ("greedy × median miss", "ratio"),
        ("× worst", "worst"),
    )
    return Report(
        f"{count} random array programs on {options.machine} (Spartan §5.2, Fig. 10)",
        columns,
        tuple(table),
        f"{count} programs proved optimal, median search {whole['ms']} ms, all tilings of {whole['tried']} tried; "
        f"greedy optimal in {whole['optimal']}",
        tuple(misses),
        misses_of(every),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--programs", type=int, default=1000, help="how many (default 1000; --quick: 20)")
    parser.add_argument("--machine", default=MACHINE, help=f"by name (default {MACHINE}); local:2 has rows and columns")
    parser.add_argument("--seed", type=int, default=2015, help="of the random programs (default 2015)")
    parser.add_argument(
        "--tilings", type=int, default=MOST_TILINGS, help=f"try all where there are at most so many ({MOST_TILINGS})"
    )


BENCHMARK = Benchmark(
    "tiling_random", __doc__ or "", measure, 20.0, "milliseconds of processor time of the median search", add_options
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
