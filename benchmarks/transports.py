"""Steps of worker processes of one host over shared memory, beside the same over gloo.

What: seconds of a training step, from handing a batch in to the loss, of plans of an MLP, a recurrent network and a GPT
on two worker processes. `--steps` steps after two that do not count, both transports in turn, `--repeats` times; the
medians.
Against: nothing printed; the ten systems ran on several hosts, where messages cross a network. The floor is the
geometric mean of the ratios.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from typing import Any

from benchmarks.common import Benchmark, Report, Row, note, repeats_option
from benchmarks.predict_time import CASES, QUICK, Case, measured, planned

CHOSEN = ("mlp-1024-1024-1024-1024", "rnn-2-256", "gpt-2-256")
VARIABLE = "GIRIH_TRANSPORT"


def over(transport: str, plan: Any, case: Case, steps: int) -> list[float]:
    """Seconds of each step with messages over `gloo` or `shared` memory."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = transport
    try:
        return measured(plan, case, steps)
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def measure(options: argparse.Namespace) -> Report:
    chosen = [case for case in CASES if case.model in CHOSEN and case.backend == "processes"]
    rows: list[Row] = []
    for case in QUICK if options.quick else chosen:
        plan = planned(case, 20.0)
        times: dict[str, list[float]] = {"gloo": [], "shared": []}
        for _ in range(options.repeats):
            for transport in times:
                times[transport] += over(transport, plan, case, options.steps)
        gloo, shared = (statistics.median(times[transport]) for transport in ("gloo", "shared"))
        rows.append({"case": str(case), "gloo": gloo, "shared": shared, "ratio": round(gloo / shared, 3)})
        note(rows[-1])
    mean = statistics.geometric_mean(row["ratio"] for row in rows)
    return Report(
        "A step of processes of one host: messages over gloo and through shared memory",
        (("plan", "case"), ("gloo s", "gloo"), ("shared memory s", "shared"), ("gloo / shared memory", "ratio")),
        tuple(rows),
        f"{mean:.2f} × as fast in geometric mean",
        (f"only {mean:.2f} × as fast",) if mean < options.floor else (),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    repeats_option(parser)
    parser.add_argument("--steps", type=int, default=10, help="measured steps of each plan and repeat (default 10)")


BENCHMARK = Benchmark("transports", __doc__ or "", measure, 1.3, "geometric mean of the ratios", add_options)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
