"""Epochs of a graph network on several workers: as measured on 1 and 2, and as simulated on 2 to 16.

A GCN (100 → 256 → 40, Adam, float32) on a power-law graph (R-MAT) of 100,000 vertices and about 5 million edges
(`--quick`: 2,000 and about 30,000), cut by `gnn.partition` in its order `dealt` into ranges of equal work, one process
of one thread for each; for one worker that order is by degree. One worker on the vertices as they are numbered runs
beside, and two are held against whichever of the two takes less. `--repeats` times the machine is calibrated with the
plans' own operators, a step of each plan is simulated by that, and `--epochs` epochs of each are measured, behind one
that does not count: what a machine of others' load takes in one minute says little of the next. Medians of all are
compared. Before that, several workers run for a few epochs, in which they learn what pieces take and are cut anew. More
workers than this host has cores are simulated alone.
Floors: 2 workers are at least `--floor` times as fast as one; what was predicted is within 15 % of what was measured.
Both are of wall seconds, for a machine that does nothing else; `--quick` holds them to nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import Benchmark, Report, Row, note, repeats_option

FEATURES, HIDDEN, CLASSES = 100, 256, 40
NEAR = 0.15
MOST_WORKERS = 16
LEARNING = 12
"""Epochs in which the cut is learned."""


def planned(data: Any, workers: int, order: str = "dealt") -> Any:
    """The plan of a GCN's step over so many workers, each with a range of the vertices."""
    import torch

    import girih
    from girih import gnn

    torch.manual_seed(0)
    network = gnn.GCN(FEATURES, HIDDEN, CLASSES)
    step = girih.TrainingStep(network, loss=gnn.loss, optimizer=torch.optim.Adam(network.parameters(), lr=0.01))
    if order != "given":
        data = gnn.partition(data, workers, gnn.CostModel(gnn.layers_of(network, data.features)), order).arranged(data)
    if workers == 1:
        return girih.plan(step, data, machine="local:1", search="single", compare=())
    return girih.plan(step, data, machine=f"local:{workers}", compare=())


def learned(plan: Any, epochs: int) -> Any:
    """The plan with the cut that its run has after so many epochs."""
    with plan.start(backend="processes") as run:
        for _ in range(epochs):
            run.step()
        return run.plan


def measured(plan: Any, epochs: int) -> list[float]:
    """Wall seconds of each epoch but the first."""
    found = []
    with plan.start(backend="processes") as run:
        for _ in range(epochs + 1):
            began = time.perf_counter()
            run.step()
            found.append(time.perf_counter() - began)
    return found[1:]


def measure(options: argparse.Namespace) -> Report:
    import torch

    from girih import gnn
    from girih.plans.predict import predict
    from girih.run.calibrate.calibrate import calibrate

    torch.set_num_threads(1)  # which workers have, too
    vertices, drawn = (2_000, 20_000) if options.quick else (100_000, 2_900_000)
    data = gnn.rmat(vertices, drawn, features=FEATURES, classes=CLASSES)
    counts = [workers for workers in (1, 2, 4, 8, 16) if workers <= (2 if options.quick else MOST_WORKERS)]
    plans = {workers: planned(data, workers) for workers in counts}
    run_here = [workers for workers in counts if workers <= min(2, os.cpu_count() or 1)]
    for workers in run_here[1:]:
        plans[workers] = learned(plans[workers], 2 if options.quick else LEARNING)
    plain = planned(data, 1, "given")
    given: list[float] = []
    times: dict[int, list[float]] = {workers: [] for workers in run_here}
    foreseen: dict[int, list[float]] = {workers: [] for workers in counts}
    budget, epochs, repeats = (0.5, 1, 1) if options.quick else (options.budget, options.epochs, options.repeats)
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(repeats):
            store = Path(folder) / f"costs{repeat}.sqlite"
            for workers in run_here:
                plan = plans[workers]
                own = {"programs": [plan.program], "data": [plan.origin.data.data_tensors()]}
                calibrate(f"local:{workers}", store_path=store, budget_seconds=budget, **own)
            for workers in counts:
                forecast = predict(plans[workers], store=store, memory=False)
                foreseen[workers].append(forecast.seconds + forecast.driver)
            given += measured(plain, epochs)
            for workers in run_here:
                times[workers] += measured(plans[workers], epochs)
    forecasts = {workers: statistics.median(seconds) for workers, seconds in foreseen.items()}
    rows: list[Row] = []
    misses: list[str] = []
    one, as_given = statistics.median(times[1]), statistics.median(given)
    note({"one worker, vertices as they are numbered": round(as_given, 4), "by degree": round(one, 4)})
    for workers in counts:
        row: Row = {"workers": workers, "predicted": round(forecasts[workers], 4)}
        row["of one, predicted"] = round(forecasts[1] / forecasts[workers], 2)
        row["received"] = sum(plans[workers].bytes_received)
        if workers in run_here:
            real = statistics.median(times[workers])
            row |= {"measured": round(real, 4), "ratio": round(forecasts[workers] / real, 3)}
            row["of one"] = round(min(one, as_given) / real, 2)
            if not options.quick and abs(row["ratio"] - 1) > NEAR:
                misses.append(f"{workers} workers: predicted {row['ratio']} of what was measured")
        rows.append(row)
        note(row)
    gain = next((row["of one"] for row in rows if row["workers"] == 2 and "of one" in row), None)
    if gain is not None and gain < options.floor:
        misses.append(f"2 workers are {gain} times as fast as one, below {options.floor:g}")
    columns = (
        ("workers", "workers"), ("predicted s", "predicted"), ("× one, predicted", "of one, predicted"),
        ("measured s", "measured"), ("predicted / measured", "ratio"), ("× one, measured", "of one"),
        ("bytes received", "received"),
    )  # fmt: skip
    summary = f"2 workers are {gain} times as fast as one" if gain is not None else "one core: nothing to compare"
    title = f"an epoch of a GCN on {data.vertices:,} vertices and {data.edges:,} edges"
    return Report(title, columns, tuple(rows), summary, tuple(misses))


def add_options(parser: argparse.ArgumentParser) -> None:
    repeats_option(parser)
    parser.add_argument("--epochs", type=int, default=5, help="measured epochs of each plan and repeat (default 5)")
    parser.add_argument("--budget", type=float, default=15.0, help="seconds of each calibration (default 15)")


BENCHMARK = Benchmark(
    "gnn_scaling", __doc__ or "", measure, 1.7, "times as fast as one worker two are", add_options, quick_floor=0.0
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
