"""Predicted time of a step beside the measured one, on this machine's processes and threads.

What: for plans of six models (an MLP, a recurrent network, a GPT, BERT, DLRM, a residual network; sizes at which a step
takes some tens to hundreds of milliseconds), divided in several ways over 2 and 4 processes and over 2 threads: the
simulated seconds of a step, and the median of measured ones.
How: the machine is calibrated once in this command, for each backend and number of workers, with the plans' own
operators (`girih.run.calibrate.calibrate`); every plan's program is then priced and simulated, and run on random data:
`--steps` steps after two that do not count, all plans in turn, `--repeats` times, so that a change of the machine's
load falls on all. The measured time is the median over all steps of the time from handing a batch in to the loss.
Against: FlexFlow §3.7.4: within 30 %, and the order of plans is kept. Floors: the median error at most `--floor`, the
largest at most 2.5 times that; the order of any two plans of a model whose measured times differ by more than 10 %.
Of plans with more workers than this host has cores, whose time is that of the system's scheduling, figures are shown
and held to no floor.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import Benchmark, Report, Row, note, repeats_option, training_step


@dataclass(frozen=True)
class Case:
    model: str
    batch: int
    machine: str
    backend: str
    objective: str
    search: str
    options: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        return f"{self.model}, {self.search} by {self.objective}, {self.machine} {self.backend}"


SHORT = (("sequence", 128), ("vocabulary", 2048))
CASES = (
    Case("mlp-1024-1024-1024-1024", 256, "local:2", "processes", "bytes", "exact"),
    Case("mlp-1024-1024-1024-1024", 256, "local:2", "processes", "bytes", "data"),
    Case("mlp-1024-1024-1024-1024", 256, "local:2", "threads", "bytes", "exact"),
    Case("rnn-2-256", 64, "local:2", "processes", "bytes", "exact"),
    Case("rnn-2-256", 64, "local:2", "processes", "bytes", "data"),
    Case("gpt-2-256", 4, "local:2", "processes", "time", "exact", SHORT),
    Case("gpt-2-256", 4, "local:2", "processes", "bytes", "data", SHORT),
    Case("gpt-2-256", 4, "local:2", "threads", "bytes", "exact", SHORT),
    Case("bert-2-256", 4, "local:2", "processes", "bytes", "exact", SHORT),
    Case("bert-2-256", 4, "local:4", "processes", "bytes", "data", SHORT),
    Case("dlrm-criteo-tiny", 4096, "local:2", "processes", "bytes", "exact"),
    Case("dlrm-criteo-tiny", 4096, "local:2", "processes", "bytes", "hybrid"),
    Case("wresnet-50-1-32", 8, "local:2", "processes", "bytes", "exact"),
    Case("resnet-tiny", 64, "local:2", "processes", "bytes", "exact"),
    Case("resnet-tiny", 64, "local:2", "processes", "bytes", "data"),
)
QUICK = (Case("mlp-tiny", 8, "local:2", "processes", "bytes", "exact"),)


def planned(case: Case, seconds: float) -> Any:
    import girih

    step, batch = training_step(case.model, case.batch, **dict(case.options))
    return girih.plan(
        step,
        batch,
        machine=case.machine,
        objective=case.objective,
        search=f"{case.search}:seconds={seconds}",
        compare=(),
    )


def measured(plan: Any, case: Case, steps: int) -> list[float]:
    """Seconds of each step, after two that do not count."""
    from girih.models import random_batch

    batch = random_batch(case.model, case.batch, **dict(case.options))
    found = []
    with plan.start(backend=case.backend) as running:
        for number in range(steps + 2):
            began = time.perf_counter()
            running.step(batch, lr=0.001)
            if number >= 2:
                found.append(time.perf_counter() - began)
    return found


def calibrated(plans: dict[Case, Any], store: Path, budget: float) -> None:
    """Measure links, copies, common calls and the plans' own calls, once for each machine and backend."""
    from girih.run.calibrate.calibrate import calibrate

    groups: dict[tuple[str, str], list[Any]] = {}
    for case, plan in plans.items():
        groups.setdefault((case.machine, case.backend), []).append(plan.program)
    for (machine, backend), programs in groups.items():
        calibrate(machine, store_path=store, programs=programs, backend=backend, budget_seconds=budget)


def measure(options: argparse.Namespace) -> Report:
    from girih.machine import machine as machine_named
    from girih.plans.predict import predict

    cases = [case for case in (QUICK if options.quick else CASES) if not options.models or case.model in options.models]
    plans = {case: planned(case, 20.0) for case in cases}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "costs.sqlite"
        calibrated(plans, store, 0.5 if options.quick else options.budget)
        forecasts = {
            case: predict(plan, store=store, backend=case.backend, memory=False) for case, plan in plans.items()
        }
        times: dict[Case, list[float]] = {case: [] for case in cases}
        for _ in range(1 if options.quick else options.repeats):
            for case, plan in plans.items():
                times[case] += measured(plan, case, 2 if options.quick else options.steps)
    for case in cases:
        real = statistics.median(times[case])
        told = forecasts[case].seconds + forecasts[case].driver
        rows.append(
            {
                "case": str(case),
                "model": case.model,
                "predicted": told,
                "measured": real,
                "ratio": round(told / real, 3),
                "error": abs(told / real - 1),
                "spread": f"{min(times[case]) / real:.2f}-{max(times[case]) / real:.2f}",
                "sources": ", ".join(f"{count} {name}" for name, count in forecasts[case].sources.items() if count),
            }
        )
        note(rows[-1])
    cores = os.cpu_count() or 1
    held = [row for row, case in zip(rows, cases, strict=True) if machine_named(case.machine).devices <= cores] or rows
    errors = sorted(row["error"] for row in held)
    misses = []
    if statistics.median(errors) > options.floor:
        misses.append(f"the median error is {statistics.median(errors):.0%}")
    misses += [f"{row['case']}: off by {row['error']:.0%}" for row in held if row["error"] > 2.5 * options.floor]
    misses += [f"order of {one} and {other}" for one, other in swapped(held)]
    columns = (
        ("plan", "case"),
        ("predicted s", "predicted"),
        ("measured s", "measured"),
        ("predicted / measured", "ratio"),
        ("error", "error"),
        ("spread of steps", "spread"),
        ("operators priced", "sources"),
    )
    return Report(
        "Time of a step, predicted and measured; FlexFlow's Figure 3.12",
        columns,
        tuple(rows),
        f"{len(held)} of {len(rows)} plans: median error {statistics.median(errors):.0%}, largest {errors[-1]:.0%}"
        + (", order kept" if not swapped(held) else ""),
        tuple(misses),
    )


def swapped(rows: list[Row]) -> list[tuple[str, str]]:
    """Pairs of plans of one model that differ by more than 10 % and are predicted the other way round."""
    found = []
    for position, one in enumerate(rows):
        for other in rows[position + 1 :]:
            if one["model"] != other["model"]:
                continue
            slow, fast = (one, other) if one["measured"] > other["measured"] else (other, one)
            if slow["measured"] > 1.1 * fast["measured"] and slow["predicted"] < fast["predicted"]:
                found.append((slow["case"], fast["case"]))
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    repeats_option(parser)
    parser.add_argument("--steps", type=int, default=10, help="measured steps of each plan and repeat (default 10)")
    parser.add_argument("--budget", type=float, default=40.0, help="seconds to calibrate each backend (default 40)")
    parser.add_argument("--models", nargs="+", metavar="NAME", help="only these")


BENCHMARK = Benchmark(
    "predict_time", __doc__ or "", measure, 0.1, "median relative error of a step's time", add_options
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
