"""The tiling of alternating least squares, with copies of arrays, and of the same structure again.

The 14 operators of Fig. 3 of Huang et al. (Spartan, USENIX ATC 2015) as Spartan's own example computes them, two
iterations unrolled, on Netflix's ratings (480,189 × 17,770) with 100 features: every user's regression wants a whole
row of the ratings, every movie's a whole column. The best tiling holds the ratings twice, by rows and by columns.
Compared: no copies, the exact search and Spartan's greedy one with memory for one copy of the ratings. The programs are
lowered and their bytes counted; on two devices all tilings, copies and all, are tried. The paper: 0.06 s; trying all
500 s.
Search: processor time from a graph to the Graph and Strategy with copies, all memos emptied before (`again`: with what
they know, as for other graphs of the same operators). Next iteration: the same structure over new arrays, remembered.
Floor: `--floor` milliseconds for the first search, 1 ms for the next iteration, medians.
"""

from __future__ import annotations

import argparse
import sys
from statistics import median
from typing import Any

from benchmarks.array_programs import exhaustive, least_squares, renamed
from benchmarks.common import Benchmark, Report, Row, forget, note, objective, timed

USERS, MOVIES, FEATURES = 480_189, 17_770, 100
MACHINES = ("local:2", "local:4", "2x4")
TRIED = "local:2"
NEXT_MS = 1.0


def tilings(graph: Any, aim: Any, budget: int, repeats: int) -> tuple[Row, list[str]]:
    """What the searches find on one machine and how long they take; and what is wrong."""
    from girih.partition.searches.plan_cache import PlanCache
    from girih.partition.searches.spartan import Spartan
    from girih.partition.searches.tiled import Wanted, tiled
    from girih.partition.space.copies import widened
    from girih.partition.space.options import TOFU
    from girih.program import lower

    wanted = Wanted(copies=budget)
    _, alone = tiled(graph, aim)
    _, greedy = tiled(graph, aim, Wanted(Spartan(), copies=budget))
    first, again, following = [], [], []
    for number in range(repeats):
        forget()
        (found, best), spent = timed(tiled, graph, aim, wanted)
        first.append(spent.cpu)
        again.append(timed(tiled, graph, aim, wanted)[1].cpu)
        known = PlanCache()
        known.tiled(graph, aim, wanted)
        (same, told), spent = timed(known.tiled, renamed(graph, f".{number}"), aim, wanted)
        following.append(spent.cpu)
    row: Row = {
        "operators": len(graph.nodes) + len(graph.inputs),
        "alone": alone.cost / 1e9,
        "greedy": greedy.cost / 1e9,
        "best": best.cost / 1e9,
        "bound": best.bound / 1e9,
        "gap": f"{best.gap:.0%}",
        "copied": ", ".join(str(graph.values[name].shape) for name in found.copies.values()),
        "ms": round(median(first) * 1e3, 2),
        "again": round(median(again) * 1e3, 2),
        "next": round(median(following) * 1e3, 3),
    }
    wrong = []
    if best.gap != 0 or alone.gap != 0:
        wrong.append(f"{best.cost} bytes are not proved, bound {best.bound}")
    for tiling, certificate in ((found, best), (same, told)):
        moved = lower(tiling.graph, tiling.strategy, aim.transfers).bytes_received().sum()
        if moved != certificate.cost:
            wrong.append(f"the program moves {moved} bytes, not {certificate.cost}")
    if told.cost != best.cost or known.hits != 1:
        wrong.append(f"the next iteration is not remembered: {told.cost} bytes")
    if not best.cost <= greedy.cost or not best.cost <= alone.cost:
        wrong.append(f"{best.cost} bytes, but greedy moves {greedy.cost}, without copies {alone.cost}")
    if aim.machine.mesh.axes == 1:
        item = widened(graph, aim, TOFU, {}, budget)
        least, spent = timed(exhaustive, item.problem, len(item.holds))
        row["trying"] = round(spent.cpu, 2)
        if budget < sum(costs.max() for costs in item.bytes) and least < best.cost:
            row["trying"] = None  # more copies than there is memory for
        elif least != best.cost:
            wrong.append(f"{best.cost} bytes proved, but trying all finds {least}")
    return row, wrong


def measure(options: argparse.Namespace) -> Report:
    users, movies, features = (4096, 1024, 8) if options.quick else (USERS, MOVIES, FEATURES)
    graph = least_squares(users, movies, features)
    budget = graph.values["a0"].bytes
    repeats = 5 if options.quick else options.repeats
    tilings(graph, objective("bytes", TRIED), budget, 1)  # machine code and catalogue
    rows: list[Row] = []
    misses: list[str] = []
    for name in MACHINES:
        found, wrong = tilings(graph, objective("bytes", name), budget, repeats)
        row: Row = {"machine": name, **found}
        rows.append(row)
        note(row)
        misses += [f"{name}: {words}" for words in wrong]
        if row["ms"] >= options.floor:
            misses.append(f"{name}: the search takes {row['ms']} ms, floor {options.floor:g}")
        if row["next"] >= NEXT_MS:
            misses.append(f"{name}: the next iteration takes {row['next']} ms, floor {NEXT_MS:g}")
    columns = (
        ("machine", "machine"),
        ("operators", "operators"),
        ("no copies, GB", "alone"),
        ("greedy, GB", "greedy"),
        ("exact, GB", "best"),
        ("lower bound", "bound"),
        ("gap", "gap"),
        ("copied", "copied"),
        ("search, ms", "ms"),
        ("again", "again"),
        ("next iteration, ms", "next"),
        ("trying all, s", "trying"),
    )
    slowest, following = max(row["ms"] for row in rows), max(row["next"] for row in rows)
    return Report(
        f"Alternating least squares, {users} × {movies}, {features} features, memory for one copy (Spartan §5.2)",
        columns,
        tuple(rows),
        f"{len(rows)} optima with copies proved in at most {slowest} ms, the next iteration in {following} ms",
        tuple(misses),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=25, help="of which the median is taken (default 25; --quick: 5)")


BENCHMARK = Benchmark(
    "tiling_als", __doc__ or "", measure, 10.0, "milliseconds of processor time of the first search", add_options
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
