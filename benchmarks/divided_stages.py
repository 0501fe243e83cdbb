"""Pipelines whose stages are themselves divided, in the fastest plan: beside the best plan without them.

What: the simulated step of BERT, GPT and Llama as the default search plans it, on 8 devices in two hosts and on 64 in
eight, with the step as it is and with its batch cut into micro-batches beforehand. How: the search judges stages on
parts of the machine beside all else (`girih.search.stages`), and its certificate says what every candidate takes; both
columns are of one plan, by the machine's data sheet. Against: the fastest of all other candidates (data and tensor
parallelism, sharded state, Megatron-LM, pipelines with one device for each stage, `exact`, layers exchanged between
them). Floor: with divided stages no plan is slower than `--floor` times the best without; how much faster is printed.
"""

from __future__ import annotations

import argparse
import sys
from math import exp, log
from typing import Any

from benchmarks.common import Benchmark, Report, Row, note, seconds_option, timed, training_step

CASES: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("bert-12-768", 64, {"sequence": 128}),
    ("gpt-12-1024", 64, {"sequence": 128, "vocabulary": 50304}),
    ("llama-8-1024", 64, {"sequence": 128}),
)
QUICK: tuple[tuple[str, int, dict[str, Any]], ...] = (("gpt-4-256", 16, {"sequence": 32}),)
MACHINES = ("2x4", "8x8")


def case(name: str, batch: int, overrides: dict[str, Any], machine: str, seconds: float) -> Row:
    from girih.api import plan_graph
    from girih.capture import capture

    step, inputs = training_step(name, batch, **overrides)
    graph = capture(step, inputs).graph
    plan, timing = timed(plan_graph, graph, machine=machine, search=f"portfolio:seconds={seconds}", compare=())
    tried: dict[str, Any] = plan.certificate.tried
    others = {name: took for name, took in tried.items() if name != "stages"}
    by = min(others, key=others.__getitem__)
    return {
        "model": f"{name}, batch {batch}",
        "machine": machine,
        "before": others[by],
        "by": by,
        "stages": tried.get("stages"),
        "with": plan.certificate.cost,
        "ratio": round(others[by] / plan.certificate.cost, 3),
        "how": plan.certificate.space if plan.search == "stages" else "",
        "cpu": round(timing.cpu, 1),
    }


def measure(options: argparse.Namespace) -> Report:
    rows = []
    for name, batch, overrides in QUICK if options.quick else CASES:
        for machine in MACHINES[:1] if options.quick else MACHINES:
            rows.append(case(name, batch, overrides, machine, options.seconds))
            note(rows[-1])
    mean = exp(sum(log(row["ratio"]) for row in rows) / len(rows))
    misses = [f"{row['model']} on {row['machine']}: {row['ratio']}" for row in rows if row["ratio"] < options.floor]
    columns = (
        ("model", "model"),
        ("machine", "machine"),
        ("s a step without", "before"),
        ("by", "by"),
        ("s with divided stages", "with"),
        ("times faster", "ratio"),
        ("stages", "how"),
        ("CPU s", "cpu"),
    )
    return Report(
        "Stages that are divided, in the fastest plan, simulated",
        columns,
        tuple(rows),
        f"{mean:.3f} times as fast in geometric mean, at most {max(row['ratio'] for row in rows)}",
        tuple(misses),
    )


BENCHMARK = Benchmark(
    "divided_stages", __doc__ or "", measure, 1.0, "times as fast with divided stages, at least", seconds_option
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
