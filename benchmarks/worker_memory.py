"""The memory of each worker beside its fair share of what one device needs.

What: the peak of a training step on k workers, weights, gradients, momentum, activations, and transfer buffers
included, beside 1/k of the peak of the same step on one device: measured for a small RNN of 4 layers and a small
WResNet-50 on 2, 4 and 8 worker processes, and predicted for RNN-4-8K and WResNet-50-4 on 8 K80.
How: predicted is the liveness of storages in the program that runs (`girih.program.life.accounts.memory_use`), of the
worker that needs most. Measured is the sum of all allocations and releases that PyTorch's profiler sees in a worker
process, all tensors of the step made anew within (`girih.run.worker.measure`); one device is one worker of the
undivided program. Plans of least communication (objective bytes); where such a plan needs more than the floor, the next
row is planned under that limit of memory (`memory=`), and its added communication is shown; it does not make up for the
miss. Against: Tofu divides every tensor, so that a worker needs about 1/k (§1, §5); it prints no figures of memory. The
floor is the ratio to 1/k, predicted and measured. Measured over predicted is shown: temporaries inside of PyTorch's
kernels (convolutions' reordered copies) are predicted by the rules beside the operators' descriptions.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any

from benchmarks.common import Benchmark, Report, Row, cell, note, seconds_option, training_step


@dataclass(frozen=True)
class Case:
    model: str
    batch: int
    workers: tuple[int, ...]
    machine: str  # with {} for the number of workers
    measured: bool


CASES = (
    Case("rnn-4-256", 64, (2, 4, 8), "local:{}", True),
    Case("wresnet-50-1-32", 32, (2, 4, 8), "local:{}", True),
    Case("rnn-4-8k", 512, (8,), "p2.8xlarge", False),
    Case("wresnet-50-4", 128, (8,), "p2.8xlarge", False),
)
QUICK = (Case("rnn-tiny", 64, (2,), "local:{}", False),)


def planned(case: Case, machine: str, options: argparse.Namespace, memory: int | None = None) -> Any:
    import girih

    step, batch = training_step(case.model, case.batch)
    return girih.plan(
        step,
        batch,
        machine=machine,
        memory=memory,
        compare=(),
        search=f"exact:seconds={options.seconds}",
        objective="bytes",
    )


def measured_peak(plan: Any, case: Case, backend: str) -> int:
    """Bytes of the worker that needs most, in a step that really runs from made-up state."""
    from girih.models import random_batch
    from girih.plans.inputs import flatten_batch

    scalars = {item.name: 0.01 for item in plan.graph.inputs if item.role == "scalar"}
    with plan.start(backend=backend) as running:
        peaks = running.run.peak_bytes(flatten_batch(random_batch(case.model, case.batch)), scalars)
    return int(max(peaks))


def measure(options: argparse.Namespace) -> Report:
    from girih import PlanError

    rows: list[Row] = []
    misses: list[str] = []
    for case in QUICK if options.quick else CASES:
        if options.models and case.model not in options.models:
            continue
        one = planned(case, "local:1", options)
        one_measured = measured_peak(one, case, "threads") if case.measured else None
        rows.append(_row(case, 1, "", one, one.peak, one_measured, one_measured))
        note(rows[-1])
        for workers in case.workers:
            machine, what = case.machine.format(workers), f"{case.model} on {workers}"
            plan = planned(case, machine, options)
            seen = measured_peak(plan, case, "processes") if case.measured else None
            row = _row(case, workers, "none", plan, one.peak, seen, one_measured)
            rows.append(row)
            note(rows[-1])
            if row["ratio"] > options.floor or (row["measured ratio"] or 0.0) > options.floor:
                misses.append(f"{what}: {row['ratio']:.3f} × 1/k predicted, {cell(row['measured ratio'])} measured")
                limit = int(one.peak / workers * options.floor)
                try:
                    plan = planned(case, machine, options, limit)
                except PlanError as error:
                    misses.append(f"{what}, under a limit: {error}"[:300])
                    continue
                seen = measured_peak(plan, case, "processes") if case.measured else None
                moved = rows[-1]["received GB"]
                row = _row(case, workers, f"{limit / 1e6:.1f} MB", plan, one.peak, seen, one_measured)
                row["more bytes"] = round(row["received GB"] / moved, 3) if moved else None
                rows.append(row)
                note(rows[-1])
    columns = (
        ("model", "model"),
        ("workers", "workers"),
        ("limit", "limit"),
        ("predicted MB", "predicted MB"),
        ("× 1/k of one device", "ratio"),
        ("measured MB", "measured MB"),
        ("× 1/k of one device", "measured ratio"),
        ("measured / predicted", "measured / predicted"),
        ("communication GB", "received GB"),
        ("× without limit", "more bytes"),
        ("gap", "gap"),
        ("Tofu", "paper"),
    )
    held = [row for row in rows if row["workers"] > 1]
    most = max((max(row["ratio"], row["measured ratio"] or 0.0) for row in held), default=0.0)
    excess = max((row["measured / predicted"] or 0.0 for row in rows), default=0.0)
    said = f"; measured at most {excess:.3f} × predicted" if excess else ""
    return Report(
        "Peak memory of the worker that needs most, beside its fair share",
        columns,
        tuple(rows),
        f"{len(held)} plans; a worker needs at most {most:.3f} × its share (floor {options.floor:g}){said}",
        tuple(misses),
    )


def _row(
    case: Case, workers: int, limit: str, plan: Any, one: int, measured: int | None, one_measured: int | None
) -> Row:
    ratio = None if measured is None or one_measured is None else round(measured * workers / one_measured, 3)
    return {
        "model": f"{case.model}, batch {case.batch}",
        "workers": workers,
        "limit": limit,
        "predicted MB": round(plan.peak / 1e6, 3),
        "ratio": round(plan.peak * workers / one, 3),
        "measured MB": None if measured is None else round(measured / 1e6, 3),
        "measured ratio": ratio,
        "measured / predicted": None if measured is None else round(measured / plan.peak, 4),
        "received GB": float(plan.bytes_received.sum() / 1e9),
        "more bytes": None,
        "gap": f"{plan.gap:.2%}",
        "paper": "about 1/k",
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    seconds_option(parser)
    parser.add_argument("--models", nargs="+", metavar="NAME", help="only these of the four")


BENCHMARK = Benchmark("worker_memory", __doc__ or "", measure, 1.15, "peak over 1/k of one device's", add_options)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
