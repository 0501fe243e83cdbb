"""Rules generated and proved from TASO's operators: seconds, and how many are left after each stage of pruning.

What: `girih.workshop.generate` with the operators of TASO's Table 2.1, for up to 3, 4 and 5 operators a side. How:
verdicts within the time, from 4 operators on by `--processes` beside the one that generates; CPU seconds are of all
of them. Against: TASO at 4 operators, with its published counts beside (Table
2.3: 28,744 → 17,346 → 743) and its time (generation about 5 minutes, verification less than 10: §2.9.6);
at 5 it runs out of memory (§2.9.4). Floors: 10 seconds, 60 seconds, 10 minutes on 2 cores; no used rule is open.
Memory is bounded by `--gigabytes`, time by `--seconds` for each size; a line says now and then what is being done.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys

from benchmarks.common import Benchmark, Report, Row, clock, note, since

FLOORS = {3: 10.0, 4: 60.0, 5: 600.0}
TASO_SECONDS = 15 * 60
MOST_SECONDS, MOST_GIGABYTES = 3600.0, 8.0
LINE_SECONDS = 15.0
PUBLISHED = {4: (28744, 17346, 743)}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", default="3,4,5", help="most operators of a side (default 3,4,5; --quick: 3)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="that judge (default: one a core)")
    parser.add_argument("--seconds", type=float, default=MOST_SECONDS, help="for one size, then what was found counts")
    parser.add_argument("--gigabytes", type=float, default=MOST_GIGABYTES, help="of memory that a process may take")


def measure(options: argparse.Namespace) -> Report:
    from girih.rewrite.prove import Proved, prove
    from girih.workshop.generate import Generation

    most = int(options.gigabytes * 1e9)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    sizes = [3] if options.quick else [int(size) for size in options.sizes.split(",")]
    Generation(("mm", "add"), 1).generate()  # compiled loops, PyTorch and the catalogue are loaded
    rows: list[Row] = []
    misses: list[str] = []
    for size in sizes:
        began, others = clock(), _children()
        generation = Generation(size=size, seconds=options.seconds, processes=options.processes)
        found = generation.generate(_Lines())
        took = since(began)
        last = found.counts[-1]
        rules = found.rules
        row: Row = {"operators": size, "terms": last.terms, "equal": last.initial, "renamed": last.renamed}
        row |= {"unshared": last.unshared, "not implied": last.unimplied, "rules": len(rules)}
        row |= {word: len(found.with_word(word)) for word in ("proved", "open")}
        row |= {"refuted": sum(item.unproved for item in found.counts) - row["open"], "seconds": took.wall}
        row |= {"CPU": took.cpu + _children() - others}
        row |= {"GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6}
        published = PUBLISHED.get(size)
        row |= {"TASO": " → ".join(map(str, published)) if published else "", "× TASO's seconds": ""}
        if published:
            row["× TASO's seconds"] = f"{took.wall / TASO_SECONDS:.3f}"
        note(row)
        rows.append(row)
        misses += [f"{size} operators: {found.stopped}"] if found.stopped else []
        most = FLOORS.get(size, min(FLOORS.values())) * options.floor
        if took.wall > most:
            misses.append(f"{took.wall:.0f} seconds for {size} operators, at most {most:.0f}")
        again = [rule for rule in rules[:: max(1, len(rules) // 20)] if not isinstance(prove(rule), Proved)]
        misses += [f"not proved again: {rule}" for rule in again]
    summary = "; ".join(
        f"{row['operators']} operators: {row['rules']} rules in {row['seconds']:.1f} s, {row['GB']:.1f} GB"
        for row in rows
    )
    return Report(
        "Rules generated and proved",
        tuple((key, key) for key in rows[0]),
        tuple(rows),
        summary,
        tuple(misses),
        ("equal: pairs of equal terms under all names of inputs; TASO's counts are of pairs of graphs",),
    )


class _Lines:
    """Prints what is being done, now and then."""

    def __init__(self) -> None:
        self.began = self.last = clock()

    def __call__(self, what: str, share: float) -> None:
        if since(self.last).wall > LINE_SECONDS:
            self.last = clock()
            took = since(self.began).wall
            gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            print(f"  {took:5.0f} s, {gigabytes:.1f} GB: {what}, {share:.0%}", file=sys.stderr, flush=True)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


BENCHMARK = Benchmark("rules", __doc__ or "", measure, 1.0, "times the floors in seconds", options)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
