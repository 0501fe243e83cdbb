"""Seconds to search for the best partition over 8 workers, beside Tofu's Table 1.

What: the `exact` search on WResNet-152-10 (batch 8) and RNN-10-8K (batch 128, 20 steps) for Tofu's machine, a
p2.8xlarge with 8 K80 (mesh 2×4), under Tofu's objective: the bytes that all workers receive, all work divided, every
tensor held once. Tofu's dynamic program considers whole strategies only by recursion, one mesh axis at a time;
`exact` considers all strategies of the three axes at once and proves the optimum.
How: the training step (forward, backward, SGD with momentum) is captured; then, `--repeats` times, all memos of shapes
are emptied and the search is run: CPU and wall seconds, the median. Pricing (cost tables of every operator) and
searching apart are the search's own wall seconds. Numba's machine code is loaded before.
Against: Tofu's Table 1: 8.3 s and 66.6 s using recursion; 8 hours and more than 24 hours without. Another machine:
the ratio says the order of magnitude. The floor is CPU seconds for each model, and the gap must be 0.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.common import (
    Benchmark,
    Report,
    Row,
    captured,
    forget,
    median,
    note,
    objective,
    repeats_option,
    searched,
    seconds_option,
    timed,
    times,
    warm_up,
)

MODELS = (
    # model, batch, Tofu's seconds using recursion, without
    ("wresnet-152-10", 8, 8.3, "8 hours", 8 * 3600.0),
    ("rnn-10-8k", 128, 66.6, ">24 hours", 24 * 3600.0),
)
QUICK = (("lenet-tiny", 8, 8.3, "8 hours", 8 * 3600.0), ("gpt-tiny", 8, 66.6, ">24 hours", 24 * 3600.0))


def measure(options: argparse.Namespace) -> Report:
    warm_up()
    rows: list[Row] = []
    for name, batch, recursion, without, without_seconds in QUICK if options.quick else MODELS:
        graph, capturing = timed(captured, name, batch)
        aim = objective("bytes", "p2.8xlarge")
        runs = []
        for _ in range(1 if options.quick else options.repeats):
            forget()
            runs.append(timed(searched, "exact:space=tofu", graph, aim, options.seconds))
        time = median(timing for _, timing in runs)
        certificate = runs[-1][0].certificate
        rows.append(
            {
                "model": f"{name}, batch {batch}",
                "nodes": len(graph.nodes),
                "capture": capturing,
                "cpu": round(time.cpu, 2),
                "wall": round(time.wall, 2),
                "price": certificate.statistics["seconds to price"],
                "search": certificate.statistics["seconds to search"],
                "bytes": certificate.cost,
                "gap": certificate.gap,
                "stopped": certificate.stopped,
                "recursion": recursion,
                "faster": None if options.quick else times(time.cpu, recursion),
                "without": without,
                "faster than without": None if options.quick else times(time.cpu, without_seconds),
            }
        )
        note(rows[-1])
    misses = [f"{row['model']} took {row['cpu']} CPU s" for row in rows if row["cpu"] > options.floor] + [
        f"{row['model']} is not proved: gap {row['gap']:.2%}, stopped: {row['stopped']}" for row in rows if row["gap"]
    ]
    columns = (
        ("model", "model"),
        ("nodes", "nodes"),
        ("capture CPU / wall", "capture"),
        ("search CPU s", "cpu"),
        ("wall s", "wall"),
        ("pricing (wall)", "price"),
        ("searching (wall)", "search"),
        ("gap", "gap"),
        ("Tofu, recursion s", "recursion"),
        ("paper's / ours", "faster"),
        ("Tofu, without", "without"),
        ("paper's / ours", "faster than without"),
    )
    return Report(
        "Search for 8 workers, all strategies of a 2×4 mesh; Tofu's Table 1 (for the full models)",
        columns,
        tuple(rows),
        ", ".join(f"{row['model']} {row['cpu']} CPU s" for row in rows) + ", proved optimal",
        tuple(misses),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    seconds_option(parser)
    repeats_option(parser)


BENCHMARK = Benchmark("partition_search", __doc__ or "", measure, 2.0, "CPU seconds for each model", add_options)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
