"""The joint search on models, beside the best sequential composition, with all memory and with a part of it.

What: the simulated step of the joint search's plan (`--search joint`), and of the best sequential composition: the
graph as it is and as proved rules make it cheapest for one device, each divided, ordered and held by `portfolio`, with
as many seconds of work. At 100, 60 and 35 % of the memory that the free plan needs. The ablation beside: which parts of
the choice differ, and what the step takes where one alone is set back. Against: Mist (EuroSys 2025) reports 1.28 times
Megatron-LM and 1.27 times Aceso for joining parallelism with checkpointing, state and offloading. The floor: never
slower than the sequential composition, in any case; the geometric mean under caps is printed, with the cases that only
the joint search fits, and the largest part of each bound.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

from benchmarks.common import Benchmark, Report, Row, captured, note, timed

MODELS = (
    ("mlp-tiny", None, "titanx-40g:2"),
    ("lenet", 256, "titanx-40g:2"),
    ("gpt-tiny", 256, "titanx-40g:4"),
    ("alexnet", 256, "titanx-40g:4"),
    ("rnn-4-1k", None, "titanx-40g:4"),
)
QUICK = (("mlp-tiny", None, "titanx-40g:2"),)
LEFT_OUT = (
    "the other models of the papers, and GPT-2 XL, Llama 3 8B, a Mixtral-like mixture of experts, ViT-L and a DLRM on "
    "dgx-v100, 2x4, 8x8 and 4 cards of RTX 4090: they take hours of one core"
)
SHARES = (1.0, 0.6, 0.35)


def sequential(graph: Any, machine: str, cap: int | None, seconds: float) -> float:
    """Seconds of the best sequential composition; infinite where nothing fits."""
    from girih.api import plan_graph
    from girih.machine import machine as machine_of
    from girih.plans.plan import PlanError
    from girih.plans.rewritten import Rewriting

    rewritten, rewrites = Rewriting().apply(graph, machine_of(machine))
    best = float("inf")
    for item in (graph, rewritten) if rewrites else (graph,):
        try:
            plan = plan_graph(item, machine=machine, memory=cap, search=f"portfolio:seconds={seconds}")
            best = min(best, plan.certificate.cost)
        except PlanError:
            continue
    return best


def case(name: str, graph: Any, machine: str, cap: int | None, share: float, seconds: float) -> Row:
    from girih.api import plan_graph
    from girih.plans.plan import PlanError

    before, first = timed(sequential, graph, machine, cap, seconds)
    row: Row = {"model": name, "machine": machine, "memory": f"{share:.0%}", "sequential": before}
    row["sequential CPU"] = round(first.cpu, 1)
    try:
        plan, timing = timed(plan_graph, graph, machine=machine, memory=cap, search=f"joint:seconds={seconds}")
    except PlanError:
        return {**row, "joint": float("inf"), "ratio": 1.0 if before == float("inf") else 0.0, "by": "refused"}
    told = plan.certificate
    changed = [
        f"{part.removeprefix('without its ')} {float(slower) / told.cost:.2f} ×"
        for part, slower in told.statistics.items()
        if part.startswith("without its ")
    ]
    return {
        **row,
        "joint": told.cost,
        "ratio": before / told.cost,
        "by": told.statistics["found by"],
        "gap": f"{told.gap:.0%}",
        "bound": told.how,
        "CPU": round(timing.cpu, 1),
        "stopped": told.stopped,
        "set back": ", ".join(changed),
    }


def measure(options: argparse.Namespace) -> Report:
    from girih.api import plan_graph

    rows: list[Row] = []
    for name, batch, machine in QUICK if options.quick else MODELS:
        graph = captured(name, batch)
        free = plan_graph(graph, machine=machine, compare=())
        for share in (0.6,) if options.quick else SHARES:
            cap = None if share == 1.0 else int(share * free.peak)
            rows.append(case(name, graph, machine, cap, share, 2.0 if options.quick else options.seconds))
            note(rows[-1])
    limited = [row["ratio"] for row in rows if row["memory"] != "100%"]
    capped = [ratio for ratio in limited if 0 < ratio < float("inf")]
    alone = [row for row in rows if row["ratio"] == float("inf")]
    mean = float(np.exp(np.mean(np.log(capped)))) if capped else 1.0
    slower = [
        f"{row['model']} on {row['machine']} at {row['memory']}: {row['joint']} s, in turn {row['sequential']} s"
        for row in rows
        if row["ratio"] < options.floor
    ]
    columns = tuple(
        (words, words)
        for words in (
            "model", "machine", "memory", "sequential", "joint", "ratio", "by", "gap", "bound", "sequential CPU", "CPU",
            "stopped", "set back",
        )
    )  # fmt: skip
    return Report(
        "The joint search beside the best sequential composition, simulated seconds of a step",
        columns,
        tuple(rows),
        f"{mean:.3f} × under caps in geometric mean of {len(capped)}; only the joint search fits {len(alone)}",
        tuple(slower),
        (f"left out: {LEFT_OUT}",),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds of work of each search (default 60)")


BENCHMARK = Benchmark(
    "joint_models", __doc__ or "", measure, 1.0 - 1e-9, "times the sequential composition, at least", add_options
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
