"""Random array programs: the whole space by bytes against Tofu's, and small ones against trying all.

What: programs of 2 to 15 operators as in `tiling_random`, on 4 processes in a mesh of 2×2: the bytes of the whole space
beside those of Tofu's (`exact:space=tofu`). Small programs, of 2 to 6 operators, on 2 and 3 processes and in a mesh of
2×2, half of them with maxima and minima, and what keeps their order: beside the least over every layout of every value,
partial sums, maxima and minima included, every division of every node, and every way to bring a value that several read
once to a second layout; all of them are tried.
How: each optimum is proved, its program is lowered, and its bytes are counted. Small programs, and some of the others,
are run on threads in float64 with dimensions of 12 to 24, and compared with one device and with the predicted bytes.
Search: processor time from a graph to its proved plan, all memos emptied before.
Against: Tofu's space, in which sums are added where they are made and each reader fetches for itself. Floor: `--floor`
milliseconds for the median search; no program moves more than in Tofu's space, and small ones the least of all.
"""

from __future__ import annotations

import argparse
import sys
from statistics import median
from typing import Any

import numpy as np

from benchmarks.array_programs import least_bytes, random_program
from benchmarks.common import Benchmark, Report, Row, forget, objective, timed, warm_up
from benchmarks.whole_space import run_apart

MACHINES = {"2": "local:2", "3": "local:3", "2×2": "local:4"}
DIMENSIONS = (12, 16, 20, 24)
"""Of programs that are run."""
FEWEST, MOST, SMALL = 2, 15, 5
RUN = 20
"""Of so many large programs one is run."""


def compared(graph: Any, aim: Any) -> tuple[Row, str]:
    """What one program moves in both spaces, how long the search took, and what is wrong."""
    from girih.partition.searches.exact import Exact
    from girih.program import lower

    tofu = Exact(space="tofu").search(graph, aim).certificate.cost
    forget()
    found, timing = timed(Exact().search, graph, aim)
    told = found.certificate
    program = lower(found.graph or graph, found.strategy, aim.transfers)
    row: Row = {"tofu": tofu, "whole": told.cost, "ms": timing.cpu * 1e3, "shared": found.graph is not None}
    row["partial"] = any(layout.partial_axes for layout in found.strategy.layouts.values())
    if told.gap or told.stopped != "optimal":
        return row, f"{told.cost} bytes are not proved, bound {told.bound}"
    if told.cost > tofu:
        return row, f"{told.cost} bytes, {tofu} in Tofu's space"
    if (moved := program.bytes_received().sum()) != told.cost:
        return row, f"its program moves {moved} bytes, not {told.cost}"
    return row, ""


def summed_up(name: str, rows: list[Row]) -> Row:
    cheaper = [row["whole"] / row["tofu"] for row in rows if row["whole"] < row["tofu"]]
    return {
        "programs": f"{len(rows)} {name}",
        "cheaper": len(cheaper),
        "free": sum(row["whole"] == 0 < row["tofu"] for row in rows),
        "ratio": round(median(cheaper), 3) if cheaper else None,
        "partial": sum(row["partial"] for row in rows),
        "shared": sum(row["shared"] for row in rows),
        "ms": round(median(row["ms"] for row in rows), 2),
        "most": round(max(row["ms"] for row in rows), 1),
        "tried": sum("least" in row for row in rows),
        "run": sum("run" in row for row in rows),
    }


def measure(options: argparse.Namespace) -> Report:
    random = np.random.default_rng(options.seed)
    programs, small = (12, 6) if options.quick else (options.programs, options.small)
    misses: list[str] = []
    table: list[Row] = []
    large = objective("bytes", MACHINES["2×2"])
    if not options.quick:
        warm_up()

    def note(row: Row, what: str, wrong: str) -> Row:
        if wrong:
            misses.append(f"{what}: {wrong}")
        return row

    rows = []
    for number in range(programs):
        operators = FEWEST + number % (MOST - FEWEST + 1)
        row, wrong = compared(random_program(random, operators), large)
        if number % RUN == 0:
            row["run"] = True
            wrong = wrong or run_apart(random_program(random, operators, DIMENSIONS), large)
        rows.append(note(row, f"program {number} of {operators} operators", wrong))
    table.append(summed_up("of 2 to 15 operators", rows))
    every = list(rows)
    for mesh, machine in MACHINES.items():
        aim, rows = objective("bytes", machine), []
        for number in range(small // len(MACHINES)):
            operators, extremes = FEWEST + number % (SMALL - FEWEST + 1), bool(number // len(MACHINES) % 2)
            graph = random_program(random, operators + extremes, DIMENSIONS, extremes)
            row, wrong = compared(graph, aim)
            least = least_bytes(graph, aim, 2**16)
            if least is not None:
                row["least"] = least
                wrong = wrong or ("" if least == row["whole"] else f"{row['whole']} bytes, trying all finds {least}")
            row["run"] = True
            rows.append(note(row, f"small program {number} on {mesh}", wrong or run_apart(graph, aim)))
        table.append(summed_up(f"of 2 to {SMALL} on {mesh}", rows))
        every += rows
    table.append(summed_up("together", every))
    if not options.quick and table[0]["ms"] >= options.floor:  # times of few programs decide nothing
        misses.append(f"the median search takes {table[0]['ms']} ms, floor {options.floor:g}")
    columns = (
        ("programs", "programs"),
        ("cheaper than Tofu's", "cheaper"),
        ("free now", "free"),
        ("× median of these", "ratio"),
        ("with partial sums", "partial"),
        ("fetched once", "shared"),
        ("search, ms", "ms"),
        ("most", "most"),
        ("all tried, equal", "tried"),
        ("run", "run"),
    )
    return Report(
        "Bytes of random array programs in the whole space, beside Tofu's",
        columns,
        tuple(table),
        f"{table[-1]['cheaper']} of {table[-1]['programs']} cheaper, none dearer; {table[-1]['tried']} equal to trying "
        f"all; median search {table[0]['ms']} ms",
        tuple(misses),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--programs", type=int, default=1000, help="programs of 2 to 15 operators (default 1000)")
    parser.add_argument("--small", type=int, default=500, help="small programs, of which all is tried (default 500)")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default 1)")


BENCHMARK = Benchmark("whole_space_random", __doc__ or "", measure, 40.0, "ms for the median search", add_options)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
