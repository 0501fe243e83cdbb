"""What a worker takes for itself: its time outside kernels and transfers.

What: the share of a worker's step that is neither an operator's own call nor an exchange: looking up buffers, cutting
views, frees, keeping books. A perceptron whose operators take over 1 ms on average trains on 2 worker processes (and,
as a check of the clock, on one).
How: each worker measures its step, every call of an operator and every exchange; after one step to warm up,
`--repeats` steps are counted, and the largest share of any worker is taken. Each operator's time is wall time: where
the cores are shared with others, a pause falls on what runs at the time, mostly kernels.
Against: nothing printed in the paper (its partitioned graph runs in MXNet's own engine). The floor is the share.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from benchmarks.common import Benchmark, Report, Row, repeats_option, training_step

MODEL, BATCH = "mlp-1024-1024-1024-1024", 1024
QUICK_MODEL, QUICK_BATCH = "mlp-1024-1024-1024", 1024


def totals(running: Any) -> list[tuple[float, float, float]]:
    """(total, kernels, transfers) seconds of each worker so far."""
    return [(item.times.total, item.times.kernels, item.times.transfers) for item in running.run.statistics()]


def measure(options: argparse.Namespace) -> Report:
    import girih
    from girih.models import random_batch
    from girih.program import ComputeStep

    model, size = (QUICK_MODEL, QUICK_BATCH) if options.quick else (MODEL, BATCH)
    rows: list[Row] = []
    for workers in (1,) if options.quick else (1, 2):
        backend = "threads" if workers == 1 else "processes"
        step, example = training_step(model, size)
        plan = girih.plan(step, example, machine=f"local:{workers}", compare=(), objective="bytes")
        batch = random_batch(model, size)
        with plan.start(backend=backend) as running:
            running.step(batch)
            before = totals(running)
            for _ in range(options.repeats):
                running.step(batch)
            after = totals(running)
        operators = sum(isinstance(item, ComputeStep) for item in plan.program.steps)
        for rank, (first, last) in enumerate(zip(before, after, strict=True)):
            total, kernels, transfers = (b - a for a, b in zip(first, last, strict=True))
            rows.append(
                {
                    "model": f"{model}, batch {size}",
                    "workers": f"{workers} ({backend})",
                    "rank": rank,
                    "steps": options.repeats,
                    "total": total / options.repeats,
                    "kernels": kernels / options.repeats,
                    "transfers": transfers / options.repeats,
                    "each": 1e3 * kernels / options.repeats / operators,
                    "own": 1e6 * (total - kernels - transfers) / options.repeats / len(plan.program.steps),
                    "share": round((total - kernels - transfers) / total, 5),
                    "paper": None,
                }
            )
    worst = max(row["share"] for row in rows)
    misses = [
        f"rank {row['rank']} of {row['workers']} takes {row['share']:.2%} for itself"
        for row in rows
        if row["share"] > options.floor
    ]
    if short := [row for row in rows if row["each"] < 1.0]:
        misses.append(f"operators take {short[0]['each']:.2f} ms on average: the model is too small to say")
    columns = (
        ("model", "model"),
        ("workers", "workers"),
        ("rank", "rank"),
        ("steps", "steps"),
        ("s / step", "total"),
        ("in kernels", "kernels"),
        ("in transfers", "transfers"),
        ("ms / operator", "each"),
        ("own µs / instruction", "own"),
        ("own share", "share"),
        ("Tofu", "paper"),
    )
    return Report(
        "A worker's time outside kernels and transfers",
        columns,
        tuple(rows),
        f"at most {worst:.2%} of a step (floor {options.floor:.0%})",
        tuple(misses),
    )


BENCHMARK = Benchmark("worker_overhead", __doc__ or "", measure, 0.03, "largest share of any worker", repeats_option)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
